"""Sessions and windows forgotten for good: what is left stays exact, and nothing comes back in part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget as forget_rows
from sessionizer.jobs.commands.look_back import LookBack, backfill, lacking
from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.kinds import sessions_of
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import RunFailed, TableError
from tests.exactness.play import BY_N, BY_NAME, STAYING, WAITING, Play, SourceError, UsageError, at
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
# The latest session reaches to 1451: a day before it is 11, and with the tick at 1500 it is 70.
OLD = "a@0=1 b@1=2 tick@1441=3"
LEFT = "u | start | end | total \n b | 1 | 1 | 2 \n tick | 1441 | 1441 | 3"


def forget(done: Play) -> Play:
    """All sessions that ended more than a day behind the latest."""
    forget_rows(sessions_of(done.tables), DAY, done.now, done.said.append)
    return done


def keep(done: Play, name: str = "sessions", dry_run: bool = False) -> int:
    """The same by `maintain`; how many rows are told."""
    told = maintain(done.spark, done.config, Asked(keep={name: DAY}, dry_run=dry_run, now=done.now), done.said.append)
    return next(upkeep.forgotten_rows for upkeep in told if upkeep.table == name)


def test_sessions_that_ended_further_behind_the_latest_are_gone_to_the_minute(play: Plays) -> None:
    done = play(OLD)
    before = done.position()
    assert keep(done, dry_run=True) == 1
    assert len(done.told("u")) == 3
    assert keep(done) == 1
    done.assert_sessions(LEFT)  # b's reached to 11, which is not before it
    done.assert_clean()
    after = done.position()
    assert (after.mode, after.forgotten, after.source_to_version) == ("forget", at(11), before.source_to_version)
    assert (after.watermark_after, after.live_sessions) == (before.watermark_after, before.live_sessions)
    assert done.ledger("mode", "sessions_deleted") == [("run", 0), ("forget", 1)]
    done.runs("tick@1442=4").assert_sessions(LEFT.replace("1441 | 3", "1442 | 7"))
    assert done.position().forgotten == at(11)


def test_a_mark_is_no_later_than_the_horizon(play: Plays) -> None:
    done = forget(play("a@0 b@5 tick@1500", time={"allowed_lateness": "1488m"}))
    done.assert_sessions("u | start \n b | 5 \n tick | 1500")
    assert done.position().forgotten == at(12)


def test_a_mark_is_no_later_than_the_end_of_a_session_that_no_watermark_can_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, time={"watermark": {"per": ["u"]}, "max_future_skew": "1h"}).at(10)
    done.runs("a@0 c@200").at(4000).backfill(100, 300).at(9000).runs("a@5000 a@9000")
    assert keep(done) == 1
    assert done.position().forgotten == at(210)
    done.runs("c@210 | c@1000").assert_sessions(
        """
        u | start | end  | count | final
        a | 5000  | 5000 | 1     | yes
        a | 9000  | 9000 | 1     | no
        c | 200   | 210  | 2     | yes
        c | 1000  | 1000 | 1     | no
        """
    )
    done.assert_clean()


def test_rows_of_events_stay_whose_session_no_watermark_can_end(spark: SparkSession, tmp_path: Path) -> None:
    trace = str(tmp_path / "event_sessions")
    times = {"watermark": {"per": ["u"]}, "max_future_skew": "1h"}
    done = Play(spark, tmp_path, time=times, outputs={"event_sessions": trace}).at(10)
    done.runs("a@0 c@200").at(4000).backfill(100, 300).at(9000).runs("a@5000 a@9000")
    assert keep(done, "event_sessions") == 1
    done.runs("c@205").assert_sessions("u | start | count \n c | 200 | 2", u="c")
    assert spark.read.format("delta").load(trace).where("u = 'c'").count() == 2
    done.assert_clean()


def test_a_late_event_that_may_have_been_in_a_forgotten_session_is_not_amended(play: Plays) -> None:
    done = forget(play(OLD, late_events="amend")).runs("a@5 | a@12 b@11 b@9")
    done.assert_sessions(
        "u | start | end | total \n a | 12 | 12 | 1 \n b | 1 | 11 | 3 \n tick | 1441 | 1441 | 3",
    )
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n b | 9 | late")
    done.assert_clean()


@pytest.mark.parametrize("policy", ["separate", "quarantine"])
def test_late_events_that_old_stay_rejected_whatever_is_asked(play: Plays, policy: str) -> None:
    done = forget(play(OLD, late_events=policy)).runs("a@5")
    done.readmit(0, 2000).backfill(0, 2000)
    done.assert_sessions(LEFT)
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_corrections_of_forgotten_events_make_no_session(play: Plays) -> None:
    done = forget(play("a@0=1 a@0=9 a@5=1 b@7=2 b@13=1 tick@1446=3"))
    assert done.position().forgotten == at(16)
    done.source("DELETE FROM {} WHERE u = 'a' AND n = 9").run()
    done.source("UPDATE {} SET n = 5 WHERE n = 1").run()  # a's at 0 and 5, and b's at 13, whose session is left
    done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 00:12:00' WHERE u = 'a' AND n = 5").run()
    done.assert_sessions("u | start | end | count | total \n b | 7 | 13 | 2 | 7 \n tick | 1446 | 1446 | 1 | 3")
    done.assert_rejected("u | event_time | reason \n a | 12 | late \n a | 12 | late")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'b' AND n = 5").run()  # what is left of it ended before 17
    done.assert_clean()


def test_erasing_a_user_erases_what_is_left(play: Plays) -> None:
    done = forget(play("a@0 a@20 b@1 tick@1451"))
    done.source("DELETE FROM {} WHERE u IN ('a', 'b')").run()
    done.assert_sessions("u | start \n tick | 1451")
    done.assert_clean()


def test_a_backfill_and_a_rebuild_leave_forgotten_sessions_out(play: Plays) -> None:
    done = forget(play(OLD)).backfill(0, 2000)
    done.assert_sessions(LEFT)
    with pytest.raises(UsageError, match="have been forgotten"):
        done.backfill(0, 1)
    done.rebuild().assert_sessions(LEFT)
    assert done.position().forgotten == at(11)
    done.runs("a@11").assert_clean()


def test_a_backfill_mends_what_ended_within_a_gap_of_the_mark_and_fills_its_columns(play: Plays) -> None:
    done = forget(play(OLD))
    for damage in ("UPDATE {} SET total = 9 WHERE u = 'b'", "DELETE FROM {} WHERE u = 'b'"):
        done.damage(damage)
        done.backfill(0, 11).assert_sessions(LEFT)
        done.assert_clean()
    aggregates = [{"name": "total", "fn": "sum", "of": "n"}, {"name": "least", "fn": "min", "of": "n"}]
    done.change(aggregates=aggregates).run()
    wanted = "u | start | total | least \n b | 1 | 2 | {} \n tick | 1441 | 3 | 3"
    done.assert_sessions(wanted.format("-"))
    span = lacking(done.kind, ("least",), None, None)
    assert span == (at(1), at(1) + 1)
    backfill(done.kind, LookBack(*span, columns=("least",), now=done.now))
    done.assert_sessions(wanted.format("2"))
    done.assert_clean()


def test_a_backfill_reaches_what_a_gap_of_its_own_has_kept_behind_the_mark(play: Plays) -> None:
    done = forget(play("a@0=1 b@1=60 a@2=1 tick@1441=3", **BY_N))
    assert done.position().forgotten == at(4)
    done.damage("UPDATE {} SET total = 9 WHERE u = 'b'")
    done.backfill(0, 3).assert_sessions("u | start | total \n b | 1 | 60 \n tick | 1441 | 3")
    aggregates = [{"name": "total", "fn": "sum", "of": "n"}, {"name": "least", "fn": "min", "of": "n"}]
    done.change(aggregates=aggregates).run()
    span = lacking(done.kind, ("least",), None, None)
    assert span == (at(1), at(1) + 1)
    backfill(done.kind, LookBack(*span, columns=("least",), now=done.now))
    done.assert_sessions("u | start | total | least \n b | 1 | 60 | 60 \n tick | 1441 | 3 | 3")
    done.assert_clean()


def test_a_backfill_goes_through_no_day_whose_events_are_all_forgotten(play: Plays) -> None:
    done = forget(play("a@0=100000 b@1440=5 b@2880=5 c@2880=0 b@4320=5 tick@72000=1", now=90000, **BY_N))
    assert done.position().forgotten == at(72000)
    done.damage("DELETE FROM {} WHERE u = 'a'")
    asked = LookBack(at(0), at(72001), chunk=DAY, now=done.now)
    assert [report.manifest.arguments["low"] for report in backfill(done.kind, asked)] == [at(0), at(72000)]
    done.assert_sessions("u | start | total \n a | 0 | 100000 \n tick | 72000 | 1")
    done.assert_clean()


def lost(done: Play, low: float, high: float, chunk: int | None = None) -> Play:
    """What a backfill makes of a's sessions, which somebody has deleted by hand."""
    done.damage("DELETE FROM {} WHERE u = 'a'")
    backfill(done.kind, LookBack(at(low), at(high), chunk=chunk, now=done.now))
    done.assert_clean()
    return done


