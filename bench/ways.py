"""Ways to keep sessions in Delta: ours, and those that a user would pick instead, written as that user would.

Each makes or brings up to date one table with user_id, session_id, session_start, session_end, event_count, revenue
(whatever it keeps besides is its own business). Whoever reads Spark's configuration finds it as we set it, which helps
all of them.
"""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import delta
import deltalake
import duckdb
import polars as pl
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.config import Config

GAP_MINUTES = 30
LATE_BY_MINUTES = 24 * 60
COLUMNS = ("user_id", "session_id", "session_start", "session_end", "event_count", "revenue")
COMPARED = ("user_id", "session_start", "session_end", "event_count", "revenue")


class Way(ABC):
    """One way, with a table of its own. load: the first time; update: after events have been added to the source."""

    name: ClassVar[str]
    keeps_live: ClassVar[bool] = True  # whether the table holds sessions that may still grow

    def __init__(self, spark: SparkSession, source: Path, folder: Path) -> None:
        self.spark, self.source, self.folder = spark, str(source), folder / type(self).__name__
        self.table = str(self.folder / "sessions")

    def forget(self) -> None:
        """Remove the table and all that goes with it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    @abstractmethod
    def load(self) -> None:
        """Make the table from all events."""

    def update(self) -> None:
        """Bring it up to date; where a way has no increments, it makes all anew."""
        self.load()

    def sessions(self) -> DataFrame:
        """What the table holds, in the columns that all have."""
        return self.spark.read.format("delta").load(self.table).select(*COMPARED)

    def events(self) -> DataFrame:
        """The source as it stands."""
        return self.spark.read.format("delta").load(self.source)

    def write(self, sessions: DataFrame) -> None:
        """Replace the table."""
        sessions.select(*COLUMNS).write.format("delta").mode("overwrite").save(self.table)


class Ours(Way):
    """`sessionizer run`."""

    name = "sessionizer"
    commit: ClassVar[str] = "auto"

    def __init__(self, spark: SparkSession, source: Path, folder: Path, **more: Any) -> None:
        super().__init__(spark, source, folder)
        self.config = Config.model_validate(
            {
                "source": {"table": self.source, "key": ["user_id"]},
                "sessions": {"table": self.table, "commit": self.commit},
                "session": {"gap": f"{GAP_MINUTES}m"},
                "time": {"allowed_lateness": f"{LATE_BY_MINUTES}m"},
                "aggregates": [{"name": "revenue", "fn": "sum", "of": "amount"}],
                **more,
            }
        )
        self.reports: list[RunReport] = []

    def forget(self) -> None:
        super().forget()
        init(self.spark, self.config, None, lambda _: None)

    def load(self) -> None:
        self.reports = run(self.spark, self.config, RunOptions())


class Merging(Ours):
    """The same, where each run writes by MERGE."""

    name = "sessionizer, commit: merge"
    commit = "merge"


class SessionWindow(Way):
    """Spark's own session windows over all events, the table made anew."""

    name = "session_window"
    merge_locally = False

    def load(self) -> None:
        self.spark.conf.set("spark.sql.sessionWindow.merge.sessions.in.local.partition", self.merge_locally)
        self.write(with_id(by_window(self.events())))


class SessionWindowLocally(SessionWindow):
    """The same with partial merging before the shuffle."""

    name = "session_window, merged locally first"
    merge_locally = True


class LagAndCumsum(Way):
    """The textbook's SQL over all events, the table made anew."""

    name = "lag + cumsum over all events"

    def load(self) -> None:
        self.write(with_id(by_lag(self.events())))


