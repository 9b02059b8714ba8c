"""What other readers have found: columns of other types behind what waits, and tables beside that do not take a run."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.ingest import ingest
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.admission.retold import PHYSICAL
from sessionizer.lib.admission.united import as_united, together
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, RunFailed, SourceError, SourceMismatch, UsageError
from sessionizer.tables.delta.settings import having
from tests.exactness.play import TOTAL, Play
from tests.exactness.several import Several, several
from tests.exactness.test_retyped_columns import WIDENING
from tests.warehouse import NOW

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
IGNORED: dict[str, Any] = {"corrections": {"deletes": "ignore"}}
WIDER = "ALTER TABLE {} ALTER COLUMN n TYPE BIGINT"
AT_ONCE = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> Plays:
    return lambda events, **sections: Play(spark, tmp_path, **sections).runs(events)


# What a rebuild has to leave where it is.


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


def test_a_rebuild_goes_on_where_no_run_comes_to_the_delete(play: Plays) -> None:
    done = play("a@0 b@100", **IGNORED).add("a@5").source("UPDATE {} SET n = 2 WHERE u = 'a'")
    with having(done.spark, AT_ONCE):
        done.source("VACUUM {} RETAIN 0 HOURS")
    done.source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count | total \n a | 0 | 2 | 4")
    done.assert_clean()


def test_a_rebuild_over_lost_changes_counts_a_row_once_whose_earlier_update_waits(play: Plays) -> None:
    done = play("a@0 a@5=5 b@100", corrections="quarantine").source("UPDATE {} SET n = 2 WHERE n = 1 AND u = 'a'")
    done.run()
    done.source("UPDATE {} SET n = 6 WHERE n = 5").run()
    done.source("UPDATE {} SET n = 3 WHERE n = 2")
    with having(done.spark, AT_ONCE):
        done.source("VACUUM {} RETAIN 0 HOURS")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    # Both updates of a's: which row is whose now cannot be told of one of them.
    done.rebuild().assert_sessions("u | start | count | total \n a | 0 | 2 | 9 \n b | 100 | 1 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_rebuild_over_lost_changes_knows_an_update_that_took_the_time_away(play: Plays) -> None:
    done = play("a@0=5 b@100", corrections="quarantine").source("UPDATE {} SET at = NULL WHERE n = 5")
    done.run()
    done.source("UPDATE {} SET at = TIMESTAMP'2026-01-01 00:05:00' WHERE n = 5")
    with having(done.spark, AT_ONCE):
        done.source("VACUUM {} RETAIN 0 HOURS")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n b | 100 | 1")
    done.assert_clean()


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


def test_a_pruned_event_goes_and_not_the_same_one_that_came_again_apart(play: Plays) -> None:
    done = play("a@5 tick@100", late_events="separate", **IGNORED).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.runs("a@5").assert_sessions("u | start | is_late \n a | 5 | no \n a | 5 | yes \n tick | 100 | no")
    done.readmit_deletes().assert_sessions("u | start | is_late \n a | 5 | yes \n tick | 100 | no")
    done.assert_rejected("u | event_time | reason | kept \n a | 5 | late | apart")
    done.assert_clean()


# Columns that were widened.


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


def test_types_of_parts_are_those_of_all_sources_under_names_of_their_own() -> None:
    def source(name: str, kind: T.DataType, *more: T.StructField) -> T.StructType:
        part = T.StructField("x", kind, True, {PHYSICAL: f"col-{name}"})
        return T.StructType([T.StructField("s", T.StructType([part, *more]))])

    calls, clicks = source("calls", T.IntegerType()), source("clicks", T.LongType(), T.StructField("y", T.StringType()))
    told = as_united({"calls": calls, "clicks": clicks})
    assert told["clicks"] == clicks
    assert told["calls"] == source("calls", T.LongType())


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


# Tables beside that would not take what a run brings.


def test_a_name_that_a_table_beside_cannot_take_is_told_before_the_commit(play: Plays, tmp_path: Path) -> None:
    bounced = {"name": "is bounced", "sql": "event_count = 1"}
    done = play("a@0", aggregates=[*TOTAL, bounced], outputs={"session_updates": str(tmp_path / "updates")})
    done.change(aggregates=[*TOTAL, bounced, {"name": "page views", "fn": "count"}]).add("a@5")
    for job in (done.run, done.rebuild):
        with pytest.raises(ConfigError, match=r"cannot be added to outputs.session_updates.*page views"):
            job()
    done.change(aggregates=[*TOTAL, bounced]).run()
    done.assert_sessions("u | count | is bounced \n a | 2 | no")
    done.assert_clean()


def test_a_function_that_fails_on_the_way_stops_the_run_before_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    spread = {"name": "own", "fn": "custom", "of": "n", "initial": "named_struct('n', 0, 's', 0)"}
    spread |= {
        "update": "named_struct('n', acc.n + 1, 's', acc.s + value)",
        "merge": "named_struct('n', left.n + right.n, 's', left.s + right.s)",
        "finish": "acc.s div (acc.n - 1)",
    }
    outputs = {"session_updates": str(tmp_path / "updates")}
    done = Play(spark, tmp_path, aggregates=[spread], outputs=outputs).add("a@0 a@5").init()
    with pytest.raises(PySparkException, match="Division by zero"):
        done.run()
    assert done.told("u") == []
    done.change(outputs={}).run()
    done.assert_sessions("u | own \n a | 2")


def test_a_total_that_leaves_its_type_on_the_way_is_null_there(spark: SparkSession, tmp_path: Path) -> None:
    big, place = 2**62, str(tmp_path / "updates")
    total = [{"name": "total", "fn": "sum", "of": f"n * CAST({big} AS BIGINT)"}]
    done = Play(spark, tmp_path, aggregates=total, outputs={"session_updates": place})
    done.runs("a@0=1 | a@5=1 a@6=-1")
    done.assert_sessions(f"u | count | total \n a | 3 | {big}")
    told = spark.read.format("delta").load(place).select("n", "total").collect()
    assert sorted(map(tuple, told)) == [(1, big), (2, None), (3, big)]


def test_lines_that_nobody_could_read_bind_rejected_events_to_no_key(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text(
        "user,device,at,n\na,x,2026-01-01T00:00:00Z,1\nb,,2026-01-01T00:05:00Z,torn\nc,,2026-01-01T00:07:00Z,3\n"
    )

    def by(key: str) -> Config:
        tables = {"source": {"table": str(tmp_path / "events"), "key": [key], "event_time": "at"}}
        tables |= {"sessions": {"table": str(tmp_path / "sessions")}, "session": {"gap": "10m"}}
        return Config.model_validate(tables)

    options = IngestOptions("csv", schema="user STRING, device STRING, at TIMESTAMP, n INT")
    ingest(spark, by("user"), [file], options, now=datetime(2026, 1, 2, tzinfo=UTC))
    config = by("device")
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(now=NOW))
    found = spark.read.format("delta").load(config.outputs.rejected_events)
    assert "user" not in found.columns
    told = found.select("device", "reason", "run_seq").collect()
    assert sorted(map(tuple, told), key=repr) == [(None, "null_key", 1), (None, "unreadable", None)]
    assert verify(spark, config, Asked()).clean


def test_a_table_beside_that_belongs_to_runs_is_left_as_it_is(play: Plays) -> None:
    done = play("a@0 tick@100")
    of_another = done.configured(source={"key": ["n"]}, sessions={"table": f"{done.config.sessions.table}_by_n"})
    init(done.spark, of_another, None, lambda _: None)
    done.runs("a@1").assert_rejected("u | event_time | reason \n a | 1 | late")


def test_lines_that_nobody_could_read_need_no_key_of_a_mapping(spark: SparkSession, tmp_path: Path) -> None:
    file, options = tmp_path / "events.csv", IngestOptions("csv", schema="device STRING, at TIMESTAMP, n INT")
    file.write_text("device,at,n\nx,2026-01-01T00:00:00Z,1\ny,2026-01-01T00:05:00Z,torn\n")
    stitch = {"table": str(tmp_path / "devices"), "from": "device", "to": "person"}
    key = {"name": "visitor", "expr": "coalesce(person, -1)"}
    source = {"table": str(tmp_path / "events"), "key": [key], "event_time": "at", "stitch": stitch}
    tables = {"source": source, "sessions": {"table": str(tmp_path / "sessions")}, "session": {"gap": "10m"}}
    config = Config.model_validate(tables)
    ingest(spark, config, [file], options, now=datetime(2026, 1, 2, tzinfo=UTC))
    made = "(device STRING, person BIGINT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'devices'}` {made}")
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'events'}` VALUES (NULL, NULL, 1)")
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(now=NOW))
    found = spark.read.format("delta").load(config.outputs.rejected_events)
    assert found.schema["visitor"].dataType == T.LongType()
    assert sorted(row["reason"] for row in found.collect()) == ["null_time", "unreadable"]


def test_readmit_fails_for_an_update_that_makes_its_row_invalid_where_invalid_events_are_to_fail(play: Plays) -> None:
    share = {"name": "share", "fn": "sum", "of": "1 div n"}
    policies: Any = {"invalid_events": "fail", "corrections": "quarantine"}
    done = play("a@0=1 a@5=2", aggregates=[share], **policies)
    done.source("UPDATE {} SET n = 0 WHERE n = 2").run()
    with pytest.raises(RunFailed, match="1 event is invalid, and invalid_events is fail; the first: expression_failed"):
        done.readmit()
    done.assert_sessions("u | start | end | count \n a | 0 | 5 | 2")
    done.change(invalid_events="quarantine").readmit()
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    done.change(invalid_events="fail").runs("a@6=3").readmit()  # of what was kept out before it takes in what it can
    done.assert_sessions("u | start | end | count \n a | 0 | 6 | 2")
    done.assert_clean()
