"""maintain: compact files, forget old rows of side tables, delete old files, sum up the log."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.forget import forget, horizons, without_horizon
from sessionizer.jobs.console import stdout, table
from sessionizer.jobs.run.driver import settled
from sessionizer.jobs.run.kinds import sessions_of, sliding_of
from sessionizer.jobs.run.phases import Say, wall_clock
from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import IGNORED_DELETE, IN
from sessionizer.lib.config import Config, DynamicGap
from sessionizer.lib.durations import DAY, format_duration
from sessionizer.lib.errors import UsageError
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.tables.delta import REMOVED_FILES_KEPT, Superseded, Table
from sessionizer.tables.rejected_events import RejectedEvents
from sessionizer.tables.runs import Runs
from sessionizer.tables.table_set import TableSet
from sessionizer.tables.window_table import WindowTable

ROWS = ("sessions", "windows")
LEAST = DAY  # a run, a repair or a backfill reads the version that it began with, however long it takes
REJECTED, REJECTED_WINDOWS = "rejected_events", "rejected_window_events"
FORGET = (REJECTED, REJECTED_WINDOWS, "event_sessions", "session_updates")


@dataclass(frozen=True)
class Asked:
    """What to do. Durations in microseconds.

    retain: how long removed files are kept, from now on; None: as long as each table's property says. recent: how far
    behind the horizon final rows are compacted, where they have a partition a day. keep: how long rows of side tables
    are kept, and how far behind the latest final sessions and windows.
    Errors: UsageError for what would take away what run, repair and backfill need.
    """

    retain: int | None = None
    recent: int = 7 * DAY
    keep: Mapping[str, int] = field(default_factory=dict)
    dry_run: bool = False
    now: int = field(default_factory=wall_clock)

    def __post_init__(self) -> None:
        if self.retain is not None and self.retain < LEAST:
            raise UsageError(
                f"--retain must be at least {format_duration(LEAST)}: a run, a repair or a backfill that is under way "
                "reads files of the version it began with",
                value=format_duration(self.retain),
                remedy=f"leave it out to keep files as long as the property {REMOVED_FILES_KEPT} of each table says",
            )
        if self.recent < 0:
            raise UsageError("--recent must not be negative", value=format_duration(self.recent))
        for name, duration in self.keep.items():
            if name not in (*ROWS, *FORGET):
                raise UsageError(
                    f"--keep must name one of {', '.join((*ROWS, *FORGET))}",
                    value=name,
                    remedy="`runs` is what `changes`, `status` and `verify` count on",
                )
            if duration < LEAST:
                raise UsageError(
                    f"--keep must be at least {format_duration(LEAST)}", value=f"{name}={format_duration(duration)}"
                )


@dataclass(frozen=True)
class Upkeep:
    """What was done to one table, or (dry run) would be. files, bytes: of the latest version."""

    table: str
    files_before: int
    files: int
    bytes: int
    compacted_files: int
    forgotten_rows: int
    deleted_files: int
    seconds: float


@dataclass(frozen=True)
class _Charge:
    """A table to take care of.

    home: the table with manifests that this is, None for others. partitions: those that are worth compacting.
    forget: conditions of rows that are too old, each with the columns that are emptied; none: rows are removed.
    noted: properties that say so.
    """

    name: str
    table: Table
    home: WindowTable | None = None
    partitions: str = "true"
    forget: tuple[tuple[str, Mapping[str, str]], ...] = ()
    noted: Mapping[str, str] = field(default_factory=dict)


def maintain(spark: SparkSession, config: Config, asked: Asked, say: Say = lambda _: None) -> list[Upkeep]:
    """Take care of every table that the product writes; what they hold stays, but for what `keep` lets go.

    Unfinished runs are finished first: that needs files which are deleted afterwards. Commits on a table with a
    position repeat its manifest, so that cleaning the log never removes the last one.
    Errors: UsageError where a table keeps removed files for too short a time.
    """
    tables = TableSet(spark, config)
    tables.require()
    _check_kept(tables, asked)
    kinds = [sessions_of(tables), *([sliding_of(tables)] if _slides(tables) else [])]
    for kind in kinds if not asked.dry_run else ():
        kind.require()
        settled(kind, say)
    for charge in _charges(tables, asked) if asked.retain is None else ():
        _check_retention(charge.table)
    forgotten = {
        kind.name: forget(kind, asked.keep[kind.name], asked.now, say, dry_run=asked.dry_run)
        for kind in kinds
        if kind.name in asked.keep
    }
    return [_upkeep(charge, asked, say, forgotten.get(charge.name, 0)) for charge in _charges(tables, asked)]


def _check_kept(tables: TableSet, asked: Asked) -> None:
    """Raise where what is to be kept is of no table of the config; one that has not been made yet is passed over."""
    of_windows = ("windows", REJECTED_WINDOWS) if tables.config.sliding is not None else ()
    names = ("sessions", REJECTED, *tables.event_outputs, *of_windows)
    if unknown := [name for name in asked.keep if name not in names]:
        raise UsageError(
            "--keep names a table that is not there",
            value=", ".join(unknown),
            remedy=f"of this config there are: {', '.join(names)}",
        )


def show(done: list[Upkeep], asked: Asked) -> None:
    """The tables and what was done to each."""
    headers = ["table", "files before", "files", "MB", "compacted", "forgotten rows", "deleted files", "seconds"]
    rows = [list({**asdict(upkeep), "bytes": round(upkeep.bytes / 1e6, 1)}.values()) for upkeep in done]
    stdout().print(table(headers, rows, title="dry run: nothing was done" if asked.dry_run else None))


def as_document(done: list[Upkeep], asked: Asked) -> dict[str, Any]:
    """The same for machines."""
    return {"dry_run": asked.dry_run, "tables": [asdict(upkeep) for upkeep in done]}


def _charges(tables: TableSet, asked: Asked) -> list[_Charge]:
    """The tables there are, sessions first."""
    manifest = tables.sessions.position().manifest
    known = horizons(sessions_of(tables), manifest) if manifest else []
    horizon = min(known, default=None)
    since = None if horizon is None else horizon - asked.recent
    # Where each key has its own, and none has a session that lives, none is waited for.
    is_known = bool(known) or (manifest is not None and manifest.each_has_ended)
    old_ones = _old_rejects(REJECTED, asked, tables.runs, tables.rejected_events, lambda: _since(tables))
    charges = [
        _Charge("sessions", tables.sessions.table, tables.sessions, tables.sessions.recent(since)),
        _Charge(REJECTED, tables.rejected_events.table, forget=old_ones),
    ]
    if manifest is not None and not asked.keep.keys().isdisjoint(tables.event_outputs):
        known += without_horizon(sessions_of(tables), manifest)
    for name, trace in tables.event_outputs.items():
        keep = asked.keep.get(name)
        # Rows of events that may still be joined by others stay, however old.
        before = None if keep is None or not is_known else min([asked.now - keep, *known])
        if before is None:
            charges.append(_Charge(name, trace.table))
        else:
            old = ((trace.forgettable(before), dict[str, str]()),)
            charges.append(_Charge(name, trace.table, forget=old, noted=trace.noted(before)))
    charges.append(_Charge("runs", tables.runs.table))
    if _slides(tables):
        charges.append(_Charge("windows", tables.windows.table, tables.windows))
        old_ones = _old_rejects(REJECTED_WINDOWS, asked, tables.window_runs, tables.rejected_window_events)
        charges.append(_Charge(REJECTED_WINDOWS, tables.rejected_window_events.table, forget=old_ones))
        charges.append(_Charge("window_runs", tables.window_runs.table))
    return charges


def _old_rejects(
    name: str, asked: Asked, runs: Runs, rejects: RejectedEvents, since: Callable[[], int | None] = lambda: None
) -> tuple[tuple[str, Mapping[str, str]], ...]:
    keep = asked.keep.get(name)
    last = None if keep is None else runs.last_before(asked.now - keep)
    return () if last is None else rejects.forgettable(last, since())


def _since(tables: TableSet) -> int | None:
    """Before which time no event is in a session that is left, some having been forgotten; None: nobody knows.

    Where sessions are cut amid events, the cuts follow from what was long before, and by a gap of its own an event may
    reach what was; copies need their original, and what is late or apart beside its delete is in no source.
    """
    manifest, rule, fits = tables.sessions.position().manifest, Rule.of(tables.config), tables.config.fingerprint()
    if manifest is None or manifest.forgotten is None or manifest.rule_fingerprint != fits:
        return None
    if rule.cuts or isinstance(rule.gap, DynamicGap) or rule.dedupe is not None or manifest.as_judged(rule).freezes:
        return None
    rejects = tables.rejected_events.table.read()
    gone, others = rejects.where(C.col(C.REASON) == IGNORED_DELETE), rejects.where(C.col(C.KEPT) != IN)
    if not joined(others, gone, (C.EVENT_HASH,), "left_semi").isEmpty():
        return None
    first = tables.sessions.table.read().agg(F.unix_micros(F.min(C.col(C.SESSION_START)))).collect()[0][0]
    return manifest.forgotten if first is None else min(manifest.forgotten, int(first))


def _slides(tables: TableSet) -> bool:
    return tables.config.sliding is not None and tables.windows.table.exists()


def _check_retention(table: Table) -> None:
    kept = table.kept_us()[0]
    if kept < LEAST:
        raise UsageError(
            f"{table.field} must keep removed files for {format_duration(LEAST)} at least: a run, a repair or a "
            "backfill that is under way reads files of the version it began with",
            value=format_duration(kept),
            remedy=f"set its property {REMOVED_FILES_KEPT} to a longer time, with `maintain --retain 7d`",
        )


def _upkeep(charge: _Charge, asked: Asked, say: Say, forgotten_rows: int) -> Upkeep:
    begun = time.monotonic()
    kept = charge.table
    files_before = kept.size()[0]
    manifest = charge.home.position().manifest if charge.home else None
    text = manifest.text() if manifest else None
    forgotten = sum(kept.read().where(condition).count() for condition, _ in charge.forget)
    compacted = kept.small_files(charge.partitions)
    if not asked.dry_run:
        say(f"{charge.name}: compacting, cleaning up")
        try:
            if forgotten and charge.noted:
                kept.change_settings(charge.noted)
            for condition, emptied in charge.forget if forgotten else ():
                if emptied:
                    kept.update(condition, emptied)
                else:
                    kept.delete(condition)
            if compacted:
                kept.compact(charge.partitions, text)
            if asked.retain is not None:
                kept.keep_removed(asked.retain, text)
        except Superseded:
            say(f"{charge.name}: a run was faster; what is left of it is done next time")
            forgotten = compacted = 0
    deleted = 0
    with suppress(Superseded):  # a run was faster: its commit is young, and carries a manifest of its own
        deleted = kept.vacuum(text, dry_run=asked.dry_run)
        if charge.home and manifest and not asked.dry_run:
            charge.home.keep_manifest(manifest, asked.now)
    if not asked.dry_run:
        with suppress(Superseded):
            kept.checkpoint()
    files, size = kept.size()
    seconds = round(time.monotonic() - begun, 1)
    return Upkeep(charge.name, files_before, files, size, compacted, forgotten + forgotten_rows, deleted, seconds)
