"""Corrections, backfill, readmit, rebuild and verify over real tables: the table equals a full recompute, always."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.reporting.run_output import as_row, show_backfill
from sessionizer.jobs.run import side_tables
from sessionizer.lib.errors import ConfigError, RunFailed, SourceError, TableError
from tests.kills import killed_at
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import NOW, Warehouse

SHAPE = ("user", "session_start", "session_end", "event_count", "total", "status")
MORNING = """
    user | at       | n
    ann  | 10:00    | 1
    ann  | 10:20    | 2
    ann  | 10:40    | 3
    bob  | 10:10    | 10
    cyd  | +1d 9:00 | 7
"""


TRACED = ("event_sessions", "session_updates")
Made = Callable[..., Warehouse]
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def after_morning(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """The folder of a warehouse that has consumed MORNING, with or without the tables that trace events."""
    folders: dict[bool, Path] = {}

    def folder_of(traces: bool) -> Path:
        if traces not in folders:
            folders[traces] = tmp_path_factory.mktemp("after_morning")
            warehouse = Warehouse(spark, folders[traces], **sections_of(folders[traces], traces))
            warehouse.append(MORNING)
            warehouse.init().run()
        return folders[traces]

    return folder_of


@pytest.fixture
def made(spark: SparkSession, after_morning: Callable[[bool], Path], tmp_path: Path) -> Made:
    """A copy of it, to be changed by one test, under a config of its own."""

    def make(*, traces: bool = False, **sections: Any) -> Warehouse:
        shutil.copytree(after_morning(traces), tmp_path / "copy")
        return Warehouse(spark, tmp_path / "copy", **sections_of(tmp_path / "copy", traces), **sections)

    return make


def sections_of(folder: Path, traces: bool) -> dict[str, Any]:
    outputs = {name: str(folder / name) for name in TRACED} if traces else {}
    return {"time": {"allowed_lateness": "1h"}, "outputs": outputs}


def at(text: str) -> int:
    return us(clock(text))


def assert_right(warehouse: Warehouse) -> None:
    verdict = verify(warehouse.spark, warehouse.config, Asked())
    assert verdict.clean, verdict


def shape(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return [(u, s[11:16], e[11:16], n, t, status) for u, s, e, n, t, status in warehouse.sessions(*SHAPE)]


def traced(warehouse: Warehouse) -> list[str]:
    return [str(warehouse.folder / name) for name in TRACED]


@pytest.mark.broad
@pytest.mark.parametrize("traces", [False, True])
def test_updates_and_deletes_of_the_source_recompute_final_sessions(
    spark: SparkSession, made: Made, traces: bool
) -> None:
    warehouse = made(traces=traces)
    assert shape(warehouse)[0] == ("ann", "10:00", "10:40", 3, 6, "final")
    warehouse.delta_source().delete("user = 'ann' AND n = 2")
    warehouse.delta_source().update("user = 'bob'", {"user": "'ann'"})
    report = warehouse.run()[-1]
    assert shape(warehouse) == [
        ("ann", "10:00", "10:10", 2, 11, "final"),
        ("ann", "10:40", "10:40", 1, 3, "final"),
        ("cyd", "09:00", "09:00", 1, 7, "open"),
    ] or shape(warehouse)[0][:5] == ("ann", "10:00", "10:40", 3, 14)
    assert report.manifest.events["corrected"] == 1
    assert report.manifest.events["withdrawn"] == 2
    assert_right(warehouse)
    ids = {row[0] for row in warehouse.sessions("session_id")}
    for place in traced(warehouse) if traces else ():
        rows = spark.read.format("delta").load(place)
        assert {r[0] for r in rows.select("session_id").collect()} == ids
        assert rows.count() == 4


@pytest.mark.slow
def test_erasing_a_user_erases_all_that_is_known_of_them(spark: SparkSession, made: Made) -> None:
    warehouse = made(traces=True)
    warehouse.append([("ann", clock("7:00"), 9)])
    warehouse.run()
    assert [r[0] for r in warehouse.rejected("user")] == ["ann"]
    warehouse.delta_source().delete("user = 'ann'")
    warehouse.run()
    places = [warehouse.config.sessions.table, warehouse.config.outputs.rejected_events, *traced(warehouse)]
    for place in places:
        assert spark.read.format("delta").load(place).where("user = 'ann'").count() == 0
    assert_right(warehouse)


@pytest.mark.slow
def test_an_overwrite_and_a_merge_of_the_source_are_corrections_too(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    new = spark.createDataFrame(
        [("ann", clock("10:00"), 5), ("dan", clock("8:00"), 1)], "user STRING, at TIMESTAMP, n INT"
    )
    warehouse.delta_source().alias("t").merge(
        new.alias("s"), "t.user = s.user AND t.at = s.at"
    ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    warehouse.run()
    assert shape(warehouse)[0] == ("ann", "10:00", "10:40", 3, 10, "final")
    assert_right(warehouse)
    new.write.format("delta").mode("overwrite").save(warehouse.config.source.table)
    warehouse.run()
    assert_right(warehouse)
    assert [row[0] for row in shape(warehouse)] == ["ann"]


def test_corrections_stop_the_run_where_the_rule_says_so(made: Made) -> None:
    warehouse = made(corrections="fail")
    warehouse.delta_source().delete("n = 2")
    before = warehouse.versions()
    with pytest.raises(SourceError, match="update or delete rows, and corrections is fail"):
        warehouse.run()
    assert warehouse.versions() == before


@pytest.mark.broad
def test_a_late_event_that_is_gone_again_stays_in_its_session_where_deletes_are_quarantined(made: Made) -> None:
    warehouse = made(late_events="amend", corrections="quarantine")
    warehouse.append([("ann", clock("10:50"), 4)])
    warehouse.delta_source().delete("n = 4")
    told = [(report.manifest.rejected, report.manifest.sessions["rows"]) for report in warehouse.run()]
    assert told == [({}, 1), ({"correction": 1}, 0)]
    assert ("ann", "10:00", "10:50", 4, 10, "final") in shape(warehouse)
    assert verify(warehouse.spark, warehouse.config, Asked()).clean


@pytest.mark.slow
def test_late_events_are_quarantined_then_readmitted(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    warehouse.append([("ann", clock("10:50"), 4), ("bob", clock("9:00"), 5), ("eve", clock("11:00"), 6)])
    warehouse.run()
    assert_right(warehouse)
    assert len(warehouse.rejected("user")) == 3
    first = readmit(warehouse.kind, LookBack(at("10:45"), at("12:00"), now=NOW))
    assert [r.manifest.mode for r in first] == ["readmit"]
    assert warehouse.rejected("user") == [("bob",)]
    assert ("ann", "10:00", "10:50", 4, 10, "final") in shape(warehouse)
    assert ("eve", "11:00", "11:00", 1, 6, "final") in shape(warehouse)
    assert_right(warehouse)
    readmit(warehouse.kind, LookBack(0, at("+9d 0:00"), now=NOW))
    assert warehouse.rejected("user") == []
    assert readmit(warehouse.kind, LookBack(0, at("+9d 0:00"), now=NOW)) == []
    assert_right(warehouse)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("amend", marks=pytest.mark.broad),
        "fail",
        pytest.param("drop", marks=pytest.mark.slow),
        pytest.param("separate", marks=pytest.mark.slow),
    ],
)
def test_every_late_policy_keeps_the_table_right(made: Made, policy: str) -> None:
    warehouse = made(traces=True, late_events=policy)
    warehouse.append([("ann", clock("10:50"), 4), ("ann", clock("10:55"), 5), ("cyd", clock("+1d 9:10"), 1)])
    if policy == "fail":
        before = warehouse.versions()
        with pytest.raises(RunFailed, match="2 events are late, and late_events is fail"):
            warehouse.run()
        assert warehouse.versions() == before
        return
    report = warehouse.run()[-1]
    anns = [row[1:] for row in shape(warehouse) if row[0] == "ann"]
    kept = warehouse.rejected("user", "event")
    if policy == "amend":
        assert anns == [("10:00", "10:55", 5, 15, "final")]
        assert (kept, report.manifest.events["amended"], report.manifest.events["accepted"]) == ([], 2, 3)
    if policy == "drop":
        assert anns == [("10:00", "10:40", 3, 6, "final")]
        assert kept == [("ann", None), ("ann", None)]
    if policy == "separate":
        assert anns == [("10:00", "10:40", 3, 6, "final"), ("10:50", "10:55", 2, 9, "final")]
        assert [row[0] for row in warehouse.sessions("is_late")].count(True) == 1
    assert_right(warehouse)


@pytest.mark.broad
def test_invalid_events_can_be_dropped_or_stop_the_run(made: Made) -> None:
    warehouse = made(invalid_events="drop")
    warehouse.append([(None, clock("+1d 9:10"), 4)])
    warehouse.run()
    assert warehouse.rejected("reason", "event") == [("null_key", None)]
    warehouse.append([(None, clock("+1d 9:11"), 4)])
    with pytest.raises(RunFailed, match="1 event is invalid"):
        warehouse.run(warehouse.configured(invalid_events="fail", time={"allowed_lateness": "1h"}))


def test_backfill_takes_late_events_of_its_span_in_and_moves_nothing(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    warehouse.append([("ann", clock("10:50"), 4), ("bob", clock("9:00"), 5)])
    warehouse.run()
    before = warehouse.position()
    (report,) = backfill(warehouse.kind, LookBack(at("10:00"), at("11:00"), now=NOW))
    after = warehouse.position()
    assert (after.watermark_after, after.source_to_version) == (before.watermark_after, before.source_to_version)
    assert warehouse.ledger("mode", "source_from_version", "source_to_version")[-1] == ("backfill", None, 1)
    assert report.manifest.sessions["updated"] == 1
    assert warehouse.rejected("user") == [("bob",)]
    assert ("ann", "10:00", "10:50", 4, 10, "final") in shape(warehouse)
    assert_right(warehouse)


@pytest.mark.broad
def test_a_session_that_begins_earlier_is_told_as_changed_and_not_as_one_more_and_one_less(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger counts it as extended; of the rows one comes and one goes, as the id follows the start."""
    warehouse = made()
    warehouse.append([("bob", clock("10:00"), 4), ("dan", clock("10:00"), 5)])
    warehouse.run()
    (report,) = backfill(warehouse.kind, LookBack(at("9:00"), at("11:00"), now=NOW))
    counted = report.manifest.sessions
    assert [counted[name] for name in ("created", "extended", "merged", "split", "deleted")] == [1, 1, 0, 0, 1]
    assert counted["finalised"] == 1  # bob's was final before
    row = as_row(report)
    assert [row[name] for name in ("rows_added", "rows_changed", "rows_removed")] == [2, 0, 1]
    capsys.readouterr()
    show_backfill([report])
    heads, values = (line for line in capsys.readouterr().out.splitlines() if "added" in line or " - " in line)
    told = dict(zip(heads.split()[2:5], values.split()[-5:-2], strict=True))
    assert told == {"added": "1", "changed": "1", "removed": "0"}
    assert_right(warehouse)


