"""The command `changes`: consumers that follow the sessions table, in every mode, through all that happens to it."""

import csv
import io
import json
import random
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main
from sessionizer.jobs.commands.look_back import rebuild
from sessionizer.jobs.queries import changes_duckdb, sql_duckdb
from sessionizer.jobs.queries.changes import Asked, changes, document
from sessionizer.jobs.queries.sql import documents, query_frame
from sessionizer.lib import columns as C
from sessionizer.lib.errors import SessionizerError, TableError, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.delta import CHANGE_FEED
from sessionizer.tables.queries.history import History
from sessionizer.tables.queries.local import NeedsSpark
from tests.text_tables import DAY
from tests.warehouse import Warehouse

SEED, RUNS, EVENTS_A_RUN = 11, 10, 12
Row = dict[str, Any]


class Consumer:
    """Keeps a copy of the sessions by `changes --mode update`, and a list by `--mode append`; remembers one run."""

    def __init__(self, warehouse: Warehouse, *, by_hand: bool = False) -> None:
        """by_hand: rows are changed by hand behind a run, and so may be told though the copy has them so already."""
        self.warehouse = warehouse
        self.by_hand = by_hand
        self.copy: dict[str, Row] = {}
        self.finals: list[str] = []
        self.seen = "0"

    def catch_up(self) -> None:
        kind = self.warehouse.kind
        updates = document(kind, Asked("update", since_run=self.seen))
        self.finals += [row["session_id"] for row in document(kind, Asked("append", since_run=self.seen))["rows"]]
        for row in updates["rows"]:
            change = row.pop("change")
            assert self.by_hand or (row["session_id"] in self.copy) == (change != "insert")
            if change == "delete":
                self.copy.pop(row["session_id"], None)
            else:
                self.copy[row["session_id"]] = row
        self.seen = updates["last_run"] or "0"

    def has_the_table(self) -> bool:
        return self.copy == {row["session_id"]: row for row in table(self.warehouse)}


def table(warehouse: Warehouse, version: int | None = None) -> list[Row]:
    return documents(warehouse.tables.sessions.table.read(version).drop(C.STATE))


def day_of_clicks(chance: random.Random, hour: int) -> list[tuple[Any, ...]]:
    """Events of about this hour, some up to four hours late: they bridge sessions, or are rejected."""
    minutes = [60 * hour + chance.randint(-240 if chance.random() < 0.4 else 0, 59) for _ in range(EVENTS_A_RUN)]
    return [(chance.choice("abc"), DAY + timedelta(minutes=m), chance.randint(1, 9)) for m in minutes]


@pytest.mark.slow
def test_consumers_end_with_what_the_table_holds(spark: SparkSession, tmp_path: Path) -> None:
    chance, lateness = random.Random(SEED), {"time": {"allowed_lateness": "3h"}}
    warehouse = Warehouse(spark, tmp_path, **lateness)
    consumer = Consumer(warehouse)
    for hour in range(RUNS):
        warehouse.append(day_of_clicks(chance, 10 + hour))
        if hour == 0:
            warehouse.init()
            consumer.catch_up()  # no run yet: nothing to tell
            assert (consumer.seen, consumer.copy) == ("0", {})
        warehouse.run(warehouse.configured(**lateness, sessions={"commit": ("merge", "replace")[hour % 2]}))
        if hour == 6:
            warehouse.delta().optimize().executeCompaction()
        if chance.random() < 0.5:
            consumer.catch_up()
    warehouse.run(override=WatermarkOverride(flush=True))
    consumer.catch_up()
    lively = warehouse.ledger("sessions_merged", "sessions_deleted", "late")
    assert all(sum(counts) > 0 for counts in zip(*lively, strict=True))
    assert consumer.has_the_table()
    assert sorted(consumer.finals) == sorted(consumer.copy)  # each final session, once
    assert len(consumer.finals) > 10
    consumer.catch_up()
    assert sorted(consumer.finals) == sorted(consumer.copy)


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three runs (versions 1 to 3): two sessions; the second bridges ann's, ends bob's; the third ends ann's."""
    made = Warehouse(spark, tmp_path_factory.mktemp("changes"), time={"allowed_lateness": "1h"})
    text = "source: {{table: {0}/events, key: [user], event_time: at}}\nsessions: {{table: {0}/sessions}}\n"
    (made.folder / "sessionizer.yaml").write_text(text.format(made.folder) + "session: {gap: 30m}\n")
    made.append("user|at|n\nann|10:00|1\nann|10:50|1\nbob|10:00|1")
    made.init().run()
    made.append("user|at|n\nann|10:25|1\nbob|12:00|1")
    made.run()
    made.append("user|at|n\nbob|14:00|1")
    made.run()
    return made


