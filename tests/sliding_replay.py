"""Runs of sliding windows over frames alone: what a table would hold after each of them."""

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lib import columns as C
from lib.time.watermarks import WatermarkState, WatermarkOverride
from lib.windows.sliding.news import take_in
from lib.windows.sliding.rule import SlidingRule
from lib.windows.sliding.slide import Known, SlideOutcome, slide


class Replay:
    """The source, the windows and the rejected events of one rule, as frames."""

    def __init__(self, spark: SparkSession, rule: SlidingRule, schema: str, now: int = 10**15) -> None:
        self.spark, self.rule, self.schema = spark, rule, schema
        self.clock = WatermarkState(now=now)
        self.source: list[tuple[Any, ...]] = []
        self.windows: DataFrame | None = None
        self.rejected: DataFrame | None = None
        self.runs = 0

    def run(self, rows: list[tuple[Any, ...]], push: WatermarkOverride | None = None) -> SlideOutcome:
        """One increment of rows that are added to the source."""
        news = take_in(self.spark.createDataFrame(rows, self.schema), self.rule, self.clock)
        live = None if self.windows is None else self.windows.where(~C.col(C.IS_FINAL) | F.lit(news.recomputes_final))
        before = self.spark.createDataFrame(self.source, self.schema) if self.source else None
        outcome = slide(news, Known(before, self.rejected, live), self.rule, self.clock, push or WatermarkOverride())
        self.windows = self._applied(outcome.changes).localCheckpoint()
        if outcome.reasons:
            rejected = outcome.rejected().withColumn(C.RUN_SEQ, F.lit(self.runs))
            self.rejected = (rejected if self.rejected is None else self.rejected.union(rejected)).localCheckpoint()
        self.source += rows
        self.clock = replace(outcome.clock, flushed_from=None)
        self.runs += 1
        return outcome

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        assert self.windows is not None
        return [tuple(row) for row in in_micros(self.windows, *columns).collect()]

    def _applied(self, changes: DataFrame) -> DataFrame:
        upserts = changes.where(C.col(C.CHANGE) != "delete").drop(C.CHANGE)
        if self.windows is None:
            return upserts
        keys = (*self.rule.key, C.WINDOW_START)
        touched = changes.select(*[C.col(n).alias(f"__{i}") for i, n in enumerate(keys)])
        same = F.lit(True)
        for i, name in enumerate(keys):
            same = same & C.col(name).eqNullSafe(F.col(f"__{i}"))
        return self.windows.join(touched, same, "left_anti").unionByName(upserts)


def in_micros(frame: DataFrame, *columns: str) -> DataFrame:
    """These columns, times as microseconds since the epoch."""
    return frame.select(
        *[
            F.unix_micros(C.col(n)).alias(n) if frame.schema[n].dataType.typeName() == "timestamp" else C.col(n)
            for n in columns
        ]
    )
