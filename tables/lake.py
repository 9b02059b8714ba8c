"""The tables of one configuration, together."""

from functools import cached_property

from pyspark.sql import SparkSession

from lib.config import Config
from lib.windows.sliding.rule import sliding_of
from tables.delta import Table
from tables.events import Events
from tables.rejected_events import RejectedEvents
from tables.runs import Runs
from tables.sessions import Sessions
from tables.traces import Trace
from tables.windows import Windows


class Lake:
    """The source and the tables that the product writes."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.config = config
        self.events = Events(spark, config)
        self.sessions = Sessions(spark, config)
        self.rejected_events = RejectedEvents(spark, config)
        self.runs = Runs(spark, config)

    @cached_property
    def windows(self) -> Windows:
        """The windows table. Errors: ConfigError where the configuration has none."""
        return Windows(self.spark, self.config, sliding_of(self.config))

    @cached_property
    def traces(self) -> dict[str, Trace]:
        """The optional tables that follow each event, by name."""
        outputs = self.config.outputs
        places = {"event_sessions": outputs.event_sessions, "session_updates": outputs.session_updates}
        return {name: Trace(self.spark, place, name) for name, place in places.items() if place is not None}

    def side_tables(self) -> list[Table]:
        """The tables that a run writes after sessions; the ledger is the last."""
        return [self.rejected_events.table, *[t.table for t in self.traces.values()], self.runs.table]

    def require(self) -> None:
        """Raise unless every table is there and the source records its changes."""
        self.events.require()
        self.sessions.require()
        for table in self.side_tables():
            table.require("`sessionizer init` makes it")
