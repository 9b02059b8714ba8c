"""What the whole step promises beyond its parts."""

from datetime import datetime

from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.frames import sessionize

HOUR = 3600 * 1_000_000
RULE = Rule(key=("u",), gap=HOUR, event_time="at", allowed_lateness=0)
SCHEMA = "u STRING, at TIMESTAMP"


def test_accepted_events_are_read_once(spark: SparkSession) -> None:
    reads = spark.sparkContext.accumulator(0)

    def seen(row: tuple[str, datetime]) -> tuple[str, datetime]:
        reads.add(1)
        return row

    rows = [("a", datetime(2024, 1, 1, hour)) for hour in range(20)]
    events = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2).map(seen), SCHEMA)
    outcome = sessionize(events, None, RULE, WatermarkState(now=2**60))
    assert outcome.changes.count() == 1
    assert outcome.counts["created"] == 1
    assert (outcome.events.accepted, reads.value) == (20, 20)


def test_no_events_and_no_sessions_give_nothing(spark: SparkSession) -> None:
    outcome = sessionize(spark.createDataFrame([], SCHEMA), None, RULE, WatermarkState(now=0))
    assert outcome.changes.collect() == []
    assert (outcome.events.read, outcome.counts["rows"], outcome.clock) == (0, 0, WatermarkState(now=0))


def test_sessions_end_without_any_new_event(spark: SparkSession) -> None:
    first = sessionize(
        spark.createDataFrame([("a", datetime(2024, 1, 1))], SCHEMA), None, RULE, WatermarkState(now=2**60)
    )
    live = first.changes.drop(C.CHANGE)
    later = WatermarkState(now=2**60, watermark=(first.clock.watermark or 0) + HOUR + 1)
    again = sessionize(spark.createDataFrame([], SCHEMA), live, RULE, later)
    assert [(r[C.STATUS], r[C.END_REASON], r[C.CHANGE]) for r in again.changes.collect()] == [
        ("final", "gap", "update")
    ]
