"""maintain over real tables: what they hold, the position and the next run stay, whatever is compacted and deleted."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.maintain import LEAST, Asked, Upkeep, maintain
from sessionizer.jobs.commands.verify import Asked as ToVerify
from sessionizer.jobs.commands.verify import verify
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY, parse_duration
from sessionizer.lib.errors import UsageError
from sessionizer.tables.delta import REMOVED_FILES_KEPT
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries.history import History
from tests.kills import killed_at
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

# The horizon is 11:00 after the second run, so that ann's 08:20 is late in the third.
RUNS: list[list[tuple[Any, ...]]] = [
    [("ann", clock("08:00"), 1), ("bob", clock("08:10"), 2), (None, clock("08:00"), 3)],
    [("ann", clock("12:00"), 4), ("bob", clock("08:20"), 5)],
    [("ann", clock("08:20"), 6), ("bob", clock("12:10"), 7), ("ann", None, 8)],
]
MORE = [("ann", clock("12:20"), 9), ("cat", clock("15:00"), 10)]


def made(spark: SparkSession, folder: Path) -> Warehouse:
    outputs = {"event_sessions": str(folder / "event_sessions")}
    return Warehouse(spark, folder, outputs=outputs, time={"allowed_lateness": "1h"})


@pytest.fixture(scope="module")
def after_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = made(spark, tmp_path_factory.mktemp("maintain"))
    for number, events in enumerate(RUNS):
        warehouse.append(events)
        if not number:
            warehouse.init()
        warehouse.run()
    return warehouse


@pytest.fixture
def warehouse(spark: SparkSession, after_runs: Warehouse, tmp_path: Path) -> Warehouse:
    shutil.copytree(after_runs.folder, tmp_path / "copy")
    return made(spark, tmp_path / "copy")


def upkeep(warehouse: Warehouse, **asked: Any) -> dict[str, Upkeep]:
    done = maintain(warehouse.spark, warehouse.config, Asked(**asked), warehouse.said.append)
    return {one.table: one for one in done}


def all_rows(warehouse: Warehouse) -> dict[str, list[tuple[Any, ...]]]:
    tables = (warehouse.tables.sessions.table, *warehouse.tables.side_tables())
    frames = {t.field: t.read() for t in tables}
    return {name: sorted(map(tuple, frame.collect()), key=repr) for name, frame in frames.items()}


def grown_old(log: Path, but: int, days: int) -> None:
    """Have the log's files of all versions but one be older than they are, for Delta's own clean-up."""
    for file in log.iterdir():
        if file.is_file() and not file.name.startswith(f"{but:020d}"):
            then = file.stat().st_mtime - days * 86_400
            os.utime(file, (then, then))


@pytest.mark.slow
def test_files_become_fewer_and_all_else_stays(warehouse: Warehouse) -> None:
    before, position = all_rows(warehouse), warehouse.position()
    versions = warehouse.versions()
    told = upkeep(warehouse, dry_run=True)
    assert warehouse.versions() == versions
    done = upkeep(warehouse)
    assert {name: one.compacted_files for name, one in told.items()} == {
        name: one.compacted_files for name, one in done.items()
    }
    assert set(done) == {"sessions", "rejected_events", "event_sessions", "runs"}
    assert all(one.compacted_files > 1 and one.files < one.files_before for one in done.values()), done
    assert done["sessions"].files == 2, "one of live rows, one of final ones"
    assert all_rows(warehouse) == before
    assert warehouse.position() == position
    assert upkeep(warehouse)["sessions"].compacted_files == 0

    warehouse.append(MORE)
    (report,) = warehouse.run()
    assert report.manifest.events["accepted"] == 2
    assert verify(warehouse.spark, warehouse.config, ToVerify()).clean


@pytest.mark.broad
def test_commits_of_upkeep_repeat_the_manifest_and_are_no_runs(warehouse: Warehouse) -> None:
    sessions, ids = warehouse.tables.sessions, [m.run_id for m in warehouse.tables.sessions.manifests()]
    (entry,) = sessions.table.history(1)
    upkeep(warehouse)
    (last,) = sessions.table.history(1)
    assert last.operation == "OPTIMIZE"
    assert Manifest.parse(last.metadata) == warehouse.position()
    assert [m.run_id for m in sessions.manifests()] == ids
    assert len(ids) == len(RUNS)
    assert sessions.committed(warehouse.position()) == entry
    assert History(warehouse.tables.sessions, warehouse.tables.runs).run(ids[0]).version == entry.version

    # An upkeep that began before a run and was faster than its commit carries the manifest of the run before.
    older = list(sessions.manifests())[1]
    sessions.table.change_setting("note", "1", older.text())
    assert warehouse.position().run_id == ids[0]
    assert next(sessions.manifests(sessions.table.version)) == warehouse.position()


@pytest.mark.slow
def test_the_clean_up_of_the_log_leaves_the_position(warehouse: Warehouse) -> None:
    upkeep(warehouse)
    position, log = warehouse.position(), warehouse.folder / "sessions" / "_delta_log"
    table = warehouse.tables.sessions.table
    version = table.version
    upkeep(warehouse, now=wall_clock() + 10 * DAY)
    assert table.version == version, "10 of 30 days: the log has it for long enough"
    upkeep(warehouse, now=wall_clock() + 20 * DAY)
    (last,) = table.history(1)
    assert (last.version, last.operation) == (version + 1, "SET TBLPROPERTIES")
    grown_old(log, but=last.version, days=40)
    upkeep(warehouse)
    assert not (log / f"{position.sessions_version + 1:020d}.json").exists(), "Delta has removed the run's own commit"
    assert warehouse.position() == position
    assert [m.run_id for m in warehouse.tables.sessions.manifests()] == [position.run_id]
    assert warehouse.run() == []
    warehouse.append(MORE)
    (report,) = warehouse.run()
    assert report.manifest.events["accepted"] == 2


@pytest.mark.slow
def test_after_a_restore_the_runs_that_it_has_undone_stay_undone(warehouse: Warehouse) -> None:
    first = list(warehouse.tables.sessions.manifests())[-1]
    warehouse.delta().restoreToVersion(first.sessions_version + 1)
    restored = warehouse.tables.sessions.table.version
    upkeep(warehouse)
    position = warehouse.tables.sessions.position()
    assert (position.manifest, position.restored) == (first, restored)
    assert warehouse.ledger(C.RUN_ID) == [(first.run_id,)]
    assert sum(report.manifest.events["events_read"] for report in warehouse.run()) == len(RUNS[1]) + len(RUNS[2])
    assert verify(warehouse.spark, warehouse.config, ToVerify()).clean


@pytest.mark.slow
def test_files_that_no_kept_version_has_are_deleted(warehouse: Warehouse) -> None:
    orphan = warehouse.folder / "sessions" / "is_final=true" / "part-left-behind.snappy.parquet"
    orphan.write_bytes(b"of a run that was killed")
    os.utime(orphan, (0, 0))
    assert upkeep(warehouse, dry_run=True)["sessions"].deleted_files == 1
    assert orphan.exists()
    version = warehouse.tables.sessions.table.version
    assert upkeep(warehouse)["sessions"].deleted_files == 1
    assert not orphan.exists()
    # All that the runs have removed is younger than a week: every version can still be read.
    assert warehouse.tables.sessions.table.read(version - 1).count() > 0
    (last,) = warehouse.tables.sessions.table.history(1)
    assert last.operation == "VACUUM END"
    assert Manifest.parse(last.metadata) == warehouse.position()


@pytest.mark.slow
def test_what_a_run_a_repair_and_a_backfill_need_is_there_after_the_shortest_retention(warehouse: Warehouse) -> None:
    warehouse.append(MORE)
    with killed_at(side_tables, "write"):
        warehouse.run()
    unfinished, events = warehouse.position(), files_of(warehouse.folder / "events")
    upkeep(warehouse, retain=LEAST)
    assert f"finishing run {unfinished.run_id}, which was cut off after its commit" in warehouse.said
    assert (unfinished.run_id,) in warehouse.ledger(C.RUN_ID)
    assert files_of(warehouse.folder / "events") == events, "the source is left alone"
    # Whoever began before holds one of these versions.
    table = warehouse.tables.sessions.table
    assert all(table.read(version).collect() is not None for version in range(table.version + 1))
    whole = LookBack(us(clock("00:00")), us(clock("+1d 00:00")))
    assert len(backfill(warehouse.kind, whole)) == 1
    assert verify(warehouse.spark, warehouse.config, ToVerify()).clean


def files_of(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"retain": parse_duration("23h")}, "--retain must be at least 24h"),
        ({"keep": {"runs": 90 * DAY}}, "--keep must name one of sessions, windows, rejected_events"),
        ({"keep": {"rejected_events": DAY // 2}}, "--keep must be at least 24h"),
        ({"recent": -1}, "--recent must not be negative"),
    ],
)
def test_what_may_not_be_asked(asked: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Asked(**asked)


def test_what_is_kept_must_be_there(warehouse: Warehouse) -> None:
    with pytest.raises(UsageError, match="--keep names a table that is not there: got 'windows'"):
        maintain(warehouse.spark, warehouse.config, Asked(keep={"windows": 30 * DAY}))


@pytest.mark.slow
def test_how_long_removed_files_are_kept(warehouse: Warehouse) -> None:
    table = warehouse.tables.runs.table
    table.change_setting(REMOVED_FILES_KEPT, "interval 2 hours")
    versions = warehouse.versions()
    with pytest.raises(UsageError, match=r"outputs\.runs must keep removed files for 24h.*: got '2h"):
        upkeep(warehouse)
    assert warehouse.versions() == versions
    upkeep(warehouse, retain=40 * DAY)
    tables = (warehouse.tables.sessions.table, *warehouse.tables.side_tables())
    assert [table.kept_us() for table in tables] == [(40 * DAY, 40 * DAY)] * 4
    upkeep(warehouse, retain=2 * DAY)
    assert [table.kept_us() for table in tables] == [(2 * DAY, 40 * DAY)] * 4
    assert warehouse.position() == Manifest.parse(next(warehouse.tables.sessions.table.history()).metadata)


@pytest.mark.slow
def test_old_rows_of_side_tables_are_forgotten_but_what_makes_the_accepted_set(warehouse: Warehouse) -> None:
    keep = {"rejected_events": 90 * DAY, "event_sessions": 90 * DAY}
    assert warehouse.rejected(C.REASON, "user") == [("late", "ann"), ("null_key", None), ("null_time", "ann")]
    young = upkeep(warehouse, keep=keep | {"event_sessions": 100_000 * DAY}, dry_run=True)
    assert [one.forgotten_rows for one in young.values()] == [0, 0, 0, 0]
    later = wall_clock() + 91 * DAY
    told, done = (upkeep(warehouse, keep=keep, now=later, dry_run=dry) for dry in (True, False))
    forgotten = {name: one.forgotten_rows for name, one in told.items()}
    # Of event_sessions those stay that are not older than the horizon, 11:10: others may still join their sessions.
    assert forgotten == {"sessions": 0, "rejected_events": 3, "event_sessions": 3, "runs": 0}
    assert {name: one.forgotten_rows for name, one in done.items()} == forgotten
    assert warehouse.rejected(C.REASON, "user", C.EVENT) == [("late", "ann", None), ("null_key", None, None)]
    kept = warehouse.tables.event_outputs["event_sessions"].table.read()
    assert [row[0] for row in warehouse.sorted_rows(kept, C.EVENT_TIME)] == [
        "2026-01-01 12:00:00",
        "2026-01-01 12:10:00",
    ]
    assert verify(warehouse.spark, warehouse.config, ToVerify()).clean
    assert upkeep(warehouse, keep=keep, now=later)["rejected_events"].forgotten_rows == 0


@pytest.mark.slow
def test_the_history_of_tables_by_day_is_compacted_near_the_horizon_only(spark: SparkSession, tmp_path: Path) -> None:
    by_day = {"partition_by": ["is_final", "session_date"]}
    warehouse = Warehouse(spark, tmp_path, sessions=by_day, time={"allowed_lateness": "1h"})
    for number, day in enumerate(("+0d", "+0d", "+6d", "+6d", "+7d")):
        warehouse.append([("ann", clock(f"{day} {8 + number * 2:02d}:00"), number)])
        if not number:
            warehouse.init()
        warehouse.run()
    before = [row[0] for row in warehouse.sessions(C.SESSION_DATE)]
    done = upkeep(warehouse, recent=2 * DAY)["sessions"]
    files = warehouse.tables.sessions.table.read().inputFiles()
    per_day = {day: sum(f"session_date={day}" in file for file in files) for day in before}
    assert per_day == {"2026-01-01": 2, "2026-01-07": 1, "2026-01-08": 1}
    assert done.compacted_files == 2


@pytest.mark.slow
def test_the_command_and_its_document(
    warehouse: Warehouse, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "sessionizer.yaml"
    file.write_text(json.dumps(warehouse.config.model_dump(mode="json", exclude_unset=True), default=str))

    def shell(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sessionizer", "maintain", "-c", str(file), *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), capfd.readouterr().out

    code, out = shell("--dry-run")
    assert (code, "dry run: nothing was done" in out, "rejected_events" in out) == (0, True, True)
    code, out = shell("--json", "--keep", "rejected_events=90d")
    found = json.loads(out)
    assert (code, found["dry_run"]) == (0, False)
    assert [one["table"] for one in found["tables"]] == ["sessions", "rejected_events", "event_sessions", "runs"]
    code, out = shell("--json", "--retain", "a while")
    assert (code, "--retain must be a duration" in json.loads(out)["error"]) == (2, True)
