"""The main job: read the next increment, compute what it comes to, commit, write the side tables, the ledger last."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.compute import outlasting
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.kinds import Kind, kind_of
from sessionizer.jobs.run.manifests import check_is_last, check_no_rows, manifest_of, of_runs, stands, with_counts
from sessionizer.jobs.run.phases import Beginning, Phases, RunOptions, RunReport, Say, wall_clock
from sessionizer.jobs.run.pipeline import NO_OVERRIDE, RunResult
from sessionizer.jobs.run.policies import (
    check_expectations,
    check_fits,
    check_outputs,
    check_policies,
    check_same_events,
)
from sessionizer.jobs.run.retelling import check_columns
from sessionizer.jobs.run.retries import may_start_over, with_retries
from sessionizer.jobs.run.scopes import clock_of_sources, moves
from sessionizer.lib.config import Config
from sessionizer.lib.durations import HOUR
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import advance_each
from sessionizer.tables.delta import Superseded
from sessionizer.tables.increments import Increments
from sessionizer.tables.manifest import OF_STATES, Manifest
from sessionizer.tables.position import Position, check_can_follow, check_is_its_own
from sessionizer.tables.runs import Timing

SHUFFLES, MOST_TASKS = "spark.sql.shuffle.partitions", 16  # of more, a look at one day would open too many files
Done = Callable[[RunReport], None]


def run(
    spark: SparkSession, config: Config, options: RunOptions, say: Say = lambda _: None, done: Done = lambda _: None
) -> list[RunReport]:
    """Increments of sessions."""
    return increments(kind_of(spark, config), options, say, done)


def slide(
    spark: SparkSession, config: Config, options: RunOptions, say: Say = lambda _: None, done: Done = lambda _: None
) -> list[RunReport]:
    """Increments of sliding windows."""
    return increments(kind_of(spark, config, windows=True), options, say, done)


def increments(
    kind: Kind,
    options: RunOptions,
    say: Say = lambda _: None,
    done: Done = lambda _: None,
    finished: Callable[[Manifest], None] = lambda _: None,
) -> list[RunReport]:
    """Increments until caught up, or one; `done` hears of each as it is complete. No report: nothing new.

    What comes to the sources meanwhile is for the next time, so that it ends however often they are written to; all of
    them are of the time at which it began, so that nothing is idle for want of what came later.
    `finished` hears of a run that was cut off behind its commit and is complete now.

    A run that another one has overtaken starts over from the new version.
    Errors: SourceError, TableError, ConfigError as named; RunFailed after too many races in a row.
    """
    kind.require()
    began, reports = Beginning(kind.home.position().manifest, kind.tables.events, options.now), list[RunReport]()
    step = partial(_increment, kind, began=began, say=say, finished=finished)
    while (report := with_retries(partial(step, options), say, kind.name)) is not None:
        reports.append(report)
        done(report)
        if options.once or options.dry_run or report.manifest.read_nothing:
            break
        if report.manifest.arguments:  # what was asked of the watermark is done once
            options = replace(options, override=NO_OVERRIDE)
    return reports


def repair(kind: Kind, position: Position, say: Say) -> Manifest | None:
    """Bring the side tables in line with the table; the run that was finished by it, if one was.

    What a run that was cut off after its commit has left out is written: the manifest says what it read and by which
    watermarks it judged, so the same result is computed again. The rows of runs that a RESTORE has undone are removed.
    Errors: TableError where there are rows and no manifest: they would come twice.
    """
    check_is_last(kind, position)
    manifest, restored, rebuild = position.manifest, position.restored, f"sessionizer rebuild{kind.option}"
    if manifest is None:
        check_no_rows(kind, [kind.home.table])
    else:
        check_is_its_own(kind.home.table, manifest, kind.name, rebuild)
    if restored is not None:
        last = manifest.run_seq if manifest else 0
        check_can_follow(kind.home.table, last, kind.name, rebuild)
        side_tables.undo_after(kind, last, restored)
    if manifest is None:
        check_no_rows(kind, of_runs(kind))
        return None
    if side_tables.is_entered(kind, manifest, restored):
        side_tables.check_is_own(kind, manifest)
        check_outputs(kind, manifest, restored)
        return None
    say(f"finishing run {manifest.run_id}, which was cut off after its commit")
    if manifest.mode == "forget":
        side_tables.forget(kind, manifest, restored)
    elif not side_tables.is_complete(kind, manifest, restored):
        if side_tables.has_rejects(kind, manifest, restored):  # from which nothing can be computed again
            check_outputs(kind, manifest, restored)
        kind = kind.as_of(manifest)
        check_fits(kind, manifest)
        kind.tables.events.check_same(manifest)
        context = RunContext.again(kind, manifest)
        with kind.tables.events.reading(context.increment):
            side_tables.write(context, context.result(), manifest, restored)
    if not manifest.sessions:
        manifest = with_counts(manifest, kind.home.counts_of_new(position.version))
    side_tables.enter(kind, manifest, Timing(), restored)
    return manifest


def lasting(kind: Kind, position: Position) -> Position:
    """The position, of a version that outlasts the next commit: with that, Delta may clear its log of what is old.

    What follows the commit reads this version, and so does a repair.
    """
    now, done = wall_clock(), position.manifest
    latest = next(kind.home.table.history(), None)
    if done is None or (latest is not None and now - latest.timestamp_us < HOUR):
        return position
    if not kind.home.keep_manifest(done, now):
        return position
    found = kind.home.position()
    if found.manifest is None or found.manifest.run_id != done.run_id or found.restored != position.restored:
        raise Superseded("another run was faster")
    return found


def settled(kind: Kind, say: Say) -> Position:
    """The position, once the side tables are in line with it."""

    def step() -> Position:
        position = kind.home.position()
        repair(kind, position, say)
        return position

    return with_retries(step, say, kind.name)


@contextmanager
def going_on(kind: Kind, say: Say) -> Iterator[None]:
    """Behind a commit, which has been: what could start over is finished as a repair does it."""
    try:
        yield
    except (Superseded, PySparkException, Py4JJavaError) as error:
        if not may_start_over(error):
            raise
        settled(kind, say)


def commit(context: RunContext, result: RunResult, manifest: Manifest, phases: Phases, say: Say) -> RunReport:
    """Write what a run comes to: the rows in one commit, then the side tables, the ledger last.

    Errors: RunFailed if the rows are not as the configuration's `expectations` say; nothing is written.
    """
    check_expectations(context, result, phases)
    side_tables.check(context, result)
    with phases("commit"):
        entry = context.kind.home.commit(result.changes, manifest, result.touched, result.events.partials)
        if not manifest.sessions:
            manifest = with_counts(manifest, result.counted())
    with going_on(context.kind, say):
        with phases("side_tables"):
            side_tables.write(context, result, manifest)
        side_tables.enter(context.kind, manifest, phases.timing(entry))
    return RunReport(manifest, phases.timing(entry), context.kind.name)


def _increment(
    kind: Kind, options: RunOptions, *, began: Beginning, say: Say, finished: Callable[[Manifest], None]
) -> RunReport | None:
    phases = Phases()
    with phases("plan"):
        position = kind.home.position()
        if not options.dry_run and (cut_off := repair(kind, position, say)) is not None:
            finished(cut_off)
        done = position.manifest
        evolves = done is not None and done.rule_fingerprint != kind.fingerprint
        if done is not None:
            check_fits(kind, done, may_evolve=True)
        if options.dry_run:
            side_tables.check_told(kind, position)
        now, until = began.clock(done), began.until
        is_overtaken = now != began.now
        increment, override = kind.tables.events.plan(done, options.to_version, until), options.override
        if increment is None:
            by_clock, ends = None, False
            if not is_overtaken:  # else by a clock that knows of more than these sources
                by_clock = _by_clock(kind, done, options, now)
                ends = may_idle(kind.rule, done) or frees(kind.rule, done, now)
            if override == NO_OVERRIDE and by_clock is None and not (evolves or ends):
                return None
            increment = kind.tables.events.nothing_new(done, until)
            if by_clock is not None:  # whatever is asked of it by hand
                override = replace(override, advance_to=max(by_clock, override.advance_to or by_clock))
        elif override != NO_OVERRIDE and not options.once and _more_is_left(increment, options, until):
            override = NO_OVERRIDE
        if is_overtaken:
            increment = increment.awaiting(kind.tables.events.ends)
        position = position if options.dry_run else lasting(kind, position)
    if done is not None and evolves:
        say(f"taking up aggregates: {kind.evolved(done).told()}")
    say(_reading(increment))
    with phases("sessionize"), kind.home.table.reading_ahead(), kind.tables.events.reading(increment):
        context = RunContext.next(kind, position, increment, now, override)
        check_columns(kind, done, context.columns, increment)
        check_same_events(context)
        at_once = not increment.is_empty and not options.dry_run and may_write_at_once(kind)
        result = context.result(at_once=at_once)
    check_policies(result, context)
    unchanged = result.counts and not result.counts["rows"]
    is_by_clock = override != options.override and not moves(options.override, context.clock)
    is_by_clock = is_by_clock and not frees(kind.rule, done, now)  # a clock alone is no news
    stays = is_by_clock or stands(context.clock, result.clock)
    begins = increment.begun.difference(kind.tables.events.begun(done))
    if unchanged and stays and not evolves and increment.is_empty and not begins:
        return None
    manifest = manifest_of(context, result, phases.started)
    if options.dry_run:
        check_expectations(context, result, phases)
        return RunReport(manifest, phases.timing(), kind.name, dry_run=True, changes=outlasting(result.changes))
    say(f"writing {result.counts['rows']:,} changed {kind.name}" if result.counts else f"writing {kind.name}")
    return commit(context, result, manifest, phases, say)


def _more_is_left(increment: Increments, options: RunOptions, until: Increments) -> bool:
    """Whether there is something to read behind this increment."""
    if options.to_version is not None:
        (one,) = increment.of.values()
        return one.is_before(replace(next(iter(until.of.values())), last=options.to_version))
    # Of one that waits for its start nothing is read.
    return bool(increment.more) or any(increment.lasts[name] < until.lasts[name] for name in increment.begun)


def _by_clock(kind: Kind, done: Manifest | None, options: RunOptions, now: int) -> int | None:
    """Where no event has come for longer than a source may be quiet, to when the watermark follows the clock."""
    rule = kind.rule
    if rule.watermark_idle_after is None or done is None or done.live_sessions == 0 or options.to_version is not None:
        return None
    is_quiet = now - (done.now if done.events_came_at is None else done.events_came_at) > rule.watermark_idle_after
    return now - rule.watermark_delay if is_quiet else None


def may_idle(rule: Rule, done: Manifest | None) -> bool:
    """Whether sessions may end where nothing comes: by the run's clock, or as the times that end them have changed."""
    if done is None or done.live_sessions == 0:
        return False
    if rule.idle_after is not None and rule.idle_clock == "processing_time":
        return True
    # No watermark moves by another delay before something is read.
    return any(done.policy.get(name) != getattr(rule, name) for name in OF_STATES if name != "watermark_delay")


def frees(rule: Rule, done: Manifest | None, now: int) -> bool:
    """Whether the watermark moves by the run's clock alone: it waits no longer for one of several sources."""
    if rule.watermark_idle_after is None or done is None or not done.sources:
        return False
    before = replace(clock_of_sources(done, now), watermark=done.watermark_after)
    return advance_each(before, {}, rule).watermark != before.watermark


def may_write_at_once(kind: Kind) -> bool:
    """Whether nothing has to be known of the rows before they are written, not even in which of many files they go."""
    return kind.expectations is None and int(kind.tables.spark.conf.get(SHUFFLES) or 200) <= MOST_TASKS


def _reading(increment: Increments) -> str:
    if increment.is_empty:
        return "reading no new events"
    if increment.is_whole:
        return f"reading all events as of source version {increment.as_of()}"
    return f"reading source versions {increment.told()}"
