"""How runs are told: to people as a table, to machines as a document."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich.markup import escape

from sessionizer.jobs.console import iso, print_rows, short, stderr, stdout
from sessionizer.jobs.run.phases import RunReport, wall_clock
from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import expressions_of
from sessionizer.lib.admission.verdicts import EXPRESSION_FAILED
from sessionizer.lib.canonical import from_canonical_json
from sessionizer.lib.errors import SourceMismatch, counted, without_passwords
from sessionizer.lib.expressions import expression, first_line
from sessionizer.tables.manifest import Consumed, Manifest
from sessionizer.tables.runs import TIMES, ledger_row

if TYPE_CHECKING:
    from sessionizer.jobs.run.kinds import Kind

SHOWN = 20
MUCH_LATE = 0.05
# What is counted of the rows, the final ones last.
CHANGES = {
    "sessions": ("created", "extended", "merged", "finalised"),
    "windows": ("created", "updated", "deleted", "finalised"),
}


def as_document(
    reports: Sequence[RunReport], finished: Sequence[Manifest] = (), *, unread: bool = False
) -> dict[str, object]:
    """The runs, one object each, times as ISO-8601; from, to: the span that was recomputed, if one was.

    caught_up: whether there was nothing to do, or the last one has left nothing of the source unread.
    finished: those that had been cut off behind their commit, and were completed first. unread: whether more is there
    where none had anything to do up to the version asked for.
    """
    left = (reports[-1].dry_run or reports[-1].manifest.left_unread) if reports else unread
    document: dict[str, object] = {"runs": [as_row(report) for report in reports], "caught_up": not left}
    return document | ({"finished": [manifest.run_id for manifest in finished]} if finished else {})


def as_row(report: RunReport) -> dict[str, object]:
    """One run, times as ISO-8601."""
    row = ledger_row(report.manifest, report.timing, report.of)
    times = {name: iso(value) for name, value in row.items() if name in TIMES and isinstance(value, int)}
    told = {"dry_run": report.dry_run, "late_share": _late_share(report.manifest)}
    span = {"from": iso(report.manifest.arguments.get("low")), "to": iso(report.manifest.arguments.get("high"))}
    return {**row, **times, **told, **span, **_rows(report)}


def log_line(report: RunReport, kind: "Kind") -> None:
    """One line of JSON on stderr: the run's row of the ledger, and which table it is about."""
    table = without_passwords(kind.home.table.location)
    head = {"time": iso(wall_clock()), "level": "info", "event": kind.command, kind.name: table}
    print(json.dumps({**head, **as_row(report)}, ensure_ascii=False, default=str), file=sys.stderr, flush=True)


def show(kind: "Kind", reports: Sequence[RunReport], *, notes: bool = True) -> None:
    """The runs as a table, and (notes, on stderr) what a person should know of them."""
    if not reports:
        show_nothing_new(kind.home.position().manifest)
        return
    _show_runs(reports, CHANGES[kind.name])
    for m in (report.manifest for report in reports if notes):
        _warn_of_late(
            m,
            f": older than {short(m.told('horizon_before'))}, the watermark less {kind.lateness}. They are in "
            f"{without_passwords(kind.rejected_events.table.location)}. If old files were loaded after new ones, set "
            f"a longer {kind.lateness} before the first run.",
        )
        _warn_of_failed(m, kind)
    _show_changes(reports[-1], (*kind.rule.key, *kind.home.layout.order))


def show_nothing_new(done: Manifest | None) -> None:
    """Where the last run has come to, and no other has anything to do."""
    read = {} if done is None else done.consumed
    begun = {name: of.to_version for name, of in read.items() if of.to_version is not None}
    if not begun:
        stdout().print("Nothing read yet: no version to be read lies behind where the start of the source says.")
        return
    version = ", ".join(f"{name} {version}".strip() for name, version in begun.items())
    watermark = f"the watermark is {short(done.told('watermark_after') if done else None)}"
    if done is not None and done.rule.get("watermark_per") == "key":
        watermark = "each key has a watermark of its own"
    stdout().print(f"Nothing new: the source is consumed up to version {version}, {watermark}.")


def show_backfill(reports: Sequence[RunReport]) -> None:
    """What recomputing has changed, or would."""
    if not reports:
        stdout().print("Nothing to do: no rejected event lies there, no column lacks, or all spans are done already.")
        return
    rows = []
    for report in reports:
        m = report.manifest
        low, high = m.arguments.get("low"), m.arguments.get("high")
        span = "all" if low is None else f"{short(low)} - {short(high)}"
        rows.append([_name(report), span, *_told_apart(report), m.live_sessions, _seconds(report)])
    print_rows(["run", "span", "added", "changed", "removed", "live", "seconds"], rows)


