"""Lifecycle: from merged islands to finished session rows with their state (SEMANTICS §5, §9)."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import UNSEEN_OF_SESSIONS, Aggregate, state_struct, with_sql_columns
from sessionizer.lib.canonical import session_id
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import steady
from sessionizer.lib.time.watermarks import WatermarkState, with_clock
from sessionizer.lib.windows.sessions.boundaries import MAX_DURATION, end_by_content, local_day, salt_of
from sessionizer.lib.windows.sessions.intervals import keeps_arrival, keeps_arrival_of_key

OPEN, CLOSED, FINAL = "open", "closed", "final"
GAP, FLUSH, IDLE = "gap", "flush", "idle"
TRAIL = (C.ABSORBED, C.BEYOND, C.FRESH, C.BUCKETS, C.RANGE, C.ISLAND)


def settle(
    sessions: DataFrame,
    rule: Rule,
    before: WatermarkState,
    after: WatermarkState,
    aggregates: tuple[Aggregate, ...],
) -> DataFrame:
    """Session rows as the table holds them, in the state that the watermarks after the run give them.

    The first that holds: `final` iff expires_at < horizon; `closed` iff watermark > expires_at, or watermark >
    session_start + max_duration, or idle; else `open`. All strict. With `watermark.per: key`, all rows of a key that
    has had no new event for the idle timeout are final, where none may be left unread. Sessions of late events apart
    (`is_late`) are always final.
    What ended before that which has been forgotten does not come back.

    In: what `intervals.merge_islands` returns; the watermarks as they stand before and after the run.
    Out: the columns of the sessions table but run_id, and those of `TRAIL` that the input has.
    """
    key_types = [sessions.schema[name].dataType for name in _spelled(rule.key, sessions)]
    salted = _salted(sessions, rule, before)
    timed = with_clock(salted, rule, after, beside=C.col(C.START))
    reach, start, end = C.col(C.REACH), C.col(C.START), C.col(C.END)
    is_late = C.col(C.POPULATION).isNotNull() if C.POPULATION in sessions.columns else F.lit(False)
    idle = _idle(rule, after)
    final = is_late | _known(reach < C.col(C.H))
    by_watermark = final | _known(C.col(C.W) > reach)  # of a key that has come back H may lie ahead of W
    if rule.idle_after is not None and keeps_arrival_of_key(rule):
        of_key = F.max(last_arrival(sessions)).over(Window.partitionBy(*C.cols(rule.key)))
        timed = timed.withColumn(C.LAST_ARRIVAL, of_key)
        if not after.ends_no_key:
            key_idle = _known(steady(after.now, start) - C.col(C.LAST_ARRIVAL) > rule.idle_after)
            final, idle = final | key_idle, idle | key_idle
    ended = by_watermark | idle
    if rule.max_duration is not None:
        ended = ended | _known(C.col(C.W) > start + rule.max_duration)
    status = F.when(final, FINAL).when(ended, CLOSED).otherwise(OPEN)
    computed_id = session_id(C.cols(rule.key), key_types, start, C.col(C.SALT) if C.SALT in salted.columns else None)
    rows = not_forgotten(timed, after).select(
        *C.cols(rule.key),
        _own_id(computed_id, sessions, rule).alias(C.SESSION_ID),
        F.timestamp_micros(start).alias(C.SESSION_START),
        F.timestamp_micros(end).alias(C.SESSION_END),
        F.timestamp_micros(reach).alias(C.EXPIRES_AT),
        ((end - start) / F.lit(1e6)).alias(C.DURATION_SECONDS),
        C.col(C.COUNT).alias(C.EVENT_COUNT),
        *[result for a in aggregates for result in a.finish()],
        status.alias(C.STATUS),
        F.when(final | ended, _end_reason(timed, rule, idle & ~by_watermark, is_late)).alias(C.END_REASON),
        final.alias(C.IS_FINAL),
        is_late.alias(C.IS_LATE),
        F.date_from_unix_date(local_day(start, rule)).alias(C.SESSION_DATE),
        F.when(~final, _state(rule, aggregates)).alias(C.STATE),
        *[C.col(name) for name in TRAIL if name in sessions.columns],
    )
    trail = _supersedes(C.col(C.ABSORBED)) if C.ABSORBED in sessions.columns else no_ids()
    return with_sql_columns(
        _without_stayers(rows.withColumn(C.SUPERSEDES, trail), rule), aggregates, UNSEEN_OF_SESSIONS
    )


def not_forgotten(sessions: DataFrame, clock: WatermarkState) -> DataFrame:
    """The sessions but those that ended before what has been forgotten."""
    if clock.forgotten is None:
        return sessions
    return sessions.where(C.col(C.REACH) >= clock.forgotten)


def last_arrival(sessions: DataFrame) -> Column:
    """When the last event of a session, or of its key as far as its rows remember, arrived; null of those apart."""
    arrived = C.col(C.ARRIVED)
    if C.LAST_ARRIVAL in sessions.columns:
        arrived = F.greatest(arrived, C.col(C.LAST_ARRIVAL))
    return F.when(C.col(C.POPULATION).isNull(), arrived) if C.POPULATION in sessions.columns else arrived


def with_last_arrivals(rule: Rule, *frames: DataFrame) -> tuple[DataFrame, ...]:
    """The sessions with `__last_arrival` of their key, whichever way they were made."""
    key = C.cols(rule.key)
    told = [frame.select(*key, last_arrival(frame).alias(C.LAST_ARRIVAL)) for frame in frames]
    last = reduce(DataFrame.unionByName, told).groupBy(*key).agg(F.max(C.LAST_ARRIVAL).alias(C.LAST_ARRIVAL))
    return tuple(joined(frame.drop(C.LAST_ARRIVAL), last, rule.key, "left") for frame in frames)


def _salted(sessions: DataFrame, rule: Rule, before: WatermarkState) -> DataFrame:
    """The sessions with `__salt`: text that ids hash too, where key and start do not tell them apart (SEMANTICS §9).

    That is so for sessions apart; for those that begin amid events of one time; and with `lateness: session` and no
    revival, where a new one may lie within the gap of a final one, for what starts before the horizon that events were
    judged by.
    """
    population, ahead = (C.col(name) if name in sessions.columns else None for name in (C.POPULATION, C.AHEAD))
    salts = [] if population is None and ahead is None else [salt_of(population, ahead)]
    if rule.freezes:
        sessions = with_clock(sessions, rule, before)
        salts.append(F.when(C.col(C.START) < C.col(C.H), F.lit(f"#{before.run_seq}")))
    salted = sessions.withColumn(C.SALT, F.coalesce(*salts)) if salts else sessions
    return salted.drop(C.W, C.H, C.MARK, C.FLUSHED)


def _without_stayers(rows: DataFrame, rule: Rule) -> DataFrame:
    """Of recomputed sessions: an id that stays in its island has not been taken over, nor what one beyond took over."""
    if C.RANGE not in rows.columns:
        return rows
    stay = F.collect_set(C.col(C.SESSION_ID)).over(Window.partitionBy(*C.cols(rule.key), C.col(C.RANGE)))

    def stays(name: Column) -> Column:
        return F.array_contains(F.col("__stay"), name)

    def is_other(row: Column) -> Column:
        return F.array_contains(C.col(C.BEYOND), row[C.SESSION_ID]) & stays(row[C.SESSION_ID])

    trail = C.col(C.SUPERSEDES)
    if C.BEYOND in rows.columns:
        trail = _supersedes(F.filter(C.col(C.ABSORBED), lambda row: ~is_other(row)))
    vanished = F.filter(trail, lambda name: ~stays(name))
    return rows.withColumn("__stay", stay).withColumn(C.SUPERSEDES, vanished).drop("__stay", C.BEYOND)


def table_columns(rule: Rule, aggregates: tuple[Aggregate, ...]) -> tuple[str, ...]:
    """The columns of the sessions table in order, but run_id, which comes before the last."""
    results = [name for a in aggregates for name in a.result_columns]
    return (*rule.key, *C.BEFORE_AGGREGATES, *results, *C.AFTER_AGGREGATES, C.STATE)


def no_ids() -> Column:
    """An empty trail."""
    return F.array().cast("array<string>")


def _idle(rule: Rule, clock: WatermarkState) -> Column:
    if rule.idle_after is None:
        return F.lit(False)
    if rule.idle_clock == "processing_time":
        return _known(steady(clock.now, C.col(C.START)) - C.col(C.ARRIVED) > rule.idle_after)
    return _known(C.col(C.W) - C.col(C.END) > rule.idle_after)


def _end_reason(sessions: DataFrame, rule: Rule, idle: Column, is_late: Column) -> Column:
    """Why each has ended; what a flush, or the silence of its key, had ended then has ended by it still."""

    def had(said: str) -> Column:
        if C.ABSORBED not in sessions.columns:
            return F.lit(False)
        ended = C.col(C.REACH)  # another end is another matter
        return F.exists(
            C.col(C.ABSORBED), lambda row: row[C.IS_FINAL] & (row[C.END_REASON] == said) & (row[C.REACH] == ended)
        )

    reason = F.when(~is_late & (_known(C.col(C.REACH) >= C.col(C.FLUSHED)) | _known(had(FLUSH))), FLUSH)
    for said, holds in end_by_content(rule, C.col(C.COUNT)):
        reason = reason.when(holds, said)
    if rule.max_duration is not None:
        # Cut by it, too: the next event lay beyond the longest duration and still within reach.
        reason = reason.when(C.col(C.START) + rule.max_duration < C.col(C.REACH), MAX_DURATION)
    return reason.when(idle | _known(had(IDLE)), IDLE).otherwise(GAP)


def _state(rule: Rule, aggregates: tuple[Aggregate, ...]) -> Column:
    state = state_struct(aggregates)
    if keeps_arrival(rule):
        state = state.withField(C.STATE_ARRIVED, C.col(C.ARRIVED))
    if keeps_arrival_of_key(rule):
        state = state.withField(C.STATE_LAST_ARRIVAL, C.col(C.LAST_ARRIVAL))
    if rule.watermark_per == "key":
        # The mark is where the horizon is: it never goes back, even if more lateness is allowed.
        state = state.withField(C.STATE_WATERMARK, C.col(C.W)).withField(C.STATE_FLUSH_MARK, C.col(C.H))
    return state


def _own_id(computed: Column, sessions: DataFrame, rule: Rule) -> Column:
    """A row of the table that starts as before keeps its id, also one that hashes more than that (SEMANTICS §6, §9)."""
    tells_all = C.AHEAD in sessions.columns or (rule.lateness == "event" and not rule.by_content)
    if tells_all or C.ABSORBED not in sessions.columns:
        return computed
    same_start = F.filter(C.col(C.ABSORBED), lambda row: row[C.START] == C.col(C.START))
    return F.coalesce(F.array_min(same_start[C.SESSION_ID]), computed)  # a run that is repeated takes the same


def _known(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _spelled(names: tuple[str, ...], frame: DataFrame) -> list[str]:
    """The names as the frame spells them: Spark compares without case."""
    known = {name.lower(): name for name in frame.columns}
    return [known[name.lower()] for name in names]


def _supersedes(absorbed: Column) -> Column:
    """The ids that this session took over, and those that they had taken over, without its own."""
    vanished = F.concat(absorbed[C.SESSION_ID], F.flatten(absorbed[C.SUPERSEDES]))
    return F.array_sort(F.array_distinct(F.filter(vanished, lambda i: i != C.col(C.SESSION_ID))))
