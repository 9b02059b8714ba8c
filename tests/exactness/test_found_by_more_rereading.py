"""What reading once more has found: updates that wait, columns that are widened, gaps of what is forgotten."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.lib.durations import DAY, MINUTE
from tests.exactness.play import Play, at
from tests.exactness.test_forgetting import keep
from tests.exactness.test_retyped_columns import WIDENING
from tests.kills import Killed, die

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
WAITING: dict[str, Any] = {"corrections": "quarantine"}
BY_N: dict[str, Any] = {"session": {"gap": {"expr": "make_dt_interval(0, 0, n, 0)"}}}
FAILING: dict[str, Any] = {"aggregates": [{"name": "total", "fn": "sum", "of": "CAST(6 / n AS INT)"}]}
SHIFTED = "timestampadd(MINUTE, n * 1000000 div 5000000000, at)"  # of INT 5000 fails, and is a minute more of BIGINT
MILLIONS: dict[str, Any] = {"aggregates": [{"name": "total", "fn": "sum", "of": "n * 1000000"}]}


def widened(done: Play) -> Play:
    """The source once n is BIGINT, and read as such."""
    done.source(WIDENING).source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").run()
    return done


# Updates in quarantine that make their row invalid


def test_an_update_to_no_gap_waits_and_comes_by_another_rule_in_place_of_the_event_alone(play: Plays) -> None:
    done = play("a@5=10 tick@100=10", **BY_N, **WAITING).source("UPDATE {} SET n = 0 WHERE u = 'a'")
    done.run()
    waiting = "u | event_time | reason | kept \n a | 5 | correction | in \n a | 5 | correction | out"
    done.assert_rejected(waiting)
    done.change(session={"gap": "10m"}).rebuild()
    done.assert_rejected(waiting)
    done.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 10 \n tick | 100 | 100 | 1 | 10")
    done.assert_clean()
    done.readmit().assert_sessions("u | start | count | total \n a | 5 | 1 | 0 \n tick | 100 | 1 | 10")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_an_update_to_no_key_waits_until_it_is_readmitted_where_nulls_are_a_group(play: Plays) -> None:
    done = play("a@5 tick@100", **WAITING).source("UPDATE {} SET u = NULL WHERE u = 'a'")
    done.run()
    done.assert_rejected("u | reason | kept \n a | correction | in \n - | correction | out")
    done.change(source={"null_keys": "group"}).rebuild()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()
    done.readmit().assert_sessions("u | start | count \n - | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


def test_an_update_to_no_time_waits_where_another_rule_has_one(play: Plays) -> None:
    by_n = {"event_time": "timestampadd(SECOND, 0 div n, at)"}
    done = play("a@5 tick@100", source=by_n, **WAITING).source("UPDATE {} SET n = 0 WHERE u = 'a'")
    done.run()
    timeless = "u | event_time | reason | kept \n a | 5 | correction | in \n a | - | expression_failed | out"
    done.assert_rejected(timeless)
    done.rebuild().assert_rejected(timeless)
    done.change(source={"event_time": "at"}).rebuild()
    done.assert_rejected("u | event_time | reason | kept \n a | 5 | correction | in \n a | 5 | correction | out")
    done.assert_sessions("u | start | count | total \n a | 5 | 1 | 1 \n tick | 100 | 1 | 1")
    done.assert_clean()
    done.readmit().assert_sessions("u | start | count | total \n a | 5 | 1 | 0 \n tick | 100 | 1 | 1")
    done.assert_clean()


def test_an_overwrite_by_an_event_without_a_gap_waits_as_well(play: Plays) -> None:
    done = play("a@5=10 tick@100=10", **BY_N, **WAITING)
    done.source("INSERT OVERWRITE {} SELECT u, at, IF(u = 'a', 0, n) FROM {}").run()
    done.assert_rejected("u | reason | kept \n a | correction | in \n a | correction | out")
    done.readmit().assert_rejected("u | reason | kept \n a | non_positive_gap | out")
    done.assert_sessions("u | start | count \n tick | 100 | 1")
    done.assert_clean()


def test_a_readmitted_update_that_an_expression_fails_for_is_rejected_for_that(play: Plays) -> None:
    done = play("a@0 a@5=2 tick@100", **FAILING, **WAITING).source("UPDATE {} SET n = 0 WHERE n = 2")
    done.run()
    done.readmit().assert_rejected("u | event_time | reason | kept \n a | 5 | expression_failed | out")
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1 \n tick | 100 | 100 | 1")
    done.assert_clean()


# Columns that are widened


def test_an_event_whose_time_failed_is_rejected_at_its_time_once_it_has_one(play: Plays) -> None:
    done = play("a@5 b@5=5000 tick@100", source={"event_time": SHIFTED})
    done.assert_rejected("u | event_time | reason \n b | - | expression_failed")
    widened(done).assert_rejected("u | event_time | reason \n b | 6 | expression_failed")
    done.backfill(0, 50).assert_sessions("u | start | count \n a | 5 | 1 \n b | 6 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


def test_what_lies_before_the_start_stays_out_once_it_has_a_time(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"event_time": SHIFTED, "start": {"version": 1}}).add("b@5=5000").add("a@5")
    done.init().run()
    done.add("tick@100").run()
    widened(done).assert_rejected("u | event_time | reason \n b | 6 | before_start")
    told = "u | start | count \n a | 5 | 1 \n tick | 100 | 1"
    done.backfill(0, 50).assert_sessions(told)
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_row_that_where_leaves_out_once_it_has_a_value_is_rejected_no_longer(play: Plays) -> None:
    done = play("a@5 b@5=-5000 tick@100", source={"where": "n * 1000000 > 0"})
    done.assert_rejected("u | reason \n b | expression_failed")
    widened(done).assert_rejected("u | reason")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_rejected("u | reason")
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


def test_upkeep_keeps_what_an_expression_failed_for_as_it_may_have_a_value_one_day(play: Plays) -> None:
    done = play("a@5 b@5=5000 tick@100", **MILLIONS)
    maintain(done.spark, done.config, Asked(keep={"rejected_events": DAY}, now=done.now + 400 * DAY))
    done.assert_rejected("u | reason | event \n b | expression_failed | -")
    widened(done).assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.readmit().assert_sessions("u | start | count \n a | 5 | 1 \n b | 5 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_backfill_that_was_cut_off_begins_anew_where_columns_are_wider_by_now(play: Plays) -> None:
    done = play("a@5 b@5=5000 a@65 tick@300", **MILLIONS)
    asked = LookBack(at(0), at(120), chunk=60 * MINUTE, now=done.now)
    with pytest.raises(Killed):
        backfill(done.kind, asked, on_chunk=die)
    widened(done)
    assert len(backfill(done.kind, asked)) == 2
    done.assert_rejected("u | reason")
    done.assert_clean()


# What is forgotten


def test_a_late_event_of_before_the_mark_whose_delete_waits_comes_into_no_session_by_a_rebuild(play: Plays) -> None:
    done = play("tick@1442 b@0 | a@5", late_events="separate", **WAITING).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    assert keep(done) == 1
    assert done.position().forgotten == at(12)
    done.rebuild().assert_sessions("u | start \n tick | 1442")
    done.assert_clean()
    done.readmit(0, 2000).assert_rejected("u | reason")
    done.assert_sessions("u | start \n tick | 1442")
    done.assert_clean()


@pytest.mark.parametrize("cuts", [{}, {"max_duration": "1d"}], ids=["by gap", "cut"])
@pytest.mark.parametrize("left", [" a@105=10", ""], ids=["before others", "alone"])
def test_a_longer_gap_of_a_forgotten_event_makes_its_session_last(play: Plays, left: str, cuts: dict[str, Any]) -> None:
    by_n = BY_N["session"] | cuts
    done = play(f"a@0=5 a@5=5{left} tick@1530=10", session=by_n)
    assert keep(done) == 1
    assert done.position().forgotten == at(100)
    done.source("UPDATE {} SET n = 200 WHERE at = TIMESTAMP'2026-01-01 00:05:00'").run()
    wanted = "a | 0 | 105 | 205 | 3" if left else "a | 0 | 5 | 205 | 2"
    done.assert_sessions(f"u | start | end | expires_at | count \n {wanted} \n tick | 1530 | 1530 | 1540 | 1")
    done.assert_clean()
