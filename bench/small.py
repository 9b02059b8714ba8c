"""What an increment costs over what it cannot avoid: 10k events into 300k sessions, against a bare MERGE.

`make bench` prints it. Both sides run warm in one process, in turn, on the same rows; only the ratio means anything.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from jobs.init import init
from jobs.sessionize import RunOptions, RunReport, run
from jobs.spark import spark_session
from lib.config import Config
from tables.delta import Commit
from tables.delta import Table as DeltaTable

SESSIONS, EVENTS, USERS, DAYS, ROUNDS, WARM_UP = 300_000, 10_000, 50_000, 10, 5, 2
START = 1_760_000_000  # seconds
ALLOWED = 4.0


def clicks(spark: SparkSession, rows: int, seed: int, first: int, seconds: int) -> DataFrame:
    """Seeded events: users with a long tail, times over `seconds`, bursts of a few events."""
    ids = spark.range(rows)
    burst = F.floor(F.col("id") / 4)
    user = F.floor(F.pow(_random(burst, seed), 2) * USERS).cast("string")
    begin = first + F.floor(_random(burst, seed + 1) * (seconds - 600))
    within = F.floor(_random(F.col("id"), seed + 2) * 600)
    return ids.select(
        F.concat(F.lit("user-"), user).alias("user_id"),
        F.timestamp_seconds(begin + within).alias("event_time"),
        F.concat(F.lit("/p/"), (F.col("id") % 97).cast("string")).alias("page"),
        (_random(F.col("id"), seed + 3) * 100).cast("decimal(10,2)").alias("amount"),
    )


def _random(of, seed: int):  # type: ignore[no-untyped-def]
    return F.pmod(F.xxhash64(of, F.lit(seed)), F.lit(1_000_003)) / 1_000_003


def config_for(folder: Path) -> Config:
    return Config.model_validate(
        {
            "source": {"table": str(folder / "events"), "key": ["user_id"]},
            "sessions": {"table": str(folder / "sessions")},
            "session": {"gap": "30m"},
            "aggregates": [
                {"name": "revenue", "fn": "sum", "of": "amount"},
                {"name": "entry_page", "fn": "first", "of": "page"},
            ],
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--events", type=int, default=EVENTS)
    options = parser.parse_args()
    spark = spark_session()
    folder = Path(tempfile.mkdtemp(prefix="sessionizer-bench-"))
    try:
        ours, bare, reports = measure(spark, folder, options.sessions, options.events)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(ours, bare, reports)


def measure(
    spark: SparkSession, folder: Path, sessions: int, events: int
) -> tuple[list[float], list[float], list[RunReport]]:
    """Seconds of runs and of bare MERGEs of the rows that those runs changed, and the runs' reports."""
    config = config_for(folder)
    source = DeltaTable(spark, config.source.table, "source.table")
    history = clicks(spark, sessions * 4, 1, START, DAYS * 86_400)
    source.create(history.schema, [], {"delta.enableChangeDataFeed": "true"})
    source.append(history, Commit("bench", 0))
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions())
    ours, bare, reports = [], [], []
    for number in range(1, ROUNDS + WARM_UP + 1):
        begin = START + DAYS * 86_400 + (number - 1) * 1800
        source.append(clicks(spark, events, 100 * number, begin, 1800).coalesce(1), Commit("bench", number))
        before = DeltaTable(spark, config.sessions.table, "sessions.table").version
        started = time.perf_counter()
        (report,) = run(spark, config, RunOptions())
        took = time.perf_counter() - started
        merged = _bare_merge(spark, config, before, folder / f"bare-{number}", report)
        if number > WARM_UP:
            ours.append(took)
            bare.append(merged)
            reports.append(report)
    return ours, bare, reports


def _bare_merge(spark: SparkSession, config: Config, before: int, target: Path, report: RunReport) -> float:
    """Seconds to MERGE the same changed rows into the same table as it was before, and nothing else."""
    table = DeltaTable(spark, config.sessions.table, "sessions.table")
    copy = DeltaTable(spark, str(target), "bare")
    copy.create(
        table.schema,
        ["is_final"],
        {"delta.enableChangeDataFeed": "true", "delta.dataSkippingStatsColumns": "session_id,session_start"},
    )
    copy.append(table.read(before), Commit("copy", 1))
    feed = table.changes(before + 1, before + 1).where("_change_type <> 'update_preimage'")
    change = F.when(F.col("_change_type") == "delete", "delete").otherwise("upsert").alias("__change")
    changed = feed.select(*table.schema.fieldNames(), change).localCheckpoint()
    started = time.perf_counter()
    copy.merge(
        changed,
        "t.session_id = s.session_id AND t.is_final = false",
        Commit("bare", 1),
        delete_when="s.__change = 'delete'",
    )
    took = time.perf_counter() - started
    shutil.rmtree(target)
    return took


def show(ours: list[float], bare: list[float], reports: list[RunReport]) -> None:
    """The medians, their ratio and where the time of a run goes."""
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    out = Console(width=100, highlight=False)
    last = reports[-1].manifest
    out.print(
        f"{last.events['events_read']:,} events, {last.sessions['rows']:,} changed rows, {last.live_sessions:,} live; "
        f"medians of {len(ours)} after {WARM_UP} to warm up\n"
    )
    table = Table(box=None, pad_edge=False)
    for header in ("", "seconds", "min", "max"):
        table.add_column(header, justify="left" if not header else "right")
    for name, values in {"one run": ours, "bare MERGE of the same rows": bare}.items():
        table.add_row(name, *(f"{f(values):.2f}" for f in (statistics.median, min, max)))
    for phase in reports[-1].timing.seconds or {}:
        values = [(r.timing.seconds or {}).get(phase, 0.0) for r in reports]
        table.add_row(f"  of it {phase}", *(f"{f(values):.2f}" for f in (statistics.median, min, max)))
    out.print(table)
    out.print(f"\nratio {ratio:.2f} (at most {ALLOWED:.0f} is promised)")
    if ratio > ALLOWED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
