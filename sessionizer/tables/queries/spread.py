"""Where in time the rows of the source's files lie, by the statistics in its log: no file is opened, and no Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from sessionizer.lib.config import EventSource
from sessionizer.lib.durations import DAY
from sessionizer.lib.time.spans import Spans
from sessionizer.tables.delta.settings import COLUMN_MAPPING
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries.dataset import ROUNDED
from sessionizer.tables.queries.local import PARTITION, LocalTableSet, NeedsSpark, as_numbers
from sessionizer.tables.source import check_same, naming, pruned_by


@dataclass(frozen=True)
class Spread:
    """A file: between which times (microseconds, inclusive) its events lie, its rows and bytes; None: nobody knows."""

    first: int | None
    last: int | None
    rows: int | None
    bytes: int

    def touches(self, spans: Spans) -> bool:
        """Whether an event of it may lie in one of these spans of time (inclusive)."""
        if self.first is None or self.last is None:
            return True
        return any(self.first <= high and self.last >= low for low, high in spans)


@dataclass(frozen=True)
class Part:
    """What has to be read of each source as of a version: files, out of so many, their rows (at most) and bytes."""

    versions: Mapping[str, int]
    files: Sequence[Spread]
    of: int

    @property
    def rows(self) -> int | None:
        """All rows of these files; None where the log does not count them."""
        known = [file.rows for file in self.files if file.rows is not None]
        return sum(known) if len(known) == len(self.files) else None

    @property
    def bytes(self) -> int:
        """How large these files are."""
        return sum(file.bytes for file in self.files)


def check_read(tables: LocalTableSet, done: Manifest) -> dict[str, int]:
    """The versions of the sources that runs have read. Errors: SourceError where these are no longer those tables."""
    for name, of in done.consumed.items():
        with naming(name):
            if of.to_version is not None:  # of one that waits for its start nothing has been read
                check_same(tables.events[name], of)
    return {name: of.version for name, of in done.consumed.items()}


def part_within(tables: LocalTableSet, versions: Mapping[str, int], spans: Spans | None) -> Part:
    """The files of the sources that a look back at these spans of time (None: at all of it) opens.

    Errors: NeedsSpark; SourceMismatch as of `pruned_by`.
    """
    files = [one for source in tables.config.each for one in _spreads(tables, source, versions[source.label])]
    touched = files if spans is None else [file for file in files if file.touches(spans)]
    return Part(versions, touched, len(files))


def _spreads(tables: LocalTableSet, source: EventSource, version: int) -> list[Spread]:
    """Each file of a source as of a version; -1: none of it has been read."""
    if version < 0:
        return []
    import pyarrow as pa  # noqa: PLC0415

    events = tables.events[source.label].as_of(version)
    if (events.setting(COLUMN_MAPPING) or "none") != "none":
        raise NeedsSpark(f"{events.field} uses columnMapping")
    files = pa.table(events.actions())
    first, last, margin = _edges(files, pruned_by(source, events.schema))
    rows = files["num_records"].to_pylist() if "num_records" in files.column_names else [None] * files.num_rows
    return [
        Spread(None if low is None else low - margin, None if high is None else high + margin, number, size)
        for low, high, number, size in zip(first, last, rows, files["size_bytes"].to_pylist(), strict=True)
    ]


def _edges(files: Any, by: tuple[str, T.DataType, int] | None) -> tuple[list[int | None], list[int | None], int]:
    """The earliest and the latest time of each file, and how far an event may lie from them."""
    unknown: list[int | None] = [None] * files.num_rows
    if by is None:
        return unknown, unknown, 0
    name, kind, margin = by
    partition, edges = f"{PARTITION}{name}", (f"min.{name}", f"max.{name}")
    names = (partition, partition) if partition in files.column_names else edges
    if not set(names) <= set(files.column_names):
        return unknown, unknown, 0
    low, high = (_microseconds(files[n], kind) for n in names)
    return low, high, margin + ROUNDED


def _microseconds(times: Any, kind: T.DataType) -> list[int | None]:
    """Times, or the starts of days, as numbers: Python's know no years beyond 9999."""
    import pyarrow as pa  # noqa: PLC0415

    if not isinstance(kind, T.DateType):
        return as_numbers(times).to_pylist()  # type: ignore[no-any-return]
    return [None if day is None else day * DAY for day in times.cast(pa.int32()).to_pylist()]
