"""SEMANTICS at each boundary and one microsecond beside it. Times are microseconds, so that gaps are small numbers."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.config import Dedupe, DynamicGap
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import floor_div, steady
from sessionizer.lib.time.watermarks import WatermarkOverride, WatermarkState, advance, advance_to, flush
from tests import oracle
from tests.frames import Past, RunResult, apply, judge, sessionize

GAP = 10
FOREVER = 10**18
RULE = Rule(key=("case",), gap=GAP, event_time="timestamp_micros(t)", allowed_lateness=FOREVER, max_future_skew=FOREVER)
NO_CLOCK = WatermarkState(now=0)
YEAR_1 = -62_135_596_800_000_000
YEAR_1900 = -2_208_988_800_000_000
YEAR_9999 = 253_402_300_799_000_000

Cases = dict[str, list[int]]


def events(spark: SparkSession, cases: Cases) -> DataFrame:
    return spark.createDataFrame([(case, t) for case, times in cases.items() for t in times], "case STRING, t BIGINT")


def micros(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows in order, times as microseconds."""
    numbers = [
        F.unix_micros(C.col(n)).alias(n) if frame.schema[n].dataType.typeName() == "timestamp" else C.col(n)
        for n in columns
    ]
    return sorted((tuple(r) for r in frame.select(*numbers).collect()), key=repr)


def cut(spark: SparkSession, rule: Rule, cases: Cases) -> dict[str, list[tuple[int, int]]]:
    """First and last event of the sessions of each case."""
    outcome = sessionize(events(spark, cases), None, rule, NO_CLOCK)
    found: dict[str, list[tuple[int, int]]] = {}
    for case, start, end in micros(outcome.changes, "case", C.SESSION_START, C.SESSION_END):
        found.setdefault(case, []).append((start, end))
    return {case: sorted(spans) for case, spans in found.items()}


# Cutting


