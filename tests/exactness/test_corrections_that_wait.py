"""Corrections in quarantine: what waits, what hangs together, and what is not made while it waits."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SourceError
from tests.exactness.play import BY_N, WAITING, Play, minute
from tests.exactness.test_forgetting import keep

Plays = Callable[..., Play]


@pytest.mark.broad
def test_what_has_no_time_by_an_update_stays_while_it_waits(play: Plays) -> None:
    done = play("a@0=5 b@100", corrections="quarantine").source("UPDATE {} SET at = NULL WHERE n = 5")
    done.run()
    later = Upkeep(keep={"rejected_events": DAY}, now=wall_clock() + 9 * DAY)
    maintain(done.spark, done.config, later)
    done.assert_rejected("u | reason \n a | correction \n a | null_time")
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(5)}' WHERE n = 5")
    done.vacuumed()
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n b | 100 | 1")
    done.assert_clean()


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_update_to_no_key_waits_until_it_is_readmitted_where_nulls_are_a_group(play: Plays) -> None:
    done = play("a@5 tick@100", **WAITING).source("UPDATE {} SET u = NULL WHERE u = 'a'")
    done.run()
    done.assert_rejected("u | reason | kept \n a | correction | in \n - | correction | out")
    done.change(source={"null_keys": "group"}).rebuild()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()
    done.readmit().assert_sessions("u | start | count \n - | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_overwrite_by_an_event_without_a_gap_waits_as_well(play: Plays) -> None:
    done = play("a@5=10 tick@100=10", **BY_N, **WAITING)
    done.source("INSERT OVERWRITE {} SELECT u, at, IF(u = 'a', 0, n) FROM {}").run()
    done.assert_rejected("u | reason | kept \n a | correction | in \n a | correction | out")
    done.readmit().assert_rejected("u | reason | kept \n a | non_positive_gap | out")
    done.assert_sessions("u | start | count \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.slow
def test_both_halves_of_an_update_into_the_future_wait_in_quarantine(play: Plays) -> None:
    done = play("a@5=2", now=20, corrections="quarantine").at(60)
    done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 05:00:00'").run()
    waiting = "u | event_time | reason | kept \n a | 5 | correction | in \n a | 300 | correction | out"
    done.assert_rejected(waiting)
    done.at(400).backfill(0, 1440).assert_sessions("u | start | total \n a | 5 | 2")
    done.assert_rejected(waiting)
    done.assert_clean()
    done.readmit().assert_sessions("u | start | total \n a | 300 | 2")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_row_that_is_changed_just_after_it_came_stays_as_it_came_where_changes_wait(play: Plays) -> None:
    done = play("a@0=1", **WAITING)
    done.add("a@10=5 b@10=7 c@10=8").source("UPDATE {} SET n = 6 WHERE n = 5").source("DELETE FROM {} WHERE n = 7")
    done.source("UPDATE {} SET u = 'd' WHERE n = 8").run()
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 0     | 10  | 2     | 6
        b | 10    | 10  | 1     | 7
        c | 10    | 10  | 1     | 8
        """
    )
    done.assert_rejected(
        """
        u | event_time | reason     | kept
        a | 10         | correction | in
        a | 10         | correction | out
        b | 10         | correction | in
        c | 10         | correction | in
        d | 10         | correction | out
        """
    )
    done.assert_clean()
    done.readmit().assert_sessions("u | start | total \n a | 0 | 7 \n d | 10 | 8")


@pytest.mark.slow
def test_no_correction_is_made_while_earlier_ones_wait_that_may_be_of_the_same_event(play: Plays) -> None:
    done = play("a@10=1 b@10=1", **WAITING).source("UPDATE {} SET n = 2 WHERE u = 'a'")
    done.run()
    done.change(corrections="apply").runs("b@15=4").source("UPDATE {} SET n = 3 WHERE u = 'a'")
    with pytest.raises(SourceError, match="earlier corrections, which may be of the same events, wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | count | total \n a | 1 | 3 \n b | 2 | 5")
    done.assert_clean()


@pytest.mark.slow
def test_an_erasure_is_not_passed_over_while_an_update_of_the_same_event_waits(play: Plays) -> None:
    done = play("a@10=1 b@10=1", **WAITING).source("UPDATE {} SET n = 2 WHERE u = 'a'")
    done.run()
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'a'")
    with pytest.raises(SourceError, match="earlier corrections, which may be of the same events, wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | count \n b | 1")


@pytest.mark.slow
def test_what_waits_of_forgotten_events_is_made_as_well(play: Plays) -> None:
    done = play("a@0 b@1000 tick@1460", **WAITING).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    assert keep(done) == 1
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | start \n tick | 1460")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_what_waits_of_a_session_across_what_has_been_forgotten_is_made(play: Plays) -> None:
    done = play("a@0 b@7=2 b@13=1 tick@1446", **WAITING).source("UPDATE {} SET n = 5 WHERE u = 'b' AND n = 1")
    done.run()
    assert keep(done) == 1
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="wait"):
        done.run()
    done.readmit().assert_sessions("u | start | total \n b | 7 | 7 \n tick | 1446 | 1")
    done.run()
    done.assert_sessions("u | start \n tick | 1446")
    done.assert_clean()


@pytest.mark.slow
def test_what_is_written_over_one_of_before_the_start_waits_as_its_update_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}, **WAITING).add("a@5=1 b@7=1").init()
    rows = ", ".join(f"('{user}', TIMESTAMP'2026-01-01 00:0{minute}:00', {n})" for user, minute, n in ("a52", "b71"))
    done.source(f"INSERT OVERWRITE {{}} VALUES {rows}").run()
    done.assert_sessions("u | start")
    done.assert_rejected("u | event_time | reason | kept \n a | 5 | correction | out \n b | 7 | before_start | out")
    done.assert_clean()
