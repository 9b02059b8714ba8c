"""How a run of sliding windows is told: to people as a table, to machines as a document."""

from collections.abc import Sequence

from pyspark.sql import functions as F

from jobs.console import iso, short, stderr, stdout, table
from jobs.run.phases import RunReport
from lib import columns as C

SHOWN = 20
MUCH_LATE = 0.05
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
        if (share := _late_share(report)) > MUCH_LATE:
            m = report.manifest
            stderr().print(
                f"[yellow]note:[/] run {m.run_seq}: {share:.0%} of its events ({m.events['late']:,}) are late. If old "
                "files were loaded after new ones, set a longer sliding.grace, or late_events: amend.",
                markup=True,
            )
    if reports[-1].dry_run:
        _show_changes(reports[-1])


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
        "late_share": _late_share(report),
    }


def _line(report: RunReport) -> list[object]:
    m = report.manifest
    first = "all" if m.source_from_version is None else m.source_from_version
    nothing = m.source_from_version is not None and m.source_from_version > (m.source_to_version or -1)
    return [
        "dry run" if report.dry_run else m.run_seq,
        "-" if nothing else f"{first}" if first == m.source_to_version else f"{first} - {m.source_to_version}",
        *[m.events[name] for name in ("events_read", "late", "invalid")],
        *[m.sessions[name] for name in ("created", "updated", "deleted", "finalised")],
        m.live_sessions,
        short(m.watermark_after),
        round(sum((report.timing.seconds or {}).values()), 1),
    ]


def _late_share(report: RunReport) -> float:
    read = report.manifest.events["events_read"]
    return report.manifest.events["late"] / read if read else 0.0


def _show_changes(report: RunReport) -> None:
    if report.changes is None:
        return
    shown = [C.CHANGE, *[c for c in report.changes.columns if c not in (C.CHANGE, C.STATE)]]
    texts = [C.col(c).cast("string").alias(f"c{i}") for i, c in enumerate(shown)]
    rows = report.changes.select(*texts).orderBy(F.col("c1"), F.col("c2")).limit(SHOWN).collect()
    total = report.manifest.sessions["rows"]
    title = f"{min(SHOWN, total)} of {total:,} changed rows"
    stdout().print(table(["change", *shown[1:]], [list(row) for row in rows], title=title))
