"""The tables of one configuration, together."""

from functools import cached_property

from pyspark.sql import SparkSession

from sessionizer.lib.config import Config, events_of
from sessionizer.lib.windows.sliding.rule import sliding_of
from sessionizer.tables.delta import Table, read_any_version
from sessionizer.tables.event_outputs import EventOutput
from sessionizer.tables.event_tables import Events
from sessionizer.tables.layout import layout_of_sessions, layout_of_windows
from sessionizer.tables.rejected_events import RejectedEvents
from sessionizer.tables.runs import Runs
from sessionizer.tables.source import named_by
from sessionizer.tables.window_table import WindowTable


class TableSet:
    """The source and the tables that the product writes."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        read_any_version(spark)
        self.spark = spark
        self.config = config = named_by(config, Events(spark, config).tables)
        self.events = Events(spark, config)
        place = Table(spark, config.outputs.rejected_events, "outputs.rejected_events")
        self.rejected_events = RejectedEvents(config, place)
        self.runs = Runs(
            Table(spark, config.outputs.runs, "outputs.runs", small=True), "sessions", bool(config.sources)
        )

    @cached_property
    def sessions(self) -> WindowTable:
        """The sessions table."""
        place = Table(self.spark, self.config.sessions.table, "sessions.table")
        return WindowTable(place, layout_of_sessions(self.config), tuple(self.config.source.key))

    @cached_property
    def windows(self) -> WindowTable:
        """The windows table; what a manifest says of sessions, it says here of windows.

        Errors: ConfigError where the configuration has none.
        """
        place = Table(self.spark, sliding_of(self.config).table, "sliding.table")
        return WindowTable(place, layout_of_windows(self.config), tuple(self.config.source.key))

    @cached_property
    def rejected_window_events(self) -> RejectedEvents:
        """The events that are in no window. Errors: as above."""
        place = sliding_of(self.config).rejected_events
        return RejectedEvents(self.config, Table(self.spark, place, "sliding.rejected_events"))

    @cached_property
    def window_runs(self) -> Runs:
        """The ledger of the windows. Errors: as above."""
        place = Table(self.spark, sliding_of(self.config).runs, "sliding.runs", small=True)
        return Runs(place, "windows", bool(self.config.sources))

    @cached_property
    def event_outputs(self) -> dict[str, EventOutput]:
        """The optional tables that follow each event, by name."""
        outputs = self.config.outputs
        places = {"event_sessions": outputs.event_sessions, "session_updates": outputs.session_updates}
        return {name: EventOutput(self.spark, place, name) for name, place in places.items() if place is not None}

    def existing(self) -> dict[str, Table]:
        """The tables that queries may name, those that exist."""
        known = {
            **{events_of(one.of): one.table for one in self.events.each.values()},
            "sessions": self.sessions.table,
            "rejected_events": self.rejected_events.table,
            "runs": self.runs.table,
        }
        if self.config.sliding is not None:
            known |= {
                "windows": self.windows.table,
                "rejected_window_events": self.rejected_window_events.table,
                "window_runs": self.window_runs.table,
            }
        return {name: table for name, table in known.items() if table.exists()}

    def side_tables(self) -> list[Table]:
        """The tables that a run writes after sessions; the ledger is the last."""
        return [self.rejected_events.table, *[t.table for t in self.event_outputs.values()], self.runs.table]

    def require(self) -> None:
        """Raise unless every table is there and the source records its changes."""
        self.events.require()
        self.sessions.require()
        for table in self.side_tables():
            table.require("`sessionizer init` makes it")
