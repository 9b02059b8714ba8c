"""SEMANTICS §3: any split of the events into runs, in any order, gives the rows of one run over all of them."""

from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests import oracle
from tests.frames import sessionize

AGGREGATES = tuple(
    Aggregate.model_validate({"name": name, "fn": fn, "of": "x"})
    for name, fn in {
        "total": "sum",
        "least": "min",
        "most": "max",
        "mean": "avg",
        "filled": "count",
        "entry": "first",
        "exit": "last",
        "kinds": "count_distinct",
        "which": "set",
    }.items()
)
SCHEMA = "`case` INT, `the.user` STRING, t BIGINT, at TIMESTAMP, o INT, x INT"
KEY = ("case", "the.user")
NOW = 10**15
CASES = 40

keys = st.sampled_from(["a", "b", None, "", "s1:a", "'\"`\\", "🙂 é\u0301"])
# Small domains find more: times around 1970, so that buckets lie on both sides of zero.
events = st.tuples(keys, st.integers(-12, 13), st.integers(0, 1), st.one_of(st.none(), st.integers(-3, 3)))
cases = st.lists(st.lists(st.tuples(events, st.integers(0, 2)), max_size=14), min_size=CASES, max_size=CASES)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    ignored = {C.RUN_ID, C.SUPERSEDES, C.STATE, C.CHANGE}
    kept = [c for c in frame.columns if c not in ignored]
    rows = [row.asDict() for row in frame.select(*C.cols(tuple(kept))).collect()]
    utc = [{k: v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for k, v in r.items()} for r in rows]
    return sorted(utc, key=lambda r: r["session_id"])


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[Any]:
    """The first rows that differ, so that a failure is short."""
    nothing: dict[str, Any] = {}
    for f, e in zip_longest(found, expected, fillvalue=nothing):
        if f != e:
            return [(k, f.get(k), e.get(k)) for k in f | e if f.get(k) != e.get(k)]
    return []


def apply_changes(table: DataFrame | None, changes: DataFrame) -> DataFrame:
    upserts = changes.where(C.col(C.CHANGE) != "delete").drop(C.CHANGE)
    if table is None:
        return upserts
    touched = changes.select(C.SESSION_ID)
    return table.join(touched, C.SESSION_ID, "left_anti").select(*C.cols(tuple(table.columns))).union(upserts)


@pytest.mark.broad
# A case is one of forty in a Spark job: shrinking would run for minutes and name no smaller case.
@settings(max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    drawn=cases,
    gap=st.sampled_from([1, 2, 3, 20]),
    boundary=st.sampled_from(["joins", "splits"]),
    lateness=st.sampled_from([4, 30]),
)
def test_any_split_and_order_equals_one_run_and_the_oracle(spark, drawn, gap, boundary, lateness) -> None:
    rule = Rule(
        key=KEY,
        gap=gap,
        event_time="at",
        order_by=("o",),
        null_keys="group",
        gap_boundary=boundary,
        allowed_lateness=lateness,
        max_future_skew=0,
        aggregates=AGGREGATES,
    )
    numbered = [
        ({"case": c, "the.user": u, "t": t, "at": oracle.at(t), "o": o, "x": x}, run)
        for c, case in enumerate(drawn)
        for (u, t, o, x), run in case
    ]
    # Nothing may be late: where lateness is short, the runs come in time order.
    runs = 3
    if lateness < 30:
        numbered = [(e, 0 if e["t"] < -2 else 1 if e["t"] < 1 else 2) for e, _ in numbered]

    def frame(of: list[dict[str, Any]]) -> DataFrame:
        return spark.createDataFrame([tuple(e.values()) for e in of], SCHEMA)

    table, clock = None, WatermarkState(now=NOW)
    for number in range(runs):
        live = None if table is None else table.where(~F.col(C.IS_FINAL))
        outcome = sessionize(frame([e for e, run in numbered if run == number]), live, rule, clock)
        assert outcome.events.rejected == {}
        table, clock = apply_changes(table, outcome.changes).localCheckpoint(), outcome.clock
    assert table is not None
    whole = sessionize(frame([e for e, _ in numbered]), None, rule, WatermarkState(now=NOW))
    expected = oracle.sessions([e for e, _ in numbered], list(KEY), gap, boundary == "splits", lateness)

    in_parts, at_once = rows_of(table), rows_of(whole.changes)
    assert not differences(at_once, sorted(expected, key=lambda r: r["session_id"]))
    assert not differences(in_parts, at_once)