@pytest.mark.parametrize("chunk", [None, DAY])
def test_a_lost_session_comes_back_whole_with_events_whose_own_reach_is_forgotten(play: Plays, chunk: int) -> None:
    done = forget(play("z@0=1 a@0=2000 a@1500=100000 tick@72000=1", now=90000, **BY_N))
    assert done.position().forgotten == at(72000)
    lost(done, 0, 72001, chunk).assert_sessions("u | start | end | total \n a | 0 | 1500 | 102000", u="a")


def test_a_lost_session_comes_back_whole_over_events_of_it_that_reach_no_mark(play: Plays) -> None:
    done = forget(play("z@0=10 a@0=10 a@8=10 a@11=10 a@16=10 tick@1450=10", **BY_N))
    assert done.position().forgotten == at(20)
    lost(done, 5, 12).assert_sessions("u | start | end | count \n a | 0 | 16 | 4", u="a")


def test_a_lost_session_comes_back_whole_though_it_began_a_gap_before_the_mark(play: Plays) -> None:
    done = forget(play("z@0 a@0 a@8 a@12 tick@1441"))
    lost(done, 0, 1500).assert_sessions("u | start | end | total \n a | 0 | 12 | 3", u="a")


def test_of_a_lost_chain_what_is_left_comes_back_as_it_was(play: Plays) -> None:
    done = forget(play("a@0 a@6 a@12 a@18 a@24 tick@1460", session={"max_duration": "12m"}))
    lost(done, 0, 2000).assert_sessions("u | start | end | total \n a | 18 | 24 | 2", u="a")


