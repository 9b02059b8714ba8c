"""Boundaries by content: what events hold, how many they are, or midnight ends a session, too. Sessions by hand."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.errors import TableError
from tests.exactness.play import Play, SessionizerError, minute

pytestmark = pytest.mark.broad
EVENTS = "u STRING, at TIMESTAMP, n INT, what STRING, campaign STRING, seq INT"
Plays = Callable[..., Play]
MONTH = 31 * 1440  # minutes


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Plays:
    """A play with these keys in the section `session`, over these events, run by run."""

    def make(session: dict[str, Any], *events: str, **sections: Any) -> Play:
        done = Play(spark, tmp_path / "play", EVENTS, session={"gap": "10m"} | session, **sections)
        for part in events:
            done.runs(part)
        return done

    return make


CLOCKS = [("a", (20, 0)), ("a", (30, 30)), ("a", (45, 0))]
LATER = {"time": {"allowed_lateness": "2h"}}
LOGIN = """
    u | at | n | what
    a | 0  | 1 | login
    a | 3  | 2 | page
    a | 5  | 3 | login
    a | 9  | 4 | page
    b | 0  | 5 | page
    b | 4  | 6 | page
    t | 90 | 0 | page
"""


def test_an_event_that_starts_a_session_begins_one_within_the_gap(made: Plays) -> None:
    done = made({"starts_when": "what = 'login'"}, LOGIN)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 2     | starts_when
        a | 5     | 9   | 2     | gap
        b | 0     | 4   | 2     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_a_key_may_be_written_in_other_letters_than_its_column(spark: SparkSession, tmp_path: Path) -> None:
    session, source = {"gap": "10m", "max_events": 2}, {"key": ["U"], "dedupe": {"by": ["N"], "within": "1h"}}
    done = Play(spark, tmp_path, session=session, source=source, late_events="separate")
    done.runs("a@1=1 a@2=2 a@3=3").runs("a@4=4 a@4=4 a@5=5")
    done.assert_sessions("start | end | count \n 1 | 2 | 2 \n 3 | 4 | 2 \n 5 | 5 | 1")
    done.source("DELETE FROM {} WHERE n = 2").runs("a@500=9 | a@6=6").backfill(0, 10)
    done.assert_clean()
    done.rebuild().assert_clean()


def test_an_event_that_ends_a_session_is_its_last(made: Plays) -> None:
    events = """
        u | at | n | what
        a | 0  | 1 | page
        a | 3  | 2 | logout
        a | 4  | 3 | page
        a | 20 | 4 | logout
        t | 90 | 0 | page
    """
    done = made({"ends_when": "what = 'logout'"}, events)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 2     | ends_when
        a | 4     | 4   | 1     | gap
        a | 20    | 20  | 1     | ends_when
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_a_value_other_than_the_last_one_of_the_session_begins_another_and_nulls_change_nothing(made: Plays) -> None:
    events = """
        u | at | n | campaign
        a | 0  | 1 | -
        a | 1  | 1 | mail
        a | 2  | 1 | -
        a | 3  | 1 | mail
        a | 4  | 1 | ads
        a | 5  | 1 | mail
        t | 90 | 0 | -
    """
    done = made({"changes_of": ["campaign"]}, events)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 4     | changes_of
        a | 4     | 4   | 1     | changes_of
        a | 5     | 5   | 1     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_so_many_events_are_a_session_and_the_next_one_begins_another(made: Plays) -> None:
    done = made({"max_events": 2}, "a@0 a@1 a@2 a@3 a@4 t@90")
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 1   | 2     | max_events
        a | 2     | 3   | 2     | max_events
        a | 4     | 4   | 1     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_midnight_is_that_of_the_zone_and_so_is_the_date_of_a_session(made: Plays) -> None:
    """In Berlin it is midnight at 23:00 in winter, and in summer at 22:00; the clock changes on 29 March."""
    done = made({"cut_at": "midnight", "time_zone": "Europe/Berlin", "gap": "2h"}, **LATER)
    march_28, march_29 = (MONTH + 28 * 1440 + day * 1440 for day in (27, 28))
    winter, summer = march_28 + 23 * 60, march_29 + 22 * 60
    done.at(summer + 400).runs(f"a@{winter - 1} a@{winter} a@{summer - 1} a@{summer} t@{summer + 300}")
    done.assert_sessions(f"""
        u | start          | end            | session_date | why
        a | {winter - 1}   | {winter - 1}   | 2026-03-28   | midnight
        a | {winter}       | {winter}       | 2026-03-29   | gap
        a | {summer - 1}   | {summer - 1}   | 2026-03-29   | midnight
        a | {summer}       | {summer}       | 2026-03-30   | gap
        t | {summer + 300} | {summer + 300} | 2026-03-30   | -
    """)
    done.assert_clean()


def test_events_of_one_time_go_by_order_by(made: Plays) -> None:
    """Two sessions begin at minute 5, with ids of their own."""
    events = """
        u | at | n | what   | seq
        a | 0  | 1 | page   | 1
        a | 5  | 2 | login  | 3
        a | 5  | 3 | logout | 2
        a | 5  | 4 | login  | 4
        a | 6  | 5 | page   | 5
        t | 90 | 0 | page   | 6
    """
    rule = {"starts_when": "what = 'login'", "ends_when": "what = 'logout'"}
    done = made(rule, events, source={"key": ["u"], "order_by": ["seq"]})
    done.assert_sessions("""
        u | start | end | count | total | why
        a | 0     | 5   | 2     | 4     | ends_when
        a | 5     | 5   | 1     | 2     | starts_when
        a | 5     | 6   | 2     | 9     | gap
        t | 90    | 90  | 1     | 0     | -
    """)
    assert len({row["session_id"] for row in done.told("session_id")}) == 4
    done.assert_clean()


ONE_BY_ONE = [
    "u | at | n | what\n a | 5 | 3 | login",
    "u | at | n | what\n a | 9 | 4 | page\n b | 4 | 6 | page",
    "u | at | n | what\n a | 3 | 2 | page\n t | 20 | 0 | page",
    "u | at | n | what\n a | 0 | 1 | login\n b | 0 | 5 | page",
    "u | at | n | what\n t | 90 | 0 | page",
]


@pytest.mark.parametrize("commit", ["merge", "replace"])
def test_events_that_come_run_by_run_in_any_order_make_the_same_sessions(made: Plays, commit: str) -> None:
    done = made({"starts_when": "what = 'login'"}, *ONE_BY_ONE, sessions={"commit": commit}, **LATER)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 2     | starts_when
        a | 5     | 9   | 2     | gap
        b | 0     | 4   | 2     | gap
        t | 20    | 20  | 1     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_a_session_keeps_to_the_events_before_the_one_that_cut_it_whatever_comes_later(made: Plays) -> None:
    events = "u | at | n | what\n a | 1 | 1 | page", "u | at | n | what\n a | 12 | 1 | page\n a | 7 | 1 | page"
    done = made({"starts_when": "what = 'login'"}, LOGIN, *events, **LATER)
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 3   | 3     | starts_when
        a | 5     | 12  | 4     | gap
        b | 0     | 4   | 2     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_where_the_event_that_began_a_session_is_deleted_or_moved_sessions_grow_together(made: Plays) -> None:
    done = made({"starts_when": "what = 'login'"}, LOGIN)
    done.source("DELETE FROM {} WHERE n = 3").run()
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 9   | 3     | gap
        b | 0     | 4   | 2     | gap
        t | 90    | 90  | 1     | -
    """)
    done.source("UPDATE {} SET what = 'login' WHERE n = 6").run()
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 9   | 3     | gap
        b | 0     | 0   | 1     | starts_when
        b | 4     | 4   | 1     | gap
        t | 90    | 90  | 1     | -
    """)
    done.assert_clean()


def test_late_events_apart_are_cut_among_themselves(made: Plays) -> None:
    late = "u | at | n | what\n a | 4 | 1 | login\n a | 2 | 2 | page"
    done = made({"starts_when": "what = 'login'"}, LOGIN, late, late_events="separate")
    done.assert_sessions(
        """
        u | start | end | count | why
        a | 2     | 2   | 1     | starts_when
        a | 4     | 4   | 1     | gap
        """,
        is_late=True,
    )
    done.source("DELETE FROM {} WHERE n = 1 AND what = 'login' AND minute(at) = 4").run()
    done.assert_sessions("u | start | end | count | why\n a | 2 | 2 | 1 | gap", is_late=True)
    done.assert_clean()


def test_a_gap_of_its_own_reaches_over_no_cut(made: Plays) -> None:
    """The first session reaches to 60, and holds nothing behind the login, also when what follows is final."""
    gaps = {"expr": "make_dt_interval(0, 0, n, 0)"}
    first = "u | at | n | what\n a | 0 | 60 | page\n a | 5 | 1 | login\n t | 50 | 1 | page"
    done = made({"gap": gaps, "starts_when": "what = 'login'"}, first, "u | at | n | what\n a | 55 | 1 | page")
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 0   | 1     | -
        a | 5     | 5   | 1     | gap
        a | 55    | 55  | 1     | -
        t | 50    | 50  | 1     | gap
    """)
    done.assert_clean()


