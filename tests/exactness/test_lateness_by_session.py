"""Lateness by session, without revive: new sessions may lie within the gap of final ones, which stay as they are."""

from collections.abc import Callable

import pytest

from tests.exactness.play import Play, fails_today

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
BY_SESSION = {"lateness": "session"}


@fails_today("a chain is cut anew from all events of its time, those of a final session among them")
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
