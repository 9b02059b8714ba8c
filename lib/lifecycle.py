"""Lifecycle: from merged islands to finished session rows with their state (SEMANTICS §5, §9)."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates import Aggregate, state_struct
from lib.canonical import session_id
from lib.rule import Rule
from lib.times import DAY, floor_div
from lib.watermarks import Clock

OPEN, CLOSED, FINAL = "open", "closed", "final"
GAP, FLUSH = "gap", "flush"


def settle(sessions: DataFrame, rule: Rule, clock: Clock, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Session rows as the table holds them, in the state that the clock gives them.

    `final` iff expires_at < horizon, else `closed` iff watermark > expires_at, else `open`; all strict.

    In: what `sessions.merge_islands` returns; the clock as it stands *after* the run.
    Out: the columns of the sessions table but run_id, and `__absorbed`, `__fresh` where the input has them.
    """
    key_types = [sessions.select(C.col(name)).schema[0].dataType for name in rule.key]
    reach = C.col(C.END) + rule.gap
    final = _before(reach, clock.horizon(rule))
    closed = _before(reach, clock.watermark)
    status = F.when(final, FINAL).when(closed, CLOSED).otherwise(OPEN)
    trail = [C.col(name) for name in (C.ABSORBED, C.FRESH) if name in sessions.columns]
    rows = sessions.select(
        *C.cols(rule.key),
        session_id(C.cols(rule.key), key_types, C.col(C.START)).alias(C.SESSION_ID),
        F.timestamp_micros(C.col(C.START)).alias(C.SESSION_START),
        F.timestamp_micros(C.col(C.END)).alias(C.SESSION_END),
        F.timestamp_micros(reach).alias(C.EXPIRES_AT),
        ((C.col(C.END) - C.col(C.START)) / F.lit(1e6)).alias(C.DURATION_SECONDS),
        C.col(C.COUNT).alias(C.EVENT_COUNT),
        *[result for a in aggregates for result in a.finish()],
        status.alias(C.STATUS),
        _end_reason(reach, clock, final | closed).alias(C.END_REASON),
        final.alias(C.IS_FINAL),
        F.lit(False).alias(C.IS_LATE),
        F.date_from_unix_date(floor_div(C.col(C.START), DAY).cast("int")).alias(C.SESSION_DATE),
        F.when(~final, state_struct(aggregates)).alias(C.STATE),
        *trail,
    )
    return rows.withColumn(C.SUPERSEDES, _supersedes() if trail else _no_ids())


def table_columns(rule: Rule, aggregates: tuple[Aggregate, ...]) -> tuple[str, ...]:
    """The columns of the sessions table in order, but run_id, which comes before the last."""
    results = [name for a in aggregates for name in a.result_columns]
    return (*rule.key, *C.BEFORE_AGGREGATES, *results, *C.AFTER_AGGREGATES, C.STATE)


def _before(reach: Column, limit: int | None) -> Column:
    return F.lit(False) if limit is None else reach < limit


def _end_reason(reach: Column, clock: Clock, ended: Column) -> Column:
    if clock.flushed_from is None:
        return F.when(ended, GAP)
    return F.when(ended & (reach >= clock.flushed_from), FLUSH).when(ended, GAP)


def _no_ids() -> Column:
    return F.array().cast("array<string>")


def _supersedes() -> Column:
    """The ids that this session took over, and those that they had taken over, without its own."""
    absorbed = C.col(C.ABSORBED)
    vanished = F.concat(absorbed[C.SESSION_ID], F.flatten(absorbed[C.SUPERSEDES]))
    return F.array_sort(F.array_distinct(F.filter(vanished, lambda i: i != C.col(C.SESSION_ID))))
