"""Delta's log by its own files, opened by this process: a thousandth of the time of a question to Spark."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame

from sessionizer.lib.engine import is_remote
from sessionizer.tables.delta.logs.jvm import JvmLog
from sessionizer.tables.delta.logs.public import PublicLog
from sessionizer.tables.delta.logs.state import TOLD, ByState, State, last_checkpoint, of_interest, versions
from sessionizer.tables.delta.place import LOG


class FilesLog(ByState):
    """`DeltaLog` of a table on this machine's disk; what asks for its data files, or writes, is for Spark."""

    def __init__(self, by_spark: JvmLog | PublicLog, folder: Path) -> None:
        self.by_spark = by_spark
        self.place = by_spark.place
        self.folder = folder / LOG
        self.known: State | None = None
        self.newest: tuple[int, int] | None = None  # which file has told the last of it

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        return bool(versions(self._names()))

    def size(self) -> tuple[int, int]:
        """Files and bytes."""
        with suppress(OSError, ValueError, KeyError):  # as Delta sums up beside each commit
            told = json.loads((self.folder / f"{self.version():020d}.crc").read_text(encoding="utf-8"))
            return int(told["numFiles"]), int(told["tableSizeBytes"])
        with suppress(DeltaError):  # of a table with features that it does not know
            sizes = deltalake.DeltaTable(self.folder.parent).get_add_actions().column("size_bytes")
            return len(sizes), sum(sizes.to_pylist())
        return self.by_spark.size()

    def files(self) -> DataFrame:
        """One row a file: `size`, and `partitionValues` by the names that the log has."""
        return self.by_spark.files()

    def read_ahead(self) -> None:
        """Have Spark find out which files the latest version has."""
        self.by_spark.read_ahead()

    def checkpoint(self) -> None:
        """Sum it up; a server does not let itself be asked to, and does so by itself where this cannot be done."""
        if is_remote(self.place.spark):
            with suppress(DeltaError):
                deltalake.DeltaTable(self.folder.parent).create_checkpoint()
            (self.folder / "._last_checkpoint.crc").unlink(missing_ok=True)  # Hadoop's sum of what was there before
        else:
            self.by_spark.checkpoint()

    def lines(self, version: int, *, whole: bool) -> list[str] | None:
        """Of a commit; None: it is not there."""
        try:
            return of_interest(_text(self._entry(version)), whole=whole)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise self.place.damaged(version) from error

    def _caught_up(self) -> State:
        if self.known is None or self._stamp(self.known.version) != self.newest:  # a table in the place of another
            self.known = self._replayed(max(versions(self._names()), default=-1))
        self._read_on(self.known, None)
        self.newest = self._stamp(self.known.version)
        return self.known

    def _replayed(self, version: int) -> State:
        state = State(-1, {}, {})
        names, before = self._names(), version
        while (found := last_checkpoint(names, before)) is not None:
            # One that is damaged is passed over, as Delta does; Arrow's own errors are such, too.
            with suppress(OSError, ValueError):
                state.take(_summed_up([self.folder / name for name in found[1]]))
                state.version = found[0]
                break
            before = found[0] - 1
        self._read_on(state, version)
        if state.version < version:
            raise self.place.forgotten(version)
        return state

    def _read_on(self, state: State, last: int | None) -> None:
        """The commits up to a version; None: all that there are. Errors: TableError of one that is cut off."""
        while last is None or state.version < last:
            try:
                lines = _text(self._entry(state.version + 1))
                state.take(line for line in lines if TOLD.match(line))
                json.loads(lines[-1])
            except FileNotFoundError:
                return
            except (ValueError, IndexError) as error:
                raise self.place.damaged(state.version + 1) from error
            state.version += 1

    def _names(self) -> list[str]:
        """Of the files of the log."""
        return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []

    def _entry(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def _stamp(self, version: int) -> tuple[int, int] | None:
        """What tells an entry from another one of its number; None: it is not there."""
        try:
            found = self._entry(version).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def _text(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").rstrip("\n")
    return text.split("\n") if text else []


def _summed_up(paths: list[Path]) -> list[str]:
    """The actions of a checkpoint that are not of files, as lines."""
    if paths[0].suffix == ".json":
        return [line for path in paths for line in _text(path) if TOLD.match(line)]
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    for path in paths:
        file = pq.ParquetFile(path)
        for name in {"metaData", "txn"} & set(file.schema_arrow.names):
            table = file.read([name])
            found += table.filter(pc.is_valid(table[name])).to_pylist()
    for row in found:
        if told := row.get("metaData"):
            told["configuration"] = dict(told["configuration"] or ())  # of pairs
    return [json.dumps(row) for row in found]
