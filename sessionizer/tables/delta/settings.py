"""Properties of tables, and settings of Spark for single commits: the fence, what it says, how a MERGE writes."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import deltalake
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.util import inheritable_thread_target

from sessionizer.lib import columns as C
from sessionizer.lib.engine import is_remote
from sessionizer.tables.delta.commits import Commit

if TYPE_CHECKING:
    import pyarrow as pa

CHANGE_FEED = "delta.enableChangeDataFeed"
REMOVED_FILES_KEPT = "delta.deletedFileRetentionDuration"
LOG_KEPT = "delta.logRetentionDuration"
A_MONTH = "interval 30 days"
FENCES_KEPT = "delta.setTransactionRetentionDuration"
STATISTICS = "delta.dataSkippingStatsColumns"
LOCAL_TIMES = "delta.feature.timestampNtz"
COLUMN_MAPPING = "delta.columnMapping.mode"
# Bytes: files that are compacted, and what comes of them at most. Files that a first load has made by time are larger.
SMALL, LARGE = 8 << 20, 32 << 20
SHUFFLED = 2 * SMALL  # bytes before Parquet that make a file which is not small
# Delta refuses versions that it need not keep any more (a week), though what they need is mostly there.
WITHIN_RETENTION = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
THOUGH_RETYPED = "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
AS_IT_IS = {"spark.databricks.delta.merge.materializeSource": "none"}
ALSO_OTHERS = {"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"}
Done = TypeVar("Done")
# Of two partitions a task writes both at once, so that Spark need not sort the rows, which are in order of time.
BOTH_AT_ONCE = {"spark.sql.maxConcurrentOutputFileWriters": "3"}  # one more than are open


def is_on(setting: str | None) -> bool:
    """Whether a property of a table that is true or false is set to true, however it is spelled."""
    return setting is not None and setting.lower() == "true"


def has_local_times(kind: T.DataType) -> bool:
    """Whether it is TIMESTAMP_NTZ, or holds any."""
    match kind:
        case T.StructType():
            return any(has_local_times(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return has_local_times(kind.elementType)
        case T.MapType():
            return has_local_times(kind.keyType) or has_local_times(kind.valueType)
    return isinstance(kind, T.TimestampNTZType)


def arrow_schema(columns: T.StructType) -> "pa.Schema":
    """The columns as Arrow has them, times in UTC; by Delta's reading of them, as PySpark's own differs by release."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema(deltalake.Schema.from_json(columns.json()).to_arrow())


def read_any_version(spark: SparkSession) -> None:
    """From here on this session reads each version whose files are there, however old it is."""
    spark.conf.set(WITHIN_RETENTION, "false")


@contextmanager
def committing(spark: SparkSession, commit: Commit) -> Iterator[None]:
    """Commits inside carry the fence and the metadata of this one."""
    fence = {
        "spark.databricks.delta.write.txnAppId": commit.app_id,
        "spark.databricks.delta.write.txnVersion": str(commit.txn),
    }
    with having(spark, fence), saying(spark, commit.metadata):
        yield


def saying(spark: SparkSession, metadata: str | None) -> AbstractContextManager[None]:
    """Commits inside carry this text, JSON where anything of the user's is in it."""
    if metadata is None:
        return having(spark, {})
    told = metadata.replace("${", r"\u0024{")  # ${env:…} is expanded in whatever is set, a key of an event too
    return having(spark, {"spark.databricks.delta.commitInfo.userMetadata": told})


@contextmanager
def having(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Spark's own settings are put back as they were; Delta's are of one write, so that no fence ever stays.

    Where Spark has ended inside, there is nothing to put back, and the error is the one that tells of it.
    """
    before = {name: spark.conf.get(name, None) for name in settings if name.startswith("spark.sql.")}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            _put_back(spark, settings, before)
        raise
    _put_back(spark, settings, before)


def _put_back(spark: SparkSession, settings: Mapping[str, str], before: Mapping[str, str | None]) -> None:
    for name in settings:
        if (was := before.get(name)) is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, was)


def to_its_end(spark: SparkSession, statement: Callable[[], Done]) -> Done:
    """What a statement returns. Interrupted, it is told to stop and waited for.

    What has begun to commit goes on whoever waits: it must find its fence in the session, and the lock taken.
    """
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(inheritable_thread_target(spark)(statement))
        try:
            return running.result()  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            with suppress(Exception):  # a server that is gone has stopped, too
                spark.interruptAll()
            while not running.done():
                with suppress(KeyboardInterrupt):
                    wait([running])
            raise


def cores_of(spark: SparkSession) -> int:
    """How many tasks Spark does at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    return spark.range(1 << 20).select(F.spark_partition_id()).distinct().count()  # as many parts as that is


def by_all_cores() -> dict[str, str]:
    """Settings for a MERGE of many rows: else Delta gives each partition of the table to one task, however large.

    As many tasks as the join has, but that small ones are put together, so that files do not become small.
    """
    return {
        "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(SHUFFLED),
    }


def bare(rows: DataFrame) -> DataFrame:
    """The rows without what columns of a source say of themselves: CHAR(3), a default and comments are theirs alone."""
    told = {f.name: F.coalesce(C.col(f.name)) for f in rows.schema.fields if f.metadata}
    return rows.withColumns(told) if told else rows


def writing(rows: DataFrame, mode: str) -> DataFrameWriter:
    """To write them, bare, by Delta."""
    return bare(rows).write.format("delta").mode(mode)
