"""status: where the tables of sessions and of windows stand, at a glance."""

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.console import iso, short, stdout, table
from sessionizer.jobs.reporting.run_output import CHANGES
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.durations import format_duration
from sessionizer.lib.errors import without_passwords
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.tables.delta import ROWS_WRITTEN
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.queries.status import Status, read_local_status, read_status
from sessionizer.tables.runs import TIMES
from sessionizer.tables.table_set import TableSet

LAST_RUNS = 5
COMMANDS, ENDS = {"sessions": "run", "windows": "slide"}, {"sessions": "expires", "windows": "ends"}


def status(spark: SparkSession, config: Config) -> dict[str, Any]:
    """Position, lag, watermark, counts and the last runs, as a document; times as ISO-8601."""
    tables = TableSet(spark, config)
    return _document(read_status(tables, LAST_RUNS), tables.config)


def status_without_spark(config: Config) -> dict[str, Any]:
    """The same. Errors: NeedsSpark, where the tables do not lie on paths or use what only Spark reads."""
    tables = LocalTableSet(config)
    return _document(read_local_status(tables, LAST_RUNS), tables.config)


def _document(found: Mapping[str, Status], config: Config) -> dict[str, Any]:
    """Of sessions; those of windows are a document in it, where there are windows."""
    sessions, windows = found["sessions"], found.get("windows")
    document = {
        "sessions_table": without_passwords(config.sessions.table),
        "source_table": without_passwords(config.source.table),
        "rule": config.rule_summary(),
        "rule_differs": _differs(sessions, config.rule_summary()),
        **_standing(sessions, "sessions", ("open", "closed", "final")),
    }
    if windows is None or config.sliding is None:
        return document
    of_windows = {
        "windows_table": without_passwords(config.sliding.table),
        "rule": SlidingRule.of(config).summary(),
        "rule_differs": _differs(windows, SlidingRule.of(config).summary()),
        **_standing(windows, "windows", ("open", "final")),
    }
    return {**document, "windows": of_windows}


def _differs(now: Status, summary: dict[str, object]) -> list[str]:
    """Where the config is not the rule that the rows follow."""
    return [] if now.manifest is None else now.manifest.differs(summary)


def _standing(now: Status, of: str, statuses: tuple[str, ...]) -> dict[str, Any]:
    manifest, totals, latest = now.manifest, now.totals, now.latest_version
    consumed = manifest.source_to_version if manifest else None
    return {
        "consumed_version": consumed,
        "latest_version": latest,
        "versions_behind": latest + 1 if consumed is None else max(latest - consumed, 0),
        "rows_behind": sum(e.metric(ROWS_WRITTEN) for e in now.behind) if consumed is not None else None,
        "oldest_waiting_seconds": _lag(min(e.timestamp_us for e in now.behind)) if now.behind else None,
        "source_keeps_seconds": now.kept // 1_000_000,
        "watermark": iso(manifest.told("watermark_after")) if manifest else None,
        "horizon": iso(manifest.told("horizon_after")) if manifest else None,
        "forgotten_before": iso(manifest.forgotten) if manifest else None,
        "watermark_lag_seconds": _lag(manifest.told("watermark_after")) if manifest else None,
        of: {name: now.by_status.get(name, 0) for name in statuses},
        "oldest_open": now.oldest and {name: iso(us) for name, us in now.oldest.items()},
        "runs": now.runs,
        "events": dict(totals),
        "late_percent": _percent(totals["late"], totals["events_read"]),
        "invalid_percent": _percent(totals["invalid"], totals["events_read"]),
        "last_runs": [{n: short(v) if n in TIMES else v for n, v in row.items()} for row in now.last_runs],
    }


def show(found: dict[str, Any]) -> None:
    """The document for a person."""
    _show(found, "sessions", f"gap {found['rule'].get('gap')}", found["source_table"])
    if (windows := found.get("windows")) is not None:
        stdout().print()
        _show(windows, "windows", f"time_difference {windows['rule']['time_difference']}", found["source_table"])


def _show(found: dict[str, Any], of: str, rule: str, source: str) -> None:
    out, events = stdout(), found["events"]
    lag = found["watermark_lag_seconds"]
    ago = "" if lag is None else f"  ({_long(int(lag))} behind the clock)"
    read = f"{events['events_read']:,} read in {found['runs']:,} runs"
    shares = f"{found['late_percent']:.2f} % late, {found['invalid_percent']:.2f} % invalid"
    rows = [
        (of, f"{found[f'{of}_table']}  ({rule})"),
        ("source", f"{source}  {_position(found)}"),
        ("watermark", f"{found['watermark'] or 'none yet'}{ago}"),
        ("horizon", f"{found['horizon'] or 'none yet'}  (older events are late)"),
        ("rows", ", ".join(f"{n:,} {status}" for status, n in found[of].items())),
        ("events", f"{read}: {shares}"),
    ]
    if differs := found["rule_differs"]:
        rows.append(
            ("rule", f"config differs: {'; '.join(differs)}: `rebuild` needed (`rebuild --dry-run` says of what)")
        )
    if oldest := found["oldest_open"]:
        since, *until = oldest.values()
        rows.append(("oldest open", f"since {since}, {ENDS[of]} at {until[-1]}"))
    out.print(table(["", ""], rows))
    if (waits := found["oldest_waiting_seconds"] or 0) > (kept := found["source_keeps_seconds"]) / 2:
        days = max(60, 2 * kept // 86_400)
        out.print(
            f"warning: events wait for {_long(int(waits))}, and the source keeps removed files and log for "
            f"{_long(kept)}: `sessionizer {COMMANDS[of]}` soon, or `sessionizer init --retention-days {days}`"
        )
    if found["last_runs"]:
        headers = ["run", "finished", "events", "late", *CHANGES[of][:-1], "final", "seconds"]
        names = (C.RUN_SEQ, "finished_at", "events_read", "late", *[f"{of}_{name}" for name in CHANGES[of]])
        lines = [[*[r[n] for n in names], (r["seconds"] or {}).get("total")] for r in found["last_runs"]]
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


def _lag(watermark: int | None) -> float | None:
    return None if watermark is None else round(max(time.time() - watermark / 1e6, 0.0), 3)


def _long(seconds: int) -> str:
    """A lag for the eye: 3h25m0s, or 12 days where seconds mean nothing any more."""
    return f"{seconds // 86_400} days" if seconds >= 3 * 86_400 else format_duration(seconds * 1_000_000)


def _percent(part: int | None, whole: int | None) -> float:
    return 100 * (part or 0) / whole if whole else 0.0
