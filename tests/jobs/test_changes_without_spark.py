"""`changes` without Spark says what Spark says, whatever has become of the table."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sessionizer.jobs.queries import changes_duckdb, sql_duckdb
from sessionizer.jobs.queries.changes import Asked, as_document, document
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.errors import SessionizerError
from sessionizer.tables.queries.local import LocalTable, NeedsSpark
from tests.jobs.test_without_spark import process
from tests.warehouse import Warehouse

NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
SECTIONS = {
    "time": {"allowed_lateness": "1h"},
    "late_events": "amend",
    "aggregates": [
        {"name": "total", "fn": "sum", "of": "n"},
        {"name": "mean", "fn": "avg", "of": "n"},
        {"name": "all_n", "fn": "list", "of": "n", "at_most": 9},
    ],
}


def sections(folder: Path) -> dict[str, Any]:
    """Those of the config of a lake there."""
    return SECTIONS | {"sliding": {"table": str(folder / "windows"), "time_difference": "10m", "grace": "1h"}}


EVERY = [
    *[Asked(mode) for mode in ("append", "update", "complete")],
    *[Asked(mode, run=run) for mode in ("append", "update", "complete") for run in "1234"],
    *[Asked(mode, since_run=run) for mode in ("append", "update") for run in "01245"],
    Asked("complete", run="0"),
]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Five runs: sessions made; bridged and ended; taken away and changed in the source; amended by late events."""
    folder = tmp_path_factory.mktemp("lake")
    made = Warehouse(spark, folder, **sections(folder))
    made.append("user|at|n\nann|10:00|1\nann|10:50|2\nbob|10:00|3\n-|10:10|4\nzoë's|10:05|5")
    made.init().run()
    made.append("user|at|n\nann|10:25|1\nbob|12:00|-")
    made.run()
    made.delta_source().delete("user = 'bob' AND n = 3")
    made.delta_source().update("user = 'ann'", {"n": "n + 1"})
    made.run(made.configured(**sections(folder), sessions={"commit": "replace"}))
    made.delta().optimize().executeCompaction()
    made.append("user|at|n\nann|09:50|7\ncat|16:00|1")
    made.run()
    made.append("user|at|n\ncat|16:10|2")
    made.run()
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "session"})
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields | sections(folder)))
    return made


def copied(lake: Warehouse, folder: Path) -> Warehouse:
    shutil.copytree(lake.folder, folder)
    return Warehouse(lake.spark, folder, **sections(folder))


def without_spark(lake: Warehouse, asked: Asked, *, windows: bool = False) -> dict[str, Any]:
    last, query = changes_duckdb.changes(lake.config, asked, windows=windows, whole=True)
    return as_document(asked, last, sql_duckdb.documents(query))


def answer(ask: Any, *arguments: Any) -> Any:
    """What is said, be it an error."""
    try:
        return ask(*arguments)
    except SessionizerError as error:
        return str(error)


@pytest.mark.broad
def test_changes_are_those_that_spark_tells(lake: Warehouse) -> None:
    told = [without_spark(lake, asked) for asked in EVERY]
    assert told == [document(lake.kind, asked) for asked in EVERY]
    changes = {
        row["change"]
        for asked, found in zip(EVERY, told, strict=True)
        if asked.mode == "update"
        for row in found["rows"]
    }
    assert changes == {"insert", "update", "delete"}


def test_zero_and_minus_zero_differ_as_they_do_in_spark() -> None:
    feed = pa.table(
        {
            "id": ["changed", "changed", "new", "same", "same"],
            "least": [0.0, -0.0, -0.0, -0.0, -0.0],
            "_change_type": ["update_preimage", "update_postimage", "insert", "update_preimage", "update_postimage"],
            "_commit_version": [1] * 5,
        }
    )
    text = changes_duckdb.NET_CHANGES.format(
        identity="id", row="struct_pack(id := id, least := least)", shown="id, CAST(least AS VARCHAR)", held=[]
    )
    with duckdb.connect() as connection:
        connection.register("found", feed)
        assert sorted(connection.sql(text).fetchall()) == [("insert", "new", "-0.0"), ("update", "changed", "-0.0")]


NAMES = ["current_date", "1st_page", "lastPage", "order", "a.b", 'a "quoted" one', "user-id", "null"]