def _show_runs(reports: Sequence[RunReport], changes: tuple[str, ...]) -> None:
    """changes: what is counted of the rows, the final ones last."""
    counts = ("events_read", "late", "invalid")
    lines = []
    for report in reports:
        m, seconds = report.manifest, _seconds(report)
        counted = [*[m.events[name] for name in counts], *[m.sessions[name] for name in changes], m.live_sessions]
        rounded = None if seconds is None else round(seconds, 1)
        lines.append([_name(report), _versions_read(m), *counted, short(m.told("watermark_after")), rounded])
    headers = ["run", "source", "events", *counts[1:], *changes[:-1], "final", "live", "watermark", "seconds"]
    print_rows(headers, lines)


def _name(report: RunReport) -> str | int:
    return "dry run" if report.dry_run else report.manifest.run_seq


def _seconds(report: RunReport) -> float | None:
    return (report.timing.seconds or {}).get("total")


def _rows(report: RunReport) -> dict[str, int]:
    """How many rows of its table a run has added, changed and removed, or would."""
    counted = report.manifest.sessions
    updated, deleted = counted["updated"], counted["deleted"]
    return {"rows_added": counted["rows"] - updated - deleted, "rows_changed": updated, "rows_removed": deleted}


def _told_apart(report: RunReport) -> tuple[int, int, int]:
    """How many sessions, or windows, are new, different, and gone.

    A session that begins earlier, or later, has a new id (SEMANTICS §9): one row goes and another comes, and yet the
    session is neither new nor gone. It is of the rows added, and is neither created nor split off.
    """
    added, changed, removed = _rows(report).values()
    counted = report.manifest.sessions
    if report.of != "sessions" or report.manifest.mode == "rebuild":  # a rebuild writes all rows, and tells none apart
        return added, changed, removed
    renamed = min(max(0, added - counted["created"] - counted["split"]), removed)
    return added - renamed, changed + renamed, removed - renamed


def _versions_read(m: Manifest) -> str:
    """The versions of the source, from the first to the last; of several each."""
    told = {name: _versions_of(of) for name, of in m.consumed.items()}
    return ", ".join(f"{name} {text}".strip() for name, text in told.items() if text != "-") or "-"


def _versions_of(of: Consumed) -> str:
    first, last = of.from_version, of.to_version
    if first is not None and (last is None or first > last):
        return "-"
    if first is None:
        return f"all - {last}"
    return f"{first}" if first == last else f"{first} - {last}"


def _late_share(m: Manifest) -> float:
    read = m.events["events_read"]
    return m.events["late"] / read if read else 0.0


def _warn_of_late(m: Manifest, advice: str) -> None:
    """A note on stderr, where many events are late."""
    if (share := _late_share(m)) > MUCH_LATE:
        late = f"{share:.0%} of its events ({m.events['late']:,}) are late"
        stderr().print(f"[yellow]note:[/] run {m.run_seq}: {late}{advice}", markup=True)


def _warn_of_failed(m: Manifest, kind: "Kind") -> None:
    """A note on stderr, where expressions of the config have no value for some events."""
    if failed := m.rejected.get(EXPRESSION_FAILED):
        events, why = counted(failed, "event"), escape(_why_failed(kind, m.run_seq))
        stderr().print(
            f"[yellow]note:[/] run {m.run_seq}: {events} in rejected_events with reason {EXPRESSION_FAILED}{why}",
            markup=True,
        )


def _why_failed(kind: "Kind", run_seq: int) -> str:
    """Which expression fails for one of the events, and what Spark says; nothing where no event was kept."""
    of_run = (C.col(C.REASON) == EXPRESSION_FAILED) & (C.col(C.RUN_SEQ) == run_seq) & C.col(C.EVENT).isNotNull()
    kept = kind.rejected_events.table.read().where(of_run).limit(1)
    read = from_canonical_json(C.col(C.EVENT), kind.tables.events.schema)
    event = kept.select(read.alias(C.EVENT)).select(f"{C.EVENT}.*")
    for field, text in expressions_of(kind.rule, event.columns).items():
        try:
            event.select(expression(text, event, field).cast("string")).collect()  # Python has no place for every time
        except (PySparkException, Py4JJavaError) as error:
            return f"; {field}: {first_line(error)}"
        except SourceMismatch:  # of columns that a later version has not
            continue
    return ""


def _show_changes(report: RunReport, order: tuple[str, ...]) -> None:
    """Some rows that a dry run would change, the first by these columns."""
    if (changes := report.changes) is None:
        return
    hidden = (C.CHANGE, C.STATE, *((C.IS_LATE,) if report.of == "sessions" else ()))
    shown = [C.CHANGE, *[c for c in changes.columns if c not in hidden]]
    first = changes.orderBy(*C.cols(order)).limit(SHOWN)
    rows = first.select(*[C.col(c).cast("string").alias(f"c{i}") for i, c in enumerate(shown)]).collect()
    number = report.manifest.sessions["rows"]
    title = f"{min(SHOWN, number)} of {number:,} changed rows"
    print_rows(["change", *shown[1:]], [list(row) for row in rows], title=title)
