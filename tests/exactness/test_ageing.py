"""Time passes between runs: nothing depends on an old version of a table being readable."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.exactness.play import Play, SourceError, fails_today

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
TOO_OLD = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
GONE_QUIET = "a version of the source that is nine days old and not the latest cannot be read"


def test_delta_reads_no_version_that_is_nine_days_old_and_not_the_latest(play: Plays, aged: Plays) -> None:
    old = aged(play("a@5"))
    assert old.spark.read.format("delta").load(old.config.source.table).count() == 1
    old.add("a@6")
    with pytest.raises(PySparkException, match=TOO_OLD):
        old.spark.read.format("delta").option("versionAsOf", 0).load(old.config.source.table).count()


@fails_today(GONE_QUIET, PySparkException)
def test_dedupe_finds_copies_of_events_of_nine_days_ago(play: Plays, aged: Plays) -> None:
    old = aged(
        play("a@5=1 tick@6=2", source={"dedupe": {"by": ["n"], "within": "1h"}}, time={"allowed_lateness": "1d"})
    )
    old.runs("a@7=1 a@8=3").assert_sessions("u | start | end | count \n a | 5 | 8 | 2", u="a")


@fails_today(GONE_QUIET, PySparkException)
def test_windows_go_on_after_nine_days(spark: SparkSession, tmp_path: Path, aged: Plays) -> None:
    sliding = {"table": "windows", "time_difference": "10m", "grace": "1d", "aggregates": []}
    made = Play(spark, tmp_path / "made", sliding=sliding | {"table": str(tmp_path / "made" / "windows")})
    made.add("a@500").init()
    made.slide()
    made.sections["sliding"]["table"] = str(tmp_path / "aged" / "windows")
    old = aged(made).add("a@505").slide()
    # Of each event the window that ends with it, and of the first the one that begins just behind it.
    assert len(old.told_windows("window_start | window_end")) == 3


@fails_today(GONE_QUIET, PySparkException)
def test_corrections_of_a_source_with_a_start_go_on_after_nine_days(
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
    """Nine days ago a run died behind its commit: a late event is not yet in rejected_events."""
    made = play("a@5").add("a@8 a@-900")
    made.run_cut_off()
    return aged(made)


@fails_today("a cut-off run is finished from a version of sessions that Delta no longer reads", PySparkException)
def test_a_run_that_was_cut_off_nine_days_ago_is_finished(cut_off: Play) -> None:
    cut_off.run()
    cut_off.assert_sessions("u | start | end | count \n a | 5 | 8 | 2")
    cut_off.assert_rejected("u | reason \n a | late")
    assert cut_off.ledger("run_seq", "late") == [(1, 0), (2, 1)]


@fails_today("a cut-off run is finished from changes of the source that Delta no longer reads", SourceError)
def test_a_run_that_was_cut_off_nine_days_ago_is_finished_when_new_events_are_there(cut_off: Play) -> None:
    cut_off.runs("a@9").assert_sessions("u | start | end | count \n a | 5 | 9 | 3")
    cut_off.assert_rejected("u | reason \n a | late")
    assert cut_off.ledger("run_seq", "late") == [(1, 0), (2, 1), (3, 0)]


# A consumer that is behind


@pytest.fixture
def behind(play: Plays, aged: Plays) -> Play:
    """Versions that nobody has read are nine days old."""
    made = play("a@5").add("a@6").add("a@7")
    return aged(made).add("a@8")


@fails_today("a consumer that is behind is told to rebuild, though nothing is lost")
def test_a_consumer_nine_days_behind_is_told_what_brings_the_changes_back(behind: Play) -> None:
    with pytest.raises(SourceError) as told:
        behind.run()
    assert "delta.deletedFileRetentionDuration" in str(told.value)
    assert "rebuild" not in str(told.value)


@fails_today("the source is left with the week that Delta keeps removed files")
def test_init_asks_the_source_to_keep_removed_files_for_30_days(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path).add("a@5").init()
    assert made.tables.events.table.setting("delta.deletedFileRetentionDuration") == "interval 30 days"


def test_init_leaves_what_the_source_says_of_removed_files(spark: SparkSession, tmp_path: Path) -> None:
    made = Play(spark, tmp_path).add("a@5")
    # Delta keeps removed files no longer than its log.
    made.source(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 90 days', "
        "'delta.deletedFileRetentionDuration' = 'interval 90 days')"
    ).init()
    assert made.tables.events.table.setting("delta.deletedFileRetentionDuration") == "interval 90 days"