def told(warehouse: Warehouse, mode: str, **which: str) -> list[str]:
    """Rows as `change user start`, in order."""
    rows = document(warehouse.kind, Asked(mode, **which))["rows"]
    return [f"{row.get('change', '')} {row['user']} {row['session_start'][11:16]}".strip() for row in rows]


def test_what_one_run_has_done(warehouse: Warehouse) -> None:
    assert told(warehouse, "update", run="1") == ["insert ann 10:00", "insert ann 10:50", "insert bob 10:00"]
    second = ["delete ann 10:50", "update ann 10:00", "update bob 10:00", "insert bob 12:00"]
    assert sorted(told(warehouse, "update", run="2")) == sorted(second)
    last = ["update ann 10:00", "update bob 12:00", "insert bob 14:00"]
    assert told(warehouse, "update") == told(warehouse, "update", run="3") == last
    assert told(warehouse, "append") == ["ann 10:00", "bob 12:00"]
    assert told(warehouse, "append", run="2") == ["bob 10:00"]
    assert told(warehouse, "append", run="1") == []
    assert told(warehouse, "complete", run="1") == ["ann 10:00", "ann 10:50", "bob 10:00"]
    assert told(warehouse, "complete") == ["ann 10:00", "bob 10:00", "bob 12:00", "bob 14:00"]


def test_what_all_runs_after_one_have_done(warehouse: Warehouse) -> None:
    since_first = document(warehouse.kind, Asked("update", since_run="1"))
    assert since_first["last_run_seq"] == 3
    assert since_first["last_run"] == warehouse.position().run_id
    changes_of = {row["session_start"][11:16] + row["user"]: row["change"] for row in since_first["rows"]}
    assert changes_of == {
        "10:00ann": "update",
        "10:50ann": "delete",
        "10:00bob": "update",
        "12:00bob": "insert",
        "14:00bob": "insert",
    }
    assert told(warehouse, "append", since_run="0") == ["ann 10:00", "bob 10:00", "bob 12:00"]
    for mode in ("append", "update"):
        assert told(warehouse, mode, since_run=since_first["last_run"]) == []


def test_views_for_the_same(warehouse: Warehouse) -> None:
    def ask(query: str) -> list[tuple[Any, ...]]:
        return [tuple(r) for r in query_frame(warehouse.spark, warehouse.config, query).collect()]

    assert ask("SELECT user FROM final_sessions WHERE run_seq > 1 ORDER BY session_end") == [
        ("bob",),
        ("ann",),
        ("bob",),
    ]
    assert ask("SELECT user FROM live_sessions") == [("bob",)]
    by_version = "SELECT sessions_version, change, count(*) FROM session_changes GROUP BY 1, 2 ORDER BY 1, 2"
    assert ask(by_version) == [
        (1, "insert", 3),
        (2, "delete", 1),
        (2, "insert", 1),
        (2, "update", 2),
        (3, "insert", 1),
        (3, "update", 2),
    ]
    numbered = "SELECT user, session_number, is_new_visitor, hour(previous_session_end) FROM numbered_sessions"
    assert ask(f"{numbered} ORDER BY user, session_start") == [
        ("ann", 1, True, None),
        ("bob", 1, True, None),
        ("bob", 2, False, 10),
        ("bob", 3, False, 12),
    ]
    assert "_state" not in query_frame(warehouse.spark, warehouse.config, "SELECT * FROM sessions").columns


