"""The promises of SEMANTICS §3 and §6 over random rules: the table is a function of the accepted events."""

from collections import Counter
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lib import columns as C
from lib.config import DynamicGap
from lib.rule import Rule
from lib.time.watermarks import WatermarkState
from lib.verifying import differences as verify
from lib.verifying.bag import accepted, judged
from lib.verifying.facts import facts_of
from lib.verifying.plan import expected_sessions
from tests.frames import Past, apply, sessionize
from tests.oracle import Oracle, at, us
from tests.properties.test_order_never_matters import AGGREGATES, differences, rows_of

SCHEMA = "`case` INT, user STRING, t BIGINT, at TIMESTAMP, o INT, x INT, g BIGINT"
NOW = 10**15
CASES = 40
RUNS = 3

users = st.sampled_from(["a", "a", "b"])
gaps = st.sampled_from([1, 2, 3, 3, 8, 20, 0, -1, None])
values = st.one_of(st.none(), st.integers(-3, 3))
events = st.tuples(users, st.integers(-12, 13), st.integers(0, 1), values, gaps)
cases = st.lists(st.lists(st.tuples(events, st.integers(0, RUNS - 1)), max_size=14), min_size=CASES, max_size=CASES)
gap_forms = st.sampled_from([1, 2, 3, 20, DynamicGap(expr="make_dt_interval(0, 0, 0, g / 1e6)", at_least=None)]) | (
    st.sampled_from([2, 5]).map(
        lambda us: DynamicGap.model_construct(expr="make_dt_interval(0,0,0,g/1e6)", at_least=us)
    )
)
judgements = st.sampled_from(["event", "event", "session"])
policies = st.sampled_from(["quarantine", "drop", "amend", "amend"])


@st.composite
def rules(draw: Any) -> Rule:
    per = draw(st.sampled_from(["table", "key", ("case",)]))
    lateness = draw(judgements)
    return Rule(
        key=("case", "user"),
        gap=draw(gap_forms),
        event_time="at",
        order_by=("o",),
        gap_boundary=draw(st.sampled_from(["joins", "splits"])),
        max_duration=draw(st.sampled_from([None, 1, 4, 10])),
        watermark_from=draw(st.sampled_from(["max_event_time", "max_event_time", "min_event_time"])),
        watermark_per=per,
        watermark_delay=draw(st.sampled_from([0, 2])),
        allowed_lateness=draw(st.sampled_from([0, 3, 30])),
        lateness=lateness,
        revive=lateness == "session",
        idle_after=10**16 if per == "key" else None,
        idle_clock="processing_time",
        late_events=draw(policies),
        aggregates=AGGREGATES,
    )


def oracle_of(rule: Rule) -> Oracle:
    dynamic = isinstance(rule.gap, DynamicGap)
    return Oracle(
        list(rule.key),
        None if isinstance(rule.gap, DynamicGap) else rule.gap,
        at_least=(rule.gap.at_least or 0) if isinstance(rule.gap, DynamicGap) and dynamic else 0,
        splits=rule.gap_boundary == "splits",
        longest=rule.max_duration,
        lateness=rule.allowed_lateness,
        by_group=rule.lateness == "session",
        amends=rule.late_events == "amend",
        scope=rule.scope,
        earliest=rule.watermark_from == "min_event_time",
        delay=rule.watermark_delay,
    )


class Memory:
    """The tables of a run, kept as frames."""

    def __init__(self, spark: SparkSession, rule: Rule) -> None:
        self.spark, self.rule = spark, rule
        self.events: list[tuple[int, tuple[Any, ...]]] = []
        self.table: DataFrame | None = None
        self.rejects: DataFrame | None = None
        self.clock = WatermarkState(now=NOW)
        self.number = 0

    def run(self, events: list[dict[str, Any]]) -> None:
        self.number += 1
        self.events += [(self.number, tuple(e.values())) for e in events]
        live = None if self.table is None else self.table.where(~C.col(C.IS_FINAL))
        final = None if self.table is None else self.table.where(C.col(C.IS_FINAL))
        past = Past(final, self._events, lambda: self.rejects)
        clock = replace(self.clock, run_seq=self.number)
        outcome = sessionize(self._frame([tuple(e.values()) for e in events]), live, self.rule, clock, past=past)
        rejected = outcome.rejected().localCheckpoint()
        rejected = rejected.withColumn(C.RUN_SEQ, C.col(C.ORDINAL))
        self.rejects = rejected if self.rejects is None else self.rejects.unionByName(rejected)
        self.table, self.clock = apply(self.table, outcome.changes).localCheckpoint(), outcome.clock
        assert outcome.events.read == len(events) == outcome.events.accepted + rejected.count()

    def differing(self) -> list[Any]:
        """What verify finds, by its own way."""
        assert self.table is not None
        events = accepted(judged(self._events(None), self.rule), self.rejects, self.rule)
        facts = facts_of(self.rule, events)
        expected = expected_sessions(events, self.rule, facts, self.clock)
        return verify.differences(self.table, expected, self.rule, facts).collect()

    def rejected(self) -> Counter[tuple[Any, ...]]:
        assert self.rejects is not None
        rows = self.rejects.select("case", "user", C.EVENT_TIME, C.REASON).collect()
        return Counter((r[0], r[1], us(r[2].replace(tzinfo=UTC)), r[3]) for r in rows)

    def _events(self, spans: Any) -> DataFrame:
        return self._frame([e for _, e in self.events])

    def _frame(self, rows: list[tuple[Any, ...]]) -> DataFrame:
        return self.spark.createDataFrame(rows, SCHEMA)


# A case is one of forty in a Spark job: shrinking would run for minutes and name no smaller case.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


@settings(max_examples=3, phases=PHASES)
@given(rule=rules(), drawn=cases)
@pytest.mark.broad
def test_the_table_is_a_function_of_the_accepted_events(spark: SparkSession, rule: Rule, drawn: Any) -> None:
    assert_equal_to_the_oracle(spark, rule, drawn)


@pytest.mark.slow
@settings(max_examples=15, phases=PHASES)
@given(rule=rules(), drawn=cases)
def test_the_same_over_many_rules(spark: SparkSession, rule: Rule, drawn: Any) -> None:
    assert_equal_to_the_oracle(spark, rule, drawn)


def assert_equal_to_the_oracle(spark: SparkSession, rule: Rule, drawn: Any) -> None:
    numbered = [
        ({"case": c, "user": u, "t": t, "at": at(t), "o": o, "x": x, "g": g}, run)
        for c, case in enumerate(drawn)
        for (u, t, o, x, g), run in case
    ]
    memory, oracle = Memory(spark, rule), oracle_of(rule)
    for number in range(RUNS):
        arriving = [e for e, run in numbered if run == number]
        memory.run(arriving)
        oracle.run(arriving)
    assert memory.table is not None
    expected = Counter((e["case"], e["user"], e["t"], reason) for e, reason in oracle.rejected)
    assert memory.rejected() - expected == expected - memory.rejected() == Counter()
    assert not differences(rows_of(memory.table), oracle.rows())
    assert not memory.differing()
