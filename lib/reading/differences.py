"""Where a sessions table is not what it should be: row by row, column by column; and rules that need no recompute."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates.binding import Aggregate
from lib.compare import SCALE, same_value, tolerances
from lib.rule import Rule
from lib.windows.sessions.changes import HOW
from lib.windows.sessions.intervals import keeps_arrival
from lib.windows.sessions.islands import beyond
from lib.windows.sessions.lifecycle import CLOSED, FLUSH, IDLE, MAX_DURATION, OPEN, table_columns

MISSING, EXTRA, DIFFERS = "missing", "extra", "differs"
KIND, WHICH, FOUND, EXPECTED = "kind", "columns", "found", "expected"
BY_CLOCK = (C.STATUS, C.END_REASON, C.IS_FINAL)


def differences(table: DataFrame, expected: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Where the table is not what it should be.

    In: rows of the sessions table; the rows that it should have, maybe with the scales of their aggregates. What only
    the run's own clock or a flush decides is not compared: status and end_reason of what they ended, and the state of
    sessions with a clock per key.
    Out: session_id, kind STRING (missing, extra or differs), columns ARRAY<STRING>, found and expected: the rows, null
    where there is none.
    """
    left_out = (*HOW, C.STATE, *(BY_CLOCK if rule.watermark_per == "key" else ()))
    names = tuple(n for n in table_columns(rule, aggregates) if n not in left_out)
    types = {f.name: f.dataType for f in expected.schema.fields}
    left = table.select(F.struct(*C.cols(names)).alias(FOUND))
    scales = {name: C.col(SCALE + name) for name in names if SCALE + name in expected.columns}
    right = expected.select(F.struct(*C.cols(names)).alias(EXPECTED), *scales.values())
    joined = left.join(right, F.col(FOUND)[C.SESSION_ID] == F.col(EXPECTED)[C.SESSION_ID], "full")
    within = tolerances(rule)
    same = {
        name: same_value(
            F.col(FOUND)[name], F.col(EXPECTED)[name], types[name], within.get(name, 0.0), scales.get(name)
        )
        for name in names
    }
    same |= {name: same[name] | _by_clock(rule) for name in BY_CLOCK if name in same}
    wrong = [F.when(~same[name], F.lit(name)) for name in names]
    told = joined.select(
        F.coalesce(F.col(FOUND)[C.SESSION_ID], F.col(EXPECTED)[C.SESSION_ID]).alias(C.SESSION_ID),
        F.when(F.col(FOUND).isNull(), MISSING).when(F.col(EXPECTED).isNull(), EXTRA).otherwise(DIFFERS).alias(KIND),
        F.array_compact(F.array(*wrong)).alias(WHICH),
        F.col(FOUND),
        F.col(EXPECTED),
    )
    return told.where((F.col(KIND) != DIFFERS) | (F.size(WHICH) > 0))


def broken_rules(table: DataFrame, rule: Rule) -> dict[str, DataFrame]:
    """Rows that break what holds for every sessions table, by the rule that they break; needs no events."""
    ids = table.groupBy(C.SESSION_ID).agg(F.count(F.lit(1)).alias("rows")).where(F.col("rows") > 1)
    found = {"each session_id is there once": ids}
    start, end = C.col(C.SESSION_START), C.col(C.SESSION_END)
    found["session_start <= session_end < expires_at"] = table.where(
        (start > end) | (end >= C.col(C.EXPIRES_AT))
    ).select(C.SESSION_ID, C.SESSION_START, C.SESSION_END)
    lasts = F.unix_micros(end) - F.unix_micros(start)
    if rule.max_duration is not None:
        longer = table.where(lasts > rule.max_duration)
        found["no session lasts longer than max_duration"] = longer.select(C.SESSION_ID, C.DURATION_SECONDS)
    if rule.lateness == "event" or rule.revive:
        by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.SESSION_START, C.SESSION_ID)
        before = F.lag(C.col(C.EXPIRES_AT)).over(by_time)
        apart = beyond(start, before, rule)
        if rule.max_duration is not None:
            first = F.lag(start).over(by_time)
            apart = apart | (F.unix_micros(start) - F.unix_micros(first) > rule.max_duration)
        near = table.where(~C.col(C.IS_LATE)).withColumn("__apart", apart).where(~F.col("__apart"))
        found["sessions of a key lie further apart than the gap"] = near.select(C.SESSION_ID, C.SESSION_START)
    state = (C.col(C.IS_FINAL) & C.col(C.STATE).isNotNull()) | (C.col(C.EVENT_COUNT) < 1)
    found["final rows hold no state, and every session an event"] = table.where(state).select(C.SESSION_ID)
    return found


def miscounted(table: DataFrame, events: DataFrame, rule: Rule) -> DataFrame:
    """Keys whose sessions hold another number of events than were accepted, and by how many."""
    key = C.cols(rule.key)
    each = events.select(*key, F.lit(-1).cast("bigint").alias(C.EVENT_COUNT))
    both = table.select(*key, C.col(C.EVENT_COUNT)).unionByName(each)
    return both.groupBy(*key).agg(F.sum(C.col(C.EVENT_COUNT)).alias("too_many")).where(F.col("too_many") != 0)


def _by_clock(rule: Rule) -> Column:
    """Whether the run's own clock, or a flush, may have ended the session that was found."""
    reason = F.col(FOUND)[C.END_REASON]
    by_clock = reason.isin(IDLE, FLUSH)
    if keeps_arrival(rule):  # idle, and cut by it, too
        closed = (F.col(FOUND)[C.STATUS] == CLOSED) & (F.col(EXPECTED)[C.STATUS] == OPEN)
        by_clock = by_clock | ((reason == MAX_DURATION) & closed)
    return F.coalesce(by_clock, F.lit(False))
