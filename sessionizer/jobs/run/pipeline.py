"""The whole of a run on one screen. Only this module knows both halves: which events count, and what they make."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import LEAVES, AcceptedChanges, Again
from sessionizer.lib.admission.admission import Admission
from sessionizer.lib.admission.event_counts import EventCounts, count_columns, is_valid
from sessionizer.lib.admission.lateness import decided
from sessionizer.lib.admission.verdicts import effect
from sessionizer.lib.compute import Figures
from sessionizer.lib.time.spans import Spans, day_spans
from sessionizer.lib.time.watermarks import (
    WatermarkOverride,
    WatermarkState,
    advance,
    advance_each,
    advance_scopes,
    advance_to,
    flush,
)
from sessionizer.lib.windows.sessions.memberships import Memberships, memberships
from sessionizer.lib.windows.windows import Around, Merged, Stored, Windows

NO_OVERRIDE = WatermarkOverride()
AMID = ("amid_low", "amid_high")  # of partials that are several windows
OF_NEW = ("rows", "closed", "finalised")  # what has to be counted where all rows are new


@dataclass(frozen=True)
class RunResult:
    """What one run comes to; nothing is written yet.

    changes: rows of the table (but run_id) with `__change` = insert | update | delete; computed, or (no counts) to be
    computed by the write, all of them inserted. counted: what is counted of these, once they are computed.
    clock: the watermarks as they stand after. touched: spans of start times that hold every row to update or delete;
    empty where all of them are live. rejected, leaving: make the rows that come into rejected_events, and those of it
    that leave. memberships: makes the sessions of events, where the rule asks for them.
    """

    changes: DataFrame
    events: EventCounts
    counts: Mapping[str, int]
    counted: Callable[[], Mapping[str, int]]
    clock: WatermarkState
    touched: Spans
    rejected: Callable[[], DataFrame]
    leaving: Callable[[], DataFrame | None]
    memberships: Callable[[], Memberships]


@dataclass(frozen=True)
class _Judged:
    """Judged rows, the partials of them, and what was counted on the way."""

    rows: DataFrame
    partials: DataFrame
    counts: EventCounts
    amid: tuple[int, int] | None


def compute_run(  # noqa: PLR0913
    admission: Admission,
    windows: Windows,
    stored: Stored,
    clock: WatermarkState,
    *,
    override: WatermarkOverride = NO_OVERRIDE,
    again: Again | None = None,
    at_once: bool = False,
) -> RunResult:
    """Admit events, fold them, merge them with what is stored, settle the state, compare with the table.

    clock: the watermarks as they stood before; the result has them as they stand after. Order of rows never matters.
    The events are read once: the folded partials are held, and all counts come with them. at_once: where nothing is
    stored, sessions are not held as well, but made by the job that writes them.
    """
    compute = admission.compute
    judged = _admitted(admission, windows, stored)
    changes = _accepted_changes(admission, judged, again)
    merged = windows.merge(changes, stored, compute)
    at_once = at_once and stored.is_empty and not admission.rule.tells_events
    if at_once:  # in order of time while rows are narrow
        merged = replace(merged, windows=merged.windows.sortWithinPartitions(C.START))
    after = _watermarks_after(clock, judged, lambda: windows.reaches(merged, stored, changes), admission, override)
    settled = _settled(windows, merged, admission, after)
    changed, figures = windows.diff(settled, stored, changes, after), windows.counts()
    counts: Mapping[str, int] = {}
    touched: Spans = ()
    told: Callable[[], Figures] = dict
    if at_once:
        changed, told = compute.counting(changed, {name: figures[name] for name in OF_NEW if name in figures})
    else:
        changed, seen = compute.observed(changed, figures)
        counts = {name: n or 0 for name, n in seen.items()}
        touched = day_spans(changed, C.col(C.OLD_START), compute) if counts.get("touched_final") else ()
    return RunResult(
        changes=changed.select(*C.cols((*windows.columns(), C.CHANGE))),
        events=judged.counts,
        counts=counts,
        counted=lambda: _all_new(figures, told()),
        clock=after,
        touched=touched,
        rejected=lambda: admission.rejected(judged.rows),
        leaving=lambda: admission.leaving(judged.rows, judged.counts),
        memberships=lambda: memberships(judged.rows.withColumn(C.EFFECT, effect()), changed, settled, admission.rule),
    )


def _all_new(names: Iterable[str], seen: Figures) -> dict[str, int]:
    """All counts, of the few that were seen of rows that are new."""
    n = {name: seen.get(name) or 0 for name in names}
    return n | {"created": n["rows"], "live_change": n["rows"] - n["finalised"]}


def _admitted(admission: Admission, windows: Windows, stored: Stored) -> _Judged:
    """Which events count. What is older than the horizon, and late unless its place takes it in, is judged by that."""
    cut = windows.cut_amid() if stored.is_empty else None
    found = _judge(admission, windows, cut)
    if not found.counts.pending:
        return found
    tells_copies = admission.rule.dedupe is not None
    if tells_copies:
        found = _judge(replace(admission, tells_copies=False), windows, cut)
    around = Around(found.counts.old_low or 0, found.counts.old_high or 0, admission.known(found.rows, found.counts))
    told = windows.judge_places(found.partials.withColumn(C.EFFECT, effect()), around, stored, admission.clock)
    places, bucket = admission.compute.held(told.drop(C.EFFECT)), windows.bucket()
    if tells_copies:
        return _judge(replace(admission, places=places, bucket=bucket), windows, cut)
    rows = admission.placed(found.rows, places, bucket)
    return _counted(rows, decided(places, admission.rule, admission.clock), admission, cut)


def _judge(admission: Admission, windows: Windows, cut: Column | None) -> _Judged:
    """Most runs only add events in time: they are judged as they are folded, in one pass.

    Where rows go they are judged first: what was mended before any run has read it is folded by none.
    """
    if admission.asked is None and admission.only_adds:
        found = _folded(admission.judged(), windows, admission, cut)
        if not found.counts.needs_the_bag:
            return found
    return _folded(admission.judged_with_changes(), windows, admission, cut)


def _folded(judged: DataFrame, windows: Windows, admission: Admission, cut: Column | None) -> _Judged:
    return _counted(judged, windows.fold(judged), admission, cut)


def _counted(judged: DataFrame, partials: DataFrame, admission: Admission, cut: Column | None) -> _Judged:
    """cut: whether events of a partial lie in several windows, if that is asked."""
    rule, figures = admission.rule, count_columns(admission.rule)
    if cut is not None:
        start, end = (F.when(is_valid() & cut, C.col(name)) for name in (C.START, C.END))
        figures |= {AMID[0]: F.min(start), AMID[1]: F.max(end)}
    held, seen = admission.compute.observed(partials, figures)
    low, high = (seen.get(name) for name in AMID)
    amid = None if low is None or high is None else (low, high)
    return _Judged(judged, held, EventCounts.of(seen, rule.sources), amid)


def _accepted_changes(admission: Admission, judged: _Judged, again: Again | None) -> AcceptedChanges:
    counts, edges = judged.counts, [f"{C.EDGE}{n}" for n, _ in enumerate(admission.rule.sources)]
    partials = judged.partials.drop(*edges) if edges else judged.partials  # told by the counts
    partials = partials.withColumn(C.EFFECT, effect())
    lost: list[int] = []
    if counts.leaves and C.POPULATION in partials.columns:
        apart = partials.where((C.col(C.EFFECT) == LEAVES) & C.col(C.POPULATION).isNotNull())
        lost = [row[0] for row in admission.compute.rows(apart.select(C.col(C.POPULATION)).distinct())]
    return AcceptedChanges(
        partials=partials,
        accepted=admission.accepted(judged.rows, counts),
        before=admission.clock,
        earliest=counts.earliest,
        first=counts.first,
        last=counts.last,
        low=counts.low,
        high=counts.high,
        leaves=bool(counts.leaves),
        populations=tuple(lost),
        again=again,
        looks_back=admission.asked is not None,
        amid=judged.amid,
    )


def _watermarks_after(
    clock: WatermarkState,
    judged: _Judged,
    reaches: Callable[[], DataFrame],
    admission: Admission,
    override: WatermarkOverride,
) -> WatermarkState:
    """The watermarks as the run leaves them: a look back leaves them alone."""
    rule, counts, compute = admission.rule, judged.counts, admission.compute
    if admission.asked is not None:
        return replace(clock, ends_no_key=True)
    if rule.scope:
        valid, ends = judged.partials.where(is_valid()), reaches() if override.flush else None
        return advance_scopes(clock, valid, ends, rule, override=override, compute=compute)
    if rule.sources:
        moved = advance_each(clock, counts.edges, rule)
    else:
        moved = advance(clock, counts.earliest, counts.latest, rule)
    after = advance_to(moved, override.advance_to)
    return flush(after, compute.rows(reaches().agg(F.max(C.col(C.REACH))))[0][0]) if override.flush else after


def _settled(windows: Windows, merged: Merged, admission: Admission, after: WatermarkState) -> Merged:
    """The windows in their state; recomputed ones are held, as they are read several times."""
    redone = merged.recomputed
    if redone is not None:
        redone = admission.compute.held(windows.settle(redone, admission.clock, after))
    return replace(merged, windows=windows.settle(merged.windows, admission.clock, after), recomputed=redone)
