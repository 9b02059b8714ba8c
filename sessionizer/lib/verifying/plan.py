"""The sessions that accepted events make, of raw events and by the words of SEMANTICS §2, §5, §9 alone."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import session_id
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.verifying.content import ENDED, ends_of, local_date, walked, with_reason
from sessionizer.lib.verifying.facts import NEAR, Fact

OPEN, CLOSED, FINAL = "open", "closed", "final"
GAP, FLUSH, MAX_DURATION, IDLE = "gap", "flush", "max_duration", "idle"


def expected_sessions(events: DataFrame, rule: Rule, facts: Sequence[Fact], clock: WatermarkState) -> DataFrame:
    """Rows of the sessions table, but what only runs know: supersedes, run_id, what a flush or their clock has ended.

    In: what `accepted` returns; the watermarks as they stand.
    Out: the key columns and those of the table, the value of each fact by its name, and before that name `NEAR`: how
    far it may be away.
    """
    by, chains = (*_apart(rule), C.START), _started(events, rule)
    if rule.by_content:
        by, chains = (*by, C.AHEAD, C.WHY), walked(chains, rule, _apart(rule))
    whole = chains.groupBy(*C.cols(by))
    nearness = [fact.near.alias(NEAR + fact.name) for fact in facts if fact.near is not None]
    sessions = whole.agg(
        F.max(C.col(C.US)).alias(C.END),
        F.max(C.col(C.REACH)).alias(C.REACH),
        F.count(F.lit(1)).alias(C.EVENT_COUNT),
        *[fact.expected.alias(fact.name) for fact in facts],
        *nearness,
        *ends_of(rule, events),
    )
    if rule.by_content:
        sessions = with_reason(sessions, rule, _apart(rule))
    return _with_state(_described(sessions, rule), rule, clock)


def _started(events: DataFrame, rule: Rule) -> DataFrame:
    """Events with `__reach`, and `__start`: the first event of the session that they are in.

    One begins a session iff no earlier event of its key reaches it. Frames are ranges of time, so that events of equal
    time are of one mind.
    """
    gap = C.col(C.GAP) if isinstance(rule.gap, DynamicGap) else F.lit(rule.gap)
    by_time = Window.partitionBy(*C.cols(_apart(rule))).orderBy(C.US)
    earlier = by_time.rangeBetween(Window.unboundedPreceding, -1)
    up_to_here = by_time.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    reaching = events.withColumn(C.REACH, C.col(C.US) + gap)
    reached = F.max(C.col(C.REACH)).over(earlier)
    begins = F.when(reached.isNull() | ~reaches(reached, C.col(C.US), rule), C.col(C.US))
    chains = reaching.withColumn("__begins", begins)
    chains = chains.withColumn(C.START, F.last("__begins", ignorenulls=True).over(up_to_here))
    return chains if rule.max_duration is None or rule.by_content else _cut(chains, rule, rule.max_duration)


def reaches(reach: Column, time: Column, rule: Rule) -> Column:
    """Whether what reaches so far takes in an event of that time."""
    return time <= reach if rule.gap_boundary == "joins" else time < reach


def _cut(chains: DataFrame, rule: Rule, longest: int) -> DataFrame:
    """The same where a chain may be longer than max_duration: such a chain is walked from its first event on."""
    chain, us = (*_apart(rule), C.START), C.col(C.US)
    lasts = F.max(us).over(Window.partitionBy(*C.cols(chain))) - C.col(C.START)
    timed = chains.withColumn("__long", lasts > longest)
    times = F.sort_array(F.collect_set(F.struct(us, C.col(C.REACH))))
    walked = timed.where("__long").groupBy(*C.cols(chain)).agg(_walk(times, rule, longest).alias("__starts"))
    cuts = walked.select(*C.cols(chain), F.explode("__starts").alias(C.US)).withColumn("__cut", C.col(C.US))
    met = joined(timed, cuts, (*chain, C.US), "left")
    by_time = Window.partitionBy(*C.cols(chain)).orderBy(C.US)
    cut = F.last("__cut", ignorenulls=True).over(by_time.rangeBetween(Window.unboundedPreceding, Window.currentRow))
    return met.withColumn("__own_start", F.coalesce(cut, C.col(C.START))).withColumn(C.START, F.col("__own_start"))


def _walk(times: Column, rule: Rule, longest: int) -> Column:
    """The starts of sessions among times in order, each with its reach: reach starts anew at every cut."""
    nowhere = F.lit(None).cast("bigint")
    before = F.struct(nowhere.alias("start"), nowhere.alias("reach"), F.array().cast("array<bigint>").alias("starts"))

    def step(so_far: Column, event: Column) -> Column:
        start, reach, starts, us = so_far["start"], so_far["reach"], so_far["starts"], event[C.US]
        goes_on = reaches(reach, us, rule) & (us - start <= longest)
        longer = F.greatest(reach, event[C.REACH])
        return F.when(goes_on, F.struct(start.alias("start"), longer.alias("reach"), starts.alias("starts"))).otherwise(
            F.struct(
                us.alias("start"),
                event[C.REACH].alias("reach"),
                F.concat(starts, F.array(us)).alias("starts"),
            )
        )

    return F.aggregate(times, before, step, lambda so_far: so_far["starts"])


def _described(sessions: DataFrame, rule: Rule) -> DataFrame:
    """The columns that follow from the events alone."""
    key = C.cols(rule.key)
    types = [field.dataType for field in sessions.select(*key).schema.fields]
    start, end, population = C.col(C.START), C.col(C.END), C.col(C.POPULATION)
    salt = F.concat(F.lit("late#"), population.cast("string"))
    if rule.by_content:
        tie = F.concat(F.lit("+"), C.col(C.AHEAD).cast("string"))
        salt = F.concat(F.coalesce(salt, F.lit("")), F.when(C.col(C.AHEAD) > 0, tie).otherwise(""))
    return sessions.withColumns(
        {
            C.SESSION_ID: session_id(key, types, start, salt),
            C.SESSION_START: F.timestamp_micros(start),
            C.SESSION_END: F.timestamp_micros(end),
            C.EXPIRES_AT: F.timestamp_micros(C.col(C.REACH)),
            C.DURATION_SECONDS: (end - start) / F.lit(1e6),
            C.IS_LATE: population.isNotNull(),
            C.SESSION_DATE: local_date(start, rule),
        }
    )


def _with_state(sessions: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Sessions with status, end_reason and is_final; all that is compared with the watermark is so strictly."""
    clocked = timed(sessions, rule, clock)
    watermark, horizon, reach, start = (C.col(name) for name in (C.W, C.H, C.REACH, C.START))
    passed = watermark > reach
    idle = F.lit(False)
    if rule.idle_after is not None and rule.idle_clock == "event_time":
        idle = watermark - C.col(C.END) > rule.idle_after
    too_long = start + rule.max_duration if rule.max_duration is not None else F.lit(None).cast("bigint")
    final = C.col(C.IS_LATE) | F.coalesce(reach < horizon, F.lit(False))
    status = F.when(final, FINAL).when(passed | idle | (watermark > too_long), CLOSED).otherwise(OPEN)
    alone = idle & ~passed & ~C.col(C.IS_LATE)
    by_content = C.col(ENDED) if rule.by_content else F.lit(None)
    reason = F.coalesce(by_content, F.when(too_long < reach, MAX_DURATION).when(alone, IDLE).otherwise(GAP))
    ended = clocked.withColumns({C.STATUS: status, C.IS_FINAL: final})
    return ended.withColumn(C.END_REASON, F.when(C.col(C.STATUS) != OPEN, reason))


def timed(sessions: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Sessions with the watermark and the horizon of their scope; null where none is known.

    No horizon lies before what has been forgotten.
    """
    lateness, forgotten = rule.allowed_lateness, F.lit(clock.forgotten).cast("bigint")
    if not rule.scope or clock.scopes is None:
        watermark, mark = (F.lit(us).cast("bigint") for us in (clock.watermark, clock.flush_mark))
        return sessions.withColumns({C.W: watermark, C.H: F.greatest(watermark - lateness, mark, forgotten)})
    watermark, mark = C.col(C.SCOPE_WATERMARK), C.col(C.SCOPE_FLUSH_MARK)
    scopes = clock.scopes.select(
        *C.cols(rule.scope), watermark.alias(C.W), F.greatest(watermark - lateness, mark).alias(C.H)
    )
    return joined(sessions, scopes, rule.scope, "left").withColumn(C.H, F.greatest(C.col(C.H), forgotten))


def _apart(rule: Rule) -> tuple[str, ...]:
    """What keeps events apart: their key, and late events of a run from all others."""
    return (*rule.key, C.POPULATION)
