"""Where a table lies: a path, a URL or a catalog name; and the lock that guards it there."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlparse

from filelock import FileLock
from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.config import location_kind
from sessionizer.lib.engine import is_remote, sees_this_disk
from sessionizer.lib.errors import TableError
from sessionizer.tables.delta.lease import Lease, lease
from sessionizer.tables.places.catalog import has_table, path_of

LOG = "_delta_log"
LOCK_FILE = "_sessionizer.lock"
AS_LETTERS = str.maketrans({letter: quote(letter) for letter in "%#?"})
Found = TypeVar("Found")


class Looking:
    """What is found once within a look; look: None: there is none; empty: nothing has been asked yet."""

    look: list[Any] | None = None

    def seen(self, find: Callable[[], Found]) -> Found:
        """What this look has found, else what there is now."""
        if self.look is None:
            return find()
        if not self.look:
            self.look.append(find())
        return self.look[0]  # type: ignore[no-any-return]


class Place:
    """The place of one table."""

    def __init__(self, spark: SparkSession, location: str, field: str, *, small: bool = False) -> None:
        """`field` is the configuration key that names the table, for errors. small: its commits have a few rows."""
        self.spark = spark
        self.location = location
        self.field = field
        self.small = small
        self.by_name = location_kind(location) == "name"

    @property
    def local_path(self) -> Path | None:
        """The folder of a table on this machine's disk, else None; where Spark is elsewhere, if there is such a one."""
        folder = self._on_disk()
        return None if folder is None or (is_remote(self.spark) and not folder.exists()) else folder

    def _on_disk(self) -> Path | None:
        if location_kind(self.location) == "path":
            return Path(self.location) if is_remote(self.spark) or sees_this_disk(self.spark) else None
        known = not self.by_name or has_table(self.spark, self.location, self.field)
        # To Hadoop, which tells the path, all of these are letters like others.
        parsed = urlparse((self.path if known else "none://").translate(AS_LETTERS))
        return Path(unquote(parsed.path)) if parsed.scheme in ("", "file") else None

    @cached_property
    def path(self) -> str:
        """The folder or URL. Errors: TableError where the catalog has something else by the name."""
        return path_of(self.spark, self.location, self.field) if self.by_name else self.location

    @cached_property
    def root(self) -> str:
        """The same, as Hadoop names it."""
        return str(self.spark.sql(f"DESCRIBE DETAIL {self.sql_name()}").select("location").collect()[0][0])

    def sql_name(self) -> str:
        """What SQL calls the table."""
        return self.location if self.by_name else f"delta.{C.quoted(self.location)}"

    def is_named_by(self, error: Exception) -> bool:
        """Whether an error tells of this table, or of a file of it; by its name of a catalog, of a file alone."""
        name = self.location.rstrip("/")
        if self.by_name:
            return f"{name}/" in str(error)
        return (
            re.search(r"(?<![\w.-])" + re.escape(name) + r"(?=$|[/'\"`)\],;]|[.:]?\s(?!\())", unquote(str(error)))
            is not None
        )

    def lock(self) -> AbstractContextManager[object]:
        """Delta's log on a local disk or upon S3 is not atomic between processes: a lock guards each commit there.

        Whoever holds it may take it again, so that a check and the commit it allows can be one step.
        """
        return self._lock or nullcontext()

    def damaged(self, version: int | None = None) -> TableError:
        """What to say of an entry of the log that is cut off."""
        return TableError(
            f"{self.field} has a damaged log: "
            + ("an entry is cut off" if version is None else f"the entry of version {version} is cut off"),
            value=self.location,
            remedy="bring it back from a copy, and those beside it from copies of that time; or name a new table",
        )

    def forgotten(self, version: int) -> TableError:
        """What to say where the log does not reach back to a version any more."""
        return TableError(
            f"the log of {self.field} no longer has version {version}",
            value=self.location,
            remedy="bring it back from a copy; without one, `sessionizer rebuild` goes on from what is there",
        )

    @cached_property
    def _lock(self) -> FileLock | Lease | None:
        folder = self.local_path
        return lease(self.spark, self.path, LOCK_FILE) if folder is None else FileLock(folder.absolute() / LOCK_FILE)

    def _making(self) -> AbstractContextManager[object]:
        """The lock lies beside a table that is being made: Delta wants an empty folder for it."""
        folder = self.local_path
        if folder is None:
            return self._making_elsewhere() or nullcontext()
        folder = folder.absolute()
        folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_name(f".{folder.name}{LOCK_FILE}"))

    def _making_elsewhere(self) -> Lease | None:
        if self.by_name:  # where it will lie only the catalog knows
            return None
        above, _, name = self.location.rstrip("/").rpartition("/")
        return lease(self.spark, above, f".{name}{LOCK_FILE}")


def check_nothing_else(folder: Path, location: str, field: str) -> None:
    """Raise a TableError if anything is there, which is no Delta table."""
    others = [p for p in _entries(folder) if p != LOCK_FILE] if folder.exists() else []
    if is_unfinished(folder):
        others.remove(LOG)
    if others:
        shown = ", ".join(sorted(others, key=lambda name: (name.startswith("."), name))[:3])
        raise TableError(
            f"{field} must be a Delta table, and this is not one: it holds {shown}",
            value=location,
            remedy="name an empty folder or a Delta table; files become one with `sessionizer ingest`, "
            "a Parquet table with Spark's CONVERT TO DELTA",
        )


def is_unfinished(folder: Path) -> bool:
    """Whether somebody who made a table here was cut off before its first commit."""
    log = folder / LOG
    return log.is_dir() and all(p.is_dir() or p.name.startswith(".") for p in log.rglob("*"))


def _entries(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir()] if folder.is_dir() else [folder.name]
