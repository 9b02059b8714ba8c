"""Backfill, readmit, rebuild: sessions, or windows, made again from events that have been consumed before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import takewhile
from operator import or_
from typing import Any

from pyspark.sql import functions as F

from sessionizer.jobs.commands.chunks import Chunk, chunks
from sessionizer.jobs.commands.rebuild_plan import repair_if_possible
from sessionizer.jobs.console import iso
from sessionizer.jobs.run.compute import Checkpoints, outlasting
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.driver import commit, lasting, may_write_at_once, repair, settled
from sessionizer.jobs.run.kinds import Kind, Ruled
from sessionizer.jobs.run.manifests import manifest_of
from sessionizer.jobs.run.phases import Phases, RunReport, Say, wall_clock
from sessionizer.jobs.run.pipeline import RunResult
from sessionizer.jobs.run.policies import check_expectations, check_filter, check_fits, check_policies
from sessionizer.jobs.run.retries import with_retries
from sessionizer.jobs.run.scopes import keys_from_json
from sessionizer.jobs.run.side_tables import check_told
from sessionizer.lib import columns as C
from sessionizer.lib.admission.freed import Readmission, asked_for, is_inside
from sessionizer.lib.admission.verdicts import IN_THE_FUTURE, LATE
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.errors import UsageError
from sessionizer.tables.manifest import Manifest, Mode
from sessionizer.tables.position import Log, changed_by_others, in_force

AS_IT_WAS = ("rule_fingerprint", "columns", "filled")  # of a manifest, for a backfill to go on


@dataclass(frozen=True)
class LookBack:
    """What to recompute: rows that touch [low, high) (microseconds), of these keys (JSON objects; none: all).

    chunk: how much time is committed at once (None: whole days, as many as few rows lie in). deletes: of `readmit`, to
    make the deletes that were ignored, and nothing else. columns: of `backfill`, aggregates to be filled, by the events
    that count anyway: late ones are not taken in. began: the version of the table that a backfill came upon when it was
    begun.
    """

    low: int
    high: int
    keys: tuple[str, ...] | None = None
    chunk: int | None = None
    dry_run: bool = False
    now: int | None = None
    deletes: bool = False
    columns: tuple[str, ...] = ()
    began: int | None = None

    def arguments(self, low: int, high: int) -> dict[str, Any]:
        """What the manifest of one chunk keeps."""
        keys = {} if self.keys is None else {"keys": list(self.keys)}
        deletes = {"deletes": True} if self.deletes else {}
        columns = {"columns": list(self.columns)} if self.columns else {}
        began = {} if self.began is None else {"began": self.began}
        return {"low": low, "high": high, "from": self.low, "to": self.high, **keys, **deletes, **columns, **began}


def backfill(
    kind: Kind,
    asked: LookBack,
    say: Say = lambda _: None,
    on_chunk: Callable[[RunReport, int, int], None] = lambda *_: None,
) -> list[RunReport]:
    """Recompute every session, or window, that touches the span, as of the consumed source version; chunk by chunk.

    Watermark and position stay as they are. A backfill that was cut off goes on behind its last chunk when it is
    asked for again, unless events have been left out since. `on_chunk` hears of each chunk: its report, its number
    from 1 on, how many there are.
    """
    if asked.low >= asked.high:
        raise UsageError("--from must be earlier than --to")
    kind.require()
    asked = left(kind, kind.home.position().manifest, asked)
    spans, began = _chunks(kind, asked, say)
    asked = replace(asked, began=began)
    reports = []
    for number, (low, high) in enumerate(spans, 1):
        say(f"recomputing span {number} of {len(spans)}")
        step = partial(_look_back, kind, "backfill", asked.arguments(low, high), asked, say)
        report = with_retries(step, say, kind.name)
        reports.append(report)
        on_chunk(report, number, len(spans))
    return reports


def check_aggregates(of: Ruled, names: tuple[str, ...]) -> None:
    """Raise unless these are aggregates of the rule."""
    there = [spec.name for spec in of.rule.aggregates]
    if unknown := [name for name in names if name not in there]:
        raise UsageError(
            "--columns must name aggregates of the config",
            value=", ".join(unknown),
            remedy=f"there are: {', '.join(there) or 'none'}",
        )


def lacking(kind: Kind, columns: tuple[str, ...], low: int | None, high: int | None) -> tuple[int, int] | None:
    """The span to fill these aggregates in: as asked, else that of the final rows that have nothing there.

    None: there are no such rows that touch it. Errors: UsageError for what is no aggregate.
    """
    check_aggregates(kind, columns)
    of = {spec.name: spec.result_columns for spec in kind.rule.aggregates}
    kind.require()
    done = kind.consumed(kind.home.position().manifest)
    check_fits(kind, done)
    nothing = reduce(or_, [C.col(name).isNull() for column in columns for name in of[column]])
    layout, is_session = kind.home.layout, kind.name == "sessions"
    start, end = (F.unix_micros(C.col(n)) for n in (layout.start, C.SESSION_END if is_session else layout.end))
    rows = kind.home.table.read().where(C.col(C.IS_FINAL) & nothing)
    rows = rows.where(~C.col(C.IS_LATE)) if is_session else rows  # those apart a backfill of columns leaves as they are
    rows = rows if done.forgotten is None else rows.where(F.unix_micros(C.col(layout.end)) >= done.forgotten)
    rows = rows if low is None else rows.where(end >= low)
    rows = rows if high is None else rows.where(start < high)
    first, last = rows.agg(F.min(start), F.max(end)).collect()[0]
    if first is None:
        return None
    return (int(first) if low is None else low), (int(last) + 1 if high is None else high)


def readmit(kind: Kind, asked: LookBack, say: Say = lambda _: None) -> list[RunReport]:
    """Take the quarantined late events of a span in after all, and make its corrections; they leave rejected_events.

    Or, where that is asked for, make the deletes that were ignored there.
    """
    kind.require()
    position = kind.home.position() if asked.dry_run else settled(kind, say)
    if position.manifest is not None:
        check_fits(kind, position.manifest)
    if asked.dry_run:
        check_told(kind, position)
    # Corrections of forgotten events, too: they are to wait no longer.
    if (rejects := kind.rejects_before(position.version + 1, position)) is None:
        return []
    forgotten = None if position.manifest is None else position.manifest.forgotten
    keys = None if asked.keys is None else keys_from_json(asked.keys, kind.rule, kind.tables.events.as_they_stand())
    all_in_span = Readmission(asked.low, asked.high, keys, not asked.deletes, forgotten, asked.deletes)
    wanted = asked_for(rejects, all_in_span, kind.rule, Checkpoints())
    time = F.unix_micros(C.col(C.EVENT_TIME))
    inside = wanted.where(is_inside(asked.low, asked.high))
    low, last, rows = inside.agg(F.min(time), F.max(time), F.count(F.lit(1))).collect()[0]
    if not rows:
        return []
    if low is None:  # what has no time lies in any span
        low = last = min(max(asked.low, 0), asked.high - 1)
    high = last + 1
    whole = replace(asked, low=low, high=high, chunk=high - low)
    step = partial(_taken_in, kind, whole.arguments(low, high), whole, say)
    report = with_retries(step, say, kind.name)
    return [] if report is None else [report]


def rebuild(kind: Kind, now: int | None = None, say: Say = lambda _: None) -> RunReport:
    """Make all rows anew from the source as it stands, by the present rule, in one atomic overwrite.

    Nothing is late, and the position is the version read, so that this serves a source, too, that was made again or
    has lost its changes. The table as it was stays reachable by time travel; RESTORE brings it back with its position.
    """
    kind.require()
    asked = LookBack(0, 0, now=now)
    return with_retries(partial(_look_back, kind, "rebuild", {}, asked, say), say, kind.name)


def left(of: Ruled, done: Manifest | None, asked: LookBack) -> LookBack:
    """What is asked for, from where something is left: what has been forgotten stays so.

    Errors: UsageError where nothing is left.
    """
    begin = None if done is None else done.forgotten
    if begin is not None and of.name == "sessions":  # they are forgotten by when they expire
        begin = None if isinstance(of.rule.gap, DynamicGap) else begin - of.rule.gap  # None: one may last ever so long
    found = asked if begin is None or asked.low >= begin else replace(asked, low=begin)
    if found.low >= found.high:
        raise UsageError(
            f"--to must be later than {iso(found.low)}: {of.name} that ended before it have been forgotten",
            value=iso(found.high),
            remedy=f"a RESTORE of {of.name} to before `maintain --keep {of.name}=…` has them, while it is there",
        )
    return found


@dataclass(frozen=True)
class _Computed:
    """What a look back comes to, before anything is written."""

    context: RunContext
    result: RunResult
    phases: Phases

    def written(self, asked: LookBack, say: Say) -> RunReport:
        """It, committed; of a dry run what would be."""
        kind, result, phases = self.context.kind, self.result, self.phases
        manifest = manifest_of(self.context, result, phases.started)
        if asked.dry_run:
            check_expectations(self.context, result, phases)
            return RunReport(manifest, phases.timing(), kind.name, dry_run=True, changes=outlasting(result.changes))
        say(f"writing {result.counts['rows']:,} {kind.name}" if result.counts else f"writing {kind.name}")
        return commit(self.context, result, manifest, phases, say)


def _look_back(kind: Kind, mode: Mode, arguments: Mapping[str, Any], asked: LookBack, say: Say) -> RunReport:
    return _computed(kind, mode, arguments, asked, say).written(asked, say)


def _taken_in(kind: Kind, arguments: Mapping[str, Any], asked: LookBack, say: Say) -> RunReport | None:
    """What `readmit` comes to; None where all that was asked for stays as it is."""
    found = _computed(kind, "readmit", arguments, asked, say)
    events, rows = found.result.events, found.result.counts.get("rows")
    return found.written(asked, say) if rows or events.takes_rejects or events.rejected else None


def _computed(kind: Kind, mode: Mode, arguments: Mapping[str, Any], asked: LookBack, say: Say) -> _Computed:
    phases = Phases()
    with phases("plan"):
        position = kind.home.position()
        if mode == "rebuild":
            position = repair_if_possible(kind, position, say)
        elif not asked.dry_run:
            repair(kind, position, say)
        position = position if asked.dry_run else lasting(kind, position)
        if position.manifest is not None and mode != "rebuild":
            check_fits(kind, position.manifest)
        if asked.dry_run:
            check_told(kind, position)
        now = asked.now if asked.now is not None else wall_clock()
        context = (
            RunContext.anew(kind, position, now)
            if mode == "rebuild"
            else RunContext.look_back(kind, position, now, mode, arguments)
        )
        if mode == "rebuild":
            check_filter(context)
    say("reading events again")
    with phases("sessionize"), kind.tables.events.reading(context.increment):
        # Spark replaces a table by name through its catalog, which forgets what it has observed of the rows.
        replaces = mode == "rebuild" and not kind.home.table.by_name
        result = context.result(at_once=replaces and may_write_at_once(kind))
    if mode in ("rebuild", "readmit"):  # a backfill judges nothing anew
        check_policies(result, context)
    return _Computed(context, result, phases)


def _chunks(kind: Kind, asked: LookBack, say: Say) -> tuple[list[Chunk], int]:
    """The spans to commit one by one, without those that just this backfill has done if it was cut off; its `began`."""
    position = kind.home.position() if asked.dry_run else settled(kind, say)
    if position.manifest is not None:
        check_fits(kind, position.manifest)
    done, began = done_to(kind.home.table, asked)
    context = RunContext.look_back(kind, position, wall_clock(), "backfill", asked.arguments(asked.low, asked.high))
    spans = chunks(context, asked.low, asked.high, asked.chunk)
    left = [(max(low, done), high) for low, high in spans if high > done]
    return (spans, position.version) if asked.dry_run or began is None or not left else (left, began)


def done_to(log: Log, asked: LookBack) -> tuple[int, int | None]:
    """To where just this backfill was done when it was cut off, if it was, and its `began`, by the table's history.

    Nowhere, and none, if since it was begun events may have been left out that it would take in, columns have changed,
    as what failed may not, or others have changed rows; or if the log no longer tells.
    """
    nowhere, manifests = (asked.low, None), (found for found, _ in in_force(log, log.version) if found is not None)
    later, chunk = list[Manifest](), None
    for chunk in manifests:
        if chunk.mode == "backfill":
            break
        later.append(chunk)
    if chunk is None or (began := chunk.arguments.get("began")) is None or asked.high > chunk.now:
        return nowhere
    low, high = int(chunk.arguments["low"]), int(chunk.arguments["high"])
    since = [*later, *takewhile(lambda earlier: earlier.sessions_version >= began, manifests)]
    left_out = {reason for manifest in since if manifest.mode != "backfill" for reason in manifest.rejected}
    is_other = any(getattr(m, name) != getattr(chunk, name) for m in since for name in AS_IT_WAS)
    if chunk.arguments != replace(asked, began=began).arguments(low, high) or is_other:
        return nowhere
    return nowhere if left_out & {LATE, IN_THE_FUTURE} or changed_by_others(log, began) else (high, began)
