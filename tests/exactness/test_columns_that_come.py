"""Columns, parts of them and aggregates of them that come later, and what was read before they came."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import BY_NAME, TOTAL, Play, minute
from tests.exactness.several import Several, several

Plays = Callable[..., Play]


def of_amount(fn: str = "sum") -> list[dict[str, str]]:
    return [{"name": "total", "fn": fn, "of": "amount"}]


@pytest.mark.broad
def test_a_column_that_comes_later_is_null_in_versions_that_are_read_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, aggregates=of_amount(), limits={"max_versions_per_run": 1})
    done.add("a@0").source("ALTER TABLE {} ADD COLUMN amount INT")
    done.schema = "u STRING, at TIMESTAMP, n INT, amount INT"
    done.add("u | at | n | amount \n a | 5 | 1 | 7").init().run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 5 | 2 | 7")
    done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
def test_an_aggregate_of_a_column_that_comes_behind_an_unread_delete_is_taken_up(play: Plays) -> None:
    done = play("a@0 b@0", corrections={"deletes": "ignore"}, aggregates=[])
    done.source("DELETE FROM {} WHERE u = 'b'").source("ALTER TABLE {} ADD COLUMN amount INT")
    done.schema = "u STRING, at TIMESTAMP, n INT, amount INT"
    done.add("u | at | n | amount \n a | 5 | 1 | 7").change(aggregates=of_amount()).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 5 | 2 | 7 \n b | 0 | 0 | 1 | -")
    done.assert_clean()


@pytest.mark.broad
def test_an_aggregate_of_a_column_that_comes_later_is_dropped_before_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, aggregates=of_amount(), limits={"max_versions_per_run": 1})
    done.add("a@0").add("a@1").source("ALTER TABLE {} ADD COLUMN amount INT").init()
    done.run(once=True)
    done.change(aggregates=[]).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 1 | 2 | -")
    done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
def test_an_aggregate_whose_values_may_fail_is_taken_up_where_older_files_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path).runs("a@0=1").runs("a@5=2")
    done.source("OPTIMIZE {}")
    done.vacuumed()
    inverse = {"name": "inverse", "fn": "sum", "of": "12 div (n - 5)"}
    done.change(aggregates=[*TOTAL, inverse]).runs("b@20=5 a@9=3 a@8=9")
    done.assert_rejected("u | reason \n b | expression_failed")
    assert done.row("a")["inverse"] == -3 - 4 - 6 + 3
    done.assert_clean()


@pytest.mark.broad
def test_an_aggregate_goes_with_its_column(spark: SparkSession, tmp_path: Path) -> None:
    pages = {"name": "pages", "fn": "count_distinct", "of": "page"}
    with several(spark, tmp_path) as made:
        done: Several = made(aggregates=[*TOTAL, pages]).runs(clicks="a@5=2", calls="b@7")
        done.reshaped("clicks", "u STRING, at TIMESTAMP, n INT").sections["aggregates"] = TOTAL
        done.config = done.configured()
        done.runs(clicks="a@6=3")
        done.assert_sessions("u | start | end | count | total \n a | 5 | 6 | 2 | 5 \n b | 7 | 7 | 1 | 1")


@pytest.mark.broad
@pytest.mark.parametrize("mapped", [False, True])
def test_rejected_events_are_known_again_where_parts_change_their_order_behind_what_a_run_has_read(
    spark: SparkSession, tmp_path: Path, mapped: bool
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT, b: INT>").runs("tick@100")
    if mapped:
        done.source(BY_NAME).run()
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(5)}', 1, named_struct('a', 1, 'b', 2))")
    read = done.tables.events.table.version
    done.source("ALTER TABLE {} ALTER COLUMN w.b FIRST").run(to_version=read)
    done.assert_rejected("u | reason \n a | late")
    done.assert_clean()
    done.run()
    done.assert_clean()


@pytest.mark.broad
def test_a_column_without_a_type_may_get_one_behind_what_a_run_has_read(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, x VOID").runs("a@0").add("a@5")
    read = done.tables.events.table.version
    typed = spark.sql(f"SELECT 'a' AS u, TIMESTAMP'{minute(9)}' AS at, 1 AS n, 2 AS x")
    typed.write.format("delta").mode("append").option("mergeSchema", "true").save(done.config.source.table)
    done.run(to_version=read)
    done.run()
    done.assert_sessions("u | start | end | count \n a | 0 | 9 | 3")
    done.assert_clean()


@pytest.mark.broad
def test_so_it_may_where_content_cuts(spark: SparkSession, tmp_path: Path) -> None:
    cut = {"starts_when": "n = 2"}
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, x VOID", session=cut).runs("a@0")
    typed = spark.sql(f"SELECT 'a' AS u, TIMESTAMP'{minute(9)}' AS at, 2 AS n, 2 AS x")
    typed.write.format("delta").mode("append").option("mergeSchema", "true").save(done.config.source.table)
    done.run()
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1 \n a | 9 | 9 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("made", ["WITH", "WITHOUT"])
def test_changes_are_read_from_before_columns_were_mapped_no_longer(
    spark: SparkSession, tmp_path: Path, made: str
) -> None:
    done = Play(spark, tmp_path)
    mode = "'delta.columnMapping.mode' = 'name'"
    properties = f" TBLPROPERTIES ({mode})" if made == "WITH" else ""
    done.source(f"CREATE TABLE {{}} (u STRING, at TIMESTAMP, n INT) USING delta{properties}")
    if made == "WITHOUT":
        done.source(f"ALTER TABLE {{}} SET TBLPROPERTIES ({mode})")
    row = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{}', 1)"
    done.source(row.format(minute(100))).init().run()
    done.source(row.format(minute(102))).source(f"ALTER TABLE {{}} SET TBLPROPERTIES ({mode.replace('name', 'none')})")
    done.source(row.format(minute(104))).run()
    done.assert_sessions("u | start | end | count \n a | 100 | 104 | 3")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("changes", ["feed", "appends"])
def test_so_are_those_of_a_partitioned_table(spark: SparkSession, tmp_path: Path, changes: str) -> None:
    is_fed = {"delta.enableChangeDataFeed": str(changes == "feed").lower(), "delta.columnMapping.mode": "name"}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in is_fed.items())
    done = Play(spark, tmp_path, source={"changes": changes, "where": "d LIKE 'x%'"})
    columns = "u STRING, at TIMESTAMP, n INT, d STRING"
    done.source(f"CREATE TABLE {{}} ({columns}) USING delta PARTITIONED BY (d) TBLPROPERTIES ({properties})")
    row = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{}', 1, 'x{}')"
    done.source(row.format(minute(100), 0)).init().run()
    done.source(row.format(minute(102), 1))
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    done.source(row.format(minute(104), 2)).run()
    done.assert_sessions("u | start | end | count \n a | 100 | 104 | 3")
    done.assert_clean()


@pytest.mark.broad
def test_columns_that_are_mapped_no_longer_are_told_as_before(spark: SparkSession, tmp_path: Path) -> None:
    schema, where = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT>", {"where": "coalesce(n, 0) >= 0"}
    done = Play(spark, tmp_path, schema, source={"dedupe": {"by": ["n"], "within": "1h"}} | where)
    done.source(f"CREATE TABLE {{}} ({schema}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").init()
    told = "'a', TIMESTAMP'{}', {}, named_struct('a', 1)"
    done.source(f"INSERT INTO {{}} VALUES ({told.format(minute(100), 1)}), ({told.format(minute(101), 1)})").run()
    done.source(f"INSERT INTO {{}} VALUES ({told.format(minute(5), 3)})").run()
    rejected = "u | event_time | reason | event_hash | event"
    before = done.told_rejected(rejected)
    assert {row["reason"] for row in before} == {"late", "duplicate"}
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')").run()
    assert done.told_rejected(rejected) == before
    done.source(f"INSERT INTO {{}} VALUES ({told.format(minute(102), 1)})").run()
    done.assert_sessions("u | start | end | count \n a | 100 | 100 | 1")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 1 AND at = TIMESTAMP'2026-01-01 01:40:00'").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n a | 102 | duplicate")
    done.assert_clean()
    done.rebuild().assert_sessions("u | start | end | count \n a | 5 | 5 | 1 \n a | 101 | 101 | 1")
