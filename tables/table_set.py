"""The tables of one configuration, together."""

from functools import cached_property

from pyspark.sql import SparkSession

from lib.config import Config
from lib.windows.sliding.rule import sliding_of
from tables.delta import Table
from tables.event_outputs import EventOutput
from tables.events import Events
from tables.rejected_events import RejectedEvents
from tables.runs import Runs
from tables.sessions import sessions_table
from tables.window_table import WindowTable
from tables.windows import windows_table


class TableSet:
    """The source and the tables that the product writes."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.config = config
        self.events = Events(spark, config)
        self.sessions = sessions_table(spark, config)
        place = Table(spark, config.outputs.rejected_events, "outputs.rejected_events")
        self.rejected_events = RejectedEvents(config, place)
        self.runs = Runs(spark, config)

    @cached_property
    def windows(self) -> WindowTable:
        """The windows table. Errors: ConfigError where the configuration has none."""
        return windows_table(self.spark, self.config, sliding_of(self.config).table)

    @cached_property
    def rejected_window_events(self) -> RejectedEvents:
        """The events that are in no window. Errors: as above."""
        place = sliding_of(self.config).rejected_events
        return RejectedEvents(self.config, Table(self.spark, place, "sliding.rejected_events"))

    @cached_property
    def event_outputs(self) -> dict[str, EventOutput]:
        """The optional tables that follow each event, by name."""
        outputs = self.config.outputs
        places = {"event_sessions": outputs.event_sessions, "session_updates": outputs.session_updates}
        return {name: EventOutput(self.spark, place, name) for name, place in places.items() if place is not None}

    def side_tables(self) -> list[Table]:
        """The tables that a run writes after sessions; the ledger is the last."""
        return [self.rejected_events.table, *[t.table for t in self.event_outputs.values()], self.runs.table]

    def require(self) -> None:
        """Raise unless every table is there and the source records its changes."""
        self.events.require()
        self.sessions.require()
        for table in self.side_tables():
            table.require("`sessionizer init` makes it")
