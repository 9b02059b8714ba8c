"""Runs that were cut off or cannot begin: finished, begun anew, or refused before anything is written."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill, done_to
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.ingest import ingest
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.config import Config
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError, TableError
from tests.exactness.play import BY_NAME, TOTAL, Play, at, minute
from tests.warehouse import NOW

Plays = Callable[..., Play]


@pytest.mark.broad
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


@pytest.mark.broad
def test_what_would_be_nobody_tells_before_it_is_written_what_stays_out(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}).add("a@0").add("b@0").init()
    done.run_cut_off()
    with pytest.raises(TableError, match="the last run has not written yet which events stay out"):
        plan(done.kind, done.said.append, now=done.now)
    done.run()
    assert plan(done.kind, done.said.append, now=done.now).total("comes") == 0


@pytest.mark.broad
def test_what_would_be_is_told_where_nothing_has_ever_been_rejected(play: Plays) -> None:
    done = play("a@0 b@0").source("DELETE FROM {} WHERE u = 'b'")
    done.run()
    (report,) = backfill(done.kind, LookBack(at(0), at(60), dry_run=True, now=done.now))
    assert report.manifest.sessions["updated"] == 0
    assert plan(done.kind, done.said.append, now=done.now).total("changes") == 0


@pytest.mark.broad
def test_a_row_that_is_mended_before_a_run_reads_it_is_summed_by_none(play: Plays) -> None:
    big = 2**63 - 1
    done = play("a@0", aggregates=[{"name": "total", "fn": "sum", "of": f"IF(n = 9, {big}, CAST(n AS BIGINT))"}])
    done.add("a@1=9 a@2=1").source("UPDATE {} SET n = 5 WHERE n = 9").run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 2 | 3 | 7")
    done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
def test_a_name_that_a_rebuild_would_bring_to_event_sessions_is_told_before_the_commit(
    play: Plays, tmp_path: Path
) -> None:
    named = {"source": {"order_by": ["seq no"]}, "outputs": {"event_sessions": str(tmp_path / "traces")}}
    done = play("a@0", outputs=named["outputs"]).source(BY_NAME).source("ALTER TABLE {} ADD COLUMNS (`seq no` INT)")
    done.change(**named)
    with pytest.raises(ConfigError, match=r"cannot be added to outputs.event_sessions.*seq no"):
        done.rebuild()
    assert done.ledger("mode") == [("run",)]
    done.change(source={}, outputs=named["outputs"]).rebuild()
    done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
def test_a_table_beside_that_belongs_to_runs_is_left_as_it_is(play: Plays) -> None:
    done = play("a@0 tick@100")
    of_another = done.configured(source={"key": ["n"]}, sessions={"table": f"{done.config.sessions.table}_by_n"})
    init(done.spark, of_another, None, lambda _: None)
    done.runs("a@1").assert_rejected("u | event_time | reason \n a | 1 | late")


@pytest.mark.broad
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


@pytest.mark.slow
def test_a_backfill_begins_anew_where_events_were_left_out_since_it_was_cut_off(play: Plays) -> None:
    done = play("tick@100 | a@5 a@15=2")
    asked = LookBack(at(0), at(20), chunk=at(10) - at(0), now=done.now)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill(done.kind, asked, on_chunk=die)
    done.runs("a@6=3")
    backfill(done.kind, asked)
    done.assert_sessions("u | start | total \n a | 5 | 6 \n tick | 100 | 1")
    done.assert_rejected("u | reason")


@pytest.mark.broad
def test_a_backfill_begins_anew_where_the_log_no_longer_tells_what_came_since(play: Plays) -> None:
    done, came = play("tick@100 | a@5 a@15=2 a@25=2"), list[Any]()
    asked = LookBack(at(0), at(30), chunk=at(10) - at(0), now=done.now)

    def die(*told: Any) -> None:
        came.append(told)
        if len(came) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill(done.kind, asked, on_chunk=die)
    table = done.tables.sessions.table
    assert done_to(table, asked)[0] > asked.low
    table.checkpoint()
    Path(done.config.sessions.table, "_delta_log", f"{table.version - 1:020}.json").unlink()
    assert done_to(table, asked) == (asked.low, None)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 7 * DAY])
def test_a_backfill_of_sixty_years_commits_the_days_that_hold_anything(play: Plays, chunk: int | None) -> None:
    done, year = play("tick@100 | a@5"), 365 * DAY
    reports = backfill(done.kind, LookBack(at(0) - 30 * year, at(0) + 30 * year, chunk=chunk, now=done.now))
    assert len(reports) == 1
    done.assert_sessions("u | start \n a | 5 \n tick | 100")


@pytest.mark.slow
def test_the_ledger_tells_what_became_of_recomputed_sessions(play: Plays) -> None:
    names = ("sessions_created", "sessions_extended", "sessions_split", "sessions_merged", "sessions_deleted")
    done = play("a@20 a@25 tick@200 | a@15", late_events="amend")
    assert done.ledger(*names)[-1] == (0, 1, 0, 0, 1)
    done.source(f"DELETE FROM {{}} WHERE at = TIMESTAMP'{minute(15)}'").run()
    assert done.ledger(*names)[-1] == (0, 1, 0, 0, 1)
    done.runs("a@33 a@40").source(f"DELETE FROM {{}} WHERE at = TIMESTAMP'{minute(33)}'").run()
    assert done.ledger(*names)[-1] == (0, 1, 1, 0, 0)
