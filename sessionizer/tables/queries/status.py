"""Where the tables stand, by Spark or without it; and totals over all runs, for a monitoring system."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY, HOUR, MINUTE, SECOND
from sessionizer.lib.errors import SessionizerError
from sessionizer.lib.time.watermarks import SourceTime
from sessionizer.lib.windows.sessions.lifecycle import FINAL, OPEN
from sessionizer.tables.delta import BYTES_WRITTEN, LOG_KEPT, REMOVED_FILES_KEPT, Entry, Table
from sessionizer.tables.event_tables import Events
from sessionizer.tables.manifest import Manifest, Read
from sessionizer.tables.position import position_of
from sessionizer.tables.queries.file import File
from sessionizer.tables.queries.local import LocalTable, LocalTableSet, NeedsSpark, as_numbers
from sessionizer.tables.queries.oldest import Oldest, oldest_by_spark, oldest_in
from sessionizer.tables.runs import EVENTS, FILES, TIMES, Runs, change_columns
from sessionizer.tables.table_set import TableSet
from sessionizer.tables.window_table import WindowTable

SMALL_BYTES, SMALL_LIVE = 32 << 20, 200_000  # compressed bytes of new events, and live rows: what counts as little
KEPT = {REMOVED_FILES_KEPT: "interval 1 week", LOG_KEPT: "interval 30 days"}  # with what Delta has by itself
SPANS = {"sessions": (C.SESSION_START, C.SESSION_END, C.EXPIRES_AT), "windows": (C.WINDOW_START, C.WINDOW_END)}
UNITS = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY, "week": 7 * DAY}


@dataclass(frozen=True)
class Standing:
    """Where a source is. location: its table. latest: its latest version; consumed: that which runs have read, or None.

    behind: commits after it. kept: how long, in microseconds, the source keeps what runs have to read: its removed
    files, and the log that names them. time: where it stands among several. mapping: the same of its mapping table.
    """

    location: str
    latest: int
    consumed: int | None
    behind: Sequence[Entry]
    kept: int
    time: SourceTime | None = None
    mapping: "Standing | None" = None

    @property
    def waiting(self) -> int:
        """How many versions no run has read; none of them is looked at before the first run."""
        return 0 if self.consumed is None else max(self.latest - self.consumed, 0)


@dataclass(frozen=True)
class Status:
    """What the tables say of sessions, or of windows. Times: microseconds.

    sources: each by its name. oldest: the row that began first, of the open ones and of the
    closed ones, where there are any. totals: sums over the ledger, by its column. last_runs: rows of the ledger,
    newest first.
    """

    manifest: Manifest | None
    sources: Mapping[str, Standing]
    by_status: Mapping[str, int]
    oldest: Mapping[str, Oldest]
    runs: int
    totals: Mapping[str, int]
    last_runs: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Totals:
    """Sums over all runs of the ledger, so that they only grow; the last run; and the keys that are live now.

    runs: by mode. rejected, seconds: by reason, by phase.
    keys: those with a row that may still change; idle_keys: those of them without an open one. oldest: as of `Status`.
    waiting: versions of the source that no run has read.
    last_run: its row of the ledger, times in microseconds.
    """

    runs: Mapping[str, int]
    sums: Mapping[str, int]
    rejected: Mapping[str, int]
    seconds: Mapping[str, float]
    keys: int
    idle_keys: int
    oldest: Mapping[str, Oldest]
    waiting: int
    manifest: Manifest | None
    last_run: Mapping[str, Any] | None


def read_status(tables: TableSet, last_runs: int) -> dict[str, Status]:
    """By Spark: any table. Of sessions and, where they have been made, of windows."""
    tables.require()
    found = {"sessions": _status(tables.sessions, tables.runs, tables.events, last_runs)}
    if tables.config.sliding is not None and tables.windows.table.exists():
        found["windows"] = _status(tables.windows, tables.window_runs, tables.events, last_runs)
    return found


def _status(home: WindowTable, runs: Runs, events: Events, last_runs: int) -> Status:
    manifest, rows = home.position().manifest, home.table.read()
    status = _status_column(home)
    counts = rows.groupBy(status.alias("status")).count().collect()
    sums = runs.sums(EVENTS)
    return Status(
        manifest,
        standing(events.tables, events.mappings, manifest),
        {row["status"]: row["count"] for row in counts},
        oldest_rows(home, manifest),
        sums["runs"],
        {name: sums[name] for name in EVENTS},
        runs.last(last_runs),
    )


def oldest_rows(home: WindowTable, manifest: Manifest | None) -> dict[str, Oldest]:
    """The row that began first, of the open ones and of those that are closed and not final, where there are any."""
    live = home.live()
    return {} if manifest is None else oldest_by_spark(live, _status_column(home), SPANS[home.layout.name], manifest)


def read_local_status(tables: LocalTableSet, last_runs: int) -> dict[str, Status]:
    """Without Spark. Errors: NeedsSpark."""
    tables.require()
    found = {"sessions": _local_status(tables.sessions, tables.runs, tables, SPANS["sessions"], last_runs)}
    if (windows := tables.of_windows.get("windows")) is not None and windows.exists():
        runs = tables.of_windows["window_runs"]
        found["windows"] = _local_status(windows, runs, tables, SPANS["windows"], last_runs)
    return found


def _local_status(
    home: LocalTable, runs: LocalTable, tables: LocalTableSet, span: tuple[str, ...], last_runs: int
) -> Status:
    import pyarrow as pa  # noqa: PLC0415

    manifest = position_of(home).manifest
    try:
        (by_status, oldest), ledger = _counts(home, span, manifest), _rows(runs)
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:  # Python has no times of all years
        raise NeedsSpark(f"a file cannot be read without it ({str(error).splitlines()[0]})") from error
    ledger.sort(key=lambda row: -row[C.RUN_SEQ])
    return Status(
        manifest,
        standing(tables.events, tables.mappings, manifest),
        by_status,
        oldest,
        len(ledger),
        {name: sum(row[name] or 0 for row in ledger) for name in EVENTS},
        ledger[:last_runs],
    )


def standing(
    events: Mapping[str, Table] | Mapping[str, LocalTable],
    mappings: Mapping[str, Table] | Mapping[str, LocalTable],
    manifest: Manifest | None,
) -> dict[str, Standing]:
    """Where each source is, by its name, and its mapping table, where it has one."""
    known, times = ({}, {}) if manifest is None else (manifest.consumed, manifest.times_of_sources("after"))
    found = {}
    for name, table in events.items():
        of = known.get(name)
        stitch = _of_table(mappings[name], None if of is None else of.stitch) if name in mappings else None
        found[name] = replace(_of_table(table, of), time=times.get(name), mapping=stitch)
    return found


def _of_table(table: Table | LocalTable, done: Read | None) -> Standing:
    consumed, latest = None if done is None else done.to_version, table.version
    behind = list(table.history(0 if consumed is None else max(latest - consumed, 0)))
    kept = min(microseconds_of(table.setting(setting) or usual) for setting, usual in KEPT.items())
    return Standing(table.location, latest, consumed, behind, kept)


def read_totals(home: WindowTable, runs: Runs, events: Mapping[str, Table]) -> Totals:
    """From the ledger and the live rows, in a second or so."""
    ledger, last, manifest = runs.table.read(), runs.last(1), home.position().manifest
    live = home.live()
    is_open = F.bool_or(_status_column(home) == OPEN).alias("__is_open")
    by_key = live.groupBy(*C.cols(home.key), F.lit(0).alias("__any")).agg(is_open)
    keys = by_key.agg(F.count(F.lit(1)), F.count_if(~C.col("__is_open"))).collect()[0]
    return Totals(
        runs={row["mode"]: row["count"] for row in ledger.groupBy("mode").count().collect()},
        sums=runs.sums((*EVENTS, *change_columns(runs.of), *FILES)),
        rejected=_summed(ledger, "rejected"),
        seconds=_summed(ledger, "seconds"),
        keys=keys[0],
        idle_keys=keys[1],
        oldest=oldest_rows(home, manifest),
        waiting=sum(_waiting(manifest, events).values()),
        manifest=manifest,
        last_run=last[0] if last else None,
    )


def _status_column(home: WindowTable) -> Column:
    """The status of sessions; windows are open until they are final, whatever an aggregate of theirs is called."""
    is_sessions = home.layout.start == C.SESSION_START
    return C.col(C.STATUS) if is_sessions else F.when(C.col(C.IS_FINAL), FINAL).otherwise(OPEN)


def microseconds_of(interval: str) -> int:
    """What `interval 30 days`, a property of Delta's, says."""
    parts = re.findall(r"(\d+)\s+(second|minute|hour|day|week)", interval, re.IGNORECASE)
    return sum(int(number) * UNITS[unit.lower()] for number, unit in parts)


