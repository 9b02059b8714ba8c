"""Tables beside the sessions that are named otherwise, left out for a while, or made together with a new column."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.commands.status import status
from sessionizer.jobs.reporting.metrics import write_metrics
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.driver import increments, repair
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SourceError, TableError
from sessionizer.tables.delta import Superseded
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.rejected_events import RejectedEvents
from sessionizer.tables.runs import Runs
from sessionizer.tables.window_table import WindowTable
from tests.exactness.play import Play, at
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
LATE = "a@0 a@10 b@300 | a@20"  # a's last one is late, and would join


def refused(play: Play, step: Callable[[], object]) -> str:
    with pytest.raises(TableError) as caught:
        step()
    return str(caught.value)


def test_other_rejected_events_are_refused_for_they_say_what_sessions_are_made_without(play: Plays) -> None:
    done = play(LATE)
    done.change(outputs={"rejected_events": str(done.folder / "elsewhere")}).init()
    done.source("DELETE FROM {} WHERE u = 'a' AND at = TIMESTAMP '2026-01-01 00:00:00'")
    for step in (done.run, done.verify, lambda: done.backfill(0, 60), done.readmit):
        said = refused(done, step)
        assert "outputs.rejected_events is not the table that runs have written to" in said
        assert "`sessionizer rebuild`" in said
    done.change(outputs={}).run()
    done.assert_sessions("u | start | end | count \n a | 10 | 10 | 1 \n b | 300 | 300 | 1")
    done.assert_clean()


def test_a_rebuild_goes_on_with_other_rejected_events_where_nothing_in_them_is_for_good(play: Plays) -> None:
    done = play(LATE)
    done.change(outputs={"rejected_events": str(done.folder / "elsewhere")}).init().rebuild()
    done.assert_sessions("u | start | end | count \n a | 0 | 20 | 3 \n b | 300 | 300 | 1")
    done.runs("b@305").assert_clean()


def test_what_a_rebuild_goes_by_must_be_there(play: Plays) -> None:
    done = play("a@0 | a@5 b@300", source={"start": {"version": 1}})
    done.change(outputs={"rejected_events": str(done.folder / "elsewhere")}).init()
    assert "is not the table" in refused(done, done.rebuild)


def test_an_output_that_was_left_out_for_a_while_is_not_gone_on_with(play: Plays, tmp_path: Path) -> None:
    outputs = {"event_sessions": str(tmp_path / "members")}
    done = play("a@5 | a@8", outputs=outputs)
    done.change(outputs={}).runs("a@0").change(outputs=outputs).add("a@9")
    said = refused(done, done.run)
    assert "outputs.event_sessions was not among the tables of the last run" in said
    done.rebuild().runs("a@12").assert_clean()
    assert len(done.told_of(outputs["event_sessions"], "event_time | session_id")) == 5


def test_an_output_that_is_new_begins_from_now_on(play: Plays, tmp_path: Path) -> None:
    done = play("a@0").change(outputs={"event_sessions": str(tmp_path / "members")}).init().runs("a@5 | a@8")
    assert len(done.told_of(str(tmp_path / "members"), "event_time | session_id")) == 2
    done.assert_clean()


def test_a_new_column_and_a_new_output_at_once(play: Plays, tmp_path: Path) -> None:
    done = play("a@0 a@5")
    done.change(
        aggregates=[{"name": "largest", "fn": "max", "of": "n"}],
        outputs={"event_sessions": str(tmp_path / "members")},
    )
    done.init().runs("a@8").assert_sessions("u | count | largest \n a | 3 | 1")
    done.assert_clean()


def test_the_watermark_of_several_scopes_is_that_of_the_one_furthest_behind(play: Plays, tmp_path: Path) -> None:
    schema = "u STRING, tenant STRING, at TIMESTAMP, n INT"
    events = """
        u | tenant | at  | n
        a | x      | 0   | 1
        b | y      | 100 | 1
        """
    scopes = {"watermark": {"per": ["tenant"]}, "allowed_lateness": "10m"}
    done = play(events, schema, source={"key": ["u", "tenant"]}, time=scopes)
    found = status(done.spark, done.config)
    assert (found["watermark"], found["horizon"]) == ("2026-01-01T00:00:00Z", "2025-12-31T23:50:00Z")
    (row,) = done.tables.runs.last(1)
    assert row["watermark_after"] == done.position().told("watermark_after")
    write_metrics(done.kind, tmp_path / "metrics.prom", done.now)
    assert "sessionizer_watermark_lag_seconds" in (tmp_path / "metrics.prom").read_text()


def test_a_version_that_the_log_no_longer_has_is_told_by_look_backs_too(play: Plays) -> None:
    done = play("a@0 b@300")
    for n in range(3):
        done.add(f"a@{n}")
    log = Path(done.config.source.table) / "_delta_log"
    table = f"delta.`{done.config.source.table}`"
    done.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    done.add("a@4")
    for file in log.glob("0*"):
        if int(file.name[:20]) < 3:
            file.unlink()
    for step in (done.verify, lambda: done.backfill(0, 60)):
        with pytest.raises(SourceError, match="the source cannot be read as of version 0, which is the one that was"):
            step()


def test_a_start_behind_a_version_that_the_log_no_longer_has_is_told_by_the_first_run(
    play: Plays, tmp_path: Path
) -> None:
    done = play("a@0")
    done.spark.sql(
        f"ALTER TABLE delta.`{done.config.source.table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    )
    for n in range(3):
        done.add(f"a@{n}")
    start = done.tables.events.versions[""] - 1
    for file in (Path(done.config.source.table) / "_delta_log").glob("0*"):
        if int(file.name[:20]) < start:
            file.unlink()
    done = done.change(source={"start": {"version": start}}, sessions={"table": str(tmp_path / "others" / "sessions")})
    with pytest.raises(SourceError, match=rf"source.start begins behind version {start - 1}, which is no longer there"):
        done.init().run()


def test_a_run_that_was_cut_off_is_told_when_it_is_finished(play: Plays) -> None:
    done, finished = play("a@0"), list[Manifest]()
    done.add("a@5")
    with killed_at(side_tables, "write"):
        done.run()
    assert increments(done.kind, RunOptions(now=done.now), finished=finished.append) == []
    assert [manifest.run_id for manifest in finished] == [done.position().run_id]


def test_a_run_that_was_finished_without_an_optional_table_leaves_no_silent_hole(
    spark: SparkSession, tmp_path: Path
) -> None:
    full: dict[str, Any] = {"outputs": {"event_sessions": str(tmp_path / "event_sessions")}}
    done = Play(spark, tmp_path, **full).add("a@0 tick@100").init()
    done.run_cut_off()
    done.change(outputs={}).run()  # finishes it, as far as it knows
    done.change(**full).add("a@5")
    with pytest.raises(TableError, match="finished by a configuration without event_sessions"):
        done.run()
    done.rebuild().run()
    done.assert_clean()


def test_nor_where_that_was_cut_off_again_and_cannot_be_computed_any_more(spark: SparkSession, tmp_path: Path) -> None:
    full: dict[str, Any] = {"outputs": {"event_sessions": str(tmp_path / "event_sessions")}}
    done = Play(spark, tmp_path, **full).runs("a@0 tick@200 | a@9")
    with killed_at(side_tables, "write"):
        done.readmit(0, 60)
    done.change(outputs={})
    with killed_at(side_tables, "enter"):
        done.run()
    with pytest.raises(TableError, match="finished by a configuration without event_sessions"):
        done.change(**full).run()
    done.rebuild().assert_clean()


def test_who_comes_second_to_a_first_run_starts_over(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).add("a@0 tick@100").init()
    position = done.kind.home.position()
    done.run_cut_off()
    with pytest.raises(Superseded):
        repair(done.kind, position, done.said.append)


def test_rows_that_a_rebuild_has_brought_back_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")}).runs("a@0 tick@100")
    maintain(spark, done.config, Asked(keep={"event_sessions": DAY}, now=at(0) + 40 * DAY))
    done.assert_clean()
    done.rebuild().damage("DELETE FROM {} WHERE u = 'a'", "event_sessions")
    assert not done.verify().clean


def test_an_optional_table_of_an_init_by_another_rule_that_was_cut_off_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    outputs = {"session_updates": str(tmp_path / "session_updates")}
    done = Play(spark, tmp_path, outputs=outputs, aggregates=[{"name": "total", "fn": "sum", "of": "n"}]).add("a@0")
    with killed_at(WindowTable, "create"):
        done.init()
    done.change(outputs=outputs, aggregates=[{"name": "total", "fn": "max", "of": "u"}])
    with pytest.raises(TableError, match=r"total is BIGINT and must be STRING.*remove it"):
        done.init()


def test_sliding_windows_of_which_not_all_tables_were_made_stop_no_upkeep(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).runs("a@0 tick@100")
    done.change(sliding={"table": str(tmp_path / "windows"), "time_difference": "10m", "grace": "0s"})
    for owner, step in ((WindowTable, "create"), (Runs, "create_if_missing"), (RejectedEvents, "create_if_missing")):
        with killed_at(owner, step):
            done.init()
        assert {of.table for of in maintain(spark, done.config, Asked())} == {"sessions", "rejected_events", "runs"}
        assert "windows" not in status(spark, done.config)
    done.init().slide()


def test_a_table_that_came_after_a_run_died_is_not_filled_by_its_repair(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).add("a@0 tick@100").init()
    done.run_cut_off()
    done.change(outputs={"event_sessions": str(tmp_path / "event_sessions")}).init().add("b@105")
    done.run()
    done.assert_rows(done.told_of(str(tmp_path / "event_sessions"), "u | event_time"), "u | event_time \n b | 105")


def test_a_whole_table_that_lacks_its_first_events_is_not_clean(spark: SparkSession, tmp_path: Path) -> None:
    full: dict[str, Any] = {"outputs": {"event_sessions": str(tmp_path / "event_sessions")}}
    done = Play(spark, tmp_path, **full).add("a@0 tick@100").init()
    done.run()
    done.damage("DELETE FROM {} WHERE u = 'a'", "event_sessions")
    assert not done.verify().clean