def test_a_lost_session_comes_back_of_an_event_that_only_a_waiting_delete_still_tells_of(play: Plays) -> None:
    done = play("z@0=1 a@0=100000 tick@72000=1 b@72000=1", now=90000, corrections="quarantine", **BY_N)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    lost(forget(done), 0, 72001, DAY).assert_sessions("u | start | total \n a | 0 | 100000", u="a")


def test_chains_that_max_duration_cuts_go_on_from_what_is_left(spark: SparkSession, tmp_path: Path) -> None:
    trace = str(tmp_path / "event_sessions")
    chain = {"max_duration": "12m"}
    done = Play(spark, tmp_path, session=chain, late_events="amend", outputs={"event_sessions": trace})
    forget(done.runs("a@0 a@6 a@12 a@18 a@24 tick@1460"))
    left = "u | start | end | total \n a | 18 | 24 | 2 \n a | 31 | 31 | 1 \n tick | 1460 | 1460 | 1"
    done.backfill(0, 2000).runs("a@31").assert_sessions(left)
    done.source("UPDATE {} SET n = 2 WHERE at = TIMESTAMP'2026-01-01 00:12:00'").run()
    done.assert_sessions(left)
    done.assert_clean()
    done.rebuild().assert_sessions(left)
    done.assert_rows(done.told_of(trace, "event_time"), "event_time \n 18 \n 24 \n 31 \n 1460")
    done.assert_clean()


def test_an_update_on_both_sides_of_the_mark_moves_no_cut(play: Plays) -> None:
    done = forget(play("a@0 a@6 a@12 a@18 a@24 tick@1460", session={"max_duration": "12m"}))
    done.source("UPDATE {} SET n = 2 WHERE u = 'a'").run()  # 12, which is forgotten, and 18 share a bucket
    done.assert_sessions("u | start | end | total \n a | 18 | 24 | 4 \n tick | 1460 | 1460 | 1")
    done.assert_clean()


def test_a_delete_of_what_is_forgotten_moves_the_cuts_of_what_is_left(play: Plays) -> None:
    done = forget(play("a@0 a@6 a@12 a@18 a@24 tick@1460", session={"max_duration": "12m"}))
    done.source("DELETE FROM {} WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:00:00'").run()
    done.assert_sessions("u | start | end | count \n a | 24 | 24 | 1 \n tick | 1460 | 1460 | 1")  # 6 to 18 ended early
    done.assert_clean()
    done.rebuild().assert_sessions("u | start | end | count \n a | 24 | 24 | 1 \n tick | 1460 | 1460 | 1")


