"""Rows that a review of the code found wrong, each in its smallest play."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import EVENTS, Play
from tests.text_tables import clock

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
WITH_IDS = "u STRING, at TIMESTAMP, id INT, n INT"
IDLE = {"idle_timeout": {"after": "30m", "clock": "processing_time"}}


# Corrections in quarantine, where copies are rejected


@pytest.fixture
def one_event(play: Plays) -> Play:
    return play(
        "u | at | id | n \n a | 5 | 1 | 3",
        schema=WITH_IDS,
        corrections="quarantine",
        source={"dedupe": {"by": ["id"], "within": "1h"}},
    )


def test_a_readmitted_update_is_no_copy_of_what_it_replaces(one_event: Play) -> None:
    one_event.source("UPDATE {} SET n = 4").run()
    one_event.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 3")
    one_event.readmit()
    one_event.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 4")
    one_event.assert_rejected("u | reason")


def test_an_event_is_a_copy_of_one_whose_delete_of_the_same_run_is_in_quarantine(one_event: Play) -> None:
    one_event.source("DELETE FROM {}").runs("u | at | id | n \n a | 6 | 1 | 8")
    one_event.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 3")
    one_event.assert_rejected(
        """
        u | event_time | reason     | kept
        a | 5          | correction | in
        a | 6          | duplicate  | out
        """
    )


# Late events


def test_a_backfill_takes_a_late_event_out_of_its_session_apart(play: Plays) -> None:
    done = play("tick@100 a@100 | a@5=3", late_events="separate").backfill(0, 10)
    done.assert_sessions(
        """
        u | start | end | count | total | late
        a | 5     | 5   | 1     | 3     | no
        a | 100   | 100 | 1     | 1     | no
        """,
        u="a",
    )
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.fixture
def begun_at_1(spark: SparkSession, tmp_path: Path) -> Play:
    """c lies before the start; b came late."""
    done = Play(spark, tmp_path, source={"start": {"version": 1}})
    done.add("c@4").add("tick@100 a@95=2 a@98=3").init().run()
    done.runs("b@5=5").assert_rejected("u | event_time | reason \n b | 5 | late \n c | 4 | before_start")
    return done


def test_a_delete_leaves_late_events_rejected_where_reading_began_later(begun_at_1: Play) -> None:
    begun_at_1.source("DELETE FROM {} WHERE n = 2").run()
    begun_at_1.assert_sessions(
        """
        u    | start | end | count | total
        a    | 98    | 98  | 1     | 3
        tick | 100   | 100 | 1     | 1
        """
    )
    begun_at_1.assert_rejected("u | event_time | reason \n b | 5 | late \n c | 4 | before_start")
    begun_at_1.assert_clean()


def test_a_late_event_is_readmitted_where_reading_began_later(begun_at_1: Play) -> None:
    begun_at_1.readmit(0, 10)
    begun_at_1.assert_sessions(
        """
        u    | start | end | count | total
        a    | 95    | 98  | 2     | 5
        b    | 5     | 5   | 1     | 5
        tick | 100   | 100 | 1     | 1
        """
    )
    begun_at_1.assert_rejected("u | reason \n c | before_start")
    begun_at_1.assert_clean()


def test_events_that_are_amended_bridge_final_sessions_by_session_too(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 | a@88 | a@85", time={"lateness": "session"}, late_events="amend")
    done.assert_sessions("u | start | end | count | final \n a | 85 | 92 | 4 | no", u="a")
    found = done.told("session_id")
    assert len({row["session_id"] for row in found}) == len(found)


# Side tables


def test_events_on_both_sides_of_the_horizon_are_traced_once(spark: SparkSession, tmp_path: Path) -> None:
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    done = Play(spark, tmp_path, time={"lateness": "session"}, outputs=outputs)
    # From 90 to 100 is one bucket. The horizon is 95; 92 reaches 102.
    done.runs("tick@95 a@92=1 | a@93=2 a@97=4")
    done.assert_sessions("u | start | end | count | total \n a | 92 | 97 | 3 | 7", u="a")
    ids = {row["session_id"] for row in done.told("session_id", u="a")}
    events = done.told_of(outputs["event_sessions"], "u | event_time", u="a")
    done.assert_rows(events, "u | event_time \n a | 92 \n a | 93 \n a | 97")
    updates = done.told_of(outputs["session_updates"], "u | event_time | n | total", u="a")
    done.assert_rows(
        updates,
        """
        u | event_time | n | total
        a | 92         | 1 | 1
        a | 93         | 2 | 3
        a | 97         | 3 | 7
        """,
    )
    for place in outputs.values():
        assert {row["session_id"] for row in done.told_of(place, "session_id", u="a")} == ids


# Idle by the last arrival


def test_a_delete_ends_no_session_of_a_key_that_is_not_idle(play: Plays) -> None:
    of_keys = {"watermark": {"per": "key"}, "allowed_lateness": "1d"} | IDLE
    done = play("a@0 a@1=2", now=100, time=of_keys)
    done.at(120).runs("a@50")
    done.at(140).source("DELETE FROM {} WHERE n = 2").run()
    # The first session's last event came 40 minutes ago, the key's 20.
    done.assert_sessions("u | start | end | count | final \n a | 0 | 0 | 1 | no \n a | 50 | 50 | 1 | no")


def test_a_backfill_is_no_arrival(play: Plays) -> None:
    done = play("a@5", now=720, time=IDLE)
    done.at(780).run()
    before = done.row("a")
    assert (before["status"], before["end_reason"]) == ("closed", "idle")
    done.at(785).backfill(0, 10)
    assert done.row("a") == before


# Sliding windows


def test_windows_leave_out_what_lies_a_part_of_a_unit_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    windows: dict[str, Any] = {"time_difference": "10m", "grace": "0s", "time_unit": "1ms", "aggregates": []}
    sliding = windows | {"table": str(tmp_path / "windows")}
    done = Play(spark, tmp_path, source={"start": {"version": 1}}, sliding=sliding)
    add(done, "10:00:00.000500")
    add(done, "10:00:05")
    done.init().slide()
    add(done, "10:00:06")
    done.slide()
    done.assert_rows(
        done.told_windows("window_end | event_count"),
        """
        window_end    | event_count
        600+5000000us | 1
        600+6000000us | 2
        610+5001000us | 1
        """,
    )


def add(done: Play, time: str) -> None:
    """One more version of the source: an event of a."""
    done.append([("a", clock(time), 1)], EVENTS)
