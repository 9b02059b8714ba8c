"""The page: what it says, that nothing in it is taken for HTML, and that a browser shows it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sessionizer.jobs.commands.report import by_duckdb, by_spark, write_report
from sessionizer.jobs.masking import masked
from sessionizer.jobs.reporting.report_columns import columns_part, week_over_week
from sessionizer.jobs.reporting.report_queries import ask_all
from sessionizer.lib.config import Config
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

NOW = us(clock("+1d 13:00"))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("options", [["--window-size=1280,2400"], ["--window-size=500,3000", "--force-dark-mode"]])
def test_a_browser_shows_it_without_complaint(page: Path, tmp_path: Path, options: list[str]) -> None:
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", *options, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 20_000, done.stderr


def test_a_page_about_nothing_yet(lake_to_see: Warehouse, tmp_path: Path) -> None:
    made = Warehouse(lake_to_see.spark, tmp_path)
    made.append("user | at | n\nann | 10:00 | 1")
    made.init()
    told = write_report(by_duckdb(made.config), made.config, tmp_path / "report.html", NOW)
    assert (told["sessions"], told["runs"], told["broken_rules"]) == ("0", "0", [])
    assert "No sessions yet" in (tmp_path / "report.html").read_text(encoding="utf-8")


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
