"""One increment: what it is a function of, and what comes out. The same inputs give the same outcome, always."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import __version__, bags
from lib import columns as C
from lib.admission.events import schema_hash, validate, with_hash
from lib.admission.past import Past, Spans
from lib.errors import ConfigError, UsageError
from lib.rule import Rule
from lib.time.watermarks import Clock, Push, keys_from_json, scopes_as_json, scopes_from_json
from lib.windows.sessions.backfill import Span, backfill
from lib.windows.sessions.pipeline import Outcome, session_schema, sessionize
from tables.events import Increment
from tables.lake import Lake
from tables.manifest import Manifest, Mode, policy
from tables.position import Position

MOST_SCOPES = 1000
SELDOM = ("duplicates", "amended", "corrected", "withdrawn", "readmitted")  # counts that most runs do not have


FUTURE = 10**17  # µs: further ahead than any clock


@dataclass(frozen=True)
class Inputs:
    """What a run is a function of: versions of tables, a clock, a rule, what was asked for."""

    lake: Lake
    position: Position
    increment: Increment
    clock: Clock
    rule: Rule
    push: Push
    began: int | None
    schema: str
    mode: Mode = "run"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def next(cls, lake: Lake, position: Position, increment: Increment, now: int, push: Push) -> "Inputs":
        """Of the run that comes next; raises if the source no longer fits the sessions table."""
        done, rule = position.manifest, Rule.of(lake.config)
        events = lake.events.read(increment)
        schema = _fitting(lake, done, events, rule)
        clock = Clock(now, run_seq=position.version + 1)
        if done is not None:
            clock = replace(clock, watermark=done.watermark_after, flush_mark=done.flush_mark_after)
            clock = _scoped(clock, done.scopes_after, rule, events)
        began = increment.first if done is None or done.source_to_version is None else done.source_began
        return cls(lake, position, increment, clock, rule, push, began, schema)

    @classmethod
    def again(cls, lake: Lake, manifest: Manifest) -> "Inputs":
        """Of a run that has committed already."""
        last = -1 if manifest.source_to_version is None else manifest.source_to_version
        increment = Increment(manifest.source_from_version, last)
        rule = manifest.as_judged(Rule.of(lake.config))
        if manifest.mode != "run":
            increment = Increment(last + 1, last)
        before = lake.sessions.manifest_at(manifest.sessions_version)
        clock = Clock(manifest.now, manifest.watermark_before, manifest.flush_mark_before, run_seq=manifest.run_seq)
        clock = _scoped(clock, manifest.scopes_before, rule, lake.events.read(increment))
        push = Push(manifest.arguments.get("advance_to"), bool(manifest.arguments.get("flush")))
        position = Position(manifest.sessions_version, before)
        began, schema = manifest.source_began, manifest.source_schema
        mode, arguments = manifest.mode, manifest.arguments
        return cls(lake, position, increment, clock, rule, push, began, schema, mode, arguments)

    @classmethod
    def anew(cls, lake: Lake, position: Position, now: int) -> "Inputs":
        """Of a rebuild: the whole source as it stands. Another source than the one read before sets the clock anew."""
        done, consumed = _consumed(position)
        last, rule = lake.events.table.version, Rule.of(lake.config)
        clock, increment, began = Clock(now, run_seq=position.version + 1), Increment(last + 1, last), None
        schema = schema_hash(lake.events.read(increment), rule)
        if lake.events.table.id == done.source_id and last >= consumed:
            clock = replace(clock, watermark=done.watermark_after, flush_mark=done.flush_mark_after)
            clock = _scoped(clock, done.scopes_after, rule, lake.events.as_of(last, None))
            began = done.source_began
        return cls(lake, position, increment, clock, rule, Push(), began, schema, "rebuild", {})

    @classmethod
    def look_back(cls, lake: Lake, position: Position, now: int, mode: Mode, arguments: Mapping[str, Any]) -> "Inputs":
        """Of a job that reads no new events: backfill, readmit, verify."""
        done, last = _consumed(position)
        lake.events.check_same(done)
        rule = Rule.of(lake.config)
        clock = Clock(now, done.watermark_after, done.flush_mark_after, run_seq=position.version + 1)
        increment, push = Increment(last + 1, last), Push()
        events = lake.events.as_of(last, None)
        schema = _fitting(lake, done, events, rule)
        clock = _scoped(clock, done.scopes_after, rule, events)
        return cls(lake, position, increment, clock, rule, push, done.source_began, schema, mode, arguments)

    def events(self) -> DataFrame:
        """The rows to read."""
        return self.lake.events.read(self.increment)

    def everything(self) -> DataFrame:
        """All rows of the source, but those from before the first version that a run was to read."""
        rows = self.lake.events.as_of(self.increment.last, None)
        if not self.began:
            return rows
        older = self.lake.events.as_of(self.began - 1, None)
        return bags.without(bags.hashed(rows), bags.hashed(older)).drop(bags.HASH)

    def sample(self) -> DataFrame:
        """No rows of the source, with its columns."""
        return self.lake.events.as_of(self.increment.last, None).limit(0)

    def live(self) -> DataFrame | None:
        """The sessions that may still change, None where there are none."""
        done = self.position.manifest
        if done is None or not done.live_sessions:
            return None
        return self.lake.sessions.live(self.position.version)

    def past(self) -> Past:
        """What recomputing sessions may look up."""
        lake, first, last = self.lake, self.increment.first, self.increment.last

        def events(spans: Spans | None, *, before: bool = False) -> DataFrame:
            return lake.events.as_of((-1 if first is None else first - 1) if before else last, spans)

        sessions = lake.sessions.final(self.position.version) if self.position.manifest else None
        return Past(sessions, events, self._kept_out)

    def _kept_out(self) -> DataFrame | None:
        """Rows of the source that are in no session: those rejected, and those from before the first version read."""
        names = (*self.rule.key, C.EVENT_TIME, C.EVENT_HASH, C.REASON)
        rejected = self.lake.rejected_events.before(self.clock.run_seq)
        rejected = None if rejected is None else rejected.select(*C.cols(names))
        if not self.began:
            return rejected
        valid = validate(self.lake.events.as_of(self.began - 1, None), self.rule, self.clock)
        time = F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME)
        older = with_hash(valid).select(*C.cols(self.rule.key), time, C.col(C.EVENT_HASH))
        older = older.withColumn(C.REASON, F.lit(None).cast("string"))
        return older if rejected is None else rejected.unionByName(older)

    def span(self) -> Span:
        """What a backfill recomputes."""
        lines, a = self.arguments.get("keys"), self.arguments
        keys = None if lines is None else keys_from_json(lines, self.rule, self.lake.events.table.read())
        return Span(int(a["low"]), int(a["high"]), keys)

    def manifest(self, outcome: Outcome, started_at: int) -> Manifest:
        """What the commit of this run says of itself."""
        position, increment, before, after, rule = self.position, self.increment, self.clock, outcome.clock, self.rule
        tally, config = outcome.tally, self.lake.config
        live_before = position.manifest.live_sessions if position.manifest and self.mode != "rebuild" else 0
        asked = {"advance_to": self.push.advance_to, "flush": self.push.flush} if self.push != Push() else {}
        return Manifest(
            run_id=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{position.version + 1:06d}-{secrets.token_hex(3)}",
            run_seq=position.version + 1,
            mode=self.mode,
            arguments={**asked, **self.arguments},
            product_version=__version__,
            source_id=self.lake.events.table.id,
            source_from_version=increment.first,
            source_to_version=increment.last if increment.last >= 0 else None,
            source_began=self.began,
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
            scopes_before=_scopes(before, rule),
            scopes_after=_scopes(after, rule),
            policy=policy(rule),
            rule_fingerprint=config.fingerprint(),
            rule=config.rule_summary(),
            source_schema=self.schema,
            events={
                "events_read": tally.read,
                "accepted": tally.accepted,
                "late": tally.late,
                "invalid": tally.invalid,
                **{name: n for name in SELDOM if (n := getattr(tally, name))},
            },
            rejected=tally.rejected,
            sessions=outcome.counts,
            live_sessions=live_before + outcome.counts["live_change"],
        )


def compute(lake: Lake, inputs: Inputs) -> Outcome:
    """The outcome of a run."""
    match inputs.mode:
        case "backfill" | "readmit":
            version = inputs.position.version
            past = replace(inputs.past(), sessions=lake.sessions.table.read(version))
            return backfill(inputs.span(), past, inputs.rule, inputs.clock, inputs.sample())
        case "rebuild":
            return sessionize(inputs.everything(), None, inputs.rule, inputs.clock, anew=True)
    return sessionize(inputs.events(), inputs.live(), inputs.rule, inputs.clock, push=inputs.push, past=inputs.past())


def _consumed(position: Position) -> tuple[Manifest, int]:
    """The manifest in force, and the source version that has been consumed."""
    done = position.manifest
    if done is None or done.source_to_version is None:
        raise UsageError("nothing has been consumed yet", remedy="`sessionizer run` comes first")
    return done, done.source_to_version


def _fitting(lake: Lake, done: Manifest | None, events: DataFrame, rule: Rule) -> str:
    """The hash of the rule and these columns; raises if the sessions table has not the columns that they make."""
    schema = schema_hash(events, rule)
    if not lake.sessions.fits(schema, done):
        lake.sessions.check_schema(session_schema(events, rule))
    return schema


def _scoped(clock: Clock, scopes: tuple[str, ...] | None, rule: Rule, events: DataFrame) -> Clock:
    return replace(clock, scopes=scopes_from_json(scopes, rule, events)) if scopes else clock


def _scopes(clock: Clock, rule: Rule) -> tuple[str, ...] | None:
    if clock.scopes is None or rule.watermark_per == "key":
        return None
    lines = scopes_as_json(clock.scopes)
    if len(lines) > MOST_SCOPES:
        raise ConfigError(
            f"time.watermark.per must name columns with at most {MOST_SCOPES:,} different values",
            value=f"{', '.join(rule.scope)}: {len(lines):,} values",
            remedy="set per: table, or per: key, whose watermarks lie on the sessions themselves",
        )
    return lines
