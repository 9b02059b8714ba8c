"""The main job: read the next increment, merge it with the live sessions, commit, write the side tables."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from jobs.reporting.expectations import read_suite
from jobs.run import side_tables
from jobs.run.increment import Inputs, compute
from lib import columns as C
from lib.admission.events import CORRECTION, INVALID, LATE
from lib.computed import given_back, outlasting
from lib.config import Config
from lib.errors import ConfigError, RunFailed, SourceError
from lib.time.watermarks import Clock, Push, scopes_as_json
from lib.windows.sessions.changes import DELETE
from lib.windows.sessions.pipeline import Outcome
from tables.delta import BYTES_WRITTEN, FILES_WRITTEN, Entry, Superseded, told
from tables.events import Increment
from tables.lake import Lake
from tables.manifest import Manifest
from tables.position import Position
from tables.runs import Timing, ledger_row

ATTEMPTS = 12
LOST_CHECKPOINT = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # what Spark says of it
Say = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks of a run. Times: microseconds since the epoch."""

    once: bool = False
    to_version: int | None = None
    push: Push = field(default_factory=Push)
    dry_run: bool = False
    now: int | None = None


@dataclass(frozen=True)
class RunReport:
    """One increment, done or (dry run) only computed."""

    manifest: Manifest
    timing: Timing
    dry_run: bool = False
    changes: DataFrame | None = field(default=None, repr=False)

    def row(self) -> dict[str, object]:
        """The ledger's row; times in microseconds."""
        return ledger_row(self.manifest, self.timing)


