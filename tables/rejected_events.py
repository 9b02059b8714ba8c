"""rejected_events: every event that no session took, with the reason and the whole row."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.config import Config
from tables.delta import Commit, Table
from tables.manifest import Manifest


class RejectedEvents:
    """The rejected_events table."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.config = config
        self.table = Table(spark, config.outputs.rejected_events, "outputs.rejected_events")

    def create_if_missing(self, source_schema: T.StructType) -> None:
        """Make the table, empty, unless it is there."""
        if not self.table.exists():
            self.table.create(rejected_schema(self.config, source_schema), [], {})

    def append(self, rejected: DataFrame, manifest: Manifest, fence: str) -> None:
        """Add the rejected events of a run, once."""
        rows = rejected.withColumn(C.RUN_ID, F.lit(manifest.run_id)).withColumn(
            C.RUN_SEQ, F.lit(manifest.run_seq).cast("bigint")
        )
        names = tuple(rejected_schema(self.config, self.table.schema).fieldNames())
        self.table.append(rows.select(*C.cols(names)), Commit(fence, manifest.run_seq))


def rejected_schema(config: Config, source_schema: T.StructType) -> T.StructType:
    """The columns of rejected_events; the key columns have the types of the source."""
    types = {f.name.lower(): f.dataType for f in source_schema.fields}
    keys = [T.StructField(name, types.get(name.lower(), T.StringType())) for name in config.source.key]
    fixed = [
        (C.EVENT_TIME, T.TimestampType()),
        (C.REASON, T.StringType()),
        (C.WATERMARK, T.TimestampType()),
        (C.HORIZON, T.TimestampType()),
        (C.EVENT, T.StringType()),
        (C.EVENT_HASH, T.StringType()),
        (C.ORDINAL, T.IntegerType()),
        (C.SOURCE_VERSION, T.LongType()),
        (C.RUN_ID, T.StringType()),
        (C.RUN_SEQ, T.LongType()),
    ]
    return T.StructType([*keys, *[T.StructField(name, data_type) for name, data_type in fixed]])
