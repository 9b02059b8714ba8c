"""Of copies one is accepted, whatever becomes of the others."""

from collections.abc import Callable

import pytest

from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
EVENTS = "u STRING, at TIMESTAMP, n INT, v INT"
BY_N = {
    "source": {"dedupe": {"by": ["n"], "within": "1h"}},
    "aggregates": [{"name": "total", "fn": "sum", "of": "v"}],
}
ONE = """
    u | at | n | v
    a | 0  | 1 | 10
    """
COPY = """
    u | at | n | v
    a | 1  | 1 | 20
    """
TWO = """
    u | at | n | v
    a | 0  | 1 | 10
    a | 1  | 2 | 20
    """
COPY_ALONE = """
    u | start | end | count | total
    a | 1     | 1   | 1     | 20
    """


@pytest.fixture
def deduped(play: Plays) -> Callable[[str], Play]:
    return lambda events: play(events, schema=EVENTS, time={"allowed_lateness": "1d"}, **BY_N)


def test_an_overwrite_is_no_copy_of_what_it_replaces(deduped: Callable[[str], Play]) -> None:
    done = deduped(TWO)
    done.source("INSERT OVERWRITE {} SELECT u, at, n, IF(n = 2, 99, v) FROM {}").run()
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 0     | 1   | 2     | 109
        """
    )
    done.assert_rejected("u | reason")


def test_events_without_an_id_are_no_copies(deduped: Callable[[str], Play]) -> None:
    done = deduped("u | at | n | v \n a | 0 | - | 10 \n a | 1 | - | 20 \n a | 1 | 7 | 30").runs(
        "u | at | n | v \n a | 1 | - | 20"
    )
    done.assert_sessions("u | start | end | count | total \n a | 0 | 1 | 4 | 80")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_copy_takes_the_place_of_its_deleted_original(deduped: Callable[[str], Play]) -> None:
    done = deduped(ONE).runs(COPY)
    done.assert_rejected("u | event_time | reason \n a | 1 | duplicate")
    done.source("DELETE FROM {} WHERE v = 10").run()
    done.assert_sessions(COPY_ALONE)
    done.assert_rejected("u | event_time | reason")


def test_a_copy_that_comes_with_the_delete_of_its_original_is_accepted(deduped: Callable[[str], Play]) -> None:
    done = deduped(ONE).add(COPY)
    done.source("DELETE FROM {} WHERE v = 10").run()
    done.assert_sessions(COPY_ALONE)
    done.assert_rejected("u | event_time | reason")


def test_an_update_that_makes_a_row_a_copy_takes_it_out(deduped: Callable[[str], Play]) -> None:
    done = deduped(TWO)
    done.source("UPDATE {} SET n = 1 WHERE n = 2").run()
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 0     | 0   | 1     | 10
        """
    )
    done.assert_rejected("u | event_time | reason \n a | 1 | duplicate")


@pytest.mark.parametrize("way", ["readmit", "backfill"])
def test_of_two_late_copies_one_is_taken_in(play: Plays, way: str) -> None:
    done = play("u | at | n | v \n tick | 100 | 9 | 0", schema=EVENTS, **BY_N)
    # A late event is no original: both are late.
    done.runs("u | at | n | v \n a | 5 | 1 | 10 \n a | 5 | 1 | 10")
    done.assert_rejected("u | reason \n a | late \n a | late")
    getattr(done, way)(0, 10)
    done.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 10", u="a")
    done.assert_rejected("u | reason \n a | duplicate")


BY_SESSION = BY_N | {"time": {"lateness": "session"}}


def test_an_event_is_no_copy_of_one_that_is_late_by_its_place(play: Plays) -> None:
    done = play("u | at | n | v \n tick | 100 | 9 | 0", schema=EVENTS, **BY_SESSION)
    done.runs("u | at | n | v \n a | 85 | 7 | 10 \n a | 85 | 8 | 1 \n a | 85 | 8 | 1 \n a | 101 | 7 | 20")
    done.assert_sessions("u | start | end | count | total \n a | 101 | 101 | 1 | 20", u="a")
    done.assert_rejected("u | event_time | reason \n a | 85 | duplicate \n a | 85 | late \n a | 85 | late")
    done.assert_clean()


def test_copies_bring_each_other_in_reach(play: Plays) -> None:
    done = play("u | at | n | v \n tick | 100 | 9 | 0", schema=EVENTS, **BY_SESSION)
    # Alone 85 is late; lateness is judged before copies are, and 92 lies beside it.
    done.runs("u | at | n | v \n a | 85 | 7 | 10 \n a | 92 | 7 | 20")
    done.assert_sessions("u | start | end | count | total \n a | 85 | 85 | 1 | 10", u="a")
    done.assert_rejected("u | event_time | reason \n a | 92 | duplicate")
    done.assert_clean()


