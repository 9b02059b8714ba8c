"""RESTORE of sessions: all other tables follow it, there and back, however long ago they were written."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.tables.delta.settings import having
from tests.exactness.play import AT_ONCE, Play, at
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
LATE = "u | event_time | reason \n a | 5 | late"


def restore(done: Play, run_seq: int) -> Play:
    """The sessions as this run has left them."""
    done.damage(f"RESTORE {{}} TO VERSION AS OF {run_seq}")
    return done


@pytest.fixture
def readmitted(spark: SparkSession, tmp_path: Path) -> Play:
    """The third run has taken in what was late in the second."""
    outputs = {"event_sessions": str(tmp_path / "event_sessions")}
    done = Play(spark, tmp_path, outputs=outputs).runs("tick@100 | a@5=3").readmit(0, 10)
    done.assert_rejected("u | reason")
    return done


def test_a_readmission_is_undone_and_done_again(readmitted: Play) -> None:
    restore(readmitted, 2).assert_clean()
    readmitted.assert_rejected(LATE)
    restore(readmitted, 3).assert_clean()
    readmitted.assert_rejected("u | reason")
    traced = readmitted.told_of(str(readmitted.config.outputs.event_sessions), "u | event_time")
    readmitted.assert_rows(traced, "u | event_time \n a | 5 \n tick | 100")
    assert [row[0] for row in readmitted.ledger("run_seq")] == [1, 2, 3]
    readmitted.source("DELETE FROM {} WHERE u = 'a'").run()
    readmitted.assert_sessions("u | start \n tick | 100")


def test_what_was_undone_before_a_run_stays_undone_behind_it(readmitted: Play) -> None:
    restore(readmitted, 2).runs("b@110")
    last = readmitted.position().run_seq
    restore(readmitted, 3).verify()
    restore(readmitted, last).verify()
    readmitted.assert_rejected(LATE)
    assert [row[0] for row in readmitted.ledger("run_seq")] == [1, 2, last]
    readmitted.assert_clean()


def test_a_run_that_was_cut_off_is_finished_however_many_came_between(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")}).runs("tick@100")
    done.add("a@5 b@101").run_cut_off()
    restore(done, 1).runs("c@110")
    for run_seq, events in ((2, "b | 101 \n tick | 100"), (4, "b | 101 \n c | 110 \n tick | 100")):
        restore(done, run_seq).verify()
        done.assert_rejected(LATE)
        traced = done.told_of(str(done.config.outputs.event_sessions), "u | event_time")
        done.assert_rows(traced, f"u | event_time \n {events}")
        assert [row[0] for row in done.ledger("run_seq")] == [1, run_seq]
    restore(done, 2).runs("d@120")
    done.assert_rows(done.told("u | start"), "u | start \n b | 101 \n c | 110 \n d | 120 \n tick | 100")
    assert [row[0] for row in done.ledger("run_seq")][:2] == [1, 2]
    done.assert_clean()


def test_what_a_run_that_has_stalled_would_write_is_refused_once_it_is_undone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")}).runs("tick@100")
    write = side_tables.write

    def stalled(*arguments: Any) -> None:
        monkeypatch.undo()
        restore(done, 1).verify()
        write(*arguments)

    monkeypatch.setattr(side_tables, "write", stalled)
    done.add("a@5 b@101").run(once=True)
    assert ([row[0] for row in done.ledger("run_seq")], done.told_rejected("u")) == ([1], [])
    done.run()
    done.assert_rejected(LATE)
    traced = done.told_of(str(done.config.outputs.event_sessions), "u | event_time")
    done.assert_rows(traced, "u | event_time \n b | 101 \n tick | 100")
    assert [row[0] for row in done.ledger("run_seq")] == [1, 4]
    done.assert_clean()


def test_lines_that_nobody_could_read_outlast_it(readmitted: Play) -> None:
    readmitted.damage("INSERT INTO {} (reason, ordinal) VALUES ('unreadable', 1)", "rejected_events")
    restore(readmitted, 2).verify()
    readmitted.assert_rejected("u | reason \n - | unreadable \n a | late")


def test_a_second_look_writes_nothing(readmitted: Play) -> None:
    restore(readmitted, 2).verify()
    tables = [readmitted.tables.sessions.table, *readmitted.tables.side_tables()]
    before = [table.version for table in tables]
    readmitted.verify()
    assert [table.version for table in tables] == before


@pytest.fixture
def long_ago(spark: SparkSession, tmp_path: Path, aged: Plays) -> Play:
    """Only the last run is to be undone; what others left was compacted before it, eight days ago."""
    outputs = {"event_sessions": str(tmp_path / "made" / "event_sessions")}
    made = Play(spark, tmp_path / "made", outputs=outputs).runs("tick@100 | a@5 | b@6 | tick@111")
    for table in outputs | {"rejected_events": ""}:
        made.damage("OPTIMIZE {}", table)
    made.runs("tick@112")
    made.sections["outputs"] = {"event_sessions": str(tmp_path / "aged" / "event_sessions")}
    old = aged(made, days=8)
    for place in (old.tables.rejected_events, old.tables.event_outputs["event_sessions"]):
        assert place.table.vacuum() > 0
    return old


def test_files_that_were_vacuumed_are_not_asked_for(long_ago: Play) -> None:
    restore(long_ago, 4).verify()
    long_ago.assert_rejected("u | event_time \n a | 5 \n b | 6")
    traced = long_ago.told_of(str(long_ago.config.outputs.event_sessions), "u | event_time")
    long_ago.assert_rows(traced, "u | event_time \n tick | 100 \n tick | 111")
    long_ago.run()
    long_ago.assert_clean()


def test_a_run_that_is_no_longer_in_the_log_of_a_table_is_not_taken_for_undone(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = Play(spark, tmp_path / "made").runs("tick@100 | a@5")
    table = made.tables.rejected_events.table
    table.change_setting("a", "b")
    table.checkpoint()
    shutil.copytree(made.folder, tmp_path / "cleaned")
    done = Play(spark, tmp_path / "cleaned")
    for file in (tmp_path / "cleaned" / "rejected_events" / "_delta_log").glob("*0[01].*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(TableError, match=r"rejected_events cannot follow the RESTORE.*rebuild"):
            restore(done, 1).run()
    done.rebuild().assert_rejected("u | reason")
    done.assert_clean()


def test_a_position_that_a_restore_brings_back_is_kept(play: Plays) -> None:
    done = play("a@5")
    home, first = done.tables.sessions, done.position()
    home.table.change_setting("a", "b", first.text())  # as upkeep repeats it
    assert not home.keep_manifest(first, wall_clock())
    restore(done.runs("a@9"), 1)
    assert home.keep_manifest(done.position(), wall_clock())
    assert done.position() == first
    assert not home.keep_manifest(first, wall_clock())


def test_an_output_that_a_rebuild_made_whole_is_not_so_before_it(play: Plays, tmp_path: Path) -> None:
    done = play("a@0").change(outputs={"event_sessions": str(tmp_path / "event_sessions")}).init().runs("a@5")
    before = done.position().run_seq
    done.rebuild().assert_clean()
    assert done.tables.event_outputs["event_sessions"].is_whole
    restore(done, before).assert_clean()
    assert not done.tables.event_outputs["event_sessions"].is_whole


# Without a position


@pytest.mark.parametrize("lost", ["rejected_events", "runs", "event_sessions"])
def test_tables_of_sessions_that_are_gone_are_not_taken_for_those_of_new_ones(readmitted: Play, lost: str) -> None:
    readmitted.runs("b@6")
    shutil.rmtree(readmitted.config.sessions.table)
    for name in {"rejected_events", "runs", "event_sessions"} - {lost}:
        shutil.rmtree(getattr(readmitted.config.outputs, name))
    readmitted.init()
    with pytest.raises(TableError, match=rf"outputs.{lost} .*no run.*`sessionizer init`"):
        readmitted.run()
    shutil.rmtree(getattr(readmitted.config.outputs, lost))
    readmitted.init().run()
    readmitted.assert_clean()


def test_sessions_whose_log_names_no_run_any_more_are_not_made_twice(play: Plays, copied: Plays) -> None:
    made = play("a@5 tick@100")
    table = made.tables.sessions.table
    table.change_setting("a", "b")
    table.checkpoint()
    done = copied(made)
    for file in Path(done.config.sessions.table, "_delta_log").glob("*[01].json"):
        file.unlink()
    with pytest.raises(TableError, match=r"sessions.table .*no run"):
        done.run()


def without_its_past(made: Play, folder: Path, **sections: Any) -> Play:
    """A copy, whose rejected_events has lost the log of the first run that rejected an event, and of before."""
    made.tables.rejected_events.table.checkpoint()
    shutil.copytree(made.folder, folder)
    for version in (0, 1):
        log = folder / "rejected_events" / "_delta_log"
        for name in (f"{version:020}.json", f".{version:020}.json.crc", f"{version:020}.crc"):
            (log / name).unlink(missing_ok=True)
    return Play(made.spark, folder, **sections)


@pytest.mark.parametrize("policy", ["apply", "quarantine"])
def test_a_restore_that_a_table_cannot_follow_is_an_error_and_a_rebuild_helps(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    made = Play(spark, tmp_path / "made", corrections=policy).runs("tick@100 | a@5 | tick@110 | b@6")
    done = without_its_past(made, tmp_path / "cleaned", corrections=policy)
    with pytest.raises(TableError, match=r"rejected_events cannot follow the RESTORE.*version 1.*rebuild"):
        restore(done, 1).run()
    assert plan(done.kind, done.said.append, done.now).total("comes") == 2
    done.rebuild().assert_rejected("u | reason")
    done.assert_sessions("u | start | end \n a | 5 | 5 \n b | 6 | 6 \n tick | 100 | 110")
    done.assert_clean()


def without_old_files(done: Play) -> Play:
    """Files of rejected_events that its latest version does not have are gone."""
    with having(done.spark, AT_ONCE):
        done.source(f"VACUUM delta.`{done.config.outputs.rejected_events}` RETAIN 0 HOURS")
    return done


def test_a_rebuild_goes_on_where_files_are_gone_that_rejected_events_had_then(play: Plays) -> None:
    done = play("tick@100 | a@5 | b@6")
    done.source(f"OPTIMIZE delta.`{done.config.outputs.rejected_events}`")
    assert plan(restore(without_old_files(done), 2).kind, done.said.append, done.now).total("comes") == 2
    done.rebuild().assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.parametrize("anew", [Play.run, Play.rebuild])
def test_what_waits_is_known_where_no_row_has_been_taken_away_since(play: Plays, anew: Callable[[Play], Any]) -> None:
    done = play("tick@100 a@1", corrections="quarantine").source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.runs("b@6 | c@7")
    done.source(f"OPTIMIZE delta.`{done.config.outputs.rejected_events}`")
    restore(without_old_files(done), 2)
    assert plan(done.kind, done.said.append, done.now).total("goes") == 0
    anew(done)
    late = " \n b | 6 | late \n c | 7 | late" if anew is Play.run else ""
    done.assert_rejected(f"u | event_time | reason \n a | 1 | correction{late}")
    done.assert_clean()


def test_what_an_earlier_run_wrote_again_since_is_not_taken_for_what_it_had_left(play: Plays) -> None:
    done = play("tick@100").add("a@5 b@101")
    done.run_cut_off()
    restore(done, 1).verify()
    restore(done, 2).runs("c@6")
    restore(done, 2).verify()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_a_ledger_that_was_made_anew_does_not_tell_what_runs_before_have_left_out(play: Plays) -> None:
    done = play("tick@100 a@1", corrections="quarantine").source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.runs("b@101")
    shutil.rmtree(done.config.outputs.runs)
    done.init().runs("b@102").readmit(0, 10)
    restore(without_old_files(done), 4)
    with pytest.raises(UsageError, match=r"rejected_events tells what stays out .* cannot follow the RESTORE"):
        done.rebuild()


def test_no_rebuild_goes_by_what_undone_runs_have_told_of_events_that_stay(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path / "made", corrections="quarantine").runs("tick@100 a@1 | a@5")
    made.source("DELETE FROM {} WHERE u = 'a'").run()
    done = without_its_past(made, tmp_path / "cleaned", corrections="quarantine")
    last = done.tables.sessions.table.version
    with pytest.raises(UsageError, match=r"rejected_events tells what stays out .* cannot follow the RESTORE"):
        restore(done, 1).rebuild()
    restore(done, last).rebuild().assert_sessions("u | start | end \n a | 1 | 1 \n tick | 100 | 100")
    done.assert_rejected("u | event_time | reason \n a | 1 | correction")


def test_no_rebuild_forgets_what_stays_where_an_undone_run_took_it_away(play: Plays) -> None:
    done = play("tick@100 a@1", corrections="quarantine").source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.assert_rejected("u | event_time | reason \n a | 1 | correction")
    done.readmit(0, 10).assert_rejected("u | event_time | reason")
    restore(without_old_files(done), 2)
    for anew in (done.rebuild, partial(plan, done.kind, done.said.append, done.now)):
        with pytest.raises(UsageError, match=r"rejected_events tells what stays out .* cannot follow the RESTORE"):
            anew()


def test_no_dry_run_goes_by_what_a_run_that_was_cut_off_has_not_rejected_yet(play: Plays) -> None:
    done = play("a@0=1", source={"dedupe": {"by": ["n"], "within": "1h"}}).add("a@1=1 a@2=2")
    done.run_cut_off()
    look = LookBack(at(0), at(60), now=done.now, dry_run=True)
    for tried in (
        partial(done.run, dry_run=True),
        partial(backfill, done.kind, look),
        partial(readmit, done.kind, look),
    ):
        with pytest.raises(TableError, match="has not written yet which events stay out"):
            tried()
    done.run()
    assert [report.manifest.sessions.get("updated", 0) for report in backfill(done.kind, look)] == [0]


def test_dry_runs_go_by_rejected_events_as_they_were_before_runs_that_a_restore_has_undone(play: Plays) -> None:
    done = play("a@0 b@5", corrections="quarantine").source("DELETE FROM {} WHERE u = 'b'")
    done.run()
    restore(done, 1)
    looked = backfill(done.kind, LookBack(at(0), at(60), now=done.now, dry_run=True))
    assert [report.manifest.sessions.get("updated", 0) for report in looked] == [0]
    done.change(corrections="apply")
    (tried,) = done.run(dry_run=True)
    assert tried.manifest.events["withdrawn"] == 1
    done.run()
    done.assert_sessions("u | start \n a | 0")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_rebuild_that_the_others_could_not_follow_is_finished_by_what_it_went_by(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces = tmp_path / "event_sessions"
    done = Play(spark, tmp_path, corrections="quarantine", outputs={"event_sessions": str(traces)}).runs("tick@100 a@1")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.readmit(0, 10).assert_rejected("u | event_time | reason")
    with having(spark, AT_ONCE):
        spark.sql(f"VACUUM delta.`{traces}` RETAIN 0 HOURS")
    restore(done, 2)
    with killed_at(side_tables, "write"):
        done.rebuild()
    done.run()
    done.assert_sessions("u | start | count \n a | 1 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 1 | correction")
    done.assert_rows(done.told_of(str(traces), "u | event_time"), "u | event_time \n a | 1 \n tick | 100")
    done.assert_clean()
