"""How a run is told: to people as a table, to machines as a document."""

import json
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from jobs.console import iso, short, stderr, stdout, table
from jobs.run.phases import RunReport, wall_clock
from lib import columns as C
from lib.config import Config
from lib.errors import without_passwords
from tables.lake import Lake
from tables.runs import TIMES

SHOWN = 20
MUCH_LATE = 0.05


def as_document(reports: Sequence[RunReport]) -> dict[str, object]:
    """The runs, one object each, times as ISO-8601; from, to: the span that was recomputed, if one was."""
    return {"runs": [as_row(report) for report in reports], "caught_up": not reports}


def as_row(report: RunReport) -> dict[str, object]:
    """One run, times as ISO-8601."""
    row = report.row()
    times = {name: iso(value) for name, value in row.items() if name in TIMES and isinstance(value, int)}
    span = {"from": iso(report.manifest.arguments.get("low")), "to": iso(report.manifest.arguments.get("high"))}
    told = {"dry_run": report.dry_run, "late_share": _late_share(report)}
    return {**row, **times, **told, **span, **_rows(report)}


def log_line(report: RunReport, config: Config) -> None:
    """One line of JSON on stderr: the run's row of the ledger, and which table it is about."""
    head = {
        "time": iso(wall_clock()),
        "level": "info",
        "event": "run",
        "sessions": without_passwords(config.sessions.table),
    }
    print(json.dumps({**head, **as_row(report)}, ensure_ascii=False, default=str), file=sys.stderr, flush=True)


def show(spark: SparkSession, config: Config, reports: Sequence[RunReport], *, notes: bool = True) -> None:
    """The runs as a table, and (notes, on stderr) what a person should know of them."""
    out = stdout()
    if not reports:
        manifest = Lake(spark, config).sessions.position().manifest
        version = manifest.source_to_version if manifest else None
        watermark = short(manifest.watermark_after if manifest else None)
        out.print(f"Nothing new: the source is consumed up to version {version}, the watermark is {watermark}.")
        return
    out.print(table(_HEADERS, [_line(report) for report in reports]))
    for report in reports if notes else ():
        _warn_of_late(report)
    if reports[-1].dry_run:
        _show_changes(reports[-1])


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
        seconds = (report.timing.seconds or {}).get("total")
        name = "dry run" if report.dry_run else m.run_seq
        rows.append([name, span, *_rows(report).values(), m.live_sessions, seconds])
    stdout().print(table(["run", "span", "added", "changed", "removed", "live", "seconds"], rows))


_HEADERS = (
    "run",
    "source",
    "events",
    "late",
    "invalid",
    "created",
    "extended",
    "merged",
    "final",
    "live",
    "watermark",
    "seconds",
)


def _line(report: RunReport) -> list[object]:
    m = report.manifest
    first = "all" if m.source_from_version is None else m.source_from_version
    nothing = m.source_from_version is not None and m.source_from_version > (m.source_to_version or -1)
    versions = f"{first} - {m.source_to_version}" if first != m.source_to_version else f"{first}"
    seconds = (report.timing.seconds or {}).get("total")
    return [
        "dry run" if report.dry_run else m.run_seq,
        "-" if nothing else versions,
        m.events["events_read"],
        m.events["late"],
        m.events["invalid"],
        m.sessions["created"],
        m.sessions["extended"],
        m.sessions["merged"],
        m.sessions["finalised"],
        m.live_sessions,
        short(m.watermark_after),
        None if seconds is None else round(seconds, 1),
    ]


def _rows(report: RunReport) -> dict[str, int]:
    """How many rows of sessions a run has added, changed and removed, or would."""
    counted = report.manifest.sessions
    updated, deleted = counted["updated"], counted["deleted"]
    return {"rows_added": counted["rows"] - updated - deleted, "rows_changed": updated, "rows_removed": deleted}


def _late_share(report: RunReport) -> float:
    read = report.manifest.events["events_read"]
    return report.manifest.events["late"] / read if read else 0.0


def _warn_of_late(report: RunReport) -> None:
    if (share := _late_share(report)) > MUCH_LATE:
        m = report.manifest
        stderr().print(
            f"[yellow]note:[/] run {m.run_seq}: {share:.0%} of its events ({m.events['late']:,}) are late: older than "
            f"{short(m.horizon_before)}, the watermark less the allowed lateness. They are in rejected_events. "
            "If old files were loaded after new ones, set a longer time.allowed_lateness before the first run.",
            markup=True,
        )


def _show_changes(report: RunReport) -> None:
    if report.changes is None:
        return
    shown = [C.CHANGE, *[c for c in report.changes.columns if c not in (C.CHANGE, C.STATE, C.IS_LATE)]]
    texts = [C.col(c).cast("string").alias(c) for c in shown]
    rows = report.changes.select(*texts).limit(SHOWN).collect()
    total = report.manifest.sessions["rows"]
    stdout().print(
        table(
            ["change", *shown[1:]], [list(row) for row in rows], title=f"{min(SHOWN, total)} of {total:,} changed rows"
        )
    )
