"""init: make the tables, and have the source record its changes."""

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from sessionizer.jobs.run.kinds import Kind, output_schemas, schema_of, sessions_of, sliding_of
from sessionizer.jobs.run.retries import with_retries
from sessionizer.lib.config import Config
from sessionizer.lib.expressions import with_keys
from sessionizer.tables.delta import A_MONTH, CHANGE_FEED, LOG_KEPT, REMOVED_FILES_KEPT, Table, is_on
from sessionizer.tables.event_outputs import WHOLE
from sessionizer.tables.queries.status import microseconds_of
from sessionizer.tables.source import MAKE_IT, check_names, naming
from sessionizer.tables.stitch.stitched import StitchedTable
from sessionizer.tables.table_set import TableSet


def init(spark: SparkSession, config: Config, retention_days: int | None, say: Callable[[str], None]) -> None:
    """Make the sessions, rejected_events and runs tables where they are missing.

    Turns on the change data feed of a source that has it off, after saying so, unless source.changes is appends, which
    leaves the source as it is. `retention_days`: have the source, and its mapping table, keep log and removed files for
    so long, because repair and reading changes end where they end; 0: leave it as it is; None: 30 days, where it says
    nothing of either.
    """
    with_retries(partial(_init, TableSet(spark, config), retention_days, say), say, "source")


def _init(tables: TableSet, retention_days: int | None, say: Callable[[str], None]) -> None:
    config = tables.config
    for name, one in tables.events.each.items():
        with naming(name):
            one.table.require(MAKE_IT)
            check_names(one.table)
            if isinstance(one, StitchedTable):
                one.mapping.require()
                _keep_changes(one.mapping.table, retention_days, say)
            _keep_changes(one.table, retention_days, say, is_fed=one.of.changes == "feed")
    tables.events.check_together()
    events = tables.events.as_they_stand()
    _make(sessions_of(tables), events, say)
    if config.sliding is not None:
        _make(sliding_of(tables), events, say)


def _keep_changes(
    source: Table, retention_days: int | None, say: Callable[[str], None], *, is_fed: bool = True
) -> None:
    """Have the source record its changes, and keep them; one that is only added to is left as it is, unless asked."""
    wanted, own = {}, source.setting(REMOVED_FILES_KEPT)
    if is_fed and not is_on(source.setting(CHANGE_FEED)):
        wanted[CHANGE_FEED] = "true"
        say(f"turning on the change data feed of {source.location}: new events are read from it")
    if is_fed and retention_days is None and own is None and source.setting(LOG_KEPT) is None:
        wanted[REMOVED_FILES_KEPT] = A_MONTH
    elif retention_days:
        wanted |= dict.fromkeys((REMOVED_FILES_KEPT, LOG_KEPT), f"interval {retention_days} days")
    removed = wanted.get(REMOVED_FILES_KEPT, own or "interval 1 week")
    log = wanted.get(LOG_KEPT, source.setting(LOG_KEPT) or A_MONTH)
    kept = min(removed, log, key=microseconds_of).removeprefix("interval ")
    say(f"{source.location} keeps removed files and log for {kept}: so far may runs fall behind")
    if wanted:
        source.change_settings(wanted)


def _make(kind: Kind, events: DataFrame, say: Callable[[str], None]) -> None:
    """Make the table of windows and those beside it where they are missing."""
    schema, is_there = schema_of(kind.make, kind.rule, events), kind.home.table.exists()
    knows_runs = is_there and kind.home.position().manifest is not None
    keyed, ledger = with_keys(events, kind.rule.made).schema, kind.runs.table
    if kind.rejected_events.create_if_missing(keyed):
        say(f"made {kind.rejected_events.table.location}")
    elif not knows_runs and not (ledger.exists() and ledger.size()[0]):
        kind.rejected_events.fit(keyed)
    schemas = output_schemas(kind, events) if kind.outputs else {}
    whole = {} if knows_runs else {WHOLE: "true"}
    for name, output in kind.outputs.items():
        if output.table.create_if_missing(schemas[name], whole):
            say(f"made {output.table.location}")
        elif not knows_runs:  # of an init by another rule that was cut off, or of other sessions
            output.check_columns(schemas[name], "remove it, for it is of another rule, and `sessionizer init` makes it")
    if kind.runs.create_if_missing():
        say(f"made {kind.runs.table.location}")
    if not is_there:  # last, for where it is there the others are
        kind.home.create(schema, kind.schema_hash(events))
        say(f"made {kind.home.table.location}")
    else:  # what mends a table that does not fit needs the others
        kind.home.check_schema(schema, kind.evolved(kind.home.position().manifest))
