"""Tables on a path, read without Spark: in a second, and by one process. Nothing here writes."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.config import Config, events_of, field_of, location_kind
from sessionizer.lib.errors import TableError
from sessionizer.tables.delta.commits import Commit, Entry, entry_of_text
from sessionizer.tables.delta.place import check_nothing_else
from sessionizer.tables.delta.read import back_from
from sessionizer.tables.delta.settings import CHANGE_FEED, COLUMN_MAPPING, is_on
from sessionizer.tables.places.object_store import ObjectStore, arrow_path, is_stored, refusing
from sessionizer.tables.queries.dataset import dataset_of
from sessionizer.tables.queries.file import File
from sessionizer.tables.queries.servers import elsewhere, servers
from sessionizer.tables.source import named_by, naming, require_source

_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
READABLE_FEATURES = {"timestampNtz", "vacuumProtocolCheck"}  # of those that Delta tables may ask readers for
PARTITION = "partition."  # what the names of partition columns begin with in a list of files
OF_WINDOWS = {"windows": "table", "rejected_window_events": "rejected_events", "window_runs": "runs"}


class NeedsSpark(Exception):
    """Why a table cannot be read without Spark."""


class LocalTable:
    """A Delta table at a path, or in an object store that speaks S3.

    Errors: NeedsSpark for one that only Spark reads, RunFailed where the store refuses.
    """

    def __init__(self, location: str, field: str, store: ObjectStore | None = None, as_of: int | None = None) -> None:
        """`field` is the configuration key that names the table, for errors; as_of: a version, else the latest.

        store: of a table that lies in one.
        """
        kind = location_kind(location)
        if kind != "path" and not is_stored(location):
            raise NeedsSpark(f"{field} is a {kind}, not a path on this machine")
        if kind == "path" and (code := _PERCENT.search(str(Path(location).resolve()))):
            raise NeedsSpark(f"the path of {field} has {code[0]} in it, which deltalake takes for another letter")
        if kind == "url" and store is None:
            raise NeedsSpark(f"only it knows the way to {field} that the config names")
        self.location = location
        self.field = field
        self._store = store if kind == "url" else None
        self._options = self._store.options() if self._store else None
        self._as_of = as_of

    def as_of(self, version: int) -> "LocalTable":
        """The table as its log tells of a version, whether its files are still there or not."""
        return LocalTable(self.location, self.field, self._store, version)

    def at(self, version: int) -> "LocalTable":
        """The table as of a version. Errors: NeedsSpark, also where it had other columns or a file of it is gone."""
        found = self if version == self.version else self._then(version)
        if not all(file.exists() for file in found.files()):
            raise NeedsSpark(f"files of version {version} of {self.field} are gone")
        return found

    def exists(self) -> bool:
        """Whether there is a Delta table. Errors: TableError if something else is there, NeedsSpark as of `_log`."""
        try:
            with refusing():
                if DeltaTable.is_deltatable(self.location, self._options):
                    return True
        except (OSError, DeltaError) as error:
            if self._store is None:
                raise
            raise self._beyond(error) from error  # Spark's client has tries of its own
        if self._store is None:
            check_nothing_else(Path(self.location), self.location, self.field)
        return False

    def require(self, remedy: str) -> None:
        """Raise a TableError unless the table exists."""
        if not self.exists():
            raise TableError(f"{self.field} does not exist", value=self.location, remedy=remedy)

    @property
    def version(self) -> int:
        """The latest version, when first asked."""
        return self._log.version()

    def setting(self, name: str) -> str | None:
        """A table property, or None."""
        return self._log.metadata().configuration.get(name)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [field.name for field in self._log.schema().fields]

    @property
    def schema(self) -> T.StructType:
        """Its columns, as Spark has them."""
        return T.StructType.fromJson(json.loads(self._log.schema().to_json()))

    @property
    def id(self) -> str:
        """The id that Delta gave it when it was made."""
        return str(self._log.metadata().id)

    def has_fence(self, commit: Commit) -> bool:
        """Whether this transaction of the application, or a later one, is in the table."""
        last = self._log.transaction_version(commit.app_id)
        return last is not None and last >= commit.txn

    def history(self, limit: int | None = None) -> Iterator[Entry]:
        """Commits, newest first; ends where the log was cleaned up."""
        for version in back_from(self.version, limit):
            log = File(f"{self._root}/_delta_log/{version:020d}.json", None, self._files)
            try:
                found = entry_of_text(version, log.text())
            except FileNotFoundError:
                return
            except (OSError, ValueError) as error:
                raise self._beyond(error) from error
            yield found

    def files(self) -> list[File]:
        """The files of the latest version."""
        self._check_readable()
        actions = self.actions()
        # No more of it: there may be times in it that Python has none of.
        paths, rows, final = (_told(actions, name) for name in ("path", "num_records", f"partition.{C.IS_FINAL}"))
        return [
            File(os.path.join(self._root, unquote(path)), n, self._files, is_final=is_final)
            for path, n, is_final in zip(paths, rows, final, strict=True)
        ]

    @property
    def bytes(self) -> int:
        """How large the files of the latest version are."""
        return sum(self.actions().column("size_bytes").to_pylist())

    def actions(self) -> Any:
        """What the log says of each file: a row with `path`, `size_bytes`, `num_records`, `min.…`, `partition.…`."""
        return self._log.get_add_actions(flatten=True)

    def dataset(self) -> Any:
        """All rows as a pyarrow dataset, which opens only the files and columns that a query needs."""
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem  # noqa: PLC0415

        self._check_readable()
        # Arrow's own: the package's files call Python from threads, also while it ends, which aborts the process.
        root = str(Path(self._root).absolute()) if self._store is None else self._root
        files = SubTreeFileSystem(root, self._files or LocalFileSystem())
        try:
            return dataset_of(self._log, files)
        except (DeltaError, ValueError) as error:
            raise self._beyond(error) from error

    def changes(self, first: int, last: int, columns: Sequence[str]) -> Any:
        """These columns of the change feed from version `first` to `last`, inclusive, as a pyarrow table."""
        import pyarrow as pa  # noqa: PLC0415

        self._check_readable()
        if not is_on(self._then(first).setting(CHANGE_FEED)):  # it would tell of rows all the same
            raise NeedsSpark(f"{self.field} has not recorded its changes from version {first} on")
        try:
            named = ['"' + name.replace('"', '""') + '"' for name in columns]  # else it takes them for SQL
            found = self._log.load_cdf(starting_version=first, ending_version=last, columns=named)
            return pa.RecordBatchReader.from_stream(found).read_all()
        except (DeltaError, OSError, ValueError) as error:  # which are Arrow's, too
            raise self._beyond(error) from error

    def _then(self, version: int) -> "LocalTable":
        """The table as of a version in which it had the same columns."""
        found = self.as_of(version)
        if found.schema != self.schema:
            raise NeedsSpark(f"the columns of {self.field} have changed since")
        return found

    def _check_readable(self) -> None:
        protocol, mapping = self._log.protocol(), self.setting(COLUMN_MAPPING) or "none"
        wanted = set(protocol.reader_features or ())
        if mapping != "none" or not wanted <= READABLE_FEATURES:
            what = ", ".join(sorted(wanted - READABLE_FEATURES)) or "columnMapping"
            raise NeedsSpark(f"{self.field} uses {what}")

    @cached_property
    def _log(self) -> DeltaTable:
        try:
            with refusing():
                return DeltaTable(self.location, version=self._as_of, storage_options=self._options)
        except DeltaError as error:
            raise self._beyond(error) from error
        except OSError as error:
            if self._store is None:
                raise
            raise self._beyond(error) from error

    @property
    def _root(self) -> str:
        return self.location if self._store is None else arrow_path(self.location)

    @cached_property
    def _files(self) -> Any:
        """The store's; None: the disk."""
        return None if self._store is None else self._store.files()

    def _beyond(self, error: Exception) -> NeedsSpark:
        return NeedsSpark(f"{self.field} cannot be opened without it ({str(error).splitlines()[0]})")


