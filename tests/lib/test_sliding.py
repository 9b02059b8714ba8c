"""Boundaries of sliding windows (SEMANTICS §10), and what a configuration may not say."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.config_file import load_config
from sessionizer.lib import columns as C
from sessionizer.lib.accepted import PENDING
from sessionizer.lib.config import Aggregate, Config
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.sliding.windows import PAST, mark_entering, points, windows
from sessionizer.lib.windows.windows import Stored
from tests.frames import judge, slide

D = 10

# case: times of one key -> windows as start: the times in them
CASES: dict[str, tuple[list[int], dict[int, list[int]]]] = {
    "one event": ([50], {40: [50]}),
    "both ends are inclusive": ([50, 60], {40: [50], 50: [50, 60], 51: [60]}),
    "an event further away than d is alone": ([50, 62], {40: [50], 52: [62]}),
    "right window of one is left window of the other": ([50, 61], {40: [50], 51: [61]}),
    "equal times have one set of windows": ([50, 50, 55], {40: [50, 50], 45: [50, 50, 55], 51: [55]}),
    "early events share the window after the epoch": ([0, 3, 9], {0: [0, 3, 9], 1: [3, 9], 4: [9]}),
    "at d the left window is the shared one": ([3, 10], {0: [3, 10], 4: [10]}),
    "before the epoch": ([-5, -1, 4], {-15: [-5], -11: [-5, -1], -4: [-1, 4], 0: [4]}),
    "the example of Kafka": ([80, 87, 90], {70: [80], 77: [80, 87], 80: [80, 87, 90], 81: [87, 90], 88: [90]}),
}


def test_windows_at_the_boundaries(spark: SparkSession) -> None:
    rule = SlidingRule(Rule(key=("name",), gap=D, time_unit=1), D)
    rows = [(name, t) for name, (times, _) in CASES.items() for t in times]
    found = windows(points(spark.createDataFrame(rows, f"name STRING, {C.US} BIGINT"), rule, ()), rule, ())
    made: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in CASES}
    for name, start, end, last, count in found.select("name", C.START, C.END, C.LAST, C.COUNT).collect():
        assert end == start + D
        assert start not in made[name]
        made[name][start] = (last, count)
    expected = {
        name: {start: (max(times), len(times)) for start, times in held.items()} for name, (_, held) in CASES.items()
    }
    assert made == expected


# case: remembered times of the key, horizon, time of the old event -> whether it still enters a window
ADMISSIONS: dict[str, tuple[list[int], int, int, bool]] = {
    "nothing remembered": ([], 100, 99, False),
    "within the left window of one in time": ([109], 100, 99, True),
    "just before that window": ([110], 100, 99, False),
    "within a right window that ends at the horizon": ([89], 100, 99, True),
    "within a right window that ends just before": ([88], 100, 99, False),
    "after a remembered one": ([95], 100, 97, True),
    "before a remembered one that is old itself": ([97], 100, 95, False),
    "at the time of a remembered one": ([99], 100, 99, False),
    "early, and the shared window ends at the horizon": ([], 10, 3, True),
    "early, and the shared window is closed": ([], 11, 3, False),
}


def test_an_old_event_is_admitted_where_a_window_is_open(spark: SparkSession) -> None:
    rule = SlidingRule(Rule(key=("name",), gap=D), D)
    remembered = [(name, t, PAST, None) for name, (times, _, _, _) in ADMISSIONS.items() for t in times]
    old = [(name, t, PENDING, horizon) for name, (_, horizon, t, _) in ADMISSIONS.items()]
    schema = f"name STRING, {C.US} BIGINT, {C.EFFECT} STRING, {C.H} BIGINT"
    decided = mark_entering(spark.createDataFrame(remembered + old, schema), rule).where(C.col(C.H).isNotNull())
    assert {row["name"]: row[C.ENTERS] for row in decided.collect()} == {
        name: admitted for name, (_, _, _, admitted) in ADMISSIONS.items()
    }


def test_windows_have_any_aggregate_of_sessions(spark: SparkSession) -> None:
    specs: list[dict[str, Any]] = [
        {"name": "values", "fn": "list", "of": "n"},
        {"name": "middle", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
        {"name": "spread", "fn": "stddev", "of": "n"},
        {"name": "kinds", "fn": "count_distinct", "of": "n"},
        {"name": "busy", "sql": "event_count > 1 AND kinds = 2"},
    ]
    aggregates = tuple(Aggregate.model_validate(spec) for spec in specs)
    rule = SlidingRule(Rule(key=(), gap=D, event_time="at", aggregates=aggregates), D)
    events = spark.createDataFrame([(us, n) for us, n in ((50, 1), (55, 3), (60, 3))], "us BIGINT, n INT")
    clock = WatermarkState(now=2**60)
    timed = events.select(F.timestamp_micros("us").alias("at"), "n")
    made = slide(timed, Stored(), rule, clock).changes
    assert {row[C.WINDOW_START].microsecond: tuple(row[s["name"]] for s in specs) for row in made.collect()} == {
        40: ([1], 1, None, 1, False),
        45: ([1, 3], 1, 2**0.5, 2, True),
        50: ([1, 3, 3], 3, pytest.approx(4 / 12**0.5), 2, True),
        51: ([3, 3], 3, 0.0, 1, False),
        56: ([3], 3, None, 1, False),
    }


@pytest.mark.parametrize(("unit", "expected"), [(1, [-1, 0, 1999, 2000]), (1000, [-1000, 0, 1000, 2000])])
def test_times_are_truncated_to_the_unit_towards_the_past(spark: SparkSession, unit: int, expected: list[int]) -> None:
    rule = Rule(key=(), gap=1000, event_time="timestamp_micros(t)", time_unit=unit)
    frame = spark.createDataFrame([(-1,), (0,), (1999,), (2000,)], "t BIGINT")
    assert [row[C.US] for row in judge(frame, rule, WatermarkState(now=2**60)).collect()] == expected


PER_KEY = {"watermark": {"per": "key"}, "idle_timeout": {"after": "7d", "clock": "processing_time"}}


def configured(sliding: dict[str, Any], **sections: Any) -> Config:
    tables = {"source": {"table": "w/events", "key": ["user"]}, "sessions": {"table": "w/sessions"}}
    return Config.model_validate(tables | sections | {"sliding": {"table": "w/windows"} | sliding})


@pytest.mark.parametrize(
    ("sliding", "sections", "says"),
    [
        ({"time_difference": "0s"}, {}, "must be longer than 0s"),
        ({"time_difference": "-5m"}, {}, "must be longer than 0s"),
        ({"grace": "-1s"}, {}, "must not be negative"),
        ({"time_difference": "1500us"}, {}, "must have a time_difference of whole time_units"),
        ({"lateness": "window"}, {}, "'event' or 'session'"),
        ({"aggregates": [{"name": "window_start", "fn": "count"}]}, {}, "nothing else in the windows table has"),
        ({"table": "w/events"}, {}, "must not be the same place"),
        ({}, {"late_events": "separate"}, "late_events: separate does not go with sliding"),
        ({}, {"time": PER_KEY}, "watermark.per: key does not go with sliding: windows do not idle"),
        ({"runs": "w/runs"}, {}, "outputs.runs and sliding.runs must not be the same place"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(sliding: Any, sections: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        configured(sliding, **sections)


def test_defaults_are_those_of_the_contract() -> None:
    config = configured({})
    rule = SlidingRule.of(config)
    minutes = timedelta(minutes=10) // timedelta(microseconds=1)
    assert (rule.difference, rule.unit, rule.events.lateness) == (minutes, 1000, "event")
    assert rule.events.allowed_lateness == 6 * minutes
    assert config.sliding is not None
    beside = (config.sliding.rejected_events, config.sliding.runs)
    assert beside == ("w/rejected_window_events", "w/window_runs")


def test_an_error_in_the_file_names_the_field(tmp_path: Any) -> None:
    file = tmp_path / "sessionizer.yaml"
    file.write_text("source: {table: e, key: [u]}\nsessions: {table: s}\nsliding: {table: w, time_difference: 0s}\n")
    with pytest.raises(ConfigError, match=r"sliding\.time_difference must be longer than 0s"):
        load_config(file, {})
