"""The windows table: its columns, its position, its live rows, its commits."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.config import Config, Sliding
from lib.errors import ConfigError
from lib.windows.sessions.changes import DELETE
from tables.delta import CHANGE_FEED, Commit, Entry, Superseded, Table
from tables.manifest import Manifest
from tables.rejected_events import RejectedEvents
from tables.sessions import MADE_FOR, Sessions

ROWS_PER_FILE = 2_000_000
FILTERED_BY = (C.WINDOW_START, C.WINDOW_END)


class Windows(Sessions):
    """The windows table. What a manifest says of sessions, it says here of windows."""

    own_columns = "the windows table must have the columns that the configuration and the source make"
    other_columns = (
        "undo the change of the source or of sliding.aggregates, or name a new windows table and run `sessionizer init`"
    )

    def __init__(self, spark: SparkSession, config: Config, sliding: Sliding) -> None:
        super().__init__(spark, config)
        self.table = Table(spark, sliding.table, "sliding.table")
        self.rejected_events = RejectedEvents(
            spark, config, Table(spark, sliding.rejected_events, "sliding.rejected_events")
        )

    def create(self, schema: T.StructType, made_for: str) -> None:
        """Make the table, empty; its change data feed is on, for it is the one that tells every change.

        made_for: what `events.schema_hash` says, for `fits`.
        """
        if any("`" in name for name in schema.names):
            raise ConfigError(
                "a column name with a backtick does not go with sliding: Delta cannot write its changes",
                value=next(name for name in schema.names if "`" in name),
                remedy="rename the column",
            )
        properties = {CHANGE_FEED: "true", "delta.enableDeletionVectors": "false", MADE_FOR: made_for}
        self._make(schema, [C.IS_FINAL], FILTERED_BY, properties)

    def around(self, version: int, starts: tuple[int, int] | None) -> DataFrame:
        """The rows that are not final and, if `starts` is given, those that start there (microseconds, inclusive)."""
        rows, live = self.table.read(version), ~C.col(C.IS_FINAL)
        return rows.where(live if starts is None else live | _starts_in(starts))

    def commit_windows(
        self, changes: DataFrame, manifest: Manifest, starts: tuple[int, int] | None, *, final_too: bool
    ) -> Entry:
        """Write the changes, which are computed, and the manifest in one commit, and return it.

        Where no row in the table changes, the rows are appended. Else they are merged into the rows that start
        between `starts` and, unless final ones change too, are live: literals, so that other files stay closed.
        Errors: Superseded if the table has moved on since the version that the manifest names.
        """
        fence = Commit(f"{self.table.id}:windows", manifest.run_seq, manifest.text())
        columns = tuple(self.table.schema.fieldNames())
        rows = changes.withColumn(C.RUN_ID, F.lit(manifest.run_id)).select(*C.cols(columns), C.col(C.CHANGE))
        with self.table.lock():
            self._check_not_moved(manifest)
            if starts is None or not (manifest.sessions["updated"] or manifest.sessions["deleted"]):
                self.table.append(_by_time(rows.drop(C.CHANGE), manifest.sessions["rows"]), fence)
            else:
                gone, written = f"s.{C.CHANGE} = '{DELETE}'", manifest.live_sessions + manifest.sessions["rows"]
                many = final_too or written > ROWS_PER_FILE
                self.table.merge(rows, self._same(starts, final_too), fence, delete_when=gone, computed=True, many=many)
        if (entry := self.committed(manifest)) is None:
            raise Superseded(f"run_seq {manifest.run_seq} was there already")
        return entry

    def _same(self, starts: tuple[int, int], final_too: bool) -> str:
        key = [C.quoted(name) for name in self.config.source.key]
        start = f"t.{C.WINDOW_START}"
        return " AND ".join(
            [
                *[f"t.{name} <=> s.{name}" for name in key],
                f"{start} = s.{C.WINDOW_START}",
                f"{start} >= timestamp_micros({starts[0]}L)",
                f"{start} <= timestamp_micros({starts[1]}L)",
                *([] if final_too else [f"t.{C.IS_FINAL} = false"]),
            ]
        )


def _starts_in(starts: tuple[int, int]) -> Column:
    first, last = (F.timestamp_micros(F.lit(us).cast("bigint")) for us in starts)
    return C.col(C.WINDOW_START).between(first, last)


def _by_time(rows: DataFrame, number: int) -> DataFrame:
    """Rows in files by time, so that a look at one day opens few of them."""
    files = 1 + number // ROWS_PER_FILE
    return rows.repartitionByRange(files, C.IS_FINAL, C.WINDOW_START) if files > 1 else rows.coalesce(1)
