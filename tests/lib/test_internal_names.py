"""Names of columns in flight are in no error: a user cannot know them."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.config import Aggregate, DynamicGap
from sessionizer.lib.durations import HOUR
from sessionizer.lib.errors import ConfigError, SourceMismatch
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.frames import sessionize
from tests.text_tables import DAY

CLOCK = WatermarkState(now=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"aggregates": (Aggregate(name="total", fn="sum", of="nn + 1"),)},
        {"aggregates": (Aggregate(name="total", fn="sum", of="us"),)},
        {"aggregates": (Aggregate(name="total", sql="event_cnt + 1"),)},
        {"where": "nn > 1"},
        {"event_time": "timestamp_micros(us)"},
        {"gap": DynamicGap(expr="make_interval(0, 0, 0, 0, 0, 0, gap)")},
        {"key": ("uss",)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_does_not_fit_is_told_by_what_the_user_has(spark: SparkSession, wrong: dict[str, Any]) -> None:
    rule = Rule(**{"key": ("user",), "gap": HOUR, "event_time": "at", **wrong})
    events = spark.createDataFrame([("ann", DAY, 1)], "user STRING, at TIMESTAMP, n INT")
    with pytest.raises((ConfigError, SourceMismatch)) as caught:
        sessionize(events, None, rule, CLOCK)
    assert "__" not in str(caught.value)


def test_an_aggregate_cannot_be_of_a_column_in_flight(spark: SparkSession) -> None:
    rule = Rule(key=("user",), gap=HOUR, event_time="at", aggregates=(Aggregate(name="last", fn="max", of="__us"),))
    events = spark.createDataFrame([("ann", DAY, 1)], "user STRING, at TIMESTAMP, n INT")
    with pytest.raises(SourceMismatch, match="does not fit the source table"):
        sessionize(events, None, rule, CLOCK)
