"""Rows in hand go into a small table on a local disk without Spark, by the same protocol."""

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.tables.delta import Commit, Table
from sessionizer.tables.delta.read import UNUSUAL_IN_PLAIN_PATHS
from sessionizer.tables.delta.table import PLAIN_COMMITS

SCHEMA = T.StructType(
    [T.StructField("n", T.LongType()), T.StructField("at", T.TimestampType()), T.StructField("of", T.StringType())]
)


def row(n: int) -> pa.Table:
    at = pa.array([n], pa.timestamp("us", "UTC"))
    return pa.table({"n": pa.array([n]), "at": at, "of": pa.array(["é"])})


def made(spark: SparkSession, folder: Path, **properties: str) -> Table:
    table = Table(spark, str(folder / "a table"), "outputs.runs", small=True)
    table.create(SCHEMA, [], properties)
    return table


def numbers(table: Table) -> list[int]:
    return sorted(r["n"] for r in table.read().collect())


def engine(table: Table) -> str:
    return str(table.spark.sql(f"DESCRIBE HISTORY delta.`{table.location}`").first()["engineInfo"])  # type: ignore[index]


def test_they_are_added_once(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path)
    for n, txn in ((1, 7), (2, 7), (3, 6), (4, 8)):
        table.append_few(row(n), Commit("a", txn))
    table.append_few(row(5), Commit("b", 1))
    assert numbers(table) == [1, 4, 5]
    assert [table.has_fence(Commit("a", txn)) for txn in (7, 8, 9)] == [True, True, False]
    assert table.transaction("a") == 8, "Spark sees the same"
    assert engine(table).startswith("delta-rs")


@pytest.mark.parametrize("asked", [{}, {"delta.enableDeletionVectors": "true"}], ids=["plain", "by Spark"])
@pytest.mark.broad
def test_times_beyond_the_year_9999_are_kept(spark: SparkSession, tmp_path: Path, asked: dict[str, str]) -> None:
    table, far = made(spark, tmp_path, **asked), 300_000_000_000_000_000
    table.append_few(row(far), Commit("a", 1))
    assert table.read().selectExpr("unix_micros(at)").collect()[0][0] == far


def test_spark_goes_on_from_them(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path)
    table.append_few(row(1), Commit("a", 1))
    table.append(table.read().limit(0).union(spark.createDataFrame(row(2))), Commit("a", 1))
    table.append(spark.createDataFrame(row(3)), Commit("a", 2))
    table.append_few(row(4), Commit("a", 2))
    table.append_few(row(5), Commit("a", 3))
    assert numbers(table) == [1, 3, 5]
    table.compact("true")
    table.delete("n = 3")
    assert {r["at"].timestamp() for r in table.read().collect()} == {1e-6, 5e-6}
    assert table.has_fence(Commit("a", 3))


@pytest.mark.broad
def test_spark_sums_up_a_long_log(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path)
    for txn in range(1, 2 * PLAIN_COMMITS + 11):
        table.append_few(row(txn), Commit("a", txn))
    log = Path(table.location) / "_delta_log"
    assert sorted(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet")) == [
        PLAIN_COMMITS,
        2 * PLAIN_COMMITS,
    ]
    assert numbers(table) == list(range(1, 2 * PLAIN_COMMITS + 11))
    assert (table.transaction("a"), table.has_fence(Commit("a", table.version))) == (table.version, True)
    assert table.version_before(Commit("a", 1000), 4) == 4, "the whole log is kept: a RESTORE looks back in it"


def test_a_thread_that_has_no_session_of_its_own_reads_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path)
    table.append_few(row(1), Commit("a", 1))
    table.checkpoint()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with ThreadPoolExecutor(1) as thread:
        session = spark.newSession()
        assert thread.submit(lambda: Table(session, table.location, table.field).size()[0]).result() == 1


def test_without_a_lock_the_second_of_two_writes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(spark, tmp_path)
    monkeypatch.setattr(Table, "lock", lambda _: nullcontext())
    as_it_was = table._plain()
    assert as_it_was is not None
    table.append_few(row(1), Commit("a", 1))
    monkeypatch.setattr(Table, "_plain", lambda _: as_it_was)
    table.append_few(row(2), Commit("a", 1))
    assert numbers(table) == [1]


@pytest.mark.parametrize(
    "asked",
    [
        {"delta.enableDeletionVectors": "true"},
        {"delta.columnMapping.mode": "name"},
        {"delta.setTransactionRetentionDuration": "interval 1 day"},
    ],
    ids=lambda asked: next(iter(asked)),
)
@pytest.mark.broad
def test_a_table_that_asks_more_of_writers_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, asked: dict[str, str]
) -> None:
    table = made(spark, tmp_path, **asked)
    for txn in (1, 1, 2):
        table.append_few(row(txn), Commit("a", txn))
    assert numbers(table) == [1, 2]
    assert table.has_fence(Commit("a", 2))
    assert engine(table).startswith("Apache-Spark")


@pytest.mark.parametrize("letter", sorted(UNUSUAL_IN_PLAIN_PATHS))
@pytest.mark.broad
def test_a_folder_whose_name_only_spark_can_write_to_is_left_to_it(
    spark: SparkSession, tmp_path: Path, letter: str
) -> None:
    table = made(spark, tmp_path / f"of {letter} all")
    table.append_few(row(1), Commit("a", 1))
    assert (numbers(table), engine(table).split("/")[0]) == ([1], "Apache-Spark")


@pytest.mark.parametrize("letter", "#?&+=:@~!'é")
def test_other_letters_of_a_folder_are_no_matter(spark: SparkSession, tmp_path: Path, letter: str) -> None:
    table = made(spark, tmp_path / f"of {letter} all")
    table.append_few(row(1), Commit("a", 1))
    assert (numbers(table), engine(table).split(":")[0]) == ([1], "delta-rs")


def test_where_it_fails_spark_writes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that knows no hard links."""
    table = made(spark, tmp_path)
    monkeypatch.setattr(deltalake, "write_deltalake", refuse)
    table.append_few(row(1), Commit("a", 1))
    table.append_few(row(2), Commit("a", 1))
    assert (numbers(table), engine(table).split("/")[0]) == ([1], "Apache-Spark")


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_an_entry_that_was_emptied_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """As after a power failure: the fence is gone with the row."""
    table = made(spark, tmp_path)
    for n in (1, 2):
        table.append_few(row(n), Commit("a", n))
    (Path(table.location) / "_delta_log" / f"{2:020}.json").write_bytes(b"")
    assert not table.has_fence(Commit("a", 2))
    table.append_few(row(2), Commit("a", 2))
    assert numbers(Table(spark.newSession(), table.location, "outputs.runs")) == [1, 2]
