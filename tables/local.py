"""Tables on a path, read without Spark: in a second, and by one process. Nothing here writes."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lib.config import Config, location_kind
from lib.errors import TableError
from tables.delta import COLUMN_MAPPING, Entry, check_nothing_else, entry_of
from tables.events import require_source

READABLE_FEATURES = {"timestampNtz", "vacuumProtocolCheck"}  # of those that Delta tables may ask readers for
NEAR = 10  # commits that a first look at the history takes


class NeedsSpark(Exception):
    """Why a table cannot be read without Spark."""


class LocalTable:
    """A Delta table at a path. Errors: NeedsSpark for one that only Spark reads."""

    def __init__(self, location: str, field: str) -> None:
        """`field` is the configuration key that names the table, for errors."""
        if location_kind(location) != "path":
            raise NeedsSpark(f"{field} is a {location_kind(location)}, not a path on this machine")
        self.location = location
        self.field = field

    def exists(self) -> bool:
        """Whether there is a Delta table. Errors: TableError if something else is there."""
        if DeltaTable.is_deltatable(self.location):
            return True
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

    def history(self, limit: int | None = None) -> Iterator[Entry]:
        """Commits, newest first; ends where the log was cleaned up."""
        told = 0
        if limit == 0:
            return
        for most in [limit] if limit is not None else [NEAR, None]:
            try:
                commits = self._log.history(most)
            except DeltaError as error:
                raise self._beyond(error) from error
            yield from (entry_of(commit["version"], commit) for commit in commits[told:])
            told = len(commits)

    def dataset(self) -> Any:
        """All rows as a pyarrow dataset, which opens only the files and columns that a query needs."""
        from pyarrow.dataset import ParquetReadOptions  # noqa: PLC0415  (half a second, where nobody reads rows)

        protocol, mapping = self._log.protocol(), self.setting(COLUMN_MAPPING) or "none"
        wanted = set(protocol.reader_features or ())
        if mapping != "none" or not wanted <= READABLE_FEATURES:
            what = ", ".join(sorted(wanted - READABLE_FEATURES)) or "columnMapping"
            raise NeedsSpark(f"{self.field} uses {what}")
        try:
            return self._log.to_pyarrow_dataset(
                parquet_read_options=ParquetReadOptions(coerce_int96_timestamp_unit="us")
            )
        except DeltaError as error:
            raise self._beyond(error) from error

    @cached_property
    def _log(self) -> DeltaTable:
        try:
            return DeltaTable(self.location)
        except DeltaError as error:
            raise self._beyond(error) from error

    def _beyond(self, error: DeltaError) -> NeedsSpark:
        return NeedsSpark(f"{self.field} cannot be opened without it ({str(error).splitlines()[0]})")


class LocalLake:
    """The tables of one configuration, as `Lake` has them. Errors: NeedsSpark unless all lie on paths."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.events = LocalTable(config.source.table, "source.table")
        self.sessions = LocalTable(config.sessions.table, "sessions.table")
        self.rejected_events = LocalTable(config.outputs.rejected_events, "outputs.rejected_events")
        self.runs = LocalTable(config.outputs.runs, "outputs.runs")

    def require(self) -> None:
        """Raise unless the tables that every configuration has are there, and the source records its changes."""
        require_source(self.events)
        for table in (self.sessions, self.rejected_events, self.runs):
            table.require("`sessionizer init` makes it")

    def tables(self) -> dict[str, LocalTable]:
        """The tables that queries may name, those that exist."""
        found = {
            "events": self.events,
            "sessions": self.sessions,
            "rejected_events": self.rejected_events,
            "runs": self.runs,
        }
        if (sliding := self.config.sliding) is not None:
            found["windows"] = LocalTable(sliding.table, "sliding.table")
            found["rejected_window_events"] = LocalTable(sliding.rejected_events, "sliding.rejected_events")
        return {name: table for name, table in found.items() if table.exists()}
