"""The life of tables by name in a metastore, through the command line, and deaths on the way."""

import json

import pytest

from tests.catalogs.conftest import Made
from tests.catalogs.metastore import DATABASE

FIRST = "user,at,n\nann,2026-01-01 08:00:00,1\nann,2026-01-01 08:10:00,2\nbob,2026-01-01 10:50:00,3\n"
SECOND = "user,at,n\nann,2026-01-01 08:20:00,4\nbob,2026-01-01 12:00:00,5\neve,2025-12-01 12:00:00,6\ntorn\n"
THIRD = "user,at,n\ncat,2026-01-02 12:00:00,7\n"
AFTER_FIRST = ["ann,2,3", "bob,1,3"]
AFTER_SECOND = ["ann,3,7", "bob,1,3", "bob,1,5"]
TABLES = {"rejected_events", "runs", "sessions", "source"}
WINDOWS = {"rejected_window_events", "window_runs", "windows"}


@pytest.mark.broad
def test_another_process_finds_tables_by_name(made: Made) -> None:
    lake = made()
    assert "3 events added" in lake.ingest("first.csv", FIRST)
    lake("init")
    lake("run")
    assert lake.tables() == TABLES | WINDOWS
    told = lake.by_itself("sql", "--csv", "SELECT user, event_count, total FROM sessions ORDER BY user")
    assert told.splitlines()[1:] == AFTER_FIRST


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("prefix", [DATABASE, f"spark_catalog.{DATABASE}"])
def test_a_life_by_name(made: Made, prefix: str) -> None:
    lake = made(prefix)
    assert "only Spark can look at its tables" in lake("check-config")
    assert "3 events added" in lake.ingest("first.csv", FIRST)
    assert "at least 100 pairs" in lake.refused("advise")
    lake("init")
    assert lake.tables() == TABLES | WINDOWS
    assert lake.tables("default") == set()
    lake("run")
    lake("slide")
    assert lake.totals() == AFTER_FIRST
    told = lake.ingest("second.csv", SECOND)
    assert "3 events added" in told
    assert "1 line could not be read" in told
    lake("run")
    lake("slide")
    assert lake.totals() == AFTER_SECOND
    lake("backfill", "--from", "2026-01-01", "--to", "2026-01-02")
    assert lake.totals() == AFTER_SECOND
    lake("readmit")
    everything = [*AFTER_SECOND, "eve,1,6"]
    assert lake.totals() == everything
    assert lake.totals("--engine", "duckdb") == everything
    lake("maintain")
    for table in ((), ("--windows",)):
        assert "The table is right" in lake("verify", *table)
    assert len(json.loads(lake("runs", "--json"))) == 4
    assert sum(json.loads(lake("status", "--json"))["sessions"].values()) == len(everything)
    assert "ann" in lake("sessions", "--key", "ann")
    assert "ann" in lake("windows", "--key", "ann")
    assert lake("changes", "--mode", "append", "--csv").splitlines()
    assert "wrote page.html" in lake("report", "-o", "page.html")
    assert f"{prefix}.sessions" in lake("show")
    lake("rebuild", "--yes")
    assert lake.totals() == everything
    assert "The table is right" in lake("verify")
    assert lake.tables() == TABLES | WINDOWS


@pytest.mark.broad
def test_a_restore_to_before_it_was_replaced_and_rebuilt_is_refused(made: Made) -> None:
    lake = made()
    lake.ingest("first.csv", FIRST)
    lake("init")
    lake("run")
    lake.ingest("second.csv", SECOND)
    lake("run")
    log = lake.place(DATABASE, "sessions") / "_delta_log"
    then = max(int(entry.stem) for entry in log.glob("*.json"))
    lake.sql(
        f"CREATE OR REPLACE TABLE {DATABASE}.sessions USING delta PARTITIONED BY (is_final) "
        f"AS SELECT * FROM {DATABASE}.sessions"
    )
    assert "has been replaced since its last run" in lake.refused("run")
    lake("rebuild", "--yes")
    rebuilt = max(int(entry.stem) for entry in log.glob("*.json"))
    lake.sql(f"RESTORE TABLE {DATABASE}.sessions TO VERSION AS OF {then}")
    assert "was restored to before it was replaced" in lake.refused("run")
    lake.sql(f"RESTORE TABLE {DATABASE}.sessions TO VERSION AS OF {rebuilt}")
    lake.ingest("third.csv", THIRD)
    lake("run")
    assert lake.totals() == [*AFTER_SECOND, "cat,1,7", "eve,1,6"]
    assert "The table is right" in lake("verify")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_deaths_are_mended_by_the_next_run(made: Made) -> None:
    lake = made()
    lake.ingest("first.csv", FIRST)
    lake.killed("init", 2, after=True)
    lake("init")
    assert lake.tables() == TABLES | WINDOWS
    lake("run")
    lake.ingest("second.csv", SECOND)
    lake.killed("run", 1, after=True)
    assert lake.totals() == AFTER_SECOND  # the commit is there, and what comes behind it is not
    assert lake("sql", "--csv", "SELECT count(*) FROM runs").splitlines()[1:] == ["1"]
    lake("run")
    assert lake("sql", "--csv", "SELECT count(*) FROM runs").splitlines()[1:] == ["2"]
    lake.ingest("third.csv", THIRD)
    lake.killed("run", 1, after=False)
    lake("run")
    assert lake.totals() == [*AFTER_SECOND[:3], "cat,1,7"]
    assert "The table is right" in lake("verify")
