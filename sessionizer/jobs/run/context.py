"""What a run is a function of: the same inputs give the same result, always."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.run.compute import Checkpoints, held_if_few, read_once_if_few
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.pipeline import NO_OVERRIDE, RunResult, compute_run
from sessionizer.jobs.run.retelling import may_be_late, of_sources, still_waiting, told_anew, told_otherwise
from sessionizer.jobs.run.scopes import as_keyed_now, clock_of, has_scopes_of, keys_from_json, scoped
from sessionizer.lib import columns as C
from sessionizer.lib.accepted import Again
from sessionizer.lib.admission.accepted import Past, kept_in
from sessionizer.lib.admission.admission import Admission
from sessionizer.lib.admission.corrections import housekept
from sessionizer.lib.admission.freed import Readmission, asked_for, still_in
from sessionizer.lib.admission.rejects import beyond, is_timeless, marked, with_whole_ones
from sessionizer.lib.admission.verdicts import BEFORE_START, CORRECTION, IGNORED_DELETE, IN, OUT
from sessionizer.lib.aggregates.evolution import Evolution
from sessionizer.lib.expressions import with_keys
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.time.watermarks import WatermarkOverride, WatermarkState, clocks_of_keys
from sessionizer.lib.windows.windows import Stored
from sessionizer.tables.increments import Increments, as_read
from sessionizer.tables.manifest import OF_STATES, Manifest, Mode
from sessionizer.tables.position import Position
from sessionizer.tables.rejected_events import TIMED
from sessionizer.tables.source import keeps_time, read_as


@dataclass(frozen=True)
class RunContext:
    """Versions of tables, watermarks, a rule, what was asked for.

    began: of each source the first version that any run has read; None: from the start. schema: what the table's
    columns follow from. columns: those of each source, as JSON.
    """

    kind: Kind
    position: Position
    increment: Increments
    clock: WatermarkState
    rule: Rule
    override: WatermarkOverride = NO_OVERRIDE
    began: Mapping[str, int | None] = field(default_factory=dict)
    schema: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = "run"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def next(
        cls, kind: Kind, position: Position, increment: Increments, now: int, override: WatermarkOverride
    ) -> "RunContext":
        """Of the run that comes next; raises if the source no longer fits the table."""
        done, events = position.manifest, kind.tables.events.read(increment)
        known = kind.tables.events.begun(done)
        began = {n: known[n].began if n in known else one.first for n, one in increment.of.items()}
        clock = clock_of(done, kind, events, now, position.version + 1).awaiting(increment.more)
        schema, columns = kind.fitting(done, events), kind.tables.events.columns_told(increment)
        rule = kind.rule if kind.tables.events.deletion(increment) is None else kind.rule.of_deletes()
        return cls(kind, position, increment, clock, rule, override, began, schema, columns)

    @classmethod
    def again(cls, kind: Kind, manifest: Manifest) -> "RunContext":
        """Of a run that has committed already."""
        events, known = kind.tables.events, manifest.consumed
        read = Increments({name: as_read(of) for name, of in known.items()})
        increment = read if manifest.mode == "run" else events.nothing_new(manifest)
        rule, before = manifest.as_judged(kind.rule), kind.before(manifest)
        clock = WatermarkState(
            manifest.now,
            manifest.watermark_before,
            manifest.flush_mark_before,
            run_seq=manifest.run_seq,
            forgotten=manifest.forgotten,
            sources=manifest.times_of_sources("before"),
            ends_no_key=manifest.left_unread,
        )
        clock = scoped(clock, manifest.scopes_before, rule, events.read(increment))
        arguments, position = manifest.arguments, before.called({name: of.id for name, of in known.items()})
        override = WatermarkOverride(arguments.get("advance_to"), bool(arguments.get("flush")))
        began, columns = ({name: getattr(of, told) for name, of in known.items()} for told in ("began", "columns"))
        schema, mode = manifest.source_schema, manifest.mode
        return cls(kind, position, increment, clock, rule, override, began, schema, columns, mode, arguments)

    @classmethod
    def anew(cls, kind: Kind, position: Position, now: int) -> "RunContext":
        """Of a rebuild: the whole source as it stands. Other tables than those read before set the clock anew."""
        events, position = kind.tables.events, position.called(kind.tables.events.ids)
        done, number = kind.begun(position.manifest).by_units(kind.rule.time_unit), position.version + 1
        increment, clock = events.as_rebuilt(done), WatermarkState(now, run_seq=number, forgotten=done.forgotten)
        kind.check_names(rows := events.read(increment))
        schema, columns = kind.schema_hash(rows), events.columns_told(increment)
        if keeps_time(done, increment.lasts, events.ids):
            clock = clock_of(done, kind, events.as_of(increment, None), now, number)
        began = {name: done.consumed[old].began for name, old in read_as(done, events.ids).items()}
        return cls(kind, position, increment, clock, kind.rule, NO_OVERRIDE, began, schema, columns, "rebuild")

    @classmethod
    def look_back(
        cls, kind: Kind, position: Position, now: int, mode: Mode, arguments: Mapping[str, Any]
    ) -> "RunContext":
        """Of a job that reads no new events: backfill, readmit, verify."""
        done, known = kind.consumed(position.manifest), kind.tables.events.consumed(position.manifest)
        kind.tables.events.check_same(done)
        increment = kind.tables.events.nothing_new(done)
        events = kind.tables.events.as_of(increment, None)
        clock = clock_of(done, kind, events, now, position.version + 1)
        began, columns = ({name: getattr(of, told) for name, of in known.items()} for told in ("began", "columns"))
        schema, rule = kind.fitting(done, events), done.as_judged(kind.rule, OF_STATES)  # the untouched stays by these
        return cls(kind, position, increment, clock, rule, NO_OVERRIDE, began, schema, columns, mode, arguments)

    def result(self, *, at_once: bool = False) -> RunResult:
        """What comes of it; at_once: the write may compute the rows of a table that has none."""
        stored, clock = self.stored(), self._clock_of_keys()
        windows = self.kind.make(self.rule, self.sample(), clock.now)
        again = Again(*self._span(), self._keys()) if self.mode == "backfill" else None
        admission = self._admission(clock)
        return compute_run(admission, windows, stored, clock, override=self.override, again=again, at_once=at_once)

    @property
    def evolved(self) -> Evolution:
        """Which aggregates the run takes up, and which it drops."""
        return Evolution() if self.mode == "rebuild" else self.kind.evolved(self.position.manifest)

    def _admission(self, clock: WatermarkState) -> Admission:
        if self.mode == "rebuild":
            by, all_of_it = WatermarkState(clock.now, run_seq=clock.run_seq), self.kind.tables.events.size()[1]
            return Admission(self._everything(), self.rule, by, None, Checkpoints(all_of_it), is_first=True)
        done, read, compute = self.position.manifest, self.increment, Checkpoints(self.increment.bytes)
        is_first = read.is_whole and not (done is not None and done.has_consumed)
        past, asked = None if is_first else self.past, None if self.mode == "run" else self._asked()
        begins = bool(self.kind.tables.events.beginning(done, self.began))
        return Admission(self._events(), self.rule, clock, past, compute, asked, is_first, read.only_adds, begins)

    def _events(self) -> DataFrame:
        """The increment; where it begins a source, with what lies before its start."""
        events = self.kind.tables.events
        rows = events.read(self.increment)
        if self.rule.deletes == "ignore" and C.CHANGE_TYPE in rows.columns:
            rows = housekept(rows, self.rule, events.deletion(self.increment))
        if not (begun := events.beginning(self.position.manifest, self.began)):
            return rows
        older = events.before(begun, self.increment).withColumn(C.CHANGE_TYPE, F.lit(BEFORE_START))
        return rows.unionByName(older, allowMissingColumns=True)

    def _everything(self) -> DataFrame:
        """All rows of the source, with what rejected_events knows better, whatever is computed again.

        Those from before the start, those that updates in quarantine would have made, and late ones among what has been
        forgotten are marked; what deletes and updates in quarantine have taken away is there.
        """
        rows = self.kind.tables.events.as_of(self.increment, None)
        if not (lasting := self.lasting()) or (rejects := self._waiting) is None:
            return rows
        late = TIMED, self.clock.forgotten
        return marked(rows, self._kept_in(rows), rejects, reduce(or_, lasting), self.rule, late=late)

    def lasting(self) -> list[Column]:
        """Which rows of rejected_events a rebuild goes by, any of these."""
        reason, found = C.col(C.REASON), []
        if began := [name for name, first in self.began.items() if first]:
            found.append((reason == BEFORE_START) & (C.col(C.SOURCE).isin(began) if self.rule.sources else F.lit(True)))
        if self.rule.corrections == "quarantine":
            found += [reason == CORRECTION, is_timeless()]
        found += [reason == IGNORED_DELETE] if self._has_ignored else []
        return found + may_be_late(self)

    def _kept_in(self, rows: DataFrame) -> DataFrame | None:
        """What has left the source and stays in its session, with the columns of these rows of the source."""
        if (rejects := self._staying()) is None:
            return None
        kept = rejects.select(C.col(C.EVENT).alias(C.JSON))
        return kept_in(kept, rows, self.rule).select(*C.cols(tuple(rows.columns)))

    def staying(self) -> DataFrame | None:
        """The rejected events that outlast a rebuild, by the present rule: those that stay in their sessions."""
        return None if (rejects := self._staying()) is None else still_in(rejects, self.sample(), self.rule)

    def _staying(self) -> DataFrame | None:
        """The rows of rejected_events whose events are gone from the source and stay in their session by this rule."""
        keeps = self.rejects() is not None and (self.rule.corrections == "quarantine" or self._has_ignored)
        if not keeps or (rejects := self._waiting) is None:
            return None
        lasts = F.lit(self.rule.corrections == "quarantine") | (C.col(C.REASON) == IGNORED_DELETE)
        stays, done, last = rejects.where((C.col(C.KEPT) == IN) & lasts), self.position.manifest, self.increment.lasts
        events = self.kind.tables.events
        if done is None or (same := events.going_on(done, last)) == events.each.keys():
            return stays
        mine, out = C.col(C.SOURCE).isin(*same) if same else F.lit(False), C.col(C.KEPT) == OUT
        told = stays.unionByName(rejects.where(out & reduce(or_, self.lasting()))).where(~mine)
        return stays.where(mine).unionByName(beyond(told, events.as_of(self.increment, None)).where(~out))

    @cached_property
    def _has_ignored(self) -> bool:
        """Whether deletes have been ignored that nobody has made since: whatever the rule is now, they stay so."""
        return self.has_rejected(IGNORED_DELETE)

    def sample(self) -> DataFrame:
        """No rows of the source, with its columns."""
        return self.kind.tables.events.as_of(self.increment, None).limit(0)

    def stored(self) -> Stored:
        """The rows of the table as they were; a rebuild begins with none."""
        return Stored() if self.mode == "rebuild" else self._table()

    def _table(self) -> Stored:
        done, home, version = self.position.manifest, self.kind.home, self.position.version
        if done is None:
            return Stored()
        live = None if done.live_sessions == 0 else home.live(version)
        return Stored(live, home.final(version), lacks_state=live is not None and bool(self.evolved.added))

    @cached_property
    def past(self) -> Past:
        """What admission may look up."""
        events = self.kind.tables.events
        return Past(read_once_if_few(partial(events.as_of, self.increment), events), self.rejects)

    def _span(self) -> tuple[int, int]:
        """Of a look back: from its first microsecond to the one after its last."""
        return int(self.arguments["low"]), int(self.arguments["high"])

    def _asked(self) -> Readmission:
        low, high = self._span()
        until = low if self.arguments.get("columns") else high  # which are filled by the events that count anyway
        deletes, takes_in = bool(self.arguments.get("deletes")), self.mode == "readmit"
        return Readmission(low, until, self._keys(), takes_in and not deletes, self.clock.forgotten, deletes)

    def _keys(self) -> DataFrame | None:
        lines = self.arguments.get("keys")
        return None if lines is None else keys_from_json(lines, self.rule, self.kind.tables.events.as_they_stand())

    def _clock_of_keys(self) -> WatermarkState:
        """With the watermarks that lie on the rows of each key, where the rule has them there."""
        has_clocks = self.rule.watermark_per == "key" and has_scopes_of(self.position.manifest, self.kind)
        if not has_clocks or (table := self._table()).is_empty:
            return self.clock
        events = with_keys(self._events(), self.rule.made) if self.mode == "run" else self._keys_touched()
        if (live_and_final := as_keyed_now((table.live, table.final), events, self.rule)) is None:
            return self.clock
        return replace(self.clock, scopes=clocks_of_keys(*live_and_final, events, self.rule))

    def _keys_touched(self) -> DataFrame:
        if self.mode == "rebuild":
            back = self._kept_in(rows := self.kind.tables.events.as_of(self.increment, None))
            return with_keys(rows if back is None else rows.unionByName(back), self.rule.made)
        (low, high), rejects = self._span(), self.rejects()
        rows = self.kind.home.table.read(self.position.version)
        near = rows.where((C.col(C.SESSION_START) < timestamp(high)) & (C.col(C.SESSION_END) >= timestamp(low)))
        found = [near, with_keys(self.past.events([(low, high - 1)]), self.rule.made)]  # of a deleted row these alone
        if rejects is not None:
            inside = (C.col(C.EVENT_TIME) >= timestamp(low)) & (C.col(C.EVENT_TIME) < timestamp(high))
            found += [rejects.where(inside), asked_for(rejects, self._asked(), self.rule, Checkpoints())]
        return reduce(DataFrame.unionByName, [rows.select(*C.cols(self.rule.key)) for rows in found])

    def rejects(self) -> DataFrame | None:
        """Rows of rejected_events before this run, told by the columns that the source has in it."""
        return self._retold if self.tells_anew else self._told

    def has_rejected(self, reason: str) -> bool:
        """Whether rejected_events has rows of this reason, by whatever columns they are told."""
        return self._told is not None and not self._told.where(C.col(C.REASON) == reason).isEmpty()

    @cached_property
    def tells_anew(self) -> bool:
        """Whether the rejected rows are told by columns that a source has no longer, or not so."""
        done, asks = self.position.manifest, self.mode in ("run", "rebuild")
        is_otherwise = asks and done is not None and bool(told_otherwise(done, self._columns_of(done)))
        return is_otherwise and self._told is not None

    @cached_property
    def _waiting(self) -> DataFrame | None:
        return still_waiting(self)

    @cached_property
    def _told(self) -> DataFrame | None:
        rejects = self.kind.rejects_before(self.clock.run_seq, self.position)
        return held_if_few(of_sources(rejects, self.rule), self.kind.rejected_events.table)

    @cached_property
    def _retold(self) -> DataFrame | None:
        done, rejects, is_anew = self.position.manifest, self._told, self.mode == "rebuild"
        if rejects is None or done is None or not done.has_consumed:
            return rejects
        rule = None if is_anew else self.rule  # of others than those that last nothing is asked then
        told = with_whole_ones(rejects, reduce(or_, self.lasting(), F.lit(False))) if is_anew else rejects
        return told_anew(told, done, self._columns_of(done), self.kind.tables.events, rule)

    def _columns_of(self, done: Manifest) -> dict[str, str]:
        """The columns of those sources which are the tables that runs have read."""
        return {name: self.columns[name] for name in self.kind.tables.events.going_on(done, self.increment.lasts)}
