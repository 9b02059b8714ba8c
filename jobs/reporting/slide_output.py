"""How a run of sliding windows is told: to people as a table, to machines as a document."""

from collections.abc import Sequence

from jobs.console import iso, short, stdout, table
from jobs.reporting.run_output import late_share, show_changes, versions_read, warn_of_late
from jobs.run.phases import RunReport
from lib import columns as C

HEADERS = ("run", "source", "events", "late", "invalid", "created", "updated", "deleted", "final", "open", "watermark")


def as_document(reports: Sequence[RunReport]) -> dict[str, object]:
    """The runs, one object each, times as ISO-8601."""
    return {"runs": [_row(report) for report in reports], "caught_up": not reports}


def show(reports: Sequence[RunReport]) -> None:
    """The runs as a table, and what a person should know of them."""
    out = stdout()
    if not reports:
        out.print("Nothing new: the windows are those of all events in the source.")
        return
    out.print(table([*HEADERS, "seconds"], [_line(report) for report in reports]))
    for report in reports:
        advice = "set a longer sliding.grace, or late_events: amend."
        warn_of_late(report.manifest, f". If old files were loaded after new ones, {advice}")
    if reports[-1].dry_run:
        show_changes(reports[-1].changes, reports[-1].manifest, sorted_by=2)


def _row(report: RunReport) -> dict[str, object]:
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
        **{f"windows_{name}": m.sessions[name] for name in ("created", "updated", "deleted", "finalised")},
        "open_windows": m.live_sessions,
        "seconds": report.timing.seconds,
        "dry_run": report.dry_run,
        "late_share": late_share(m),
    }


def _line(report: RunReport) -> list[object]:
    m = report.manifest
    return [
        "dry run" if report.dry_run else m.run_seq,
        versions_read(m),
        *[m.events[name] for name in ("events_read", "late", "invalid")],
        *[m.sessions[name] for name in ("created", "updated", "deleted", "finalised")],
        m.live_sessions,
        short(m.watermark_after),
        round(sum((report.timing.seconds or {}).values()), 1),
    ]
