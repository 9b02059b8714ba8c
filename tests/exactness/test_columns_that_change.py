"""Columns that get wider, another name or other parts, before or behind what has been read."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.jobs.run.retelling import left_behind
from sessionizer.lib.admission.united import as_united, together
from sessionizer.lib.aggregates.evolution import columns_of
from sessionizer.lib.config import Config
from sessionizer.lib.durations import DAY, MINUTE
from sessionizer.lib.errors import ConfigError, SourceError, SourceMismatch
from sessionizer.lib.schema.evolution import PHYSICAL, bare, untold
from sessionizer.lib.schema.named import changes
from sessionizer.tables.manifest import Consumed
from tests.exactness.play import BY_NAME, WIDENING, WIDER, Play, at, minute
from tests.exactness.several import Several, several
from tests.exactness.test_stitch_over_delta import Devices
from tests.kills import Killed, die
from tests.warehouse import NOW

Plays = Callable[..., Play]
SHIFTED = "timestampadd(MINUTE, n * 1000000 div 5000000000, at)"  # of INT 5000 fails, and is a minute more of BIGINT
MILLIONS: dict[str, Any] = {"aggregates": [{"name": "total", "fn": "sum", "of": "n * 1000000"}]}


def widened(done: Play) -> Play:
    """The source once n is BIGINT, and read as such."""
    done.source(WIDENING).source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").run()
    return done


@pytest.mark.broad
def test_changes_of_a_mapping_table_are_read_around_a_column_of_another_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Devices(spark, tmp_path, start="latest").maps("d1=ann").mapping(BY_NAME)
    done.mapping("ALTER TABLE {} ADD COLUMNS (note STRING, cnt INT)")
    done.add("d1@0").init().run()
    done.runs("d1@10 d2@12")
    done.mapping("INSERT INTO {} VALUES ('d2', 'ann', 'new', 1)")
    done.mapping("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.mapping("INSERT INTO {} VALUES ('d3', 'ann', 'newer', 2)")
    done.run()
    done.assert_sessions("who | start | end | count \n ann | 10 | 12 | 2")
    done.assert_clean()


@pytest.mark.broad
def test_so_are_those_of_one_that_tells_no_more_than_what_is_in_it(spark: SparkSession, tmp_path: Path) -> None:
    stitch = {"table": str(tmp_path / "devices"), "from": "u", "to": "u", "as": "known"}
    members = {"stitch": stitch, "key": [{"name": "who", "expr": "coalesce(known, 'guest')"}]}
    done = Devices(spark, tmp_path, **members).maps("d1=ann").mapping(BY_NAME)
    done.mapping("ALTER TABLE {} ADD COLUMNS (note STRING)").add("d1@0 d2@5 d3@6").init().run()
    done.mapping("INSERT INTO {} VALUES ('d2', 'bob', 'new')").mapping("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.mapping("INSERT INTO {} VALUES ('d4', 'eve', 'newer')").run()
    done.assert_sessions("who | start | end | count \n d1 | 0 | 0 | 1 \n d2 | 5 | 5 | 1 \n guest | 6 | 6 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_column_that_is_renamed_and_named_back_by_a_restore_is_read_around(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, note INT").add("u | at | n | note \n a | 0 | 1 | 1")
    done.source(BY_NAME).init().run()
    before = done.tables.events.table.version
    done.source("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(5)}', 1, 1)")
    done.source(f"RESTORE {{}} TO VERSION AS OF {before}")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(7)}', 1, 1)").run()
    done.assert_sessions("u | start | end | count \n a | 0 | 7 | 2")
    done.assert_clean()


@pytest.mark.broad
def test_so_is_a_part_that_is_renamed(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT>").runs("a@0").source(BY_NAME)
    done.run()
    before, row = (
        done.tables.events.table.version,
        "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{}', 1, named_struct('a', 1))",
    )
    done.source("ALTER TABLE {} RENAME COLUMN w.a TO b").source(row.format(minute(5)))
    done.source(f"RESTORE {{}} TO VERSION AS OF {before}").source(row.format(minute(7))).run()
    done.assert_sessions("u | start | end | count \n a | 0 | 7 | 2")
    done.assert_clean()


@pytest.mark.broad
def test_a_mapping_whose_column_goes_and_comes_back_is_not_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    done = Devices(spark, tmp_path).maps("d1=ann").mapping(BY_NAME)
    done.runs("d1@0 tick@100")
    done.mapping("ALTER TABLE {} RENAME COLUMN user_id TO old").mapping("ALTER TABLE {} ADD COLUMN user_id STRING")
    done.mapping("UPDATE {} SET user_id = 'bob'")
    with pytest.raises(SourceError, match="the columns of these names were others before"):
        done.run()
    done.rebuild().assert_sessions("who | start \n bob | 0 \n tick | 100")


@pytest.mark.slow
def test_an_event_whose_time_failed_is_rejected_at_its_time_once_it_has_one(play: Plays) -> None:
    done = play("a@5 b@5=5000 tick@100", source={"event_time": SHIFTED})
    done.assert_rejected("u | event_time | reason \n b | - | expression_failed")
    widened(done).assert_rejected("u | event_time | reason \n b | 6 | expression_failed")
    done.backfill(0, 50).assert_sessions("u | start | count \n a | 5 | 1 \n b | 6 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.slow
def test_an_event_that_has_a_time_now_before_what_is_forgotten_is_late_for_a_rebuild(play: Plays) -> None:
    done = play("c@0 b@5=5000 tick@1441", source={"event_time": SHIFTED})
    assert forget(done.kind, DAY, done.now, done.said.append)
    done.source(WIDENING).source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").rebuild()
    done.assert_sessions("u | start | count \n tick | 1441 | 1")
    done.assert_rejected("u | event_time | reason \n b | 6 | late")
    done.assert_clean()


@pytest.mark.slow
def test_what_lies_before_the_start_stays_out_once_it_has_a_time(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"event_time": SHIFTED, "start": {"version": 1}}).add("b@5=5000").add("a@5")
    done.init().run()
    done.add("tick@100").run()
    widened(done).assert_rejected("u | event_time | reason \n b | 6 | before_start")
    told = "u | start | count \n a | 5 | 1 \n tick | 100 | 1"
    done.backfill(0, 50).assert_sessions(told)
    done.assert_clean()
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_row_that_where_leaves_out_once_it_has_a_value_is_rejected_no_longer(play: Plays) -> None:
    done = play("a@5 b@5=-5000 tick@100", source={"where": "n * 1000000 > 0"})
    done.assert_rejected("u | reason \n b | expression_failed")
    widened(done).assert_rejected("u | reason")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.assert_rejected("u | reason")
    done.assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.slow
def test_upkeep_keeps_what_an_expression_failed_for_as_it_may_have_a_value_one_day(play: Plays) -> None:
    done = play("a@5 b@5=5000 tick@100", **MILLIONS)
    maintain(done.spark, done.config, Upkeep(keep={"rejected_events": DAY}, now=done.now + 400 * DAY))
    done.assert_rejected("u | reason | event \n b | expression_failed | -")
    widened(done).assert_sessions("u | start | count \n a | 5 | 1 \n tick | 100 | 1")
    done.readmit().assert_sessions("u | start | count \n a | 5 | 1 \n b | 5 | 1 \n tick | 100 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.slow
def test_a_backfill_that_was_cut_off_begins_anew_where_columns_are_wider_by_now(play: Plays) -> None:
    done = play("a@5 b@5=5000 a@65 tick@300", **MILLIONS)
    asked = LookBack(at(0), at(120), chunk=60 * MINUTE, now=done.now)
    with pytest.raises(Killed):
        backfill(done.kind, asked, on_chunk=die)
    widened(done)
    assert len(backfill(done.kind, asked)) == 2
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.broad
def test_sources_of_which_one_lags_are_read_as_they_were_when_a_column_is_widened(
    spark: SparkSession, tmp_path: Path
) -> None:
    def does(name: str, statement: str) -> None:
        spark.sql(statement.replace("{}", f"delta.`{tmp_path / name}`"))

    def comes(name: str, user: str, minute: int) -> None:
        time = f"TIMESTAMP'2026-01-01' + INTERVAL {minute} MINUTES"
        does(name, f"INSERT INTO {{}} VALUES ('{user}', {time}, {minute}, named_struct('x', 1))")

    def sessions() -> list[tuple[Any, ...]]:
        return [tuple(row[n] for n in ("u", "numbers", "event_count")) for row in read(config.sessions.table).collect()]

    read = spark.read.format("delta").load
    sources = [{"name": n, "table": str(tmp_path / n), "key": ["u"], "event_time": "at"} for n in ("calls", "clicks")]
    config = Config.model_validate(
        {
            "sources": sources,
            "sessions": {"table": str(tmp_path / "sessions")},
            "session": {"gap": "10m"},
            "aggregates": [{"name": "numbers", "fn": "count", "of": "n"}],
            "corrections": {"deletes": "ignore"},
        }
    )
    kept = "'delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true'"
    for name in ("calls", "clicks"):
        does(
            name,
            f"CREATE TABLE {{}} (u STRING, at TIMESTAMP, n INT, s STRUCT<x: INT>) USING delta TBLPROPERTIES ({kept})",
        )
        comes(name, "a", 0)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(now=NOW))
    comes("calls", "a", 5)
    for name in ("calls", "clicks"):
        does(name, WIDER)
    run(spark, config, RunOptions(now=NOW))
    assert sessions() == [("a", 3, 3)]
    comes("clicks", "a", 7)
    does("clicks", "DELETE FROM {} WHERE n = 0")
    for name in ("calls", "clicks"):
        does(name, "ALTER TABLE {} ADD COLUMN s.y INT")
    run(spark, config, RunOptions(now=NOW))
    assert sessions() == [("a", 4, 4)]
    assert verify(spark, config, Asked()).clean


@pytest.mark.broad
def test_a_part_of_a_column_that_is_widened_stops_no_run(spark: SparkSession, tmp_path: Path) -> None:
    schema = "u STRING, at TIMESTAMP, s STRUCT<x: INT, of: ARRAY<FLOAT>>"
    done = Play(spark, tmp_path, schema, aggregates=[])

    def came(minute: int) -> str:
        part = f"named_struct('x', {minute}, 'of', array(CAST(0.5 AS FLOAT)))"
        return f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'2026-01-01' + INTERVAL {minute} MINUTES, {part}"

    made = "'delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true'"
    done.source(f"CREATE TABLE {{}} ({schema}) USING delta TBLPROPERTIES ({made})").source(came(0))
    done.init().run()
    done.source(came(5)).source("ALTER TABLE {} ALTER COLUMN s.x TYPE BIGINT")
    done.source("ALTER TABLE {} ALTER COLUMN s.of.element TYPE DOUBLE").source("ALTER TABLE {} ADD COLUMN s.z INT")
    done.source(came(7).replace("))) ", ")))").replace("array(CAST(0.5 AS FLOAT))", "array(0.5D), 'z', 1")).run()
    done.assert_sessions("u | start | end | count \n a | 0 | 7 | 3")
    done.assert_clean()


@pytest.mark.broad
def test_types_of_parts_are_those_of_all_sources_under_names_of_their_own() -> None:
    def source(name: str, kind: T.DataType, *more: T.StructField) -> T.StructType:
        part = T.StructField("x", kind, True, {PHYSICAL: f"col-{name}"})
        return T.StructType([T.StructField("s", T.StructType([part, *more]))])

    calls, clicks = source("calls", T.IntegerType()), source("clicks", T.LongType(), T.StructField("y", T.StringType()))
    told = as_united({"calls": calls, "clicks": clicks})
    assert told["clicks"] == clicks
    assert told["calls"] == source("calls", T.LongType())


@pytest.mark.broad
def test_parts_that_grow_in_another_order_in_each_source_go_together() -> None:
    kinds = [
        "struct<a: bigint, b: int>",
        "struct<a: int, b: bigint, c: string>",
        "struct<a: int, b: int, d: array<int>>",
    ]
    rows = [T.StructType.fromDDL(f"s {kind.replace(': ', ':')}") for kind in kinds]
    all_of_them = together(rows, widest=True)  # type: ignore[arg-type]
    assert all_of_them["s"].dataType.simpleString() == "struct<a:bigint,b:bigint,c:string,d:array<int>>"
    with pytest.raises(SourceMismatch):
        together([rows[0], T.StructType.fromDDL("s struct<a:string>")], widest=True)  # type: ignore[list-item]


@pytest.mark.broad
def test_columns_of_a_source_that_no_run_has_begun_may_change(spark: SparkSession, tmp_path: Path) -> None:
    with several(spark, tmp_path) as made:
        done: Several = made()
        schema = done.sources["calls"]["schema"]
        done.sources["calls"] = {**done.sources["calls"], "start": {"version": 5}, "schema": schema + ", note STRING"}
        done.config = done.configured()
        done.runs(clicks="a@5")
        done.reshaped("calls", schema)
        done.runs(clicks="a@9")
        done.assert_sessions("u | start | end | count \n a | 5 | 9 | 2")
        done.assert_clean()


@pytest.mark.broad
def test_a_column_that_the_config_names_must_stay_the_one_that_runs_have_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, m INT").runs("a@0=5")
    done.source(BY_NAME).source("ALTER TABLE {} DROP COLUMN n").source("ALTER TABLE {} ADD COLUMN n INT")
    done.source("INSERT INTO {} (u, at, n) VALUES ('a', TIMESTAMP'2026-01-01 00:05:00', 2)")
    with pytest.raises(SourceMismatch, match="are others than those of the same names which runs have read: n"):
        done.run()
    done.rebuild()
    done.run()
    done.assert_clean()


@pytest.mark.broad
def test_a_column_that_the_config_does_not_name_may_be_another_one(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, m INT").runs("a@0=5")
    done.source(BY_NAME).source("ALTER TABLE {} DROP COLUMN m").source("ALTER TABLE {} ADD COLUMN m INT")
    done.source("INSERT INTO {} (u, at, n) VALUES ('a', TIMESTAMP'2026-01-01 00:05:00', 2)").run()
    done.assert_sessions("u | start | end | total \n a | 0 | 5 | 7")
    done.assert_clean()


@pytest.mark.broad
def test_a_part_of_an_element_must_stay_the_one_that_runs_have_read_too(spark: SparkSession, tmp_path: Path) -> None:
    prices = [{"name": "total", "fn": "sum", "of": "element_at(items, 1).price"}]
    schema = "u STRING, at TIMESTAMP, n INT, items ARRAY<STRUCT<sku: STRING, price: INT>>"
    done = Play(spark, tmp_path, schema, aggregates=prices).runs("a@0").source(BY_NAME)
    done.source("ALTER TABLE {} DROP COLUMN items.element.price")
    done.source("ALTER TABLE {} ADD COLUMN items.element.price INT").add("a@5")
    with pytest.raises(SourceMismatch, match="are others than those of the same names which runs have read: items"):
        done.run()


@pytest.mark.broad
def test_a_part_more_of_a_column_that_orders_events_goes_into_their_table(spark: SparkSession, tmp_path: Path) -> None:
    schema = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT>"
    outputs = {"event_sessions": str(tmp_path / "members")}
    done = Play(spark, tmp_path, schema, source={"order_by": ["w"]}, outputs=outputs).runs("a@0")
    done.source("ALTER TABLE {} ADD COLUMN w.b INT")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '{minute(5)}', 1, named_struct('a', 1, 'b', 2))").run()
    assert done.spark.read.format("delta").load(outputs["event_sessions"]).where("w.b = 2").count() == 1
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("others", [(), ("ALTER TABLE {} ADD COLUMN w INT",)])
def test_columns_that_a_restore_brings_back_are_not_gone_on_with(
    spark: SparkSession, tmp_path: Path, others: tuple[str, ...]
) -> None:
    came = f"INSERT INTO {{}} (u, at, n) VALUES ('a', TIMESTAMP'{minute(100)}', 1)"
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w INT").runs("a@5 tick@100").source(BY_NAME)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(7)}', 1, 1)").run()
    done.assert_rejected("u | event_time | reason \n a | 7 | late")
    before = done.tables.events.table.version
    for statement in ("ALTER TABLE {} DROP COLUMN w", *others):
        done.source(statement)
    done.run()
    done.source(came).source(f"RESTORE {{}} TO VERSION AS OF {before}")
    with pytest.raises(SourceMismatch, match="brought columns back"):
        done.change(limits={"max_versions_per_run": 1}).run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 5 | 7 | 2 \n tick | 100 | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("of", ["to_json(w)", "w.a"])
def test_parts_that_a_restore_brings_back_are_not_gone_on_with_where_the_whole_is_named(
    spark: SparkSession, tmp_path: Path, of: str
) -> None:
    aggregates = [{"name": "kinds", "fn": "set", "of": of}]
    row = f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(0)}', 1, named_struct('a', 1, 'b', 2))"
    schema = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT, b: INT>"
    done = Play(spark, tmp_path, schema, aggregates=aggregates).add("tick@0").source(BY_NAME).source(row)
    before = done.tables.events.table.version
    done.source("ALTER TABLE {} DROP COLUMN w.b").init().run()
    done.source(f"RESTORE {{}} TO VERSION AS OF {before}").add("a@5")
    if of == "w.a":
        done.run()
    else:
        with pytest.raises(SourceMismatch, match="brought columns back"):
            done.run()
        done.rebuild()
    assert done.row("a")["event_count"] == 2
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize(
    ("first", "target", "then"),
    [
        (("DELETE FROM {} WHERE u = 'tick'",), 0, ("ALTER TABLE {} ADD COLUMN x INT",)),
        (("ALTER TABLE {} ADD COLUMN x INT", "ALTER TABLE {} DROP COLUMN x"), 1, ()),
        (("ALTER TABLE {} DROP COLUMN w",), 0, ("ALTER TABLE {} ADD COLUMN x INT",)),
    ],
)
def test_a_restore_that_brings_back_nothing_which_rows_had_stops_no_run(
    spark: SparkSession, tmp_path: Path, first: tuple[str, ...], target: int, then: tuple[str, ...]
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w INT").runs("a@5 tick@100").source(BY_NAME)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(7)}', 1, 1)").run()
    before = done.tables.events.table.version
    for statement in (*first, f"RESTORE {{}} TO VERSION AS OF {before + target}", *then):
        done.source(statement)
    done.run()
    done.assert_rejected("u | event_time | reason \n a | 7 | late")
    done.assert_clean()


@pytest.mark.broad
def test_an_aggregate_does_not_come_back_over_a_column_that_is_another_now(spark: SparkSession, tmp_path: Path) -> None:
    total = {"name": "worth", "fn": "sum", "of": "w"}
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w INT", aggregates=[total])
    done.add("u | at | n | w \n a | 0 | 1 | 10 \n tick | 100 | 1 | 1").source(BY_NAME).init().run()
    done.change(aggregates=[]).run()
    done.source("ALTER TABLE {} DROP COLUMN w").source("ALTER TABLE {} ADD COLUMN w INT").run()
    with pytest.raises(ConfigError, match=r"aggregates\.worth has a column that another definition has filled"):
        done.change(aggregates=[total]).run()
    done.change(aggregates=[total | {"name": "worth_now"}]).run()
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("of", ["to_json(w)", "w.a"])
def test_a_column_that_is_named_as_a_whole_loses_no_parts_unseen(spark: SparkSession, tmp_path: Path, of: str) -> None:
    aggregates = [{"name": "kinds", "fn": "count_distinct", "of": of}]
    schema = "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT, b: INT>"
    row = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{}', 1, named_struct({}))"
    done = Play(spark, tmp_path, schema, aggregates=aggregates).runs("tick@0").source(BY_NAME)
    done.source(row.format(minute(0), "'a', 1, 'b', 2")).run()
    done.source("ALTER TABLE {} DROP COLUMN w.b").source(row.format(minute(5), "'a', 1"))
    if of == "w.a":
        done.run()
    else:
        with pytest.raises(SourceMismatch, match="names as a whole has lost parts"):
            done.run()
        done.rebuild()
    assert done.row("a")["kinds"] == 1
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize(
    ("was", "value", "now"),
    [("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2026-01-01 00:12:00'", "TIMESTAMP"), ("BINARY", "X'616263'", "STRING")],
)
def test_a_type_by_which_nobody_knows_what_is_rejected_is_not_gone_on_with(
    spark: SparkSession, tmp_path: Path, was: str, value: str, now: str
) -> None:
    done = Play(spark, tmp_path, f"u STRING, at TIMESTAMP, n INT, w {was}").runs("tick@100")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(7)}', 1, {value})").run()
    done.assert_rejected("u | event_time | reason \n a | 7 | late")
    rows = spark.read.format("delta").load(str(done.config.source.table))
    anew = spark.createDataFrame(rows.collect(), rows.schema).selectExpr("u", "at", "n", f"CAST(w AS {now}) AS w")
    anew.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(done.config.source.table))
    with pytest.raises(SourceMismatch, match="another type, which does not tell what its older values are: w"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 7 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_widened_column_lets_no_change_be_told_without_a_column_that_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By a widened column Delta tells changes that it refuses else."""
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, extra STRING").runs("tick@100")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(107)}', 1, 'x')")
    rows = spark.read.format("delta").load(str(done.config.source.table))
    now = spark.createDataFrame(rows.collect(), rows.schema).selectExpr("u", "at", "CAST(n AS BIGINT) AS n")
    now.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(done.config.source.table))
    with pytest.raises(SourceError, match=r"cannot be read: got '.*of another type: extra'.*rebuild"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 107 | 1 \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("column", ["Page STRING", "s STRUCT<Page: STRING>"])
def test_a_column_whose_capitals_alone_change_has_the_values_that_it_had(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    value = "'{}'" if column.startswith("Page") else "named_struct('Page', '{}')"
    where = {"where": "Page <> 'ping'" if column.startswith("Page") else "s.Page <> 'ping'"}
    done = Play(spark, tmp_path, f"u STRING, at TIMESTAMP, n INT, {column}", source=where)
    feed = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE delta.`{done.config.source.table}` (u STRING, at TIMESTAMP, n INT, {column}) {feed}")
    row = "INSERT INTO {{}} VALUES ('{}', TIMESTAMP'{}', 1, {})"
    done.source(row.format("tick", minute(100), value.format("x"))).init().run()
    done.source(row.format("a", minute(5), value.format("y"))).run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    rows = spark.read.format("delta").load(done.config.source.table)
    now = spark.createDataFrame(rows.collect(), "u STRING, at TIMESTAMP, n INT, " + column.replace("Page", "page"))
    now.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(done.config.source.table)
    done.run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()
    done.source("UPDATE {} SET n = 7 WHERE u = 'tick'").run()
    done.assert_sessions("u | start | count \n tick | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("renamed", [False, True])
def test_a_column_with_capitals_keeps_its_values_where_names_in_the_files_are_told_apart(
    spark: SparkSession, tmp_path: Path, renamed: bool
) -> None:
    columns = "u STRING, at TIMESTAMP, n INT, userId STRING, ctx STRUCT<pageUrl: STRING>"
    done = Play(spark, tmp_path, columns)
    feed = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE delta.`{done.config.source.table}` ({columns}) {feed}")
    row = "INSERT INTO {{}} VALUES ('{}', TIMESTAMP'{}', 1, 'x', named_struct('pageUrl', '/'))"
    done.source(row.format("tick", minute(100))).init().run()
    done.source(row.format("a", minute(5))).run()
    done.source(BY_NAME)
    if renamed:
        done.source("ALTER TABLE {} RENAME COLUMN userId TO who")
    done.source(row.format("b", minute(101))).run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


def test_aggregates_that_are_gone_are_others_by_the_columns_that_their_values_are_of() -> None:
    then = {"clicks": "page STRING, count INT", "calls": "page STRING"}
    consumed = {name: Consumed(id=name, from_version=0, to_version=1, columns=_told(of)) for name, of in then.items()}
    done: Any = SimpleNamespace(consumed=consumed)
    now = {"clicks": _told("site STRING"), "calls": _told("page STRING")}
    left: dict[str, dict[str, Any]] = {
        "page": {"name": "page", "fn": "first", "of": "page", "source": "clicks"},
        "called": {"name": "called", "fn": "first", "of": "page", "source": "calls"},
        "events": {"name": "events", "fn": "count"},
    }
    told = left_behind(left, done, now, {})
    assert told == left | {"page": left["page"] | {"of": "page /* by the columns of before */"}}
    assert [columns_of(of) for of in told.values()] == [("page",), ("called",), ("events",)]
    back = {"calls": [tuple(T.StructType.fromDDL(f"page STRUCT<{parts}>") for parts in ("a: INT, b: INT", "a: INT"))]}
    told = left_behind(left, done, {name: _told(of) for name, of in then.items()}, back)  # type: ignore[arg-type]
    assert told == left | {"called": left["called"] | {"of": "page /* by the columns of before */"}}


@pytest.mark.parametrize(
    ("was", "now", "is_told"),
    [
        *(("INT", "BIGINT", True), ("FLOAT", "DOUBLE", True), ("INT", "DECIMAL(12,2)", True), ("DATE", "STRING", True)),
        *(("DATE", "TIMESTAMP_NTZ", True), ("DECIMAL(4,2)", "DECIMAL(6,2)", True), ("DECIMAL(9,0)", "INT", True)),
        *(("DATE", "INT", False), ("DECIMAL(4,2)", "INT", False), ("TIMESTAMP", "BIGINT", False)),
        *(("ARRAY<STRING>", "ARRAY<BINARY>", False), ("STRUCT<a: DATE, b: INT>", "STRUCT<a: INT, b: INT>", False)),
    ],
)
def test_a_type_tells_what_values_were_unless_files_tell_others_by_it(was: str, now: str, is_told: bool) -> None:
    before, after = (T.StructType([T.StructField("w", T.DataType.fromDDL(of))]) for of in (was, now))
    assert (untold(before, after) == []) == is_told


PARTS = "a: INT, b: INT, i: STRUCT<c: INT, d: INT>"
LEFT = "a: INT, i: STRUCT<c: INT>"


@pytest.mark.parametrize(
    ("text", "change"),
    [
        *(("to_json(w)", "without parts: w"), ("struct(w.*)", "without parts: w"), ("w", "without parts: w")),
        *(("to_json(w.i)", "without parts: w.i"), ("w.b", "gone: w.b"), ("w.i.d", "gone: w.i.d"), ("W.B", "gone: w.b")),
        *(("`w`.b", "gone: w.b"), ("w.`b`", "gone: w.b"), ("w . b", "gone: w.b"), ("w['i'].d", "gone: w.i.d")),
        *(("to_json(`w`.`i`)", "without parts: w.i"), ('w["b"]', "gone: w.b"), ("w['k']", "without parts: w")),
        *(("w.a + W", "without parts: w"), ("w/* all */.a", "without parts: w"), ("r'\\' || w.b", "gone: w.b")),
        *(
            ("w.a", None),
            ("w. a", None),
            ("`w`.a", None),
            ("w['i'].c", None),
            ("www", None),
            ("clicks.w.b", "gone: w.b"),
        ),
        *(("concat('w.b', \"to_json(w)\", `w`.`a`) -- w.b", None), ("w.a * 5. and w.i.c > .5", None)),
        *(("l[0].b", "gone: l.b"), ("l.b", "gone: l.b"), ("m['k'].i.d", "gone: m.i.d"), ("m.k.b", "gone: m.b")),
        *(("l[w.b].a", "gone: w.b"), ("transform(l, x -> x.a)", "without parts: l"), ("m", "without parts: m")),
        *(("l.i[0].c", None), ("l.i[0].d", "gone: l.i.d"), ("to_json(clicks.w)", "without parts: w")),
        *(("to_json(r)", "without parts: R"), ("r.x", None), ("r.y", "gone: R.y")),
        *(("l[0].a", None), ("l.i.c", None), ("m[l[0].a].a", None), ("m['k'].i.c", None)),
        *(("l[size(l) - 1].a", "without parts: l"), ("element_at(l, 1).a", "without parts: l")),
        *(("n", "another: n"), ("n + w.a", "another: n"), ("o", "gone: o"), ("p.c", "without parts: p.c"), ("q", None)),
        *(("p.a", "another: p.a"), ("p.c.x", None), ("p.c.y", "gone: p.c.y")),
    ],
)
def test_what_an_expression_names_may_be_another_gone_or_have_lost_parts(text: str, change: str | None) -> None:
    def columns(parts: str, *more: T.StructField) -> T.StructType:
        of = T.DataType.fromDDL(f"STRUCT<{parts}>")
        kinds = {"w": of, "l": T.ArrayType(of), "m": T.MapType(T.StringType(), of)}
        return T.StructType([*(T.StructField(name, kind) for name, kind in kinds.items()), *more])

    def field(name: str, file: str, kind: T.DataType | None = None) -> T.StructField:
        return T.StructField(name, kind or T.IntegerType(), True, {PHYSICAL: file})

    def part(a: str, c: T.DataType) -> T.StructType:
        return T.StructType([field("a", a), field("c", "c", c)])

    c = [T.StructType([field(name, name) for name in names]) for names in ("xy", "x")]
    then = columns(PARTS, field("n", "1"), field("o", "2"), field("p", "3", part("4", c[0])), field("r", "r", c[0]))
    now = columns(LEFT, field("n", "5"), field("q", "2"), field("p", "3", part("6", c[1])), field("R", "r", c[1]))
    assert [f"{how}: {path}" for how, path in changes(text, then, now)][:1] == ([change] if change else [])


def _told(columns: str) -> str:
    return bare(T.StructType.fromDDL(columns)).json()