def test_of_copies_in_reach_by_another_copy_one_each_is_accepted(play: Plays) -> None:
    done = play("u | at | n | v \n tick | 100 | 9 | 0", schema=EVENTS, **BY_SESSION)
    done.runs("u | at | n | v \n a | 85 | 7 | 10 \n a | 85 | 8 | 1 \n a | 85 | 8 | 1 \n a | 92 | 7 | 20")
    done.assert_sessions("u | start | end | count | total \n a | 85 | 85 | 2 | 11", u="a")
    done.assert_rejected("u | event_time | reason \n a | 85 | duplicate \n a | 92 | duplicate")
    done.assert_clean()


def test_late_copies_are_told_at_once_however_many(play: Plays) -> None:
    done = play("u | at | n | v \n tick | 300 | 9 | 0", schema=EVENTS, **BY_SESSION)
    late = [f"a | {at} | {n} | 1" for n, at in enumerate((0, 20, 40, 60, 80))]
    copies = [f"a | {at + 11} | {n} | 1" for n, at in enumerate((0, 20, 40, 60, 80))]
    done.runs("\n ".join(["u | at | n | v", *late, *copies, "a | 299 | 50 | 1"]))
    done.assert_sessions("u | start | end | count | total \n a | 299 | 299 | 1 | 1", u="a")
    done.assert_rejected("u | reason \n" + "\n".join(["a | late"] * 10))
    done.assert_clean()


def test_a_row_that_came_again_is_no_delete_that_is_made_at_last(play: Plays) -> None:
    kept = {"corrections": "quarantine", "time": {"allowed_lateness": "1d"}}
    done = play("u | at | n | v \n a | 10 | 1 | 10", schema=EVENTS, **BY_N | kept)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.runs("u | at | n | v \n a | 10 | 1 | 10").runs("u | at | n | v \n a | 12 | 1 | 20")
    done.readmit()
    done.assert_sessions("u | start | end | count | total \n a | 10 | 10 | 1 | 10")
    done.assert_rejected("u | event_time | reason \n a | 12 | duplicate")
    done.assert_clean()


def test_a_copy_that_stays_one_brings_no_late_event_in_reach_when_another_event_goes(play: Plays) -> None:
    dedupe = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("tick@100=9 a@50=1 a@70=2 a@92=1", source=dedupe, time={"lateness": "session"})
    done.source("DELETE FROM {} WHERE n = 2").runs("a@85=7")
    done.assert_sessions("u | start | count \n a | 50 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 85 | late \n a | 92 | duplicate")
    done.assert_clean()


def test_a_copy_whose_original_goes_is_rejected_as_one_of_the_future_where_it_is_by_now(play: Plays) -> None:
    dedupe = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("a@500=1 a@501=1 a@503=1 b@500=2", now=100, source=dedupe, time={"max_future_skew": "10d"})
    done.assert_rejected("u | event_time | reason \n a | 501 | duplicate \n a | 503 | duplicate")
    done.change(time={"max_future_skew": "1h"}).source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 08:20:00'").run()
    done.assert_rejected("u | event_time | reason \n a | 501 | in_the_future \n a | 503 | in_the_future")
    done.assert_clean()
    done.at(600).backfill(490, 510).assert_sessions("u | start | end | count \n a | 501 | 501 | 1")
    done.assert_rejected("u | event_time | reason \n a | 503 | duplicate")
    done.assert_clean()


def test_copies_of_what_lay_apart_are_judged_again_where_it_is_one_itself(play: Plays) -> None:
    dedupe = {"dedupe": {"by": ["n"], "within": "3m"}}
    skew = {"allowed_lateness": "0s", "max_future_skew": "1h"}
    done = play("tick@100=9 a@300=1", now=100, source=dedupe, time=skew, late_events="separate")
    done.at(400).runs("tick@350=9").at(401).runs("a@302=1").at(402).runs("a@304=1")
    done.assert_rejected("u | event_time | reason \n a | 300 | in_the_future \n a | 302 | late \n a | 304 | duplicate")
    done.at(410).backfill(290, 310)
    done.assert_sessions("u | start | end | count | late \n a | 300 | 304 | 2 | no", u="a")
    done.assert_rejected("u | event_time | reason \n a | 302 | duplicate")
    done.assert_clean()


def test_a_copy_that_a_backfill_frees_elsewhere_joins_the_session_that_is_there(play: Plays) -> None:
    once = {"dedupe": {"by": ["n"], "within": "42m"}}
    done = play("tick@40 | a@5=9", source=once)
    done.change(late_events="separate").runs("a@10=9 | a@48=1 a@52=2 a@50=9")
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n a | 10 | late \n a | 50 | duplicate")
    done.backfill(0, 20)
    done.assert_sessions(
        """
        u    | start | end | count
        a    | 5     | 5   | 1
        a    | 48    | 52  | 3
        tick | 40    | 40  | 1
        """
    )
    done.assert_clean()
