"""Backfill: every session that touches a span of time, recomputed from events (SEMANTICS §3, §6)."""

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import AMENDED, IN_THE_FUTURE, LATE, WITHDRAWN, validate
from lib.admission.past import Past, accepted, aliased, same_as_aliased
from lib.admission.tally import Tally
from lib.aggregates.binding import bind
from lib.computed import computed
from lib.rule import Rule
from lib.time.micros import timestamp
from lib.time.watermarks import WatermarkState
from lib.windows.sessions.fold import fold
from lib.windows.sessions.intervals import arriving, final_intervals, new_intervals
from lib.windows.sessions.outcome import Outcome
from lib.windows.sessions.pipeline import rows_near
from lib.windows.sessions.step import Step

READMITTED = (LATE, IN_THE_FUTURE)


@dataclass(frozen=True)
class Span:
    """Which sessions: those with `session_start < high` and `session_end >= low` (microseconds), of these keys.

    keys: rows of the key columns; None: all. Rejected late events in the span are accepted after all.
    """

    low: int
    high: int
    keys: DataFrame | None = None


def backfill(span: Span, past: Past, rule: Rule, clock: WatermarkState, sample: DataFrame) -> Outcome:
    """What recomputing a span comes to. The clock stays as it is.

    past: `sessions` are all rows of the table here, live and final. sample: rows of the source, for their types.
    """
    aggregates = bind(rule, sample)
    quiet = replace(rule, dedupe=None)
    kept_out, comes_in = past.rejected(), 0
    if kept_out is not None and (comes_in := readmitted(kept_out, span, rule).count()):
        kept_out = _still_out(kept_out, span, rule)
    all_of_it = [(span.low, span.high - 1)]
    inside = _of_keys(accepted(past.events(all_of_it), kept_out, quiet, clock, all_of_it), span, rule)
    new = new_intervals(fold(inside, rule, aggregates), rule, clock.now).withColumn(C.VERDICT, F.lit(AMENDED))
    assert past.sessions is not None
    table = _of_keys(past.sessions.where(~C.col(C.IS_LATE)), span, rule)
    low, high = timestamp(span.low), timestamp(span.high)
    touching = table.where((C.col(C.SESSION_START) < high) & (C.col(C.SESSION_END) >= low))
    # A session may have lost the events that made it: its place is affected as it stands.
    stand = final_intervals(touching, rule).drop(C.LIVE)
    places = arriving(stand, rule, clock.now).withColumns(
        {C.VERDICT: F.lit(WITHDRAWN), C.COUNT: F.lit(0).cast("bigint")}
    )
    affected, seen = computed(
        new.unionByName(places, allowMissingColumns=True),
        {"low": F.min(C.col(C.START)), "high": F.max(C.col(C.REACH))},
    )
    near = rows_near(table, rule, seen.get("low") or span.low, seen.get("high") or span.high)
    intervals = affected.unionByName(final_intervals(near, rule), allowMissingColumns=True)
    step = Step(
        rule, clock, clock, aggregates, lambda spans: accepted(past.events(spans), kept_out, quiet, clock, spans), near
    )
    changed, redo = step.merged_and_rederived(intervals)
    judged = validate(sample, rule, clock)
    return Outcome.of(step, changed, redo, judged, Tally(0, {}, None, None, readmitted=comes_in))


def readmitted(rejected: DataFrame, span: Span, rule: Rule) -> DataFrame:
    """The rows of rejected_events that a backfill of this span takes into sessions."""
    return _of_keys(rejected.where(_comes_in(span)), span, rule)


def _still_out(rejected: DataFrame, span: Span, rule: Rule) -> DataFrame:
    """The others."""
    if span.keys is None:
        return rejected.where(~_comes_in(span))
    named = aliased(span.keys.withColumn("__mine", F.lit(True)), rule.key)
    marked = rejected.join(F.broadcast(named), same_as_aliased(rule.key), "left")
    kept = marked.where(~(_comes_in(span) & F.coalesce(F.col("__mine"), F.lit(False))))
    return kept.select(*C.cols(tuple(rejected.columns)))


def _comes_in(span: Span) -> Column:
    time = F.unix_micros(C.col(C.EVENT_TIME))
    inside = C.col(C.REASON).isin(*READMITTED) & (time >= span.low) & (time < span.high)
    return F.coalesce(inside, F.lit(False))


def _of_keys(frame: DataFrame, span: Span, rule: Rule) -> DataFrame:
    if span.keys is None:
        return frame
    return frame.join(F.broadcast(aliased(span.keys, rule.key)), same_as_aliased(rule.key), "left_semi")
