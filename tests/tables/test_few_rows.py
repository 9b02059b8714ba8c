"""Rows in hand go into a table of a local disk without Spark, by the same protocol."""

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from tables import rejected_events
from tables.delta import Commit, Superseded, Table
from tests.faults.lakes import contents, lake_at, lost_and_doubled
from tests.warehouse import FIRST_EVENTS, NOW

SCHEMA = T.StructType(
    [T.StructField("n", T.LongType()), T.StructField("at", T.TimestampType()), T.StructField("of", T.StringType())]
)


def row(n: int) -> pa.Table:
    at = pa.array([n], pa.timestamp("us", "UTC"))
    return pa.table({"n": pa.array([n]), "at": at, "of": pa.array(["#%é"])})


def made(spark: SparkSession, folder: Path, **properties: str) -> Table:
    table = Table(spark, str(folder / "a table, 100 %"), "outputs.runs")
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


def test_files_are_counted_as_spark_counts_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(spark, tmp_path)
    assert table.size() == (0, 0)
    for n in (1, 2):
        table.append_few(row(n), Commit("a", n))
    without_spark = table.size()
    monkeypatch.setattr(Table, "_plain", lambda _: None)
    assert table.size() == without_spark
    assert without_spark[0] == 2


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


def test_a_long_log_is_summed_up_for_both(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path)
    for txn in range(1, 111):
        table.append_few(row(txn), Commit("a", txn))
    assert list((Path(table.location) / "_delta_log").glob("*.checkpoint.parquet"))
    assert numbers(table) == list(range(1, 111))
    assert table.transaction("a") == 110
    assert table.version_with(Commit("a", 5)) == 5, "the whole log is kept: a RESTORE looks back in it"


def test_without_a_lock_one_of_two_is_superseded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(spark, tmp_path)
    monkeypatch.setattr(Table, "lock", lambda _: nullcontext())
    as_it_was = table._plain()
    table.append_few(row(1), Commit("a", 1))
    monkeypatch.setattr(Table, "_plain", lambda _: as_it_was)
    with pytest.raises(Superseded):
        table.append_few(row(2), Commit("a", 1))
    assert numbers(table) == [1]


@pytest.mark.parametrize(
    "feature", [{"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}], ids=str
)
def test_a_table_that_asks_more_of_writers_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, feature: dict[str, str]
) -> None:
    table = made(spark, tmp_path, **feature)
    for txn in (1, 1, 2):
        table.append_few(row(txn), Commit("a", txn))
    assert numbers(table) == [1, 2]
    assert table.has_fence(Commit("a", 2))
    assert engine(table).startswith("Apache-Spark")


def test_rejected_events_are_the_same_whether_few_or_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, found = [], []
    for most in (rejected_events.FEW, 0):
        monkeypatch.setattr(rejected_events, "FEW", most)
        lake = lake_at(spark, tmp_path / str(most))
        lake.append(FIRST_EVENTS)
        lake.init().run(now=NOW)
        engines.append(engine(lake.lake.rejected_events.table).split("/")[0].split(":")[0])
        found.append(contents(lake.folder))
    assert engines == ["delta-rs", "Apache-Spark"]
    assert found[0]["rejected_events"].total() == 2
    assert lost_and_doubled(*found) == (0, 0)
