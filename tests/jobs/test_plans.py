"""What `backfill` and `verify` would do, told by the logs alone: the same that they then do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands import chunks as by_spark
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.plans import backfill as of_backfill
from sessionizer.jobs.plans import verify as of_verify
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.driver import slide
from sessionizer.jobs.run.kinds import Kind, ruled
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.durations import DAY, HOUR
from sessionizer.lib.errors import SourceError, SourceMismatch, UsageError
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark
from tests.jobs.test_preflight import NO_JAVA
from tests.jobs.test_without_spark import process
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import NOW, Warehouse

FIRST = """
user | at       | n
ann  | 08:00    | 1
ann  | 08:10    | 2
bob  | 11:00    | 3
-    | 11:00    | 4
"""
SECOND = """
user | at       | n
ann  | +2d 9:00 | 5
bob  | +2d 9:50 | 6
bob  | +2d 9:50 | 6
"""
LATE = """
user | at       | n
ann  | 08:20    | 7
bob  | +2d 9:55 | 8
"""


def at(text: str) -> int:
    return us(clock(text))


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of the source, a late event, an invalid one and a copy; every optional table, and windows."""
    warehouse = of(spark, tmp_path_factory.mktemp("lake"))
    warehouse.append(FIRST)
    warehouse.init().run()
    for events in (SECOND, LATE):
        warehouse.append(events)
        warehouse.run()
    slide(spark, warehouse.config, RunOptions(now=NOW))
    return warehouse.folder


@pytest.fixture
def lake(spark: SparkSession, folder: Path) -> Warehouse:
    """To look at."""
    return of(spark, folder)


@pytest.fixture
def copied(spark: SparkSession, folder: Path, tmp_path: Path) -> Warehouse:
    """To change."""
    shutil.copytree(folder, tmp_path / "copy")
    return of(spark, tmp_path / "copy")


def of(spark: SparkSession, folder: Path, **sections: Any) -> Warehouse:
    outputs = {name: str(folder / name) for name in ("event_sessions", "session_updates")}
    sliding = {"table": str(folder / "windows"), "time_difference": "10m", "grace": "1h"}
    source = {"dedupe": {"by": ["n"], "within": "1h"}} | sections.pop("source", {})
    time = {"allowed_lateness": "1h"}
    return Warehouse(spark, folder, source=source, time=time, outputs=outputs, sliding=sliding, **sections)


def planned(warehouse: Warehouse, asked: LookBack, *, windows: bool = False) -> of_backfill.Plan:
    return of_backfill.plan(LocalTableSet(warehouse.config), ruled(warehouse.config, windows=windows), asked)


def spans_by_spark(kind: Kind, asked: LookBack) -> list[tuple[int, int]]:
    """The spans that a backfill goes through, by the events themselves."""
    arguments = asked.arguments(asked.low, asked.high)
    context = RunContext.look_back(kind, kind.home.position(), NOW, "backfill", arguments)
    return by_spark.chunks(context, asked.low, asked.high, asked.chunk)


def test_the_files_and_sessions_of_a_span_are_told(lake: Warehouse) -> None:
    first_day = planned(lake, LookBack(at("00:00"), at("+1d 0:00")))
    assert (len(first_day.part.files), first_day.part.of, first_day.part.rows) == (2, 3, 6)  # LATE is in both days
    assert first_day.part.bytes == sum(file.bytes for file in first_day.part.files) > 0
    assert first_day.rows == {"open": 0, "closed": 0, "final": 2}
    assert (first_day.late, first_day.many, first_day.goes_on, first_day.first) == (1, 1, False, None)
    between = planned(lake, LookBack(at("+5d 0:00"), at("+6d 0:00")))
    assert (len(between.part.files), between.part.rows, between.rows["open"], between.late) == (0, 0, 0, 0)
    edge = LookBack(at("08:10"), at("08:11"))  # ann's session ends at its begin, bob's starts later
    assert planned(lake, edge).rows["final"] == 1
    assert sum(planned(lake, LookBack(at("08:11"), at("11:00"))).rows.values()) == 0


