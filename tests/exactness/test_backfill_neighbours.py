"""A look back writes what its span owns, and nothing beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
IDLE = {"allowed_lateness": "1d", "idle_timeout": {"after": "30m", "clock": "processing_time"}}
OF_KEYS = {
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "30d", "clock": "processing_time"},
}


def test_a_backfill_leaves_the_sessions_beside_its_span_as_they_are(play: Plays) -> None:
    done = play("bob@595=3 amy@602=4", now=605, time=IDLE)
    done.at(700).run()
    before = done.row("bob")
    assert (before["status"], before["end_reason"], before["total"]) == ("closed", "idle", 3)
    done.backfill(600, 660)
    assert done.row("bob") == before


def test_a_backfill_after_the_lateness_was_changed_keeps_the_aggregates_beside_its_span(play: Plays) -> None:
    done = play("bob@595=3 amy@602=4 tick@700", time={"allowed_lateness": "1d"})
    done.change(time={"allowed_lateness": "0s"}).backfill(600, 660)
    done.assert_sessions(
        """
        u    | start | end | count | total
        amy  | 602   | 602 | 1     | 4
        bob  | 595   | 595 | 1     | 3
        tick | 700   | 700 | 1     | 1
        """
    )


def test_a_backfill_by_clocks_of_keys_leaves_final_sessions_final(play: Plays) -> None:
    done = play("a@5 a@100", time=OF_KEYS)
    done.backfill(0, 10)
    done.assert_sessions(
        """
        u | start | end | status | why
        a | 5     | 5   | final  | gap
        a | 100   | 100 | open   | -
        """
    )


def test_a_backfill_by_clocks_of_keys_makes_a_row_that_was_deleted_final_again(play: Plays) -> None:
    done = play("a@5 a@100", time=OF_KEYS)
    done.damage("DELETE FROM {} WHERE is_final")
    done.backfill(0, 10)
    done.assert_sessions("start | status | why \n 5 | final | gap \n 100 | open | -")


def test_a_backfill_by_clocks_of_keys_keeps_the_clock_of_the_key(play: Plays) -> None:
    done = play("a@100 | a@95", time=OF_KEYS)
    # The late event comes in: the session, which carries the clock of its key, is made anew.
    done.backfill(90, 105).runs("a@50")
    done.assert_rejected(
        """
        u | event_time | reason | horizon
        a | 50         | late   | 100
        """
    )


@pytest.mark.parametrize(("low", "high"), [(5, 10), (0, 1), (16, 17)])
@pytest.mark.parametrize("damage", ["DELETE FROM {} WHERE u = 'a'", "DELETE FROM {}"])
def test_a_session_that_was_deleted_comes_back_whole_though_it_began_or_ends_beyond_the_span(
    play: Plays, low: float, high: float, damage: str
) -> None:
    done = play("a@0 a@8 a@16 a@30 tick@100")
    done.damage(damage)
    done.backfill(low, high).assert_sessions("u | start | end | count \n a | 0 | 16 | 3", u="a")


@pytest.mark.parametrize("gone", [0, 14])
def test_a_session_that_was_deleted_comes_back_beside_one_of_its_chain_that_is_left(play: Plays, gone: int) -> None:
    done = play("a@0 a@6 a@12 a@14 a@20 a@26 tick@100", session={"max_duration": "12m"})
    done.damage(f"DELETE FROM {{}} WHERE u = 'a' AND session_start = TIMESTAMP'2026-01-01 00:{gone:02}:00'")
    done.backfill(11, 16).assert_sessions("u | start | end | count \n a | 0 | 12 | 3 \n a | 14 | 26 | 3", u="a")
    done.assert_clean()


@pytest.mark.parametrize("more", ["", " a@11"])
def test_a_session_that_was_deleted_comes_back_whole_with_late_events_beside_its_own(play: Plays, more: str) -> None:
    done = play(f"a@0 a@8 a@16{more} tick@100 | a@5 a@9")
    done.damage("DELETE FROM {} WHERE u = 'a'")
    done.backfill(5, 12).assert_sessions(f"u | start | end | count \n a | 0 | 16 | {5 + len(more) // 5}", u="a")
    done.assert_clean()


@pytest.mark.parametrize("back", [{}, {"session": {"max_duration": "1h"}}])
def test_a_session_that_was_deleted_comes_back_whole_where_a_run_has_begun_it_again(
    play: Plays, back: dict[str, Any]
) -> None:
    done = play("a@0 a@8", time={"allowed_lateness": "1d"}, **back)
    done.damage("DELETE FROM {} WHERE u = 'a'")
    done.runs("a@9").assert_sessions("u | start | end | count \n a | 9 | 9 | 1")
    done.backfill(5, 12).assert_sessions("u | start | end | count \n a | 0 | 9 | 3")
    done.assert_clean()


def test_a_session_that_was_deleted_comes_back_whole_where_a_copy_beyond_the_span_comes_in(play: Plays) -> None:
    by_n = {"dedupe": {"by": ["n"], "within": "7d"}}
    done = play("a@0=1 a@8=2 a@16=3 tick@100=4 | a@5=9 | a@4=9", source=by_n, late_events="separate")
    done.damage("DELETE FROM {} WHERE u = 'a' AND NOT is_late")
    done.backfill(5, 10).assert_sessions("u | start | end | count \n a | 0 | 16 | 4", u="a")
    done.assert_clean()


@pytest.mark.parametrize("output", ["event_sessions", "session_updates"])
def test_events_of_a_session_that_was_deleted_are_told_once_when_it_is_back(
    play: Plays, tmp_path: Path, output: str
) -> None:
    place = str(tmp_path / output)
    done = play("a@0 a@8 a@16 tick@100", outputs={output: place})
    done.damage("DELETE FROM {} WHERE u = 'a'")
    done.backfill(0, 20)
    assert done.told_of(place, "event_time", u="a") == [{"event_time": minute} for minute in ("0", "16", "8")]
    done.assert_clean()


def test_what_is_left_of_a_session_in_two_by_hand_is_one_again(play: Plays) -> None:
    done = play("a@0 a@8 a@16 tick@100")
    done.damage("UPDATE {} SET session_end = session_start, session_id = 'x' WHERE u = 'a'")
    done.backfill(5, 10).assert_sessions("u | start | end | count \n a | 0 | 16 | 3", u="a")
    done.assert_clean()
