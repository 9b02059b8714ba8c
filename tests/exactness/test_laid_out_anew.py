"""Tables that others lay out anew between two runs: partitioned by other columns, replaced, with other properties."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SourceError, TableError, UsageError
from sessionizer.tables.delta.settings import having
from tests.exactness.play import WAITING, Play, at

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
BY_U = {"source": {"key": ["u"], "changes": "appends"}}


def partitioned(done: Play, *names: str) -> Play:
    """The source written over by itself, by partitions of these columns, as people do it."""
    place = done.config.source.table
    rows = done.spark.read.format("delta").load(place)
    told = rows.sparkSession.createDataFrame(rows.collect(), rows.schema)
    writer = told.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    (writer.partitionBy(*names) if names else writer).save(place)
    return done


def replaced(done: Play, clause: str = "") -> None:
    """The sessions table made again of itself."""
    place = f"delta.`{done.config.sessions.table}`"
    done.spark.sql(f"CREATE OR REPLACE TABLE {place} USING delta {clause} AS SELECT * FROM {place}")


@pytest.mark.parametrize("back", [False, True])
def test_changes_of_a_source_that_is_partitioned_anew_are_not_read_without_their_values(
    play: Plays, back: bool
) -> None:
    done = play("tick@100 a@91 a@95")
    if back:
        partitioned(done, "u").rebuild()
        partitioned(done.runs("a@101"))
    else:
        partitioned(done.runs("a@101"), "u")
    with pytest.raises(TableError, match="partitioned by other columns"):
        done.run()
    done.assert_sessions("u | start | end | count \n a | 91 | 101 | 3 \n tick | 100 | 100 | 1")
    done.rebuild().runs("a@96")
    done.assert_sessions("u | start | end | count \n a | 91 | 101 | 3 \n tick | 100 | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 96 | late")
    done.assert_clean()


@pytest.mark.parametrize("sections", [{}, BY_U], ids=["feed", "appends"])
def test_versions_before_it_are_not_either(spark: SparkSession, tmp_path: Path, sections: dict[str, Any]) -> None:
    done = Play(spark, tmp_path, **sections).runs("tick@100 a@85").change(limits={"max_versions_per_run": 1})
    partitioned(done.add("a@105"), "u")
    with pytest.raises(TableError, match="partitioned by other columns"):
        done.run()
    done.assert_sessions("u | start | end | count \n a | 85 | 85 | 1 \n tick | 100 | 100 | 1")
    done.rebuild().assert_sessions(
        "u | start | end | count \n a | 85 | 85 | 1 \n a | 105 | 105 | 1 \n tick | 100 | 100 | 1"
    )
    done.assert_clean()


def test_a_sessions_table_that_is_replaced_has_nothing_written_twice(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")})
    done.runs("tick@100 a@100 | a@5")
    version = done.tables.sessions.table.version
    replaced(done, "CLUSTER BY (u)")
    with pytest.raises(TableError, match="has been replaced since its last run"):
        done.run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    with done.tables.sessions.table.lock():
        done.spark.sql(f"RESTORE TABLE delta.`{done.config.sessions.table}` TO VERSION AS OF {version}")
    done.runs("a@101").assert_sessions("u | start | end | count \n a | 100 | 101 | 2 \n tick | 100 | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


@pytest.mark.parametrize("sections", [{}, WAITING], ids=["late", "waiting"])
def test_a_rebuild_makes_a_sessions_table_that_was_replaced_anew(play: Plays, sections: dict[str, Any]) -> None:
    done = play("tick@100 a@100 | a@5", **sections)
    done.source("UPDATE {} SET n = 7 WHERE u = 'tick'").run()
    replaced(done)
    n = 1 if sections else 7
    wanted = f"u | start | end | total \n a | 5 | 5 | 1 \n a | 100 | 100 | 1 \n tick | 100 | 100 | {n}"
    done.rebuild().assert_sessions(wanted)
    done.runs("a@101").assert_clean()


def test_a_sessions_table_may_lie_otherwise_before_its_first_run(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).add("tick@100 a@95").init()
    replaced(done)
    done.run()
    done.runs("a@101 | a@5").assert_sessions("u | start | end | count \n a | 95 | 101 | 2 \n tick | 100 | 100 | 1")
    done.rebuild()
    done.assert_clean()


def test_partitions_may_be_overwritten_one_by_one_by_default(play: Plays) -> None:
    done = play("tick@100 a@95 | a@5")
    with having(done.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n a | 95 | 1 \n tick | 100 | 1")
        done.runs("a@101").assert_sessions("u | start | count \n a | 5 | 1 \n a | 95 | 2 \n tick | 100 | 1")
    done.assert_clean()


def test_tables_that_are_to_forget_what_went_into_them_are_refused(play: Plays) -> None:
    done = play("tick@100 a@95")
    done.damage(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')", "runs"
    )
    with pytest.raises(TableError, match="must remember what went into it"):
        done.run()
    done.damage("ALTER TABLE {} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')", "runs")
    done.runs("a@96").assert_clean()


def test_a_column_that_is_written_over_with_another_type_has_no_changes_that_can_be_read(play: Plays) -> None:
    done = play("tick@100 a@95")
    rows = done.spark.createDataFrame([("a", 95, "x")], "u STRING, m INT, n STRING")
    told = rows.selectExpr("u", "TIMESTAMP'2026-01-01' + make_dt_interval(0, 0, m, 0) AS at", "n")
    told.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(done.config.source.table)
    done.change(aggregates=[])
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()


@pytest.mark.parametrize("day", ["CAST(at AS DATE)", "date_format(at, 'yyyy-MM')"])
def test_a_partition_made_of_a_time_by_another_zone_hides_no_event(
    spark: SparkSession, tmp_path: Path, day: str
) -> None:
    kind = "DATE" if "DATE" in day else "STRING"
    done = Play(spark, tmp_path, late_events="amend")
    columns = f"u STRING, at TIMESTAMP, n INT, pad STRING, d {kind} GENERATED ALWAYS AS ({day})"
    many = "array_join(collect_list(sha2(CAST(id AS STRING), 256)), '')"  # or all of it is read at once
    with having(spark, {"spark.sql.session.timeZone": "America/Los_Angeles"}):
        done.source(
            f"CREATE TABLE {{}} ({columns}) USING delta PARTITIONED BY (d) TBLPROPERTIES ("
            "'delta.enableChangeDataFeed' = 'true')"
        )
        done.source(f"INSERT INTO {{}} (u, at, n, pad) SELECT 'tick', {us_of(200)}, 1, {many} FROM range(150000)")
        done.source(f"INSERT INTO {{}} (u, at, n) VALUES ('a', {us_of(100)}, 1), ('a', {us_of(105)}, 1)")
    done.init().run()
    with having(spark, {"spark.sql.session.timeZone": "America/Los_Angeles"}):
        done.source(f"INSERT INTO {{}} (u, at, n) VALUES ('a', {us_of(107)}, 1)")
    done.run()
    done.assert_sessions("u | start | end | count \n a | 100 | 107 | 3 \n tick | 200 | 200 | 1")
    done.assert_clean()


def us_of(minutes: int) -> str:
    return f"timestamp_micros({at(minutes)})"


def test_a_restore_to_before_it_was_replaced_and_rebuilt_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, outputs={"event_sessions": str(tmp_path / "event_sessions")})
    done.runs("tick@100 a@100 | a@5")
    version = done.tables.sessions.table.version
    replaced(done)
    rebuilt = done.rebuild().tables.sessions.table.version
    done.damage(f"RESTORE {{}} TO VERSION AS OF {version}")
    with pytest.raises(TableError, match="restored to before it was replaced"):
        done.run()
    done.damage(f"RESTORE {{}} TO VERSION AS OF {rebuilt}")
    done.runs("a@101").assert_sessions("u | start | count \n a | 5 | 1 \n a | 100 | 2 \n tick | 100 | 1")
    done.assert_rejected("u | event_time | reason")
    done.assert_clean()
    done.damage(f"RESTORE {{}} TO VERSION AS OF {version}")
    done.rebuild().assert_clean()


def test_an_older_copy_in_its_place_is_refused_where_the_tables_beside_it_are_newer(
    spark: SparkSession, tmp_path: Path
) -> None:
    done, copy = Play(spark, tmp_path / "made").runs("tick@100 a@100"), tmp_path / "copy"
    shutil.copytree(tmp_path / "made", copy)
    done.runs("tick@200 | a@150")
    shutil.rmtree(done.config.sessions.table)
    shutil.copytree(copy / "sessions", done.config.sessions.table)
    for upkeep in (False, True):
        if upkeep:
            done.damage("ALTER TABLE {} SET TBLPROPERTIES ('some.property' = 'x')")
        with pytest.raises(TableError, match="is older than a table beside it"):
            done.run()
    for command in (done.rebuild, lambda: plan(done.kind, lambda _: None)):
        with pytest.raises(TableError, match="is older than a table beside it"):
            command()
    done.assert_rejected("u | event_time | reason \n a | 150 | late")
    for name in ("rejected_events", "runs"):
        shutil.rmtree(tmp_path / "made" / name)
    done.init().rebuild().assert_sessions(
        "u | start | count \n a | 100 | 1 \n a | 150 | 1 \n tick | 100 | 1 \n tick | 200 | 1"
    )
    done.runs("c@10").assert_rejected("u | event_time | reason \n c | 10 | late")
    done.assert_clean()
    for name in ("sessions", "rejected_events", "runs"):
        shutil.rmtree(tmp_path / "made" / name)
        shutil.copytree(copy / name, tmp_path / "made" / name)
    done.run()
    done.assert_rejected("u | event_time | reason \n c | 10 | late")
    done.runs("c@11").assert_rejected("u | event_time | reason \n c | 10 | late \n c | 11 | late")
    done.assert_clean()


def test_a_ledger_that_followed_a_restore_is_none_of_a_later_table(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).runs("tick@100 a@95")
    done.damage("UPDATE {} SET total = 99")
    done.damage("RESTORE {} TO VERSION AS OF 1")
    assert done.run() == []
    home = done.kind.home
    home.table.change_setting("some.property", "x", done.position().text())  # as upkeep repeats it
    home.table.checkpoint()
    for entry in Path(home.table.location, "_delta_log").glob("*.json"):
        if int(entry.stem) < home.table.version:
            entry.unlink()
    done.runs("a@101").assert_sessions("u | start | count \n a | 95 | 2 \n tick | 100 | 1")
    done.assert_clean()


def test_one_by_name_that_is_replaced_has_nothing_written_twice(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE anew LOCATION '{tmp_path / 'anew'}'")
    places = {name: str(tmp_path / name) for name in ("event_sessions", "rejected_events", "runs")}
    done = Play(spark, tmp_path, outputs=places)
    done.sections["sessions"] = {"table": "anew.sessions"}
    done.config = Config.model_validate(done.config.model_dump(mode="json", exclude_unset=True) | done.sections)
    try:
        done.runs("tick@100 a@100 | a@5 b@101")
        select = "USING delta PARTITIONED BY (is_final) AS SELECT * FROM anew.sessions"
        spark.sql(f"CREATE OR REPLACE TABLE anew.sessions {select}")
        with pytest.raises(TableError, match="has been replaced since its last run"):
            done.run()
        done.assert_rejected("u | event_time | reason \n a | 5 | late")
        assert [row["run_seq"] for row in done.kind.runs.table.read().orderBy("run_seq").collect()] == [1, 2]
    finally:
        spark.sql("DROP DATABASE anew CASCADE")


def test_what_waits_is_not_forgotten_where_one_by_name_is_replaced_behind_a_restore(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql(f"CREATE DATABASE anew LOCATION '{tmp_path / 'anew'}'")
    places = {name: str(tmp_path / name) for name in ("rejected_events", "runs")}
    done = Play(spark, tmp_path, outputs=places, corrections="quarantine")
    done.sections["sessions"] = {"table": "anew.sessions"}
    done.config = Config.model_validate(done.config.model_dump(mode="json", exclude_unset=True) | done.sections)
    try:
        done.runs("tick@100 a@1").source("DELETE FROM {} WHERE u = 'a'").run()
        done.runs("tick@101").readmit(0, 10).assert_rejected("u | event_time | reason")
        spark.sql("RESTORE anew.sessions TO VERSION AS OF 3")
        select = "USING delta PARTITIONED BY (is_final) AS SELECT * FROM anew.sessions"
        spark.sql(f"CREATE OR REPLACE TABLE anew.sessions {select}")
        with pytest.raises(UsageError, match=r"rejected_events tells what stays out .* cannot follow the RESTORE"):
            done.rebuild()
    finally:
        spark.sql("DROP DATABASE anew CASCADE")


def test_a_plan_is_made_wherever_a_rebuild_goes_on_behind_a_restore(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).runs("tick@100 | tick@101")
    replaced(done)
    done.rebuild()
    done.damage("RESTORE {} TO VERSION AS OF 1")
    assert plan(done.kind, lambda _: None).total("changes") == 1
    done.rebuild().assert_sessions("u | start | count \n tick | 100 | 2")


def test_rows_that_were_made_live_by_hand_hide_no_others(play: Plays) -> None:
    done = play("a@0 tick@100")
    done.damage("UPDATE {} SET is_final = false WHERE u = 'a'")
    assert not done.verify().clean
    done.backfill(0, 60).assert_clean()
    done.runs("tick@105").assert_sessions("u | start | end | count \n a | 0 | 0 | 1 \n tick | 100 | 105 | 2")
    done.assert_clean()


def test_another_table_altogether_in_its_place_is_named_and_rebuilt(play: Plays) -> None:
    done = play("tick@100 a@100 | a@101")
    done.damage("CREATE OR REPLACE TABLE {} USING delta AS SELECT 1 AS x")
    with pytest.raises(TableError, match="has been replaced since its last run"):
        done.run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 100 | 101 | 2 \n tick | 100 | 100 | 1")
    done.assert_clean()


def test_tables_beside_it_that_are_newer_than_it_and_its_ledger_are_told(spark: SparkSession, tmp_path: Path) -> None:
    done, copy = Play(spark, tmp_path / "made").runs("tick@100 a@100"), tmp_path / "copy"
    shutil.copytree(tmp_path / "made", copy)
    done.runs("tick@200 | a@150")
    for name in ("sessions", "runs"):
        shutil.rmtree(tmp_path / "made" / name)
        shutil.copytree(copy / name, tmp_path / "made" / name)
    with pytest.raises(TableError, match="is older than a table beside it") as told:
        done.run()
    assert str(told.value.value).endswith("/rejected_events")


def restored_to_before_it_was_replaced(spark: SparkSession, folder: Path) -> Play:
    """A delete waits, until a run of the table that was put in its place makes it, which a RESTORE undoes."""
    done = Play(spark, folder, corrections="quarantine").runs("tick@100 a@1")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    version = done.tables.sessions.table.version
    replaced(done)
    done.rebuild().assert_rejected("u | event_time | reason \n a | 1 | correction")
    done.readmit(0, 10).assert_rejected("u | event_time | reason")
    done.damage(f"RESTORE {{}} TO VERSION AS OF {version}")
    return done


def test_what_runs_of_another_table_in_its_place_took_away_is_not_forgotten_behind_a_restore(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = restored_to_before_it_was_replaced(spark, tmp_path)
    for anew in (done.rebuild, lambda: plan(done.kind, lambda _: None)):
        with pytest.raises(UsageError, match=r"rejected_events tells what stays out .* cannot follow the RESTORE"):
            anew()
    done.assert_sessions("u | start | count \n a | 1 | 1 \n tick | 100 | 1")
