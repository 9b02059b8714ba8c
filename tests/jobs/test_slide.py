"""The sliding-windows job over real tables: increments, late events, corrections, cut-off runs, look-ups."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.queries.changes import Asked
from sessionizer.jobs.queries.changes_duckdb import changes
from sessionizer.jobs.queries.lookups import WindowLookUp, as_documents, look_up
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.jobs.run.driver import slide as slide_windows
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib import columns as C
from sessionizer.lib.errors import ConfigError, RunFailed, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.queries.status import read_local_status, read_status, read_totals
from sessionizer.tables.rejected_events import RejectedEvents
from tests.kills import killed_at
from tests.oracle import us
from tests.sliding_oracle import windows
from tests.sliding_replay import in_micros
from tests.text_tables import clock, rows
from tests.warehouse import NOW, Warehouse

MINUTE = 60_000_000
D, U = 10 * MINUTE, 1_000
FIRST = """
    user | at    | n
    ann  | 08:00 | 1
    ann  | 08:04 | 2
    ann  | 08:12 | 3
    bob  | 08:00 | 4
    bob  | 08:00 | 5
    -    | 08:01 | 6
    ann  | 09:00 | 7
    """
# The horizon is 08:30 when these come: ann's of 08:40 is late within grace, that of 08:06 too late.
SECOND = """
    user | at    | n
    ann  | 08:40 | 8
    ann  | 08:06 | 9
    bob  | 09:05 | 10
    """


def warehouse(spark: SparkSession, folder: Path, sliding: dict[str, Any] | None = None, **sections: Any) -> Warehouse:
    described = {"table": str(folder / "windows"), "time_difference": "10m", "grace": "30m"}
    aggregates = [{"name": "total", "fn": "sum", "of": "n"}, {"name": "members", "fn": "set", "of": "n"}]
    return Warehouse(spark, folder, sliding=described | {"aggregates": aggregates} | (sliding or {}), **sections)


def slide(of: Warehouse, **options: Any) -> list[RunReport]:
    return slide_windows(of.spark, of.config, RunOptions(**{"now": NOW} | options), of.said.append)


def found(of: Warehouse) -> dict[Any, list[int]]:
    columns = ("user", C.WINDOW_START, "members", C.EVENT_COUNT, "total", C.WINDOW_END)
    found = {}
    for user, start, members, count, total, end in in_micros(of.tables.windows.table.read(), *columns).collect():
        assert (user, start) not in found
        assert (len(members), sum(members), start + D) == (count, total, end)
        found[user, start] = list(members)
    return found


def definition(*tables: str, without: tuple[int, ...] = ()) -> dict[Any, list[int]]:
    events = [row for table in tables for row in rows(table, at=clock, n=int) if row["user"] is not None]
    kept = [(e["user"], us(e["at"]), e["n"]) for e in events if e["n"] not in without]
    return {window: sorted(values) for window, values in windows(kept, D, U).items()}


def rejected(of: Warehouse) -> list[tuple[Any, ...]]:
    return of.sorted_rows(of.tables.rejected_window_events.table.read(), "user", C.EVENT_TIME, C.REASON)


@pytest.fixture(scope="module")
def after_two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, Any, Any]:
    lake = warehouse(spark, tmp_path_factory.mktemp("lake"))
    lake.append(FIRST)
    lake.init()
    first = slide(lake)
    lake.append(SECOND)
    return lake, first, slide(lake)


def test_increments_make_the_windows_of_the_accepted_events(after_two_runs: tuple[Warehouse, Any, Any]) -> None:
    lake, [first], [second] = after_two_runs
    assert found(lake) == definition(FIRST, SECOND, without=(9,))
    assert first.manifest.events["accepted"] == 6
    assert {n: second.manifest.events[n] for n in ("events_read", "late")} == {"events_read": 3, "late": 1}
    # ann's of 09:00 moved the watermark: only what is around 08:40 and 09:05 is written again.
    assert second.manifest.sessions["created"] == len(definition(FIRST, SECOND, without=(9,))) - len(definition(FIRST))
    assert second.manifest.sessions["updated"] == second.manifest.sessions["finalised"]
    assert slide(lake) == []


def test_rejected_events_say_why(after_two_runs: tuple[Warehouse, Any, Any]) -> None:
    lake, _, _ = after_two_runs
    assert rejected(lake) == [
        ("ann", "2026-01-01 08:06:00", "late"),
        (None, "2026-01-01 08:01:00", "null_key"),
    ]


def test_final_results_and_every_change_are_two_reads(after_two_runs: tuple[Warehouse, Any, Any]) -> None:
    lake, [first], [second] = after_two_runs
    final = query_frame(lake.spark, lake.config, "SELECT * FROM final_windows")
    horizon = clock("09:05").replace(tzinfo=None)
    assert final.where(C.col(C.WINDOW_END) >= F.lit(horizon) - F.expr("INTERVAL 30 MINUTES")).count() == 0
    assert final.count() == lake.tables.windows.table.read().where(C.IS_FINAL).count() > 0
    each_once = final.groupBy("user", C.WINDOW_START).count().where("count > 1")
    assert each_once.count() == 0
    feed = lake.tables.windows.table.changes(0, lake.tables.windows.table.version)
    assert {row[0] for row in feed.select(C.RUN_ID).distinct().collect()} >= {
        first.manifest.run_id,
        second.manifest.run_id,
    }


def test_look_ups_go_forward_and_backward(after_two_runs: tuple[Warehouse, Any, Any]) -> None:
    lake, _, _ = after_two_runs
    asked = WindowLookUp(key=("ann",), start_from=us(clock("07:50")), start_to=us(clock("08:02")))
    starts = [row[C.WINDOW_START] for row in as_documents(lake.tables, asked)]
    wanted = sorted(s for user, s in definition(FIRST) if user == "ann" and s <= us(clock("08:02")))
    assert [us(clock(s[11:-1])) for s in starts] == wanted
    backward = as_documents(lake.tables, replace(asked, backward=True, limit=2))
    assert [row[C.WINDOW_START] for row in backward] == starts[::-1][:2]


def test_a_version_of_the_windows_that_is_not_there_is_an_error(after_two_runs: tuple[Warehouse, Any, Any]) -> None:
    tables = after_two_runs[0].tables
    with pytest.raises(UsageError, match=r"has no such version, its latest is \d+: got 99"):
        look_up(tables, WindowLookUp(version=99))


@pytest.mark.broad
def test_a_flush_makes_all_windows_final(after_two_runs: tuple[Warehouse, Any, Any], spark: SparkSession) -> None:
    lake, _, _ = after_two_runs
    before = found(lake)
    version = lake.tables.windows.table.version
    [dry] = slide(lake, override=WatermarkOverride(flush=True), dry_run=True)
    assert lake.tables.windows.table.version == version
    assert dry.manifest.live_sessions == 0
    [report] = slide(lake, override=WatermarkOverride(flush=True))
    assert report.manifest.sessions["updated"] == report.manifest.sessions["finalised"] > 0
    assert found(lake) == before
    assert lake.tables.windows.table.read().where(~C.col(C.IS_FINAL)).count() == 0


@pytest.mark.slow
def test_corrections_recompute_the_windows_they_touch(spark: SparkSession, tmp_path: Path) -> None:
    lake = warehouse(spark, tmp_path)
    lake.append(FIRST)
    lake.init()
    slide(lake)
    lake.append(SECOND)
    slide(lake)
    source = lake.tables.events.table
    spark.sql(f"DELETE FROM delta.`{source.location}` WHERE n IN (2, 5, 9)")  # 9 is late, and rejected
    spark.sql(f"UPDATE delta.`{source.location}` SET at = at + INTERVAL 3 MINUTES WHERE n = 3")
    [report] = slide(lake)
    moved = FIRST.replace("08:12 | 3", "08:15 | 3")
    assert found(lake) == definition(moved, SECOND, without=(2, 5, 9))
    assert rejected(lake) == [(None, "2026-01-01 08:01:00", "null_key")]
    assert report.manifest.sessions["deleted"] > 0
    assert (report.manifest.events["withdrawn"], report.manifest.events["forgotten"]) == (3, 1)
    spark.sql(f"DELETE FROM delta.`{source.location}` WHERE user IS NULL OR user = 'bob'")
    slide(lake)
    assert found(lake) == definition(moved, SECOND, without=(2, 4, 5, 9, 10))
    assert rejected(lake) == []


@pytest.mark.slow
def test_amend_takes_late_events_into_final_windows(spark: SparkSession, tmp_path: Path) -> None:
    lake = warehouse(spark, tmp_path, late_events="amend")
    lake.append(FIRST)
    lake.init()
    slide(lake)
    lake.append(SECOND)
    [report] = slide(lake)
    assert found(lake) == definition(FIRST, SECOND)
    assert report.manifest.events["amended"] == 1
    assert rejected(lake) == [(None, "2026-01-01 08:01:00", "null_key")]


@pytest.mark.slow
def test_a_run_that_was_cut_off_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = warehouse(spark, tmp_path, {"lateness": "session"})
    lake.append(FIRST)
    lake.init()
    slide(lake)
    lake.append(SECOND)

    with killed_at(RejectedEvents, "write"):
        slide(lake)
    assert len(rejected(lake)) == 1
    assert slide(lake) == []
    assert rejected(lake)[0] == ("ann", "2026-01-01 08:06:00", "late")
    assert len(rejected(lake)) == 2
    # Of two runs from one version the slower one starts over.
    with monkeypatch.context() as patched:
        lake.append([("ann", clock("09:06"), 11)])
        commit = lake.tables.windows.__class__.commit
        raced: list[int] = []

        def race(self: Any, changes: Any, manifest: Any, *rest: Any, **named: Any) -> Any:
            if not raced:
                raced.append(manifest.run_seq)
                slide(lake)
            return commit(self, changes, manifest, *rest, **named)

        patched.setattr(lake.tables.windows.__class__, "commit", race)
        assert slide(lake) == []
    assert "another run was faster: starting over from its result" in lake.said
    added = "user | at | n\n ann | 09:06 | 11"
    assert found(lake) == definition(FIRST, SECOND, added, without=(9,))


@pytest.mark.broad
def test_what_may_not_go_on_stops_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    lake = warehouse(spark, tmp_path, late_events="fail")
    lake.append(FIRST)
    lake.init()
    slide(lake)
    lake.append(SECOND)
    version = lake.tables.windows.table.version
    with pytest.raises(RunFailed, match=r"1 event is late, and late_events is fail; the first: late: .*\"n\":9"):
        slide(lake)
    lake.config = warehouse(spark, tmp_path, {"time_difference": "5m"}).config
    with pytest.raises(ConfigError, match="time_difference: '10m0s' → '5m0s'"):
        slide(lake)
    assert lake.tables.windows.table.version == version
    with pytest.raises(ConfigError, match="the config has no sliding windows"):
        slide_windows(spark, Warehouse(spark, tmp_path).config, RunOptions())


@pytest.mark.broad
def test_aggregates_of_windows_may_be_called_as_columns_of_sessions_are(spark: SparkSession, tmp_path: Path) -> None:
    named = [{"name": name, "fn": "sum", "of": "n"} for name in ("status", "session_start", "session_end")]
    lake = warehouse(spark, tmp_path, {"aggregates": [*named, {"name": "more", "sql": "status + 1"}]})
    lake.append(FIRST)
    lake.init()
    slide(lake)
    by_one = read_local_status(LocalTableSet(lake.config), 1)["windows"]
    by_other = read_status(lake.tables, 1)["windows"]
    assert (by_one.by_status, by_one.oldest) == (by_other.by_status, by_other.oldest)
    totals = read_totals(lake.tables.windows, lake.tables.window_runs, lake.tables.events.tables)
    assert (totals.oldest, totals.keys, totals.idle_keys) == (by_one.oldest, 1, 0)
    assert set(by_one.by_status) == {"open", "final"}


@pytest.mark.broad
def test_what_is_hidden_of_sessions_is_shown_and_compared_where_it_is_an_aggregate_of_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    named = [{"name": name, "fn": "sum", "of": "n"} for name in ("supersedes", "end_reason", "is_late")]
    lake = warehouse(spark, tmp_path, {"aggregates": named})
    lake.append(FIRST)
    lake.init()
    slide(lake)
    _, shown = changes(lake.config, Asked("complete"), windows=True, whole=False)
    assert {"supersedes", "end_reason", "is_late", "is_final"} < set(shown.names)
    other = [*named[1:], named[0] | {"of": "n + 1"}]
    anew = warehouse(spark, tmp_path, {"aggregates": other})
    assert plan(anew.windows, print).total("changes") > 0
