"""Size and skew: a key that makes a third of all events costs no more, and 50 million events pass through 2 GiB."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.clicks import Clicks, make_source
from bench.ways import Ours
from tests.summary import Tally

pytestmark = pytest.mark.many_rows

SKEWED, ROUNDS = 20_000_000, 3
MANY = 50_000_000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A folder that goes at once, as gigabytes lie in it."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_key_with_a_third_of_all_events_takes_no_longer(spark: SparkSession, roomy: Path, tally: Tally) -> None:
    users = SKEWED // 40
    ways = {}
    for name, share in (("even", 0.0), ("skewed", 0.3)):
        make_source(Clicks(SKEWED, users, one_key=share).of(spark), roomy / name)
        ways[name] = Ours(spark, roomy / name, roomy / f"of-{name}")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, ours in ways.items():
            ours.forget()
            began = time.perf_counter()
            ours.load()
            seconds[name].append(time.perf_counter() - began)
    even, skewed = (statistics.median(seconds[name]) for name in ("even", "skewed"))
    tally.note("skew: one key with 30 % of 20 million events, to none", f"{skewed / even:.2f}")
    assert skewed <= 1.3 * even


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_million_events_pass_through_a_driver_of_two_gib(spark: SparkSession, roomy: Path, tally: Tally) -> None:
    make_source(Clicks(MANY, MANY // 40).of(spark), roomy / "events")
    ours = Ours(spark, roomy / "events", roomy)
    ours.forget()
    config = roomy / "sessionizer.yaml"
    shown = ours.config.model_dump(mode="json", exclude_unset=True)
    config.write_text(json.dumps({**shown, "spark": {"spark.driver.memory": "2g"}}))
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli", "run", "--config", str(config), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tally.note("size: 50 million events through 2 GiB, seconds", f"{time.perf_counter() - began:.0f}")
    assert ours.sessions().agg(F.sum("event_count")).collect()[0][0] == MANY
