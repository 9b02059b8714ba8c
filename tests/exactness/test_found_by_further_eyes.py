"""What further readers have found: columns that come later, rows mended before a run reads them, logs cut short."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.run import side_tables
from sessionizer.lib.errors import ConfigError, UsageError
from tests.exactness.play import TOTAL, Play, at, minute
from tests.exactness.test_housekeeping import ERASING, erase
from tests.kills import killed_at

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
BY_NAME = "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


def of_amount(fn: str = "sum") -> list[dict[str, str]]:
    return [{"name": "total", "fn": fn, "of": "amount"}]


# What waits, and lies apart.


def test_a_correction_that_another_key_brings_along_takes_its_late_session_with_it(play: Plays) -> None:
    done = play("tick@100 | a@5=3 b@5=3", corrections="quarantine", late_events="separate")
    done.source("UPDATE {} SET n = 7 WHERE u IN ('a', 'b')").run()
    readmit(done.kind, LookBack(at(0), at(1440), (json.dumps({"u": "a"}),), now=done.now))
    done.assert_sessions(
        """
        u    | start | count | total | late
        a    | 5     | 1     | 7     | no
        b    | 5     | 1     | 7     | no
        tick | 100   | 1     | 1     | no
        """
    )
    done.assert_clean()


def test_the_late_session_of_an_event_that_came_again_is_erased_with_it(play: Plays) -> None:
    done = play("tick@100 | a@5", **ERASING, late_events="separate")
    done.source("DELETE FROM {} WHERE u = 'a'").runs("a@5")
    erase(done, "u = 'a'").readmit_deletes("a").assert_sessions("u | start \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()


# Columns that come later, or have another name or order.


def test_a_column_that_comes_later_is_null_in_versions_that_are_read_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, aggregates=of_amount(), limits={"max_versions_per_run": 1})
    done.add("a@0").source("ALTER TABLE {} ADD COLUMN amount INT")
    done.schema = "u STRING, at TIMESTAMP, n INT, amount INT"
    done.add("u | at | n | amount \n a | 5 | 1 | 7").init().run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 5 | 2 | 7")
    done.assert_clean()


def test_so_is_a_part_of_a_column(spark: SparkSession, tmp_path: Path) -> None:
    schema, parts = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT>", ["w.amount", "element_at(l, 1).amount"]
    aggregates = [{"name": f"total{i}", "fn": "sum", "of": of} for i, of in enumerate(parts)]
    done = Play(spark, tmp_path, f"{schema}, l ARRAY<STRUCT<b: INT>>", aggregates=aggregates)
    done.change(limits={"max_versions_per_run": 1}).add("tick@0")
    told = "named_struct('a', 1), array(named_struct('b', 1))"
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(0)}', 1, {told})")
    done.source("ALTER TABLE {} ADD COLUMNS (w.amount INT FIRST, l.element.amount INT)")
    told = "named_struct('amount', 7, 'a', 1), array(named_struct('b', 1, 'amount', 5))"
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(5)}', 1, {told})").init().run()
    done.assert_sessions("u | count | total0 | total1 \n a | 2 | 7 | 5", u="a")
    done.assert_clean()


def test_an_aggregate_of_a_column_that_comes_behind_an_unread_delete_is_taken_up(play: Plays) -> None:
    done = play("a@0 b@0", corrections={"deletes": "ignore"}, aggregates=[])
    done.source("DELETE FROM {} WHERE u = 'b'").source("ALTER TABLE {} ADD COLUMN amount INT")
    done.schema = "u STRING, at TIMESTAMP, n INT, amount INT"
    done.add("u | at | n | amount \n a | 5 | 1 | 7").change(aggregates=of_amount()).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 5 | 2 | 7 \n b | 0 | 0 | 1 | -")
    done.assert_clean()


def test_an_aggregate_of_a_column_that_comes_later_is_dropped_before_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, aggregates=of_amount(), limits={"max_versions_per_run": 1})
    done.add("a@0").add("a@1").source("ALTER TABLE {} ADD COLUMN amount INT").init()
    done.run(once=True)
    done.change(aggregates=[]).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 1 | 2 | -")
    done.assert_clean()


def test_rows_kept_as_hashes_are_known_again_where_a_part_comes_and_a_column_gets_another_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT, b: INT>"
    done = Play(spark, tmp_path, schema, late_events="drop", aggregates=[]).runs("tick@100").source(BY_NAME)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(5)}', 1, named_struct('a', 1, 'b', 2))").run()
    done.source("ALTER TABLE {} ADD COLUMN w.c INT").source("ALTER TABLE {} RENAME COLUMN n TO m").run()
    done.assert_rejected("u | reason | event \n a | late | -")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_rejected("u | reason")


def test_what_lies_before_a_start_stays_out_though_the_start_renames_a_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w INT", source={"start": {"version": 2}})
    done.add("u | at | n | w \n a | 5 | 1 | 1").source(BY_NAME).source("ALTER TABLE {} RENAME COLUMN w TO x")
    done.schema = "u STRING, at TIMESTAMP, n INT, x INT"
    done.add("u | at | n | x \n a | 10 | 1 | 1").init().run()
    alone = "u | start | end | count \n a | 10 | 10 | 1"
    done.assert_clean()
    done.source(f"UPDATE {{}} SET n = 2 WHERE at = TIMESTAMP '{minute(10)}'").run()
    done.assert_sessions(alone)
    done.rebuild().assert_sessions(alone)
    done.assert_clean()
    done.source(f"DELETE FROM {{}} WHERE at = TIMESTAMP '{minute(5)}'").run()
    done.assert_rejected("u | reason")


def test_rejected_events_are_known_again_where_parts_of_a_column_change_their_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT, b: INT>").runs("tick@100")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(5)}', 1, named_struct('a', 1, 'b', 2))").run()
    done.source("ALTER TABLE {} ALTER COLUMN w.b FIRST").run()
    done.assert_rejected("u | reason \n a | late")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_rejected("u | reason")
    done.assert_clean()


# Runs that are cut off.


def test_a_run_is_finished_though_the_log_has_lost_the_one_before_it(
    play: Plays, copied: Plays, tmp_path: Path
) -> None:
    done = play("a@0", time={"allowed_lateness": "1d"})
    by_hand = done.tables.sessions.table.version + 1
    done.damage(f"ALTER TABLE {{}} SET TBLPROPERTIES ('delta.checkpointInterval' = '{by_hand}')")
    done.change(outputs={"event_sessions": str(tmp_path / "event_sessions")}).init().add("a@5 b@5")
    done.run_cut_off()
    log = done.folder / "sessions" / "_delta_log"
    assert (log / f"{by_hand:020d}.checkpoint.parquet").exists()
    for version in range(by_hand):  # as Delta does where they are old
        (log / f"{version:020d}.json").unlink()
        (log / f"{version:020d}.crc").unlink(missing_ok=True)
    done = copied(done, outputs={"event_sessions": str(tmp_path / "event_sessions")})
    done.run()
    ids = {row["session_id"] for row in done.told("session_id")}
    told = done.told_of(str(tmp_path / "event_sessions"), "session_id")
    assert {row["session_id"] for row in told} == ids
    done.assert_sessions("u | start | end | count \n a | 0 | 5 | 2 \n b | 5 | 5 | 1")
    done.assert_clean()


def test_a_rebuild_follows_one_by_another_key_that_was_cut_off(play: Plays) -> None:
    done = play("tick@100 | a@5", corrections="quarantine")
    done.change(source={"key": ["u", "n"]})
    with killed_at(side_tables, "write"):
        done.rebuild()
    done.change(source={"key": ["u"]}).rebuild()
    done.assert_sessions("u | start \n a | 5 \n tick | 100")
    done.assert_clean()


def test_what_would_be_nobody_tells_before_it_is_written_what_stays_out(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}).add("a@0").add("b@0").init()
    done.run_cut_off()
    with pytest.raises(UsageError, match="the last run was cut off before it wrote which events stay out"):
        plan(done.kind, done.said.append, now=done.now)
    done.run()
    assert plan(done.kind, done.said.append, now=done.now).total("comes") == 0


def test_what_would_be_is_told_where_nothing_has_ever_been_rejected(play: Plays) -> None:
    done = play("a@0 b@0").source("DELETE FROM {} WHERE u = 'b'")
    done.run()
    (report,) = backfill(done.kind, LookBack(at(0), at(60), dry_run=True, now=done.now))
    assert report.manifest.sessions["updated"] == 0
    assert plan(done.kind, done.said.append, now=done.now).total("changes") == 0


# What fails, and where.


def test_a_row_that_is_mended_before_a_run_reads_it_is_summed_by_none(play: Plays) -> None:
    big = 2**63 - 1
    done = play("a@0", aggregates=[{"name": "total", "fn": "sum", "of": f"IF(n = 9, {big}, CAST(n AS BIGINT))"}])
    done.add("a@1=9 a@2=1").source("UPDATE {} SET n = 5 WHERE n = 9").run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 2 | 3 | 7")
    done.assert_clean()


def test_a_row_of_the_end_of_all_time_is_rejected_in_every_zone(spark: SparkSession, tmp_path: Path) -> None:
    session = {"gap": "10m", "cut_at": "midnight", "time_zone": "Europe/Berlin"}
    done = Play(
        spark,
        tmp_path,
        "u STRING, us BIGINT, n INT",
        session=session,
        source={"event_time": "timestamp_micros(us)"},
        time={"max_future_skew": "1d"},
    )
    done.append([("a", at(0), 1), ("b", 2**63 - 1, 1)], done.schema)
    done.init().run()
    done.assert_sessions("u | start | count \n a | 0 | 1")
    done.assert_rejected("u | reason \n b | in_the_future")
    done.assert_clean()


def test_a_result_of_many_shapes_is_compared_by_what_it_says(play: Plays) -> None:
    parsed = {"name": "p", "sql": "parse_json(concat('{\"n\": ', total, '}'))"}
    done = play("a@0=1 a@5=2", aggregates=[*TOTAL, parsed])
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 2").run()
    (found,) = done.tables.sessions.table.read().selectExpr("to_json(p)").collect()
    assert found[0] == '{"n":1}'
    done.assert_clean()


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        (
            {"session": {"gap": "10m", "changes_of": ["at - TIMESTAMP '2026-01-01'"]}},
            "changes_of must name values that",
        ),
        (
            {"aggregates": [{"name": "entry", "fn": "first", "of": "collate(u, 'UTF8_LCASE')"}]},
            "aggregates.entry: several values are equal by STRING COLLATE UTF8_LCASE, and first would take any of them",
        ),
    ],
)
def test_values_that_no_table_holds_or_no_order_tells_apart_are_told_at_once(
    spark: SparkSession, tmp_path: Path, sections: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Play(spark, tmp_path, **sections).add("a@0").init()