class _ThereTable(LocalTable):
    """One of a server on this machine, which may see another disk: what is not on this one, it may have."""

    def exists(self) -> bool:
        """Errors: NeedsSpark where there is no table."""
        if not super().exists():
            raise NeedsSpark(f"{self.field} is not on this machine")
        return True


class LocalTableSet:
    """The tables of one configuration, as `TableSet` has them.

    Errors: NeedsSpark unless all lie on paths or in an object store.
    """

    def __init__(self, config: Config) -> None:
        if setting := elsewhere(config):
            raise NeedsSpark(f"{setting} says where paths lie")
        table = partial(_ThereTable if servers(config) else LocalTable, store=ObjectStore.of(config.spark, os.environ))
        self.events: dict[str, LocalTable] = {s.label: table(s.table, field_of(s)) for s in config.each}
        self.mappings = {
            s.label: table(s.stitch.table, field_of(s, "stitch.table")) for s in config.each if s.stitch is not None
        }
        self.config = named_by(config, self.events)
        self.sessions = table(config.sessions.table, "sessions.table")
        self.rejected_events = table(config.outputs.rejected_events, "outputs.rejected_events")
        self.runs = table(config.outputs.runs, "outputs.runs")
        self.event_outputs = [
            table(place, f"outputs.{name}")
            for name in ("event_sessions", "session_updates")
            if (place := getattr(config.outputs, name)) is not None
        ]
        self.of_windows = {
            name: table(getattr(config.sliding, field), f"sliding.{field}")
            for name, field in OF_WINDOWS.items()
            if config.sliding is not None
        }

    def require(self) -> None:
        """Raise unless the tables that every configuration has are there, and the source records its changes."""
        for source in self.config.each:
            with naming(source.label):
                require_source(self.events[source.label], source)
        for table in (self.sessions, self.rejected_events, self.runs):
            table.require("`sessionizer init` makes it")

    def home(self, name: str) -> tuple[LocalTable, LocalTable]:
        """The table of sessions, or of windows, by its name, and its ledger."""
        if name == "sessions":
            return self.sessions, self.runs
        return self.of_windows["windows"], self.of_windows["window_runs"]

    def existing(self) -> dict[str, LocalTable]:
        """The tables that queries may name, those that exist."""
        found = {
            **{events_of(source): self.events[source.label] for source in self.config.each},
            "sessions": self.sessions,
            "rejected_events": self.rejected_events,
            "runs": self.runs,
        }
        return {name: table for name, table in (found | self.of_windows).items() if table.exists()}


def _told(actions: Any, name: str) -> list[Any]:
    """What the log says of each file; None where it says nothing of it."""
    return actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows


def as_numbers(times: Any) -> Any:
    """A column of times as microseconds: Python's know no years beyond 9999."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.chunked_array([part.view(pa.int64()) for part in times.chunks], pa.int64())
