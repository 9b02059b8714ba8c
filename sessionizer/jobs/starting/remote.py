"""A session of a Spark that is elsewhere, behind Spark Connect."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from sessionizer.lib.engine import is_remote
from sessionizer.lib.errors import RunFailed

ALWAYS = {  # whatever the settings say: an expression has one meaning, and what is not there is not passed over
    "spark.sql.session.timeZone": "UTC",  # of times without a zone
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # which goes by the zone that a text has
    "spark.sql.ansi.enabled": "true",  # what an expression has no value for fails
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",  # "page" is a text
    "spark.sql.caseSensitive": "false",
    "spark.sql.variable.substitute": "false",  # ${…} is text, not a variable of the machine
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # of a key that a file has twice; so do Delta's changes
    # A partition made of a time is in the zone of whoever wrote it: Delta would look for it in ours.
    "spark.databricks.delta.generatedColumn.partitionFilterOptimization.enabled": "false",
}
REMOTE = "spark.remote"
CATALOG_OF_DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
OF_A_SESSION = ("spark.sql.", "spark.databricks.")  # all others are of the server's process
OF_THE_SERVER = (  # and these of them
    *("spark.sql.catalogImplementation", "spark.sql.warehouse.dir", "spark.sql.extensions"),
    *("spark.sql.hive.metastore.", "spark.sql.queryExecutionListeners", "spark.sql.streaming.streamingQueryListeners"),
)
# Of a server only what concerns our own session.
WHERE_REMOTE = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.debug.maxToStringFields": "100000",  # expressions are checked by how they are shown
    **ALWAYS,
}
# Few rows are through before code for them is compiled, a task or a plan is made anew.
WHERE_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",  # of 50 tasks, as it is otherwise, 49 find nothing
}


def taken_over(running: SparkSession) -> SparkSession:
    """A session that is there already, with the settings that we cannot do without."""
    for name, value in (WHERE_REMOTE if is_remote(running) else ALWAYS).items():
        running.conf.set(name, value)
    if is_remote(running):
        _allow_deep_plans()
    return running


def remote_session(url: str, settings: Mapping[str, str], *, small: bool) -> SparkSession:
    """A session of a server, with the settings that may be changed there. small: as of `spark_session`.

    Errors: RunFailed where it is not reached, or has no Delta.
    """
    place, own = urlparse(url), {n: v for n, v in settings.items() if n.startswith(OF_A_SESSION)}
    own = {name: value for name, value in own.items() if not name.startswith(OF_THE_SERVER)}
    own = (WHERE_SMALL if small else {}) | own
    try:
        # Spark itself would go on trying for minutes.
        socket.create_connection((place.hostname or "", place.port or 15002), timeout=10).close()
        session = SparkSession.builder.remote(url).getOrCreate()
        _allow_deep_plans()
        for name, value in (own | WHERE_REMOTE).items():
            session.conf.set(name, value)
        catalog = session.conf.get("spark.sql.catalog.spark_catalog", "")
    except Exception as error:
        raise RunFailed(
            "the Spark server was not reached",
            value=url,
            remedy=f"start it, or name another in spark.remote or SPARK_REMOTE: {str(error).splitlines()[0]}",
        ) from error
    if catalog != CATALOG_OF_DELTA:
        raise RunFailed(
            "the Spark server has no Delta",
            value=url,
            remedy="start it with Delta's jars, spark.sql.extensions and spark.sql.catalog.spark_catalog",
        )
    return session


def _allow_deep_plans() -> None:
    """A plan is a message within a message for each of its steps, of which protobuf takes fifty by default."""
    with suppress(ImportError, AttributeError):  # other implementations than its own have other ways
        import_module("google._upb._message").SetAllowOversizeProtos(True)
