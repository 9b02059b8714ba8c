"""windows: look-ups in the windows table, as it is or as it was."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from jobs.commands.lookups import first_rows, fitting
from jobs.commands.sql import documents
from jobs.commands.sql import show as show_frame
from lib import columns as C
from lib.reading.lookups import find_windows
from tables.lake import Lake

SHOWN = 200


@dataclass(frozen=True)
class WindowLookUp:
    """What the command line asks for. Keys: text, one a key column. Times: microseconds since the epoch."""

    key: tuple[str, ...] = ()
    key_from: tuple[str, ...] = ()
    key_to: tuple[str, ...] = ()
    start_from: int | None = None
    start_to: int | None = None
    backward: bool = False
    version: int | None = None
    limit: int | None = None


def look_up(lake: Lake, asked: WindowLookUp) -> DataFrame:
    """The rows that a look-up finds, in order, without `_state`."""
    lake.windows.require()
    rows, key = lake.windows.table.read(asked.version).drop(C.STATE), lake.config.source.key
    return find_windows(
        rows,
        key,
        key=fitting(asked.key, rows, key, "--key"),
        key_from=fitting(asked.key_from, rows, key, "--key-from"),
        key_to=fitting(asked.key_to, rows, key, "--key-to"),
        start_from=asked.start_from,
        start_to=asked.start_to,
        backward=asked.backward,
    )


def as_documents(lake: Lake, asked: WindowLookUp) -> list[Any]:
    """Row objects; times as ISO-8601 UTC."""
    return documents(first_rows(look_up(lake, asked), asked.limit))


def show(lake: Lake, asked: WindowLookUp) -> None:
    """A table for a person."""
    show_frame(first_rows(look_up(lake, asked).drop(C.RUN_ID), asked.limit), asked.limit or SHOWN)