OVER_A_CUT = {"gap": {"expr": "make_dt_interval(0, 0, n, 0)"}, "starts_when": "what = 'login'"}
UNTIL_AN_END = {"gap": "30m", "ends_when": "what = 'end'"}
IDLING = {"idle_timeout": {"after": "30m", "clock": "processing_time"}, "allowed_lateness": "24h"}
OVER_A_LOGIN = "u | at | n | what\n a | 0 | 60 | page\n a | 5 | 1 | login"


def test_a_new_aggregate_lets_a_gap_of_its_own_reach_over_no_cut(made: Plays) -> None:
    done = made(OVER_A_CUT, f"{OVER_A_LOGIN}\n t | 50 | 1 | page")
    done.change(aggregates=[{"name": "least", "fn": "min", "of": "n"}]).run()
    done.assert_clean()
    done.runs("u | at | n | what\n a | 55 | 1 | page")
    done.assert_sessions("""
        u | start | end | count
        a | 0     | 0   | 1
        a | 5     | 5   | 1
        a | 55    | 55  | 1
        t | 50    | 50  | 1
    """)
    done.assert_clean()


def test_a_backfill_leaves_what_lives_amid_the_reach_of_another_as_it_is(made: Plays) -> None:
    idle = {"idle_timeout": {"after": "1d", "clock": "processing_time"}, "allowed_lateness": "24h"}
    done = made(OVER_A_CUT, time=idle).at(1000).runs(f"{OVER_A_LOGIN}\n a | 20 | 1 | page")
    three = "u | start | end | count\n a | 0 | 0 | 1\n a | 5 | 5 | 1\n a | 20 | 20 | 1"
    done.at(1030).backfill(10, 30)
    done.assert_sessions(three)
    done.assert_clean()
    done.runs("u | at | n | what\n t | 300 | 1 | page")
    done.assert_sessions(three, u="a")


