"""Lateness by session, without revive: new sessions may lie within the gap of final ones, which stay as they are."""

from collections.abc import Callable

import pytest

from tests.exactness.play import BY_N, TOTAL, Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
BY_SESSION = {"lateness": "session"}


def test_a_session_beside_a_final_one_counts_its_own_events_alone(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 a@83 | a@97", time=BY_SESSION, session={"gap": "10m", "max_duration": "12m"})
    # 97 is more than 12 minutes after 83, and so starts a session.
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 83    | 92  | 2     | no
        a | 85    | 85  | 1     | yes
        a | 97    | 97  | 1     | no
        """,
        u="a",
    )


def test_sessions_that_start_together_have_ids_of_their_own(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 | a@88 | a@85", time=BY_SESSION, late_events="amend")
    found = done.told("session_id | count", u="a")
    assert len({row["session_id"] for row in found}) == len(found)
    assert sum(int(row["count"]) for row in found) == 4


def test_a_delete_leaves_the_events_of_a_final_session_alone(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 a@83 | a@97=2", time=BY_SESSION)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 83    | 92  | 2     | no
        a | 85    | 85  | 1     | yes
        """,
        u="a",
    )
    done.assert_clean()


def test_a_delete_keeps_the_own_events_of_a_session_amid_a_final_one(play: Plays) -> None:
    done = play("tick@110 a@85 a@95 | a@112 a@103 | a@94=3 | a@115=2", time=BY_SESSION)
    done.source("DELETE FROM {} WHERE n = 2").run()
    # 94 lies within the time of the final session, which holds two events.
    done.assert_sessions(
        """
        u | start | end | count | total | final
        a | 85    | 95  | 2     | 2     | yes
        a | 94    | 112 | 3     | 5     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_a_delete_keeps_the_first_event_of_a_session_amid_a_longer_final_one(play: Plays) -> None:
    done = play("tick@110 a@85 a@94.5 a@95 | a@112 a@103 | a@94=3 | a@115=2", time=BY_SESSION)
    done.source("DELETE FROM {} WHERE n = 2").run()
    # The final session's third event lies behind the first of the other, which is known to begin with it.
    done.assert_sessions(
        """
        u | start | end | count | total | final
        a | 85    | 95  | 3     | 3     | yes
        a | 94    | 112 | 3     | 5     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_a_session_leaves_the_events_of_final_ones_that_overlap_each_other_alone(play: Plays) -> None:
    done = play(
        "tick@106 a@85 a@95 | a@82 a@90 a@94.5 a@104 | a@108",
        time=BY_SESSION,
        session={"gap": "10m", "max_duration": "12m"},
    )
    done.assert_sessions(
        """
        u | start        | end | count | final
        a | 82           | 90  | 2     | yes
        a | 85           | 95  | 2     | yes
        a | 94+30000000us | 104 | 2    | no
        a | 108          | 108 | 1     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_a_delete_beside_final_sessions_that_overlap_each_other_takes_one_event(play: Plays) -> None:
    done = play("tick@97 a@77 a@86 | tick@110 a@85 a@95 | a@112 a@103 | a@94=3 | a@115=2", time=BY_SESSION)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions(
        """
        u | start | end | count | total | final
        a | 77    | 86  | 2     | 2     | yes
        a | 85    | 95  | 2     | 2     | yes
        a | 94    | 112 | 3     | 5     | no
        """,
        u="a",
    )
    done.assert_clean()


@pytest.mark.parametrize("comes", [" | a@104 a@113 a@122", ""], ids=["before", "in the same run"])
def test_a_final_session_that_shrinks_leaves_the_events_of_what_overlaps_a_live_one_alone(
    play: Plays, comes: str
) -> None:
    done = play("tick@97 a@77 a@80=2 a@86 | tick@116 a@85 a@95 a@104" + comes, time=BY_SESSION)
    done.source("DELETE FROM {} WHERE n = 2")
    if not comes:
        done.add("a@104 a@113 a@122")
    done.run()
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 77    | 86  | 2     | yes
        a | 85    | 104 | 3     | yes
        a | 104   | 122 | 3     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_sessions_made_again_beside_each_other_leave_the_events_of_the_final_one_between_alone(play: Plays) -> None:
    chains = {"gap": "10m", "max_duration": "20m"}
    done = play("tick@97 a@77 a@80=2 a@86 | tick@116 a@85 a@95 a@104", time=BY_SESSION, session=chains)
    done.source("DELETE FROM {} WHERE n = 2").runs("a@104 a@113 a@122 a@131")
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 77    | 86  | 2     | yes
        a | 85    | 104 | 3     | yes
        a | 104   | 122 | 3     | no
        a | 131   | 131 | 1     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_an_aggregate_taken_up_beside_a_final_session_that_shrinks_moves_no_event(play: Plays) -> None:
    done = play("tick@97 a@77 a@80=2 a@86 | tick@116 a@85 a@95 a@104 | a@104 a@113 a@122", time=BY_SESSION)
    most = {"name": "most", "fn": "max", "of": "n"}
    done.source("DELETE FROM {} WHERE n = 2").change(aggregates=[*TOTAL, most]).run()
    done.assert_sessions(
        """
        u | start | end | count | total | final
        a | 77    | 86  | 2     | 2     | yes
        a | 85    | 104 | 3     | 3     | yes
        a | 104   | 122 | 3     | 3     | no
        """,
        u="a",
    )


def test_a_late_event_apart_that_goes_leaves_the_final_session_of_its_time_alone(play: Plays) -> None:
    done = play("tick@110 a@85 a@95 | a@90=3", time=BY_SESSION, late_events="separate")
    done.source("DELETE FROM {} WHERE n = 3").runs("a@104")
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 85    | 95  | 2     | yes
        a | 104   | 104 | 1     | no
        """,
        u="a",
    )
    done.assert_clean()


def test_an_event_too_many_is_found(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 a@83", time=BY_SESSION)
    done.assert_clean()
    done.damage("UPDATE {} SET event_count = event_count + 1 WHERE u = 'a' AND is_final")
    assert not done.verify().clean


def test_an_event_is_in_reach_of_one_that_an_update_moves(play: Plays) -> None:
    done = play("tick@100 a@60=2", time=BY_SESSION)
    done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 01:35:00' WHERE n = 2").runs("a@88")
    done.assert_sessions("u | start | end | count \n a | 88 | 95 | 2", u="a")
    done.assert_rejected("u | reason")


def test_a_copy_that_is_freed_counts_beside_one_of_it_that_is_late(play: Plays) -> None:
    by_n = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("tick@100=9 a@60=1 a@95=1", time=BY_SESSION, source=by_n)
    done.source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 01:00:00'").runs("a@50=1 a@88=7")
    done.assert_sessions("u | start | end | count \n a | 88 | 95 | 2", u="a")
    done.assert_rejected("u | event_time | reason \n a | 50 | duplicate")
    done.assert_clean()


@pytest.mark.parametrize("others", ["", " b@50=3"])
def test_which_of_copies_is_the_first_does_not_hang_on_events_of_other_keys(play: Plays, others: str) -> None:
    by_n = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play(f"tick@100=9 | a@95=7 a@101=7{others}", time=BY_SESSION, source=by_n)
    done.assert_sessions("u | start | end | count \n a | 95 | 95 | 1", u="a")


@pytest.mark.broad
def test_a_copy_that_a_backfill_frees_elsewhere_joins_what_lies_within_the_gap(play: Plays) -> None:
    dedupe = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("tick@131", time=BY_SESSION, late_events="separate", source=dedupe)
    done.runs("a@100=7 a@150=1 a@159=2 a@165=3 | a@95=7 a@158=7")
    done.assert_rejected("u | event_time | reason \n a | 95 | duplicate \n a | 100 | late \n a | 158 | duplicate")
    done.backfill(100, 101)  # of 95 it is a copy, and 158 is none of that
    done.assert_sessions("u | start | end | count \n a | 95 | 95 | 1 \n a | 150 | 165 | 4 \n tick | 131 | 131 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize(("low", "high"), [(0, 10), (40, 50)])
@pytest.mark.parametrize("session", [{"gap": "30m"}, {"gap": "30m", "max_duration": "1d"}], ids=["gap", "cut"])
def test_a_backfill_beside_final_sessions_takes_in_all_that_lie_within_the_gap(
    play: Plays, session: dict[str, str], low: int, high: int
) -> None:
    done = play("a@0 tick@31 | a@20 tick@51 | a@45 tick@76", time=BY_SESSION, session=session)
    done.assert_sessions("u | start | end \n a | 0 | 0 \n a | 20 | 20 \n a | 45 | 45 \n tick | 31 | 76")
    done.backfill(low, high)
    done.assert_sessions("u | start | end | count \n a | 0 | 45 | 3 \n tick | 31 | 76 | 3")
    done.backfill(low, high).assert_sessions("u | start | end | count \n a | 0 | 45 | 3 \n tick | 31 | 76 | 3")
    done.assert_clean()


def test_a_late_event_at_the_edge_of_a_final_session_takes_none_from_its_other_edge(play: Plays) -> None:
    short = {"gap": "10m", "max_duration": "2m"}
    done = play("a@85 a@86 a@93 tick@100 | a@85=7", time=BY_SESSION, session=short)
    told = "u | start | end | total \n a | 85 | 85 | 7 \n a | 85 | 86 | 2 \n a | 93 | 93 | 1 \n tick | 100 | 100 | 1"
    done.assert_sessions(told)
    done.assert_clean()


def test_of_events_at_an_edge_a_final_session_has_the_one_that_reaches_no_farther(play: Plays) -> None:
    short = {"session": BY_N["session"] | {"max_duration": "2m"}}
    done = play("a@85=5 a@93=10 tick@100=10 | a@85=20", time=BY_SESSION, **short)
    told = "u | start | end | total \n a | 85 | 85 | 5 \n a | 85 | 85 | 20 \n a | 93 | 93 | 10"
    done.assert_sessions(told, u="a")
    done.assert_clean()


def test_two_final_sessions_that_share_an_edge_have_an_event_each_there(play: Plays) -> None:
    short = {"gap": "10m", "max_duration": "2m"}
    done = play("a@83 a@85 a@93 tick@100 | a@85=7 a@86=2 | a@83=5", time=BY_SESSION, session=short)
    done.assert_sessions("u | start | end | total \n a | 83 | 83 | 5", u="a", total=5)
    done.assert_clean()


def test_what_has_come_keeps_an_event_at_each_edge_beside_final_sessions_that_overlap(play: Plays) -> None:
    short = {"gap": "10m", "max_duration": "4m"}
    done = play("a@0 a@1 a@2 a@5 tick@16 | a@2 a@4 a@5 a@6 | a@0 | a@0 a@0 a@2", time=BY_SESSION, session=short)
    told = (
        "u | start | end | count \n a | 0 | 2 | 3 \n a | 0 | 2 | 3 \n a | 0 | 4 | 3 \n a | 5 | 5 | 1 \n a | 5 | 6 | 2"
    )
    done.assert_sessions(told, u="a")
    done.assert_clean()
