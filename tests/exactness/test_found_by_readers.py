"""What readers of the code have found: two options that meet, a death or another process between them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.run import side_tables
from sessionizer.lib.durations import DAY
from sessionizer.tables.delta import Superseded
from sessionizer.tables.rejected_events import RejectedEvents
from tests.exactness.play import Play, UsageError, at
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
OF_KEYS = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30m", "clock": "processing_time"}}


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


def test_upkeep_that_comes_between_a_run_and_its_rejects_loses_none(play: Plays) -> None:
    done, write, came = play("tick@100"), RejectedEvents.write, []

    def overtaken(*told: Any) -> None:
        came.append(told)
        if len(came) == 1:
            raise Superseded("upkeep came first")
        write(*told)

    with patch.object(RejectedEvents, "write", overtaken):
        done.runs("a@5")
    assert len(came) == 2
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_a_rebuild_by_another_rule_waits_for_what_stays_out_for_good(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}).add("c@4").init().add("a@100")
    with killed_at(side_tables, "write"):
        done.run()
    with pytest.raises(UsageError, match="stay out for good") as told:
        done.change(session={"gap": "20m"}).rebuild()
    assert "set the rule as it was" in str(told.value.remedy)
    done.change(session={"gap": "10m"}).run()
    done.change(session={"gap": "20m"}).rebuild()
    done.assert_sessions("u | start \n a | 100")


def forgotten(done: Play) -> Play:
    forget(done.kind, DAY, done.now, done.said.append)
    return done


def test_a_rebuild_leaves_out_what_was_apart_and_is_late_by_the_mark(play: Plays) -> None:
    done = forgotten(play("a@0 tick@1441 | a@2", late_events="separate"))
    assert done.position().forgotten == at(11)
    done.rebuild().assert_sessions("u | start \n tick | 1441")
    done.assert_rejected("u | event_time | reason \n a | 2 | late")
    done.assert_clean()


def test_a_rebuild_makes_no_original_of_a_copy_that_is_late_by_the_mark(play: Plays) -> None:
    done = play("a@25=9 b@0=1 tick@1461 | a@10=9", source={"dedupe": {"by": ["n"], "within": "7d"}})
    forgotten(done).rebuild().assert_sessions("u | start \n a | 25 \n tick | 1461")
    done.assert_clean()


def test_a_correction_is_no_arrival_of_the_key(play: Plays) -> None:
    done = play("a@0 a@1=2 a@100", now=100, time=OF_KEYS)
    done.at(120).source("DELETE FROM {} WHERE n = 2").run()
    done.at(135).run()
    done.assert_sessions("u | start | end | status \n a | 0 | 0 | final \n a | 100 | 100 | final")


def test_a_backfill_is_no_arrival_of_the_key(play: Plays) -> None:
    done = play("a@0 a@100", now=100, time=OF_KEYS)
    done.at(120).backfill(0, 110).at(135).run()
    done.assert_sessions("u | start | status \n a | 0 | final \n a | 100 | final")


def test_a_look_back_ends_no_key_for_want_of_events(play: Plays) -> None:
    done = play("a@0 a@100=2", now=100, time=OF_KEYS | {"allowed_lateness": "2h"})
    done.source("UPDATE {} SET n = 3 WHERE n = 1").at(120).run()
    done.at(155).backfill(0, 50).assert_sessions("u | start | final \n a | 0 | no \n a | 100 | no")
    done.run()
    done.assert_sessions("u | start | final \n a | 0 | yes \n a | 100 | yes")


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


def test_a_backfill_begins_anew_where_events_were_left_out_since_it_was_cut_off(play: Plays) -> None:
    done = play("tick@100 | a@5 a@15=2")
    asked = LookBack(at(0), at(20), chunk=at(10) - at(0), now=done.now)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill(done.kind, asked, on_chunk=die)
    done.runs("a@6=3")
    backfill(done.kind, asked)
    done.assert_sessions("u | start | total \n a | 5 | 6 \n tick | 100 | 1")
    done.assert_rejected("u | reason")


def test_a_rebuild_by_another_filter_knows_what_stays_out_for_good(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}, "where": "n < 5"}).add("a@4=9").init().runs("a@9")
    with pytest.raises(UsageError, match="which lie before"):
        done.change(source={"start": {"version": 1}}).rebuild()


def test_a_rebuild_by_another_filter_waits_for_corrections_in_quarantine(play: Plays) -> None:
    done = play("a@5=2", corrections="quarantine", source={"where": "n < 5"})
    done.source("UPDATE {} SET n = 7").run()
    done.assert_rejected("u | reason | kept \n a | correction | in")
    with pytest.raises(UsageError, match="corrections in quarantine") as told:
        done.change(source={}).rebuild()
    assert "`sessionizer readmit` makes them first" in str(told.value.remedy)
    done.change(source={"where": "n < 5"}).readmit().change(source={}).rebuild()
    done.assert_sessions("u | start | total \n a | 5 | 7")
    done.assert_clean()


@pytest.mark.parametrize("chunk", [None, 7 * DAY])
def test_a_backfill_of_sixty_years_commits_the_days_that_hold_anything(play: Plays, chunk: int | None) -> None:
    done, year = play("tick@100 | a@5"), 365 * DAY
    reports = backfill(done.kind, LookBack(at(0) - 30 * year, at(0) + 30 * year, chunk=chunk, now=done.now))
    assert len(reports) == 1
    done.assert_sessions("u | start \n a | 5 \n tick | 100")
