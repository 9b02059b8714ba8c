"""Reading a table: its rows, its change feed, its history, its fences; small ones on a path without Spark."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, DataFrameReader

from sessionizer.lib.config import location_kind
from sessionizer.lib.engine import sees_this_disk
from sessionizer.lib.errors import TableError
from sessionizer.lib.schema.evolution import physical
from sessionizer.tables.delta.commits import BARRIER, Commit, Entry, entry_of
from sessionizer.tables.delta.log import DeltaLog
from sessionizer.tables.delta.settings import FENCES_KEPT

FENCES_NEAR = 5  # commits looked at one by one before all transactions of the table are loaded
# What writing without Spark knows: the first features of Delta, and paths that are URLs as they stand.
PLAIN = 2
UNUSUAL_IN_PLAIN_PATHS = set("%[]^|")


class Reading(DeltaLog):
    """What can be asked of a table."""

    def read(self, version: int | None = None) -> DataFrame:
        """All rows, as of a version or the latest."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return self._load(reader)

    def changes(self, first: int, last: int) -> DataFrame:
        """The change feed of these versions, both inclusive, with Delta's three `_…` columns."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", first).option("endingVersion", last)
        return self._load(reader)

    def history(self, limit: int | None = None) -> Iterator[Entry]:
        """Commits, newest first, read one by one as they are asked for; ends where the log was cleaned up."""
        for version in back_from(self.version, limit):
            if (entry := self.entry(version)) is None:
                return
            yield entry

    def entry(self, version: int) -> Entry | None:
        """One commit, or None if the log no longer has it. Reads one small file, without a Spark job."""
        if not (lines := self._actions(version)):
            return None
        infos = self._found("commitInfo", version, lines)
        found = entry_of(version, infos[0] if infos else {})
        if not found.tells_rows:  # of another writer
            lines = self._actions(version, whole=True)
            found = found.with_rows_of(self._parsed(line, version) for line in lines)
        elif found.operation == "RESTORE":  # others tell the columns last
            lines = self._actions(version, whole=True)
        table = self._found("metaData", version, lines)
        return found.with_columns_of(table[0]) if table else found

    def removes_rows(self, version: int) -> bool:
        """Whether a commit takes rows away or writes them anew, as updates do; False: the log has it no longer."""
        return any(map(takes_rows_away, self.actions(version)))

    def keeps_rows(self, version: int) -> bool:
        """Whether a commit has moved rows at most, as upkeep does, and no columns; False: the log has it no longer."""
        return bool(told := list(self.actions(version))) and not any(map(_says_more, told))

    def actions(self, version: int) -> Iterator[dict[str, Any]]:
        """What a commit consists of, by kind; nothing if the log has it no longer."""
        return (self._parsed(line, version) for line in self._actions(version, whole=True))

    def rows_added(self, version: int, partition: tuple[str, str]) -> int | None:
        """Rows of the files that a commit has put where a partition column has this value; None: the log has no count.

        Nor has it where the table is not partitioned by that column. Reads one small file, without a Spark job.
        """
        name, value = partition
        own = physical(self.schema[name])
        added = self._found("add", version, self._actions(version, whole=True))
        if not all(own in file["partitionValues"] for file in added):
            return None
        counts = [
            json.loads(f.get("stats") or "{}").get("numRecords") for f in added if f["partitionValues"][own] == value
        ]
        return None if None in counts else sum(counts)

    def has_fence(self, commit: Commit) -> bool:
        """Whether this transaction of the application, or a later one, is in the table."""
        if (table := self._plain()) is not None:
            return is_in(table, commit)
        last = next(self._fences(commit.app_id, FENCES_NEAR), None)
        if last is None:
            last = self.transaction(commit.app_id)
        return last is not None and last >= commit.txn

    def has_had(self, commit: Commit) -> bool:
        """Whether this very transaction is in the table, whatever came later; or a later one, where the log forgets."""
        newest = next((number for _, number in self._acts(commit.app_id) if number <= commit.txn), None)
        if newest is None and self.entry(0) is None:
            return self.has_fence(commit)
        return newest == commit.txn

    def version_before(self, undoing: Commit, last: int) -> int | None:
        """The version that the first transaction of the application after `last` came upon.

        None: there is none; `undoing` is done, as a note says; or something has come behind a later one.
        Errors: TableError where the log no longer has that version, or does not tell which it is.
        """
        if self.has_fence(undoing):
            return None
        first, is_next = None, self.entry(0) is not None
        for version, number in self._acts(undoing.app_id):
            if number >= undoing.txn:
                return None
            if number <= last:
                is_next = True
                break
            first, is_next = version, is_next or number == last + 1
        if first is not None and not (is_next and self.entry(first - 1) is not None):
            raise self._lost(f"version {first - 1} or an earlier one")
        return None if first is None else first - 1

    def acts_since(self, version: int, app_id: str) -> set[int]:
        """The numbers of the transactions of the application that have come after this version."""
        return {number for _, number in takewhile(lambda act: act[0] > version, self._acts(app_id))}

    def check_tells(self, app_id: str, last: int) -> None:
        """Raise where the application has had a transaction after `last`, and the log no longer has any of it."""
        if self.entry(0) is not None or not self.has_fence(Commit(app_id, last + 1)):
            return
        if next(self._fences(app_id, None), None) is None:
            raise self._lost("a version")

    def _lost(self, version: str) -> TableError:
        return TableError(
            f"{self.field} cannot follow the RESTORE: it would have to go back to {version}, which its log no longer "
            "has",
            value=self.location,
            remedy="RESTORE to a later version; or, where a run is left, `sessionizer rebuild` makes the others anew",
        )

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Inside it Delta finds out, beside, which files the latest version has; errors come where they are needed."""
        with ThreadPoolExecutor(1) as beside:
            beside.submit(inheritable_thread_target(self.spark)(self._log.read_ahead))
            yield

    def _plain(self) -> deltalake.DeltaTable | None:
        """A small table's latest version without Spark; None where Spark alone knows how to open or write it."""
        folder = Path(self.location).absolute()
        elsewhere = not sees_this_disk(self.spark) or location_kind(self.location) != "path"
        if not self.small or elsewhere or UNUSUAL_IN_PLAIN_PATHS & set(str(folder)):
            return None
        try:
            table = deltalake.DeltaTable(folder)
        except (DeltaError, OSError):  # Spark tells better what is wrong
            return None
        forgets = FENCES_KEPT in table.metadata().configuration
        return None if forgets or table.protocol().min_writer_version > PLAIN else table

    def _load(self, reader: DataFrameReader) -> DataFrame:
        return reader.table(self.location) if self.by_name else reader.load(self.location)

    def _fences(self, app_id: str, near: int | None) -> Iterator[int]:
        """Transactions of this application in so many last commits (None: all that the log has), newest first."""
        for version in back_from(self.version, near):
            if not (lines := self._actions(version, whole=True)):
                return
            for fence in self._found("txn", version, lines):
                if fence["appId"] == app_id:
                    yield int(fence["version"])

    def _acts(self, app_id: str) -> Iterator[tuple[int, int]]:
        """Versions that hold a transaction of this application, or undo some, newest first, with its number.

        Ends where the log was cleaned up.
        """
        for version in back_from(self.version, None):
            if not (lines := self._actions(version, whole=True)):
                return
            infos = self._found("commitInfo", version, lines)
            note = next((info.get("userMetadata") for info in infos), None) or ""
            of, _, undoing = note.rpartition("@")
            if of == app_id:
                yield version, int(undoing)
            elif note != BARRIER:
                for fence in self._found("txn", version, lines):
                    if fence["appId"] == app_id:
                        yield version, int(fence["version"])

    def _found(self, action: str, version: int, lines: list[str]) -> list[Any]:
        """What a commit has of this action."""
        return [self._parsed(line, version)[action] for line in lines if line.startswith(f'{{"{action}"')]

    def _parsed(self, line: str, version: int) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            raise self.damaged(version) from error


def takes_rows_away(action: dict[str, Any]) -> bool:
    """Whether a part of a commit removes a file with its rows, or rows of one that stays; not where they only move."""
    added, removed = action.get("add", {}), action.get("remove", {})
    return bool(removed.get("dataChange") or (added.get("dataChange") and added.get("deletionVector")))


def _says_more(action: dict[str, Any]) -> bool:
    """Whether a part of a commit is of rows that come or go, or of the table itself."""
    moved = (action.get(kind, {}).get("dataChange") for kind in ("add", "remove"))
    return any(moved) or not action.keys().isdisjoint(("metaData", "protocol", "cdc"))


def is_in(table: deltalake.DeltaTable, commit: Commit) -> bool:
    """Whether this transaction of the application, or a later one, is in the table."""
    last = table.transaction_version(commit.app_id)
    return last is not None and last >= commit.txn


def back_from(latest: int, number: int | None) -> range:
    """So many versions, newest first; None: all."""
    return range(latest, -1 if number is None else max(latest - number, -1), -1)
