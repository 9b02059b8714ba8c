"""What the clients of an object store are told of it, and which of their words are a refusal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sessionizer.jobs.failures import known_failure
from sessionizer.jobs.fetch import Fetched, delivered, fetched
from sessionizer.lib.errors import RunFailed
from sessionizer.tables.places.object_store import (
    FOR_SPARK,
    ObjectStore,
    arrow_path,
    copying,
    is_stored,
    refusal,
    spark_settings,
)
from sessionizer.tables.queries.local import LocalTable, NeedsSpark

SECRET = "hush"
WHO = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "passing"}
OURS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-central-1"}


def test_the_usual_variables_lead_to_a_store() -> None:
    store = ObjectStore.of({}, WHO | OURS)
    assert store == ObjectStore("http://127.0.0.1:9000", "eu-central-1", "id", SECRET, "passing")
    assert store.options()["allow_http"] == "true"
    assert ObjectStore.of({}, {}) == ObjectStore(None, None, None, None, None)


def test_the_config_counts_first_and_who_asks_is_said_in_one_place() -> None:
    mine = {"spark.hadoop.fs.s3a.access.key": "mine", "spark.hadoop.fs.s3a.secret.key": "ours"}
    assert ObjectStore.of(mine, WHO) == ObjectStore(None, None, "mine", "ours", None)  # without the token of another
    place = {"spark.hadoop.fs.s3a.endpoint": "minio:9000", "spark.hadoop.fs.s3a.connection.ssl.enabled": "false"}
    assert getattr(ObjectStore.of(place, OURS), "endpoint", "") == "http://minio:9000"
    assert getattr(ObjectStore.of({"spark.hadoop.fs.s3a.endpoint": "s3.eu"}, OURS), "endpoint", "") == "https://s3.eu"


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.s3a.bucket.lake.endpoint",
        "spark.hadoop.fs.s3a.assumed.role.arn",
        "spark.hadoop.hadoop.security.credential.provider.path",
    ],
)
def test_what_only_spark_understands_is_left_to_it(name: str) -> None:
    assert ObjectStore.of({name: "x"}, WHO | OURS) is None
    assert spark_settings({name: "x"}, WHO | OURS) == FOR_SPARK


def test_spark_is_told_of_the_server_and_of_no_secret() -> None:
    told = spark_settings({}, WHO | OURS)
    assert told["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert told["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert not {"id", SECRET, "passing"} & set(told.values())
    assert spark_settings({}, WHO) == FOR_SPARK  # Amazon's own: its client finds it


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        (
            "Generic S3 error: 404 <Code>NoSuchBucket</Code> <AWSAccessKeyId>id</AWSAccessKeyId>",
            "bucket does not exist",
        ),
        ("UnknownStoreException: `s3a://lake/x': getFileStatus", "bucket does not exist"),
        ("Generic S3 error: PUT http://127.0.0.1/latest/api/token - Connection refused", "no credentials"),
        ("Generic S3 error: 403 Forbidden <Code>InvalidAccessKeyId</Code>", "does not know these credentials"),
        ("AccessDeniedException: s3a://lake/x: Service: S3, Status Code: 403", "does not allow this"),
        ("ConnectException: s3a://lake: awssdk: Connect to 127.0.0.1:9 failed", "was not reached"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation", "was not reached"),
        ('UnsupportedFileSystemException: No FileSystem for scheme "s3a"', "Spark has no client"),
    ],
)
def test_a_refusal_is_a_sentence_with_nothing_of_what_the_client_said(said: str, rule: str) -> None:
    named = known_failure(OSError(said))
    assert named is not None
    assert rule in named.rule
    assert named.remedy
    assert "AWSAccessKeyId>" not in str(named)


def test_what_others_say_is_no_refusal_of_a_store() -> None:
    assert refusal("Connect to sc://localhost failed: Connection refused") is None
    assert refusal("Generic S3 error: 500 Internal Server Error") is None


@pytest.mark.parametrize(
    ("location", "stored"),
    [
        ("s3a://lake/x", True),
        ("s3://lake/x", True),
        ("s3a://u:p@lake/x", False),
        ("gs://lake/x", False),
        ("/s3/x", False),
    ],
)
def test_which_places_are_in_such_a_store(location: str, stored: bool) -> None:
    assert is_stored(location) == stored


def test_files_are_told_by_the_names_that_they_have_in_their_store() -> None:
    assert arrow_path("s3a://lake/inbox/") == "lake/inbox"
    found = Fetched([Path("/tmp/x/lake/inbox/1.csv")], "/tmp/x")
    assert found.told(f"{found.files[0]}: torn") == "s3://lake/inbox/1.csv: torn"


@contextmanager
def overloaded() -> Iterator[str]:
    """A server that answers as an object store does which has too much to do."""

    class Busy(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    beside = Thread(target=server.serve_forever, daemon=True)
    beside.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    beside.join()


def test_what_a_store_says_while_files_are_copied_is_a_sentence_and_the_disk_speaks_for_itself() -> None:
    busy = (
        "When reading information for key 'a' in bucket 'lake': AWS Error SLOW_DOWN (HTTP status 503) during Head: hush"
    )
    with pytest.raises(RunFailed, match=r"got 'AWS Error SLOW_DOWN \(HTTP status 503\)'\. start") as told, copying():
        raise OSError(busy)
    assert "hush" not in str(told.value)
    with pytest.raises(RunFailed, match=r"the bucket does not exist"), copying():
        raise OSError("AWS Error NO_SUCH_BUCKET: NoSuchBucket")
    with pytest.raises(OSError, match="No space left"), copying():
        raise OSError(28, "No space left on device")


@pytest.mark.broad
def test_a_store_that_fails_for_now_is_left_to_spark_or_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with overloaded() as place:
        for name, value in {**WHO, **OURS, "AWS_ENDPOINT_URL": place}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(NeedsSpark, match="cannot be opened without it"):
            LocalTable("s3://lake/events", "source.table", ObjectStore.of({}, os.environ)).exists()
        failed = r"the object store failed while files were copied.*503"
        with pytest.raises(RunFailed, match=failed) as told, fetched(["s3://lake/a.csv"], {}):
            pass
        assert told.value.exit_code == 3
        with pytest.raises(RunFailed, match=failed), delivered("s3://lake/report.html", {}) as file:
            file.write_text("x")
