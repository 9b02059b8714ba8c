"""Many rows: fifty million events pass through 2 GiB, five million real ones are all counted; minutes each."""

import json
import os
import shutil
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
from sessionizer.lib import columns as C
from tests.jobs.test_real_data import assert_counts_add_up, csv, sessions_of
from tests.summary import Tally
from tests.warehouse import Warehouse

pytestmark = pytest.mark.many_rows

MANY = 50_000_000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A folder that goes at once, as gigabytes lie in it."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


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
        [sys.executable, "-m", "sessionizer.jobs.cli", "run", "--config", str(config), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tally.note("size: 50 million events through 2 GiB, seconds", f"{time.perf_counter() - began:.0f}")
    assert ours.sessions().agg(F.sum("event_count")).collect()[0][0] == MANY


@pytest.mark.realdata
@pytest.mark.timeout(1800)
def test_five_million_lines_of_chat_are_all_counted(spark: SparkSession, tmp_path: Path, shared_data: Path) -> None:
    warehouse = Warehouse(
        spark,
        tmp_path,
        source={"key": ["channel", "user_hash"], "event_time": "ts"},
        limits={"max_versions_per_run": 1},
        time={"allowed_lateness": "3650d"},
        aggregates=[{"name": "kinds", "fn": "set", "of": "kind"}, {"name": "first_kind", "fn": "first", "of": "kind"}],
    )
    folder = shared_data / "irc_web_platform"
    for file in ("irc_whatwg.csv.gz", "irc_developers.csv.gz"):
        warehouse.append_frame(csv(spark, folder / file).withColumn("ts", F.col("ts").cast("timestamp")))
    warehouse.init().run()
    assert [n for (n,) in warehouse.ledger("accepted")] == [2_196_257, 2_942_778]
    assert_counts_add_up(warehouse)
    shape = sessions_of(warehouse).agg(
        F.count(F.lit(1)), F.count_distinct(C.SESSION_ID), F.count_distinct("channel", "user_hash")
    )
    sessions, ids, people = shape.collect()[0]
    assert (ids, people) == (sessions, 13_520 + 15_387)
