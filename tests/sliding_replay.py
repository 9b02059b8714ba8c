"""Runs of sliding windows over frames alone: what a table would hold after each of them."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.time.watermarks import WatermarkOverride, WatermarkState
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.windows import Stored
from tests.frames import Past, RunResult, apply, slide


class Replay:
    """The source, the windows and the rejected events of one rule, as frames."""

    def __init__(self, spark: SparkSession, rule: SlidingRule, schema: str, now: int = 10**15) -> None:
        self.spark, self.rule, self.schema = spark, rule, schema
        self.clock = WatermarkState(now=now)
        self.source: list[tuple[Any, ...]] = []
        self.windows: DataFrame | None = None
        self.rejected: DataFrame | None = None
        self.runs = 0

    def run(self, rows: list[tuple[Any, ...]], override: WatermarkOverride | None = None) -> RunResult:
        """One increment of rows that are added to the source."""
        self.source += rows
        stored = Stored()
        if self.windows is not None:
            stored = Stored(self.windows.where(~C.col(C.IS_FINAL)), self.windows.where(C.col(C.IS_FINAL)))
        past = Past(stored.final, self._events, lambda: self.rejected) if self.runs else None
        news = self.spark.createDataFrame(rows, self.schema)
        outcome = slide(news, stored, self.rule, self.clock, override or WatermarkOverride(), past)
        identity = (*self.rule.key, C.WINDOW_START)
        self.windows = apply(self.windows, outcome.changes, identity).localCheckpoint()
        if outcome.events.rejected:
            rejected = outcome.rejected().withColumn(C.RUN_SEQ, F.lit(self.runs))
            self.rejected = (rejected if self.rejected is None else self.rejected.union(rejected)).localCheckpoint()
        self.clock = replace(outcome.clock, flushed_from=None)
        self.runs += 1
        return outcome

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        assert self.windows is not None
        return [tuple(row) for row in in_micros(self.windows, *columns).collect()]

    def _events(self, _: Any) -> DataFrame:
        return self.spark.createDataFrame(self.source, self.schema)


def in_micros(frame: DataFrame, *columns: str) -> DataFrame:
    """These columns, times as microseconds since the epoch."""
    return frame.select(
        *[
            F.unix_micros(C.col(n)).alias(n) if frame.schema[n].dataType.typeName() == "timestamp" else C.col(n)
            for n in columns
        ]
    )
