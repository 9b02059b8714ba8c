"""status: where the sessions table stands, at a glance."""

import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.console import iso, short, stdout, table
from lib import columns as C
from lib.config import Config
from lib.durations import format_duration
from tables.delta import ROWS_WRITTEN
from tables.lake import Lake
from tables.runs import EVENTS, TIMES

LAST_RUNS = 5


def status(spark: SparkSession, config: Config) -> dict[str, Any]:
    """Position, lag, watermark, counts and the last runs, as a document; times as ISO-8601."""
    lake = Lake(spark, config)
    lake.require()
    manifest = lake.sessions.position().manifest
    latest = lake.events.table.version
    consumed = manifest.source_to_version if manifest else None
    waiting = 0 if consumed is None else latest - consumed
    behind = list(lake.events.table.history(waiting)) if waiting > 0 else []
    by_status = {row[C.STATUS]: row["count"] for row in lake.sessions.table.read().groupBy(C.STATUS).count().collect()}
    totals = (
        lake.runs.table.read()
        .agg(F.count(F.lit(1)).alias("runs"), *[F.sum(name).alias(name) for name in EVENTS])
        .collect()[0]
        .asDict()
    )
    return {
        "sessions_table": config.sessions.table,
        "source_table": config.source.table,
        "rule": config.rule_summary(),
        "consumed_version": consumed,
        "latest_version": latest,
        "versions_behind": len(behind) if consumed is not None else latest + 1,
        "rows_behind": sum(e.metric(ROWS_WRITTEN) for e in behind) if consumed is not None else None,
        "watermark": iso(manifest.watermark_after) if manifest else None,
        "horizon": iso(manifest.horizon_after) if manifest else None,
        "watermark_lag_seconds": _lag(manifest.watermark_after) if manifest else None,
        "sessions": {name: by_status.get(name, 0) for name in ("open", "closed", "final")},
        "runs": totals.pop("runs"),
        "events": {name: value or 0 for name, value in totals.items()},
        "late_percent": _percent(totals["late"], totals["events_read"]),
        "invalid_percent": _percent(totals["invalid"], totals["events_read"]),
        "last_runs": _last_runs(lake),
    }


def show(found: dict[str, Any]) -> None:
    """The document for a person."""
    out, sessions, events = stdout(), found["sessions"], found["events"]
    rows: list[tuple[str, str]] = [("sessions", f"{found['sessions_table']}  (gap {found['rule'].get('gap')})")]
    rows.append(("source", f"{found['source_table']}  {_position(found)}"))
    lag = found["watermark_lag_seconds"]
    ago = "" if lag is None else f"  ({_long(int(lag))} behind the clock)"
    rows.append(("watermark", f"{found['watermark'] or 'none yet'}{ago}"))
    rows.append(("horizon", f"{found['horizon'] or 'none yet'}  (older events are late)"))
    rows.append(("rows", f"{sessions['open']:,} open, {sessions['closed']:,} closed, {sessions['final']:,} final"))
    read = f"{events['events_read']:,} read in {found['runs']:,} runs"
    shares = f"{found['late_percent']:.2f} % late, {found['invalid_percent']:.2f} % invalid"
    rows.append(("events", f"{read}: {shares}"))
    out.print(table(["", ""], rows))
    if found["last_runs"]:
        headers = ["run", "finished", "events", "late", "created", "extended", "merged", "final", "seconds"]
        lines = [
            [
                r[C.RUN_SEQ],
                r["finished_at"],
                r["events_read"],
                r["late"],
                r["sessions_created"],
                r["sessions_extended"],
                r["sessions_merged"],
                r["sessions_finalised"],
                (r["seconds"] or {}).get("total"),
            ]
            for r in found["last_runs"]
        ]
        out.print()
        out.print(table(headers, lines, title="last runs"))


def _position(found: dict[str, Any]) -> str:
    if found["consumed_version"] is None:
        return "nothing read yet"
    if not found["versions_behind"]:
        return f"all read (version {found['latest_version']})"
    return (
        f"read up to version {found['consumed_version']} of {found['latest_version']}, "
        f"about {found['rows_behind']:,} rows waiting"
    )


def _last_runs(lake: Lake) -> list[dict[str, Any]]:
    times = [F.unix_micros(name).alias(name) for name in TIMES]
    frame = lake.runs.table.read()
    others = [c for c in frame.columns if c not in TIMES]
    rows = frame.select(*others, *times).orderBy(F.desc(C.RUN_SEQ)).limit(LAST_RUNS).collect()
    return [{name: short(value) if name in TIMES else value for name, value in row.asDict().items()} for row in rows]


def _lag(watermark: int | None) -> float | None:
    return None if watermark is None else round(max(time.time() - watermark / 1e6, 0.0), 3)


def _long(seconds: int) -> str:
    """A lag for the eye: 3h25m0s, or 12 days where seconds mean nothing any more."""
    return f"{seconds // 86_400} days" if seconds >= 3 * 86_400 else format_duration(seconds * 1_000_000)


def _percent(part: int | None, whole: int | None) -> float:
    return 100 * (part or 0) / whole if whole else 0.0
