"""init: make the tables, and have the source record its changes."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from jobs.run.kinds import Kind, output_schemas, schema_of, sessions_of, sliding_of
from lib.config import Config
from tables.delta.settings import CHANGE_FEED, LOG_KEPT, REMOVED_FILES_KEPT
from tables.table_set import TableSet


def init(spark: SparkSession, config: Config, retention_days: int | None, say: Callable[[str], None]) -> None:
    """Make the sessions, rejected_events and runs tables where they are missing.

    Turns on the change data feed of a source that has it off, after saying so. `retention_days`: keep the source's
    log and removed files for so long, because repair and reading changes end where they end.
    """
    tables = TableSet(spark, config)
    source = tables.events.table
    source.require("make it first, for example with `sessionizer ingest FILE… --format csv`")
    if source.setting(CHANGE_FEED) != "true":
        say(f"turning on the change data feed of {source.location}: new events are read from it")
        source.change_setting(CHANGE_FEED, "true")
    if retention_days is not None:
        for name in (REMOVED_FILES_KEPT, LOG_KEPT):
            source.change_setting(name, f"interval {retention_days} days")
        say(f"{source.location} keeps its log and removed files for {retention_days} days")
    else:
        kept = (source.setting(REMOVED_FILES_KEPT) or "interval 1 week").removeprefix("interval ")
        say(f"{source.location} keeps removed files for {kept}; `sessionizer init --retention-days 30` makes it 30")
    events = source.read()
    _make(sessions_of(tables), events, say)
    schemas = output_schemas(tables, events) if tables.event_outputs else {}
    for name, output in tables.event_outputs.items():
        if output.table.create_if_missing(schemas[name], {}):
            say(f"made {output.table.location}")
    if tables.runs.create_if_missing():
        say(f"made {config.outputs.runs}")
    if config.sliding is not None:
        _make(sliding_of(tables), events, say)


def _make(kind: Kind, events: DataFrame, say: Callable[[str], None]) -> None:
    """Make the table of windows and that of its rejected events where they are missing."""
    schema = schema_of(kind.make, kind.rule, events)
    if kind.home.table.exists():
        kind.home.check_schema(schema)
    else:
        kind.home.create(schema, kind.schema_hash(events))
        say(f"made {kind.home.table.location}")
    if kind.rejected_events.create_if_missing(events.schema):
        say(f"made {kind.rejected_events.table.location}")
