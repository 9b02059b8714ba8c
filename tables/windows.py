"""The windows table. What a manifest says of sessions, it says here of windows."""

from pyspark.sql import SparkSession

from lib import columns as C
from lib.config import Config
from tables.delta import Table
from tables.window_table import Layout, WindowTable

ROWS_PER_FILE = 2_000_000
REMEDY = (
    "undo the change of the source or of sliding.aggregates, or name a new windows table and run `sessionizer init`"
)


def windows_table(spark: SparkSession, config: Config, location: str) -> WindowTable:
    """The windows table of a configuration; its change data feed is on, for it is the one that tells every change."""
    key = tuple(config.source.key)
    layout = Layout(
        name="windows",
        identity=(*key, C.WINDOW_START),
        start=C.WINDOW_START,
        filtered_by=(C.WINDOW_START, C.WINDOW_END),
        partition_by=(C.IS_FINAL,),
        change_feed=True,
        rows_per_file=ROWS_PER_FILE,
        remedy=REMEDY,
    )
    return WindowTable(Table(spark, location, "sliding.table"), layout, key)
