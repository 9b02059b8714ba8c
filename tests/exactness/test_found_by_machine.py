"""Rows that random histories (`tests/machine`) found wrong, each in its smallest play."""

from collections.abc import Callable

import pytest

from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.exactness.play import Play, at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
OF_KEYS = {
    "watermark": {"per": "key"},
    "allowed_lateness": "1h",
    "idle_timeout": {"after": "30d", "clock": "processing_time"},
}


def test_a_flush_ends_what_all_increments_of_the_run_have_made(play: Plays) -> None:
    done = play("a@5", limits={"max_versions_per_run": 1})
    done.add("b@7").add("c@8").flush()
    done.assert_sessions(
        """
        u | start | status | why
        a | 5     | final  | flush
        b | 7     | final  | flush
        c | 8     | final  | flush
        """
    )
    done.assert_rejected("u | reason")


def test_an_event_that_touches_a_live_session_is_not_amended_where_sessions_are_judged(play: Plays) -> None:
    done = play("tick@100 a@95 | a@92 b@5", time={"lateness": "session"}, late_events="amend")
    assert done.ledger("accepted", "amended") == [(2, 0), (2, 1)]


def test_a_late_event_apart_is_counted_once_however_often_it_comes(play: Plays) -> None:
    by_n = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("tick@100 | a@5=3 b@5=4 b@5=4 | a@5=3", late_events="separate", source=by_n)
    done.assert_sessions(
        """
        u    | start | count | total | late
        a    | 5     | 1     | 3     | yes
        b    | 5     | 1     | 4     | yes
        tick | 100   | 1     | 1     | no
        """
    )
    done.assert_rejected(
        """
        u | event_time | reason    | kept
        a | 5          | late      | apart
        a | 5          | duplicate | out
        b | 5          | late      | apart
        b | 5          | duplicate | out
        """
    )


# Clocks of keys


def test_a_rebuild_does_not_set_the_clock_of_a_key_back(play: Plays) -> None:
    done = play("a@5 a@50", time=OF_KEYS)
    done.source("DELETE FROM {} WHERE at > TIMESTAMP'2026-01-01 00:30:00'").rebuild()
    done.assert_sessions("u | start | status | why \n a | 5 | closed | gap")


def test_a_rebuild_leaves_flushed_sessions_of_a_key_final(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS).flush().rebuild()
    done.assert_sessions("u | start | status \n a | 5 | final")


def test_a_rebuild_leaves_flushed_sessions_of_a_key_final_that_only_quarantine_has(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS, corrections="quarantine").flush()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.rebuild().assert_sessions("u | start | status \n a | 5 | final")
    done.assert_clean()


def test_a_key_without_a_live_session_is_forgotten(play: Plays) -> None:
    done = play("a@100=2", time=OF_KEYS | {"allowed_lateness": "90m"})
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.runs("a@8").assert_sessions("u | start | status \n a | 8 | open")
    done.assert_rejected("u | reason")


def test_a_key_that_was_ended_by_hand_comes_back_behind_its_final_sessions(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS | {"allowed_lateness": "0s"})
    done.run(override=WatermarkOverride(advance_to=at(60)))
    done.runs("a@14 a@30").assert_sessions("u | start | status \n a | 5 | final \n a | 30 | open")
    done.assert_rejected(
        """
        u | event_time | reason | horizon
        a | 14         | late   | 15+1us
        """
    )


# What copies do to time


def test_a_copy_that_takes_the_place_of_its_original_moves_the_watermark(play: Plays) -> None:
    done = play("a@5=9 | a@8=9", source={"dedupe": {"by": ["n"], "within": "1h"}}, time={"allowed_lateness": "1d"})
    assert done.position().watermark_after == at(5)
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:06:00'").run()
    assert done.position().watermark_after == at(8)
    done.assert_clean()


# Final sessions that stay as they are


@pytest.mark.parametrize("again", ["a@0=1", "a@19=2"])
def test_each_final_session_keeps_as_many_events_as_it_holds(play: Plays, again: str) -> None:
    """Sessions of less than two minutes: 9 is live, and makes 0 and 19, which are final, its neighbours."""
    rule = {"gap": {"expr": "make_dt_interval(0, 0, g, 0)"}, "max_duration": "2m"}
    done = play(
        """
        u | at | n | g
        a | 0  | 1 | 10
        a | 9  | 3 | 20
        a | 19 | 2 | 4
        a | 35 | 4 | 4
        """,
        schema="u STRING, at TIMESTAMP, n INT, g INT",
        session=rule,
        time={"lateness": "session", "allowed_lateness": "8m"},
    )
    at_time, number = again.removeprefix("a@").split("=")
    gap = {"1": 10, "2": 4}[number]
    done.runs(f"u | at | n | g \n a | {at_time} | {number} | {gap} \n b | 35 | 5 | 4")
    found = [(int(row["count"]), int(row["total"])) for row in done.told("count | total")]
    assert [count for count, _ in found] == [1] * 6
    assert sum(total for _, total in found) == 1 + 3 + 2 + 4 + 5 + int(number)