@pytest.mark.broad
def test_the_view_of_changes_begins_where_the_columns_are_those_of_today(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    warehouse.append("user|at|n\nann|10:00|1\nann|10:50|2")
    warehouse.init().run()

    def counted() -> list[tuple[Any, ...]]:
        query = "SELECT sessions_version, change, count(*) FROM session_changes GROUP BY 1, 2 ORDER BY 1, 2"
        return [tuple(row) for row in query_frame(spark, warehouse.config, query).collect()]

    assert counted() == [(1, "insert", 2)]
    warehouse.config = warehouse.configured(aggregates=[{"name": "total", "fn": "avg", "of": "n"}])
    rebuild(warehouse.kind)
    reshaped = warehouse.tables.sessions.table.version
    assert counted() == [(reshaped, "update", 2)]
    for on in ("false", "true"):
        warehouse.by_hand(f"ALTER TABLE {{}} SET TBLPROPERTIES ('{CHANGE_FEED}' = '{on}')")
    assert counted() == []
    warehouse.append("user|at|n\nann|20:00|1")
    warehouse.run()
    assert [row for row in counted() if row[1] == "insert"] == [(reshaped + 3, "insert", 1)]


def test_the_command_line(
    warehouse: Warehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*arguments: str) -> tuple[int, str, str]:
        config = str(warehouse.folder / "sessionizer.yaml")
        monkeypatch.setattr(sys, "argv", ["sessionizer", "changes", "-c", config, *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, " ".join(err.split())

    code, out, err = command("--mode", "update", "--since-run", "2", "--json")
    found = json.loads(out)
    assert (code, err, list(found)) == (0, "", ["mode", "last_run", "last_run_seq", "rows"])
    assert list(found["rows"][0])[:3] == ["change", "user", "session_id"]
    code, out, err = command("--mode", "append", "--csv")
    assert [line["user"] for line in csv.DictReader(io.StringIO(out))] == ["ann", "bob"]
    assert (code, err) == (0, f"last run: {found['last_run']}; the next changes: --since-run 3")
    code, out, err = command("--mode", "complete", "--limit", "1")
    assert (code, "ann" in out, "the first 1 rows" in out) == (0, True, True)
    assert command("--mode", "sometimes")[0] == 2
    assert "append, update, complete" in command("--mode", "sometimes")[2]


def test_what_cannot_be_asked_is_named(warehouse: Warehouse) -> None:
    with pytest.raises(UsageError, match="not both"):
        Asked("update", run="1", since_run="2")
    with pytest.raises(UsageError, match="--since-run goes with --mode append or update"):
        Asked("complete", since_run="2")
    for unknown in ("77", "20200101T000000Z-000001-abcdef"):
        with pytest.raises(UsageError, match="no such run"):
            changes(warehouse.kind, Asked("append", run=unknown))


@pytest.mark.slow
def test_a_restored_table_is_followed_too(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = copied(warehouse, tmp_path)
    consumers = [Consumer(copy), Consumer(copy)]
    consumers[0].catch_up()  # has seen the runs that are undone now
    consumers[1].copy = {row["session_id"]: row for row in table(copy, 1)}
    consumers[1].seen = "1"
    optimize_with_manifest(copy)
    assert told(copy, "update", run="3") == told(warehouse, "update", run="3")
    copy.delta().restoreToVersion(1)
    consumers[0].catch_up()
    assert consumers[0].has_the_table()
    assert consumers[0].seen == History(copy.tables.sessions, copy.tables.runs).run("1").run_id
    copy.append("user|at|n\nzed|14:30|1")
    copy.run()
    for consumer in consumers:
        consumer.catch_up()
        assert consumer.has_the_table()
    assert told(copy, "append") == ["ann 10:00", "bob 10:00", "bob 12:00"]


@pytest.mark.slow
def test_what_was_changed_by_hand_and_taken_back_is_told(warehouse: Warehouse, tmp_path: Path) -> None:
    """All of it behind the last run, by whose number consumers go on."""
    copy = copied(warehouse, tmp_path)
    before, during = Consumer(copy, by_hand=True), Consumer(copy, by_hand=True)
    before.catch_up()
    during.catch_up()
    copy.by_hand("UPDATE {} SET event_count = 100 WHERE user = 'ann'")
    copy.by_hand("DELETE FROM {} WHERE hour(session_start) = 10 AND user = 'bob'")
    copy.by_hand("INSERT INTO {} BY NAME SELECT * EXCEPT (session_id), '77' AS session_id FROM {} LIMIT 1")
    during.catch_up()
    assert (during.has_the_table(), during.seen) == (True, before.seen)
    copy.delta().restoreToVersion(3)
    for consumer in (before, during):
        consumer.catch_up()
        assert consumer.has_the_table()
    copy.append("user|at|n\nann|16:00|1")
    copy.run()
    for consumer in (before, during):
        consumer.catch_up()
        assert consumer.has_the_table()


def test_without_a_change_feed_append_and_complete_still_work(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = copied(warehouse, tmp_path)
    present = {Path(file).name for file in copy.tables.sessions.table.read().inputFiles()}
    for file in (copy.folder / "sessions").rglob("*.parquet"):
        if file.name not in present and "_delta_log" not in file.parts:
            file.unlink()
    with pytest.raises(TableError, match=r"cannot be read any more.*start anew from `changes --mode complete`"):
        told(copy, "update", since_run="1")
    copy.tables.sessions.table.change_setting("delta.enableChangeDataFeed", "false")
    with pytest.raises(TableError, match="does not record its changes") as error:
        told(copy, "update")
    assert "--mode append" in error.value.remedy
    assert told(copy, "append") == ["ann 10:00", "bob 12:00"]
    assert len(told(copy, "complete")) == 4


def test_a_run_that_only_the_ledger_remembers(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = copied(warehouse, tmp_path)
    table = copy.tables.sessions.table
    table.checkpoint()
    for version in (0, 1):
        for name in (f"{version:020d}.json", f".{version:020d}.json.crc", f"{version:020d}.crc"):
            (copy.folder / "sessions" / "_delta_log" / name).unlink(missing_ok=True)
    assert told(copy, "append", run="1") == []
    assert told(copy, "append", since_run="1") == ["ann 10:00", "bob 10:00", "bob 12:00"]
    with pytest.raises(SessionizerError, match=r"does not reach back to this run.*--mode append"):
        told(copy, "update", since_run="1")
    with pytest.raises(TableError, match=r"cleaned up the log of those days.*oldest version it knows is 2"):
        History(copy.tables.sessions, copy.tables.runs).version_at(0)


def test_a_ledger_that_was_made_anew_leaves_no_session_out(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = copied(warehouse, tmp_path)
    shutil.rmtree(copy.folder / "runs")
    copy.init()
    asked = Asked("append", since_run="1")
    assert told(copy, "append", since_run="1") == ["ann 10:00", "bob 10:00", "bob 12:00"]
    view = "SELECT count(*) AS n FROM final_sessions WHERE run_seq > 1"
    assert documents(query_frame(copy.spark, copy.config, view)) == [{"n": 3}]
    assert sql_duckdb.documents(sql_duckdb.checked_query(copy.config, view)) == [{"n": 3}]
    _, query = changes_duckdb.changes(copy.config, asked, windows=False, whole=True)
    assert len(sql_duckdb.documents(query)) == 3


def optimize_with_manifest(warehouse: Warehouse) -> None:
    """OPTIMIZE in a commit that repeats the last manifest, as upkeep does so that the log never loses it."""
    name = "spark.databricks.delta.commitInfo.userMetadata"
    warehouse.spark.conf.set(name, warehouse.position().text())
    try:
        warehouse.delta().optimize().executeCompaction()
    finally:
        warehouse.spark.conf.unset(name)
    assert next(warehouse.tables.sessions.table.history()).operation == "OPTIMIZE"


def copied(warehouse: Warehouse, folder: Path) -> Warehouse:
    shutil.copytree(warehouse.folder, folder / "copy")
    return Warehouse(warehouse.spark, folder / "copy", time={"allowed_lateness": "1h"})


@pytest.mark.broad
def test_what_a_restore_has_made_final_again_is_told_whoever_saw_the_run_that_it_has_undone(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    copy, early = copied(warehouse, tmp_path), ["ann 10:00", "bob 10:00"]
    assert told(copy, "append", since_run="0") == [*early, "bob 12:00"]
    rebuild(Warehouse(copy.spark, copy.folder, session={"gap": "3h"}, time={"allowed_lateness": "24h"}).kind)
    assert told(copy, "append", since_run="3") == []
    copy.delta().restoreToVersion(3)
    undone, asked = str(copy.tables.sessions.table.version - 1), Asked("append", since_run="4")
    assert undone == "4"
    assert told(copy, "append", since_run=undone) == [*early, "bob 12:00"]
    assert told(copy, "append", since_run="3") == []
    assert told(copy, "append", since_run="0") == [*early, "bob 12:00"]
    with pytest.raises(NeedsSpark, match="RESTORE"):
        changes_duckdb.changes(copy.config, asked, windows=False, whole=True)
