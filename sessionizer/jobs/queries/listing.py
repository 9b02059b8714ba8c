"""show: the tables of a config, with their rows and where they lie."""

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.console import print_rows
from sessionizer.lib.config import Config
from sessionizer.lib.errors import without_passwords
from sessionizer.tables.queries.local import LocalTable, LocalTableSet
from sessionizer.tables.queries.views import view_names
from sessionizer.tables.table_set import TableSet

# What a row of each is.
ABOUT = {
    "events": "an event, as it came",
    "sessions": "a session",
    "rejected_events": "an event that is in no session, or late and apart, and why",
    "runs": "a run, and what it did",
    "event_sessions": "an event, and the session it is in",
    "session_updates": "an event, and what its session came to with it",
    "windows": "a sliding window",
    "rejected_window_events": "an event that is in no window, and why",
    "window_runs": "a run of `slide`, and what it did",
}


@dataclass(frozen=True)
class Listed:
    """A table. rows: how many; version: its latest."""

    table: str
    rows: int
    version: int
    location: str
    a_row_is: str


def listed(config: Config) -> list[Listed]:
    """The tables that exist, by their logs alone. Errors: NeedsSpark."""
    tables = LocalTableSet(config)
    found: dict[str, LocalTable] = {**tables.existing()}
    found |= {table.field.removeprefix("outputs."): table for table in tables.event_outputs if table.exists()}
    return [
        _listed(name, sum(file.count() for file in table.files()), table.version, table.location)
        for name, table in found.items()
    ]


def listed_by_spark(spark: SparkSession, config: Config) -> list[Listed]:
    """The same of any tables."""
    tables = TableSet(spark, config)
    outputs = {name: output.table for name, output in tables.event_outputs.items() if output.table.exists()}
    return [
        _listed(name, table.read().count(), table.version, table.location)
        for name, table in (tables.existing() | outputs).items()
    ]


def as_document(found: list[Listed]) -> dict[str, Any]:
    """The list for machines."""
    return {"tables": [asdict(one) for one in found], "views": list(view_names())}


def show(found: list[Listed]) -> None:
    """The list for a person."""
    print_rows(
        ["table", "rows", "version", "a row is", "location"],
        [[one.table, one.rows, one.version, one.a_row_is, one.location] for one in found],
    )
    print(f"Views for sql: {', '.join(view_names())}.")


def _listed(name: str, rows: int, version: int, location: str) -> Listed:
    about = ABOUT[name] if name in ABOUT else f"{ABOUT['events']}, of one of several sources"
    return Listed(name, rows, version, without_passwords(location), about)
