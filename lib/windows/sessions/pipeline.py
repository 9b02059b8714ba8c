"""The whole of sessionizing on one screen: frames in, frames out, no table and no clock of its own."""

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.admission.corrections import pair_corrections
from lib.admission.dedupe import mark_duplicates
from lib.admission.events import CORRECTION, LATE, REASONS, WITHDRAWN, as_rejected, judge, judge_late, validate
from lib.admission.past import Past, Spans, accepted, aliased, same_as_aliased, without_withdrawn
from lib.admission.tally import Tally, tally_columns
from lib.aggregates.binding import Aggregate, bind
from lib.computed import computed, held
from lib.errors import UsageError
from lib.rule import Rule
from lib.time.watermarks import (
    WatermarkState,
    WatermarkOverride,
    advance,
    advance_scopes,
    advance_to,
    clocks_of_keys,
    flush,
)
from lib.windows.sessions.changes import additions
from lib.windows.sessions.fold import fold
from lib.windows.sessions.intervals import LIVE_TYPE, final_intervals, live_intervals, merge_islands, new_intervals
from lib.windows.sessions.islands import mark_islands
from lib.windows.sessions.lateness import judge_groups, name_late
from lib.windows.sessions.lifecycle import settle, table_columns
from lib.windows.sessions.outcome import Outcome
from lib.windows.sessions.separate import separate_sessions
from lib.windows.sessions.step import Step
from lib.windows.sessions.trace import OLD_ID, Trace, event_sessions, session_updates

__all__ = ["WatermarkState", "Outcome", "Past", "WatermarkOverride", "Rule", "computed", "session_schema", "sessionize"]

NO_OVERRIDE = WatermarkOverride()


@dataclass(frozen=True)
class _Arrival:
    """The events of an increment, judged. is_first: nothing was there before."""

    events: DataFrame
    judged: DataFrame
    folded: DataFrame
    tally: Tally
    is_first: bool


def sessionize(  # noqa: PLR0913
    events: DataFrame,
    live: DataFrame | None,
    rule: Rule,
    clock: WatermarkState,
    *,
    push: WatermarkOverride = NO_OVERRIDE,
    past: Past | None = None,
    anew: bool = False,
) -> Outcome:
    """Merge events with the live sessions.

    events: rows of the source. live: rows of the sessions table that are not final, or None where there are none.
    clock: as it stood before; the outcome carries it as it stands after. Order of rows never matters.
    past: needed where sessions are recomputed from events: max_duration, amend, revive, dedupe, corrections.
    anew: the events are all there are, so that none is late.
    The events are read once: the folded partials are held in a local checkpoint, and all counts come with them.
    """
    aggregates = bind(rule, events)
    if rule.watermark_per == "key" and clock.scopes is None:
        clock = replace(clock, scopes=clocks_of_keys(live, past.sessions if past else None, events, rule))
    by = WatermarkState(clock.now, run_seq=clock.run_seq) if anew else clock
    judged = judge_late(mark_duplicates(validate(events, rule, by), rule, by, past), rule, by)
    folded, seen = computed(fold(judged, rule, aggregates), tally_columns())
    if seen.get(WITHDRAWN):
        judged = held(pair_corrections(judged, rule))  # read again for its places and its hashes
        folded, seen = computed(fold(judged, rule, aggregates), tally_columns())
    if rule.lateness == "session":
        folded, seen = computed(
            judge_groups(folded, _existing(live, past, rule, aggregates), rule, by), tally_columns()
        )
        judged = name_late(judged, folded, rule)
    tally = Tally.of(seen)

    intervals = new_intervals(folded, rule, clock.now)
    if live is not None:
        intervals = intervals.unionByName(live_intervals(live, rule, aggregates), allowMissingColumns=True)
    arrival = _Arrival(events, judged, folded, tally, live is None)
    after = _clock_after(clock, arrival, intervals, rule, push)
    from_events = partial(_accepted, arrival, past, rule, clock)
    # An island with new events is one session with more events than any before it, unless it is cut or loses some.
    deleted = tally.withdrawn or tally.corrected or tally.rejected.get(CORRECTION)  # rejected ones are gone, too
    all_differ = rule.max_duration is None and not deleted
    step = Step(rule, clock, after, aggregates, from_events, _table(live, past), all_differ)
    if rule.max_duration is None and tally.low is None and not (rule.revive and past is not None):
        changed, redo = step.merged(intervals), None
    else:
        changed, redo = step.merged_and_rederived(_with_final(intervals, past, tally, rule))
    if tally.late and rule.late_events == "separate":
        late = separate_sessions(judged.where(C.col(C.VERDICT) == LATE), rule, after, aggregates)
        changed = changed.unionByName(additions(late), allowMissingColumns=True)
    return Outcome.of(step, changed, redo, judged, tally)


def trace_schemas(events: DataFrame, rule: Rule) -> dict[str, T.StructType]:
    """The columns of event_sessions and of session_updates, run_id included; reads nothing."""
    aggregates = bind(rule, events)
    judged = judge(events, rule, WatermarkState(now=0)).withColumn(C.SESSION_ID, F.lit(None).cast("string"))
    ids = judged.select(C.col(C.SESSION_ID).alias(OLD_ID), C.col(C.SESSION_ID))
    trace = Trace(judged, None, ids, None)
    made = {
        "event_sessions": event_sessions(trace, rule),
        "session_updates": session_updates(trace, None, rule, aggregates),
    }
    run_id = T.StructField(C.RUN_ID, T.StringType())
    return {
        name: T.StructType([*[f for f in frame.schema.fields if not f.name.startswith("__")], run_id]).toNullable()
        for name, frame in made.items()
    }


