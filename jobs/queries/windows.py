"""windows: look-ups in the windows table, as it is or as it was."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from jobs.queries.lookups import SHOWN, OfKeys
from jobs.queries.sql import documents
from jobs.queries.sql import show as show_frame
from lib import columns as C
from lib.reading.lookups import find_windows
from tables.table_set import TableSet


@dataclass(frozen=True)
class WindowLookUp(OfKeys):
    """What the command line asks for. Times: microseconds since the epoch."""

    start_from: int | None = None
    start_to: int | None = None


def look_up(tables: TableSet, asked: WindowLookUp) -> DataFrame:
    """The rows that a look-up finds, in order, without `_state`."""
    tables.windows.require()
    rows, key = tables.windows.table.read(asked.version).drop(C.STATE), tables.config.source.key
    return find_windows(
        rows,
        key,
        **asked.order_and_keys(rows, key),
        start_from=asked.start_from,
        start_to=asked.start_to,
    )


def as_documents(tables: TableSet, asked: WindowLookUp) -> list[Any]:
    """Row objects; times as ISO-8601 UTC."""
    return documents(asked.first(look_up(tables, asked)))


def show(tables: TableSet, asked: WindowLookUp) -> None:
    """A table for a person."""
    show_frame(asked.first(look_up(tables, asked).drop(C.RUN_ID)), asked.limit or SHOWN)
