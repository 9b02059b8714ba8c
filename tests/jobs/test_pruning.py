"""A look at one day of a year reads the files of that day and its neighbours, not the table."""

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.run import compute
from sessionizer.tables import layout
from tests.oracle import us
from tests.scans import scans
from tests.text_tables import clock
from tests.warehouse import NOW, Warehouse

DAYS, USERS, FILES = 365, 20, 73
YEAR_BEFORE = clock("0:00") - timedelta(days=DAYS)
DAY = us(YEAR_BEFORE + timedelta(days=200))


@pytest.fixture(scope="module")
def year(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A session of each user every day; files of five days in the source, of about five in sessions."""
    warehouse = Warehouse(spark, tmp_path_factory.mktemp("year"))
    seconds = F.col("id") * (24 * 3600 // USERS)
    events = spark.range(DAYS * USERS).select(
        F.concat(F.lit("u"), F.col("id") % USERS).alias("user"),
        F.timestamp_seconds(F.lit(us(YEAR_BEFORE) // 1_000_000) + seconds).alias("at"),
        F.lit(1).alias("n"),
    )
    warehouse.append_frame(events.repartitionByRange(FILES, "at"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layout, "ROWS_PER_FILE", 100)
        warehouse.init().run()
    return warehouse


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever small tables are read at once."""
    monkeypatch.setattr(compute, "FEW", 0)


@pytest.mark.broad
def test_a_backfill_of_a_day_reads_the_files_of_that_day(year: Warehouse) -> None:
    table, source = year.config.sessions.table, year.config.source.table
    assert len(year.tables.sessions.table.read().inputFiles()) >= FILES
    year.delta().update(F.col("session_start") == F.timestamp_micros(F.lit(DAY)), {"total": F.lit(9)})
    with scans(year.spark, table, source) as read:
        (report,) = backfill(year.kind, LookBack(DAY, DAY + 24 * 3600 * 1_000_000, now=NOW))
    assert report.manifest.sessions["updated"] == 1
    assert read.of(source), read
    assert max(read.of(source)) <= 3, read
    assert read.of(table), read
    assert max(read.of(table)) <= 4, read


@pytest.mark.slow
def test_verifying_a_day_reads_the_files_of_that_day(year: Warehouse) -> None:
    table, source = year.config.sessions.table, year.config.source.table
    with scans(year.spark, table, source) as read:
        verdict = verify(year.spark, year.config, Asked(DAY, DAY + 24 * 3600 * 1_000_000))
    assert (verdict.clean, verdict.sessions) == (True, USERS)
    assert read.of(source), read
    assert max(read.of(source)) <= 3, read
    assert max(read.of(table)) <= 4, read