def _counts(
    home: LocalTable, span: tuple[str, ...], manifest: Manifest | None
) -> tuple[dict[str, int], dict[str, Oldest]]:
    """Rows by status, and the oldest live ones. Of final ones the log knows how many: history stays closed."""
    files = home.files()
    final = sum(file.count() for file in files if file.is_final)
    statuses: Counter[str] = Counter()
    first: dict[str, tuple[int, ...]] = {}
    holders: dict[str, list[File]] = {}
    for file in files:
        if not file.is_final:
            has_status = C.SESSION_START in span
            rows = file.read([*([C.STATUS] if has_status else []), *span])
            found = rows[C.STATUS].to_pylist() if has_status else [OPEN] * rows.num_rows
            statuses.update(found)
            spans = list(zip(*[as_numbers(rows[name]).to_pylist() for name in span], strict=True))
            for status in set(found):
                least = min(times for one, times in zip(found, spans, strict=True) if one == status)
                if status not in first or least < first[status]:
                    first[status], holders[status] = least, []
                if least == first[status]:
                    holders[status].append(file)
    if manifest is None:
        return {**statuses, FINAL: final}, {}
    oldest = {status: oldest_in(holders[status], status, first[status], span, manifest) for status in first}
    return {**statuses, FINAL: final}, oldest


