"""What a table's log says, by its files and by the JVM."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.durations import DAY, MINUTE
from sessionizer.lib.errors import TableError
from sessionizer.tables.delta import Commit, Table
from sessionizer.tables.delta.logs.files import FilesLog
from sessionizer.tables.delta.logs.jvm import JvmLog

ODD = "a \u2028 b"  # a line's end to some, and a name that has columns mapped


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """Four commits behind the one that made it; the log is summed up at the third."""
    found = Table(spark, str(tmp_path / "a b"), "sessions.table")
    rows = spark.range(3).withColumnRenamed("id", ODD)
    found.create(rows.schema, [], {"delta.checkpointInterval": "3", "delta.logRetentionDuration": "40 days"})
    for n in range(4):
        found.append(rows, Commit(f"app {n % 2}", n + 1, json.dumps({"said": "\u2028 \x85", "n": n})))
    return found


def by_files(table: Table) -> FilesLog:
    """One that has read nothing yet."""
    return FilesLog(JvmLog(table), Path(table.location))


def test_a_log_says_the_same_by_its_files_and_by_the_jvm(table: Table) -> None:
    jvm, files = JvmLog(table), by_files(table)
    assert (files.exists(), jvm.exists(), by_files(Table(table.spark, f"{table.location}-not", "x")).exists()) == (
        True,
        True,
        False,
    )
    assert (files.version(), jvm.version(), files.id()) == (4, 4, jvm.id())
    assert (files.schema(), files.schema_at(2)) == (jvm.schema(), jvm.schema_at(2))
    assert sorted(files.transactions()) == sorted(jvm.transactions()) == ["app 0", "app 1"]
    for app, last in (("app 0", 3), ("app 1", 4), ("nobody", None)):
        assert (files.transaction(app), jvm.transaction(app)) == (last, last)
    for name in ("delta.checkpointInterval", "delta.columnMapping.mode", "none"):
        assert files.setting(name) == jvm.setting(name)
    assert (files.kept_us(), files.partition_columns()) == (jvm.kept_us(), jvm.partition_columns())
    assert files.size() == jvm.size()
    assert files.size()[0] >= 4
    for version in range(6):
        for whole in (True, False):
            assert files.lines(version, whole=whole) == jvm.lines(version, whole=whole)
    assert type(table._log) is FilesLog


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_how_long_a_log_is_kept_depends_on_no_zone(table: Table, zone: str) -> None:
    table.change_setting("delta.logRetentionDuration", "interval 100 days 1 minute", None)
    table.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert by_files(table).kept_us() == JvmLog(table).kept_us() == (7 * DAY, 100 * DAY + MINUTE)
    finally:
        table.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_comes_to_a_log_is_found_and_what_takes_its_place(table: Table) -> None:
    rows = table.read().limit(0)
    assert (table.version, table.transaction("more")) == (4, None)
    table.append(rows, Commit("more", 7, ""))
    assert (table.version, table.transaction("more")) == (5, 7)
    before = table.id
    shutil.rmtree(table.location)
    assert not table.exists()
    table.create(rows.schema, [], {})
    assert (table.version, table.transaction("more"), table.id == before) == (0, None, False)


def test_a_log_that_was_cleaned_up_is_read_from_its_checkpoint(table: Table) -> None:
    wanted = (
        table.version,
        table.id,
        table.schema,
        table.transaction("app 0"),
        table.setting("delta.checkpointInterval"),
    )
    table.checkpoint()
    log = Path(table.location) / "_delta_log"
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    found = by_files(table)
    assert (
        found.version(),
        found.id(),
        found.schema(),
        found.transaction("app 0"),
        found.setting("delta.checkpointInterval"),
    ) == wanted
    assert (found.lines(2, whole=True), found.schema_at(4)) == (None, wanted[2])
    with pytest.raises(TableError, match=r"the log of sessions\.table no longer has version 1"):
        found.schema_at(1)


@pytest.mark.parametrize("size", [0, 100], ids=["empty", "cut off"])
def test_a_damaged_checkpoint_is_passed_over(table: Table, size: int) -> None:
    wanted = (table.version, table.id, table.transaction("app 0"))
    table.checkpoint()
    (last,) = (Path(table.location) / "_delta_log").glob("*4.checkpoint.parquet")
    last.write_bytes(last.read_bytes()[:size])
    found = by_files(table)
    assert (found.version(), found.id(), found.transaction("app 0")) == wanted


def test_a_path_that_is_another_file_system_s_to_spark_is_not_looked_for_on_this_disk(
    spark: SparkSession, table: Table
) -> None:
    settings = spark._jsc.hadoopConfiguration()
    settings.set("fs.defaultFS", "hdfs://elsewhere/")
    try:
        far = Table(spark, table.location, "sessions.table")
        assert (type(far._log), far.local_path) == (JvmLog, None)
    finally:
        settings.set("fs.defaultFS", "file:///")


def test_a_url_is_told_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    found = Table(spark, f"file:{tmp_path}/a%20b#?c", "sessions.table")
    found.create(spark.range(1).schema, [], {})
    assert (found.exists(), found.version, type(found._log)) == (True, 0, FilesLog)
    assert (tmp_path / "a%20b#?c" / "_delta_log").is_dir()


@pytest.mark.parametrize(
    "left",
    [b"", b'{"commitInfo":{}}\n{"add":{"path":"x"', b'{"commitInfo":{"userMetadata":"\xc3'],
    ids=["empty", "amid a line", "amid a letter"],
)
def test_an_entry_that_is_cut_off_is_named(table: Table, left: bytes) -> None:
    (Path(table.location) / "_delta_log" / f"{4:020d}.json").write_bytes(left)
    for log in (table, by_files(table)):
        with pytest.raises(TableError, match="the entry of version 4 is cut off"):
            _ = log.version if isinstance(log, Table) else log.version()
