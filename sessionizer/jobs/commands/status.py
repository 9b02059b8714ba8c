"""status: where the tables of sessions and of windows stand, at a glance."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.console import iso, plain, print_rows, stdout, table
from sessionizer.jobs.queries.holding import behind, held_by
from sessionizer.jobs.reporting.run_output import CHANGES
from sessionizer.jobs.run.kinds import Ruled, ruled
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.durations import format_duration
from sessionizer.lib.errors import counted, without_passwords
from sessionizer.lib.time.watermarks import SourceTime
from sessionizer.lib.windows.sessions.lifecycle import CLOSED, FINAL, OPEN
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.queries.status import SPANS as EDGES
from sessionizer.tables.queries.status import Standing, Status, read_local_status, read_status
from sessionizer.tables.runs import TIMES
from sessionizer.tables.table_set import TableSet

LAST_RUNS = 5
COMMANDS, ENDS = {"sessions": "run", "windows": "slide"}, {"sessions": "expires", "windows": "ends"}


def status(spark: SparkSession, config: Config, last_runs: int = LAST_RUNS) -> dict[str, Any]:
    """Position, lag, watermark, counts and the last runs, as a document; times as ISO-8601."""
    tables = TableSet(spark, config)
    return _document(read_status(tables, last_runs), tables.config)


def status_without_spark(config: Config, last_runs: int = LAST_RUNS) -> dict[str, Any]:
    """The same. Errors: NeedsSpark, where the tables do not lie on paths or use what only Spark reads."""
    tables = LocalTableSet(config)
    return _document(read_local_status(tables, last_runs), tables.config)


def _document(found: Mapping[str, Status], config: Config) -> dict[str, Any]:
    """Of sessions; those of windows are a document in it, where there are windows."""
    sessions, windows = found["sessions"], found.get("windows")
    document = {
        "sessions_table": without_passwords(config.sessions.table),
        "source_table": ", ".join(without_passwords(source.table) for source in config.each),
        "rule": config.rule_summary(),
        "rule_differs": _differs(sessions, config.rule_summary()),
        **_standing(sessions, ruled(config), (OPEN, CLOSED, FINAL)),
    }
    if windows is None or config.sliding is None:
        return document
    of_windows = {
        "windows_table": without_passwords(config.sliding.table),
        "rule": SlidingRule.of(config).summary(),
        "rule_differs": _differs(windows, SlidingRule.of(config).summary()),
        **_standing(windows, ruled(config, windows=True), (OPEN, FINAL)),
    }
    return {**document, "windows": of_windows}


def _differs(now: Status, summary: dict[str, object]) -> list[str]:
    """Where the config is not the rule that the rows follow."""
    return [] if now.manifest is None else now.manifest.differs(summary)


def _filled_since(now: Status) -> dict[str, Any]:
    """Of aggregates that a run has taken up: its number, and when."""
    filled = {} if now.manifest is None else now.manifest.filled
    return {name: {C.RUN_SEQ: run.run_seq, "at": iso(run.now)} for name, run in filled.items() if run is not None}


def _needed(now: Status, of: Ruled) -> str | None:
    """The command that takes the rule of the config up; None: it is that of the rows."""
    if now.manifest is None or now.manifest.rule_fingerprint == of.fingerprint:
        return None
    evolves = of.evolves and now.manifest.follows(of.summary) and not of.evolved(now.manifest).otherwise
    return of.command if evolves else "rebuild"


def _standing(now: Status, of: Ruled, statuses: tuple[str, ...]) -> dict[str, Any]:
    manifest, totals = now.manifest, now.totals
    return {
        "rule_needs": _needed(now, of),
        **_of_sources(now, of),
        "watermark": iso(manifest.told("watermark_after")) if manifest else None,
        "horizon": iso(manifest.told("horizon_after")) if manifest else None,
        "filled_since": _filled_since(now),
        "forgotten_before": iso(manifest.forgotten) if manifest else None,
        "watermark_lag_seconds": _lag(manifest.told("watermark_after")) if manifest else None,
        of.name: {name: now.by_status.get(name, 0) for name in statuses},
        **{f"oldest_{name}": _oldest(now, of, name) for name in statuses if name != FINAL},
        "runs": now.runs,
        "events": dict(totals),
        "late_percent": _percent(totals["late"], totals["events_read"]),
        "invalid_percent": _percent(totals["invalid"], totals["events_read"]),
        "last_runs": [{n: iso(v) if n in TIMES else v for n, v in row.items()} for row in now.last_runs],
    }


def _of_sources(now: Status, of: Ruled) -> dict[str, Any]:
    """Where the source is; of several each by its name, and what is behind in all."""
    if "" in now.sources:
        return _source(now.sources[""])
    each = {name: _source(one) for name, one in now.sources.items()}

    def known(field: str) -> list[Any]:
        return [told[field] for told in each.values() if told[field] is not None]

    for name, one in now.sources.items():
        each[name] = {"table": without_passwords(one.location), **each[name], **_time(one.time, of)}
    return {
        "consumed_version": None,
        "latest_version": None,
        "versions_behind": sum(known("versions_behind")),
        "rows_behind": sum(known("rows_behind")) if known("rows_behind") else None,
        "oldest_waiting_seconds": max(known("oldest_waiting_seconds"), default=None),
        "source_keeps_seconds": min(known("source_keeps_seconds")),
        "sources": each,
    }


def _source(one: Standing) -> dict[str, Any]:
    """Where a source is, and its mapping table, where it has one."""
    told = _of_table(one)
    if (mapping := one.mapping) is None:
        return told
    return {**told, "stitch": {"table": without_passwords(mapping.location), **_of_table(mapping)}}


def _of_table(one: Standing) -> dict[str, Any]:
    consumed = one.consumed
    return {
        "consumed_version": consumed,
        "latest_version": one.latest,
        "versions_behind": one.latest + 1 if consumed is None else one.waiting,
        "rows_behind": sum(e.rows for e in one.behind) if consumed is not None else None,
        "oldest_waiting_seconds": _lag(min(e.timestamp_us for e in one.behind)) if one.behind else None,
        "source_keeps_seconds": one.kept // 1_000_000,
    }


def _time(of: SourceTime | None, by: Ruled) -> dict[str, Any]:
    """How far a source has come by event time, when its last event came, and from when on nobody waits for it."""
    idle = by.rule.watermark_idle_after
    return {
        "latest_event": iso(None if of is None else of.latest),
        "last_came": iso(None if of is None or of.latest is None else of.came_at),
        "idle_from": iso(None if of is None or idle is None else of.came_at + idle),
    }


def _oldest(now: Status, of: Ruled, status: str) -> dict[str, Any] | None:
    """The row of this status that began first, how far the watermark is behind its end, and what holds it."""
    if now.manifest is None or (oldest := now.oldest.get(status)) is None:
        return None
    late = behind(oldest, of)
    held = held_by(oldest, of, now.manifest, status, sum(one.waiting for one in now.sources.values()))
    return {
        "key": dict(oldest.key),
        **{name: iso(us) for name, us in oldest.times.items()},
        "watermark": iso(oldest.watermark),
        "watermark_behind_seconds": None if late is None else late / 1e6,
        "held_by": [{"by": one.by, "says": one.says} for one in held],
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
    read = f"{events['events_read']:,} read in {counted(found['runs'], 'run')}"
    shares = f"{found['late_percent']:.2f} % late, {found['invalid_percent']:.2f} % invalid"
    none = "of each key its own" if found["rule"].get("watermark_per") == "key" else "none yet"
    rows = [
        (of, f"{found[f'{of}_table']}  ({rule})"),
        *_sources(found, source),
        ("watermark", f"{found['watermark'] or none}{ago}"),
        ("horizon", f"{found['horizon'] or none}  (older events are late)"),
        ("rows", ", ".join(f"{n:,} {status}" for status, n in found[of].items())),
        ("events", f"{read}: {shares}"),
    ]
    if differs := found["rule_differs"]:
        needed = found["rule_needs"]
        told = (
            "`rebuild` needed (`rebuild --dry-run` says of what)" if needed == "rebuild" else f"`{needed}` takes it up"
        )
        rows.append(("rule", f"config differs: {'; '.join(differs)}: {told}"))
    for name, since in found["filled_since"].items():
        run = f"run {since[C.RUN_SEQ]} ({plain(since['at'])})"
        rows.append(("column", f"{name}: since {run}; `backfill --columns {name}` fills what was final before"))
    if oldest := found["oldest_open"]:
        rows += _told(oldest, of, OPEN)
    elif oldest := found.get("oldest_closed"):
        rows += _told(oldest, of, CLOSED)
    out.print(table(["", ""], rows))
    for what, whose, one in _read(found):
        if (waits := one["oldest_waiting_seconds"] or 0) > (kept := one["source_keeps_seconds"]) / 2:
            days = max(60, 2 * kept // 86_400)
            out.print(
                f"warning: {what} wait for {_long(int(waits))}, and {whose} keeps removed files and log for "
                f"{_long(kept)}: `sessionizer {COMMANDS[of]}` soon, or `sessionizer init --retention-days {days}`"
            )
    if found["last_runs"]:
        out.print()
        show_runs(found["last_runs"], of, title="last runs")


def show_runs(last_runs: Sequence[Mapping[str, Any]], of: str = "sessions", *, title: str = "") -> None:
    """Rows of the ledger, the last one first, as `status` has them."""
    headers = ["run", "finished", "events", "late", *CHANGES[of][:-1], "final", "seconds"]
    names = (C.RUN_SEQ, "finished_at", "events_read", "late", *[f"{of}_{name}" for name in CHANGES[of]])
    runs = [{**run, "finished_at": plain(run["finished_at"])} for run in last_runs]
    print_rows(headers, [[*[r[n] for n in names], (r["seconds"] or {}).get("total")] for r in runs], title=title)


def _told(oldest: dict[str, Any], of: str, status: str) -> Iterator[tuple[str, str]]:
    """The oldest row of this status, and a line for each thing that holds it."""
    starts, *_, ends = (value for name, value in oldest.items() if name in EDGES[of])
    key = ", ".join(f"{name} {'null' if text is None else text}" for name, text in oldest["key"].items())
    late = oldest["watermark_behind_seconds"]
    ago = f"; the watermark is {_long(int(late))} behind it" if late else ""
    yield f"oldest {status}", f"{f'{key}: ' if key else ''}since {starts}, {ENDS[of]} at {ends}{ago}"
    yield from (("", one["says"]) for one in oldest["held_by"])


def _sources(found: dict[str, Any], source: str) -> Iterator[tuple[str, str]]:
    if "sources" not in found:
        yield "source", f"{source}  {_position(found)}"
        yield from _stitch(found)
    for name, one in found.get("sources", {}).items():
        come = "no event yet" if one["latest_event"] is None else f"come to {one['latest_event']}"
        yield name, f"{one['table']}  {_position(one)}; {come}"
        yield from _stitch(one)


def _read(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What is read, as it is told: what of it may wait, what it is called, and where it is."""
    for name, one in found.get("sources", {"": found}).items():
        yield (f"events of {name}" if name else "events"), (name or "the source"), one
        if (stitch := one.get("stitch")) is not None:
            yield "changes of the mapping", "the mapping table", stitch


def _stitch(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if (stitch := found.get("stitch")) is not None:
        yield "stitch", f"{stitch['table']}  {_position(stitch)}"


def _position(found: dict[str, Any]) -> str:
    if found["consumed_version"] is None:
        return "nothing read yet"
    if not found["versions_behind"]:
        return f"all read (version {found['latest_version']})"
    return (
        f"read up to version {found['consumed_version']} of {found['latest_version']}, "
        f"about {counted(found['rows_behind'], 'row')} waiting"
    )


def _lag(watermark: int | None) -> float | None:
    return None if watermark is None else round(max(time.time() - watermark / 1e6, 0.0), 3)


def _long(seconds: int) -> str:
    """A lag for the eye: 3h25m0s, or 12 days where seconds mean nothing any more."""
    return f"{seconds // 86_400} days" if seconds >= 3 * 86_400 else format_duration(seconds * 1_000_000)


def _percent(part: int | None, whole: int | None) -> float:
    return 100 * (part or 0) / whole if whole else 0.0
