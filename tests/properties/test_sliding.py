"""SEMANTICS §10: sliding windows of any increments are those of the definition, applied to all events at once."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sliding.rule import SlidingRule
from tests import oracle
from tests.few_rows import for_few_rows
from tests.sliding_oracle import KafkaModel, windows
from tests.sliding_replay import Replay

CASES, RUNS = 40, 3
KEY = ("case", "the.user")
SCHEMA = "`case` INT, `the.user` STRING, at TIMESTAMP, n INT"
AGGREGATES = tuple(
    Aggregate.model_validate({"name": name, "fn": fn, "of": "n"})
    for name, fn in {"total": "sum", "most": "max", "mean": "avg", "entry": "first", "which": "set"}.items()
)
users = st.sampled_from(["a", "b", None])
times = st.integers(0, 25)
cases = st.lists(
    st.lists(st.tuples(users, times, st.integers(0, RUNS - 1)), max_size=10), min_size=CASES, max_size=CASES
)
dense = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), times, st.integers(0, RUNS - 1)), min_size=8, max_size=16),
    min_size=CASES,
    max_size=CASES,
)
few = settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def rule_of(d: int, u: int, grace: int, lateness: Any = "event", **of_events: Any) -> SlidingRule:
    events = Rule(
        key=KEY,
        gap=d,
        event_time="at",
        null_keys="group",
        allowed_lateness=grace,
        max_future_skew=0,
        time_unit=u,
        lateness=lateness,
        **{"aggregates": AGGREGATES, "order_by": ("n",)} | of_events,
    )
    return SlidingRule(events, d)


def numbered(drawn: list[Any], u: int) -> list[tuple[tuple[Any, int, int], int]]:
    """Events ((case, user), time, number) and the run that each comes in; numbers are told apart by nothing else."""
    found = [((c, user), t * u, run) for c, case in enumerate(drawn) for user, t, run in case]
    return [((key, t, n), run) for n, (key, t, run) in enumerate(found)]


def source_rows(events: list[tuple[Any, int, int]], u: int) -> list[tuple[Any, ...]]:
    # Times within a unit: what comes after the whole units is cut off.
    return [(*key, oracle.at(t + n % u), n) for key, t, n in events]


def row_of(key: Any, start: int, d: int, values: list[int], times_of: dict[int, int]) -> tuple[Any, ...]:
    by_time = sorted(values, key=lambda n: (times_of[n], n))
    return (
        *(*key, start, start + d, max(times_of[n] for n in values), len(values)),
        *(sum(values), max(values), sum(values) / len(values), by_time[0], sorted(values)),
    )


COLUMNS = (*KEY, *C.BEFORE_WINDOW_AGGREGATES, *[a.name for a in AGGREGATES])


def found_and_expected(
    replay: Replay, expected: dict[Any, list[int]], times_of: dict[int, int], d: int
) -> tuple[list[Any], list[Any]]:
    wanted = [row_of(key, start, d, sorted(values), times_of) for (key, start), values in expected.items()]
    return sorted(replay.rows(*COLUMNS), key=repr), sorted(wanted, key=repr)


@few
@given(
    drawn=cases,
    d=st.sampled_from([1, 2, 3, 10]),
    u=st.sampled_from([1, 1000]),
    in_order=st.booleans(),
)
@pytest.mark.broad
def test_any_order_and_split_with_nothing_late_equals_brute_force(
    spark: SparkSession, drawn: list[Any], d: int, u: int, in_order: bool
) -> None:
    events = numbered(drawn, u)
    times_of = {n: t for (_, t, n), _ in events}
    grace = (0 if in_order else 25) * u
    if in_order:  # then windows turn final on the way
        events = [(e, min(e[1] // (9 * u), RUNS - 1)) for e, _ in events]
    replay = Replay(spark, rule_of(d * u, u, grace), SCHEMA)
    with for_few_rows(spark):
        for number in range(RUNS):
            outcome = replay.run(source_rows([e for e, run in events if run == number], u))
            assert outcome.events.rejected == {}
            assert not outcome.counts["deleted"]
    found, expected = found_and_expected(replay, windows([e for e, _ in events], d * u, u), times_of, d * u)
    assert found == expected
    contents = Counter((row[:2], tuple(row[-1])) for row in found)
    assert not contents or max(contents.values()) == 1, "two windows of a key hold the same events"


@few
@given(drawn=dense, d=st.sampled_from([2, 3, 10]), grace=st.sampled_from([0, 1, 4]))
@pytest.mark.slow
def test_an_old_event_enters_the_windows_that_are_open(
    spark: SparkSession, drawn: list[Any], d: int, grace: int
) -> None:
    events = numbered(drawn, 1)
    times_of = {n: t for (_, t, n), _ in events}
    replay = Replay(spark, rule_of(d, 1, grace, "session", watermark_per=("case",)), SCHEMA)
    models = [KafkaModel(d, 1, grace) for _ in range(CASES)]
    for number in range(RUNS):
        came = [e for e, run in events if run == number]
        outcome = replay.run(source_rows(came, 1))
        for c, model in enumerate(models):
            if of_case := [e for e in came if e[0][0] == c]:
                model.run(of_case)
        assert outcome.events.late == outcome.events.rejected.get("late", 0)
    expected = {window: values for model in models for window, values in model.table.items()}
    found, wanted = found_and_expected(replay, expected, times_of, d)
    assert found == wanted
    final = {((row[0], row[1]), row[2]) for row in replay.rows(*KEY, C.WINDOW_START, C.IS_FINAL) if row[3]}
    assert final == {window for model in models for window in model.final()}
    late = (
        []
        if replay.rejected is None
        else [row[0] for row in replay.rejected.selectExpr("get_json_object(event, '$.n')").collect()]
    )
    assert sorted(map(int, late)) == sorted(n for model in models for _, _, n in model.late)
