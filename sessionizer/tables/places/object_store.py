"""Object stores that speak S3: how each client is told where one is and who asks, and what a refusal means."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from sessionizer.lib.errors import RunFailed

SCHEMES = ("s3", "s3a")
HADOOP = "spark.hadoop.fs.s3a."  # what settings of Spark's client begin with
ENDPOINT, REGION, PLAIN_HTTP = "endpoint", "endpoint.region", "connection.ssl.enabled"
WHO = {"access.key": "AWS_ACCESS_KEY_ID", "secret.key": "AWS_SECRET_ACCESS_KEY", "session.token": "AWS_SESSION_TOKEN"}
# Settings that only Spark's client follows: some other way to credentials, a way of its own to the store.
SPARKS_OWN = ("aws.credentials", "assumed.role", "bucket.", "encryption.", "server-side-", "proxy.", "security.")
SPARKS_STORE = "spark.hadoop.hadoop.security.credential"
# Seconds, and tries: nobody waits minutes for a store that is not there. Throttling has tries of its own.
CONNECTS_WITHIN, ANSWERS_WITHIN, GIVES_UP_AFTER, TRIES = 3, 4, 10, 3
FOR_SPARK = {
    f"{HADOOP}connection.establish.timeout": "15s",
    f"{HADOOP}attempts.maximum": "2",
    f"{HADOOP}retry.limit": "3",
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",  # s3:// is the same place
}
# What the clients say, any of it; the rule; the remedy. All that they say beside it may hold ids and signatures.
CAUSES = (
    (
        ("S3AFileSystem not found", 'No FileSystem for scheme "s3'),
        "Spark has no client for object stores",
        "add its package to the config: `spark: {spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0}`, in the "
        "version of Spark's own Hadoop",
    ),
    (
        ("NoSuchBucket", "UnknownStoreException"),
        "the bucket does not exist",
        "make it, or name another one in the config",
    ),
    (
        ("NoAwsCredentialsException", "NoAuthWithAWSException", "latest/api/token", "Unable to load credentials"),
        "there are no credentials for the object store",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what else the page on object stores names",
    ),
    (
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"),
        "the object store does not know these credentials, or no longer",
        "renew AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or what the config has in their place",
    ),
    (
        ("PermanentRedirect", "incorrectly configured region"),
        "the bucket is in another region",
        "set AWS_REGION, or spark.hadoop.fs.s3a.endpoint.region in the config, to the bucket's own",
    ),
    (
        ("AccessDenied", "403 Forbidden", "Status Code: 403"),
        "the object store does not allow this",
        "have its owner allow these credentials to list, read, write and delete below the tables",
    ),
    (
        (
            "Connect to ",
            "UnknownHostException",
            "client error (Connect)",
            "kind: Connect",
            "NETWORK_CONNECTION",
            "ConnectException",
        ),
        "the object store was not reached",
        "check AWS_ENDPOINT_URL, or spark.hadoop.fs.s3a.endpoint in the config, and the network",
    ),
)
_CODE = re.compile(r"AWS Error [A-Z_]+(?: \(HTTP status \d+\))?|\b[45]\d\d [A-Z][A-Za-z ]+")
_OF_STORES = ("s3a", "S3 error", "awssdk", "AWS Error", 'scheme "s3')


def is_stored(location: str) -> bool:
    """Whether a place is in an object store that speaks S3."""
    place = urlsplit(location)
    return place.scheme in SCHEMES and "@" not in place.netloc  # users in URLs are no clients' any more


def refusal(text: str) -> RunFailed | None:
    """The sentence, if this is what a client says of a store that it cannot use; nothing of the text is in it."""
    if not any(sign in text for sign in _OF_STORES):
        return None
    return next((RunFailed(rule, remedy=todo) for signs, rule, todo in CAUSES if any(s in text for s in signs)), None)


@contextmanager
def refusing() -> Iterator[None]:
    """Inside it a refusal of the store is a RunFailed."""
    try:
        yield
    except OSError as error:  # of deltalake and of Arrow alike
        if (named := refusal(str(error))) is not None:
            raise named from None
        raise


@contextmanager
def copying() -> Iterator[None]:
    """The same where files are copied: whatever else the store says is a RunFailed, too."""
    try:
        with refusing():
            yield
    except OSError as error:
        if not any(sign in str(error) for sign in _OF_STORES):
            raise
        code = _CODE.search(str(error))
        raise RunFailed(
            "the object store failed while files were copied",
            value=code and code[0],
            remedy="start the command again: what was committed stays",
        ) from None


@dataclass(frozen=True)
class ObjectStore:
    """Where it is, and who asks. None: as its client finds it, by profiles, or by the machine that it runs on."""

    endpoint: str | None
    region: str | None
    access_key: str | None
    secret_key: str | None
    token: str | None

    @classmethod
    def of(cls, settings: Mapping[str, str], env: Mapping[str, str]) -> Self | None:
        """By the config's `spark:`, else the usual variables. None: the settings name what only Spark understands."""
        said = {n.removeprefix(HADOOP): value for n, value in settings.items() if n.startswith(HADOOP)}
        if any(n.startswith(SPARKS_OWN) for n in said) or any(n.startswith(SPARKS_STORE) for n in settings):
            return None
        endpoint = said.get(ENDPOINT) or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
        if endpoint and "://" not in endpoint:
            endpoint = f"{'http' if said.get(PLAIN_HTTP) == 'false' else 'https'}://{endpoint}"
        region = said.get(REGION) or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
        by_config = any(name in said for name in WHO)  # the three belong together
        who = ((said.get(name) if by_config else env.get(variable)) or None for name, variable in WHO.items())
        return cls(endpoint or None, region or None, *who)

    def options(self) -> dict[str, str]:
        """What deltalake is told."""
        given = {
            "aws_endpoint_url": self.endpoint,
            "aws_region": self.region,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_session_token": self.token,
        }
        patience = {
            "allow_http": str((self.endpoint or "").startswith("http:")).lower(),
            "connect_timeout": f"{CONNECTS_WITHIN}s",
            "retry_timeout": f"{GIVES_UP_AFTER}s",
            "max_retries": str(TRIES - 1),
        }
        return {name: value for name, value in given.items() if value is not None} | patience

    def writing(self, bucket: str) -> Any:
        """A bucket, as a client that writes under conditions."""
        from obstore.store import S3Store  # noqa: PLC0415  (few need it)

        given: dict[str, Any] = {"endpoint": self.endpoint, "region": self.region}
        who = {"access_key_id": self.access_key, "secret_access_key": self.secret_key, "token": self.token}
        if self.access_key is not None:  # else it would take a token from the environment to a key of the config
            given["credential_provider"] = lambda: {**who, "expires_at": None}
        patience: Any = {
            "connect_timeout": f"{CONNECTS_WITHIN}s",
            "timeout": f"{ANSWERS_WITHIN}s",
            "allow_http": (self.endpoint or "").startswith("http:"),
        }
        return S3Store(
            bucket,
            **{name: value for name, value in given.items() if value is not None},
            virtual_hosted_style_request=self.endpoint is None,
            client_options=patience,
            retry_config={"max_retries": TRIES - 1, "retry_timeout": timedelta(seconds=GIVES_UP_AFTER)},
        )

    def files(self) -> Any:
        """The store as a file system of Arrow's, in which paths begin with the bucket."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415  (it loads a library of Amazon's)

        place = urlsplit(self.endpoint) if self.endpoint else None
        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.token,
            region=self.region,
            endpoint_override=place.netloc if place else None,
            scheme=place.scheme if place else "https",
            connect_timeout=CONNECTS_WITHIN,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=TRIES),
        )


def spark_settings(settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """What Spark's own client is told of stores, unless the config says it: it does not read the usual variables all.

    Servers other than Amazon's have no names for buckets, so that theirs stand in paths.
    """
    store = ObjectStore.of(settings, env)
    if store is None or store.endpoint is None:
        return dict(FOR_SPARK)
    own = {ENDPOINT: store.endpoint, "path.style.access": "true"}
    own |= {REGION: store.region} if store.region else {}
    return FOR_SPARK | {f"{HADOOP}{name}": value for name, value in own.items()}


def arrow_path(location: str) -> str:
    """The bucket and what lies below, as Arrow names it."""
    return location.partition("://")[2].rstrip("/")
