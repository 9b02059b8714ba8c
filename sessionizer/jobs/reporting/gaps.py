"""The times between the events of a key, as frames and figures: what advice on the gap is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import validate
from sessionizer.lib.durations import DAY
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import floor_div
from sessionizer.lib.time.watermarks import WatermarkState

SALTS = 1_000_000  # into so many parts keys fall: the finest share of them that can be taken
BINS_PER_DOUBLING = 16
TICKS = (60, 1)  # seconds: the clocks that there are besides exact ones
MOST = 10**9  # seconds: intervals of more than 30 years count as that

# Keys that look like bots: what a key of at least so many events must be.
BUSY = 50
FASTER_THAN = 1_000_000  # µs: half of its intervals are no longer
MORE_REGULAR_THAN = 0.1  # standard deviation of its intervals / their mean
HOURS_A_DAY = 18  # on average over the days it is seen

SINCE = "__since"
FAST, REGULAR, SLEEPLESS = "__fast", "__regular", "__sleepless"


@dataclass(frozen=True)
class Sample:
    """Figures of some keys, each with all of its events. Times: seconds, counts: as sampled.

    share: of all keys. histogram: (lower edge, number) of the intervals above zero, in bins on a log scale.
    clock: what all of them are multiples of: a minute, a second, or 0.
    """

    share: float
    events: int
    keys: int
    span: float
    intervals: int
    histogram: Sequence[tuple[float, int]]
    clock: float
    bots: "Bots"


@dataclass(frozen=True)
class Longer:
    """How many intervals are longer than a gap, and the sum of those that are not, in seconds."""

    gap: float
    number: int
    within: float


@dataclass(frozen=True)
class Bots:
    """Keys that look like bots, and their events; a key may look so in several ways."""

    keys: int = 0
    events: int = 0
    fast: int = 0
    regular: int = 0
    sleepless: int = 0


def intervals(events: DataFrame, rule: Rule, clock: WatermarkState, share: float) -> DataFrame:
    """The valid events of a share of the keys: the key columns, `__us`, `__since` (µs since the one before, or null).

    Every event of a key is there, or none: whether it is depends on the key's hash alone.
    """
    valid = validate(events, rule, clock).where(C.col(C.VERDICT).isNull())
    keys = C.cols(rule.key)
    if share < 1 and keys:
        valid = valid.where(F.pmod(F.xxhash64(*keys), F.lit(SALTS)) < F.lit(int(share * SALTS)))
    by_key = Window.partitionBy(*(keys or [F.lit(0)])).orderBy(C.US)
    since = (C.col(C.US) - F.lag(C.US).over(by_key)).alias(SINCE)
    return valid.select(*keys, C.col(C.US), since)


def bots(found: DataFrame, rule: Rule) -> DataFrame:
    """The keys that look like bots: the key columns, `__count`, `__fast`, `__regular`, `__sleepless` BOOLEAN.

    None where the rule has no key: events of many would look like those of one.
    """
    since, us = C.col(SINCE), C.col(C.US)
    by_key = found.groupBy(*C.cols(rule.key)).agg(
        F.count(F.lit(1)).alias(C.COUNT),
        (F.percentile_approx(since, F.lit(0.5), F.lit(1000)) <= FASTER_THAN).alias(FAST),
        (F.stddev(since) < MORE_REGULAR_THAN * F.avg(since)).alias(REGULAR),
        (F.count_distinct(floor_div(us, DAY // 24)) >= HOURS_A_DAY * F.count_distinct(floor_div(us, DAY))).alias(
            SLEEPLESS
        ),
    )
    return by_key.where(
        F.lit(bool(rule.key)) & (C.col(C.COUNT) >= BUSY) & (C.col(FAST) | C.col(REGULAR) | C.col(SLEEPLESS))
    )


def without_bots(found: DataFrame, rule: Rule) -> tuple[DataFrame, Bots]:
    """What `intervals` returns, without the keys that look like bots, and those. It is read several times."""
    suspects = Checkpoints().held(bots(found, rule))
    counts = suspects.agg(
        F.count(F.lit(1)), F.sum(C.COUNT), *[F.count_if(C.col(kind)) for kind in (FAST, REGULAR, SLEEPLESS)]
    ).collect()[0]
    kept = joined(found, suspects, rule.key, "left_anti") if counts[0] else found
    return kept, Bots(counts[0], counts[1] or 0, *counts[2:])


def sample(kept: DataFrame, share: float, suspects: Bots) -> Sample:
    """The figures of what `without_bots` returns."""
    since = C.col(SINCE)
    row = kept.agg(
        F.count(F.lit(1)),
        F.count_if(since.isNull()),
        F.count(since),
        F.percentile_approx(C.US, F.array(F.lit(0.005), F.lit(0.995)), F.lit(10_000)),
        *[F.count_if(since % F.lit(tick * 1_000_000) != 0) for tick in TICKS],
    ).collect()[0]
    edge = F.floor(F.log2(since / 1e6) * BINS_PER_DOUBLING).alias("edge")
    bins = kept.where((since > 0) & (since <= MOST * 1_000_000)).groupBy(edge).count().orderBy("edge").collect()
    low, high = row[3] or (0, 0)
    return Sample(
        share=share,
        events=row[0],
        keys=row[1],
        span=(high - low) / 0.99 / 1e6,
        intervals=row[2],
        histogram=[(2 ** (b["edge"] / BINS_PER_DOUBLING), b["count"]) for b in bins],
        clock=next((tick for tick, others in zip(TICKS, row[4:], strict=True) if not others), 0),
        bots=suspects,
    )


def longer(kept: DataFrame, gaps: Sequence[float]) -> list[Longer]:
    """For each gap, what of the intervals it leaves."""
    since = C.col(SINCE)
    limits = [round(gap * 1e6) for gap in gaps]
    each = [(F.count_if(since > limit), F.sum(F.when(since <= limit, since))) for limit in limits]
    row = kept.agg(*[figure for both in each for figure in both]).collect()[0]
    return [Longer(gap, row[2 * i], (row[2 * i + 1] or 0) / 1e6) for i, gap in enumerate(gaps)]
