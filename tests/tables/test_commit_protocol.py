"""One commit is the truth: whatever stops, repeats or overtakes a run, its events count exactly once."""

import os
import signal
import threading
import time
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.look_back import rebuild
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.phases import RunReport
from sessionizer.lib import columns as C
from sessionizer.lib.config import StartTimestamp
from sessionizer.lib.errors import SourceError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables import layout
from sessionizer.tables.delta import Commit, Superseded, Table
from sessionizer.tables.increments import Increment
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.window_table import WindowTable
from tests.faults.lakes import consumed
from tests.kills import killed_at
from tests.oracle import at, us
from tests.processes import Worker
from tests.tables.conftest import SECTIONS, Copied
from tests.text_tables import clock, rows
from tests.warehouse import EVENTS, FIRST_EVENTS, MORE_EVENTS, Warehouse, files_of_final_rows

FENCE_SETTINGS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)
SESSION = ("user", "session_start", "session_end", "event_count", "total", "status", "end_reason")
REJECTED = ("user", "event_time", "reason", "watermark", "horizon", "event", "event_hash", "ordinal", "source_version")
LEDGER = (
    *("run_seq", "mode", "source_from_version", "source_to_version", "sessions_version"),
    *("events_read", "accepted", "late", "invalid", "rejected"),
    *("sessions_created", "sessions_extended", "sessions_merged", "sessions_closed", "sessions_finalised"),
    *("sessions_deleted", "live_sessions"),
)


REPLACING: dict[str, Any] = {"sessions": {"commit": "replace"}}


def counted(report: RunReport) -> dict[str, int]:
    return {name: n for name, n in report.manifest.events.items() if n}


