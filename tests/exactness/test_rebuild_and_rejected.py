"""A rebuild beside rejected events: it loses none that stay out, and takes none in that wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.forget import forget as forget_rows
from sessionizer.jobs.run import side_tables
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import (
    SessionizerError,
    SourceError,
    TableError,
    UsageError,
)
from tests.exactness.play import STAYING, WAITING, WIDENING, WIDER, Play, at
from tests.exactness.test_forgetting import forget, keep
from tests.kills import killed_at

Plays = Callable[..., Play]
IGNORED: dict[str, Any] = {"corrections": {"deletes": "ignore"}}


def _named(done: Play) -> set[str]:
    """The files of the source as it stands."""
    files = done.spark.read.format("delta").load(done.config.source.table).select(F.input_file_name()).distinct()
    return {Path(row[0]).name for row in files.collect()}


def forgotten(done: Play) -> Play:
    forget_rows(done.kind, DAY, done.now, done.said.append)
    return done


@pytest.mark.slow
def test_a_rebuild_by_another_rule_waits_for_a_readmission_that_was_cut_off(play: Plays) -> None:
    done = play("a@5 b@6", corrections="quarantine")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    with killed_at(side_tables, "write"):
        done.readmit()
    with pytest.raises(UsageError, match="stay out for good"):
        done.change(session={"gap": "20m"}).rebuild()
    done.change().run()
    done.change(session={"gap": "20m"}).rebuild().assert_sessions("u | start \n a | 5")
    done.assert_rejected("u | reason")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "told"), [(SourceError("gone"), UsageError), (PySparkException("no space left"), PySparkException)]
)
def test_a_rebuild_loses_no_correction_that_a_run_which_was_cut_off_has_kept(
    play: Plays, error: Exception, told: type[Exception]
) -> None:
    done = play("a@5 b@6", corrections="quarantine")
    done.source("DELETE FROM {} WHERE u = 'b'").run_cut_off()
    with patch.object(side_tables, "write", side_effect=error), pytest.raises(told, match=str(error)):
        done.rebuild()
    done.rebuild().assert_sessions("u | start \n a | 5 \n b | 6")
    done.assert_rejected("u | reason \n b | correction")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_needs_no_text_of_rows_that_do_not_last(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(
        spark,
        tmp_path,
        "u STRING, at TIMESTAMP, n INT, w INT",
        corrections="quarantine",
        source={"dedupe": {"by": ["n"], "within": "1h"}},
    ).runs("u | at | n | w \n a | 5 | 1 | 1 \n a | 6 | 1 | 2 \n b | 7 | 3 | 3")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").run()
    before = list(Path(done.config.source.table).glob("*.parquet"))
    done.source("ALTER TABLE {} RENAME COLUMN w TO x").source("OPTIMIZE {}")
    for file in before:
        if file.exists() and str(file.name) not in _named(done):
            file.unlink()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n b | 7 | 1")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_by_another_rule_waits_for_what_is_late_by_what_was_forgotten(play: Plays) -> None:
    done = forget(play("x@0 a@5 a@12 tick@1441")).add("a@0")
    done.run_cut_off()
    with pytest.raises(UsageError, match="stay out for good"):
        done.change(session={"gap": "11m"}).rebuild()
    done.change().run()
    done.change(session={"gap": "11m"}).rebuild().assert_sessions("u | start | end | count \n a | 5 | 12 | 2", u="a")


@pytest.mark.slow
def test_a_late_event_of_before_the_mark_whose_delete_waits_counts_for_a_rebuild(play: Plays) -> None:
    done = play("tick@1442 b@0 | a@5", late_events="separate", **WAITING).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    assert keep(done) == 1
    assert done.position().forgotten == at(12)
    done.rebuild().assert_sessions("u | start \n a | 5 \n tick | 1442")  # it was in a session, apart
    done.assert_clean()
    done.readmit(0, 2000).assert_rejected("u | reason")
    done.assert_sessions("u | start \n tick | 1442")
    done.assert_clean()


@pytest.mark.broad
def test_a_rebuild_beside_other_rejected_events_loses_nothing_that_was_pruned(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, corrections={"deletes": "ignore"}).runs("a@0 a@5 b@100")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.change(outputs={"rejected_events": str(tmp_path / "others")}).init()
    with pytest.raises(TableError, match=r"is not the table that runs have written to.*in a table of its own"):
        done.rebuild()
    assert {row["u"] for row in done.told("u")} == {"a", "b"}


@pytest.mark.broad
def test_a_rebuild_asks_for_a_run_first_though_a_column_was_widened_behind_the_delete(play: Plays) -> None:
    done = play("a@0 a@5 b@100", **IGNORED).source(WIDENING)
    done.run()
    done.source("DELETE FROM {} WHERE u = 'a'").source(WIDER)
    with pytest.raises(UsageError, match=r"version \d of the source takes rows away.*`sessionizer run` reads it first"):
        done.rebuild()
    done.change(aggregates=[]).run()
    done.assert_rejected("u | event_time | reason \n a | 0 | ignored_delete \n a | 5 | ignored_delete")
    done.assert_sessions("u | start | count \n a | 0 | 2 \n b | 100 | 1")
    done.rebuild().assert_sessions("u | start | count \n a | 0 | 2 \n b | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_rebuild_goes_on_where_no_run_comes_to_the_delete(play: Plays) -> None:
    done = play("a@0 b@100", **IGNORED).add("a@5").source("UPDATE {} SET n = 2 WHERE u = 'a'")
    done.vacuumed()
    done.source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count | total \n a | 0 | 2 | 4")
    done.assert_clean()


@pytest.mark.broad
def test_a_rebuild_over_lost_changes_counts_a_row_once_whose_earlier_update_waits(play: Plays) -> None:
    done = play("a@0 a@5=5 b@100", corrections="quarantine").source("UPDATE {} SET n = 2 WHERE n = 1 AND u = 'a'")
    done.run()
    done.source("UPDATE {} SET n = 6 WHERE n = 5").run()
    done.source("UPDATE {} SET n = 3 WHERE n = 2")
    done.vacuumed()
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    # Both updates of a's: which row is whose now cannot be told of one of them.
    done.rebuild().assert_sessions("u | start | count | total \n a | 0 | 2 | 9 \n b | 100 | 1 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.broad
def test_a_rebuild_over_lost_changes_knows_an_update_that_took_the_time_away(play: Plays) -> None:
    done = play("a@0=5 b@100", corrections="quarantine").source("UPDATE {} SET at = NULL WHERE n = 5")
    done.run()
    done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 00:05:00' WHERE n = 5")
    done.vacuumed()
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n b | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_rebuild_makes_no_corrections_that_wait(play: Plays) -> None:
    done = play("a@0 a@5 b@100", corrections="quarantine").source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.change(**IGNORED, session={"gap": "20m"})
    with pytest.raises(SourceError, match=r"a rebuild reads the source as it stands, and earlier corrections.*wait"):
        done.rebuild()
    done.source(WIDENING).source(WIDER)
    with pytest.raises(SourceError, match=r"a rebuild reads the source as it stands, and earlier corrections.*wait"):
        done.rebuild()
    done.change(session={"gap": "20m"}, aggregates=[]).rebuild().assert_sessions(
        "u | start | count \n a | 0 | 2 \n b | 100 | 1"
    )
    done.assert_clean()


@pytest.mark.broad
def test_what_was_pruned_stays_in_its_session_beside_copies_that_came_behind_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema, copies = "u STRING, at TIMESTAMP, id STRING, n INT", {"dedupe": {"by": ["id"], "within": "1h"}}
    done = Play(spark, tmp_path, schema, source=copies, time={"allowed_lateness": "1d"}, **IGNORED)
    done.add("u | at | id | n \n a | 5 | x | 10").init().run()
    done.add("u | at | id | n \n a | 3 | x | 20 \n a | 30 | y | 1").run()
    done.source("DELETE FROM {} WHERE n = 10").run()
    pruned = "u | event_time | reason | kept \n a | 3 | duplicate | out \n a | 5 | ignored_delete | in"
    sessions = "u | start | total \n a | 5 | 10 \n a | 30 | 1"
    for job in (done.run, done.rebuild):
        job()
        done.assert_sessions(sessions)
        done.assert_rejected(pruned)
        done.assert_clean()
    done.readmit_deletes().assert_sessions("u | start | total \n a | 3 | 20 \n a | 30 | 1")
    done.assert_rejected("u | event_time | reason | kept")
    done.assert_clean()


@pytest.mark.broad
def test_a_pruned_event_goes_and_not_the_same_one_that_came_again_apart(play: Plays) -> None:
    done = play("a@5 tick@100", late_events="separate", **IGNORED).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.runs("a@5").assert_sessions("u | start | is_late \n a | 5 | no \n a | 5 | yes \n tick | 100 | no")
    done.readmit_deletes().assert_sessions("u | start | is_late \n a | 5 | yes \n tick | 100 | no")
    done.assert_rejected("u | event_time | reason | kept \n a | 5 | late | apart")
    done.assert_clean()


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_was_apart_before_the_mark_counts_for_a_rebuild_beside_what_was_forgotten(play: Plays) -> None:
    done = forgotten(play("a@0 tick@1441 | a@2", late_events="separate"))
    assert done.position().forgotten == at(11)
    done.rebuild().assert_sessions("u | start | end | count \n a | 0 | 2 | 2 \n tick | 1441 | 1441 | 1")
    done.assert_rejected("u | event_time | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_makes_no_original_of_a_copy_that_is_late_by_the_mark(play: Plays) -> None:
    done = play("a@25=9 b@0=1 tick@1461 | a@10=9", source={"dedupe": {"by": ["n"], "within": "7d"}})
    forgotten(done).rebuild().assert_sessions("u | start \n a | 25 \n tick | 1461")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_by_another_filter_knows_what_stays_out_for_good(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}, "where": "n < 5"}).add("a@4=9").init().runs("a@9")
    with pytest.raises(UsageError, match="which lie before"):
        done.change(source={"start": {"version": 1}}).rebuild()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [{"time": {"lateness": "event"}}, {"time": STAYING | {"revive": True}}, {"time": STAYING, "late_events": "amend"}],
    ids=["by event", "revived", "amended"],
)
def test_sessions_that_stayed_as_they_were_are_not_joined_by_another_rule(
    play: Plays, sections: dict[str, Any]
) -> None:
    done = play("tick@100 a@85 | a@92 a@83", time=STAYING)
    done.change(**sections).add("tick@101")
    with pytest.raises(SessionizerError, match="final sessions have stayed as they were"):
        done.run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 83 | 92 | 3 \n tick | 100 | 101 | 2")
    done.assert_clean()