def test_a_delete_of_what_is_forgotten_takes_what_is_left_with_it_where_gaps_split(play: Plays) -> None:
    splits = {"max_duration": "12m", "gap_boundary": "splits"}
    done = forget(play("a@0 a@6 a@12 a@18 a@24 tick@1455", session=splits))  # the mark is 25
    done.source("DELETE FROM {} WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:00:00'").run()
    done.assert_sessions("u | start | end | count \n a | 6 | 18 | 3 \n a | 24 | 24 | 1 \n tick | 1455 | 1455 | 1")
    done.assert_clean()


def test_a_backfill_behind_the_mark_leaves_the_sessions_around_it_alone(play: Plays) -> None:
    done = play("z@0 a@100", session={"max_duration": "1h"}).flush().runs("a@300 tick@1500 | a@200")
    forget(done)
    assert done.position().forgotten == at(70)
    done.backfill(190, 210)
    done.assert_sessions(
        """
        u    | start | end  | why
        a    | 100   | 100  | flush
        a    | 200   | 200  | gap
        a    | 300   | 300  | gap
        tick | 1500  | 1500 | -
        """
    )
    done.assert_clean()


def test_other_rejected_events_are_refused_behind_a_forgetting_too(play: Plays) -> None:
    done = play("a@0 a@1000 | a@20 tick@2000")
    done.change(outputs={"rejected_events": str(done.folder / "elsewhere")}).init()
    forget(done)
    with pytest.raises(TableError, match="is not the table that runs have written to"):
        done.run()


def test_a_source_that_is_pruned_leaves_the_cuts_that_its_rows_make(play: Plays) -> None:
    events = " ".join(f"a@{n}" for n in range(0, 60, 6)) + " b@30 b@50 tick@1460"
    done = forget(play(events, session={"max_duration": "12m"}))
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:10:00'").run()
    done.assert_clean()
    found = done.told("u | start | end | count")
    assert done.rebuild().told("u | start | end | count") == found


@pytest.mark.parametrize("lateness", ["event", "session"])
def test_what_is_late_by_the_mark_is_the_original_of_nothing(play: Plays, lateness: str) -> None:
    once = {"dedupe": {"by": ["n"], "within": "7d"}}
    done = forget(play(OLD, late_events="amend", source=once, time={"lateness": lateness})).runs("a@5=9 a@12=9")
    done.assert_rejected("u | event_time | reason \n a | 5 | duplicate")
    done.assert_sessions("u | start | end | total \n a | 12 | 12 | 9 \n b | 1 | 1 | 2 \n tick | 1441 | 1441 | 3")


@pytest.mark.parametrize("policy", ["quarantine", "fail"])
def test_a_copy_of_what_is_forgotten_is_late_when_its_original_goes(play: Plays, policy: str) -> None:
    within = {"dedupe": {"by": ["n"], "within": "7d"}}
    done = forget(play("a@0=7 a@5=7 tick@1441", source=within, late_events=policy))
    done.source("DELETE FROM {} WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:00:00'").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_sessions("u | start \n tick | 1441")
    done.assert_clean()


@pytest.mark.parametrize("way", ["an update", "an overwrite"])
def test_an_update_in_quarantine_that_moves_its_row_over_the_mark_and_makes_it_invalid_is_invalid(
    play: Plays, way: str
) -> None:
    fails = [{"name": "total", "fn": "sum", "of": "CASE WHEN n = 4 THEN 1 DIV (n - 4) ELSE n END"}]
    done = forget(play("a@0 tick@1441", corrections="quarantine", aggregates=fails, invalid_events="fail"))
    if way == "an update":
        done.source("UPDATE {} SET n = 4, at = TIMESTAMP'2026-01-01 00:02:00' WHERE u = 'tick'")
    else:
        done.source(
            "INSERT INTO {} REPLACE WHERE u = 'tick' SELECT u, TIMESTAMP'2026-01-01 00:02:00', 4 FROM {} "
            "WHERE u = 'tick'"
        )
    with pytest.raises(RunFailed, match="1 event is invalid"):
        done.run()
    done.change(invalid_events="quarantine").run()
    done.assert_rejected("u | event_time | reason \n tick | 2 | expression_failed \n tick | 1441 | correction")
    done.assert_sessions("u | start \n tick | 1441")
    done.assert_clean()


def test_a_rebuild_takes_nothing_in_that_is_late_by_the_mark(play: Plays) -> None:
    done = forget(play(OLD)).runs("a@5").rebuild()
    done.assert_sessions(LEFT)
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