def test_an_event_whose_session_begins_where_its_new_one_ends_has_come_to_that(made: Plays) -> None:
    """The first two come at 20, the third at 50; the end of the first session is deleted."""
    done = made(UNTIL_AN_END, time=IDLING).at(20)
    done.runs("u | at | n | what\n a | 0 | 1 | page\n a | 10 | 1 | end")
    done.at(50).runs("u | at | n | what\n a | 20 | 1 | page")
    done.at(60).source("DELETE FROM {} WHERE what = 'end'").run()
    done.assert_sessions("u | start | end | status \n a | 0 | 20 | open")
    done.at(81).run()
    done.assert_sessions("u | start | end | status \n a | 0 | 20 | closed")


def test_a_session_takes_no_arrival_from_one_that_begins_where_it_ends_and_another_lies(made: Plays) -> None:
    done = made(UNTIL_AN_END, time=IDLING, source={"order_by": ["n"]}).at(20)
    done.runs("u | at | n | what\n a | 0 | 1 | page\n a | 5 | 2 | end\n a | 10 | 3 | end\n a | 10 | 4 | page")
    done.at(50).runs("u | at | n | what\n a | 20 | 5 | page")
    done.at(60).source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("u | start | end | status \n a | 0 | 10 | closed \n a | 10 | 20 | open")


