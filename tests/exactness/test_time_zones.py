"""Whatever zone the process is in, times are those of the events: Python's own would shift, merge or refuse some."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import Play, minute

pytestmark = pytest.mark.slow


@pytest.fixture(params=["Europe/Berlin", "America/New_York"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in another zone; Spark's session is not."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_keys_that_are_times_have_a_watermark_each_in_an_hour_that_comes_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, source={"key": ["z", "u"]}, time={"watermark": {"per": ["z"]}})
    # The clocks go back at 01:00 UTC in Berlin, at 06:00 UTC in New York.
    zones = ["2026-10-25 00:30:00", "2026-10-25 01:30:00", "2026-11-01 05:30:00", "2026-11-01 06:30:00"]

    def run(at: int, *of: str) -> None:
        rows = [f"(TIMESTAMP'{zone}', 'a', TIMESTAMP'{minute(at)}', 1)" for zone in of]
        done.append_frame(spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(z, u, at, n)"))
        if not done.tables.sessions.table.exists():
            done.init()
        done.run()

    run(5, *zones)
    run(100, zones[0], zones[2])
    run(8, *zones)
    rows = done.tables.sessions.table.read().selectExpr("string(z)", "event_count", "is_final").collect()
    late = [(zone, 1, final) for zone in (zones[0], zones[2]) for final in (False, True)]
    assert sorted(map(tuple, rows)) == sorted([*late, (zones[1], 2, False), (zones[3], 2, False)])
    done.assert_clean()


@pytest.mark.usefixtures("elsewhere")
def test_differences_in_the_year_1_are_told_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).add("a@5")
    done.source("INSERT INTO {} SELECT 'b', TIMESTAMP'0001-01-01 00:05:00', 1").init().run()
    done.damage("UPDATE {} SET total = 9 WHERE u = 'b'")
    (wrong,) = done.verify().wrong
    assert wrong["found"]["session_start"] == wrong["expected"]["session_start"] == "0001-01-01T00:05:00.000000Z"
    assert (wrong["found"]["total"], wrong["expected"]["total"], wrong["columns"]) == (9, 1, ["total"])