@pytest.mark.parametrize("is_updated", [False, True])
def test_what_was_apart_before_the_mark_counts_for_a_rebuild(play: Plays, is_updated: bool) -> None:
    done = forget(play("tick@1442 b@0 | a@5 a@8 a@13", late_events="separate"))
    assert done.position().forgotten == at(12)
    if is_updated:
        done.source("UPDATE {} SET n = n + 1 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:05:00'")
    done.rebuild().assert_sessions("u | start | end | count \n a | 5 | 13 | 3 \n tick | 1442 | 1442 | 1")
    done.assert_clean()


@pytest.mark.parametrize("is_moved", [False, True])
def test_unread_events_are_late_by_the_mark_for_a_rebuild_too(play: Plays, is_moved: bool) -> None:
    done = forget(play(OLD)).runs("a@11")
    if is_moved:
        done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 00:05:00' WHERE u = 'a' AND at > '2026-01-01 00:10:00'")
        comes: list[str] = []
    else:
        done.add("a@5")
        comes = ["a | 11 | 11 | 1"]  # which was late for the run
    assert plan(done.kind, print, done.now).total("comes") == len(comes)
    done.rebuild().assert_sessions("\n".join([LEFT, *comes]))
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_what_comes_unread_in_place_of_one_that_counts_is_not_late_for_a_rebuild(play: Plays) -> None:
    cut = {"max_duration": "1h"}
    done = forget(play("z@0 a@0 a@5 a@9 a@15 tick@1441 | a@6=7 tick@1442", session=cut, late_events="amend"))
    assert done.position().forgotten == at(12)
    done.assert_sessions("u | start | end | total \n a | 0 | 15 | 11 \n tick | 1441 | 1442 | 2")
    done.add("a@7=9 a@8=20")  # of which one is changed before a run reads it
    for n in (5, 6, 8):
        done.source(f"UPDATE {{}} SET n = n + 1 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:0{n}:00'")
    done.rebuild().assert_sessions("u | start | end | total \n a | 0 | 15 | 13 \n tick | 1441 | 1442 | 2")
    done.assert_rejected("u | event_time | reason \n a | 7 | late \n a | 8 | late")
    done.assert_clean()


def test_a_source_that_is_written_over_by_itself_is_the_same_for_a_rebuild(play: Plays) -> None:
    once = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = forget(play("z@0=5 a@0=1 a@5=2 a@5=2 a@15=3 tick@1441=4", source=once))
    wanted = "u | start | end | count \n a | 0 | 15 | 3 \n tick | 1441 | 1441 | 1"
    done.assert_sessions(wanted)
    place = done.config.source.table
    rows = done.spark.read.format("delta").load(place)
    done.spark.createDataFrame(rows.collect(), rows.schema).write.format("delta").mode("overwrite").save(place)
    done.rebuild().assert_sessions(wanted)
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_a_rebuild_finds_nothing_rejected_and_something_unread_where_changes_wait(play: Plays) -> None:
    done = forget(play(OLD, **WAITING)).add("a@5 a@1442")
    done.rebuild().assert_sessions(f"{LEFT} \n a | 1442 | 1442 | 1")
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_unread_events_behind_columns_that_change_are_late_as_well_for_a_rebuild(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, note STRING").runs(f"{OLD}")
    done.source(BY_NAME).run()
    came = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'2026-01-01 00:{:02}:00', 1, 'x')"
    forget(done).source(came.format(5)).source("ALTER TABLE {} RENAME COLUMN note TO remark").source(came.format(11))
    done.rebuild().assert_sessions(f"{LEFT} \n a | 11 | 11 | 1")
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_where_nobody_can_read_them_a_rebuild_goes_on_without(play: Plays) -> None:
    done = forget(play(OLD))
    done.add("a@5").source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 00:05:00'").add("a@12").vacuumed()
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions(f"{LEFT} \n a | 12 | 12 | 1")
    done.assert_clean()


def test_a_longer_gap_of_a_forgotten_event_takes_in_what_lies_within_it(play: Plays) -> None:
    done = forget(play("a@0=5 a@5=5 a@50=5 tick@1530=10", **BY_N))
    done.source("UPDATE {} SET n = 200 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:05:00'").run()
    done.assert_sessions("u | start | end | count \n a | 0 | 50 | 3 \n tick | 1530 | 1530 | 1")
    done.assert_clean()