def test_the_gap_joins_or_splits_at_exactly_its_length(spark: SparkSession) -> None:
    """The same before 1970, in the year 1 and in the year 9999, beside bucket edges and upon them."""
    times = {
        "one below": [0, GAP - 1],
        "at": [0, GAP],
        "one above": [0, GAP + 1],
        "a chain at": [0, GAP, 2 * GAP],
        "equal": [0, 0],
        "around a bucket edge": [GAP - 1, GAP, 2 * GAP - 1, 3 * GAP],
    }
    joins = {
        "one below": [(0, 9)],
        "at": [(0, 10)],
        "one above": [(0, 0), (11, 11)],
        "a chain at": [(0, 20)],
        "equal": [(0, 0)],
        "around a bucket edge": [(9, 19), (30, 30)],
    }
    splits = joins | {"at": [(0, 0), (10, 10)], "a chain at": [(0, 0), (10, 10), (20, 20)]}
    bases = (0, -5, -GAP, YEAR_1, YEAR_1 + 7, YEAR_1900, YEAR_9999 - 100)
    cases = {f"{case} from {base}": [base + t for t in of] for case, of in times.items() for base in bases}

    def moved(spans: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
        return {f"{c} from {base}": [(a + base, b + base) for a, b in of] for c, of in spans.items() for base in bases}

    assert cut(spark, RULE, cases) == moved(joins)
    assert cut(spark, replace(RULE, gap_boundary="splits"), cases) == moved(splits)


def test_a_long_session_is_not_cut_by_a_shorter_one_inside_it(spark: SparkSession) -> None:
    """The running maximum of reach counts, not the end of the interval before."""
    first = sessionize(events(spark, {"a": [0, 10, 20, 30, 40, 50]}), None, RULE, NO_CLOCK)
    second = sessionize(events(spark, {"a": [5, 60]}), first.changes, RULE, first.clock)
    assert micros(second.changes, C.CHANGE, C.SESSION_START, C.SESSION_END) == [("update", 0, 60)]


def test_buckets_are_equally_wide_on_both_sides_of_1970(spark: SparkSession) -> None:
    widths = (1, 2, 10, 86_400_000_000)
    near = [*range(-25, 26), *(base + n for base in (YEAR_1, YEAR_1900, YEAR_9999, -widths[3]) for n in (-1, 0, 1))]
    frame = spark.createDataFrame([(t,) for t in near], "t BIGINT")
    found = frame.select("t", *[floor_div(F.col("t"), width) for width in widths])
    assert [tuple(r) for r in found.collect()] == [(t, *[t // width for width in widths]) for t in near]


def test_the_session_date_is_the_utc_date_of_the_start(spark: SparkSession) -> None:
    day = 86_400_000_000
    starts = {"last of 1969": [-1], "first of 1970": [0], "last of it": [day - 1], "next": [day], "-1 day": [-day - 1]}
    outcome = sessionize(events(spark, starts), None, RULE, NO_CLOCK)
    dated = outcome.changes.select("case", C.col(C.SESSION_DATE).cast("string"))
    assert dict(dated.collect()) == {
        "last of 1969": "1969-12-31",
        "first of 1970": "1970-01-01",
        "last of it": "1970-01-01",
        "next": "1970-01-02",
        "-1 day": "1969-12-30",
    }


# The life of a session


def test_states_are_strict_at_watermark_and_horizon(spark: SparkSession) -> None:
    """Watermark 100, horizon 80: a session ends after `t` + 10."""
    cases = {"one below H": [69], "at H": [70], "one below W": [89], "at W": [90], "one above W": [91], "last": [100]}
    outcome = sessionize(events(spark, cases), None, replace(RULE, allowed_lateness=20), NO_CLOCK)
    assert micros(outcome.changes, "case", C.EXPIRES_AT, C.STATUS, C.IS_FINAL, C.END_REASON) == [
        ("at H", 80, "closed", False, "gap"),
        ("at W", 100, "open", False, None),
        ("last", 110, "open", False, None),
        ("one above W", 101, "open", False, None),
        ("one below H", 79, "final", True, "gap"),
        ("one below W", 99, "closed", False, "gap"),
    ]


def test_a_session_that_nothing_touches_changes_state_with_the_watermark_alone(spark: SparkSession) -> None:
    rule = replace(RULE, allowed_lateness=20)
    first = sessionize(events(spark, {"a": [100]}), None, rule, NO_CLOCK)
    found, live, clock = [], first.changes, first.clock
    for watermark in (110, 111, 130, 131):
        outcome = sessionize(events(spark, {}), live, rule, clock, override=WatermarkOverride(advance_to=watermark))
        found.append(micros(outcome.changes, C.CHANGE, C.STATUS))
        live, clock = (outcome.changes if found[-1] else live), outcome.clock
    assert found == [[], [("update", "closed")], [], [("update", "final")]]


def test_verdicts_are_strict_at_the_horizon_and_at_the_skew(spark: SparkSession) -> None:
    rule = replace(RULE, allowed_lateness=20, max_future_skew=50)
    clock = WatermarkState(now=1000, watermark=100)
    cases = {
        "at H": [80],
        "older": [79],
        "at the skew": [1050],
        "ahead": [1051],
        "old and flushed": [89],
        "at mark": [90],
    }
    assert clock.horizon(rule) == 80
    assert micros(judge(events(spark, cases), rule, clock), "case", C.VERDICT) == [
        ("ahead", "in_the_future"),
        ("at H", None),
        ("at mark", None),
        ("at the skew", None),
        ("old and flushed", None),
        ("older", "late"),
    ]
    flushed = judge(events(spark, cases), rule, replace(clock, flush_mark=90))
    assert dict(flushed.select("case", C.VERDICT).where(C.col(C.VERDICT) == "late").collect()) == {
        "at H": "late",
        "older": "late",
        "old and flushed": "late",
    }


def test_within_one_run_lateness_is_judged_by_the_horizon_before_it(spark: SparkSession) -> None:
    outcome = sessionize(events(spark, {"a": [0], "b": [1000]}), None, replace(RULE, allowed_lateness=20), NO_CLOCK)
    assert outcome.events.rejected == {}
    assert micros(outcome.changes, "case", C.STATUS) == [("a", "final"), ("b", "open")]


def test_late_events_move_the_watermark_and_invalid_ones_do_not(spark: SparkSession) -> None:
    rule = replace(RULE, allowed_lateness=0, max_future_skew=0)
    late = sessionize(events(spark, {"a": [95]}), None, rule, WatermarkState(now=1000, watermark=90, flush_mark=99))
    assert (late.events.late, late.clock.watermark) == (1, 95)
    ahead = sessionize(events(spark, {"a": [1001]}), None, rule, WatermarkState(now=1000, watermark=90))
    assert (ahead.events.invalid, ahead.clock.watermark) == (1, 90)


# The clock


@pytest.mark.parametrize(
    ("follows", "delay", "before", "seen", "after"),
    [
        ("max_event_time", 0, None, (3, 20), 20),
        ("max_event_time", 5, None, (3, 20), 15),
        ("min_event_time", 0, None, (3, 20), 3),
        ("min_event_time", 5, None, (3, 20), -2),
        ("max_event_time", 0, 20, (3, 20), 20),
        ("max_event_time", 0, 21, (3, 20), 21),  # it never goes back
        ("min_event_time", 0, 19, (3, 20), 19),
        ("max_event_time", 0, None, (None, None), None),
        ("max_event_time", 0, 7, (None, None), 7),
        ("max_event_time", 0, None, (-9, -5), -5),
    ],
)
def test_the_watermark_follows_the_events_and_never_goes_back(
    follows: Any, delay: int, before: int | None, seen: tuple[int | None, int | None], after: int | None
) -> None:
    rule = replace(RULE, watermark_from=follows, watermark_delay=delay)
    assert advance(WatermarkState(now=0, watermark=before), *seen, rule).watermark == after


def test_advancing_to_below_the_watermark_does_nothing() -> None:
    clock = WatermarkState(now=0, watermark=100)
    assert advance_to(clock, 99) == clock
    assert advance_to(clock, 100) == clock
    assert advance_to(clock, 101).watermark == 101


def test_the_horizon_is_the_later_of_lateness_and_flush_mark() -> None:
    rule = replace(RULE, allowed_lateness=20)
    assert [
        WatermarkState(now=0).horizon(rule),
        WatermarkState(now=0, watermark=100).horizon(rule),
        WatermarkState(now=0, watermark=100, flush_mark=79).horizon(rule),
        WatermarkState(now=0, watermark=100, flush_mark=81).horizon(rule),
        WatermarkState(now=0, flush_mark=5).horizon(rule),
    ] == [None, 80, 80, 81, 5]


def test_a_flush_sets_both_marks_one_microsecond_past_every_reach() -> None:
    rule = replace(RULE, allowed_lateness=20)
    flushed = flush(WatermarkState(now=0, watermark=100), 110)
    assert (flushed.watermark, flushed.flush_mark, flushed.horizon(rule), flushed.flushed_from) == (111, 111, 111, 100)
    assert flush(WatermarkState(now=0, watermark=100), None) == WatermarkState(now=0, watermark=100)
    behind = flush(WatermarkState(now=0, watermark=100, flush_mark=100), 50)
    assert (behind.watermark, behind.flush_mark) == (100, 100)


def test_a_flush_ends_all_and_names_what_it_ended(spark: SparkSession) -> None:
    cases = {"over before": [9], "at the watermark": [10], "open": [20]}
    outcome = sessionize(events(spark, cases), None, RULE, NO_CLOCK, override=WatermarkOverride(flush=True))
    assert micros(outcome.changes, "case", C.EXPIRES_AT, C.STATUS, C.END_REASON) == [
        ("at the watermark", 20, "final", "flush"),
        ("open", 30, "final", "flush"),
        ("over before", 19, "final", "gap"),
    ]
    assert (outcome.clock.watermark, outcome.clock.flush_mark) == (31, 31)
    later = sessionize(
        events(spark, {"open": [31], "late": [30]}), None, RULE, replace(outcome.clock, flushed_from=None)
    )
    assert later.events.rejected == {"late": 1}
    assert micros(later.changes, "case", C.SESSION_START, C.STATUS, C.END_REASON) == [("open", 31, "open", None)]


# Identity


def table_after(table: DataFrame, outcome: RunResult) -> DataFrame:
    changed = outcome.changes.select(C.SESSION_ID)
    kept = table.join(changed, C.SESSION_ID, "left_anti").select(*table.columns)
    return kept.union(outcome.changes.where(C.col(C.CHANGE) != "delete").drop(C.CHANGE)).localCheckpoint()


def test_ids_follow_the_first_event_and_the_trail_names_those_that_vanished(spark: SparkSession) -> None:
    first = sessionize(
        events(
            spark, {"bridged": [0, 20], "starts earlier": [20], "extended": [0], "untouched": [0], "trail": [40, 60]}
        ),
        None,
        RULE,
        NO_CLOCK,
    )
    table = first.changes.drop(C.CHANGE)
    second = sessionize(
        events(spark, {"bridged": [10], "starts earlier": [15], "extended": [5], "trail": [50]}),
        table,
        RULE,
        first.clock,
    )
    third = sessionize(events(spark, {"trail": [35]}), table_after(table, second), RULE, second.clock)

    def trail(outcome: RunResult) -> list[tuple[Any, ...]]:
        upserts = outcome.changes.where(C.col(C.CHANGE) != "delete")
        return micros(upserts, "case", C.CHANGE, C.SESSION_START, C.SESSION_END, C.SESSION_ID, C.SUPERSEDES)

    def tombstones(outcome: RunResult) -> list[str]:
        return sorted(r[0] for r in micros(outcome.changes.where(C.col(C.CHANGE) == "delete"), C.SESSION_ID))

    def name(case: str, start: int) -> str:
        return oracle.session_id((case,), start)

    assert trail(second) == [
        ("bridged", "update", 0, 20, name("bridged", 0), [name("bridged", 20)]),
        ("extended", "update", 0, 5, name("extended", 0), []),
        ("starts earlier", "insert", 15, 20, name("starts earlier", 15), [name("starts earlier", 20)]),
        ("trail", "update", 40, 60, name("trail", 40), [name("trail", 60)]),
    ]
    assert tombstones(second) == sorted([name("bridged", 20), name("starts earlier", 20), name("trail", 60)])
    assert trail(third) == [
        ("trail", "insert", 35, 60, name("trail", 35), sorted([name("trail", 40), name("trail", 60)]))
    ]
    assert tombstones(third) == [name("trail", 40)]
    assert [second.counts[n] for n in ("created", "extended", "merged", "deleted", "live_change")] == [0, 2, 2, 3, -2]


# Longest duration


def test_a_session_lasts_exactly_max_duration_and_not_a_microsecond_more(spark: SparkSession) -> None:
    rule = replace(RULE, max_duration=25)
    times = {
        "exactly": [0, 10, 20, 25],
        "one above": [0, 10, 20, 26],
        "reach starts anew at the cut": [0, 10, 20, 30, 40, 50, 60],
        "before 1970": [-60, -50, -40, -30, -20, -10],
        "one event": [0],
    }
    assert cut(spark, rule, times) == {
        "exactly": [(0, 25)],
        "one above": [(0, 20), (26, 26)],
        "reach starts anew at the cut": [(0, 20), (30, 50), (60, 60)],
        "before 1970": [(-60, -40), (-30, -10)],
        "one event": [(0, 0)],
    }


def test_a_gap_ends_a_session_before_max_duration_does(spark: SparkSession) -> None:
    rule = replace(RULE, max_duration=25, gap_boundary="splits")
    assert cut(spark, rule, {"a": [0, 9, 19, 20]}) == {"a": [(0, 9), (19, 20)]}


def test_a_session_longer_than_it_may_last_is_closed_by_the_watermark(spark: SparkSession) -> None:
    rule = replace(RULE, max_duration=12)
    cases = {"a": [0, 5, 10]}  # expires at 20, ends by its duration at 12
    states = []
    for watermark in (12, 13):
        outcome = sessionize(
            events(spark, cases), None, rule, NO_CLOCK, override=WatermarkOverride(advance_to=watermark)
        )
        states += micros(outcome.changes, C.STATUS, C.END_REASON)
    assert states == [("open", None), ("closed", "max_duration")]


# Dynamic gap


def test_gaps_of_events_reach_as_far_as_the_longest(spark: SparkSession) -> None:
    """SEMANTICS §2: the running maximum of reach, never the one before."""
    rows = [("a", 0, 100), ("a", 10, 10), ("a", 100, 1), ("a", 102, 1), ("b", 0, 0), ("b", 0, -1), ("b", 0, None)]
    frame = spark.createDataFrame(rows, "case STRING, t BIGINT, g BIGINT")
    gap = DynamicGap.model_validate({"expr": "make_dt_interval(0, 0, 0, g / 1e6)"})
    outcome = sessionize(frame, None, replace(RULE, gap=gap), NO_CLOCK)
    assert micros(outcome.changes, C.SESSION_START, C.SESSION_END, C.EXPIRES_AT) == [(0, 100, 101), (102, 102, 103)]
    assert outcome.events.rejected == {"non_positive_gap": 3}
    raised = DynamicGap.model_validate({"expr": "make_dt_interval(0, 0, 0, g / 1e6)", "at_least": "2us"})
    outcome = sessionize(frame, None, replace(RULE, gap=raised), NO_CLOCK)
    assert micros(outcome.changes, C.SESSION_START, C.SESSION_END, C.EXPIRES_AT) == [(0, 102, 104)]


def test_a_gap_may_be_text_that_is_an_interval(spark: SparkSession) -> None:
    rows = [("a", 0, "10 microseconds"), ("a", 10, "rubbish"), ("a", 10, "1 microsecond")]
    frame = spark.createDataFrame(rows, "case STRING, t BIGINT, g STRING")
    outcome = sessionize(frame, None, replace(RULE, gap=DynamicGap.model_validate({"expr": "g"})), NO_CLOCK)
    assert micros(outcome.changes, C.SESSION_START, C.EXPIRES_AT) == [(0, 11)]
    assert outcome.events.rejected == {"non_positive_gap": 1}


# Idle


def test_a_session_is_idle_after_longer_than_the_timeout_by_event_time(spark: SparkSession) -> None:
    rule = replace(RULE, idle_after=4)
    states = []
    for watermark in (4, 5):
        outcome = sessionize(
            events(spark, {"a": [0]}), None, rule, NO_CLOCK, override=WatermarkOverride(advance_to=watermark)
        )
        states += micros(outcome.changes, C.STATUS, C.END_REASON)
    assert states == [("open", None), ("closed", "idle")]


def test_a_session_is_idle_after_longer_than_the_timeout_by_the_clock_and_opens_again(spark: SparkSession) -> None:
    rule = replace(RULE, idle_after=4, idle_clock="processing_time")
    first = sessionize(events(spark, {"a": [0]}), None, rule, WatermarkState(now=100))
    table = apply(None, first.changes)
    states = []
    for now in (104, 105):
        outcome = sessionize(events(spark, {}), table, rule, replace(first.clock, now=now))
        states.append(micros(outcome.changes, C.STATUS, C.END_REASON))
    assert states == [[], [("closed", "idle")]]
    closed = apply(table, outcome.changes)
    again = sessionize(events(spark, {"a": [3]}), closed, rule, replace(first.clock, now=106))
    assert micros(again.changes, C.STATUS, C.END_REASON, C.SESSION_END) == [("open", None, 3)]


def test_a_key_without_events_is_forgotten_and_late_behind_its_last_session_when_it_comes_back(
    spark: SparkSession,
) -> None:
    rule = replace(RULE, watermark_per="key", idle_after=4, idle_clock="processing_time", allowed_lateness=1000)
    first = sessionize(events(spark, {"a": [0], "b": [50]}), None, rule, WatermarkState(now=100))
    table = apply(None, first.changes)
    idle = sessionize(events(spark, {"b": [52]}), table, rule, WatermarkState(now=105))
    table = apply(table, idle.changes).localCheckpoint()
    assert micros(table, "case", C.STATUS, C.END_REASON) == [("a", "final", "idle"), ("b", "open", None)]
    live, final = table.where(~C.col(C.IS_FINAL)), table.where(C.col(C.IS_FINAL))
    past = Past(final, lambda spans: events(spark, {}))
    back = sessionize(events(spark, {"a": [10, 11]}), live, rule, WatermarkState(now=106), past=past)
    assert back.events.rejected == {"late": 1}  # expires_at is 10, the horizon 11
    assert micros(back.changes, "case", C.SESSION_START) == [("a", 11)]


# Duplicates


def test_copies_lie_within_exactly_so_much_of_an_accepted_event(spark: SparkSession) -> None:
    rows = [("a", 0, 1), ("a", 5, 1), ("a", 6, 1), ("a", 11, 1), ("a", 12, 1), ("a", 3, 2), ("a", 3, 2), ("b", 5, 1)]
    frame = spark.createDataFrame(rows, "case STRING, t BIGINT, id INT")
    rule = replace(RULE, dedupe=Dedupe.model_validate({"by": ["id"], "within": "5us"}))
    first = sessionize(frame, None, rule, NO_CLOCK)
    # Of id 1: 0 is kept, 5 is its copy; 6 is kept, 11 is its copy; 12 is kept.
    assert micros(first.rejected(), "case", C.EVENT_TIME, C.REASON, C.EVENT) == [
        ("a", 11, "duplicate", None),
        ("a", 3, "duplicate", None),
        ("a", 5, "duplicate", None),
    ]
    table = apply(None, first.changes)
    later = spark.createDataFrame([("a", 17, 1), ("a", 18, 1), ("b", 0, 1), ("b", 11, 1)], frame.schema)
    past = Past(None, lambda spans: frame.union(later), first.rejected)
    second = sessionize(later, table, rule, first.clock, past=past)
    assert micros(second.rejected(), "case", C.EVENT_TIME, C.REASON) == [("a", 17, "duplicate"), ("b", 0, "duplicate")]
    assert (second.events.read, second.events.accepted, second.events.duplicates) == (4, 2, 2)


# Cost


def test_a_bot_that_never_pauses_has_its_last_session_read_again_and_no_more(spark: SparkSession) -> None:
    rule = replace(RULE, max_duration=25)
    life = events(spark, {"bot": list(range(0, 1000, 5)), "person": [0]})
    first = sessionize(life, None, rule, NO_CLOCK)
    table = apply(None, first.changes).localCheckpoint()
    last = max(row[0] for row in micros(table.where("case = 'bot'"), C.SESSION_START))
    asked: list[tuple[int, int]] = []

    def source(spans: Any) -> DataFrame:
        asked.extend(spans)
        return life.unionByName(new)

    new = events(spark, {"bot": [1000, 1005], "person": [1005]})
    second = sessionize(new, table, rule, first.clock, past=Past(None, source))
    assert asked == [(last, 1005)]
    assert micros(second.changes, C.CHANGE, "case", C.SESSION_START, C.SESSION_END) == [
        ("insert", "person", 1005, 1005),
        ("update", "bot", last, 1005),
    ]


# Scopes


def test_each_scope_has_its_own_watermark_and_its_own_flush(spark: SparkSession) -> None:
    rule = replace(RULE, watermark_per=("case",), allowed_lateness=20)
    first = sessionize(events(spark, {"fast": [1000], "slow": [0]}), None, rule, NO_CLOCK)
    table = apply(None, first.changes)
    second = sessionize(
        events(spark, {"fast": [979, 980], "slow": [-20, -21], "new": [-500]}), table, rule, first.clock
    )
    assert micros(second.rejected(), "case", C.EVENT_TIME) == [("fast", 979), ("slow", -21)]
    table = apply(table, second.changes).localCheckpoint()
    third = sessionize(events(spark, {"slow": [5]}), table, rule, second.clock, override=WatermarkOverride(flush=True))
    states = micros(third.changes, "case", C.SESSION_END, C.STATUS, C.END_REASON)
    assert states == [
        ("fast", 1000, "final", "flush"),
        ("fast", 980, "final", "gap"),
        ("new", -500, "final", "flush"),
        ("slow", -20, "final", "gap"),
        ("slow", 5, "final", "flush"),
    ]
    assert third.clock.scopes is not None
    marks = micros(third.clock.scopes, "case", C.SCOPE_WATERMARK, C.SCOPE_FLUSH_MARK)
    assert marks == [("fast", 1011, 1011), ("new", -489, -489), ("slow", 16, 16)]


def test_another_clock_does_not_make_spark_compile_anything_anew(spark: SparkSession) -> None:
    metrics: Any = spark._jvm
    compiled = metrics.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    rows = spark.createDataFrame([(1,), (None,)], "t BIGINT").localCheckpoint()
    known: dict[int | None, int] = {}
    for us in (5, 6, 2**62, -(2**63), None):
        before = compiled.getCount()
        found = rows.select((C.col("t") + 0).alias("t"), steady(us, C.col("t")).alias("us"))
        assert sorted(found.collect(), key=repr) == sorted([(1, us), (None, us)], key=repr)
        known[us] = compiled.getCount() - before
    assert known[5] > 0
    assert [known[us] for us in (6, 2**62, -(2**63))] == [0, 0, 0]
