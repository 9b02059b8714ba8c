"""Late events, apart or amended, and copies: each is counted once, whatever it bridges and whoever goes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import EVENTS, Play, at, minute
from tests.exactness.test_housekeeping import ERASING, erase
from tests.text_tables import clock

Plays = Callable[..., Play]
BY_SESSION = {"time": {"allowed_lateness": "0s", "lateness": "session"}, "late_events": "amend"}
TICK = {"time": {"allowed_lateness": "0s"}}


@pytest.fixture
def begun_at_1(spark: SparkSession, tmp_path: Path) -> Play:
    """c lies before the start; b came late."""
    done = Play(spark, tmp_path, source={"start": {"version": 1}})
    done.add("c@4").add("tick@100 a@95=2 a@98=3").init().run()
    done.runs("b@5=5").assert_rejected("u | event_time | reason \n b | 5 | late \n c | 4 | before_start")
    return done


def add(done: Play, time: str) -> None:
    """One more version of the source: an event of a."""
    done.append([("a", clock(time), 1)], EVENTS)


@pytest.mark.broad
def test_the_late_session_of_an_event_that_came_again_is_erased_with_it(play: Plays) -> None:
    done = play("tick@100 | a@5", **ERASING, late_events="separate")
    done.source("DELETE FROM {} WHERE u = 'a'").runs("a@5")
    erase(done, "u = 'a'").readmit_deletes("a").assert_sessions("u | start \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_an_event_that_touches_a_live_session_is_not_amended_where_sessions_are_judged(play: Plays) -> None:
    done = play("tick@100 a@95 | a@92 b@5", time={"lateness": "session"}, late_events="amend")
    assert done.ledger("accepted", "amended") == [(2, 0), (2, 1)]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_copy_that_takes_the_place_of_its_original_moves_the_watermark(play: Plays) -> None:
    done = play("a@5=9 | a@8=9", source={"dedupe": {"by": ["n"], "within": "1h"}}, time={"allowed_lateness": "1d"})
    assert done.position().watermark_after == at(5)
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:06:00'").run()
    assert done.position().watermark_after == at(8)
    done.assert_clean()


@pytest.mark.slow
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


@pytest.mark.slow
def test_of_two_identical_copies_one_that_stays_takes_the_place_of_the_original(play: Plays) -> None:
    done = play(
        "u | at | n | v \n a | 5 | 1 | 1 \n a | 6 | 1 | 2 \n a | 6 | 1 | 2",
        schema="u STRING, at TIMESTAMP, n INT, v INT",
        source={"dedupe": {"by": ["n"], "within": "1h"}},
        time={"allowed_lateness": "1d"},
    )
    done.assert_rejected("u | event_time | reason \n a | 6 | duplicate \n a | 6 | duplicate")
    done.source("DELETE FROM {}").runs("u | at | n | v \n a | 6 | 1 | 2")
    done.assert_sessions("u | start | end | count \n a | 6 | 6 | 1")
    done.assert_rejected("u | event_time | reason")
    done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_events_that_are_amended_bridge_final_sessions_by_session_too(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 | a@88 | a@85", time={"lateness": "session"}, late_events="amend")
    done.assert_sessions("u | start | end | count | final \n a | 85 | 92 | 4 | no", u="a")
    found = done.told("session_id")
    assert len({row["session_id"] for row in found}) == len(found)


@pytest.mark.slow
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


@pytest.mark.slow
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


OF_ORDER = "u STRING, at TIMESTAMP, n INT, o INT"
ENDED: dict[str, Any] = {
    "source": {"order_by": ["o"]},
    "session": {"gap": "30m", "ends_when": "n = 9"},
    "late_events": "amend",
}


@pytest.mark.broad
def test_a_session_takes_over_no_ids_of_one_that_begins_as_it_ends(play: Plays) -> None:
    header = "u | at | n | o"
    events = f"{header} \n a | 5 | 1 | 1 \n a | 10 | 9 | 1 \n a | 12 | 1 | 1 \n tick | 1000 | 1 | 1"
    done = play(events, schema=OF_ORDER, **ENDED)
    (gone,) = (row["session_id"] for row in done.told("start | session_id", u="a") if row["start"] == "12")
    for event in ("a | 10 | 1 | 2", "a | 7 | 1 | 1"):
        done.add(f"{header} \n {event}").run()
    done.assert_sessions(f"start | end | count | supersedes \n 5 | 10 | 3 | \n 10 | 12 | 2 | {gone}", u="a")


@pytest.mark.broad
def test_a_session_takes_over_the_ids_of_one_that_is_gone_but_for_its_last_event(play: Plays) -> None:
    header = "u | at | n | o"
    events = f"{header} \n a | 5 | 1 | 1 \n a | 10 | 9 | 1 \n a | 10 | 2 | 2 \n a | 20 | 1 | 1 \n tick | 1000 | 1 | 1"
    done = play(events, schema=OF_ORDER, **ENDED)
    done.add(f"{header} \n a | 0 | 3 | 1").run()
    before = done.told("session_id | supersedes", u="a")
    gone = {name for row in before for name in row.values() if name}
    assert len(gone) == 3, "both, and the one that had begun at 5"
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:10:00'")
    done.source("UPDATE {} SET n = 4 WHERE n = 9").run()
    (left,) = done.told("start | count | supersedes", u="a")
    assert (left["start"], left["count"], set(left["supersedes"].split(","))) == ("10", "3", gone)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_of_equal_rows_one_that_was_in_time_counts_before_one_that_is_late_and_comes_apart(
    play: Plays, together: bool
) -> None:
    copies = {"source": {"dedupe": {"by": ["n"], "within": "1h"}}, "late_events": "separate"}
    done = play("a@10=1 a@15=1 tick@100=9", **copies).add("a@15=1")
    if not together:
        done.run()
    done.source("DELETE FROM {} WHERE u = 'a' AND minute(at) = 10").run()
    done.assert_sessions("u | start | count | late \n a | 15 | 1 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | event_time | reason \n a | 15 | duplicate")
    done.assert_clean()


@pytest.mark.slow
def test_of_equal_rows_the_new_image_of_an_update_counts_which_is_never_late(play: Plays) -> None:
    copies = {"source": {"dedupe": {"by": ["n"], "within": "5m"}}, "late_events": "separate"}
    done = play("a@90=1 | tick@100=9", **copies)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(10)}', 1)")
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(10)}' WHERE at = TIMESTAMP'{minute(90)}'").run()
    done.assert_sessions("u | start | count | late \n a | 10 | 1 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | event_time | reason \n a | 10 | duplicate")
    done.assert_clean()


@pytest.mark.broad
def test_an_update_that_leaves_a_late_row_as_it_was_makes_it_no_image(play: Plays) -> None:
    done = play("a@5 | tick@100=9").add("a@5=1 a@7=2").source("UPDATE {} SET n = n")
    done.run()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n a | 7 | late")
    done.assert_clean()