def test_columns_of_any_name_are_read_from_the_feed_as_they_are(tmp_path: Path) -> None:
    rows = pa.table({name: [name] for name in NAMES})
    write_deltalake(tmp_path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    found = LocalTable(str(tmp_path), "sessions.table").changes(0, 0, [*NAMES, "_change_type"])
    assert found.to_pylist() == [{name: name for name in NAMES} | {"_change_type": "insert"}]


@pytest.mark.broad
def test_what_cannot_be_asked_is_told_alike(lake: Warehouse) -> None:
    for asked in (Asked("append", run="77"), Asked("update", since_run="nobody's")):
        assert answer(without_spark, lake, asked) == answer(document, lake.kind, asked)


@pytest.mark.broad
def test_changes_of_windows_are_those_that_spark_tells(lake: Warehouse, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path / "copy")
    list(increments(copy.windows, RunOptions(once=True)))
    for asked in (Asked("update", since_run="0"), Asked("complete"), Asked("append")):
        assert without_spark(copy, asked, windows=True) == document(copy.windows, asked)


@pytest.mark.broad
def test_a_table_that_was_restored_and_one_whose_files_are_gone(lake: Warehouse, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path / "copy")
    copy.delta().restoreToVersion(2)
    for asked in (Asked("update", since_run="1"), Asked("update", since_run="4"), Asked("append"), Asked("complete")):
        assert without_spark(copy, asked) == document(copy.kind, asked)
    present = {Path(file).name for file in copy.tables.sessions.table.read().inputFiles()}
    for file in (copy.folder / "sessions").rglob("*.parquet"):
        if file.name not in present and "_delta_log" not in file.parts:
            file.unlink()
    for asked in (Asked("update", since_run="1"), Asked("complete", run="4")):
        with pytest.raises(NeedsSpark):
            without_spark(copy, asked)
    copy.tables.sessions.table.change_setting("delta.enableChangeDataFeed", "false")
    assert answer(without_spark, copy, Asked("update")) == answer(document, copy.kind, Asked("update"))


@pytest.mark.broad
def test_what_was_changed_by_hand_and_taken_back_is_told_as_spark_tells_it(lake: Warehouse, tmp_path: Path) -> None:
    copy = copied(lake, tmp_path / "copy")
    now, last = copy.tables.sessions.table.version, str(copy.position().run_seq)
    copy.by_hand("UPDATE {} SET total = 100 WHERE user = 'ann'")
    copy.by_hand("DELETE FROM {} WHERE user = 'cat'")
    copy.by_hand(
        "INSERT INTO {} BY NAME SELECT * EXCEPT (session_id), '77' AS session_id FROM {} WHERE user = 'ann' LIMIT 1"
    )
    copy.delta().restoreToVersion(now)
    found = without_spark(copy, Asked("update", since_run=last))
    assert found == document(copy.kind, Asked("update", since_run=last))
    assert sorted((row["change"], row["user"]) for row in found["rows"]) == [
        *(("delete", "ann"), ("update", "ann"), ("update", "cat"))
    ]
    asked = Asked("update", since_run="1")
    assert without_spark(copy, asked) == document(copy.kind, asked) == without_spark(lake, asked)


@pytest.mark.broad
def test_the_command_needs_no_java(lake: Warehouse) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        done = process("-m", "sessionizer.jobs.cli", "changes", *words, cwd=lake.folder, **NO_JAVA)
        return done.returncode, done.stdout, " ".join(done.stderr.split())

    code, out, err = command("--mode", "update", "--json")
    assert (code, json.loads(out)["last_run_seq"], err) == (0, lake.position().run_seq, "")
    code, out, err = command("--mode", "append", "--csv", "--since-run", "0")
    assert (code, out.splitlines()[0].split(",")[0]) == (0, "user")
    assert f"the next changes: --since-run {lake.position().run_seq}" in err
    code, out, err = command("--mode", "complete", "--limit", "1")
    assert (code, "run_id" in out, "the first 1 rows" in out) == (0, False, True)
    for words in (["--mode", "sometimes"], ["--mode", "append", "--run", "77"]):
        assert command(*words)[:2] == (2, "")


def test_changes_that_were_not_recorded_and_those_of_other_columns_are_left_to_spark(tmp_path: Path) -> None:
    place, feed = tmp_path / "table", "delta.enableChangeDataFeed"
    for _ in range(2):
        write_deltalake(place, pa.table({"a": [1]}), mode="append")
    DeltaTable(place).alter.set_table_properties({feed: "true"})
    write_deltalake(place, pa.table({"a": [2]}), mode="append")
    table = LocalTable(str(place), "sessions.table")
    assert table.changes(2, 3, ["a", "_change_type"]).to_pylist() == [{"a": 2, "_change_type": "insert"}]
    with pytest.raises(NeedsSpark, match="has not recorded its changes from version 1 on"):
        table.changes(1, 3, ["a"])
    for value in ("false", "true"):
        DeltaTable(place).alter.set_table_properties({feed: value})
    with pytest.raises(NeedsSpark):
        LocalTable(str(place), "sessions.table").changes(3, 5, ["a"])
    write_deltalake(place, pa.table({"b": [2]}), mode="append", schema_mode="merge")
    with pytest.raises(NeedsSpark, match="have changed"):
        LocalTable(str(place), "sessions.table").changes(5, 6, ["a"])
    with pytest.raises(NeedsSpark, match="have changed"):
        LocalTable(str(place), "sessions.table").at(5)
    assert LocalTable(str(place), "sessions.table").at(6).dataset().count_rows() == 4


@pytest.mark.broad
@pytest.mark.parametrize(("place", "why"), [("db.sessions", "is a name"), ("gs://lake/sessions", "is a url")])
def test_tables_elsewhere_are_left_to_spark(lake: Warehouse, place: str, why: str) -> None:
    config = lake.configured(**sections(lake.folder), sessions={"table": place})
    with pytest.raises(NeedsSpark, match=why):
        changes_duckdb.changes(config, Asked("complete"), windows=False, whole=True)
