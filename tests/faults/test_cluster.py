"""On a real cluster the tables are those of one machine, whichever process dies."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from sessionizer.jobs.spark import cache_folder
from sessionizer.lib import columns as C
from tests.faults.cluster import SPARK, Cluster
from tests.faults.lakes import SPAN, TRACED, Contents, contents, lake_at, lost_and_doubled, made
from tests.jobs.driver import JOBS
from tests.processes import ROOT, Worker, wait_until
from tests.summary import Tally
from tests.text_tables import clock
from tests.warehouse import MORE_EVENTS, NOW, Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.many_rows, pytest.mark.timeout(1200)]
STEPS = (("run", {"now": NOW}), ("backfill", SPAN))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process whose work is done by the cluster."""
    with Worker(tmp_path_factory.mktemp("driver") / "log", cluster.settings) as worker:
        yield worker.wait_ready()


@pytest.fixture(scope="module")
def locally(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """FIRST_EVENTS and MORE_EVENTS, run and backfilled on one machine."""
    lake = lake_at(spark, tmp_path_factory.mktemp("locally"), *TRACED)
    made(lake)
    lake.run()
    lake.append(MORE_EVENTS)
    for job, options in STEPS:
        JOBS[job](spark, lake.config, **options)
    return lake


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    """Events of 2,000 users, which no run has read: enough to be shared out; and what a run on one machine makes."""
    folder = tmp_path_factory.mktemp("prepared")
    lake = lake_at(spark, folder / "waiting")
    lake.folder.mkdir()
    start = clock("0:00")
    lake.append_frame(
        spark.range(0, 200_000, 1, 4).selectExpr(
            "concat('user-', id % 2000) AS user",
            f"timestamp '{start:%Y-%m-%d %H:%M:%S}' + make_interval(0, 0, 0, 0, 0, 0, (id * 7919) % 86400) AS at",
            "CAST(id AS INT) AS n",
        )
    )
    lake.init()
    shutil.copytree(lake.folder, folder / "locally")
    lake_at(spark, folder / "locally").run()
    return lake.folder, contents(folder / "locally")


@pytest.fixture
def waiting(spark: SparkSession, prepared: tuple[Path, Contents], tmp_path: Path) -> Warehouse:
    """A lake of these events, for one test."""
    shutil.copytree(prepared[0], tmp_path / "waiting")
    return lake_at(spark, tmp_path / "waiting")


@pytest.fixture
def expected(prepared: tuple[Path, Contents]) -> Contents:
    """What a run on one machine makes of them."""
    return prepared[1]


def test_the_tables_made_there_are_those_of_one_machine(
    spark: SparkSession, cluster: Cluster, driver: Worker, locally: Warehouse, tmp_path: Path
) -> None:
    lake = lake_at(spark, tmp_path, *TRACED)
    made(lake)
    driver.do("run", lake.config, now=NOW)
    lake.append(MORE_EVENTS)
    for job, options in STEPS:
        driver.do(job, lake.config, **options)
    assert len(cluster.executors()) == 2
    assert lost_and_doubled(contents(locally.folder), contents(lake.folder)) == (0, 0)
    assert driver.do("verify", lake.config)


def test_a_run_completes_although_its_executors_die_with_what_they_have_computed(
    cluster: Cluster, driver: Worker, waiting: Warehouse, expected: Contents, tally: Tally
) -> None:
    wait_until("no executors", cluster.has_executors)
    dying = cluster.executors()
    driver.ask("run", waiting.config, (1, False, dying), now=NOW)
    assert driver.answer() == [200_000]
    assert "an executor was lost with what it had computed: starting over" in driver.log.read_text()
    tally.add("faults tried")
    lost, doubled = lost_and_doubled(expected, contents(waiting.folder))
    tally.add("rows lost", lost)
    tally.add("rows doubled", doubled)
    assert (lost, doubled) == (0, 0)
    tally.add("faults survived")


def test_a_run_completes_although_an_executor_dies_at_any_moment(
    cluster: Cluster, driver: Worker, waiting: Warehouse, expected: Contents, tmp_path: Path, tally: Tally
) -> None:
    for number, seconds in enumerate((0.7, 2)):
        shutil.copytree(waiting.folder, tmp_path / str(number))
        lake = lake_at(waiting.spark, tmp_path / str(number))
        wait_until("no executors", cluster.has_executors)
        driver.ask("run", lake.config, now=NOW)
        time.sleep(seconds)
        os.kill(cluster.executors()[number % 2], 9)
        driver.answer()
        tally.add("faults tried")
        assert lost_and_doubled(expected, contents(lake.folder)) == (0, 0), seconds
        tally.add("faults survived")


def test_a_driver_that_dies_there_is_followed_by_one_that_repairs(
    driver: Worker, waiting: Warehouse, expected: Contents, tally: Tally
) -> None:
    driver.ask("run", waiting.config, (1, True, []), now=NOW)
    assert driver.ended() == -9
    tally.add("faults tried")
    assert waiting.ledger(C.RUN_ID) == []
    assert JOBS["run"](waiting.spark, waiting.config, now=NOW) == []
    assert lost_and_doubled(expected, contents(waiting.folder)) == (0, 0)
    tally.add("faults survived")


def test_spark_submit_takes_the_product_as_a_zip(
    cluster: Cluster, driver: Worker, waiting: Warehouse, expected: Contents, tmp_path: Path
) -> None:
    driver.kill()  # it would keep the cores
    config = waiting.config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    (tmp_path / "sessionizer.yaml").write_text(yaml.safe_dump(config))
    with zipfile.ZipFile(tmp_path / "sessionizer.zip", "w") as packed:
        for file in (ROOT / "sessionizer").rglob("*"):
            if file.suffix != ".pyc":
                packed.write(file, file.relative_to(ROOT))
    (tmp_path / "main.py").write_text("from sessionizer.jobs.cli import main\n\nmain()\n")
    jars = ",".join(map(str, sorted((cache_folder() / "jars").glob("*.jar"))))
    settings = [word for name, value in cluster.settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.url, *settings, "--jars", jars]
    product = ["--py-files", "sessionizer.zip", "main.py", "run", "--config", "sessionizer.yaml", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, *product],
        cwd=tmp_path,
        env=environment | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert '"accepted": 200000' in done.stdout
    assert lost_and_doubled(expected, contents(waiting.folder)) == (0, 0)
