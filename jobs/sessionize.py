"""The main job: read the next increment, merge it with the live sessions, commit, write the side tables."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from lib import __version__
from lib.config import Config
from lib.errors import ConfigError, RunFailed, SourceError
from lib.events import CORRECTION, judge, rejected
from lib.pipeline import Outcome, Push, session_schema, sessionize
from lib.rule import Rule
from lib.watermarks import Clock
from tables.delta import BYTES_WRITTEN, FILES_WRITTEN, Commit, Entry, Superseded
from tables.events import ANEW, Increment
from tables.lake import Lake
from tables.manifest import Manifest
from tables.runs import Timing, ledger_row
from tables.sessions import Position

ATTEMPTS = 12
Say = Callable[[str], None]


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


@dataclass(frozen=True)
class Inputs:
    """What a run is a function of, besides the rows."""

    position: Position
    increment: Increment
    clock: Clock
    rule: Rule
    schema: str


def run(spark: SparkSession, config: Config, options: RunOptions, say: Say = lambda _: None) -> list[RunReport]:
    """Increments until caught up, or one. No report: nothing was new.

    A run that another one has overtaken starts over from the new version.
    Errors: SourceError, TableError, ConfigError as named; RunFailed after too many races in a row.
    """
    lake = Lake(spark, config)
    lake.require()
    reports: list[RunReport] = []
    while (report := _with_retries(partial(_increment, lake, options, say), say)) is not None:
        reports.append(report)
        if options.once or options.dry_run:
            break
        options = replace(options, push=Push())  # what was asked of the clock is done once
    return reports


def repair(lake: Lake, position: Position, say: Say = lambda _: None) -> bool:
    """Bring the side tables in line with sessions; False if nothing is missing.

    What a run that was cut off after its commit has left out is written: the manifest says which events it read and
    by which clock it judged them, so the same rows come out again. The rows of runs that a RESTORE of sessions has
    undone are removed.
    """
    manifest = position.manifest
    if position.restored:
        undone = f"run_seq > {manifest.run_seq if manifest else 0}"
        for table in (lake.rejected_events.table, lake.runs.table):
            table.delete(undone)
    if manifest is None or _has(lake, "runs", manifest):
        return position.restored
    say(f"finishing run {manifest.run_id}, which was cut off after its commit")
    rule = manifest.as_judged(Rule.of(lake.config))
    if manifest.rejected and not _has(lake, "rejected_events", manifest):
        _check_rule(lake, manifest)
        increment = Increment(manifest.source_from_version, _int(manifest.source_to_version))
        clock = manifest.clock_before()
        with lake.events.reading(increment):
            judged = judge(lake.events.read(increment), rule, clock)
            _reject(lake, rejected(judged, rule, clock), manifest)
    _enter(lake, manifest, Timing())
    return True


def _increment(lake: Lake, options: RunOptions, say: Say) -> RunReport | None:
    phases = Phases()
    with phases("plan"):
        position = lake.sessions.position()
        if not options.dry_run:
            repair(lake, position, say)
        done = position.manifest
        if done is not None:
            _check_rule(lake, done)
        increment = lake.events.plan(done, options.to_version)
        if increment is None:
            if options.push == Push():
                return None
            increment = _nothing_new(done)
    now = options.now if options.now is not None else _now()
    clock = Clock(now=now) if done is None else done.clock_after(now)
    rule = Rule.of(lake.config)
    say(_reading(increment))
    with phases("sessionize"), lake.events.reading(increment):
        events = lake.events.read(increment)
        schema = _checked_schema(lake, events, rule, done)
        live = lake.sessions.live(position.version) if done is not None and done.live_sessions else None
        outcome = sessionize(events, live, rule, clock, options.push)
    _check_corrections(outcome, increment)
    inputs = Inputs(position, increment, clock, rule, schema)
    manifest = _manifest(lake, inputs, outcome, phases.started)
    if options.dry_run:
        return RunReport(manifest, phases.timing(), dry_run=True, changes=outcome.changes)
    if done is not None and increment.is_empty and not outcome.counts["rows"] and _stands(clock, outcome.clock):
        return None
    say(f"writing {outcome.counts['rows']:,} changed sessions")
    with phases("commit"):
        commit = lake.sessions.commit(outcome.changes, manifest)
    with phases("rejected_events"):
        if manifest.rejected:
            _reject(lake, outcome.rejected(), manifest)
    timing = phases.timing(commit)
    _enter(lake, manifest, timing)
    return RunReport(manifest, timing)


def _with_retries(step: Callable[[], RunReport | None], say: Say) -> RunReport | None:
    retrying = Retrying(
        retry=retry_if_exception_type(Superseded),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        before_sleep=lambda _: say("another run was faster: starting over from its result"),
        reraise=True,
    )
    try:
        return retrying(step)
    except Superseded as error:
        raise RunFailed(
            f"other runs were faster {ATTEMPTS} times in a row",
            value=str(error),
            remedy="let fewer processes write to the same sessions table",
        ) from error


def _manifest(lake: Lake, inputs: Inputs, outcome: Outcome, started_at: int) -> Manifest:
    position, increment, before, rule = inputs.position, inputs.increment, inputs.clock, inputs.rule
    tally, after = outcome.tally, outcome.clock
    live_before = position.manifest.live_sessions if position.manifest else 0
    return Manifest(
        run_id=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{position.version + 1:06d}-{secrets.token_hex(3)}",
        run_seq=position.version + 1,
        product_version=__version__,
        source_id=lake.events.table.id,
        source_from_version=increment.first,
        source_to_version=increment.last if increment.last >= 0 else None,
        source_files=increment.files,
        source_bytes=increment.bytes,
        sessions_version=position.version,
        now=before.now,
        started_at=started_at,
        watermark_before=before.watermark,
        watermark_after=after.watermark,
        horizon_before=before.horizon(rule),
        horizon_after=after.horizon(rule),
        flush_mark_before=before.flush_mark,
        flush_mark_after=after.flush_mark,
        allowed_lateness=rule.allowed_lateness,
        max_future_skew=rule.max_future_skew,
        rule_fingerprint=lake.config.fingerprint(),
        rule=lake.config.rule_summary(),
        source_schema=inputs.schema,
        events={
            "events_read": tally.read,
            "accepted": tally.accepted,
            "late": tally.late,
            "invalid": tally.invalid,
        },
        rejected=tally.rejected,
        sessions=outcome.counts,
        live_sessions=live_before + outcome.counts["live_change"],
    )


def _checked_schema(lake: Lake, events: DataFrame, rule: Rule, done: Manifest | None) -> str:
    """The hash of the source's columns, after checking that sessions of them fit the table."""
    schema = hashlib.sha256(events.schema.json().encode()).hexdigest()[:16]
    if done is None or done.source_schema != schema:
        lake.sessions.check_schema(session_schema(events, rule))
    return schema


