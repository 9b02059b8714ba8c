"""The sliding windows that accepted events make, of raw events and by the words of SEMANTICS §10 alone."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates.binding import Aggregate, with_sql_columns
from lib.compare import SCALE, same_value, tolerances
from lib.joins import joined
from lib.reading.differences import DIFFERS, EXPECTED, EXTRA, FOUND, KIND, MISSING, WHICH
from lib.time.micros import floor_div
from lib.time.watermarks import WatermarkState, with_clock
from lib.windows.sliding.rule import SlidingRule

PLACE = "__place"  # a stretch of time as long as a window and a unit: one lies in two of them at most


def expected_windows(
    events: DataFrame, rule: SlidingRule, aggregates: tuple[Aggregate, ...], clock: WatermarkState
) -> DataFrame:
    """Rows of the windows table, but run_id and what live ones remember.

    In: accepted events, as `validate` returns them; the watermarks as they stand.
    """
    raw = C.col(C.RAW_US if C.RAW_US in events.columns else C.US)
    timed = events.withColumn(C.US, raw - F.pmod(raw, F.lit(rule.unit)))
    inside = _inside(_starts(timed, rule), timed, rule)
    whole = inside.groupBy(*C.cols(rule.key), C.col(C.START)).agg(
        F.max(C.col(C.US)).alias(C.LAST),
        F.count(F.lit(1)).alias(C.EVENT_COUNT),
        *[part for a in aggregates for part in a.partial()],
    )
    end = C.col(C.START) + rule.difference
    rows = with_clock(whole, rule.events, clock).select(
        *C.cols(rule.key),
        F.timestamp_micros(C.col(C.START)).alias(C.WINDOW_START),
        F.timestamp_micros(end).alias(C.WINDOW_END),
        F.timestamp_micros(C.col(C.LAST)).alias(C.LAST_EVENT_TIME),
        C.col(C.EVENT_COUNT),
        *[result for a in aggregates for result in a.finish()],
        F.coalesce(end < C.col(C.H), F.lit(False)).alias(C.IS_FINAL),
    )
    return with_sql_columns(rows, aggregates)


def window_differences(
    table: DataFrame, expected: DataFrame, rule: SlidingRule, aggregates: tuple[Aggregate, ...]
) -> DataFrame:
    """Where the table is not what it should be.

    In: rows of the windows table; the rows that it should have, maybe with the scales of their aggregates.
    Out: kind STRING (missing, extra or differs), columns ARRAY<STRING>, found and expected: the rows, null where there
    is none.
    """
    results = [name for a in aggregates for name in a.result_columns if not name.startswith(SCALE)]
    names = (*rule.key, *C.BEFORE_WINDOW_AGGREGATES, *results, C.IS_FINAL)
    types, within = {f.name: f.dataType for f in expected.schema.fields}, tolerances(rule.events)
    scales = {name: C.col(SCALE + name) for name in names if SCALE + name in expected.columns}
    left = table.select(F.struct(*C.cols(names)).alias(FOUND))
    right = expected.select(F.struct(*C.cols(names)).alias(EXPECTED), *scales.values())
    found, wanted = F.col(FOUND), F.col(EXPECTED)
    same_place = [found[name].eqNullSafe(wanted[name]) for name in (*rule.key, C.WINDOW_START)]
    both = left.join(right, reduce(Column.__and__, same_place), "full")
    wrong = [
        F.when(~same_value(found[n], wanted[n], types[n], within.get(n, 0.0), scales.get(n)), F.lit(n)) for n in names
    ]
    told = both.select(
        F.when(found.isNull(), MISSING).when(wanted.isNull(), EXTRA).otherwise(DIFFERS).alias(KIND),
        F.array_compact(F.array(*wrong)).alias(WHICH),
        found,
        wanted,
    )
    return told.where((F.col(KIND) != DIFFERS) | (F.size(WHICH) > 0))


def broken_window_rules(table: DataFrame, rule: SlidingRule) -> dict[str, DataFrame]:
    """Rows that break what holds for every windows table, by the rule that they break; needs no events."""
    identity = C.cols((*rule.key, C.WINDOW_START))
    start, end = (F.unix_micros(C.col(name)) for name in (C.WINDOW_START, C.WINDOW_END))
    inside = C.col(C.LAST_EVENT_TIME).between(C.col(C.WINDOW_START), C.col(C.WINDOW_END))
    state = (C.col(C.IS_FINAL) & C.col(C.STATE).isNotNull()) | (C.col(C.EVENT_COUNT) < 1)
    return {
        "each window is there once": table.groupBy(*identity).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1"),
        "a window lasts time_difference": table.where(end - start != rule.difference).select(*identity, C.WINDOW_END),
        "the last event of a window lies in it": table.where(~inside).select(*identity, C.LAST_EVENT_TIME),
        "final rows hold no state, and every window an event": table.where(state).select(*identity),
    }


def _starts(timed: DataFrame, rule: SlidingRule) -> DataFrame:
    """Where windows start: the left one of each time; the right one, if the next time of the key lies in it."""
    d, u, t = rule.difference, rule.unit, C.col(C.US)
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(t)
    times = timed.select(*C.cols(rule.key), t).distinct().withColumn("__after", F.lead(t).over(by_time))
    left = F.when((t >= 0) & (t < d), F.lit(0)).otherwise(t - d)
    right = F.when(F.col("__after") <= t + u + d, t + u)
    starts = F.explode(F.array_compact(F.array(left, right))).alias(C.START)
    return times.select(*C.cols(rule.key), starts).distinct()


def _inside(starts: DataFrame, timed: DataFrame, rule: SlidingRule) -> DataFrame:
    """The events of each window, with `__start`."""
    start, end = C.col(C.START), C.col(C.START) + rule.difference
    places = F.array_distinct(F.array(_place(start, rule), _place(end, rule)))
    placed = starts.select(*C.cols(rule.key), start, F.explode(places).alias(PLACE))
    inside = C.col(C.US).between(start, end)
    return joined(timed.withColumn(PLACE, _place(C.col(C.US), rule)), placed, (*rule.key, PLACE), "inner", inside)


def _place(time: Column, rule: SlidingRule) -> Column:
    return floor_div(time, rule.reach)