def test_the_sessions_told_are_those_of_the_keys_asked_for(lake: Warehouse) -> None:
    ann = planned(lake, LookBack(at("00:00"), at("+3d 0:00"), ('{"user": "ann"}',)))
    assert (sum(ann.rows.values()), ann.late) == (2, 1)
    bob = planned(lake, LookBack(at("00:00"), at("+3d 0:00"), ('{"user": "bob"}', '{"user": "nobody"}')))
    assert (sum(bob.rows.values()), bob.late) == (2, 0)


@pytest.mark.parametrize("chunk", [None, DAY, 7 * HOUR])
def test_no_span_is_missing_from_the_plan(lake: Warehouse, chunk: int | None) -> None:
    asked = LookBack(at("00:00"), at("+4d 0:00"), None, chunk)
    plan, spans = planned(lake, asked), spans_by_spark(lake.kind, asked)
    assert len(plan.spans) == plan.many >= len(spans)
    inside = [any(low <= first and last <= high for low, high in plan.spans) for first, last in spans]
    assert all(inside)


def test_the_plan_has_the_span_that_a_session_reaches_into(spark: SparkSession, tmp_path: Path) -> None:
    """Its last event is at ten to midnight, and it lasts until twenty past."""
    warehouse = Warehouse(spark, tmp_path)
    for time in ("23:50", "+5d 10:00"):
        warehouse.append([("ann", clock(time), 1)])
    warehouse.init().run()
    asked = LookBack(at("+1d 0:00"), at("+9d 0:00"), None, DAY)
    plan = planned(warehouse, asked)
    assert plan.spans == spans_by_spark(warehouse.kind, asked)
    assert [low for low, _ in plan.spans] == [at("+1d 0:00"), at("+5d 0:00")]


