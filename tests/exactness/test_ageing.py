"""Time passes between runs: nothing depends on an old version of a table being readable."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.status import show, status_without_spark
from sessionizer.tables.delta.settings import WITHIN_RETENTION
from tests.exactness.play import Play
from tests.exactness.test_forgetting import forget

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
FORGETS = "ALTER TABLE {} UNSET TBLPROPERTIES ('delta.deletedFileRetentionDuration')"


def test_what_delta_has_not_removed_is_read_however_old_it_is(play: Plays, aged: Plays) -> None:
    old = aged(play("a@5"))
    old.add("a@6")
    assert old.spark.read.format("delta").option("versionAsOf", 0).load(old.config.source.table).count() == 1


def test_dedupe_finds_copies_of_events_of_forty_days_ago(play: Plays, aged: Plays) -> None:
    old = aged(
        play("a@5=1 tick@6=2", source={"dedupe": {"by": ["n"], "within": "1h"}}, time={"allowed_lateness": "1d"})
    )
    old.runs("a@7=1 a@8=3").assert_sessions("u | start | end | count \n a | 5 | 8 | 2", u="a")


def test_windows_go_on_after_forty_days(spark: SparkSession, tmp_path: Path, aged: Plays) -> None:
    sliding = {"table": "windows", "time_difference": "10m", "grace": "1d", "aggregates": []}
    made = Play(spark, tmp_path / "made", sliding=sliding | {"table": str(tmp_path / "made" / "windows")})
    made.add("a@500").init()
    made.slide()
    made.sections["sliding"]["table"] = str(tmp_path / "aged" / "windows")
    old = aged(made).add("a@505").slide()
    # Of each event the window that ends with it, and of the first the one that begins just behind it.
    assert len(old.told_windows("window_start | window_end")) == 3


def test_corrections_of_a_source_with_a_start_go_on_after_forty_days(
    spark: SparkSession, tmp_path: Path, aged: Plays
) -> None:
    made = Play(spark, tmp_path / "made", source={"start": {"version": 1}}, time={"allowed_lateness": "1d"})
    made.add("a@1").add("a@5 a@6 b@5").init().run()
    old = aged(made)
    old.source("DELETE FROM {} WHERE u = 'b'").run()
    old.source("UPDATE {} SET n = 2 WHERE at = TIMESTAMP'2026-01-01 00:06:00'").run()
    old.assert_sessions("u | start | end | count | total \n a | 5 | 6 | 2 | 3")


@pytest.fixture
def cut_off(play: Plays, aged: Plays) -> Play:
    """Forty days ago a run died behind its commit: a late event is not yet in rejected_events."""
    made = play("a@5").add("a@8 a@-900")
    made.run_cut_off()
    return aged(made)


def test_a_run_that_was_cut_off_forty_days_ago_is_finished(cut_off: Play) -> None:
    cut_off.spark.conf.set(WITHIN_RETENTION, "true")  # as Delta has it, in a session of one's own
    cut_off.run()
    cut_off.assert_sessions("u | start | end | count \n a | 5 | 8 | 2")
    cut_off.assert_rejected("u | reason \n a | late")
    assert cut_off.ledger("run_seq", "late") == [(1, 0), (2, 1)]


def test_a_run_that_was_cut_off_forty_days_ago_is_finished_when_new_events_are_there(cut_off: Play) -> None:
    cut_off.runs("a@9").assert_sessions("u | start | end | count \n a | 5 | 9 | 3")
    cut_off.assert_rejected("u | reason \n a | late")
    assert cut_off.ledger("run_seq", "late") == [(1, 0), (2, 1), (4, 0)]  # a commit before it keeps the manifest


@pytest.fixture
def cleared_next(spark: SparkSession, tmp_path: Path, aged: Plays) -> Play:
    """With its next commit Delta writes a checkpoint, and removes all of the log that is older than thirty days."""
    made = Play(spark, tmp_path / "made", outputs={"session_updates": str(tmp_path / "made" / "updates")})
    made.runs("a@5 b@-2000 | a@8")
    made.damage("ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '4')")
    made.sections["outputs"] = {"session_updates": str(tmp_path / "aged" / "updates")}
    return aged(made)


def test_a_run_with_which_delta_removes_the_log_before_it_is_finished(cleared_next: Play) -> None:
    cleared_next.runs("a@9 a@-900")
    cleared_next.assert_rejected("u | reason \n a | late")
    found = cleared_next.told_of(cleared_next.config.outputs.session_updates or "", "u | n | total")
    assert [row for row in found if row["u"] == "a"] == [{"u": "a", "n": n, "total": n} for n in ("1", "2", "3")]
    cleared_next.runs("a@10").assert_clean()


def test_forgetting_with_which_delta_removes_the_log_before_it_is_finished(cleared_next: Play) -> None:
    forget(cleared_next)
    cleared_next.assert_sessions("u | start | end | count \n a | 5 | 8 | 2")
    assert [row["u"] for row in cleared_next.told_of(cleared_next.config.outputs.session_updates or "", "u")] == [
        "a"
    ] * 2
    assert len(cleared_next.ledger("mode")) == 3


def test_a_consumer_forty_days_behind_reads_on(play: Plays, aged: Plays) -> None:
    behind = aged(play("a@5").add("a@6").add("a@7")).add("a@8")
    behind.run()
    behind.assert_sessions("u | start | end | count \n a | 5 | 8 | 4")


@pytest.mark.parametrize(("days", "warns"), [(14, False), (16, True)])
def test_status_warns_when_events_wait_for_half_of_what_the_source_keeps(
    play: Plays, aged: Plays, capsys: pytest.CaptureFixture[str], days: float, warns: bool
) -> None:
    waiting = aged(play("a@5").add("a@6"), days)
    show(status_without_spark(waiting.config))
    told = " ".join(capsys.readouterr().out.split())
    assert ("keeps removed files and log for 30 days: `sessionizer run` soon" in told) == warns


@pytest.fixture
def vacuumed(spark: SparkSession, tmp_path: Path, aged: Plays) -> Play:
    """What lay before the start was made anew forty days ago, and Delta has removed it since."""
    made = Play(spark, tmp_path / "made", source={"start": {"version": 2}}, time={"allowed_lateness": "1d"})
    made.add("a@1").add("b@2").add("a@5 a@6 b@5").init().run()
    made.source("OPTIMIZE {}").source("UPDATE {} SET n = 1 WHERE u = 'nobody'")
    old = aged(made)
    old.source("VACUUM {}")
    return old


def test_corrections_go_on_where_what_lay_before_the_start_was_vacuumed(vacuumed: Play) -> None:
    vacuumed.source("DELETE FROM {} WHERE u = 'b'").run()
    vacuumed.assert_sessions("u | start | end | count \n a | 5 | 6 | 2")
    vacuumed.assert_rejected("u | event_time | reason \n a | 1 | before_start")
    vacuumed.assert_clean()


def test_a_rebuild_leaves_out_what_lay_before_the_start_where_it_was_vacuumed(vacuumed: Play) -> None:
    vacuumed.rebuild().assert_sessions("u | start | end | count \n a | 5 | 6 | 2 \n b | 5 | 5 | 1")
    vacuumed.assert_clean()


def test_init_asks_the_source_to_keep_removed_files_for_30_days(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path).add("a@5").source(FORGETS).init()
    assert made.tables.events.table.setting("delta.deletedFileRetentionDuration") == "interval 30 days"


def test_init_leaves_the_source_alone_where_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path).add("a@5").source(FORGETS)
    init(spark, made.config, 0, made.said.append)
    assert made.tables.events.table.setting("delta.deletedFileRetentionDuration") is None


def test_init_leaves_what_the_source_says_of_removed_files(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path).add("a@5")
    # Delta keeps removed files no longer than its log.
    made.source(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 90 days', "
        "'delta.deletedFileRetentionDuration' = 'interval 90 days')"
    ).init()
    assert made.tables.events.table.setting("delta.deletedFileRetentionDuration") == "interval 90 days"
