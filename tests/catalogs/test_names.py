"""Names behind which something else lies than a table of the product: each is told in one sentence."""

import shutil

import pytest

from sessionizer.lib.errors import ConfigError
from tests.catalogs.metastore import Lake

EVENTS = "user,at,n\nann,2026-01-01 08:00:00,1\nann,2026-01-01 08:10:00,2\nbob,2026-01-01 10:50:00,3\n"
COLUMNS = "user STRING, at TIMESTAMP, n INT"
INGEST = ("ingest", "events.csv", "--schema", "n int")
ASKING = (("status",), ("report", "-o", "page.html"), ("show",), ("sql", "SELECT * FROM sessions"))
EACH = (INGEST, ("init",), ("run",), ("verify",), ("maintain",), ("advise",), ("rebuild", "--yes"), *ASKING)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def lake(shared: Lake) -> Lake:
    """With events, and tables that a run has filled."""
    shared.ingest("events.csv", EVENTS)
    shared("init")
    shared("run")
    return shared


def database(lake: Lake, name: str) -> str:
    """A database with events of its own, and the file of a config whose tables lie in it."""
    lake.sql(f"CREATE DATABASE {name}")
    file = f"{name}.yaml"
    lake.named(file, name)
    lake.ingest("events.csv", EVENTS, file)
    return file


@pytest.mark.parametrize("prefix", ["nowhere", "spark_catalog.nowhere", "nowhere.lake"])
def test_a_database_that_is_not_there(lake: Lake, prefix: str) -> None:
    lake.named("none.yaml", prefix)
    for command in EACH:
        told = lake.refused(*command, config="none.yaml")
        assert "must lie in a database that the catalog has: got 'nowhere." in told.replace("spark_catalog.", "")
        assert f"CREATE DATABASE {prefix}, by spark-sql" in told


def test_a_database_of_sessions_that_is_not_there(lake: Lake) -> None:
    lake.named("half.yaml", sessions="nowhere.sessions")
    for command in (("init",), ("run",), ("status",)):
        assert "sessions.table must lie in a database" in lake.refused(*command, config="half.yaml")


@pytest.mark.parametrize(
    ("made_by", "there"),
    [
        ("VIEW {} AS SELECT * FROM lake.source", "a view"),
        (f"TABLE {{}} ({COLUMNS}) USING parquet", "a table of format parquet"),
        (f"TABLE {{}} ({COLUMNS}) STORED AS TEXTFILE", "a table of format hive"),
    ],
)
def test_what_is_no_delta_table(lake: Lake, made_by: str, there: str) -> None:
    lake.sql("CREATE DATABASE other")
    for name in ("source", "sessions", "windows"):
        lake.sql(f"CREATE {made_by.format(f'other.{name}')}")
    before = [lake.sql(f"DESCRIBE EXTENDED other.{name}") for name in ("source", "sessions", "windows")]
    try:
        lake.named("source.yaml", source="other.source")
        lake.named("sessions.yaml", sessions="other.sessions")
        lake.named("windows.yaml", windows="other.windows")
        says = f"must be a Delta table, and this is not one: the catalog has {there}: got 'other."
        for command in EACH:
            assert f"source.table {says}" in lake.refused(*command, config="source.yaml")
        for command in (("init",), ("run",), ("verify",), *ASKING):
            assert f"sessions.table {says}" in lake.refused(*command, config="sessions.yaml")
        for command in (("init",), ("slide",), ("verify", "--windows"), ("show",)):
            assert f"sliding.table {says}" in lake.refused(*command, config="windows.yaml")
        assert [lake.sql(f"DESCRIBE EXTENDED other.{name}") for name in ("source", "sessions", "windows")] == before
    finally:
        lake.sql("DROP DATABASE other CASCADE")


def test_a_table_whose_files_are_gone(lake: Lake) -> None:
    file = database(lake, "hollow")
    lake("init", config=file)
    shutil.rmtree(lake.place("hollow", "sessions"))
    for command in (("init",), ("run",), ("verify",), *ASKING):
        assert "sessions.table is in the catalog, and its files are gone" in lake.refused(*command, config=file)


def test_a_folder_that_the_catalog_knows_nothing_of(lake: Lake) -> None:
    lake.sql("CREATE DATABASE left")
    lake.named("left.yaml", "left")
    place = lake.place("left", "source")
    lake.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta")
    told = lake.refused(*INGEST, config="left.yaml")
    assert "source.table cannot be made: its folder has files, and the catalog knows of no table there" in told
    assert str(place) in told
    lake.sql(f"CREATE TABLE left.source USING delta LOCATION '{place}'")
    assert "3 events added" in lake(*INGEST, config="left.yaml")


def test_tables_that_were_dropped_and_made_again(lake: Lake) -> None:
    file = database(lake, "anew")
    lake("init", config=file)
    lake("run", config=file)
    lake.sql("DROP TABLE anew.source")
    lake(*INGEST, config=file)
    assert "it was dropped and made again" in lake.refused("run", config=file)
    lake.sql("DROP TABLE anew.rejected_events")
    assert "outputs.rejected_events does not exist" in lake.refused("run", config=file)
    lake("init", config=file)
    assert "is not the table that runs have written to" in lake.refused("run", config=file)
    lake.sql("DROP TABLE anew.sessions")
    assert "sessions.table does not exist" in lake.refused("status", config=file)
    lake("init", config=file)
    assert "must be empty, for sessions know of no run" in lake.refused("run", config=file)


def test_names_in_other_cases_are_the_same(lake: Lake) -> None:
    lake.named("upper.yaml", "SPARK_CATALOG.LAKE")
    assert "already there" in lake(*INGEST, config="upper.yaml")
    lake("init", config="upper.yaml")
    assert "Nothing new" in lake("run", config="upper.yaml")
    with pytest.raises(ConfigError, match=r"source\.table and sessions\.table must not be the same place"):
        lake.named("same.yaml", sessions="spark_catalog.LAKE.source")
