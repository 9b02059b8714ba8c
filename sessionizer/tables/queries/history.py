"""A table of sessions or windows as it was: by version, by time, by run; and its changes since."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sessionizer.lib import columns as C
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.tables.delta import CHANGE_FEED, GONE, NO_CHANGES, is_on
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.position import HARMLESS, Log
from sessionizer.tables.runs import Runs
from sessionizer.tables.window_table import WindowTable


@dataclass(frozen=True)
class RunCommit:
    """A run, and the version of the table that it made; None: the history no longer has it."""

    run_id: str | None
    run_seq: int
    version: int | None


BEFORE_ALL_RUNS = RunCommit(None, 0, -1)


def run_in(log: Log, name: str) -> RunCommit | None:
    """The run of this run_id or run_seq, if the log has it; 0 is the time before all runs."""
    if name == "0":
        return BEFORE_ALL_RUNS
    for entry in log.history():
        if entry.operation in HARMLESS:  # such commits may repeat the manifest of the last run
            continue
        manifest = Manifest.parse(entry.metadata)
        if manifest is not None and name in (manifest.run_id, str(manifest.run_seq)):
            return RunCommit(manifest.run_id, manifest.run_seq, entry.version)
    return None


def versions_behind(log: Log, version: int) -> list[int]:
    """Later versions at which the run of this one is the last: by upkeep and changes by hand, and behind a RESTORE.

    Which version one by timestamp has brought back nobody knows: it may be this one.
    """
    own = {version}
    later = list(takewhile(lambda entry: entry.version > version, log.history()))
    for entry in reversed(later):
        is_restore = entry.operation == "RESTORE"
        is_run = not is_restore and entry.operation not in HARMLESS and Manifest.parse(entry.metadata) is not None
        before = entry.parameters.get("version") or version if is_restore else entry.version - 1
        if not is_run and int(before) in own:
            own.add(entry.version)
    return sorted(own - {version})


def no_such_run(name: str) -> UsageError:
    """The error for a run that neither the log nor the ledger knows."""
    return UsageError("there is no such run", value=name, remedy="`sessionizer status` shows the last runs")


def check_records_changes(table: str, setting: str | None) -> None:
    """Raise unless the change feed is on. table: what it is called."""
    if not is_on(setting):
        raise TableError(
            f"the {table} table does not record its changes",
            remedy=f"turn the table property {CHANGE_FEED} on and read from the next run on; "
            "`changes --mode append` and `--mode complete` need no change feed",
        )


class History:
    """What a table was, and how it came to be what it is. runs: its ledger."""

    def __init__(self, home: WindowTable, runs: Runs) -> None:
        self.home = home
        self.table = home.table
        self.name = home.layout.name
        self.runs = runs.table

    def version_at(self, us: int) -> int:
        """The latest version that is not after this time. Errors: TableError if there is none (any more)."""
        oldest = None
        for oldest in self.table.history():
            if oldest.timestamp_us <= us:
                return oldest.version
        made = oldest is not None and oldest.version == 0
        raise TableError(
            f"the {self.name} table has no version of that time: "
            + ("it was made later" if made else "Delta has cleaned up the log of those days"),
            remedy="" if oldest is None else f"the oldest version it knows is {oldest.version}",
        )

    def as_of(self, version: int | None = None, us: int | None = None) -> DataFrame:
        """All rows as of a version, or of a time (the last version that is not after it), or as they are.

        Errors: UsageError for a version that is not there yet, TableError for one that is gone.
        """
        self.home.require()
        if us is not None:
            version = self.version_at(us)
        return self.table.read() if version is None else self.read(version)

    def read(self, version: int) -> DataFrame:
        """All rows as of a version; to be called, and the rows to be read, within `reading`."""
        latest = self.table.version
        if version > latest:
            raise UsageError(f"the {self.name} table has no such version, its latest is {latest}", value=version)
        return self.table.read(version)

    def changes(self, first: int, last: int) -> DataFrame:
        """The change feed from version `first` to `last`, inclusive; within `reading`, as above."""
        check_records_changes(self.name, self.table.setting(CHANGE_FEED))
        if first > last:
            return self.table.changes(last, last).limit(0)
        return self.table.changes(first, last)

    @contextmanager
    def reading(self, what: str, remedy: str = "") -> Iterator[None]:
        """Name the error that Delta has for versions whose log or files are gone, at once or while rows are read."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            if not _is_gone(error):
                raise
            kept = "how long they are kept: delta.deletedFileRetentionDuration, a week by default"
            raise TableError(
                f"{what} cannot be read any more: files or part of the log are gone, were never there, or are of other "
                "columns",
                remedy=f"{remedy}; {kept}" if remedy else kept,
            ) from error

    def now(self) -> tuple[int, RunCommit]:
        """The latest version, and the run in force there: the last one, unless a RESTORE has undone it."""
        position = self.home.position()
        run = BEFORE_ALL_RUNS if position.manifest is None else self.run(position.manifest.run_id)
        return position.version, run

    def run(self, name: str) -> RunCommit:
        """The run of this run_id or run_seq; 0 is the time before all runs. Errors: UsageError if there is none."""
        if (found := run_in(self.table, name)) is not None:
            return found
        if self.runs.exists():
            ledger = self.runs.read().where((C.col(C.RUN_ID) == name) | (C.col(C.RUN_SEQ).cast("string") == name))
            for row in ledger.select(C.RUN_ID, C.RUN_SEQ).limit(1).collect():
                return RunCommit(row[0], row[1], None)
        raise no_such_run(name)

    def recorded(self, now_us: int) -> DataFrame:
        """The change feed as far back as Delta gives it: of one and the same columns, within the retention of files.

        Errors: TableError where it is off.
        """
        last = self.table.version
        versions = range(self._oldest_kept(now_us), last)
        if versions and not self._gives(versions[0], last):
            versions = versions[bisect_left(versions, True, key=lambda first: self._gives(first, last)) :]
        return self.changes(versions[0] if versions else last, last)

    def _gives(self, first: int, last: int) -> bool:
        try:
            self.changes(first, last).limit(1).collect()
        except (PySparkException, Py4JJavaError) as error:
            if not _is_gone(error):
                raise
            return False
        return True

    def _oldest_kept(self, now_us: int) -> int:
        """The oldest version whose removed files are as young as they are kept."""
        oldest, kept_us = self.table.version, self.table.kept_us()[0]
        for entry in self.table.history():
            if entry.timestamp_us <= now_us - kept_us:
                break
            oldest = entry.version
        return oldest


def _is_gone(error: Exception) -> bool:
    return any(name in str(error) for name in (*GONE, *NO_CHANGES))