def session_schema(events: DataFrame, rule: Rule) -> T.StructType:
    """The columns of the sessions table that this rule makes of such events, run_id included; reads nothing."""
    aggregates = bind(rule, events)
    clock = WatermarkState(now=0)
    judged = judge_late(validate(events, rule, clock), rule, clock)
    intervals = new_intervals(fold(judged, rule, aggregates), rule, clock.now)
    settled = settle(merge_islands(mark_islands(intervals, rule), rule, aggregates), rule, clock, aggregates)
    fields = settled.select(*C.cols(table_columns(rule, aggregates))).schema.fields
    fields.insert(-1, T.StructField(C.RUN_ID, T.StringType()))
    return T.StructType(fields).toNullable()


def _accepted(arrival: _Arrival, past: Past | None, rule: Rule, clock: WatermarkState, spans: Spans) -> DataFrame:
    """The accepted set in these spans, as of the end of the increment."""
    judged, tally = arrival.judged, arrival.tally
    if past is None and not arrival.is_first:
        raise UsageError(
            "sessions have to be recomputed from events here, and the past is not given",
            remedy="pass past=Past(…) to sessionize: max_duration, amend, revive and corrections need it",
        )
    rejects = None if past is None else past.rejected()
    if rejects is not None and tally.withdrawn:
        rejects = without_withdrawn(rejects, as_rejected(judged.where(C.col(C.VERDICT) == WITHDRAWN), rule))
    if tally.rejected:
        now = as_rejected(judged.where(C.col(C.VERDICT).isin(*REASONS) & C.col(C.US).isNotNull()), rule)
        rejects = now if rejects is None else rejects.select(*C.cols(tuple(now.columns))).unionByName(now)
    return accepted(arrival.events if past is None else past.events(spans), rejects, rule, clock, spans)


def _with_final(intervals: DataFrame, past: Past | None, tally: Tally, rule: Rule) -> DataFrame:
    """The intervals, and the final rows that what is recomputed may touch: of its keys, and in its time."""
    if C.LIVE not in intervals.columns:
        intervals = intervals.withColumn(C.LIVE, F.lit(None).cast(LIVE_TYPE))
    low, high = tally.low, tally.high
    if rule.revive:
        low, high = min((t for t in (low, tally.earliest) if t is not None), default=None), None
    if low is None or past is None or past.sessions is None:
        return intervals
    new = intervals.where(C.col(C.LIVE).isNull() & (F.lit(rule.revive) | C.col(C.VERDICT).isNotNull()))
    keys = aliased(new.select(*C.cols(rule.key)).distinct(), rule.key)
    near = rows_near(past.sessions, rule, low, high).join(keys, same_as_aliased(rule.key), "left_semi")
    return intervals.unionByName(final_intervals(near, rule), allowMissingColumns=True)


def rows_near(table: DataFrame, rule: Rule, low: int, high: int | None) -> DataFrame:
    """Rows of the table that intervals within these times may touch; with `max_duration` all that follow, too.

    Sessions of late events apart (`is_late`) touch nothing.
    """
    near = ~C.col(C.IS_LATE) & (C.col(C.EXPIRES_AT) >= F.timestamp_micros(F.lit(low)))
    if rule.max_duration is None and high is not None:
        near = near & (C.col(C.SESSION_START) <= F.timestamp_micros(F.lit(high)))
    return table.where(near)


def _table(live: DataFrame | None, past: Past | None) -> DataFrame | None:
    final = None if past is None else past.sessions
    if live is None or final is None:
        return live if final is None else final
    return live.unionByName(final)


def _existing(
    live: DataFrame | None, past: Past | None, rule: Rule, aggregates: tuple[Aggregate, ...]
) -> DataFrame | None:
    """The sessions that events may join, as intervals: the live ones and, where they revive, final ones."""
    final = past.sessions if past is not None and rule.revive else None
    found = None if live is None else live_intervals(live, rule, aggregates)
    if final is None:
        return found
    places = final_intervals(final, rule)
    return places if found is None else found.unionByName(places, allowMissingColumns=True)


def _clock_after(
    clock: WatermarkState, arrival: _Arrival, intervals: DataFrame, rule: Rule, push: WatermarkOverride
) -> WatermarkState:
    """The clock as the run leaves it."""
    folded, tally = arrival.folded, arrival.tally
    if rule.scope:
        verdict = C.col(C.VERDICT)
        valid = folded.where(verdict.isNull() | ~verdict.isin(*[r for r in REASONS if r != LATE], WITHDRAWN))
        return advance_scopes(clock, valid, intervals, rule, push)
    after = advance_to(advance(clock, tally.earliest, tally.latest, rule), push.advance_to)
    return flush(after, _latest_reach(intervals)) if push.flush else after


def _latest_reach(intervals: DataFrame) -> int | None:
    row = intervals.agg(F.max(C.col(C.REACH)).alias("reach")).first()
    return None if row is None or row["reach"] is None else int(row["reach"])
