"""The oldest session that has not ended, and the words for what holds it: by Spark, without it, and in metrics."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.status import show, status, status_without_spark
from sessionizer.jobs.queries.holding import behind, end_of, held_by
from sessionizer.jobs.reporting.metrics import write_metrics
from sessionizer.jobs.run.driver import slide
from sessionizer.jobs.run.kinds import Ruled, ruled
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.durations import MINUTE
from sessionizer.tables.queries.oldest import Oldest
from tests.jobs.test_metrics import read
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import NOW, Warehouse

TWO_KEYS = """
user | at    | n
bob  | 10:00 | 1
ann  | 10:00 | 2
cat  | 11:00 | 3
dan  | 10:40 | 4
"""
START, END, EXPIRES = (us(clock(text)) for text in ("10:00", "10:05", "10:35"))


def oldest(watermark: str | None = "10:20", **times: int) -> Oldest:
    found = {"session_start": START, "session_end": END, "expires_at": EXPIRES} | times
    return Oldest({"user": "ann"}, found, None if watermark is None else us(clock(watermark)))


def of(lake: Warehouse, **sections: Any) -> Ruled:
    return ruled(lake.configured(**sections))


def words(lake: Warehouse, rule: Ruled, row: Oldest, status: str = "open", waiting: int = 0) -> dict[str, str]:
    done = lake.position().model_copy(update={"events_came_at": us(clock("12:00")), "now": NOW})
    return {held.by: held.says for held in held_by(row, rule, done, status, waiting)}


def test_each_thing_that_holds_a_session_is_told_in_words(lake_to_see: Warehouse) -> None:
    rule = of(lake_to_see, time={"allowed_lateness": "1h"})
    assert words(lake_to_see, rule, oldest()) == {
        "watermark": "the watermark (2026-01-01T10:20:00Z) has not passed its expiry (2026-01-01T10:35:00Z)",
        "quiet_source": "the source is quiet: no event has come since 2026-01-01T12:00:00Z; "
        "time.watermark.idle_after would have the watermark follow the clock",
        "lateness": "time.allowed_lateness (1h0m0s) keeps it live until the watermark has passed 2026-01-01T11:35:00Z",
    }
    assert behind(oldest(), rule) == 15 * MINUTE


def test_what_is_not_set_holds_nothing(lake_to_see: Warehouse) -> None:
    rule = of(lake_to_see, time={"allowed_lateness": "0s", "watermark": {"idle_after": "2h"}})
    told = words(lake_to_see, rule, oldest("10:35"))  # at equality it is still open
    assert list(told) == ["watermark", "quiet_source"]
    assert told["quiet_source"].endswith("a run after 2026-01-01T14:00:00Z has the watermark follow the clock")
    assert list(words(lake_to_see, rule, oldest("10:36"), "closed")) == ["quiet_source"]
    unread = words(lake_to_see, rule, oldest(), waiting=1)
    assert unread["unread_versions"] == "1 version of the source waits for `sessionizer run`"
    assert "quiet_source" not in unread
    assert words(lake_to_see, rule, oldest(), waiting=2)["unread_versions"].startswith("2 versions of the source wait")
    assert words(lake_to_see, rule, oldest(None))["watermark"].startswith("no watermark is known")
    assert behind(oldest(None), rule) is None
    assert behind(oldest("11:00"), rule) == 0


@pytest.mark.parametrize(
    ("sections", "ends", "what"),
    [
        ({}, "10:35", "its expiry"),
        ({"session": {"gap": "30m", "max_duration": "20m"}}, "10:20", "its longest duration"),
        ({"session": {"gap": "30m", "max_duration": "2h"}}, "10:35", "its expiry"),
        ({"time": {"idle_timeout": {"after": "10m"}}}, "10:15", "its idle timeout"),
        ({"time": {"idle_timeout": {"after": "10m", "clock": "processing_time"}}}, "10:35", "its expiry"),
    ],
)
def test_what_comes_first_ends_a_session(
    lake_to_see: Warehouse, sections: dict[str, Any], ends: str, what: str
) -> None:
    assert end_of(oldest(), of(lake_to_see, **sections)) == (us(clock(ends)), what)


def test_a_clock_of_its_own_ends_the_sessions_of_a_key(lake_to_see: Warehouse) -> None:
    time = {"watermark": {"per": "key"}, "idle_timeout": {"after": "7d", "clock": "processing_time"}}
    told = words(lake_to_see, of(lake_to_see, time=time), oldest())
    assert told["idle_timeout"] == "time.idle_timeout ends it in a run more than 168h0m0s after events of its key came"
    assert told["quiet_source"] == "the source is quiet: no event has come since 2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        ({}, ("10:30", 0)),
        ({"per": ["user"]}, ("10:00", 30 * 60)),
        ({"per": "key"}, ("10:00", 30 * 60)),
    ],
)
def test_the_watermark_is_that_of_the_scope_of_the_session(
    spark: SparkSession, tmp_path: Path, watermark: dict[str, Any], expected: tuple[str, float]
) -> None:
    idle = {"idle_timeout": {"after": "7d", "clock": "processing_time"}}
    time = {"allowed_lateness": "2h", "watermark": {"delay": "0s", **watermark}, **(idle if watermark else {})}
    warehouse = Warehouse(spark, tmp_path, time=time)
    warehouse.append(TWO_KEYS)
    warehouse.init().run(now=us(clock("11:00")))
    by_spark, without = status(spark, warehouse.config), status_without_spark(warehouse.config)
    assert by_spark["oldest_open"] == without["oldest_open"]
    assert by_spark["oldest_closed"] == without["oldest_closed"]
    if watermark:  # ann's and bob's began at once: the first key
        found = without["oldest_open"]
        assert (found["key"], found["watermark"][11:16]) == ({"user": "ann"}, expected[0])
        assert (found["watermark_behind_seconds"], without["oldest_closed"]) == (expected[1], None)
    else:
        assert (without["oldest_closed"]["key"], without["oldest_open"]["key"]) == ({"user": "ann"}, {"user": "dan"})
        assert [held["by"] for held in without["oldest_closed"]["held_by"]] == ["quiet_source", "lateness"]


@pytest.mark.broad
def test_windows_and_metrics_name_theirs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sliding = {"table": str(tmp_path / "windows"), "time_difference": "10m", "grace": "1h"}
    warehouse = Warehouse(spark, tmp_path, time={"allowed_lateness": "1h"}, sliding=sliding)
    warehouse.append(TWO_KEYS)
    warehouse.init().run()
    slide(spark, warehouse.config, RunOptions(now=NOW))
    with_spark, without = status(spark, warehouse.config)["windows"], status_without_spark(warehouse.config)["windows"]
    assert with_spark["oldest_open"] == without["oldest_open"]
    found = without["oldest_open"]
    assert (found["key"], found["window_start"][11:16], found["window_end"][11:16]) == (
        {"user": "ann"},
        "09:50",
        "10:00",
    )
    assert found["held_by"][-1]["says"] == (
        "sliding.grace (1h0m0s) keeps it open until the watermark has passed 2026-01-01T11:00:00Z"
    )
    show(status_without_spark(warehouse.config))
    assert "oldest open  user dan: since 2026-01-01T10:40:00Z" in capsys.readouterr().out
    file = tmp_path / "m.prom"
    write_metrics(warehouse.kind, file, NOW)
    told = read(file)
    edges = {edge: told[f"oldest_open_session_{edge}_timestamp_seconds",] for edge in ("start", "end", "expires")}
    assert edges == {
        "start": us(clock("10:40")) / 1e6,
        "end": us(clock("10:40")) / 1e6,
        "expires": us(clock("11:10")) / 1e6,
    }
    assert told["oldest_open_session_watermark_behind_seconds",] == 600
    assert told["oldest_open_session_info", "watermark,quiet_source,lateness", json.dumps({"user": "dan"})] == 1
    write_metrics(warehouse.windows, file, NOW)
    assert read(file)["oldest_open_window_start_timestamp_seconds",] == us(clock("09:50")) / 1e6


def test_the_oldest_session_is_told_by_keys_that_sql_makes(spark: SparkSession, tmp_path: Path) -> None:
    lake = Warehouse(spark, tmp_path, source={"key": [{"name": "who", "expr": "upper(user)"}]})
    lake.append(TWO_KEYS)
    lake.init()
    lake.run()
    by_spark, without = status(spark, lake.config), status_without_spark(lake.config)
    assert by_spark["oldest_open"] == without["oldest_open"]
    assert without["oldest_open"]["key"] == {"who": "DAN"}