def _rows(table: LocalTable) -> list[dict[str, Any]]:
    """All rows of a small table; times in microseconds, as numbers, which know years beyond 9999."""
    found: list[dict[str, Any]] = []
    for file in table.files():
        rows = file.read()
        for name in set(TIMES) & set(rows.column_names):
            rows = rows.set_column(rows.column_names.index(name), name, as_numbers(rows[name]))
        found += rows.to_pylist()
    maps = {field.name for field in table.schema.fields if isinstance(field.dataType, T.MapType)}  # told as pairs
    told = [{name: row.get(name) for name in table.columns} for row in found]
    return [{name: dict(v) if name in maps and v is not None else v for name, v in row.items()} for row in told]


def _waiting(manifest: Manifest | None, events: Mapping[str, Table] | Mapping[str, LocalTable]) -> dict[str, int]:
    """How many versions of each source no run has read; none of them is looked at before the first run."""
    known = {} if manifest is None else manifest.consumed
    read = {name: of.to_version for name, of in known.items() if of.to_version is not None and name in events}
    return {name: max(events[name].version - version, 0) for name, version in read.items()}


def is_small(tables: LocalTableSet, *, whole: bool = False) -> bool:
    """Whether the next run has little to do, as far as the logs tell at once, without Spark.

    whole: or whatever reads all events and sessions once more.
    """
    try:
        if whole:
            all_of_it = tables.sessions.bytes + sum(table.bytes for table in tables.events.values())
            return all_of_it < SMALL_BYTES // 4  # which is gone through several times
        manifest = position_of(tables.sessions).manifest
        if manifest is None:
            return False
        live = manifest.live_sessions
        if live is None:  # the commit's files know
            live = sum(file.count() for file in tables.sessions.files() if not file.is_final)
        if live > SMALL_LIVE:
            return False
        waiting = _waiting(manifest, tables.events)
        behind = [entry for name, number in waiting.items() for entry in tables.events[name].history(number)]
        stitches = {name: of.stitch.version for name, of in manifest.consumed.items() if of.stitch is not None}
        told = [name for name, table in tables.mappings.items() if table.version > stitches.get(name, -1)]
        whole_ones = sum(tables.events[name].bytes for name in told)  # where their events are looked for
        return sum(entry.metric(BYTES_WRITTEN) for entry in behind) + whole_ones < SMALL_BYTES
    except (NeedsSpark, SessionizerError):
        return False


def _summed(ledger: Any, name: str) -> dict[str, Any]:
    """A map column, summed by its keys."""
    rows = ledger.select(F.explode(name)).groupBy("key").agg(F.sum("value").alias("value"))
    return {row["key"]: row["value"] for row in rows.orderBy("key").collect()}