@pytest.mark.broad
def test_a_backfill_that_is_tried_writes_nothing_and_one_that_is_repeated_changes_nothing(
    spark: SparkSession, made: Made
) -> None:
    warehouse = made()
    warehouse.append([("ann", clock("10:50"), 4), ("bob", clock("9:00"), 5)])
    warehouse.run()
    versions = warehouse.versions()
    look = LookBack(at("10:00"), at("11:00"), now=NOW)
    tried = backfill(warehouse.kind, replace(look, dry_run=True))
    assert [r.manifest.sessions["updated"] for r in tried] == [1]
    assert warehouse.versions() == versions
    assert [r.manifest.sessions["updated"] for r in backfill(warehouse.kind, look)] == [1]
    assert [r.manifest.sessions["rows"] for r in backfill(warehouse.kind, look)] == [0]
    warehouse.append([("ann", clock("9:30"), 4)])
    with killed_at(side_tables, "write"):
        warehouse.run()
    cut_off = warehouse.versions()
    with pytest.raises(TableError, match="nobody can tell what would be"):
        readmit(warehouse.kind, LookBack(at("9:00"), at("11:00"), now=NOW, dry_run=True))
    assert warehouse.versions() == cut_off


@pytest.mark.slow
def test_backfill_mends_what_was_put_in_by_hand_of_the_keys_asked_for(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    warehouse.delta().update("user IN ('ann', 'bob')", {"total": "total + 1"})
    keys = ('{"user": "ann"}',)
    backfill(warehouse.kind, LookBack(at("0:00"), at("+1d 0:00"), keys, now=NOW))
    assert not verify(spark, warehouse.config, Asked()).clean
    backfill(warehouse.kind, LookBack(at("0:00"), at("+1d 0:00"), now=NOW))
    assert_right(warehouse)


@pytest.mark.slow
def test_a_changed_rule_stops_the_run_and_rebuild_goes_on_by_the_new_one(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    warehouse.append([("ann", clock("10:50"), 4)])
    warehouse.run()
    old = warehouse.sessions_table()
    version = warehouse.tables.sessions.table.version
    aggregates = [{"name": "total", "fn": "sum", "of": "n"}, {"name": "least", "fn": "min", "of": "n"}]
    kept = warehouse.config
    warehouse.config = warehouse.configured(
        session={"gap": "15m"}, time={"allowed_lateness": "1h"}, aggregates=aggregates
    )
    with pytest.raises(ConfigError, match=r"gap: '30m0s' → '15m0s'[^`]*`sessionizer rebuild`"):
        warehouse.run()
    report = rebuild(warehouse.kind, now=NOW)
    assert report.manifest.mode == "rebuild"
    assert [row for row in shape(warehouse) if row[0] == "ann"] == [
        ("ann", "10:00", "10:00", 1, 1, "final"),
        ("ann", "10:20", "10:20", 1, 2, "final"),
        ("ann", "10:40", "10:50", 2, 7, "final"),
    ]
    assert warehouse.rejected("user") == []
    assert_right(warehouse)
    warehouse.append([("cyd", clock("+1d 9:05"), 4)])
    warehouse.run()
    assert_right(warehouse)
    warehouse.config = kept
    warehouse.delta().restoreToVersion(version)
    assert warehouse.sessions_table() == old
    warehouse.run()
    assert ("cyd", "09:00", "09:05", 2, 11, "open") in shape(warehouse)
    assert [row[0] for row in warehouse.rejected("user")] == ["ann"]
    assert_right(warehouse)


def duplicate(warehouse: Warehouse) -> None:
    table = warehouse.tables.sessions.table.read().where(ANN)
    table.write.format("delta").mode("append").save(warehouse.config.sessions.table)


ANN = "user = 'ann'"
PUT_IN: dict[str, Callable[[Warehouse], Any]] = {
    "a deleted row": lambda w: w.delta().delete(ANN),
    "a changed aggregate": lambda w: w.delta().update(ANN, {"total": "total + 1"}),
    "a split session": lambda w: w.delta().update(
        ANN, {"session_end": "session_end - INTERVAL 20 MINUTES", "event_count": "2"}
    ),
    "a duplicated row": duplicate,
    "a shifted start": lambda w: w.delta().update(ANN, {"session_start": "session_start + INTERVAL 1 MICROSECOND"}),
}
QUICK = ("a changed aggregate",)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in QUICK else SLOW) for k in PUT_IN])
def test_verify_finds_what_was_put_in_by_hand(made: Made, kind: str) -> None:
    warehouse = made()
    right = warehouse.tables.sessions.table.version
    PUT_IN[kind](warehouse)
    assert not verify(warehouse.spark, warehouse.config, Asked()).clean
    warehouse.delta().restoreToVersion(right)
    assert_right(warehouse)


@pytest.mark.slow
def test_verify_looks_at_the_span_that_it_is_asked_for(spark: SparkSession, made: Made) -> None:
    warehouse = made()
    warehouse.delta().update("user = 'cyd'", {"total": "total + 1"})
    day_one = verify(spark, warehouse.config, Asked(at("0:00"), at("+1d 0:00")))
    assert (day_one.clean, day_one.sessions, day_one.events) == (True, 2, 4)
    day_two = verify(spark, warehouse.config, Asked(at("+1d 0:00"), at("+2d 0:00")))
    assert (day_two.differing, [row["columns"] for row in day_two.wrong]) == (1, [["total"]])
