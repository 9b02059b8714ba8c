"""init: make the tables, and have the source record its changes."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from jobs.commands.slide import make_tables
from lib.admission.events import schema_hash
from lib.config import Config
from lib.rule import Rule
from lib.windows.sessions.pipeline import session_schema, trace_schemas
from tables.delta.settings import CHANGE_FEED, LOG_KEPT, REMOVED_FILES_KEPT
from tables.lake import Lake

RETENTION = {REMOVED_FILES_KEPT: "interval 1 week", LOG_KEPT: "interval 30 days"}


def init(spark: SparkSession, config: Config, retention_days: int | None, say: Callable[[str], None]) -> None:
    """Make the sessions, rejected_events and runs tables where they are missing.

    Turns on the change data feed of a source that has it off, after saying so. `retention_days`: keep the source's
    log and removed files for so long, because repair and reading changes end where they end.
    """
    lake = Lake(spark, config)
    source = lake.events.table
    source.require("make it first, for example with `sessionizer ingest FILE… --format csv`")
    if source.setting(CHANGE_FEED) != "true":
        say(f"turning on the change data feed of {source.location}: new events are read from it")
        source.change_setting(CHANGE_FEED, "true")
    kept = {name: source.setting(name) or default for name, default in RETENTION.items()}
    if retention_days is not None:
        for name in RETENTION:
            source.change_setting(name, f"interval {retention_days} days")
        say(f"{source.location} keeps its log and removed files for {retention_days} days")
    else:
        removed = kept[REMOVED_FILES_KEPT].removeprefix("interval ")
        say(f"{source.location} keeps removed files for {removed}; `sessionizer init --retention-days 30` makes it 30")
    events, rule = source.read(), Rule.of(config)
    if lake.sessions.table.exists():
        lake.sessions.check_schema(session_schema(events, rule))
    else:
        lake.sessions.create(session_schema(events, rule), schema_hash(events, rule))
        say(f"made {config.sessions.table}")
    if lake.rejected_events.create_if_missing(events.schema):
        say(f"made {config.outputs.rejected_events}")
    if lake.traces:
        schemas = trace_schemas(events, rule)
        for name, trace in lake.traces.items():
            if trace.create_if_missing(schemas[name]):
                say(f"made {trace.table.location}")
    if lake.runs.create_if_missing():
        say(f"made {config.outputs.runs}")
    if config.sliding is not None:
        make_tables(lake, events, say)
