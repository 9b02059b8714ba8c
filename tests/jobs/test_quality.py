"""Great Expectations, for real: checks of the tables, and the gate before a commit."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands import rebuild_plan
from sessionizer.jobs.commands.check import Asked, Checked, as_document, check, show
from sessionizer.jobs.quality.checks import Quality
from sessionizer.jobs.quality.expectations import UNEXPECTED_ROWS, read_suite, sessions_suite
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, RunFailed
from tests.browser import looked_at, needs_browser, seen_in_every_way, tab
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

NOW = us(clock("+1d 13:10"))
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Great Expectations and what it imports
POSITIVE: dict[str, Any] = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "min_value": 0}}


def suite_file(folder: Path, *expectations: dict[str, Any], name: str = "own.json") -> Path:
    file = folder / name
    file.write_text(json.dumps({"name": "own", "expectations": expectations}))
    return file


@pytest.fixture(scope="module")
def checked(lake_to_see: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    folder = tmp_path_factory.mktemp("checked")
    own = suite_file(folder, POSITIVE)
    asked = Asked(NOW, most_late=0.2, longest_lag=2 * 3_600_000_000, suites=(own,), docs=folder / "docs")
    return check(lake_to_see.kind, asked, lambda _: None)


@pytest.mark.slow
def test_the_tables_of_a_run_hold_what_they_promise(checked: Checked) -> None:
    assert [v for v in checked.verdicts if not v.holds] == []
    assert {v.suite for v in checked.verdicts} == {"sessions", "own", "rejected_events", "events", "runs"}
    assert checked.exit_code == 0


@pytest.mark.slow
def test_the_data_docs_load_nothing_and_say_what_was_checked(checked: Checked) -> None:
    index = Path(checked.docs)
    pages = sorted(index.parent.rglob("*.html"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(
            r"<(?:script|img|iframe)|<link(?! rel=\"icon\" href=\"data:)|\ssrc=|url\(|@import|\son\w+=", text
        )
    links = re.findall(r'<a href="([^"]+)">', index.read_text(encoding="utf-8"))
    assert {(index.parent / link).resolve() for link in links} == {p.resolve() for p in pages if p != index}
    assert len([link for link in links if link.startswith("validations/own/")]) == 1
    (own,) = index.parent.glob("validations/own/**/*.html")
    assert "values must be greater than or equal to" in own.read_text(encoding="utf-8")


@needs_browser
@pytest.mark.slow
def test_a_browser_without_network_shows_the_data_docs_without_complaint(checked: Checked, tmp_path: Path) -> None:
    index = Path(checked.docs)
    (own,) = index.parent.glob("validations/own/**/*.html")
    for page in (index, own, index.parent / "expectations" / "own.html"):
        seen_in_every_way(page, tmp_path)
    with tab(tmp_path) as browser:
        text = looked_at(browser, index, 390, "light").text
    assert "✓ holds" in text
    assert "✗ broken" not in text


@pytest.mark.slow
def test_what_is_broken_is_told_apart_from_what_crashed(
    lake_to_see: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashes = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "nobody", "min_value": 0}}
    own = suite_file(tmp_path, crashes)
    asked = Asked(NOW, most_late=0.01, longest_lag=60_000_000, suites=(own,), docs=tmp_path / "docs")
    found = check(lake_to_see.kind, asked, lambda _: None)
    document = as_document(found)
    assert (found.exit_code, document["broken"], document["errors"]) == (3, 2, 1)
    (error,) = [v for v in found.verdicts if v.error is not None]
    assert (error.suite, error.holds, error.broken, error.rows) == ("own", False, None, ())
    assert "nobody" in str(error.error)
    broken = {v.why for v in found.verdicts if not v.holds and v.error is None}
    assert broken == {"at most 1.0% of events late", "the watermark is fresh"}
    show(found)
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_that_the_filter_leaves_out_are_no_events(spark: SparkSession, tmp_path: Path) -> None:
    made = Warehouse(spark, tmp_path, source={"where": "n > 0"})
    made.append("user|at|n\nann|10:00|1\n-|10:05|0\n-|10:06|0")
    made.init().run()
    found = check(made.kind, Asked(NOW, 1.0, None, (), tmp_path / "docs"), lambda _: None)
    assert [v for v in found.verdicts if not v.holds] == []


@pytest.mark.slow
def test_keys_and_times_by_sql_are_looked_at_as_events_have_them(spark: SparkSession, tmp_path: Path) -> None:
    by_sql = {"key": [{"name": "who", "expr": "nullif(user, 'bob')"}], "event_time": "CAST(text AS TIMESTAMP)"}
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'events'}` (user STRING, text STRING, n INT) USING delta")
    made = Warehouse(spark, tmp_path, source=by_sql)
    made.init()
    values = "('ann', '2026-01-01 10:00'), ('bob', '2026-01-01 10:05'), ('ann', '10:06'), ('ann', 'no time')"
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'events'}` SELECT *, 1 FROM VALUES {values}")
    made.run()
    found = check(made.kind, Asked(NOW, 1.0, None, (), tmp_path / "docs"), lambda _: None)
    broken = {(v.suite, v.about, v.broken) for v in found.verdicts if not v.holds}
    assert broken == {("events", "who", 1), ("events", "event_time", 2)}


@pytest.mark.slow
@pytest.mark.parametrize("windows", [False, True], ids=["sessions", "windows"])
@pytest.mark.parametrize("name", ["user.id", "user\u00a0\"id'\\"], ids=["a dot", "what Python escapes"])
def test_a_key_column_with_an_odd_name_is_looked_at(
    spark: SparkSession, tmp_path: Path, name: str, windows: bool
) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'events'}` (`{name}` STRING, at TIMESTAMP, n INT) USING delta")
    table = str(tmp_path / "windows")
    sliding = {"sliding": {"table": table, "time_difference": "10m"}} if windows else {}
    made = Warehouse(spark, tmp_path, source={"key": [name]}, **sliding)
    made.init()
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'events'}` VALUES ('ann', TIMESTAMP'2026-01-01 10:00', 1)")
    kind, asked = kind_of(spark, made.config, windows=windows), Asked(NOW, 1.0, None, (), tmp_path / "docs")
    increments(kind, RunOptions(now=NOW))
    assert [v for v in check(kind, asked, lambda _: None).verdicts if not v.holds] == []
    spark.sql(f"UPDATE delta.`{table if windows else made.config.sessions.table}` SET `{name}` = NULL")
    whose = f"whose {'window' if windows else 'session'} it is"
    assert [v.why for v in check(kind, asked, lambda _: None).verdicts if not v.holds] == [whose]


@pytest.mark.slow
def test_each_broken_promise_is_found_and_names_the_rows(lake_to_see: Warehouse) -> None:
    good = lake_to_see.tables.sessions.table.read().drop(C.STATE)
    first = good.orderBy(C.SESSION_ID).limit(1)
    one = first.select(C.SESSION_ID).collect()[0][0]
    bad = first.withColumns(
        {
            "user": F.lit(None).cast("string"),
            C.SESSION_START: C.col(C.SESSION_END) + F.expr("INTERVAL 1 HOUR"),
            C.DURATION_SECONDS: F.lit(-3600.0),
            C.EVENT_COUNT: F.lit(0).cast("bigint"),
            C.STATUS: F.lit("shut"),
            C.IS_FINAL: F.lit(True),
            C.END_REASON: F.lit(None).cast("string"),
        }
    )
    verdicts = Quality().validate(
        good.unionByName(bad), "sessions", sessions_suite(lake_to_see.config), (C.SESSION_ID,)
    )
    broken = [v for v in verdicts if not v.holds]
    assert [v.error for v in broken] == [None] * len(broken)
    held = {(v.expectation, v.about) for v in verdicts if v.holds}
    not_null = "expect_column_values_to_not_be_null"
    assert held == {(not_null, name) for name in (C.SESSION_ID, C.SESSION_START, C.EXPIRES_AT)} | {
        ("expect_column_pair_values_a_to_be_greater_than_b", f"{C.EXPIRES_AT}, {C.SESSION_END}"),
        *((v.expectation, v.about) for v in verdicts if v.why == "no row lacks what the product gives to each"),
    }
    assert len(verdicts) == len(sessions_suite(lake_to_see.config)) == len(broken) + len(held)
    assert all(any(one in row for row in v.rows) for v in broken)


@pytest.mark.broad
def test_a_failed_gate_writes_nothing_and_says_which_rows(lake_to_see: Warehouse, tmp_path: Path) -> None:
    made = Warehouse(lake_to_see.spark, tmp_path, expectations=str(suite_file(tmp_path, POSITIVE)))
    made.append("user | at | n\nann | 10:00 | 1\nbob | 10:00 | -5")
    made.init()
    before = made.versions()
    for dry_run in (False, True):
        with pytest.raises(RunFailed, match=r"total\) in 1 row: session_id=[0-9a-f]{32}.*nothing was written"):
            made.run(dry_run=dry_run)
    assert made.versions() == before
    unclear = suite_file(tmp_path, {**POSITIVE, "kwargs": {"column": "nobody", "min_value": 0}}, name="unclear.json")
    with pytest.raises(RunFailed, match=r"could not be evaluated.*says nothing about the data"):
        made.run(made.config.model_copy(update={"expectations": str(unclear)}))
    assert made.versions() == before

    lenient = suite_file(tmp_path, {**POSITIVE, "kwargs": {"column": "total", "min_value": -9}}, name="lenient.yaml")
    (report,) = made.run(made.config.model_copy(update={"expectations": str(lenient)}))
    assert report.timing.seconds is not None
    assert report.timing.seconds["expectations"] > 0
    assert len(made.sessions("user")) == 2
    with pytest.raises(RunFailed, match=r"total\) in 1 row"):
        rebuild_plan.plan(made.kind, print)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("expectations: []", "must hold a list"),
        ("[1, 2", "neither JSON nor YAML"),
        ("expectations: [{kwargs: {}}]", "has a type and kwargs"),
    ],
)
def test_a_file_that_is_no_suite_is_named(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(ConfigError, match=says):
        read_suite(tmp_path / "own.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_suite(tmp_path / "nothing.yaml")


def test_a_suite_in_yaml_is_read_as_a_config_is(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "expectations:\n"
        "  - type: expect_column_values_to_be_in_set\n"
        "    kwargs: {column: country, value_set: [NO, SE, on], mostly: 0.5, max: 12345678901234567890}\n"
    )
    (found,) = read_suite(tmp_path / "own.yaml")
    country = {"column": "country", "value_set": ["NO", "SE", "on"], "mostly": 0.5, "max": 12345678901234567890}
    assert found.kwargs == country
    (tmp_path / "own.yaml").write_text("expectations: !!int many")
    with pytest.raises(ConfigError, match="neither JSON nor YAML"):
        read_suite(tmp_path / "own.yaml")


@pytest.mark.parametrize("column", [C.STATUS, C.EVENT_COUNT, C.IS_FINAL, C.SESSION_END, C.DURATION_SECONDS])
def test_a_null_that_somebody_has_written_breaks_what_the_tables_promise(column: str, tmp_path: Path) -> None:
    source = {"table": str(tmp_path / "events"), "key": ["user"]}
    config = Config.model_validate({"source": source, "sessions": {"table": str(tmp_path / "sessions")}})
    row = {
        **{C.STATUS: "'open'", C.EVENT_COUNT: "1", C.IS_FINAL: "false", C.IS_LATE: "false", C.END_REASON: "NULL"},
        **{C.SESSION_END: "now()", C.DURATION_SECONDS: "0.0", C.SESSION_DATE: "current_date"},
    }

    def broken(row: dict[str, str]) -> int:
        told = ", ".join(f"{value} AS {name}" for name, value in row.items())
        queries = [e.kwargs["unexpected_rows_query"] for e in sessions_suite(config) if e.type == UNEXPECTED_ROWS]
        with duckdb.connect() as connection:
            return sum(len(connection.sql(q.format(batch=f"(SELECT {told})")).fetchall()) for q in queries)

    assert broken(row) == 0
    assert broken(row | {column: "NULL"}) >= 1


def test_an_expectation_that_there_is_not_is_named(lake_to_see: Warehouse, tmp_path: Path) -> None:
    suite = read_suite(suite_file(tmp_path, {"type": "expect_good_weather", "kwargs": {}}))
    with pytest.raises(ConfigError, match="expect_good_weather"):
        Quality().validate(lake_to_see.tables.sessions.table.read(), "sessions", suite)
