"""The sessions table."""

from pyspark.sql import SparkSession

from lib import columns as C
from lib.config import Config
from tables.delta import Table
from tables.window_table import Layout, WindowTable

ROWS_PER_FILE = 250_000  # so few that a look at one day of a year opens little else
REMEDY = (
    "a source column has changed its type, or the aggregates or the idle timeout have: undo it, make sessions that are "
    "there anew by `sessionizer rebuild`, or name a new table and run `sessionizer init`"
)


def sessions_table(spark: SparkSession, config: Config) -> WindowTable:
    """The sessions table of a configuration."""
    of = config.sessions
    layout = Layout(
        name="sessions",
        identity=(C.SESSION_ID,),
        start=C.SESSION_START,
        filtered_by=(C.SESSION_START, C.SESSION_END, C.EXPIRES_AT, C.SESSION_ID),
        partition_by=tuple(of.partition_by),
        change_feed=of.change_feed,
        rows_per_file=ROWS_PER_FILE,
        deletion_vectors=of.deletion_vectors,
        replaces=of.commit == "replace",
        remedy=REMEDY,
    )
    return WindowTable(Table(spark, of.table, "sessions.table"), layout, tuple(config.source.key))
