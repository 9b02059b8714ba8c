"""Skew: a key that makes a third of all events costs no more."""

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.clicks import Clicks, make_source
from bench.ways import Ours
from tests.summary import Tally

pytestmark = pytest.mark.many_rows

SKEWED, ROUNDS = 10_000_000, 3


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
    tally.note("skew: one key with 30 % of 10 million events, to none", f"{skewed / even:.2f}")
    assert skewed <= 1.3 * even
