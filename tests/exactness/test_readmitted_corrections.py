"""What `readmit` makes of corrections that wait: whole, once, in their place."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sessionizer.jobs.commands.look_back import LookBack, readmit
from sessionizer.lib.errors import RunFailed, SessionizerError
from tests.exactness.play import STAYING, WAITING, Play, at
from tests.exactness.test_forgetting import forget

Plays = Callable[..., Play]
FAILING: dict[str, Any] = {"aggregates": [{"name": "total", "fn": "sum", "of": "CAST(6 / n AS INT)"}]}
WITH_IDS = "u STRING, at TIMESTAMP, id INT, n INT"


@pytest.fixture
def one_event(play: Plays) -> Play:
    return play(
        "u | at | id | n \n a | 5 | 1 | 3",
        schema=WITH_IDS,
        corrections="quarantine",
        source={"dedupe": {"by": ["id"], "within": "1h"}},
    )


@pytest.mark.broad
def test_a_correction_that_another_key_brings_along_takes_its_late_session_with_it(play: Plays) -> None:
    done = play("tick@100 | a@5=3 b@5=3", corrections="quarantine", late_events="separate")
    done.source("UPDATE {} SET n = 7 WHERE u IN ('a', 'b')").run()
    readmit(done.kind, LookBack(at(0), at(1440), (json.dumps({"u": "a"}),), now=done.now))
    done.assert_sessions(
        """
        u    | start | count | total | late
        a    | 5     | 1     | 7     | no
        b    | 5     | 1     | 7     | no
        tick | 100   | 1     | 1     | no
        """
    )
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("policy", ["quarantine", {"deletes": "ignore"}], ids=["waits", "is ignored"])
def test_a_delete_of_an_event_that_has_no_time_by_now_is_made_too(play: Plays, policy: Any) -> None:
    events = "u | at | n | at2 \n a | 5 | 1 | - \n b | 7 | 2 | 7"
    done = play(events, schema="u STRING, at TIMESTAMP, n INT, at2 TIMESTAMP", corrections=policy)
    done.source("DELETE FROM {} WHERE n = 1").run()
    done.change(source={"event_time": "at2"}).rebuild()
    assert done.told_rejected("u | event_time | kept") == [{"u": "a", "event_time": None, "kept": "in"}]
    (done.readmit(300, 310) if policy == "quarantine" else done.readmit_deletes("b")).assert_clean()
    (done.readmit() if policy == "quarantine" else done.readmit_deletes("a")).assert_rejected("u | reason")
    done.assert_sessions("u | start | count \n b | 7 | 1")
    done.assert_clean()
    done.change(source={"event_time": "at2"}, corrections="apply").source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("u | start | count")
    done.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("anew", [False, True])
def test_an_update_is_readmitted_whole_wherever_it_moved_its_event(play: Plays, anew: bool) -> None:
    done = play("a@5=2 b@5=3 c@6=4 tick@600", corrections="quarantine")
    done.source("UPDATE {} SET u = 'd', at = at + INTERVAL 300 MINUTES WHERE n = 2").run()
    done.source("UPDATE {} SET at = at + INTERVAL 400 MINUTES WHERE n = 3").run()
    done.source("DELETE FROM {} WHERE n = 4").run()
    if anew:
        done.rebuild()
    done.readmit(300, 310).assert_sessions("u | start \n b | 5 \n c | 6 \n d | 305 \n tick | 600")
    done.assert_rejected("u | reason | kept \n b | correction | in \n b | correction | out \n c | correction | in")
    done.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_a_correction_that_is_readmitted_takes_away_what_lay_apart(play: Plays, moves: bool) -> None:
    done = play("tick@400 a@390 | a@5=3", corrections="quarantine", late_events="separate")
    change = "UPDATE {} SET at = at + INTERVAL 300 MINUTES" if moves else "DELETE FROM {}"
    done.source(f"{change} WHERE u = 'a'").run()
    if not moves:
        done.readmit(300, 800).assert_rejected("u | reason \n a | correction \n a | late")
    done.readmit(*((300, 800) if moves else (0, 10))).assert_rejected("u | reason")
    done.assert_sessions("start | late" + (" \n 305 | no \n 690 | no" if moves else ""), u="a")
    done.assert_clean()


@pytest.mark.slow
def test_an_update_in_place_is_readmitted_where_its_session_lies_across_what_has_been_forgotten(play: Plays) -> None:
    done = play("x@5 a@2565 a@2572 tick@4000", corrections="quarantine")
    forget(done).source("UPDATE {} SET n = 7 WHERE u = 'a'").run()
    done.readmit(2570, 4000).assert_sessions("u | start | end | count | total \n a | 2565 | 2572 | 2 | 14", u="a")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_an_event_that_was_moved_twice_is_readmitted_once(play: Plays) -> None:
    done = play("a@5=2 tick@600", corrections="quarantine")
    for minutes in (100, 200):
        done.source(f"UPDATE {{}} SET at = at + INTERVAL {minutes} MINUTES WHERE n = 2").run()
    done.readmit(300, 500).assert_sessions("u | start \n a | 305 \n tick | 600")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_readmission_by_another_key_is_told_of_the_rule(play: Plays) -> None:
    done = play("tick@100 | a@5")
    with pytest.raises(SessionizerError, match="the rule"):
        done.change(source={"key": ["u", "n"]}).readmit()


@pytest.mark.slow
def test_a_readmitted_update_that_an_expression_fails_for_is_rejected_for_that(play: Plays) -> None:
    done = play("a@0 a@5=2 tick@100", **FAILING, **WAITING).source("UPDATE {} SET n = 0 WHERE n = 2")
    done.run()
    done.readmit().assert_rejected("u | event_time | reason | kept \n a | 5 | expression_failed | out")
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1 \n tick | 100 | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_readmit_fails_for_an_update_that_makes_its_row_invalid_where_invalid_events_are_to_fail(play: Plays) -> None:
    share = {"name": "share", "fn": "sum", "of": "1 div n"}
    policies: Any = {"invalid_events": "fail", "corrections": "quarantine"}
    done = play("a@0=1 a@5=2", aggregates=[share], **policies)
    done.source("UPDATE {} SET n = 0 WHERE n = 2").run()
    with pytest.raises(RunFailed, match="1 event is invalid, and invalid_events is fail; the first: expression_failed"):
        done.readmit()
    done.assert_sessions("u | start | end | count \n a | 0 | 5 | 2")
    done.change(invalid_events="quarantine").readmit()
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    done.change(invalid_events="fail").runs("a@6=3").readmit()  # of what was kept out before it takes in what it can
    done.assert_sessions("u | start | end | count \n a | 0 | 6 | 2")
    done.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize(("there", "to"), [("a@6=3", "b"), ("b@6=3", "a")])
def test_updates_that_share_a_key_with_one_of_the_span_are_made_whole_too(play: Plays, there: str, to: str) -> None:
    done = play(f"a@5=2 {there} tick@600", **WAITING)
    done.source("UPDATE {} SET at = at + INTERVAL 300 MINUTES WHERE n = 2").source(
        f"UPDATE {{}} SET u = '{to}' WHERE n = 3"
    )
    done.run()
    done.readmit(300, 310).assert_sessions(f"u | start | total \n a | 305 | 2 \n {to} | 6 | 3 \n tick | 600 | 1")
    done.assert_rejected("u | event_time")
    done.assert_clean()


@pytest.mark.slow
def test_a_readmitted_update_is_no_copy_of_what_it_replaces(one_event: Play) -> None:
    one_event.source("UPDATE {} SET n = 4").run()
    one_event.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 3")
    one_event.readmit()
    one_event.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 4")
    one_event.assert_rejected("u | reason")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("told", [WAITING, {"corrections": {"deletes": "ignore"}}], ids=str)
def test_a_delete_of_a_late_event_apart_that_is_made_leaves_the_sessions_of_its_time_alone(
    play: Plays, told: dict[str, Any]
) -> None:
    done = play("tick@110 a@85 a@95 | a@90=3", time=STAYING, late_events="separate", **told)
    done.source("DELETE FROM {} WHERE n = 3").runs("a@104")
    done = done.readmit() if told is WAITING else done.readmit_deletes("a")
    done.assert_sessions("u | start | end | count | final \n a | 85 | 95 | 2 | yes \n a | 104 | 104 | 1 | no", u="a")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_delete_of_a_late_event_apart_is_made_beside_an_equal_one_that_came_again(play: Plays) -> None:
    ignored = {"corrections": {"deletes": "ignore"}}
    done = play("tick@110 a@85 a@95 | a@90=3", time=STAYING, late_events="separate", **ignored)
    done.source("DELETE FROM {} WHERE n = 3").run()
    done.runs("a@90=3 a@104").readmit_deletes("a")
    done.assert_sessions(
        """
        u | start | end | count | final | late
        a | 85    | 95  | 2     | yes   | no
        a | 90    | 90  | 1     | yes   | yes
        a | 104   | 104 | 1     | no    | no
        """,
        u="a",
    )
    done.assert_clean()