class TrailingWindow(Way):
    """A dbt-style incremental model: users seen in the last day, their whole history again, MERGE by session id.

    It never removes a row: where a late event joins two sessions, the second stays beside the joined one.
    """

    name = "trailing window + MERGE (dbt style)"

    def load(self) -> None:
        self.write(with_id(by_lag(self.events())))

    def update(self) -> None:
        table = delta.DeltaTable.forPath(self.spark, self.table)
        latest = table.toDF().agg(F.max("session_end")).collect()[0][0]
        since = F.lit(latest) - F.expr(f"INTERVAL {LATE_BY_MINUTES} MINUTES")
        seen = self.events().where(F.col("event_time") >= since).select("user_id").distinct()
        again = with_id(by_lag(self.events().join(seen, "user_id", "left_semi"))).select(*COLUMNS)
        merge = table.alias("t").merge(again.alias("s"), "t.session_id = s.session_id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


class Streaming(Way):
    """Structured Streaming with RocksDB, run now and then with `availableNow`: emits sessions once they are over."""

    name = "Structured Streaming session_window"
    keeps_live = False

    def load(self) -> None:
        self.spark.conf.set(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        events = self.spark.readStream.format("delta").load(self.source)
        sessions = by_window(events.withWatermark("event_time", f"{LATE_BY_MINUTES} minutes"))
        query = (
            with_id(sessions)
            .select(*COLUMNS)
            .writeStream.format("delta")
            .outputMode("append")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(self.table)
        )
        query.awaitTermination()


class DuckDB(Way):
    """DuckDB's lag + cumsum over the files of the Delta table, written by the deltalake package."""

    name = "DuckDB, one process"

    def load(self) -> None:
        files = deltalake.DeltaTable(self.source).file_uris()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            sessions = connection.sql(
                f"""
                WITH flagged AS (
                    SELECT user_id, event_time, amount,
                        event_time - lag(event_time) OVER by_time > INTERVAL {GAP_MINUTES} MINUTES AS starts
                    FROM read_parquet($files)
                    WINDOW by_time AS (PARTITION BY user_id ORDER BY event_time)
                ),
                numbered AS (
                    SELECT *, sum(coalesce(starts, true)::INT) OVER (
                        PARTITION BY user_id ORDER BY event_time
                    ) AS number
                    FROM flagged
                ),
                sessions AS (
                    SELECT user_id, min(event_time) AS session_start, max(event_time) AS session_end,
                        count(*) AS event_count, sum(amount)::DECIMAL(18, 2) AS revenue
                    FROM numbered GROUP BY user_id, number
                )
                SELECT user_id, left(sha256(concat_ws('|', user_id, epoch_us(session_start))), 32) AS session_id,
                    session_start, session_end, event_count, revenue
                FROM sessions
                """,
                params={"files": files},
            )
            deltalake.write_deltalake(self.table, sessions.to_arrow_reader(), mode="overwrite")


class Polars(Way):
    """Polars' streaming engine, sorted and cumulated per user."""

    name = "polars, one process"

    def load(self) -> None:
        starts = pl.col("event_time").diff().over("user_id") > pl.duration(minutes=GAP_MINUTES)
        sessions = (
            pl.scan_delta(self.source)
            .select("user_id", "event_time", "amount")
            .sort("user_id", "event_time")
            .with_columns(starts.fill_null(True).cum_sum().alias("number"))
            .group_by("user_id", "number")
            .agg(
                pl.col("event_time").min().alias("session_start"),
                pl.col("event_time").max().alias("session_end"),
                pl.len().cast(pl.Int64).alias("event_count"),
                pl.col("amount").sum().cast(pl.Decimal(18, 2)).alias("revenue"),
            )
            .with_columns(
                pl.concat_str("user_id", pl.col("session_start").dt.epoch("us"), separator="|")
                .hash()
                .cast(pl.String)
                .alias("session_id")
            )
            .select(*COLUMNS)
        )
        sessions.collect(engine="streaming").write_delta(self.table, mode="overwrite")


class Floor(Way):
    """No way to sessions: the columns scanned, and as many rows written that were ready before."""

    name = "only scan and write"

    def __init__(self, spark: SparkSession, source: Path, folder: Path, ready: DataFrame) -> None:
        super().__init__(spark, source, folder)
        self.ready = ready

    def load(self) -> None:
        self.events().select("user_id", "event_time", "amount").write.format("noop").mode("overwrite").save()
        self.write(self.ready)


def by_window(events: DataFrame) -> DataFrame:
    """Sessions by Spark's own windows."""
    window = F.session_window("event_time", f"{GAP_MINUTES} minutes").alias("window")
    sessions = events.groupBy("user_id", window).agg(
        F.max("event_time").alias("session_end"), F.count("*").alias("event_count"), F.sum("amount").alias("revenue")
    )
    return sessions.withColumn("session_start", F.col("window.start"))


def by_lag(events: DataFrame) -> DataFrame:
    """Sessions by lag, flag and cumulative sum."""
    by_time = Window.partitionBy("user_id").orderBy("event_time")
    gap = F.col("event_time") - F.lag("event_time").over(by_time)
    starts = F.coalesce((gap > F.expr(f"INTERVAL {GAP_MINUTES} MINUTES")).cast("int"), F.lit(0))
    flagged = events.select("user_id", "event_time", "amount", starts.alias("starts"))
    numbered = flagged.withColumn("number", F.sum("starts").over(by_time))
    return numbered.groupBy("user_id", "number").agg(
        F.min("event_time").alias("session_start"),
        F.max("event_time").alias("session_end"),
        F.count("*").alias("event_count"),
        F.sum("amount").alias("revenue"),
    )


def with_id(sessions: DataFrame) -> DataFrame:
    """Sessions with the id that users take: a hash of whose and when."""
    text = F.concat_ws("|", "user_id", F.unix_micros("session_start").cast("string"))
    return sessions.withColumn("session_id", F.substring(F.sha2(text, 256), 1, 32))
