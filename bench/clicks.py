"""Click-streams to measure with: seeded, and shaped like the real thing.

Visits are bursts of events; users follow a power law; nights are quiet; a few bots never stop; times are whole
seconds, so that many are equal; a share of the events carries times of up to some hours before they arrive.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.tables.delta import Commit, Table

DAY = 86_400
VISIT_LASTS = 900  # seconds, at most
RHYTHM = 0.12  # how far the day's crest draws visits towards it


@dataclass(frozen=True)
class Clicks:
    """What to make. Times and durations: seconds. visit: its events.

    late: the share of the events that come late, up to `late_by`.
    """

    events: int
    users: int
    days: float = 30
    start: int = 1_760_000_000
    seed: int = 1
    visit: int = 20
    bots: float = 0.01
    late: float = 0.02
    late_by: int = 6 * 3600
    one_key: float = 0.0  # share of the events that one user makes
    wide: int = 0  # columns besides

    def of(self, spark: SparkSession) -> DataFrame:
        """Rows: user_id STRING, event_time TIMESTAMP, page STRING, amount DECIMAL(8,2), more STRINGs if wide."""
        number = F.col("id")
        visit = F.floor(number / self.visit)
        bot = self._random(visit, 1) < self.bots
        hot = self._random(number, 9) < self.one_key
        human = F.floor(F.pow(self._random(visit, 2), 3) * self.users).cast("string")
        robot = F.floor(self._random(number, 3) * 10).cast("string")
        user = F.when(hot, "u-hot").when(bot, F.concat(F.lit("bot-"), robot)).otherwise(F.concat(F.lit("u-"), human))
        any_time = self._random(number, 4) * self.days * DAY
        of_visit = self._at(visit) + self._random(number, 5) * VISIT_LASTS * self._random(visit, 6)
        time = F.when(hot | bot, any_time).otherwise(of_visit)
        late = F.when(self._random(number, 7) < self.late, self._random(number, 8) * self.late_by).otherwise(0)
        seconds = F.floor(F.lit(float(self.start)) + F.least(time, F.lit(self.days * DAY)) - late)
        return spark.range(self.events).select(
            user.alias("user_id"),
            F.timestamp_seconds(seconds).alias("event_time"),
            F.concat(F.lit("/shop/"), (number % 997).cast("string")).alias("page"),
            (self._random(number, 10) * 100).cast("decimal(8,2)").alias("amount"),
            *[F.sha1(F.concat_ws("-", number, F.lit(n))).alias(f"more_{n}") for n in range(self.wide)],
        )

    def then(self, events: int, days: float, seed: int) -> "Clicks":
        """What comes right after it."""
        return replace(self, events=events, days=days, start=int(self.start + self.days * DAY), seed=seed)

    def _at(self, visit: Column) -> Column:
        share = self._random(visit, 11)
        whole = self._random(visit, 12) * self.days
        warped = share + RHYTHM * F.sin(2 * 3.141592653589793 * share)
        return (F.floor(whole) + warped) * DAY if self.days >= 1 else whole * DAY

    def _random(self, of: Column, n: int) -> Column:
        """A number in [0, 1) that depends on nothing but the seed, n and the column."""
        return F.pmod(F.xxhash64(of, F.lit(self.seed * 100 + n)), F.lit(1_000_003)) / 1_000_003


def make_source(events: DataFrame, path: Path, files: int | None = None) -> Table:
    """A table with a change feed that holds these events; files: by time, so many."""
    table = Table(events.sparkSession, str(path), "source.table")
    table.create(events.schema, [], {"delta.enableChangeDataFeed": "true"})
    table.append(events if files is None else events.repartitionByRange(files, "event_time"), Commit("bench", 0))
    return table
