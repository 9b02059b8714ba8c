"""The sliding windows that accepted events make, of raw events and by the words of SEMANTICS §10 alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.compare import same_value, tolerances
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import floor_div
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.verifying import rules
from sessionizer.lib.verifying.differences import DIFFERS, EXPECTED, EXTRA, FOUND, KIND, MISSING, SQL, WHICH, wrong_sql
from sessionizer.lib.verifying.facts import NEAR, Fact
from sessionizer.lib.verifying.plan import timed


@dataclass(frozen=True)
class Shape:
    """What a window is: all times that lie between its start and `difference` later (microseconds), both inclusive.

    unit: times are counted in it, from whole ones on.
    """

    difference: int
    unit: int

    @property
    def reach(self) -> int:
        """How far apart two events may be whose windows meet."""
        return self.difference + self.unit


PLACE = "__place"  # a stretch of time as long as a window and a unit: one lies in two of them at most


def expected_windows(
    events: DataFrame, rule: Rule, shape: Shape, facts: Sequence[Fact], clock: WatermarkState
) -> DataFrame:
    """Rows of the windows table, but run_id, and what live ones remember as facts.

    In: what `accepted` returns; the watermarks as they stand. Out: before the name of a fact `NEAR`, too.
    """
    raw = C.col(C.RAW_US if C.RAW_US in events.columns else C.US)
    events = events.withColumn(C.US, raw - F.pmod(raw, F.lit(shape.unit)))
    inside = _inside(_starts(events, rule, shape), events, rule, shape)
    whole = inside.groupBy(*C.cols(rule.key), C.col(C.START)).agg(
        F.max(C.col(C.US)).alias(C.LAST),
        F.count(F.lit(1)).alias(C.EVENT_COUNT),
        *[fact.expected.alias(fact.name) for fact in facts],
        *[fact.near.alias(NEAR + fact.name) for fact in facts if fact.near is not None],
    )
    end = C.col(C.START) + shape.difference
    return timed(whole, rule, clock).withColumns(
        {
            C.WINDOW_START: F.timestamp_micros(C.col(C.START)),
            C.WINDOW_END: F.timestamp_micros(end),
            C.LAST_EVENT_TIME: F.timestamp_micros(C.col(C.LAST)),
            C.IS_FINAL: F.coalesce(end < C.col(C.H), F.lit(False)),
        }
    )


def window_differences(table: DataFrame, expected: DataFrame, rule: Rule, facts: Sequence[Fact]) -> DataFrame:
    """Where the table is not what it should be.

    In: rows of the windows table; the rows that it should have, as `expected_windows` makes them, with these facts.
    Out: kind STRING (missing, extra or differs), columns ARRAY<STRING>, found and expected: the rows, null where there
    is none.
    """
    results = [name for spec in rule.aggregates if spec.sql is None for name in spec.result_columns]
    by_fact, within = {fact.name: fact for fact in facts}, tolerances(rule)
    names = [*rule.key, *C.BEFORE_WINDOW_AGGREGATES, *results, C.IS_FINAL]
    remembered = [fact.name for fact in facts if fact.is_remembered]
    shown = [C.col(n).alias(n) for n in names] + [by_fact[n].found.alias(n) for n in remembered]
    nearness = {fact.name: C.col(NEAR + fact.name) for fact in facts if fact.near is not None}
    left = table.select(F.struct(*shown).alias(FOUND), wrong_sql(table, rule).alias(SQL))
    types = {f.name: f.dataType for f in left.select(f"{FOUND}.*").schema.fields}
    wanted_columns = [C.col(n).cast(types[n]).alias(n) for n in (*names, *remembered)]
    right = expected.select(F.struct(*wanted_columns).alias(EXPECTED), *nearness.values())
    found, wanted = F.col(FOUND), F.col(EXPECTED)
    same_place = [found[name].eqNullSafe(wanted[name]) for name in (*rule.key, C.WINDOW_START)]
    both = left.join(right, reduce(Column.__and__, same_place), "full")
    apart = within | {fact.name: fact.within for fact in facts}
    same = {n: same_value(found[n], wanted[n], kind, apart.get(n, 0.0), nearness.get(n)) for n, kind in types.items()}
    same |= {n: same[n] | found[C.IS_FINAL] for n in remembered}
    wrong = [F.when(~equal, F.lit(n)) for n, equal in same.items()]
    told = both.select(
        F.when(found.isNull(), MISSING).when(wanted.isNull(), EXTRA).otherwise(DIFFERS).alias(KIND),
        F.concat(F.array_compact(F.array(*wrong)), F.coalesce(SQL, F.array().cast("array<string>"))).alias(WHICH),
        found,
        wanted,
    )
    return told.where((F.col(KIND) != DIFFERS) | (F.size(WHICH) > 0))


def broken_window_rules(table: DataFrame, rule: Rule, shape: Shape) -> dict[str, DataFrame]:
    """Rows that break what holds for every windows table, by the rule that they break; needs no events."""
    identity = C.cols((*rule.key, C.WINDOW_START))
    start, end = (F.unix_micros(C.col(name)) for name in (C.WINDOW_START, C.WINDOW_END))
    inside = C.col(C.LAST_EVENT_TIME).between(C.col(C.WINDOW_START), C.col(C.WINDOW_END))
    state = (C.col(C.IS_FINAL) & C.col(C.STATE).isNotNull()) | (C.col(C.EVENT_COUNT) < 1)
    return {
        rules.WINDOW_ONCE: table.groupBy(*identity).agg(F.count(F.lit(1)).alias("__rows")).where("__rows > 1"),
        rules.AS_LONG: table.where(end - start != shape.difference).select(*identity, C.WINDOW_END),
        rules.LAST_WITHIN: table.where(~inside).select(*identity, C.LAST_EVENT_TIME),
        rules.NO_WINDOW_STATE: table.where(state).select(*identity),
    }


def _starts(events: DataFrame, rule: Rule, shape: Shape) -> DataFrame:
    """Where windows start: the left one of each time; the right one, if the next time of the key lies in it."""
    d, u, t = shape.difference, shape.unit, C.col(C.US)
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(t)
    times = events.select(*C.cols(rule.key), t).distinct().withColumn("__after", F.lead(t).over(by_time))
    left = F.when((t >= 0) & (t < d), F.lit(0)).otherwise(t - d)
    right = F.when(F.col("__after") <= t + u + d, t + u)
    starts = F.explode(F.array_compact(F.array(left, right))).alias(C.START)
    return times.select(*C.cols(rule.key), starts).distinct()


def _inside(starts: DataFrame, events: DataFrame, rule: Rule, shape: Shape) -> DataFrame:
    """The events of each window, with `__start`."""
    start, end = C.col(C.START), C.col(C.START) + shape.difference
    places = F.array_distinct(F.array(_place(start, shape), _place(end, shape)))
    placed = starts.select(*C.cols(rule.key), start, F.explode(places).alias(PLACE))
    inside = C.col(C.US).between(start, end)
    return joined(events.withColumn(PLACE, _place(C.col(C.US), shape)), placed, (*rule.key, PLACE), "inner", inside)


def _place(time: Column, shape: Shape) -> Column:
    return floor_div(time, shape.reach)
