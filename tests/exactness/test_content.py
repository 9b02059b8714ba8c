"""Boundaries by content: what events hold, how many they are, or midnight ends a session, too."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.exactness.play import Play

EVENTS = "u STRING, at TIMESTAMP, n INT, what STRING, campaign STRING, seq INT"
Plays = Callable[..., Play]
HEADER = "u | start | end | count | why"


@pytest.fixture
def made(spark: Any, tmp_path: Any) -> Plays:
    def make(session: dict[str, Any], **sections: Any) -> Play:
        return Play(spark, tmp_path, EVENTS, session={"gap": "10m"} | session, **sections)

    return make


def test_an_event_that_starts_a_session_begins_one_within_the_gap(made: Plays) -> None:
    done = made({"starts_when": "what = 'start'"})
    done.runs("""
        u | at | n | what
        a | 0  | 1 | start
        a | 3  | 2 | page
        a | 5  | 3 | start
        a | 9  | 4 | page
        b | 0  | 5 | page
        b | 4  | 6 | page
        t | 90 | 0 | page
    """)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 2     | starts_when
        a | 5     | 9   | 2     | gap
        b | 0     | 4   | 2     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()