class Phases:
    """Seconds by phase of one run."""

    def __init__(self) -> None:
        self.started = wall_clock()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time what happens inside."""
        begun = time.monotonic()
        yield
        self.seconds[phase] = round(time.monotonic() - begun, 3)

    def timing(self, commit: Entry | None = None) -> Timing:
        """What was timed so far, and what the commit has written."""
        seconds = {**self.seconds, "total": round((wall_clock() - self.started) / 1e6, 3)}
        if commit is None:
            return Timing(wall_clock(), seconds)
        return Timing(wall_clock(), seconds, commit.metric(FILES_WRITTEN), commit.metric(BYTES_WRITTEN))


def run(
    spark: SparkSession,
    config: Config,
    options: RunOptions,
    say: Say = lambda _: None,
    done: "Callable[[RunReport], None]" = lambda _: None,
) -> list[RunReport]:
    """Increments until caught up, or one; `done` hears of each as it is complete. No report: nothing was new.

    A run that another one has overtaken starts over from the new version.
    Errors: SourceError, TableError, ConfigError as named; RunFailed after too many races in a row.
    """
    lake = Lake(spark, config)
    lake.require()
    reports: list[RunReport] = []
    while (report := with_retries(partial(_increment, lake, options, say), say)) is not None:
        reports.append(report)
        done(report)
        if options.once or options.dry_run:
            break
        options = replace(options, push=Push())  # what was asked of the clock is done once
    return reports


def repair(lake: Lake, position: Position, say: Say = lambda _: None) -> bool:
    """Bring the side tables in line with sessions; False if nothing is missing.

    What a run that was cut off after its commit has left out is written: the manifest says what it read and by which
    clock it judged, so the same outcome is computed again. The rows of runs that a RESTORE of sessions has undone are
    removed.
    """
    manifest = position.manifest
    if position.restored:
        side_tables.undo_after(lake, manifest.run_seq if manifest else 0)
    if manifest is None or side_tables.is_entered(lake, manifest):
        return position.restored
    say(f"finishing run {manifest.run_id}, which was cut off after its commit")
    if side_tables.is_complete(lake, manifest):
        side_tables.enter(lake, manifest, Timing())
        return True
    check_rule(lake, manifest)
    lake.events.check_same(manifest)
    inputs = Inputs.again(lake, manifest)
    with lake.events.reading(inputs.increment):
        side_tables.write(lake, inputs, compute(lake, inputs), manifest)
    side_tables.enter(lake, manifest, Timing())
    return True


def _may_start_over(error: BaseException) -> bool:
    """Another run has committed first; or an executor died with what it alone had: nothing was written."""
    lost = isinstance(error, PySparkException | Py4JJavaError) and LOST_CHECKPOINT in told(error)
    return lost or isinstance(error, Superseded)


def _why_again(state: RetryCallState) -> str:
    if state.outcome is not None and isinstance(state.outcome.exception(), Superseded):
        return "another run was faster: starting over from its result"
    return "an executor was lost with what it had computed: starting over"


def settled(lake: Lake, say: Say) -> Position:
    """The position, once the side tables are in line with it."""

    def step() -> Position:
        position = lake.sessions.position()
        repair(lake, position, say)
        return position

    return with_retries(step, say)


def _increment(lake: Lake, options: RunOptions, say: Say) -> RunReport | None:
    phases = Phases()
    with phases("plan"):
        position = lake.sessions.position()
        if not options.dry_run:
            repair(lake, position, say)
        done = position.manifest
        if done is not None:
            check_rule(lake, done)
        increment = lake.events.plan(done, options.to_version)
        if increment is None:
            if options.push == Push() and not _may_idle(lake, done):
                return None
            increment = _nothing_new(done)
    now = options.now if options.now is not None else wall_clock()
    say(_reading(increment))
    with phases("sessionize"), lake.sessions.table.reading_ahead(), lake.events.reading(increment):
        inputs = Inputs.next(lake, position, increment, now, options.push)
        outcome = compute(lake, inputs)
    _check_policies(outcome, inputs)
    if not outcome.counts["rows"] and increment.is_empty and _stands(inputs.clock, outcome.clock) and done is not None:
        return None
    manifest = inputs.manifest(outcome, phases.started)
    if options.dry_run:
        _check_expectations(lake, outcome, phases)
        return RunReport(manifest, phases.timing(), dry_run=True, changes=outlasting(outcome.changes))
    say(f"writing {outcome.counts['rows']:,} changed sessions")
    return commit(lake, inputs, outcome, manifest, phases)


def commit(lake: Lake, inputs: Inputs, outcome: Outcome, manifest: Manifest, phases: Phases) -> RunReport:
    """Write what a run comes to: sessions in one commit, then the side tables, the ledger last.

    Errors: RunFailed if the rows are not as the configuration's `expectations` say; nothing is written.
    """
    _check_expectations(lake, outcome, phases)
    with phases("commit"):
        entry = lake.sessions.commit(outcome.changes, manifest, outcome.touched)
    with phases("side_tables"):
        side_tables.write(lake, inputs, outcome, manifest)
    timing = phases.timing(entry)
    side_tables.enter(lake, manifest, timing)
    return RunReport(manifest, timing)


def with_retries(step: Callable[[], Result], say: Say, table: str = "sessions") -> Result:
    """The step, started over as often as another run is faster, after a short time drawn by lot.

    table: which one they write to. Errors: RunFailed after too many races in a row.
    """
    retrying = Retrying(
        retry=retry_if_exception(_may_start_over),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        before_sleep=lambda state: say(_why_again(state)),
        reraise=True,
    )

    def attempt() -> Result:
        with given_back():
            return step()

    try:
        return retrying(attempt)
    except Superseded as error:
        raise RunFailed(
            f"other runs were faster {ATTEMPTS} times in a row",
            value=str(error),
            remedy=f"let fewer processes write to the same {table} table",
        ) from error


def check_rule(lake: Lake, done: Manifest) -> None:
    """Raise if the sessions in the table follow another rule than the configuration states."""
    old, new = done.rule, lake.config.rule_summary()
    if done.rule_fingerprint == lake.config.fingerprint():
        return
    changed = [f"{k}: {old.get(k)!r} → {new.get(k)!r}" for k in new if old.get(k) != new.get(k)]
    raise ConfigError(
        "the rule has changed since the sessions table was made, and its rows follow the old one: "
        + "; ".join(changed),
        remedy="`sessionizer rebuild` makes all sessions anew by the new rule; or set the old rule again",
    )


def _check_policies(outcome: Outcome, inputs: Inputs) -> None:
    """Raise where the rule says that a run must not go on with such events; nothing is written."""
    rejects, rule, increment = outcome.tally.rejected, inputs.rule, inputs.increment
    if (rows := rejects.get(CORRECTION)) and rule.corrections == "fail":
        raise SourceError(
            f"versions {increment.first} to {increment.last} of the source update or delete rows, "
            "and corrections is fail",
            value=f"{rows} change rows",
            remedy="set corrections: apply, which recomputes the sessions they touch",
        )
    for policy, reasons, remedy in (
        ("late_events", (LATE,), "set a longer time.allowed_lateness, or late_events: quarantine or amend"),
        ("invalid_events", INVALID, "mend the source, or set invalid_events: quarantine"),
    ):
        if getattr(rule, policy) == "fail" and (number := sum(rejects.get(r, 0) for r in reasons)):
            raise RunFailed(
                f"{number:,} events are {policy.removesuffix('_events')}, and {policy} is fail; the first: "
                + _first_of(outcome, reasons),
                remedy=f"{remedy}; nothing was written",
            )


def _check_expectations(lake: Lake, outcome: Outcome, phases: Phases) -> None:
    """Raise where rows to be written are not as expected."""
    if lake.config.expectations is None or not outcome.counts["rows"]:
        return
    from jobs.reporting.quality import gate  # noqa: PLC0415  (Great Expectations takes seconds to import)

    file = Path(lake.config.expectations)
    rows = outcome.changes.where(C.col(C.CHANGE) != DELETE).drop(C.CHANGE, C.STATE)
    with phases("expectations"):
        gate(rows, read_suite(file), file)


def _first_of(outcome: Outcome, reasons: tuple[str, ...]) -> str:
    rows = outcome.rejected().where(C.col(C.REASON).isin(*reasons)).orderBy(C.EVENT_TIME, C.EVENT_HASH).limit(10)
    return "; ".join(f"{row[C.REASON]}: {row[C.EVENT]}" for row in rows.collect())


def _may_idle(lake: Lake, done: Manifest | None) -> bool:
    """Whether sessions may end by the run's clock alone."""
    idle = lake.config.time.idle_timeout
    return idle is not None and idle.clock == "processing_time" and done is not None and done.live_sessions > 0


def _nothing_new(done: Manifest | None) -> Increment:
    last = -1 if done is None or done.source_to_version is None else done.source_to_version
    return Increment(last + 1, last)


def _stands(before: Clock, after: Clock) -> bool:
    if before.scopes is not None and after.scopes is not None:
        return scopes_as_json(before.scopes) == scopes_as_json(after.scopes)
    return (before.watermark, before.flush_mark) == (after.watermark, after.flush_mark)


def _reading(increment: Increment) -> str:
    if increment.is_empty:
        return "reading no new events"
    if increment.first is None:
        return f"reading all events as of source version {increment.last}"
    return f"reading source versions {increment.first} to {increment.last}"


def wall_clock() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000