def test_a_session_of_one_microsecond_takes_no_arrival_from_one_that_ends_there(made: Plays) -> None:
    done = made(UNTIL_AN_END, time=IDLING, source={"order_by": ["n"]}).at(20)
    done.runs("u | at | n | what\n a | 0 | 2 | end\n a | 10 | 1 | end\n a | 10 | 4 | page\n a | 20 | 5 | page")
    done.at(50).runs("u | at | n | what\n a | 5 | 3 | page")
    done.at(60).source("DELETE FROM {} WHERE n = 5").run()
    done.assert_sessions("u | start | end | status \n a | 0 | 0 | closed \n a | 5 | 10 | open \n a | 10 | 10 | closed")


def test_what_updates_tell_amid_what_is_made_again_lacks_the_aggregates_that_are_away(
    made: Plays, tmp_path: Path
) -> None:
    done = made(OVER_A_CUT, outputs={"session_updates": str(tmp_path / "updates")})
    done.runs(f"{OVER_A_LOGIN}\n t | 50 | 1 | page").change(aggregates=[])
    done.runs("u | at | n | what\n a | 55 | 1 | page\n t | 300 | 1 | page").change().run()
    done.assert_sessions("u | start | total \n a | 0 | - \n a | 5 | 1 \n a | 55 | -", u="a")
    done.assert_clean()


def test_what_lies_amid_the_reach_of_what_is_made_again_is_no_arrival(made: Plays) -> None:
    """Of a key whose last event came at 1000: fifty-nine minutes later one of them is deleted."""
    idle = {"idle_timeout": {"after": "1h", "clock": "processing_time"}, "watermark": {"per": "key"}}
    done = made(OVER_A_CUT, time=idle).at(1000)
    done.runs("u | at | n | what\n a | 0 | 900 | page\n a | 60 | 1 | login\n a | 150 | 9 | page\n a | 152 | 9 | page")
    done.at(1059).source("DELETE FROM {} WHERE hour(at) = 2 AND minute(at) = 30").run()
    done.at(1062).runs("u | at | n | what\n t | 0 | 1 | page")
    done.assert_sessions("u | start | final\n a | 0 | yes\n a | 60 | yes\n a | 152 | yes", u="a")
    done.assert_clean()


def test_a_condition_that_fails_for_an_event_rejects_that_event(made: Plays) -> None:
    done = made({"ends_when": "1 / n > 0.5"}, "a@0=1 a@1=0 a@2=5 t@90=2")
    done.assert_sessions("""
        u | start | end | count | why
        a | 0     | 0   | 1     | ends_when
        a | 2     | 2   | 1     | gap
        t | 90    | 90  | 1     | -
    """)
    assert [row["reason"] for row in done.told_rejected("reason")] == ["expression_failed"]
    done.assert_clean()


@pytest.mark.parametrize(
    ("session", "says"),
    [
        ({"starts_when": "n"}, "session.starts_when must be true or false for each event, and this is INT"),
        ({"changes_of": ["map(what, n)"]}, "session.changes_of must name values that can be compared"),
        ({"ends_when": "whta = 'logout'"}, "session.ends_when does not fit the source table"),
        ({"starts_when": "rand() > 0.5"}, "session.starts_when must give the same value whenever it is computed"),
    ],
)
def test_a_boundary_that_cannot_be_is_told_before_anything_is_read(
    made: Plays, session: dict[str, Any], says: str
) -> None:
    done = made(session).add("a@0")
    with pytest.raises(SessionizerError, match=says):
        done.init()


def test_a_column_that_is_renamed_asks_for_a_rebuild_as_rows_of_one_time_are_ordered_by_it(made: Plays) -> None:
    done = made({"starts_when": "what = 'login'"}, LOGIN)
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    done.source("ALTER TABLE {} RENAME COLUMN campaign TO a_campaign")
    with pytest.raises(SessionizerError, match="columns of the source were renamed"):
        done.run()
    done.rebuild().assert_clean()