def _check_rule(lake: Lake, done: Manifest) -> None:
    old, new = done.rule, lake.config.rule_summary()
    if done.rule_fingerprint == lake.config.fingerprint():
        return
    changed = [f"{k}: {old.get(k)!r} → {new.get(k)!r}" for k in new if old.get(k) != new.get(k)]
    raise ConfigError(
        "the rule has changed since the sessions table was made, and its rows follow the old one: "
        + "; ".join(changed),
        remedy=f"set the old rule again, or {ANEW.removeprefix('to ')}",
    )


def _check_corrections(outcome: Outcome, increment: Increment) -> None:
    if rows := outcome.tally.rejected.get(CORRECTION):
        raise SourceError(
            f"the source's versions {increment.first} to {increment.last} update or delete rows, and this release "
            "reads added rows only (corrections: fail)",
            value=f"{rows} change rows",
            remedy=ANEW,
        )


def _reject(lake: Lake, rows: DataFrame, manifest: Manifest) -> None:
    with suppress(Superseded):  # another process has repaired this run meanwhile: the same rows are there
        lake.rejected_events.append(rows, manifest, _fence(lake, "rejected_events"))


def _enter(lake: Lake, manifest: Manifest, timing: Timing) -> None:
    with suppress(Superseded):  # as above
        lake.runs.append(manifest, timing, _fence(lake, "runs"))


def _fence(lake: Lake, role: str) -> str:
    return f"{lake.sessions.table.id}:{role}"


def _has(lake: Lake, role: str, manifest: Manifest) -> bool:
    table = lake.runs.table if role == "runs" else lake.rejected_events.table
    return table.has_fence(Commit(_fence(lake, role), manifest.run_seq))


def _nothing_new(done: Manifest | None) -> Increment:
    last = -1 if done is None or done.source_to_version is None else done.source_to_version
    return Increment(last + 1, last)


def _stands(before: Clock, after: Clock) -> bool:
    return (before.watermark, before.flush_mark) == (after.watermark, after.flush_mark)


def _reading(increment: Increment) -> str:
    if increment.is_empty:
        return "reading no new events"
    if increment.first is None:
        return f"reading all events as of source version {increment.last}"
    return f"reading source versions {increment.first} to {increment.last}"


def _int(value: int | None) -> int:
    return -1 if value is None else value


def _now() -> int:
    return time.time_ns() // 1000


class Phases:
    """Seconds by phase of one run."""

    def __init__(self) -> None:
        self.started = _now()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time what happens inside."""
        begun = time.monotonic()
        yield
        self.seconds[phase] = round(time.monotonic() - begun, 3)

    def timing(self, commit: Entry | None = None) -> Timing:
        """What was timed so far, and what the commit has written."""
        seconds = {**self.seconds, "total": round((_now() - self.started) / 1e6, 3)}
        if commit is None:
            return Timing(_now(), seconds)
        return Timing(_now(), seconds, commit.metric(FILES_WRITTEN), commit.metric(BYTES_WRITTEN))