def run_overtaken_at(step: str, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> list[RunReport]:
    """A run, in which another whole run comes first: just before `commit`, or just after `_check_not_moved`."""
    original = getattr(WindowTable, step)
    overtaken: list[bool] = []

    def overtake(self: WindowTable, *arguments: Any) -> None:
        if step == "_check_not_moved":
            original(self, *arguments)
        if not overtaken:
            overtaken.append(True)
            assert len(warehouse.run()) == 1
        if step == "commit":
            original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(WindowTable, step, overtake)
        return warehouse.run()


def fence_settings(warehouse: Warehouse) -> list[str | None]:
    return [warehouse.spark.conf.get(name, None) for name in FENCE_SETTINGS]


def session_rows(text: str) -> list[tuple[Any, ...]]:
    table = rows(text, start=clock, end=clock, events=int, total=int)
    return [
        (r["user"], f"{r['start']:%Y-%m-%d %H:%M:%S}", f"{r['end']:%Y-%m-%d %H:%M:%S}", *list(r.values())[3:])
        for r in table
    ]


Rows = list[tuple[Any, ...]]


@cache
def content(undisturbed: Warehouse) -> tuple[Rows, Rows, Rows]:
    """Its sessions, rejected events and ledger; read once for all tests, as none of them writes to it."""
    return undisturbed.sessions_table(), undisturbed.rejected(*REJECTED), undisturbed.ledger(*LEDGER)


def assert_as_undisturbed(warehouse: Warehouse, undisturbed: Warehouse) -> None:
    sessions, rejected, ledger = content(undisturbed)
    assert warehouse.sessions_table() == sessions
    assert warehouse.rejected(*REJECTED) == rejected
    assert warehouse.ledger(*LEDGER) == ledger


# What a run does


def test_the_first_run_takes_the_source_as_it_is(after_one_run: Warehouse) -> None:
    assert after_one_run.sessions(*SESSION, version=1) == session_rows(
        """
        user | start | end   | events | total | status | end_reason
        ann  | 08:00 | 08:10 | 2      | 3     | final  | gap
        bob  | 10:50 | 10:50 | 1      | 3     | closed | gap
        bob  | 11:55 | 11:55 | 1      | 4     | open   | -
        cat  | 12:00 | 12:00 | 1      | 5     | open   | -
        """
    )


def test_an_increment_merges_extends_creates_and_rejects(after_two_runs: Warehouse) -> None:
    assert after_two_runs.sessions(*SESSION) == session_rows(
        """
        user | start | end   | events | total | status | end_reason
        ann  | 08:00 | 08:10 | 2      | 3     | final  | gap
        bob  | 10:50 | 11:55 | 4      | 9     | closed | gap
        cat  | 12:00 | 12:10 | 2      | 6     | closed | gap
        dan  | 13:00 | 13:00 | 1      | 1     | open   | -
        """
    )
    assert after_two_runs.rejected("user", "event_time", "reason", "watermark", "horizon", "source_version") == [
        ("ann", "2026-01-01 08:20:00", "late", "2026-01-01 12:00:00", "2026-01-01 11:00:00", 1),
        ("cat", None, "null_time", None, None, 0),
        (None, "2026-01-01 11:00:00", "null_key", None, None, 0),
    ]
    counts = (
        *("events_read", "accepted", "late", "invalid", "sessions_created", "sessions_extended"),
        *("sessions_merged", "sessions_closed", "sessions_finalised", "sessions_deleted", "live_sessions"),
    )
    assert after_two_runs.ledger(*counts) == [(7, 5, 0, 2, 4, 0, 0, 1, 1, 0, 3), (5, 4, 1, 0, 1, 1, 1, 1, 0, 1, 3)]


def test_a_merged_session_names_the_one_that_it_took_over(after_two_runs: Warehouse) -> None:
    before = dict(after_two_runs.sessions("session_start", "session_id", version=1))
    supersedes = {r[0]: r[1] for r in after_two_runs.sessions("session_id", "supersedes")}
    assert supersedes[before["2026-01-01 10:50:00"]] == [before["2026-01-01 11:55:00"]]
    assert [ids for ids in supersedes.values() if ids] == [[before["2026-01-01 11:55:00"]]]


def test_an_increment_leaves_the_files_of_final_rows_alone(after_one_run: Warehouse, after_two_runs: Warehouse) -> None:
    names = [{Path(f).name for f in files_of_final_rows(w)} for w in (after_one_run, after_two_runs)]
    assert names[0] == names[1]
    assert len(names[0]) == 1


def test_a_run_that_replaces_all_live_rows_leaves_the_same_as_one_that_merges(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse, before = copied(after_one_run, **REPLACING), files_of_final_rows(after_one_run)
    first = warehouse.position().run_id
    (second,) = warehouse.run()
    assert_as_undisturbed(warehouse, after_two_runs)
    (entry,) = warehouse.tables.sessions.table.history(1)
    assert (entry.operation, entry.parameters["predicate"]) == ("WRITE", "is_final = false")
    assert {Path(f).name for f in files_of_final_rows(warehouse)} == {Path(f).name for f in before}
    ids = [w.sessions(C.SESSION_ID, C.SUPERSEDES, C.STATE) for w in (warehouse, after_two_runs)]
    assert ids[0] == ids[1]
    runs = {user: first if user == "ann" else second.manifest.run_id for user in ("ann", "bob", "cat", "dan")}
    assert dict(warehouse.sessions("user", C.RUN_ID)) == runs
    assert fence_settings(warehouse) == [None] * 3


@pytest.mark.broad
def test_a_row_that_no_event_touches_keeps_its_run_where_all_live_rows_are_replaced(
    after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse = copied(after_two_runs, **REPLACING)
    before = dict(warehouse.sessions("user", C.RUN_ID))
    warehouse.append("user|at|n\ndan|13:10|1")
    (report,) = warehouse.run()
    assert dict(warehouse.sessions("user", C.RUN_ID)) == before | {"dan": report.manifest.run_id}
    assert warehouse.sessions("user", "event_count") == [("ann", 2), ("bob", 4), ("cat", 2), ("dan", 2)]


@pytest.mark.parametrize(
    ("rows_per_file", "written"),
    [(100, "WRITE"), (3, "MERGE")],  # one row changes, and there are three live ones
)
@pytest.mark.broad
def test_by_itself_a_run_merges_where_few_of_many_live_rows_change(
    after_two_runs: Warehouse, copied: Copied, monkeypatch: pytest.MonkeyPatch, rows_per_file: int, written: str
) -> None:
    monkeypatch.setattr(layout, "ROWS_PER_FILE", rows_per_file)
    warehouse = copied(after_two_runs, sessions={"commit": "auto"})
    warehouse.append("user|at|n\ndan|13:10|1")
    warehouse.run()
    assert [entry.operation for entry in warehouse.tables.sessions.table.history(1)] == [written]
    assert warehouse.sessions("user", "event_count") == [("ann", 2), ("bob", 4), ("cat", 2), ("dan", 2)]


@pytest.mark.broad
def test_final_rows_are_merged_where_live_ones_would_be_replaced(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs, **REPLACING, late_events="amend")
    warehouse.append("user|at|n\nann|08:15|1\ndan|13:10|1")
    warehouse.run()
    assert warehouse.sessions("user", "event_count") == [("ann", 3), ("bob", 4), ("cat", 2), ("dan", 2)]
    assert [entry.operation for entry in warehouse.tables.sessions.table.history(1)] == ["MERGE"]


@pytest.mark.broad
def test_a_table_of_another_layout_is_replaced_alike(spark: Any, tmp_path: Path) -> None:
    layout = {"partition_by": ["is_final", "session_date"], "deletion_vectors": True}
    total = [{"name": "to tal", "fn": "sum", "of": "n"}]  # such a name is mapped
    found = []
    for commit in ("replace", "merge"):
        sessions = {"commit": commit, **layout}
        warehouse = Warehouse(spark, tmp_path / commit, **SECTIONS | {"sessions": sessions}, aggregates=total)
        consumed(warehouse)
        found.append(warehouse.sessions_table())
    assert found[0] == found[1]
    assert len(found[0]) == 4


@pytest.mark.broad
def test_what_is_changed_by_hand_just_before_the_commit_is_not_undone(
    after_one_run: Warehouse, copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock, between the last look and Delta's transaction."""
    warehouse, original = copied(after_one_run, **REPLACING), Table.replace
    warehouse.append("user|at|n\neve|12:05|1")

    def replace(self: Table, *arguments: Any, **options: Any) -> None:
        warehouse.by_hand("DELETE FROM {} WHERE user = 'eve'")
        original(self, *arguments, **options)

    warehouse.run()
    assert "eve" in {row[0] for row in warehouse.sessions("user")}
    warehouse.append("user|at|n\ncat|12:15|1")
    monkeypatch.setattr(Table, "replace", replace)
    warehouse.run()
    assert warehouse.sessions("user", "event_count") == [("ann", 2), ("bob", 4), ("cat", 3), ("dan", 1)]


@pytest.mark.broad
def test_a_table_by_name_is_replaced_alike(
    spark: Any, after_two_runs: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE DATABASE replaced_lake LOCATION '{tmp_path}/catalog'")
    try:
        named = {"table": "replaced_lake.sessions", **REPLACING["sessions"]}
        outputs = {"rejected_events": "replaced_lake.rejected_events", "runs": "replaced_lake.runs"}
        warehouse = Warehouse(spark, tmp_path, **SECTIONS | {"sessions": named}, outputs=outputs)
        warehouse.append(FIRST_EVENTS)
        warehouse.init().run()
        table = warehouse.tables.sessions.table
        before = (table.id, table.partition_columns, table.setting("delta.enableChangeDataFeed"))
        warehouse.append(MORE_EVENTS)
        warehouse.run()
        assert warehouse.sessions_table() == content(after_two_runs)[0]
        assert [entry.operation for entry in table.history(1)] != ["MERGE"]
        assert (table.id, table.partition_columns, table.setting("delta.enableChangeDataFeed")) == before
        assert before[1:] == (["is_final"], "true")
        original = Table.replace

        def replace(self: Table, *arguments: Any, **options: Any) -> None:
            spark.sql("DELETE FROM replaced_lake.sessions WHERE user = 'bob'")
            original(self, *arguments, **options)

        monkeypatch.setattr(Table, "replace", replace)
        warehouse.append("user|at|n\ncat|12:15|1")
        warehouse.run()
        assert warehouse.sessions("user", "event_count") == [("ann", 2), ("cat", 3), ("dan", 1)]
    finally:
        spark.sql("DROP DATABASE replaced_lake CASCADE")


@pytest.mark.broad
def test_a_table_by_name_is_rebuilt_and_its_rows_are_counted(spark: Any, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE rebuilt_lake LOCATION '{tmp_path}/catalog'")
    try:
        warehouse = Warehouse(spark, tmp_path, **SECTIONS | {"sessions": {"table": "rebuilt_lake.sessions"}})
        warehouse.append(FIRST_EVENTS)
        warehouse.init().run()
        before = warehouse.sessions_table()
        report = rebuild(warehouse.kind)
        assert warehouse.sessions_table() == before
        assert report.manifest.sessions["created"] == len(before)
    finally:
        spark.sql("DROP DATABASE rebuilt_lake CASCADE")


def test_a_second_run_finds_nothing_and_leaves_no_commit(after_two_runs: Warehouse) -> None:
    before = after_two_runs.versions()
    assert after_two_runs.run() == []
    assert after_two_runs.versions() == before


def test_a_commit_leaves_no_setting_behind(after_two_runs: Warehouse) -> None:
    assert fence_settings(after_two_runs) == [None] * 3


def test_the_manifest_in_the_history_is_the_one_reported(after_two_runs: Warehouse) -> None:
    manifest = after_two_runs.position()
    assert Manifest.parse(manifest.text()) == manifest
    assert (manifest.run_seq, manifest.sessions_version, manifest.source_from_version, manifest.source_to_version) == (
        *(2, 1),
        *(1, 1),
    )
    assert (manifest.watermark_before, manifest.watermark_after) == (us(clock("12:00")), us(clock("13:00")))
    assert (manifest.horizon_before, manifest.horizon_after) == (us(clock("11:00")), us(clock("12:00")))
    assert after_two_runs.ledger("run_id")[-1] == (manifest.run_id,)


@pytest.mark.parametrize("text", [None, "", "by hand", '{"sessionizer_run": 1}', "sessionizer_run"])
def test_metadata_of_others_is_no_manifest(text: str | None) -> None:
    assert Manifest.parse(text) is None


@pytest.mark.broad
def test_the_manifest_is_found_behind_many_other_commits(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    for n in range(12):
        warehouse.tables.sessions.table.change_setting("note", str(n))
    assert warehouse.position() == after_two_runs.position()


def test_a_dry_run_shows_the_changes_and_writes_nothing(after_one_run: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_one_run)
    before = warehouse.versions()
    (report,) = warehouse.run(dry_run=True)
    assert warehouse.versions() == before
    assert counted(report) == {"events_read": 5, "accepted": 4, "late": 1}
    assert report.changes is not None
    assert warehouse.sorted_rows(report.changes.where(F.col(C.CHANGE) != "delete"), C.CHANGE, "user", "total") == [
        ("insert", "dan", 1),
        ("update", "bob", 9),
        ("update", "cat", 6),
    ]


def test_a_version_without_events_moves_the_position_alone(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    warehouse.spark.sql(f"OPTIMIZE delta.`{warehouse.config.source.table}`")
    (report,) = warehouse.run()
    assert (report.manifest.source_from_version, report.manifest.source_to_version) == (2, 2)
    assert (report.manifest.events["events_read"], report.manifest.sessions["rows"]) == (0, 0)
    assert warehouse.sessions_table() == content(after_two_runs)[0]
    assert warehouse.run() == []


def test_a_late_event_alone_moves_the_position_and_is_rejected(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    warehouse.append("user | at | n \n ann | 08:25 | 1")
    (report,) = warehouse.run()
    assert counted(report) == {"events_read": 1, "late": 1}
    assert warehouse.sessions_table() == content(after_two_runs)[0]
    assert len(warehouse.rejected("user")) == len(after_two_runs.rejected("user")) + 1


def test_a_push_without_events_is_a_run_only_where_it_moves_time(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    assert warehouse.run(override=WatermarkOverride(advance_to=us(clock("12:59")))) == []
    (flushed,) = warehouse.run(override=WatermarkOverride(flush=True))
    one_past = us(clock("13:30")) + 1
    assert (flushed.manifest.watermark_after, flushed.manifest.horizon_after) == (one_past, one_past)
    assert warehouse.sessions("user", "status", "end_reason") == [
        ("ann", "final", "gap"),
        ("bob", "final", "gap"),
        ("cat", "final", "gap"),
        ("dan", "final", "flush"),
    ]
    assert warehouse.run(override=WatermarkOverride(flush=True)) == []
    # At the mark a new session may start; one microsecond before it an event is late.
    warehouse.append([("dan", at(one_past), 1), ("dan", at(one_past - 1), 1)])
    (after,) = warehouse.run()
    assert (after.manifest.events["accepted"], after.manifest.events["late"]) == (1, 1)


# Where it begins, and how much it takes


@pytest.fixture(scope="module")
def three_versions(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Versions 0 to 2 of the source hold 1, 5 and 1 events; Spark has written the last, and says so in its way."""
    warehouse = Warehouse(spark, tmp_path_factory.mktemp("three_versions"), **SECTIONS)
    for n, size in enumerate((1, 5, 1)):
        time.sleep(0.05)  # so that the commits differ in time
        events = [("ann", clock(f"1{n}:0{i}"), 1) for i in range(size)]
        if n < 2:
            warehouse.append(events)
        else:
            warehouse.append_frame(spark.createDataFrame(events, EVENTS))
    return warehouse.init()


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        ({}, [(None, 2)]),
        ({"max_versions_per_run": 1}, [(None, 0), (1, 1), (2, 2)]),
        ({"max_versions_per_run": 2}, [(None, 0), (1, 2)]),
        ({"max_events_per_run": 2}, [(None, 0), (1, 1), (2, 2)]),  # a version beyond the limit is taken whole
        ({"max_events_per_run": 5}, [(None, 0), (1, 1), (2, 2)]),
        ({"max_events_per_run": 6}, [(None, 0), (1, 2)]),
        ({"max_events_per_run": 6, "max_versions_per_run": 1}, [(None, 0), (1, 1), (2, 2)]),
    ],
)
def test_limits_cut_the_source_into_increments(
    three_versions: Warehouse,
    after_one_run: Warehouse,
    limits: dict[str, int],
    taken: list[tuple[int | None, int]],
) -> None:
    three_versions.config = three_versions.configured(**SECTIONS, limits=limits)
    events = three_versions.tables.events
    done: Manifest | None = None
    found: list[tuple[int | None, int]] = []
    while (increment := events.plan(done, None)) is not None:
        found.append((increment.first, increment.last))
        after = {"source_id": events.table.id, "source_to_version": increment.last}
        done = after_one_run.position().model_copy(update=after)
    assert found == taken


@pytest.mark.parametrize(
    ("start", "to_version", "planned"),
    [
        ("earliest", None, Increment(None, 2)),
        ("earliest", 1, Increment(None, 1)),
        ("latest", None, Increment(3, 2)),
        ({"version": 1}, None, Increment(1, 2)),
        ({"version": 2}, None, Increment(2, 2)),
        ({"version": 3}, None, Increment(3, 2)),
        ({"version": 4}, None, None),  # not there yet: a position now would let version 3 in later
        ({"version": 2}, 0, None),
        ({"version": 1}, 1, Increment(1, 1)),
    ],
)
def test_the_very_first_run_begins_where_start_says(
    three_versions: Warehouse, start: Any, to_version: int | None, planned: Increment | None
) -> None:
    three_versions.config = three_versions.configured(**SECTIONS, source={"start": start})
    found = three_versions.tables.events.plan(None, to_version)
    assert (found and (found.first, found.last)) == (planned and (planned.first, planned.last))


def test_start_at_a_timestamp_takes_the_commits_from_it_on(three_versions: Warehouse) -> None:
    times = {e.version: e.timestamp_us for e in three_versions.tables.events.table.history()}

    def first(start: int) -> int | None:
        begin = StartTimestamp(timestamp=at(start)).model_dump()
        three_versions.config = three_versions.configured(**SECTIONS, source={"start": begin})
        planned = three_versions.tables.events.plan(None, None)
        return None if planned is None else planned.first

    assert [first(times[0] - 1), first(times[1]), first(times[1] + 1), first(times[2])] == [0, 1, 2, 2]
    assert first(times[2] + 1) is None  # nothing is there yet, and no position taken


@pytest.mark.broad
def test_a_start_that_the_log_no_longer_reaches_is_refused(three_versions: Warehouse, copied: Copied) -> None:
    """Which of the versions that it has lost came before it nobody can tell: taken for older, all would stay out."""
    warehouse = copied(three_versions)
    events = warehouse.tables.events.table
    times = {e.version: e.timestamp_us for e in events.history()}
    events.checkpoint()
    (Path(events.location) / "_delta_log" / f"{0:020}.json").unlink()
    begin = StartTimestamp(timestamp=at(times[0] - 1)).model_dump()
    warehouse.config = warehouse.configured(**SECTIONS, source={"start": begin})
    with pytest.raises(SourceError, match=r"no longer reaches back to source\.start.*\{version: 3\}"):
        warehouse.tables.events.plan(None, None)
    warehouse.config = warehouse.configured(**SECTIONS, source={"start": {"version": 3}})
    assert [report.manifest.source_to_version for report in warehouse.run()] == [2]


@pytest.mark.broad
def test_once_does_one_increment_and_without_it_all_are_done(three_versions: Warehouse, copied: Copied) -> None:
    warehouse = copied(three_versions)
    warehouse.config = warehouse.configured(**SECTIONS, limits={"max_versions_per_run": 1})
    assert [r.manifest.source_to_version for r in warehouse.run(once=True)] == [0]
    assert warehouse.run(to_version=0) == []
    assert [r.manifest.source_to_version for r in warehouse.run()] == [1, 2]
    assert warehouse.ledger("run_seq", "accepted") == [(1, 1), (2, 5), (3, 1)]


@pytest.mark.broad
def test_a_first_run_from_latest_reads_nothing_and_takes_the_position(
    three_versions: Warehouse, copied: Copied
) -> None:
    warehouse = copied(three_versions)
    warehouse.config = warehouse.configured(**SECTIONS, source={"start": "latest"})
    assert [r.manifest.events["events_read"] for r in warehouse.run()] == [0]
    warehouse.append("user | at | n \n bob | 10:00 | 1 \n bob | - | 1")
    assert [r.manifest.events["events_read"] for r in warehouse.run()] == [2]
    assert warehouse.sessions("user", "event_count") == [("bob", 1)]


# What stops it


@pytest.mark.parametrize("step", ["write", "enter"])
def test_a_run_cut_off_after_its_commit_is_finished_by_the_next(
    after_one_run: Warehouse,
    after_two_runs: Warehouse,
    copied: Copied,
    step: str,
) -> None:
    warehouse = copied(after_one_run)
    with killed_at(side_tables, step):
        warehouse.run()
    assert warehouse.sessions_table() == content(after_two_runs)[0]
    assert len(warehouse.ledger(C.RUN_ID)) == 1

    assert warehouse.run() == []
    assert f"finishing run {warehouse.position().run_id}, which was cut off after its commit" in warehouse.said
    assert_as_undisturbed(warehouse, after_two_runs)
    assert warehouse.run() == []
    assert_as_undisturbed(warehouse, after_two_runs)


def test_a_run_cut_off_before_its_commit_leaves_no_trace(after_one_run: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_one_run)
    before = warehouse.versions()
    with killed_at(WindowTable, "commit"):
        warehouse.run()
    assert warehouse.versions() == before


@pytest.mark.broad
def test_a_repair_judges_by_the_limits_of_the_run_that_it_finishes(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse = copied(after_one_run)
    with killed_at(side_tables, "write"):
        warehouse.run()
    warehouse.config = warehouse.configured(time={"allowed_lateness": "9h"})
    assert warehouse.run() == []
    assert_as_undisturbed(warehouse, after_two_runs)


# What overtakes it


def test_a_run_that_was_overtaken_starts_over(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = copied(after_one_run)
    assert run_overtaken_at("commit", warehouse, monkeypatch) == []
    assert "another run was faster: starting over from its result" in warehouse.said
    assert_as_undisturbed(warehouse, after_two_runs)
    assert fence_settings(warehouse) == [None] * 3


@pytest.mark.parametrize("sections", [{}, REPLACING], ids=["merge", "replace"])
@pytest.mark.broad
def test_the_fence_alone_stops_a_run_that_was_overtaken_after_its_last_look(
    sections: dict[str, Any],
    after_one_run: Warehouse,
    after_two_runs: Warehouse,
    copied: Copied,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a store that has no lock: the other run comes between the check and the commit."""
    warehouse = copied(after_one_run, **sections)
    monkeypatch.setattr(Table, "lock", lambda _: nullcontext())
    assert run_overtaken_at("_check_not_moved", warehouse, monkeypatch) == []
    assert "another run was faster: starting over from its result" in warehouse.said
    assert_as_undisturbed(warehouse, after_two_runs)
    assert fence_settings(warehouse) == [None] * 3


def test_a_fence_that_was_seen_writes_nothing(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    table, before = warehouse.tables.sessions.table, warehouse.versions()
    fence = Commit(f"{table.id}:sessions", warehouse.position().run_seq, "again")
    all_rows = table.read()
    table.append(all_rows, fence)
    table.replace("is_final = false", all_rows, fence)
    deletes = all_rows.withColumn(C.CHANGE, F.lit("delete"))
    with pytest.raises(Superseded):
        table.merge(deletes, "t.session_id = s.session_id", fence, delete_when="s.__change = 'delete'")
    assert warehouse.versions() == before
    assert fence_settings(warehouse) == [None] * 3


# What else happens to the tables


@pytest.mark.broad
def test_optimize_between_runs_changes_nothing(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse = copied(after_one_run)
    warehouse.append([("eve", clock("12:30"), 1)])
    warehouse.run(to_version=1)
    warehouse.by_hand("OPTIMIZE {}")
    (report,) = warehouse.run()
    assert (report.manifest.source_from_version, report.manifest.events["accepted"]) == (2, 1)
    kept = [r for r in warehouse.sessions(*SESSION) if r[0] != "eve"]
    assert kept == after_two_runs.sessions(*SESSION)


@pytest.mark.broad
def test_after_a_restore_of_sessions_the_position_follows_and_a_run_gives_the_same_tables(
    after_two_runs: Warehouse, copied: Copied
) -> None:
    """It also removes the side rows of the runs that were undone."""
    warehouse = copied(after_two_runs)
    last = warehouse.position()
    warehouse.by_hand("RESTORE TABLE {} TO VERSION AS OF 1")
    assert warehouse.position().source_to_version == 0
    (report,) = warehouse.run()
    assert report.manifest.events == last.events
    assert warehouse.sessions_table() == content(after_two_runs)[0]
    assert warehouse.rejected(*REJECTED) == content(after_two_runs)[1]
    assert warehouse.ledger("accepted", "late") == after_two_runs.ledger("accepted", "late")
    assert warehouse.run() == []


@pytest.mark.broad
def test_after_a_restore_to_before_the_first_run_all_is_read_anew(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    warehouse.by_hand("RESTORE TABLE {} TO VERSION AS OF 0")
    assert warehouse.tables.sessions.position().manifest is None
    (report,) = warehouse.run()
    # All at once nothing is late, ann's event of 08:20 neither.
    assert (report.manifest.events["accepted"], report.manifest.events["late"]) == (10, 0)


@pytest.mark.slow
def test_odd_names_paths_and_times_are_like_any_other(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "we#ird %20 ö"
    folder.mkdir()
    warehouse = Warehouse(
        spark,
        folder,
        source={"key": ["the.user", "sp ace", "select", "ß🙂"]},
        time={"allowed_lateness": "10000000d", "max_future_skew": "10000000d"},
        aggregates=[{"name": "a.b, c", "fn": "sum", "of": "`n n`"}, {"name": "from", "fn": "first", "of": "`n n`"}],
    )
    columns = "`the.user` STRING, `sp ace` INT, `select` BOOLEAN, `ß🙂` BINARY, at TIMESTAMP, `n n` INT"
    source = warehouse.tables.events.table
    source.create(spark.createDataFrame([], columns).schema, [], {})
    warehouse.init()
    for minute, n in (("00", 1), ("10", 2)):
        times = [f"{year}-01-01 10:{minute}:00" for year in ("-5000", "0001", "2026", "+12000")]
        rows = spark.createDataFrame(
            [("ann", 1, True, b"x", t, n) for t in [*times, None]],
            "a STRING, b INT, c BOOLEAN, d BINARY, t STRING, n INT",
        )
        events = rows.toDF("the.user", "sp ace", "select", "ß🙂", "at", "n n")
        events.withColumn("at", F.col("at").cast("timestamp")).write.format("delta").mode("append").save(
            source.location
        )
        assert [r.manifest.events["accepted"] for r in warehouse.run()] == [4]
    assert warehouse.sessions("the.user", "session_start", "event_count", "a.b, c", "from") == [
        ("ann", "+12000-01-01 10:00:00", 2, 3, 1),
        ("ann", "-5000-01-01 10:00:00", 2, 3, 1),
        ("ann", "0001-01-01 10:00:00", 2, 3, 1),
        ("ann", "2026-01-01 10:00:00", 2, 3, 1),
    ]
    assert warehouse.rejected("the.user", "select", "reason") == [("ann", True, "null_time")] * 2
    assert (folder / "sessions" / "_sessionizer.lock").exists()


# Real processes


@pytest.mark.slow
def test_a_process_killed_before_its_ledger_row_is_repaired(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied, tmp_path: Path
) -> None:
    warehouse = copied(after_one_run)
    with Worker(tmp_path / "log") as worker:
        worker.wait_ready().ask("run", warehouse.config, (3, False, []))
        assert worker.ended() == -9
    assert warehouse.sessions_table() == content(after_two_runs)[0]
    assert len(warehouse.ledger(C.RUN_ID)) == 1
    assert warehouse.run() == []
    assert_as_undisturbed(warehouse, after_two_runs)


@pytest.mark.slow
def test_of_two_processes_at_once_one_wins_and_the_other_starts_over(
    after_one_run: Warehouse, after_two_runs: Warehouse, copied: Copied, tmp_path: Path
) -> None:
    warehouse = copied(after_one_run)
    with Worker(tmp_path / "one.log") as one, Worker(tmp_path / "other.log") as other:
        for worker in (one.wait_ready(), other.wait_ready()):
            worker.ask("run", warehouse.config)
        assert sorted(map(str, (one.answer(), other.answer()))) == ["[4]", "[]"]
    assert_as_undisturbed(warehouse, after_two_runs)
    seen = [Manifest.parse(e.metadata) for e in warehouse.tables.sessions.table.history()]
    ids = sorted(m.run_id for m in seen if m is not None)
    assert sorted(r[0] for r in warehouse.ledger(C.RUN_ID)) == ids
    assert len(ids) == 2


@pytest.mark.parametrize(("how", "finds_a_job"), [("append", True), ("append", False), ("merge", False)])
def test_a_commit_that_somebody_interrupts_has_its_fence_or_is_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, finds_a_job: bool
) -> None:
    """Between two jobs nothing stops the statement: no setting is put back, no lock given, before it has ended."""
    if not finds_a_job:
        monkeypatch.setattr(type(spark), "interruptAll", lambda _: [])
    table = Table(spark, str(tmp_path / "table"), "sessions.table")
    table.create(spark.range(0).schema, [], {})
    slow = "IF(reflect('java.util.concurrent.locks.LockSupport', 'parkNanos', 4000000000L) = 'x', 0L, id) AS id"
    rows, commit = spark.range(1).selectExpr(slow), Commit("somebody", 1, "said")
    merge = partial(table.merge, rows, "t.id = s.id", commit, delete_when="false")
    write = merge if how == "merge" else partial(table.append, rows, commit)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own has the jobs cancelled
    alarm = threading.Timer(1.5, os.kill, [os.getpid(), signal.SIGINT])
    try:
        alarm.start()
        with pytest.raises(KeyboardInterrupt):
            write()
    finally:
        alarm.join()
        signal.signal(signal.SIGINT, before)
    entries = [entry for entry in table.history() if entry.version]
    assert [entry.metadata for entry in entries] in ([["said"], []] if finds_a_job else [["said"]])
    assert table.has_fence(commit) == bool(entries)
    assert not any(spark.conf.get(name, None) for name in FENCE_SETTINGS)
    table.append(spark.range(1), commit)
    assert table.read().count() == 1
