"""Deletes that are housekeeping leave the sessions as they are; a person's erasure does not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib.durations import DAY
from tests.exactness.play import Play, SourceError, UsageError, at, minute
from tests.kills import killed_at

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
IGNORED: dict[str, Any] = {"corrections": {"deletes": "ignore"}}
ERASING: dict[str, Any] = {"corrections": {"deletes": "ignore", "erase_when": "_commit_metadata = 'erasure'"}}
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
BEFORE = """
    u    | start | end | count | total
    a    | 0     | 5   | 2     | 3
    b    | 2     | 2   | 1     | 1
    tick | 100   | 100 | 1     | 1
"""


def erase(play: Play, where: str) -> Play:
    play.spark.conf.set(METADATA, "erasure")
    try:
        play.source(f"DELETE FROM {{}} WHERE {where}").run()
        return play
    finally:
        play.spark.conf.unset(METADATA)


@pytest.fixture(scope="module")
def pruned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """All but the tick is gone from the source, by housekeeping."""
    done = Play(spark, tmp_path_factory.mktemp("pruned"), **ERASING)
    done.runs("a@0 a@5=2 b@2 | tick@100")
    done.source(f"DELETE FROM {{}} WHERE at < TIMESTAMP '{minute(50)}'").run()
    return done


def test_what_is_pruned_stays_in_its_session_and_is_kept_whole(pruned: Play) -> None:
    pruned.assert_sessions(BEFORE)
    pruned.assert_rejected(
        """
        u | event_time | reason         | kept
        a | 0          | ignored_delete | in
        a | 5          | ignored_delete | in
        b | 2          | ignored_delete | in
        """
    )
    pruned.assert_clean()


def test_recomputing_knows_what_is_gone_and_leaves_it(pruned: Play, copied: Plays) -> None:
    done = copied(pruned).backfill(0, 200)
    done.assert_sessions(BEFORE)
    done.rebuild().assert_sessions(BEFORE)
    done.assert_clean()
    done.readmit().assert_sessions(BEFORE)


def test_a_late_event_joins_what_is_gone(pruned: Play, copied: Plays) -> None:
    done = copied(pruned, late_events="amend")
    done.runs("a@9=4").assert_sessions("u | start | end | count | total \n a | 0 | 9 | 3 | 7", u="a")
    done.assert_clean()


def test_an_erasure_takes_events_out(pruned: Play, copied: Plays) -> None:
    done = copied(pruned)
    done.runs("b@200 | tick@300")
    erase(done, "u = 'b'")
    done.assert_sessions("u | start | count \n b | 2 | 1", u="b")
    done.assert_clean()


def test_what_is_gone_already_is_erased_by_readmitting_its_delete(pruned: Play, copied: Plays) -> None:
    done = copied(pruned).readmit_deletes("b")
    done.assert_sessions("u | start \n a | 0 \n tick | 100")
    done.assert_rejected("u | event_time \n a | 0 \n a | 5")
    done.assert_clean()
    done.rebuild().assert_sessions("u | start \n a | 0 \n tick | 100")


def test_what_another_rule_leaves_out_is_erased_by_readmitting_its_delete_too(pruned: Play, copied: Plays) -> None:
    done = copied(pruned).change(source={"where": "n <> 2"})
    done.rebuild().assert_sessions("u | start | count \n a | 0 | 1 \n b | 2 | 1 \n tick | 100 | 1")
    done.readmit_deletes("a").assert_rejected("u | event_time \n b | 2")
    done.assert_sessions("u | start \n b | 2 \n tick | 100")
    done.assert_clean()


def test_what_a_filter_fails_for_by_now_is_erased_and_moves_nothing(pruned: Play, copied: Plays) -> None:
    done = copied(pruned).change(source={"where": "10 div (n - 2) < 0"})
    done.rebuild().readmit_deletes("a")
    events = done.position().events
    assert (events["moved"], events["forgotten"]) == (1, 1)
    done.assert_rejected("u | event_time \n b | 2")


def test_what_is_of_the_future_by_now_is_erased_whole(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time={"max_future_skew": "10d"}, **IGNORED).at(100).add("a@500 b@90").init()
    done.run()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.change(time={"max_future_skew": "1h"}).rebuild()
    both = "u | event_time | reason | kept \n a | 500 | ignored_delete | in \n a | 500 | in_the_future | out"
    done.assert_rejected(both)
    done.readmit().assert_rejected(both)
    done.readmit_deletes("a").assert_rejected("u | event_time")
    done.assert_sessions("u | start \n b | 90")
    done.assert_clean()
    done.add("a@500").at(600).run()
    done.assert_sessions("u | start \n a | 500 \n b | 90")
    done.assert_clean()


def test_what_is_gone_moves_no_watermark_by_a_time_that_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, **IGNORED).add("a@5 b@90").init()
    done.run()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.change(source={"event_time": "at + INTERVAL 3000 DAYS"}).rebuild().assert_sessions("u | start")
    done.change().rebuild().assert_sessions("u | start | status \n a | 5 | final \n b | 90 | open")
    done.assert_rejected("u | event_time | reason | kept \n a | 5 | ignored_delete | in")
    assert done.position().watermark_after == at(90)
    done.assert_clean()


def test_one_of_the_future_that_comes_again_is_another_event(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time={"max_future_skew": "10d"}, **IGNORED).at(100).add("a@500 b@90").init()
    done.run()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.change(time={"max_future_skew": "1h"}).runs("a@500")
    both = "u | event_time | reason | kept \n a | 500 | ignored_delete | in \n a | 500 | in_the_future | out"
    done.readmit().assert_rejected(both)  # neither is due, nor asked for
    done.readmit_deletes("a").assert_rejected("u | event_time | reason | kept \n a | 500 | in_the_future | out")
    done.assert_sessions("u | start \n b | 90")
    done.at(600).readmit_deletes("a").assert_rejected("u | event_time | reason | kept \n a | 500 | in_the_future | out")
    done.assert_clean()
    done.readmit().assert_sessions("u | start \n a | 500 \n b | 90")


def test_a_delete_right_after_its_insert_is_an_increment_of_its_own(play: Plays) -> None:
    done = play("a@0", **IGNORED)
    done.add("a@5=2").source("DELETE FROM {} WHERE n = 2").add("a@9").run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 9 | 3 | 4")
    done.assert_clean()


def test_updates_merges_and_overwrites_are_no_deletes(play: Plays) -> None:
    done = play("a@0 a@5=2 b@2", **IGNORED)
    done.source("UPDATE {} SET n = 7 WHERE u = 'b'").run()
    done.source(
        "MERGE INTO {} t USING (SELECT 'a' AS u, 2 AS n) s ON t.u = s.u AND t.n = s.n WHEN MATCHED THEN DELETE"
    ).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 0 | 1 | 1 \n b | 2 | 2 | 1 | 7")
    done.assert_clean()


def test_a_late_event_that_is_pruned_leaves_rejected_events(play: Plays) -> None:
    done = play("a@0 tick@100 | a@5", **IGNORED)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_rejected("u | event_time | reason \n a | 0 | ignored_delete")
    done.assert_sessions("u | start | count \n a | 0 | 1 \n tick | 100 | 1")
    done.assert_clean()


def test_late_sessions_stay_apart_when_they_are_pruned(play: Plays) -> None:
    done = play("a@0 tick@100 | a@5", late_events="separate", **IGNORED)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start | count | late \n a | 0 | 1 | no \n a | 5 | 1 | yes \n tick | 100 | 1 | no")
    done.assert_clean()
    done.rebuild().assert_clean()


def test_a_copy_of_what_is_gone_is_a_copy(play: Plays) -> None:
    dedupe = {"key": ["u"], "dedupe": {"by": ["n"], "within": "1h"}}
    done = play("a@0 a@5=2", source=dedupe, **IGNORED)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.runs("a@6=2 a@7=3").assert_sessions("u | start | end | count | total \n a | 0 | 7 | 3 | 6")
    done.assert_clean()


def test_content_cuts_what_is_gone_as_before(play: Plays) -> None:
    done = play("a@0 a@5=2 a@6 | tick@100", session={"gap": "10m", "starts_when": "n = 2"}, **IGNORED)
    done.source("DELETE FROM {} WHERE n = 2").run()
    table = "u | start | end | count \n a | 0 | 0 | 1 \n a | 5 | 6 | 2"
    done.assert_sessions(table, u="a")
    done.backfill(0, 50).rebuild().assert_sessions(table, u="a")
    done.assert_clean()


def test_windows_keep_what_is_gone(play: Plays, tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("table", "rejected_events", "runs")}
    sliding = {"time_difference": "10m", "grace": "1d", **places}
    done = play("a@0 a@5=2", sliding=sliding, **IGNORED).slide()
    before = done.told_windows("u | window_start | event_count")
    done.source("DELETE FROM {} WHERE n = 2").slide()
    assert done.told_windows("u | window_start | event_count") == before


def test_a_run_cut_off_at_a_delete_is_finished_as_it_began(play: Plays) -> None:
    done = play("a@0 a@5=2 | tick@100", **IGNORED)
    done.source("DELETE FROM {} WHERE u = 'a'").run_cut_off()
    done.change(corrections="apply").run()
    done.assert_rejected("u | reason \n a | ignored_delete \n a | ignored_delete")
    done.assert_clean()


def test_deletes_may_stop_the_run_where_updates_do_not(play: Plays) -> None:
    done = play("a@0 a@5=2", corrections={"deletes": "fail"})
    done.source("UPDATE {} SET n = 3 WHERE n = 2").run()
    done.source("DELETE FROM {} WHERE n = 3")
    with pytest.raises(SourceError, match="corrections"):
        done.run()
    other = done.change(corrections={"updates": "fail"})
    other.run()
    other.assert_sessions("u | count \n a | 1")
    other.source("UPDATE {} SET n = 4")
    with pytest.raises(SourceError, match="corrections"):
        other.run()


def test_a_rebuild_waits_for_deletes_that_no_run_has_read(play: Plays) -> None:
    done = play("a@0 a@5=2 | tick@100", **IGNORED)
    done.source("DELETE FROM {} WHERE u = 'a'")
    longer = {"session": {"gap": "20m"}}
    with pytest.raises(UsageError, match="no run has read it yet"):
        done.change(**longer).rebuild()
    done.change().run()
    done.change(**longer).rebuild().assert_sessions("u | start | end \n a | 0 | 5 \n tick | 100 | 100")


def test_a_rebuild_waits_for_an_erasure_that_was_cut_off(play: Plays) -> None:
    done = play("a@5 b@6", **IGNORED)
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    with killed_at(side_tables, "write"):
        done.readmit_deletes("b")
    with pytest.raises(UsageError, match="stay out for good"):
        done.change(session={"gap": "20m"}).rebuild()
    done.change().run()
    done.change(session={"gap": "20m"}).rebuild().assert_sessions("u | start \n a | 5")
    done.assert_rejected("u | reason")


def test_a_source_made_again_with_all_its_rows_counts_them_once(play: Plays) -> None:
    done = play("a@0 a@5=2 b@2 | tick@100", **IGNORED)
    done.source("DELETE FROM {} WHERE u <> 'tick'").run()
    shutil.rmtree(done.folder / "events")
    done.add("a@0 a@5=2 tick@100").init().rebuild()
    done.assert_sessions(BEFORE)
    done.assert_rejected("u | event_time | reason \n b | 2 | ignored_delete")
    done.assert_clean()


def test_a_source_made_again_has_what_is_out_of_sessions_before_an_equal_row_that_was_deleted(play: Plays) -> None:
    done = play("a@0 a@5=2 b@2 | tick@100", corrections="quarantine")
    for change in ("SET n = 7 WHERE u = 'b'", "SET n = 1 WHERE u = 'b'"):
        done.source(f"UPDATE {{}} {change}").run()
    waits = "u | event_time | kept \n b | 2 | in \n b | 2 | out"
    done.assert_rejected(waits)
    shutil.rmtree(done.folder / "events")
    done.add("a@0 a@5=2 b@2 tick@100").init().rebuild()
    done.assert_sessions(BEFORE)
    done.assert_rejected(waits)
    done.assert_clean()


def test_what_is_kept_of_forgotten_sessions_may_go(play: Plays) -> None:
    done = play("a@0=1 b@1=2 tick@1441=3", **IGNORED)
    done.source("DELETE FROM {} WHERE u <> 'tick'").run()
    told = maintain(done.spark, done.config, Asked(keep={"sessions": DAY}, now=done.now))
    assert told[0].forgotten_rows == 1
    later = Asked(keep={"rejected_events": DAY}, now=wall_clock() + 2 * DAY)
    maintain(done.spark, done.config, later)
    done.assert_rejected("u | event_time | reason \n b | 1 | ignored_delete")  # a's session has been forgotten
    done.assert_clean()
    left = "u | start | total \n b | 1 | 2 \n tick | 1441 | 3"
    done.backfill(0, 1440).assert_sessions(left)
    done.rebuild().assert_sessions(left)


def test_a_source_that_has_gone_back_counts_its_rows_once(play: Plays) -> None:
    done = play("a@0 a@5=2 b@2 | tick@100", **IGNORED)
    shutil.copytree(done.folder / "events", done.folder / "backup")
    done.source("DELETE FROM {} WHERE u <> 'tick'").run()
    shutil.rmtree(done.folder / "events")
    shutil.move(done.folder / "backup", done.folder / "events")
    done.rebuild().assert_sessions(BEFORE)
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_rebuild_goes_on_where_no_run_can_read_what_is_unread(play: Plays) -> None:
    done = play("a@0 a@5=2 | tick@100", **IGNORED)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    done.source("DELETE FROM {} WHERE u = 'a'")
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.parametrize("policy", ["apply", {"deletes": "fail"}])
def test_what_was_ignored_once_stays_so_by_another_policy(pruned: Play, copied: Plays, policy: Any) -> None:
    done = copied(pruned)
    done.change(corrections=policy, session={"gap": "20m"}).rebuild()
    done.assert_sessions(BEFORE)
    done.assert_clean()
    done.readmit_deletes("b").assert_sessions("u | start \n a | 0 \n tick | 100")
