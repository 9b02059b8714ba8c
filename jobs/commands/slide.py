"""The sliding-windows job: read the next increment, recompute the windows it concerns, commit."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.run.sessionize import Phases, RunOptions, Say, with_retries
from lib import __version__
from lib import columns as C
from lib.admission.events import CORRECTION, INVALID, LATE, schema_hash
from lib.computed import outlasting
from lib.config import Config
from lib.errors import ConfigError, RunFailed, SourceError
from lib.time.watermarks import Clock, Push, scopes_as_json, scopes_from_json
from lib.windows.sliding.news import News, events_span, starts_span, take_in
from lib.windows.sliding.rule import SlidingRule
from lib.windows.sliding.slide import Known, SlideOutcome, slide, window_schema
from tables.delta import Commit, Superseded
from tables.events import Increment
from tables.lake import Lake
from tables.manifest import Manifest, policy
from tables.position import Position
from tables.windows import Windows

ANEW = "remove the windows table and its rejected events, then `sessionizer init` and `sessionizer slide`"
MOST_SCOPES = 1000


@dataclass(frozen=True)
class SlideReport:
    """One increment, done or (dry run) only computed."""

    manifest: Manifest
    seconds: dict[str, float]
    dry_run: bool = False
    changes: DataFrame | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Inputs:
    """What a run is a function of: versions of tables, a clock, a rule."""

    lake: Lake
    position: Position
    increment: Increment
    clock: Clock
    rule: SlidingRule
    push: Push
    schema: str

    def news(self) -> News:
        """The increment, judged."""
        return take_in(self.lake.events.read(self.increment), self.rule, self.clock)

    def known(self, news: News) -> Known:
        """What the tables hold around it."""
        lake, done, first = self.lake, self.position.manifest, self.increment.first
        span = events_span(news, self.rule)
        events = rejected = windows = None
        if span is not None and first:
            events = lake.events.as_of(first - 1, [span])
        kept = lake.windows.rejected_events.table
        if span is not None and kept.size()[0]:
            time = F.unix_micros(C.col(C.EVENT_TIME))
            before = kept.read().where(C.col(C.RUN_SEQ) < self.clock.run_seq)
            rejected = before.where(time.isNull() | time.between(*span))
        if done is not None:
            starts = starts_span(news, self.rule) if news.recomputes_final else None
            windows = lake.windows.around(self.position.version, starts)
        return Known(events, rejected, windows)

    def outcome(self) -> SlideOutcome:
        """What comes of it: the same inputs give the same outcome, always."""
        news = self.news()
        return slide(news, self.known(news), self.rule, self.clock, self.push)


def make_tables(lake: Lake, events: DataFrame, say: Say) -> None:
    """Make the windows table and that of its rejected events where they are missing."""
    rule = SlidingRule.of(lake.config)
    schema = window_schema(events, rule)
    if lake.windows.table.exists():
        lake.windows.check_schema(schema)
    else:
        lake.windows.create(schema, schema_hash(events, rule))
        say(f"made {lake.windows.table.location}")
    if not lake.windows.rejected_events.table.exists():
        lake.windows.rejected_events.create_if_missing(events.schema)
        say(f"made {lake.windows.rejected_events.table.location}")


def slide_windows(
    spark: SparkSession, config: Config, options: RunOptions, say: Say = lambda _: None
) -> list[SlideReport]:
    """Increments until caught up, or one. No report: nothing was new. A run that was overtaken starts over.

    Errors: SourceError, TableError, ConfigError as named; RunFailed after too many races in a row.
    """
    lake = Lake(spark, config)
    rule = SlidingRule.of(config)
    lake.events.require()
    for table in (lake.windows.table, lake.windows.rejected_events.table):
        table.require("`sessionizer init` makes it")
    reports: list[SlideReport] = []
    while (report := with_retries(partial(_increment, lake, rule, options, say), say, "windows")) is not None:
        reports.append(report)
        if options.once or options.dry_run:
            break
        options = replace(options, push=Push())  # what was asked of the clock is done once
    return reports


def repair(lake: Lake, position: Position, say: Say = lambda _: None) -> bool:
    """Write the rejected events that a run cut off after its commit has left out; False if nothing is missing."""
    manifest = position.manifest
    if position.restored:
        undone = f"run_seq > {manifest.run_seq if manifest else 0}"
        lake.windows.rejected_events.table.delete(undone)
    if manifest is None or not _owes(manifest) or _has_rejected(lake.windows, manifest):
        return position.restored
    say(f"finishing run {manifest.run_id}, which was cut off after its commit")
    rule = _rule_of(lake, manifest)
    last = -1 if manifest.source_to_version is None else manifest.source_to_version
    increment = Increment(manifest.source_from_version, last)
    events = lake.events.read(increment)
    clock = Clock(manifest.now, manifest.watermark_before, manifest.flush_mark_before, run_seq=manifest.run_seq)
    before = Position(manifest.sessions_version, None)
    clock = _with_scopes(clock, manifest.scopes_before, rule, events)
    with lake.events.reading(increment):
        inputs = Inputs(lake, before, increment, clock, rule, Push(), manifest.source_schema)
        _write_rejected(lake.windows, inputs.outcome(), manifest)
    return True


def _increment(lake: Lake, rule: SlidingRule, options: RunOptions, say: Say) -> SlideReport | None:
    phases = Phases()
    with phases("plan"):
        position = lake.windows.position()
        done = position.manifest
        if done is not None:
            _check_rule(rule, done)
        if not options.dry_run:
            repair(lake, position, say)
        increment = lake.events.plan(done, options.to_version)
        if increment is None:
            if options.push == Push():
                return None
            last = -1 if done is None or done.source_to_version is None else done.source_to_version
            increment = Increment(last + 1, last)
    now = options.now if options.now is not None else phases.started
    first = "all events as of version" if increment.first is None else f"source versions {increment.first} to"
    say("reading no new events" if increment.is_empty else f"reading {first} {increment.last}")
    with phases("slide"), lake.events.reading(increment):
        before = Inputs(lake, position, increment, Clock(now, run_seq=position.version + 1), rule, options.push, "")
        inputs = _as_it_stands(before)
        outcome = inputs.outcome()
    _check_policies(outcome, inputs)
    if done is not None and increment.is_empty and not outcome.counts["rows"] and not _moved(inputs, outcome):
        return None
    manifest = _manifest(inputs, outcome, phases.started)
    if options.dry_run:
        return SlideReport(manifest, phases.seconds, dry_run=True, changes=outlasting(outcome.changes))
    say(f"writing {outcome.counts['rows']:,} changed windows")
    with phases("commit"):
        final_too = outcome.counts["reopened"] > 0
        lake.windows.commit_windows(outcome.changes, manifest, outcome.starts, final_too=final_too)
    with phases("rejected_events"):
        if _owes(manifest):
            _write_rejected(lake.windows, outcome, manifest)
    return SlideReport(manifest, phases.seconds)


def _as_it_stands(inputs: Inputs) -> Inputs:
    """With the clock of the last run; raises if the source no longer fits the windows table."""
    lake, done, clock, rule = inputs.lake, inputs.position.manifest, inputs.clock, inputs.rule
    events = lake.events.read(inputs.increment)
    schema = schema_hash(events, rule)
    if not lake.windows.fits(schema, done):
        lake.windows.check_schema(window_schema(events, rule))
    if done is not None:
        clock = replace(clock, watermark=done.watermark_after, flush_mark=done.flush_mark_after)
        clock = _with_scopes(clock, done.scopes_after, rule, events)
    return replace(inputs, clock=clock, schema=schema)


def _with_scopes(clock: Clock, lines: tuple[str, ...] | None, rule: SlidingRule, events: DataFrame) -> Clock:
    if lines is None or not rule.events.scope:
        return clock
    return replace(clock, scopes=scopes_from_json(tuple(lines), rule.events, events))


def _manifest(inputs: Inputs, outcome: SlideOutcome, started_at: int) -> Manifest:
    position, increment, before, after, rule = (
        *(inputs.position, inputs.increment, inputs.clock, outcome.clock),
        inputs.rule,
    )
    live_before = position.manifest.live_sessions if position.manifest else 0
    return Manifest(
        run_id=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{position.version + 1:06d}-{secrets.token_hex(3)}",
        run_seq=position.version + 1,
        mode="slide",
        arguments={"advance_to": inputs.push.advance_to, "flush": inputs.push.flush} if inputs.push != Push() else {},
        product_version=__version__,
        source_id=inputs.lake.events.table.id,
        source_from_version=increment.first,
        source_to_version=increment.last if increment.last >= 0 else None,
        source_files=increment.files,
        source_bytes=increment.bytes,
        sessions_version=position.version,
        now=before.now,
        started_at=started_at,
        watermark_before=before.watermark,
        watermark_after=after.watermark,
        horizon_before=before.horizon(rule.events),
        horizon_after=after.horizon(rule.events),
        flush_mark_before=before.flush_mark,
        # The horizon never goes back, not even if the grace grows: what is final stays so.
        flush_mark_after=after.horizon(rule.events),
        scopes_before=None if before.scopes is None else scopes_as_json(before.scopes),
        scopes_after=_scopes_after(after, rule),
        policy={**policy(rule.events), "sliding_lateness": rule.lateness},
        rule_fingerprint=rule.fingerprint(),
        rule=rule.summary(),
        source_schema=inputs.schema,
        events=outcome.events,
        rejected=outcome.reasons,
        sessions=outcome.counts,
        live_sessions=live_before + outcome.counts["live_change"],
    )


def _scopes_after(clock: Clock, rule: SlidingRule) -> tuple[str, ...] | None:
    if clock.scopes is None:
        return None
    mark = F.greatest(C.col(C.SCOPE_WATERMARK) - rule.events.allowed_lateness, C.col(C.SCOPE_FLUSH_MARK))
    lines = scopes_as_json(clock.scopes.withColumn(C.SCOPE_FLUSH_MARK, mark))
    if len(lines) > MOST_SCOPES:
        raise ConfigError(
            f"time.watermark.per must make at most {MOST_SCOPES:,} scopes",
            value=len(lines),
            remedy="name a column with fewer values, or write per: table",
        )
    return lines


def _rule_of(lake: Lake, manifest: Manifest) -> SlidingRule:
    """The rule with the policy of this run, which may have been changed since."""
    rule = SlidingRule.of(lake.config)
    return replace(rule, events=manifest.as_judged(rule.events), lateness=manifest.policy["sliding_lateness"])


def _moved(inputs: Inputs, outcome: SlideOutcome) -> bool:
    before, after = inputs.clock, outcome.clock
    if before.scopes is not None and after.scopes is not None:
        return scopes_as_json(before.scopes) != scopes_as_json(after.scopes)
    return before.watermark != after.watermark or before.horizon(inputs.rule.events) != after.horizon(
        inputs.rule.events
    )


def _check_rule(rule: SlidingRule, done: Manifest) -> None:
    if done.rule_fingerprint == rule.fingerprint():
        return
    old, new = done.rule, rule.summary()
    changed = [f"{k}: {old.get(k)!r} → {new.get(k)!r}" for k in new if old.get(k) != new.get(k)]
    raise ConfigError(
        "the rule has changed since the windows table was made, and its rows follow the old one: " + "; ".join(changed),
        remedy=f"set the old rule again, or {ANEW}",
    )


def _check_policies(outcome: SlideOutcome, inputs: Inputs) -> None:
    """Raise where the rule says that a run must not go on with such events; nothing is written."""
    events, rejects = inputs.rule.events, outcome.reasons
    if rows := rejects.get(CORRECTION):
        raise SourceError(
            f"the source's versions {inputs.increment.first} to {inputs.increment.last} update or delete rows, and "
            "corrections is fail",
            value=f"{rows} change rows",
            remedy="set corrections: apply, which recomputes the windows they touch",
        )
    for policy_name, reasons, remedy in (
        ("late_events", (LATE,), "set a longer sliding.grace, or late_events: quarantine or amend"),
        ("invalid_events", INVALID, "mend the source, or set invalid_events: quarantine"),
    ):
        if getattr(events, policy_name) == "fail" and (number := sum(rejects.get(r, 0) for r in reasons)):
            found = outcome.rejected().where(C.col(C.REASON).isin(*reasons)).orderBy(C.EVENT_TIME, C.EVENT_HASH)
            first = "; ".join(f"{row[C.REASON]}: {row[C.EVENT]}" for row in found.limit(10).collect())
            raise RunFailed(
                f"{number:,} events are {policy_name.removesuffix('_events')}, and {policy_name} is fail; the first: "
                + first,
                remedy=f"{remedy}; nothing was written",
            )


def _owes(manifest: Manifest) -> bool:
    return bool(manifest.rejected) or bool(manifest.events.get("withdrawn"))


def _fence(windows: Windows) -> str:
    return f"{windows.table.id}:rejected_events"


def _has_rejected(windows: Windows, manifest: Manifest) -> bool:
    return windows.rejected_events.table.has_fence(Commit(_fence(windows), manifest.run_seq))


def _write_rejected(windows: Windows, outcome: SlideOutcome, manifest: Manifest) -> None:
    rejected = outcome.rejected() if manifest.rejected else None
    gone = outcome.readmitted() if outcome.readmitted is not None else None
    with suppress(Superseded):  # another process has repaired this run meanwhile: the same rows are there
        windows.rejected_events.write(rejected, gone, manifest, _fence(windows))
