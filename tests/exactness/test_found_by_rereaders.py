"""Where a reader of the code found wrong rows: content beside late events, ties, keys of odd names."""

from collections.abc import Callable

import pytest

from tests.exactness.play import Play

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
TICK = {"time": {"allowed_lateness": "0s"}}
BY_SESSION = {"time": {"allowed_lateness": "0s", "lateness": "session"}, "late_events": "amend"}


def test_what_is_amended_by_session_is_cut_with_all_its_events(play: Plays) -> None:
    """The login at 5 shares its minute with the last event of a final session."""
    login = {"source": {"key": ["u"], "order_by": ["n"]}, "session": {"gap": "30m", "starts_when": "n % 10 = 4"}}
    done = play("a@0=1 a@3=2 a@5=3 a@5=4 a@20=5 tick@40 | a@45=14", **BY_SESSION, **login)
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 0     | 5   | 3     | 6
        a | 5     | 20  | 2     | 9
        a | 45    | 45  | 1     | 14
        """,
        u="a",
    )
    done.assert_clean()


def test_a_final_session_amid_the_reach_of_another_stays_where_content_cuts(play: Plays) -> None:
    changes = {"session": {"gap": {"expr": "make_dt_interval(0, 0, g, 0)"}, "changes_of": ["p"]}}
    rows = """
        u    | at  | g    | p
        a    | 0   | 1000 | x
        a    | 11  | 1    | y
        tick | 100 | 1    | x
    """
    schema = "u STRING, at TIMESTAMP, g INT, p STRING"
    done = play(rows, schema=schema, aggregates=[], **BY_SESSION, **changes)
    done.runs("u | at | g | p \n a | 500 | 1 | x")
    done.assert_sessions("u | start | end \n a | 0 | 0 \n a | 11 | 11 \n a | 500 | 500", u="a")
    done.assert_clean()


def test_a_late_session_is_known_though_those_of_its_first_minute_are_out_of_reach(play: Plays) -> None:
    most = {"session": {"gap": "30m", "max_events": 3}, "late_events": "separate"}
    late = " ".join([*[f"a@0={n}" for n in range(1, 8)], "a@20=8", "a@40=9"])
    done = play(f"tick@600 | {late}", **most, **TICK)
    done.source("DELETE FROM {} WHERE n = 9").run()
    found = done.told("start | end | count", u="a")
    assert [(row["start"], row["end"], row["count"]) for row in found] == [
        ("0", "0", "3"),
        ("0", "0", "3"),
        ("0", "20", "2"),
    ]
    done.assert_clean()


@pytest.mark.parametrize("name", ["mark", "candidate", "w", "f", "col", "starts"])
def test_keys_may_be_called_like_what_is_computed(play: Plays, name: str) -> None:
    per_key = {"watermark": {"per": "key"}, "idle_timeout": {"after": "1d", "clock": "processing_time"}}
    per = {"watermark": {"per": [name]}} if name in ("mark", "candidate") else per_key
    cuts = {"gap": "10m", "ends_when": "n = 9"} if name == "col" else {"gap": "10m", "max_duration": "12m"}
    schema, source = f"{name} STRING, at TIMESTAMP, n INT", {"key": [name]}
    rows = f"{name} | at | n \n a | 0 | 1 \n a | 8 | 1 \n a | 16 | 1"
    done = play(rows, schema=schema, source=source, time={"allowed_lateness": "1d", **per}, session=cuts)
    done.runs(f"{name} | at | n \n a | 20 | 1")
    done.assert_clean()


def test_aggregates_are_taken_up_beside_final_sessions_that_stay(play: Plays) -> None:
    """The event at 95 that is the live session's own shares its minute with the last one of a final session."""
    freezes = {"time": {"lateness": "session", "allowed_lateness": "0s"}}
    done = play("tick@110 a@85 a@86 a@95 | a@95=3 a@104=4", **freezes)
    before = "u | start | end | count \n a | 85 | 95 | 3 \n a | 95 | 104 | 2"
    done.assert_sessions(before, u="a")
    least = {"name": "least", "fn": "min", "of": "n"}
    done.change(aggregates=[{"name": "total", "fn": "sum", "of": "n"}, least]).run()
    done.assert_sessions(before, u="a")
    done.assert_clean()
