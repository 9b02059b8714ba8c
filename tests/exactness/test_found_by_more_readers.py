"""What a second look at the code has found: extreme times, another source, changes by half, what is never forgotten."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.run import side_tables
from sessionizer.lib import columns as C
from tests.exactness.play import Play, SessionizerError, SourceError, UsageError, at
from tests.exactness.slides import Slides, slides
from tests.exactness.test_forgetting import forget, keep
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
THE_LAST = "INSERT INTO {} SELECT 'a', timestamp_micros(9223372036854775807), 1"
OF_KEYS: dict[str, Any] = {
    "allowed_lateness": "0s",
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "365d", "clock": "processing_time"},
}


# Extreme times


def test_an_event_of_the_last_microsecond_stops_no_dedupe(play: Plays) -> None:
    done = play("a@5 b@6", source={"dedupe": {"by": ["n"], "within": "1h"}})
    done.source(THE_LAST).run()
    done.runs("b@7=1").assert_sessions("u | start | end | count \n a | 5 | 5 | 1 \n b | 6 | 6 | 1")
    done.assert_rejected("u | reason \n a | in_the_future \n b | duplicate")


def test_an_event_of_the_last_microsecond_stops_no_slide(spark: SparkSession, tmp_path: Path) -> None:
    done = Slides(spark, tmp_path).runs("a@5 b@6")
    done.source(THE_LAST).run()
    done.runs("a@7")
    (row,) = done.tables.rejected_window_events.table.read().select("u", C.REASON).collect()
    assert tuple(row) == ("a", "in_the_future")


@pytest.mark.parametrize("time", ["TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59'"])
def test_upkeep_by_date_takes_horizons_of_any_year(spark: SparkSession, tmp_path: Path, time: str) -> None:
    done = Play(
        spark,
        tmp_path,
        sessions={"partition_by": ["is_final", "session_date"]},
        time={"max_future_skew": "3000000d", "watermark": {"from": "min_event_time"}},
    ).add("a@5 b@6")
    done.source("DELETE FROM {}").source(f"INSERT INTO {{}} SELECT 'a', {time}, 1").init().flush()
    assert keep(done, "sessions") == 0


# Another source


def test_a_rebuild_of_another_source_begins_with_no_watermark_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time=OF_KEYS).runs("a@600 b@600")
    shutil.rmtree(done.config.source.table)
    done.add("a@5").rebuild().assert_sessions("u | start | status \n a | 5 | open")
    done.runs("a@100").assert_sessions("u | start | status \n a | 5 | final \n a | 100 | open")
    done.assert_rejected("u | reason")


def test_a_rebuild_of_a_source_that_went_back_leaves_out_what_lies_before_its_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}).add("c@4").init().add("a@100").add("a@300")
    done.run()
    log = Path(done.config.source.table) / "_delta_log"
    for file in [*log.glob(f"{done.tables.events.table.version:020d}*"), *log.glob(".*.crc")]:
        file.unlink()
    done.spark.catalog.clearCache()
    jvm: Any = done.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    done.rebuild().assert_sessions("u | start \n a | 100")
    done.assert_rejected("u | reason \n c | before_start")
    done.assert_clean()


# Changes by half


@pytest.mark.parametrize("anew", [False, True])
def test_an_update_is_readmitted_whole_wherever_it_moved_its_event(play: Plays, anew: bool) -> None:
    done = play("a@5=2 b@5=3 c@6=4 tick@600", corrections="quarantine")
    done.source("UPDATE {} SET u = 'd', at = at + INTERVAL 300 MINUTES WHERE n = 2").run()
    done.source("UPDATE {} SET at = at + INTERVAL 400 MINUTES WHERE n = 3").run()
    done.source("DELETE FROM {} WHERE n = 4").run()
    if anew:
        done.rebuild()
    done.readmit(300, 310).assert_sessions("u | start \n b | 5 \n c | 6 \n d | 305 \n tick | 600")
    done.assert_rejected("u | reason | kept \n b | correction | in \n b | correction | out \n c | correction | in")
    done.assert_clean()


@pytest.mark.parametrize("moves", [False, True])
def test_a_correction_that_is_readmitted_takes_away_what_lay_apart(play: Plays, moves: bool) -> None:
    done = play("tick@400 a@390 | a@5=3", corrections="quarantine", late_events="separate")
    change = "UPDATE {} SET at = at + INTERVAL 300 MINUTES" if moves else "DELETE FROM {}"
    done.source(f"{change} WHERE u = 'a'").run()
    if not moves:
        done.readmit(300, 800).assert_rejected("u | reason \n a | correction \n a | late")
    done.readmit(*((300, 800) if moves else (0, 10))).assert_rejected("u | reason")
    done.assert_sessions("start | late" + (" \n 305 | no \n 690 | no" if moves else ""), u="a")
    done.assert_clean()


def test_an_update_in_place_is_readmitted_where_its_session_lies_across_what_has_been_forgotten(play: Plays) -> None:
    done = play("x@5 a@2565 a@2572 tick@4000", corrections="quarantine")
    forget(done).source("UPDATE {} SET n = 7 WHERE u = 'a'").run()
    done.readmit(2570, 4000).assert_sessions("u | start | end | count | total \n a | 2565 | 2572 | 2 | 14", u="a")
    done.assert_rejected("u | reason")
    done.assert_clean()


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


def test_an_event_that_was_moved_twice_is_readmitted_once(play: Plays) -> None:
    done = play("a@5=2 tick@600", corrections="quarantine")
    for minutes in (100, 200):
        done.source(f"UPDATE {{}} SET at = at + INTERVAL {minutes} MINUTES WHERE n = 2").run()
    done.readmit(300, 500).assert_sessions("u | start \n a | 305 \n tick | 600")
    done.assert_rejected("u | reason")
    done.assert_clean()


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


def _named(done: Play) -> set[str]:
    """The files of the source as it stands."""
    files = done.spark.read.format("delta").load(done.config.source.table).select(F.input_file_name()).distinct()
    return {Path(row[0]).name for row in files.collect()}


# What is never forgotten


def test_traces_are_forgotten_where_each_key_has_a_watermark(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(
        spark, tmp_path, time=OF_KEYS | {"allowed_lateness": "1h"}, outputs={"event_sessions": str(tmp_path / "traces")}
    ).runs("a@5 b@6 a@4000 b@4000")
    done.now = at(4000)
    assert keep(done, "event_sessions") == 2
    done.assert_clean()


def test_upkeep_goes_on_where_keys_are_to_have_watermarks_once_all_is_made_anew(play: Plays) -> None:
    done = play("a@5 tick@4000").change(time=OF_KEYS)
    assert keep(done, "rejected_events") == 0


def test_no_final_session_amid_another_one_is_forgotten(play: Plays) -> None:
    done = play("x@5 tick@100 a@85=1 | a@92=2 a@83=3 | tick@1531", time={"lateness": "session"})
    forget(done).source("UPDATE {} SET n = 5 WHERE n = 2").run()
    done.assert_sessions("u | start | end | count \n a | 83 | 92 | 2 \n a | 85 | 85 | 1", u="a")
    assert done.position().forgotten == at(95)


def test_what_is_older_than_what_was_forgotten_keeps_no_copy_out_when_it_is_freed(play: Plays) -> None:
    done = play("x@0 a@12=7 | a@5=7 a@14=7 | tick@1441", source={"dedupe": {"by": ["n"], "within": "7d"}})
    forget(done).source("DELETE FROM {} WHERE u = 'a' AND minute(at) = 12").run()
    done.assert_sessions("u | start | count \n a | 14 | 1", u="a")
    done.assert_rejected("u | event_time | reason \n a | 5 | duplicate")
    done.assert_clean()


def test_a_mark_keeps_to_the_horizons_that_there_were_whatever_the_config_says_now(play: Plays) -> None:
    done = play("b@5 a@0 a@3000", time={"watermark": {"per": ["u"]}})
    forget(done.change(time={"allowed_lateness": "0s"})).assert_sessions("u | start \n a | 0 \n a | 3000 \n b | 5")


def test_a_rebuild_by_another_rule_waits_for_what_is_late_by_what_was_forgotten(play: Plays) -> None:
    done = forget(play("x@0 a@5 a@12 tick@1441")).add("a@0")
    done.run_cut_off()
    with pytest.raises(UsageError, match="stay out for good"):
        done.change(session={"gap": "11m"}).rebuild()
    done.change().run()
    done.change(session={"gap": "11m"}).rebuild().assert_sessions("u | start | end | count \n a | 5 | 12 | 2", u="a")


def test_a_flush_of_windows_goes_by_those_that_are_left(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@100=1 a@105=2", sliding={"grace": "1h"})
    done.source("DELETE FROM {} WHERE n = 2").flush()
    done.runs("a@108=3")
    done.assert_windows("a@100=1 a@108=3")


def test_a_readmission_by_another_key_is_told_of_the_rule(play: Plays) -> None:
    done = play("tick@100 | a@5")
    with pytest.raises(SessionizerError, match="the rule"):
        done.change(source={"key": ["u", "n"]}).readmit()


def test_small_files_are_found_by_the_names_that_columns_have_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(
        spark,
        tmp_path,
        aggregates=[{"name": "of n", "fn": "sum", "of": "n"}],
        sessions={"partition_by": ["is_final", "session_date"]},
    ).runs("a@5 | b@6 | c@7 | d@8")
    table = done.tables.sessions.table
    assert table.small_files("session_date > DATE '1970-01-01'") == table.size()[0] > 1