def test_as_many_late_sessions_of_one_time_as_there_are_are_erased(made: Plays) -> None:
    done = made({"max_events": 1}, "a@0 t@90", " ".join(["a@5"] * 110), late_events="separate")
    assert len(done.told("u", is_late=True)) == 110
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    assert done.told("u") == [{"u": "t"}]
    done.assert_clean()


def test_where_the_clock_goes_back_over_midnight_each_day_has_its_sessions(made: Plays) -> None:
    """In St John's it was midnight of 7 November 2010 at 02:30, and 23:01 of the 6th a minute later."""
    rule = {"cut_at": "midnight", "time_zone": "America/St_Johns", "gap": "30m"}
    done = made(rule)
    done.append([(who, datetime(2010, 11, 7, 2, *at, tzinfo=UTC), 1, None, None, None) for who, at in CLOCKS], EVENTS)
    done.init()
    done.run()
    assert [row["count"] for row in done.told("u | count") if row["u"] == "a"] == ["1", "1", "1"]
    done.assert_clean()


STARTS, ENDS = {"starts_when": "n % 7 = 0"}, {"ends_when": "n % 5 = 0"}
MIDNIGHT = {"cut_at": "midnight", "time_zone": "Africa/Nairobi"}  # at nine in the evening
NEAR_IT = 21 * 60


@pytest.mark.parametrize(
    "session",
    [STARTS, ENDS, MIDNIGHT, STARTS | ENDS | MIDNIGHT, STARTS | ENDS | MIDNIGHT | {"gap_boundary": "splits"}],
    ids=" ".join,
)
def test_a_first_load_cuts_by_neighbours_whatever_the_order(made: Plays, session: dict[str, Any]) -> None:
    random, users = Random(str(session)), range(400)
    events = {u: [(2 * random.randrange(-8, 8), n) for n in random.sample(range(1, 100), 12)] for u in users}
    done = made(session, source={"order_by": ["n"]}, **LATER)
    for read, share in ((0, 9), (9, 12)):  # what comes second cuts what the first run has made
        news = [(str(u), minute(NEAR_IT + at), n) for u in users for at, n in events[u][read:share]]
        done.append(news, "u STRING, at TIMESTAMP, n INT")
        done.init().run()
        told = done.tables.sessions.table.read().selectExpr("u", "session_start s", "session_end e", "event_count c")
        found = sorted((int(r["u"]), r["s"], r["e"], r["c"]) for r in told.collect())
        assert found == sorted(one for u in users for one in cut_by_hand(u, events[u][:share], session))
        done.assert_clean()


def cut_by_hand(user: int, events: list[tuple[int, int]], session: dict[str, Any]) -> list[tuple[int, Any, Any, int]]:
    """Key, start, end and number of events of each session."""
    made: list[list[tuple[int, int]]] = []
    for at, n in sorted(events):
        begins = not made
        if made:
            before, last = made[-1][-1]
            begins = at - before >= 10 if session.get("gap_boundary") == "splits" else at - before > 10
            begins |= "starts_when" in session and n % 7 == 0
            begins |= "ends_when" in session and last % 5 == 0
            begins |= "cut_at" in session and before < 0 <= at
        if begins:
            made.append([])
        made[-1].append((at, n))
    times = [[minute(NEAR_IT + at).replace(tzinfo=None) for at, _ in one] for one in made]
    return [(user, one[0], one[-1], len(one)) for one in times]


def test_a_table_whose_rows_remember_what_another_version_has_made_asks_for_a_rebuild(
    made: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made({"starts_when": "what = 'login'"}, LOGIN)
    done.by_hand("ALTER TABLE {} ADD COLUMN _state._boundaries.first_start BIGINT")
    monkeypatch.setattr("sessionizer.lib.admission.validate.MADE_BY", "another one")
    with pytest.raises(TableError, match=r"(?i)_state.*first_start.*rebuild"):
        done.runs("u | at | n | what \n a | 91 | 9 | page")
    done.rebuild()
    done.runs("u | at | n | what \n a | 92 | 10 | page").assert_clean()
