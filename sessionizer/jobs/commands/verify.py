"""verify: recompute the sessions from the accepted events, and compare the table with them row by row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.reporting.verdict import Verdict, examples_of, first_wrong
from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.driver import settled
from sessionizer.jobs.run.kinds import Kind, sessions_of
from sessionizer.jobs.run.phases import Say, wall_clock
from sessionizer.jobs.run.policies import check_fits
from sessionizer.jobs.run.retries import with_retries
from sessionizer.jobs.run.scopes import horizons_of_scopes
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config, DynamicGap
from sessionizer.lib.durations import EVER
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.time.spans import within
from sessionizer.lib.time.watermarks import latest
from sessionizer.lib.verifying import rejections, rules, traces
from sessionizer.lib.verifying.bag import accepted, alike, asked_about, judged
from sessionizer.lib.verifying.content import content_facts
from sessionizer.lib.verifying.differences import broken_rules, differences, miscounted, not_emptied
from sessionizer.lib.verifying.facts import facts_of
from sessionizer.lib.verifying.plan import expected_sessions
from sessionizer.tables.delta import Superseded
from sessionizer.tables.event_outputs import EventOutput
from sessionizer.tables.manifest import Manifest, are_told_alike, emptied_since, may_have_flushed
from sessionizer.tables.table_set import TableSet

TIMES = (C.SESSION_START, C.SESSION_END)
Frames = dict[str, DataFrame]  # by what they are of


@dataclass(frozen=True)
class Asked:
    """What to verify: sessions that touch [low, high) (microseconds), of a share of the keys; None: all."""

    low: int | None = None
    high: int | None = None
    sample: float | None = None


def verify(spark: SparkSession, config: Config, asked: Asked, say: Say = lambda _: None) -> Verdict:
    """Compare the sessions table with what its accepted events make; nothing is written but unfinished side tables.

    The accepted events: the source as of the consumed version, without rejected_events, whose reasons are judged by
    what the manifests say of their runs. The optional tables must tell the same as the sessions. With
    `lateness: session` and no `revive` sessions depend on how events arrived: only those of late events apart are
    recomputed.
    """
    tables = TableSet(spark, config)
    tables.require()
    kind = sessions_of(tables)
    kind.require()
    return undisturbed(kind, lambda: _verified(tables, kind, asked, say), say)


def undisturbed(kind: Kind, look: Callable[[], Verdict], say: Say) -> Verdict:
    """What a look finds; started over where it is wrong and a run has committed meanwhile.

    The tables beside are read as they are, so that this may be why.
    """

    def step() -> Verdict:
        before, found = kind.home.position().manifest, look()
        after = kind.home.position().manifest
        if not found.clean and after is not None and (before is None or before.run_seq != after.run_seq):
            raise Superseded("a run has committed while verify looked at the tables")
        return found

    return with_retries(step, say, kind.name)


def _verified(tables: TableSet, kind: Kind, asked: Asked, say: Say) -> Verdict:
    position = settled(kind, say)
    if position.manifest is not None:
        check_fits(kind, position.manifest)
        kind = replace(kind, rule=position.manifest.as_judged(kind.rule))  # by which states are what they are
    context = RunContext.look_back(kind, position, wall_clock(), "verify", {})
    rule, whole, forgotten = context.rule, asked == Asked(), context.clock.forgotten
    rows = Checkpoints().held(
        left(asked_for(tables.sessions.table.read(position.version), asked, rule.key, TIMES), C.EXPIRES_AT, forgotten)
    )
    broken = dict(broken_rules(rows, rule))
    broken[rules.ADDS_UP] = ledger_gaps(kind)
    if dropped := emptied_since(kind.home.manifests(position.version), rows.columns):
        broken[rules.EMPTIED] = not_emptied(rows, dropped)
    with tables.events.reading(context.increment):
        source = _source(context, asked, rule)
        rejects, near = rejected_beside(context, source, rule)
        events = accepted(source, rejects, near, rule)
        broken |= judged_rejects(context, rejects, near, events, whole=whole)
        if whole:
            broken |= _of_traces(context, rows, events, rule)
        if whole and not rules.is_recomputed(rule) and forgotten is None:
            broken[rules.IN_ONE] = miscounted(rows, events, rule)
        counts = counted(broken)
        examples = examples_of(broken, counts)
        say("recomputing the sessions from their events")
        told, number = _compared(context, rows, events, asked)
    wrong = first_wrong(told, [C.col(C.SESSION_ID)])
    return Verdict(rows.count(), number, rules.is_recomputed(rule), told.count(), wrong, counts, examples)


def _source(context: RunContext, asked: Asked, rule: Rule) -> DataFrame:
    """The rows of the source, judged, that make the sessions asked for, and maybe others."""
    if (asked.low is None and asked.high is None) or reaches_far(rule):
        return judged(context.past.events(None), rule)
    spans = _wide(context, asked)
    return judged(context.past.events(spans), rule).where(within(C.col(C.US), spans))


def _compared(context: RunContext, rows: DataFrame, events: DataFrame, asked: Asked) -> tuple[DataFrame, int]:
    """Where these rows of the table are not what the events make, and the number of events."""
    rule, compute = context.rule, Checkpoints()
    events = sampled(events, asked, rule.key)
    if not rules.is_recomputed(rule):
        rows, events = rows.where(C.col(C.IS_LATE)), events.where(C.col(C.POPULATION).isNotNull())
    facts = (*facts_of(rule, context.sample()), *content_facts(rule, context.sample()))
    sessions = expected_sessions(events, rule, facts, context.clock)
    made, seen = compute.observed(
        left(sessions, C.EXPIRES_AT, context.clock.forgotten), {"events": F.sum(C.col(C.EVENT_COUNT))}
    )
    wanted = asked_for(made, asked, rule.key, TIMES)
    flushed = may_have_flushed(context.kind.home.manifests(context.position.version))
    told = differences(rows, wanted, rule, facts, _since(context), flushed=flushed)
    return compute.held(told), seen["events"] or 0


def _since(context: RunContext) -> dict[str, int]:
    """Of aggregates that a run has taken up: its number."""
    done = context.position.manifest
    return {} if done is None else {name: run.run_seq for name, run in done.filled.items() if run is not None}


def rejected_beside(context: RunContext, source: DataFrame, rule: Rule) -> tuple[DataFrame | None, DataFrame]:
    """The rejected rows, None: there are none; and what is alike in the source, each computed once where there are."""
    if (rows := context.past.rejected()) is None:
        return None, alike(source, None, rule)
    rejects = Checkpoints().held(asked_about(rows))
    return rejects, Checkpoints().held(alike(source, rejects, rule))


def judged_rejects(
    context: RunContext, rejects: DataFrame | None, near: DataFrame, events: DataFrame, *, whole: bool
) -> Frames:
    """What is wrong in rejected_events. near: what is alike; events: what is accepted, of the whole source if whole."""
    rule = context.rule
    not_there = {rules.IS_KEPT: rejections.not_kept(near, rejects, rule, context.clock.forgotten)} if whole else {}
    if whole and rule.dedupe is not None:
        not_there[rules.NO_COPY] = rejections.taken_twice(events, rule, rule.dedupe)
    if rejects is None:
        return not_there
    last = context.position.manifest
    columns_now = {} if last is None else last.columns
    runs = [*context.kind.home.manifests(context.position.version)]
    anew = next((run for run in runs if run.mode == "rebuild"), None)
    young = [run for run in runs if anew is None or run.run_seq > anew.run_seq]
    told_by, scopes = horizons_of_scopes(young, rule, context.sample())
    known = [(*_known(run, rule, columns_now, anew), run.run_seq in told_by) for run in runs]
    numbers = (C.RUN_SEQ, rejections.OF_RUN, rejections.FORGOTTEN, rejections.LIMIT)
    may = (rejections.WAITS, rejections.STAYS, rejections.LEAVES_OUT, rejections.SETS_APART)
    are = (rejections.SAME_COLUMNS, *may, rejections.HAS_SCOPES)
    columns = ", ".join([*(f"{name} BIGINT" for name in numbers), *(f"{name} BOOLEAN" for name in are)])
    told = rejects.sparkSession.createDataFrame(known, columns)
    began = [name for name, first in context.began.items() if first]
    found = rejections.without_cause(rejects, told, scopes, rule, began) | not_there
    if whole:
        found |= rejections.not_of_the_source(near, rejects, told, rule)
        if rule.dedupe is not None:
            found[rules.IS_COPY] = rejections.copies_of_nothing(near, events, rejects, rule, rule.dedupe)
    return found


def _known(
    run: Manifest, rule: Rule, columns: Mapping[str, str], anew: Manifest | None
) -> tuple[int | bool | None, ...]:
    """What a manifest tells of a run: as `without_cause` and `not_of_the_source` ask it.

    columns: those of today. anew: the last rebuild, for which nothing was late but what is forgotten.
    """
    by, others = run.as_judged(rule), None if run.mode != "run" or run.retold else False
    waits, stays, late = by.corrections == "quarantine", by.deletes == "ignore", by.late_events
    may = (waits, stays, late not in ("amend", "separate"), late == "separate")
    limit, same = min(run.now + by.max_future_skew, EVER), run.columns == columns
    is_made_anew = anew is not None and run.run_seq <= anew.run_seq
    knew = run.horizon_before is not None or run.scopes_before is not None or rule.watermark_per == "key"
    forgotten = anew.forgotten if is_made_anew and anew is not None else run.forgotten
    horizon = run.horizon_before if knew and not is_made_anew else -EVER
    return run.run_seq, horizon, forgotten, limit, same, *(one or others for one in may)


def _of_traces(context: RunContext, sessions: DataFrame, events: DataFrame, rule: Rule) -> Frames:
    """What is wrong in the optional tables."""
    found = {}
    for name, output in context.kind.tables.event_outputs.items():
        rows = output.table.read(output.table.version)  # as it is before it is asked what it has
        forgotten = context.clock.forgotten
        young = rows if forgotten is None else rows.where(C.col(C.EVENT_TIME) >= timestamp(forgotten))
        found[rules.places(name)] = traces.wrong_places(young, sessions, rule)
        if (since := _complete_since(output)) is not None:
            found[rules.numbers(name)] = traces.wrong_numbers(rows, sessions, since)
            if rules.is_recomputed(rule):  # else final sessions keep a number of events, and nobody knows which
                more = (*rule.origin, *_apart_by(context, rows)) if name == "event_sessions" else ()
                known = since if forgotten is None else max(since, forgotten)
                by, told = (*rule.key, *more), events if rule.order_by else traces.with_hashes(events)
                found[rules.members(name)] = traces.wrong_members(rows, told, sessions, by, known)
        if name == "session_updates":
            found[rules.results(name)] = traces.wrong_results(rows, sessions, rule, _since(context), since)
    return found


def _apart_by(context: RunContext, rows: DataFrame) -> list[str]:
    """What tells events of one time apart: the hashes of rows, unless the columns of these have changed meanwhile."""
    if context.rule.order_by:
        return traces.order_of(rows, context.rule)
    return [C.EVENT_HASH] if are_told_alike(context.kind.home.manifests(context.position.version)) else []


def _complete_since(output: EventOutput) -> int | None:
    """From which event time on a table has all events; None: it was made when there were sessions already."""
    if not output.is_whole:
        return None
    return latest(-EVER, output.complete_from())


def _wide(context: RunContext, asked: Asked) -> list[tuple[int, int]]:
    """The span of events that makes the sessions asked for: as far as those that touch it reach, in the table.

    One that the table lacks may have events on both sides of what is asked for alone.
    """
    low, high = around(asked, context.rule)
    rows = context.kind.home.table.read(context.position.version)
    first, last = C.col(C.SESSION_START), C.col(C.EXPIRES_AT)
    near = rows.where((first < timestamp(high)) & (last >= timestamp(low)))
    bounds = near.agg(F.unix_micros(F.min(first)).alias("low"), F.unix_micros(F.max(last)).alias("high")).first()
    if bounds is None or bounds["low"] is None:
        return [(low, high)]
    return [(min(low, int(bounds["low"])), max(high, int(bounds["high"])))]


def reaches_far(rule: Rule) -> bool:
    """Whether sessions may follow from events of any time before: chains are cut from their first event on.

    A session that the table lacks may have gaps of its own, of any length.
    """
    return rule.cuts or isinstance(rule.gap, DynamicGap)


def around(asked: Asked, rule: Rule) -> tuple[int, int]:
    """The times asked for, and a gap more on either side."""
    gap = 0 if isinstance(rule.gap, DynamicGap) else rule.gap
    return (-EVER if asked.low is None else asked.low - gap), (EVER if asked.high is None else asked.high + gap)


def asked_for(rows: DataFrame, asked: Asked, key: tuple[str, ...], times: tuple[str, str]) -> DataFrame:
    """The rows that are asked for; times: the columns of their start and their end."""
    start, end = C.cols(times)
    if asked.low is not None:
        rows = rows.where(end >= timestamp(asked.low))
    if asked.high is not None:
        rows = rows.where(start < timestamp(asked.high))
    return sampled(rows, asked, key)


def left(rows: DataFrame, ends: str, forgotten: int | None) -> DataFrame:
    """What has not been forgotten, by its end; what has come below that since is, too, the next time."""
    return rows if forgotten is None else rows.where(C.col(ends) >= timestamp(forgotten))


def sampled(rows: DataFrame, asked: Asked, key: tuple[str, ...]) -> DataFrame:
    """The rows of the keys that are asked for; of a share one key in a million at least."""
    if asked.sample is None or not key:
        return rows
    return rows.where(F.pmod(F.xxhash64(*C.cols(key)), F.lit(1_000_000)) < max(1, int(asked.sample * 1_000_000)))


def counted(frames: Frames) -> dict[str, int]:
    """How many rows each of the frames has, in one job."""
    named = reduce(DataFrame.unionByName, [frame.select(F.lit(name).alias("name")) for name, frame in frames.items()])
    found = {row["name"]: row["count"] for row in named.groupBy("name").count().collect()}
    return {name: found.get(name, 0) for name in frames}


def ledger_gaps(kind: Kind) -> DataFrame:
    """Runs whose counts do not add up."""
    runs = kind.runs.table.read()
    parts = sum((C.col(n) for n in ("late", "invalid", "duplicates")), C.col("accepted"))
    return runs.where((C.col("mode") == "run") & (C.col("events_read") != parts)).select(C.RUN_ID)
