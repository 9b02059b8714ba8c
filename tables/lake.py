"""The tables of one configuration, together."""

from pyspark.sql import SparkSession

from lib.config import Config
from tables.events import Events
from tables.rejected_events import RejectedEvents
from tables.runs import Runs
from tables.sessions import Sessions


class Lake:
    """The source and the tables that the product writes."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.config = config
        self.events = Events(spark, config)
        self.sessions = Sessions(spark, config)
        self.rejected_events = RejectedEvents(spark, config)
        self.runs = Runs(spark, config)

    def require(self) -> None:
        """Raise unless every table is there and the source records its changes."""
        self.events.require()
        self.sessions.require()
        for table in (self.rejected_events.table, self.runs.table):
            table.require("`sessionizer init` makes it")