def test_a_longer_gap_of_a_forgotten_event_reaches_what_has_lasted_over_the_mark(play: Plays) -> None:
    done = forget(play("a@0=5 a@50=100 tick@1530=10", **BY_N))
    assert done.position().forgotten == at(100)
    done.source("UPDATE {} SET n = 60 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:00:00'").run()
    done.assert_sessions("u | start | end | count \n a | 0 | 50 | 2 \n tick | 1530 | 1530 | 1")
    done.assert_clean()


def test_what_is_left_of_a_chain_takes_in_what_lies_within_its_gap(play: Plays) -> None:
    longest = {"session": BY_N["session"] | {"max_duration": "10m"}}
    done = forget(play("a@0=1000 a@8=1000 a@14=5 tick@2000=5", **longest))
    done.source("DELETE FROM {} WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:00:00'").run()
    done.assert_sessions("u | start | end | count \n a | 8 | 14 | 2 \n tick | 2000 | 2000 | 1")
    done.assert_clean()


INVALID = {
    "expression_failed": ("c@5=0", {"of": "CAST(6 / n AS INT)"}, {"of": "CAST(coalesce(6 / nullif(n, 0), 0) AS INT)"}),
    "null_key": ("c@5=0", {"key": "nullif(n, 0)"}, {"key": "n"}),
    "non_positive_gap": ("c@5=0", {"gap": "INTERVAL 10 MINUTES * n"}, {"gap": "INTERVAL 10 MINUTES"}),
}


def test_a_rebuild_by_another_event_time_tells_what_is_late_by_the_mark_by_that(
    spark: SparkSession, tmp_path: Path
) -> None:
    both = "u STRING, at TIMESTAMP, n INT, came TIMESTAMP"
    done = Play(spark, tmp_path, both).runs("u | at | n | came \n a | 0 | 1 | 0 \n tick | 1460 | 1 | 1460")
    done.runs("u | at | n | came \n b | 3 | 2 | 1461 \n c | 5 | 3 | 6 \n d | - | 4 | 7")
    forget(done).assert_rejected("u | event_time | reason \n b | 3 | late \n c | 5 | late \n d | - | null_time")
    assert done.position().forgotten == at(30)
    done.change(source={"key": ["u"], "event_time": "CASE WHEN n > 1 THEN came ELSE at END"}).rebuild()
    done.assert_sessions("u | start | total \n b | 1461 | 2 \n tick | 1460 | 1")
    done.assert_rejected("u | event_time | reason \n c | 6 | late \n d | 7 | late")
    done.assert_clean()


def ruled(of: str = "n", key: str | None = None, gap: str | None = None) -> dict[str, Any]:
    """Sections of a config; key: SQL of a second column of it."""
    made = [] if key is None else [{"name": "k", "expr": key}]
    return {
        "source": {"key": ["u", *made]},
        "session": {"gap": "10m" if gap is None else {"expr": gap}},
        "aggregates": [{"name": "total", "fn": "sum", "of": of}],
    }


@pytest.mark.parametrize("reason", INVALID)
def test_a_rebuild_by_another_rule_takes_nothing_in_that_was_invalid_before_the_mark(play: Plays, reason: str) -> None:
    event, before, after = INVALID[reason]
    done = play(f"a@0=1 b@1=1 {event} tick@1441=1", **ruled(**before))
    done.assert_rejected(f"u | event_time | reason \n c | 5 | {reason}")
    forget(done).change(**ruled(**after)).rebuild()
    done.assert_sessions("u | start | end \n b | 1 | 1 \n tick | 1441 | 1441")
    done.assert_rejected("u | event_time | reason \n c | 5 | late")
    done.assert_clean()


def test_the_mark_is_no_later_than_the_horizon_of_any_scope(play: Plays) -> None:
    done = forget(play("b@5 a@0 a@3000", time={"watermark": {"per": ["u"]}})).runs("b@7")
    done.assert_sessions("u | start | end \n a | 0 | 0 \n a | 3000 | 3000 \n b | 5 | 7")
    done.assert_clean()


def test_a_restore_to_before_brings_sessions_and_lateness_back(play: Plays) -> None:
    done = forget(play(OLD, late_events="amend")).runs("a@5")
    done.damage("RESTORE {} TO VERSION AS OF 1")
    done.run()
    done.assert_sessions(
        "u | start | end | total \n a | 0 | 5 | 2 \n b | 1 | 1 | 2 \n tick | 1441 | 1441 | 3",
    )
    done.assert_rejected("u | reason")
    assert (done.position().forgotten, done.ledger("mode")) == (None, [("run",), ("run",)])
    done.assert_clean()