def test_the_plan_has_the_spans_of_rows_whose_events_have_left_the_source(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = of(spark, tmp_path, corrections={"deletes": "ignore"})
    for day in (0, 1, 4, 6):
        warehouse.append([("ann", clock(f"+{day}d 10:00"), day)])
    warehouse.init().run()
    slide(spark, warehouse.config, RunOptions(now=NOW))
    spark.sql(f"DELETE FROM delta.`{warehouse.config.source.table}` WHERE n IN (1, 6)")
    warehouse.run()
    slide(spark, warehouse.config, RunOptions(now=NOW))
    for chunk, begins in (DAY, [0, 1, 4, 6]), (9 * HOUR, [9, 27, 99, 153]), (None, [0]):
        asked = LookBack(at("00:00"), at("+9d 0:00"), None, chunk)
        for kind, windows in (warehouse.kind, False), (warehouse.windows, True):
            plan = planned(warehouse, asked, windows=windows)
            assert plan.spans == spans_by_spark(kind, asked)
            assert [(low - at("00:00")) // (DAY if chunk == DAY else HOUR) for low, _ in plan.spans] == begins


def test_spans_are_exact_where_files_hold_a_day_each(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    for day in (0, 1, 4):
        warehouse.append([("ann", clock(f"+{day}d 10:00"), day)])
    warehouse.init().run()
    asked = LookBack(at("00:00"), at("+9d 0:00"), None, DAY)
    plan = planned(warehouse, asked)
    assert plan.spans == spans_by_spark(warehouse.kind, asked)
    assert [(high - low) // DAY for low, high in plan.spans] == [1, 1, 5]
    of_all = LookBack(at("00:00"), at("+9d 0:00"))
    assert planned(warehouse, of_all).spans == spans_by_spark(warehouse.kind, of_all)


def test_very_many_spans_are_counted_and_not_all_listed(lake: Warehouse) -> None:
    plan = planned(lake, LookBack(at("00:00"), at("+3d 0:00"), None, 60_000_000))
    assert plan.many > len(plan.spans) == of_backfill.LISTED
    assert plan.spans[-1][1] - plan.spans[-1][0] == 60_000_000


@pytest.mark.broad
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_backfill_that_was_cut_off_goes_on(copied: Warehouse, by_hand: bool) -> None:
    asked = LookBack(at("00:00"), at("+3d 0:00"), None, DAY, now=NOW)

    class Killed(Exception):
        pass

    def stop(report: RunReport, number: int, of_all: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        backfill(copied.kind, asked, on_chunk=stop)
    plan = planned(copied, asked)
    assert (plan.goes_on, plan.asked.low) == (True, at("+1d 0:00"))
    if by_hand:  # what is done already may be wrong again
        copied.kind.home.table.update("true", {"event_count": "event_count + 1"})
        plan = planned(copied, asked)
        assert (plan.goes_on, plan.asked.low) == (False, at("00:00"))
    lows = [report.manifest.arguments["low"] for report in backfill(copied.kind, asked)]
    assert lows == [at("00:00"), at("+2d 0:00")] if by_hand else [at("+2d 0:00")]
    assert verify(copied.spark, copied.config, Asked()).clean


@pytest.mark.broad
def test_a_run_that_was_cut_off_is_named(copied: Warehouse) -> None:
    runs, done = Path(copied.config.outputs.runs), copied.position()
    for file in [*runs.rglob("*00003.json"), *runs.rglob("*.crc")]:
        file.unlink()
    asked, of_sessions = LookBack(at("00:00"), at("+1d 0:00")), ruled(copied.config)
    told = f"run {done.run_id} was cut off after its commit: it is finished first"
    assert planned(copied, asked).first == told
    assert of_verify.plan(LocalTableSet(copied.config), of_sessions, Asked()).first == told
    place = copied.tables.sessions.table
    copied.spark.sql(f"RESTORE {place.sql_name()} TO VERSION AS OF {place.version - 1}")
    assert "is a RESTORE: what is there still of runs after run" in str(planned(copied, asked).first)
    copied.run()
    assert planned(copied, asked).first is None


@pytest.mark.broad
def test_an_event_time_that_is_no_column_is_pruned_by_another_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(spark, tmp_path, source={"event_time": "at + INTERVAL 0 SECOND"})
    days = spark.createDataFrame([("ann", clock(f"+{day}d 10:00")) for day in (0, 5)], "user STRING, at TIMESTAMP")
    rows = days.withColumn("day", F.to_date("at")).withColumn("n", F.lit(1))
    rows.write.format("delta").partitionBy("day").option("delta.enableChangeDataFeed", "true").save(
        warehouse.config.source.table
    )
    warehouse.init().run()
    asked = LookBack(at("00:00"), at("+1d 0:00"))
    assert len(planned(warehouse, asked).part.files) == 2
    for column, files in (("day", 1), ("at", 1)):
        warehouse.config = warehouse.configured(source={"event_time": "at + INTERVAL 0 SECOND", "prune_by": column})
        assert len(planned(warehouse, asked).part.files) == files
    warehouse.config = warehouse.configured(source={"event_time": "at + INTERVAL 0 SECOND", "prune_by": "dya"})
    with pytest.raises(SourceMismatch, match="did you mean day"):
        planned(warehouse, asked)


def test_another_source_is_refused_as_by_the_command(copied: Warehouse) -> None:
    shutil.rmtree(copied.config.source.table)
    copied.append(FIRST)
    with pytest.raises(SourceError, match="the source is not the table that was read before"):
        planned(copied, LookBack(at("00:00"), at("+1d 0:00")))


@pytest.mark.parametrize("asked", [Asked(), Asked(at("08:05"), at("10:00")), Asked(sample=0.5)])
def test_verify_looks_at_the_rules_that_it_was_said_to(lake: Warehouse, asked: Asked) -> None:
    plan = of_verify.plan(LocalTableSet(lake.config), ruled(lake.config), asked)
    verdict = verify(lake.spark, lake.config, asked)
    assert set(plan.checks) == set(verdict.broken)
    assert len(plan.checks) == len(verdict.broken)
    assert (plan.recomputed, verdict.clean) == (verdict.recomputed, True)
    if asked.sample is None:
        assert sum(plan.rows.values()) == verdict.sessions


def test_verify_looks_at_the_rules_of_windows_that_it_was_said_to(lake: Warehouse) -> None:
    of_windows = ruled(lake.config, windows=True)
    for asked in (Asked(), Asked(at("08:05"), at("10:00"))):
        plan = of_verify.plan(LocalTableSet(lake.config), of_windows, asked)
        verdict = verify_windows(lake.spark, lake.config, asked)
        assert set(plan.checks) == set(verdict.broken)
        assert (sum(plan.rows.values()), plan.recomputed) == (verdict.sessions, verdict.recomputed)


def test_a_span_of_verify_reads_the_files_of_that_span(lake: Warehouse) -> None:
    of_sessions, tables = ruled(lake.config), LocalTableSet(lake.config)
    for asked, files in ((Asked(), 3), (Asked(at("+1d 0:00"), at("+4d 0:00")), 2), (Asked(at("+5d 0:00")), 0)):
        assert len(of_verify.plan(tables, of_sessions, asked).part.files) == files
    longest = lake.configured(session={"gap": "30m", "max_duration": "2h"})
    plan = of_verify.plan(LocalTableSet(longest), ruled(longest), Asked(at("+5d 0:00")))
    assert len(plan.part.files) == 3  # chains are cut from their first event on


def test_tables_that_only_spark_reads_are_left_to_it(lake: Warehouse) -> None:
    config = lake.configured(sessions={"table": "db.sessions"})
    with pytest.raises(NeedsSpark, match="a name"):
        of_backfill.plan(LocalTableSet(config), ruled(config), LookBack(0, DAY))


SPAN = ("--from", "2026-01-01", "--to", "2026-01-04")


def test_plans_start_no_java(lake_to_see: Warehouse) -> None:
    def said(*command: str, code: int = 0, **env: str) -> str:
        done = process("-m", "sessionizer.jobs.cli", *command, cwd=lake_to_see.folder, **NO_JAVA, **env)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else " ".join(done.stderr.split())

    document = json.loads(said("backfill", *SPAN, "--dry-run", "--json"))
    assert document["sessions"] == {"open": 2, "closed": 0, "final": 2}
    assert (document["spans"], document["late_events"], document["source"]["files"]) == (1, 1, 3)
    shown = said("backfill", *SPAN, "--dry-run", "--chunk", "1h")
    assert "4 (2 open, 0 closed, 2 final) touch it" in shown
    assert "--compare computes how many sessions would change" in shown
    document = json.loads(said("verify", "--dry-run", "--json", "--sample", "10%"))
    assert (document["from"], document["sample"], document["source"]["rows_at_most"]) == (None, 0.1, 8)
    assert "late events are older than the horizon of their run" in said("verify", "--dry-run")
    elsewhere = {"SESSIONIZER__SOURCE__TABLE": "db.events"}
    for command, remedy in ((("backfill", *SPAN), "`backfill --compare` computes"), (("verify",), "`verify` itself")):
        refused = said(*command, "--dry-run", code=2, **elsewhere)
        assert "--dry-run looks at tables on a path alone, and source.table is a name" in refused
        assert remedy in refused
    wrong = said("verify", "--dry-run", code=2, SESSIONIZER__SESSION__GAP="45m")
    assert "the rule has changed since the sessions table was made" in wrong


def test_a_key_of_another_type_is_refused(lake: Warehouse) -> None:
    with pytest.raises(UsageError, match=r"--key must be of type bigint, as event_count is: got 'many'"):
        planned(lake, LookBack(0, DAY, ('{"event_count": "many"}',)))
