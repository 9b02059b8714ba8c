"""How runs are told: to people as a table, to machines as a document."""

import json
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.console import iso, short, stderr, stdout, table
from jobs.run.phases import RunReport, wall_clock
from lib import columns as C
from lib.config import Config
from lib.errors import without_passwords
from tables.manifest import Manifest
from tables.runs import TIMES, ledger_row
from tables.table_set import TableSet

SHOWN = 20
MUCH_LATE = 0.05
SESSIONS = ("created", "extended", "merged", "finalised")
WINDOWS = ("created", "updated", "deleted", "finalised")


def as_document(reports: Sequence[RunReport]) -> dict[str, object]:
    """The runs, one object each, times as ISO-8601; from, to: the span that was recomputed, if one was."""
    return {"runs": [as_row(report) for report in reports], "caught_up": not reports}


def as_row(report: RunReport) -> dict[str, object]:
    """One run, times as ISO-8601."""
    row = ledger_row(report.manifest, report.timing)
    times = {name: iso(value) for name, value in row.items() if name in TIMES and isinstance(value, int)}
    span = {"from": iso(report.manifest.arguments.get("low")), "to": iso(report.manifest.arguments.get("high"))}
    return {**row, **times, **_told(report), **span, **_rows(report)}


def windows_document(reports: Sequence[RunReport]) -> dict[str, object]:
    """The same of sliding windows."""
    return {"runs": [_windows_row(report) for report in reports], "caught_up": not reports}


def log_line(report: RunReport, config: Config) -> None:
    """One line of JSON on stderr: the run's row of the ledger, and which table it is about."""
    sessions = without_passwords(config.sessions.table)
    head = {"time": iso(wall_clock()), "level": "info", "event": "run", "sessions": sessions}
    print(json.dumps({**head, **as_row(report)}, ensure_ascii=False, default=str), file=sys.stderr, flush=True)


def show(spark: SparkSession, config: Config, reports: Sequence[RunReport], *, notes: bool = True) -> None:
    """The runs as a table, and (notes, on stderr) what a person should know of them."""
    if not reports:
        manifest = TableSet(spark, config).sessions.position().manifest
        version = manifest.source_to_version if manifest else None
        watermark = short(manifest.watermark_after if manifest else None)
        stdout().print(f"Nothing new: the source is consumed up to version {version}, the watermark is {watermark}.")
        return
    _show_runs(reports, SESSIONS, "live")
    for m in (report.manifest for report in reports if notes):
        _warn_of_late(
            m,
            f": older than {short(m.horizon_before)}, the watermark less the allowed lateness. They are in "
            "rejected_events. If old files were loaded after new ones, set a longer time.allowed_lateness before the "
            "first run.",
        )
    _show_changes(reports[-1], C.IS_LATE)


def show_windows(reports: Sequence[RunReport]) -> None:
    """The same of sliding windows."""
    if not reports:
        stdout().print("Nothing new: the windows are those of all events in the source.")
        return
    _show_runs(reports, WINDOWS, "open")
    for report in reports:
        advice = "set a longer sliding.grace, or late_events: amend."
        _warn_of_late(report.manifest, f". If old files were loaded after new ones, {advice}")
    _show_changes(reports[-1], sorted_by=2)


def show_backfill(reports: Sequence[RunReport]) -> None:
    """What recomputing has changed, or would."""
    if not reports:
        stdout().print("Nothing to do: no rejected event lies there, or all spans are done already.")
        return
    rows = []
    for report in reports:
        m = report.manifest
        low, high = m.arguments.get("low"), m.arguments.get("high")
        span = "all" if low is None else f"{short(low)} - {short(high)}"
        rows.append([_name(report), span, *_rows(report).values(), m.live_sessions, _seconds(report)])
    stdout().print(table(["run", "span", "added", "changed", "removed", "live", "seconds"], rows))


def _windows_row(report: RunReport) -> dict[str, object]:
    m = report.manifest
    times = ("watermark_before", "watermark_after", "horizon_before", "horizon_after")
    return {
        C.RUN_ID: m.run_id,
        C.RUN_SEQ: m.run_seq,
        "source_from_version": m.source_from_version,
        "source_to_version": m.source_to_version,
        **{name: iso(getattr(m, name)) for name in times},
        **m.events,
        "rejected": dict(m.rejected),
        **{f"windows_{name}": m.sessions[name] for name in WINDOWS},
        "open_windows": m.live_sessions,
        "seconds": report.timing.seconds,
        **_told(report),
    }


def _told(report: RunReport) -> dict[str, object]:
    """late_share: of the events that were read."""
    return {"dry_run": report.dry_run, "late_share": _late_share(report.manifest)}


def _show_runs(reports: Sequence[RunReport], changes: tuple[str, ...], live: str) -> None:
    """changes: what is counted of the rows, the final ones last; live: what the others are called."""
    counts = ("events_read", "late", "invalid")
    lines = []
    for report in reports:
        m, seconds = report.manifest, _seconds(report)
        counted = [*[m.events[name] for name in counts], *[m.sessions[name] for name in changes], m.live_sessions]
        rounded = None if seconds is None else round(seconds, 1)
        lines.append([_name(report), _versions_read(m), *counted, short(m.watermark_after), rounded])
    headers = ["run", "source", "events", *counts[1:], *changes[:-1], "final", live, "watermark", "seconds"]
    stdout().print(table(headers, lines))


def _name(report: RunReport) -> str | int:
    return "dry run" if report.dry_run else report.manifest.run_seq


def _seconds(report: RunReport) -> float | None:
    return (report.timing.seconds or {}).get("total")


def _rows(report: RunReport) -> dict[str, int]:
    """How many rows of sessions a run has added, changed and removed, or would."""
    counted = report.manifest.sessions
    updated, deleted = counted["updated"], counted["deleted"]
    return {"rows_added": counted["rows"] - updated - deleted, "rows_changed": updated, "rows_removed": deleted}


def _versions_read(m: Manifest) -> str:
    """The versions of the source, from the first to the last."""
    first, last = m.source_from_version, m.source_to_version
    if first is not None and first > (last or -1):
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


def _show_changes(report: RunReport, *hidden: str, sorted_by: int = 0) -> None:
    """Some rows that a dry run would change; sorted_by: so many columns, after which these are the first ones."""
    if (changes := report.changes) is None:
        return
    shown = [C.CHANGE, *[c for c in changes.columns if c not in (C.CHANGE, C.STATE, *hidden)]]
    texts = changes.select(*[C.col(c).cast("string").alias(f"c{i}") for i, c in enumerate(shown)])
    rows = (texts.orderBy(*texts.columns[1 : sorted_by + 1]) if sorted_by else texts).limit(SHOWN).collect()
    number = report.manifest.sessions["rows"]
    title = f"{min(SHOWN, number)} of {number:,} changed rows"
    stdout().print(table(["change", *shown[1:]], [list(row) for row in rows], title=title))
