"""When a table is not what it was, the error names a remedy; these tests follow it, and end with a right table."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.queries.changes import Asked as ChangesAsked
from sessionizer.jobs.queries.changes import changes
from sessionizer.lib.errors import SourceError, TableError
from sessionizer.tables.runs import Runs
from tests.kills import killed_at
from tests.tables.conftest import SECTIONS, Copied
from tests.text_tables import clock
from tests.warehouse import FIRST_EVENTS, MORE_EVENTS, NOW, Warehouse

SLOW = pytest.mark.slow
DAN = [("dan", clock("13:20"), 2)]


def assert_right(warehouse: Warehouse) -> None:
    verdict = verify(warehouse.spark, warehouse.config, Asked())
    assert verdict.clean, verdict


def make_again(warehouse: Warehouse) -> None:
    shutil.rmtree(warehouse.folder / "events")
    warehouse.append(FIRST_EVENTS)


def lose_last_version(warehouse: Warehouse) -> None:
    for file in (warehouse.folder / "events" / "_delta_log").glob("*1.*"):
        file.unlink()


def vacuum_unread_changes(warehouse: Warehouse) -> None:
    before = files_of(warehouse)
    warehouse.append([("eve", clock("13:10"), 1)])
    lost = files_of(warehouse) - before
    warehouse.delta_source().delete("user = 'eve'")
    for name in lost:
        (warehouse.folder / "events" / name).unlink()


def files_of(warehouse: Warehouse) -> set[str]:
    return {Path(f).name for f in warehouse.tables.events.table.read().inputFiles()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(make_again, "dropped and made again", id="made again"),
        pytest.param(lose_last_version, "the source has gone back", id="gone back", marks=SLOW),
        pytest.param(
            vacuum_unread_changes, "cannot be read.*they were vacuumed", id="changes vacuumed", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.broad
def test_rebuild_goes_on_from_the_source_as_it_stands(
    after_two_runs: Warehouse, copied: Copied, damage: Callable[[Warehouse], None], message: str
) -> None:
    warehouse = copied(after_two_runs)
    damage(warehouse)
    with pytest.raises(SourceError, match=rf"(?s){message}.*`sessionizer rebuild`"):
        warehouse.run()
    rebuild(warehouse.kind, now=NOW)
    assert warehouse.position().source_to_version == warehouse.tables.events.table.version
    warehouse.append(DAN)
    assert [r.manifest.events["accepted"] for r in warehouse.run()] == [1]
    assert_right(warehouse)


@pytest.mark.slow
def test_rebuild_goes_on_where_an_unfinished_run_cannot_be_finished(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    warehouse.append(DAN)

    with killed_at(Runs, "append"):
        warehouse.run()
    make_again(warehouse)
    for _ in range(2):  # so that the version to repair exists in the new table, too
        warehouse.append(DAN)
    with pytest.raises(SourceError, match="dropped and made again"):
        warehouse.run()
    rebuild(warehouse.kind, now=NOW)
    assert_right(warehouse)
    assert warehouse.sessions("user", "total")[-1] == ("dan", 4)


@pytest.mark.slow
def test_a_rebuild_leaves_out_what_lies_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path, source={"start": {"version": 1}}, **SECTIONS)
    warehouse.append(FIRST_EVENTS)
    warehouse.append(MORE_EVENTS)
    warehouse.init().run()
    before = warehouse.sessions("user", "session_start", "total")
    rebuild(warehouse.kind, now=NOW)
    assert warehouse.sessions("user", "session_start", "total") == before
    assert_right(warehouse)


@pytest.mark.slow
def test_backfill_works_again_when_newer_versions_are_consumed(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    consumed = files_of(warehouse)
    warehouse.delta_source().optimize().executeCompaction()
    for name in consumed:
        (warehouse.folder / "events" / name).unlink()
    day = LookBack(int(clock("0:00").timestamp() * 1e6), NOW, now=NOW)
    with pytest.raises(
        SourceError, match=r"(?s)as of version 1, which is the one that was consumed.*`sessionizer run`"
    ):
        backfill(warehouse.kind, day)
    warehouse.run()
    backfill(warehouse.kind, day)
    assert_right(warehouse)


@pytest.mark.slow
def test_a_restore_of_the_source_is_a_correction(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    warehouse.delta_source().restoreToVersion(0)
    (report,) = warehouse.run()
    counted = report.manifest.events
    assert (counted["withdrawn"], counted["forgotten"]) == (4, 1)  # ann's was late, and in no session
    assert "dan" not in {row[0] for row in warehouse.sessions("user")}
    assert_right(warehouse)


@pytest.mark.slow
def test_sessions_restored_by_timestamp_are_restored_again_by_version(
    after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse = copied(after_two_runs)
    first = next(e for e in warehouse.tables.sessions.table.history() if e.version == 1)
    time = datetime.fromtimestamp((first.timestamp_us + 1_000) / 1e6, UTC)
    warehouse.delta().restoreToTimestamp(f"{time:%Y-%m-%d %H:%M:%S.%f}")
    with pytest.raises(TableError, match=r"restored by timestamp.*by version"):
        warehouse.run()
    warehouse.delta().restoreToVersion(1)
    warehouse.run()
    assert_right(warehouse)
    _, rows = changes(warehouse.kind, ChangesAsked("update", since_run="1"))
    assert rows.count() > 0