def test_a_death_behind_the_commit_is_mended_by_the_next_command(play: Plays) -> None:
    done = play(OLD)
    with killed_at(side_tables, "enter"):
        forget(done)
    done.runs("a@5").assert_sessions(LEFT)
    assert done.ledger("mode", "late") == [("run", 0), ("forget", 0), ("run", 1)]
    done.assert_clean()


def test_scopes_of_their_own_forget_by_one_mark(play: Plays) -> None:
    per = {"watermark": {"per": "key"}, "idle_timeout": {"after": "2000d", "clock": "processing_time"}}
    done = forget(play("a@0 a@900 tick@1441", time=per)).runs("c@5 a@5")
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n c | 5 | late")
    done.assert_sessions("u | start \n a | 900 \n tick | 1441")
    done.assert_clean()


def test_traces_of_forgotten_sessions_are_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")})
    forget(done.runs(OLD)).assert_clean()
    done.source("UPDATE {} SET n = 4 WHERE u IN ('a', 'b')").run()
    done.assert_clean()


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "behind a death"])
def test_traces_go_with_the_sessions_that_are_forgotten_and_come_back_with_them(
    spark: SparkSession, tmp_path: Path, dies: bool
) -> None:
    trace = str(tmp_path / "event_sessions")
    done = Play(spark, tmp_path, outputs={"event_sessions": trace}).runs(OLD)
    if dies:
        with killed_at(side_tables, "forget"):
            keep(done)
    assert keep(done) == (0 if dies else 1)
    assert done.told_of(trace, "u | event_time", u="a") == []
    assert len(done.told_of(trace, "u | event_time", u="b")) == 1  # its session stays, though the mark lies behind it
    done.damage("RESTORE {} TO VERSION AS OF 1")
    done.runs("tick@1442")
    assert len(done.told_of(trace, "u | event_time", u="a")) == 1
    done.assert_clean()


def test_a_session_that_is_written_again_behind_what_its_trace_has_lost_is_no_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace = str(tmp_path / "event_sessions")
    done = Play(spark, tmp_path, outputs={"event_sessions": trace}).runs("a@0 b@30 tick@1441").at(2000)
    keep(done, "event_sessions")
    assert done.told_of(trace, "u | event_time", u="b") == []
    done.source("UPDATE {} SET n = 4 WHERE u = 'a'").run()
    assert len(done.told_of(trace, "u | event_time", u="a")) == 1
    done.assert_clean()


def test_traces_are_forgotten_where_each_key_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    per = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30m", "clock": "processing_time"}}
    trace = str(tmp_path / "event_sessions")
    done = Play(spark, tmp_path, outputs={"event_sessions": trace}, time=per).at(1400).runs("a@0 b@1400").at(1500)
    done.run()
    keep(done, "event_sessions")
    assert [row["u"] for row in done.told_of(trace, "u")] == ["b"]
    done.runs("a@1").assert_rejected("u | reason \n a | late")
    done.assert_clean()


def test_final_sessions_that_stay_are_forgotten_by_the_key_that_they_have(play: Plays) -> None:
    done = play("a@0 tick@1441", time={"lateness": "session"}).change(source={"key": ["n"]})
    assert keep(done) == 1


def test_what_leaves_of_a_forgotten_session_counts_in_none_beside_a_final_one(play: Plays) -> None:
    chains = {"gap": "10m", "max_duration": "20m"}
    finals = "a@0 a@5=2 tick@60 | a@1517 a@1520=2 a@1526 tick@1537 | a@1525 a@1535 a@1544 tick@1556"
    done = play(finals, time={"lateness": "session"}, session=chains)
    assert keep(done) == 2
    done.source("DELETE FROM {} WHERE n = 2").runs("a@1544 a@1553 a@1562 a@1571")
    done.assert_sessions(
        """
        u    | start | end  | count
        a    | 1517  | 1526 | 2
        a    | 1525  | 1544 | 3
        a    | 1544  | 1562 | 3
        a    | 1571  | 1571 | 1
        """,
        u="a",
    )


