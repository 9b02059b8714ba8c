"""The page: what it says, that nothing in it is taken for HTML, and that a browser shows it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.report import by_duckdb, by_spark, write_report
from sessionizer.jobs.masking import masked
from sessionizer.jobs.reporting.report_columns import columns_part, day_axis, week_over_week
from sessionizer.jobs.reporting.report_queries import LEDGER, ask_all
from sessionizer.lib.config import Config
from tests.browser import looked_at, needs_browser, seen_in_every_way, tab
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

LEDGER_COLUMNS = "run_seq, events_read, accepted, late, invalid, duplicates"
NOW = us(clock("+1d 13:00"))


@pytest.fixture(scope="module")
def page(lake_to_see: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    told = write_report(by_duckdb(lake_to_see.config), lake_to_see.config, file, NOW)
    assert (told["sessions"], told["live now"], told["broken_rules"]) == ("4", "2", [])
    return file


@pytest.mark.broad
def test_both_engines_find_the_same(lake_to_see: Warehouse) -> None:
    by_one = ask_all(by_duckdb(lake_to_see.config), lake_to_see.config)
    assert by_one == ask_all(by_spark(lake_to_see.spark, lake_to_see.config), lake_to_see.config)
    assert (by_one.totals["sessions"], by_one.totals["events"], by_one.ledger["runs"]) == (4, 7, 3)


@pytest.mark.broad
def test_each_column_of_the_config_is_told_by_its_type_alike_by_both_engines(
    lake_to_see: Warehouse, tmp_path: Path
) -> None:
    aggregates = [
        {"name": "total", "fn": "sum", "of": "n"},
        {"name": "who", "fn": "first", "of": "user"},
        {"name": "all", "fn": "set", "of": "user"},
        {"name": "large", "fn": "bool_or", "of": "n > 3"},
        {"name": "each", "fn": "list", "of": "n"},
    ]
    made = Warehouse(lake_to_see.spark, tmp_path, aggregates=aggregates)
    made.append("user | at | n\nann | 10:00 | 1\nann | 12:00 | 4\nbob | +1d 10:00 | 5")
    made.init()
    made.run()
    wider = made.configured(aggregates=[*aggregates, {"name": "later", "fn": "max", "of": "n"}])  # not rebuilt yet
    engines = by_duckdb(wider), by_spark(made.spark, wider)
    by_one, by_other = (columns_part(engine, wider, []) for engine in engines)
    assert by_one == by_other
    (total,) = by_one.numbers
    assert [total[name] for name in ("name", "n", "mean", "least", "median", "most")] == [
        "total",
        3,
        "3.33",
        "1",
        "4",
        "5",
    ]
    assert [(row["name"], row["yes"], row["n"]) for row in by_one.shares] == [("large", 2, 3)]
    tops = {name: [(row["value"], row["n"]) for row in rows] for name, rows in by_one.tops.items()}
    assert tops == {"who": [("ann", 2), ("bob", 1)], "all": [("ann", 2), ("bob", 1)]}
    assert [caption for caption, _ in by_one.charts] == [
        "total, mean of the sessions of a day",
        "Sessions a day, of new and of returning keys",
    ]


def test_weeks_are_compared_where_there_are_two() -> None:
    days = [{"day": f"2026-03-{day:02}", "n": 1 if day <= 7 else 2} for day in range(1, 15)]
    assert (week_over_week(days), week_over_week(days[1:]), week_over_week([])) == ("+100 %", None, None)


def test_all_runs_account_for_their_events_however_long_ago_they_were() -> None:
    rows = ", ".join(f"({n}, 5, {5 if n else 3}, 0, 0, 0)" for n in range(100))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW runs AS FROM (VALUES {rows}) AS t({LEDGER_COLUMNS})")
        assert connection.sql(LEDGER).fetchall() == [(100, 500, 0, 2)]


def test_days_are_of_the_zone_that_session_date_is_of(lake_to_see: Warehouse) -> None:
    zoned = lake_to_see.configured(session={"gap": "30m", "time_zone": "Europe/Berlin"})
    found = (day_axis(lake_to_see.config), day_axis(zoned), day_axis(zoned, "weekday"))
    assert found == ("day, UTC", "day, Europe/Berlin", "weekday, Europe/Berlin")
    weeks = [{"day": f"2026-03-{day:02}", "n": 1} for day in range(1, 15)]
    drawn = [str(chart) for _, chart in columns_part(by_duckdb(lake_to_see.config), zoned, weeks).charts]
    assert any("weekday, Europe/Berlin" in chart for chart in drawn)
    assert not any("UTC" in chart for chart in drawn)


def test_the_page_is_whole_and_everything_in_it_is_escaped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;b&#34;, $x^$" in text
    # Six of sessions and runs, one of each of four keys, the mean of total, new and returning keys.
    assert text.count("<svg ") == 6 + 4 + 1 + 1
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', text)
    assert not re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


@needs_browser
def test_a_browser_shows_it_in_every_width_and_colour(page: Path, tmp_path: Path) -> None:
    seen_in_every_way(page, tmp_path)


def test_the_title_is_the_users_and_escaped(lake_to_see: Warehouse, tmp_path: Path) -> None:
    engine, file = by_duckdb(lake_to_see.config), tmp_path / "report.html"
    for title, heading in (
        ("Our <b>shop</b> & co.", "Our &lt;b&gt;shop&lt;/b&gt; &amp; co."),
        (None, "sessions"),
        ("  ", "sessions"),
    ):
        write_report(engine, lake_to_see.config, file, NOW, title)
        text = file.read_text(encoding="utf-8")
        assert f"<h1>{heading}</h1>" in text
        assert f"<title>{heading} · sessions</title>" in text


def test_the_key_may_be_spelled_otherwise_than_in_the_table(lake_to_see: Warehouse, tmp_path: Path) -> None:
    config = lake_to_see.configured(source={"key": ["USER"]})
    assert write_report(by_duckdb(config), config, tmp_path / "report.html", NOW)["broken_rules"] == []


def test_every_chart_names_its_axes(page: Path) -> None:
    drawn = page.read_text(encoding="utf-8").split("<svg ")[1:]
    for axes in (
        *(("day, UTC", "sessions"), ("hour, UTC", "sessions"), ("duration (log scale)", "sessions")),
        *(("events (log scale)", "sessions (log scale)"), ("run", "late events, %"), ("run", "seconds")),
        *(("day, UTC", "total"), ("time, UTC",)),
    ):
        assert any(all(f">{label}</text>" in chart for label in axes) for chart in drawn), axes


def test_a_page_about_nothing_yet(lake_to_see: Warehouse, tmp_path: Path) -> None:
    made = Warehouse(lake_to_see.spark, tmp_path)
    made.append("user | at | n\nann | 10:00 | 1")
    made.init()
    told = write_report(by_duckdb(made.config), made.config, tmp_path / "report.html", NOW)
    assert (told["sessions"], told["runs"], told["broken_rules"]) == ("0", "0", [])
    assert "No sessions yet" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.broad
@pytest.mark.parametrize("key", ["_events", "_sessions", "_latest"])
def test_a_key_of_any_name_is_counted_by(spark: SparkSession, tmp_path: Path, key: str) -> None:
    made = Warehouse(spark, tmp_path, source={"key": [key]})
    made.append(
        [(7, clock("10:00"), 1), (7, clock("10:01"), 1), (9, clock("10:00"), 1)], f"{key} INT, at TIMESTAMP, n INT"
    )
    made.init()
    made.run()
    write_report(by_duckdb(made.config), made.config, tmp_path / "report.html", NOW)
    found = ask_all(by_duckdb(made.config), made.config).keys
    assert [[*row.values()][:3] for row in found] == [[7, 1, 2], [9, 1, 1]]


@pytest.mark.broad
def test_days_that_no_calendar_has_are_in_no_chart(spark: SparkSession, tmp_path: Path) -> None:
    zone = {"gap": "30m", "time_zone": "America/New_York"}
    made = Warehouse(spark, tmp_path, source={"event_time": "timestamp_micros(n)"}, session=zone)
    first = us(datetime(1, 1, 1, tzinfo=UTC))  # there it is a day before the year 1
    noon, schema = us(clock("12:00")), "user STRING, at TIMESTAMP, n BIGINT"
    made.append([("ann", None, first), ("bob", None, noon), ("bob", None, noon + 86_400_000_000)], schema)
    made.init()
    made.run()
    told = write_report(by_duckdb(made.config), made.config, tmp_path / "report.html", NOW)
    assert told["sessions"] == "3"


@needs_browser
def test_what_would_be_a_chart_of_one_bar_or_zeros_is_said_in_words(lake_to_see: Warehouse, tmp_path: Path) -> None:
    made = Warehouse(lake_to_see.spark, tmp_path)
    made.append("user | at | n\nann | 10:00 | 1\nbob | 10:01 | 1")
    made.init()
    made.run()
    write_report(by_duckdb(made.config), made.config, tmp_path / "report.html", NOW)
    with tab(tmp_path) as browser:
        text = looked_at(browser, tmp_path / "report.html", 390, "light").text
    for said in (
        "One day so far, Jan 1: 2 sessions.",
        "One hour so far, 10:00: 2 sessions.",
        "No session lasts a second: each has one event, or events at one time.",
        "All alike, of one event: 2 sessions.",
        "One run so far: 0 of 2 events late.",
    ):
        assert said in text
    seen_in_every_way(tmp_path / "report.html", tmp_path)


def test_secrets_are_not_shown() -> None:
    spark = {
        "spark.hadoop.fs.s3a.secret.key": "hush1",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "hush2",
        "spark.ssl.keyPassword": "hush3",
        "spark.driver.extraJavaOptions": "-Dpassword=hush4",
        "spark.driver.memory": "8g",
    }
    source = {"table": "s3a://user:hush5@lake/events?sig=hush6", "key": ["user"]}
    config = Config.model_validate({"source": source, "sessions": {"table": "s3a://lake/sessions"}, "spark": spark})
    shown = masked(config)
    assert "hush" not in str(shown)
    assert shown["spark"]["spark.driver.memory"] == "8g"
    assert shown["source"]["table"] == "s3a://*****@lake/events"
