"""Exact sliding windows against Spark's hopping windows: the same events, the same aggregates, one process.

`python -m bench.sliding` prints medians and ratios. Both sides read Parquet and throw their rows away; they run in
turn, warm, so that only ratios mean anything. Hopping windows of 10 minutes every minute know ten positions for each
event; sliding windows know all that hold different events.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from sessionizer.jobs.spark import spark_session
from sessionizer.lib.admission.validate import validate
from sessionizer.lib.aggregates.binding import bind
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.sliding.windows import points, windows
from sessionizer.lib.windows.windows import Stored
from tests.frames import slide

MINUTE = 60_000_000
D, PER_WINDOW = 10 * MINUTE, 20
EVENTS, LARGE, ROUNDS, WARM_UP = 1_000_000, 5, 3, 2
START = 1_760_000_000_000  # milliseconds
OF_KEY = 5_000  # events of each user
ALLOWED = 3.0
TOTAL = Aggregate.model_validate({"name": "total", "fn": "sum", "of": "n"})
RULE = SlidingRule(Rule(key=("user",), gap=D, event_time="at", time_unit=1_000, aggregates=(TOTAL,)), D)
CLOCK = WatermarkState(now=2**60)


def events(spark: SparkSession, rows: int) -> DataFrame:
    """Seeded events of users, so dense that a window of d holds PER_WINDOW of them on average."""
    milliseconds = OF_KEY * (D // PER_WINDOW) // 1000
    ids = spark.range(rows)
    return ids.select(
        F.concat(F.lit("user-"), F.floor(_random(1) * (rows // OF_KEY)).cast("string")).alias("user"),
        F.timestamp_millis(F.lit(START) + F.floor(_random(2) * milliseconds)).alias("at"),
        F.floor(_random(3) * 100).cast("bigint").alias("n"),
    )


def _random(seed: int):
    return F.pmod(F.xxhash64(F.col("id"), F.lit(seed)), F.lit(1_000_003)) / 1_000_003


def hopping(of: DataFrame) -> DataFrame:
    """What Spark has."""
    grouped = of.groupBy("user", F.window("at", "10 minutes", "1 minute"))
    return grouped.agg(F.count(F.lit(1)).alias("events"), F.max("at").alias("last"), F.sum("n").alias("total"))


def sliding(of: DataFrame) -> DataFrame:
    """The pure step: events to windows."""
    aggregates = bind(RULE.events, of)
    return windows(points(validate(of, RULE.events, CLOCK), RULE, aggregates), RULE, aggregates, early=False)


def whole_run(of: DataFrame) -> DataFrame:
    """A first run but for the table: judged, folded, held, settled, counted."""
    return slide(of, Stored(), RULE, CLOCK).changes


WAYS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "hopping (10 min every minute)": hopping,
    "sliding": sliding,
    "sliding, whole run": whole_run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    spark = spark_session()
    folder = Path(tempfile.mkdtemp(prefix="sessionizer-bench-"))
    try:
        found = {n: measure(spark, folder, n, options.rounds) for n in (options.events, LARGE * options.events)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(found)


def measure(spark: SparkSession, folder: Path, rows: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in turn, after warming up."""
    path = str(folder / f"events-{rows}")
    events(spark, rows).write.parquet(path)
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(WARM_UP + rounds):
        for name, way in WAYS.items():
            started = time.perf_counter()
            way(spark.read.parquet(path)).write.format("noop").mode("overwrite").save()
            seconds = time.perf_counter() - started
            sys.stderr.write(f"{rows:,} events, {name}: {seconds:.2f} s{' (warm-up)' * (number < WARM_UP)}\n")
            if number >= WARM_UP:
                taken[name].append(seconds)
    return taken


def show(found: dict[int, dict[str, list[float]]]) -> None:
    """Medians, ratios to hopping windows, and how time grows with the number of events."""
    out = Console(width=100, highlight=False)
    table = Table(box=None, pad_edge=False)
    for header in ("events", "", "seconds", "min", "max", "to hopping"):
        table.add_column(header, justify="left" if not header else "right")
    medians = {n: {name: statistics.median(taken) for name, taken in ways.items()} for n, ways in found.items()}
    base = next(iter(WAYS))
    for n, ways in found.items():
        for name, taken in ways.items():
            ratio = medians[n][name] / medians[n][base]
            numbers = (f"{f(taken):.2f}" for f in (statistics.median, min, max))
            table.add_row(f"{n:,}", name, *numbers, f"{ratio:.2f}")
    out.print(table)
    (small, large), worst = medians, max(medians[n]["sliding"] / medians[n][base] for n in medians)
    for name in WAYS:
        growth = medians[large][name] / medians[small][name]
        out.print(f"{large / small:.0f} times the events take {growth:.1f} times the time: {name}")
    out.print(f"\nsliding to hopping {worst:.2f} (at most {ALLOWED:.0f} is promised)")
    if worst > ALLOWED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