def test_windows_that_ended_further_behind_the_latest_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    sliding = {"table": str(tmp_path / "windows"), "time_difference": "10m", "grace": "0s", "aggregates": []}
    done = Play(spark, tmp_path, late_events="amend", sliding=sliding).add("a@20 a@25 tick@1462").init()
    done.run()
    done.slide()
    # To the minute 1462 reaches the latest of them: what ended before 22 is a day further behind.
    assert keep(done, "windows") == 1
    done.assert_rows(done.told_windows("u | window_end"), "u | window_end \n a | 25 \n a | 30+1000us \n tick | 1462")
    done.add("a@21 a@22 b@25").slide()
    done.assert_rows(
        done.told_windows("u | window_end | count"),
        """
        u    | window_end | count
        a    | 22         | 2
        a    | 25         | 3
        a    | 30+1000us  | 2
        a    | 32+1000us  | 1
        b    | 25         | 1
        tick | 1462       | 1
        """,
    )


def test_what_is_older_than_the_mark_is_not_judged_again_each_time(play: Plays) -> None:
    done = forget(play(OLD)).runs("a@5")
    version, runs = done.tables.sessions.table.version, done.tables.runs.table.read().count()
    done.readmit(0, 2000).readmit(0, 2000)
    assert done.tables.sessions.table.version == version
    assert done.tables.runs.table.read().count() == runs
    done.assert_rejected("u | event_time | reason \n a | 5 | late")


def test_a_delete_that_waited_reaches_a_late_session_that_outlasts_the_mark(play: Plays) -> None:
    kept = {"late_events": "separate", "corrections": "quarantine"}
    done = play("tick@1442 b@0 | a@5", **kept)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    forget(done)
    assert done.position().forgotten == at(12)
    done.readmit(0, 2000)
    done.assert_sessions("u | start \n tick | 1442")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_what_is_forgotten_still_ends_a_session_that_would_reach_over_it(play: Plays) -> None:
    by_days = {"session": {"gap": {"expr": "make_dt_interval(n, 0, 0, 0)"}, "starts_when": "n = 3"}}
    done = play("a@0=100 a@2880=1 a@7200=3 tick@72000=1", now=90000, **by_days)
    forget(done)
    done.source("UPDATE {} SET n = 2 WHERE u = 'a' AND n = 1").run()
    done.assert_clean()
    done.runs("a@79200=1")
    done.assert_sessions("u | start | end | count \n a | 0 | 2880 | 2 \n a | 79200 | 79200 | 1", u="a")
    done.assert_clean()


def test_no_session_is_forgotten_that_a_live_one_may_grow_over(play: Plays) -> None:
    """a's live session began before its final one, and reaches beyond it: its events would count as its own."""
    freezes = {"time": {"lateness": "session", "allowed_lateness": "0s"}}
    by_days = {"session": {"gap": {"expr": "make_dt_interval(n, 0, 0, 0)"}}}
    done = play("a@14400=1 tick@72000=1 | a@0=100", now=90000, **freezes, **by_days)
    forget(done).runs("a@86400=1")
    table = "u | start | end | count \n a | 0 | 86400 | 2 \n a | 14400 | 14400 | 1"
    done.assert_sessions(table, u="a")
    least = {"name": "least", "fn": "min", "of": "n"}
    done.change(aggregates=[{"name": "total", "fn": "sum", "of": "n"}, least]).run()
    done.assert_sessions(table, u="a")


def test_a_session_apart_is_known_by_its_id_though_what_came_before_it_then_is_forgotten(play: Plays) -> None:
    three = {"gap": "10m", "max_events": 3}
    done = play("tick@1452=9 | a@4=1 a@5=2 a@6=3 a@10=4 a@10=5 a@19=6", late_events="separate", session=three)
    forget(done).assert_sessions("u | start | end | count \n a | 10 | 19 | 3 \n tick | 1452 | 1452 | 1")
    done.source("DELETE FROM {} WHERE n = 1").run()
    done.assert_sessions("u | start | end | count \n a | 10 | 19 | 2 \n tick | 1452 | 1452 | 1")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start | end | count \n tick | 1452 | 1452 | 1")
    done.assert_clean()


def test_a_session_apart_has_its_forgotten_events_where_lateness_goes_by_sessions(play: Plays) -> None:
    short = {"session": BY_N["session"] | {"max_duration": "4m"}}
    done = play("tick@1490=10 | a@0=100 a@2=90 a@5=1", late_events="separate", time=STAYING, **short)
    forget(done).assert_sessions("u | start | end | count \n a | 0 | 2 | 2 \n tick | 1490 | 1490 | 1")
    done.source("DELETE FROM {} WHERE n = 100").run()
    done.assert_sessions("u | start | end | count \n a | 2 | 5 | 2 \n tick | 1490 | 1490 | 1")
    done.assert_clean()
