"""Other readers open the tables, see the rows that Spark sees, and leave files closed that a query does not need."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from tests.warehouse import Warehouse

COLUMNS = ("user", C.SESSION_ID, C.SESSION_START, C.SESSION_END, C.DURATION_SECONDS, C.EVENT_COUNT, "total")
AND_MORE = (*COLUMNS, C.STATUS, C.END_REASON, C.IS_FINAL, C.SUPERSEDES, C.SESSION_DATE, C.RUN_ID)
DAY = date(2026, 1, 2)


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Rows as tuples of what Python has: times in UTC, lists as tuples, missing values as None; sorted."""

    def value(v: Any) -> Any:
        if isinstance(v, list | tuple) or hasattr(v, "tolist"):
            return tuple(v)
        if pd.isna(v):
            return None
        if isinstance(v, pd.Timestamp):
            v = v.to_pydatetime()
        if isinstance(v, datetime):
            return v.replace(tzinfo=UTC) if v.tzinfo is None else v.astimezone(UTC)
        return v

    return sorted((tuple(map(value, row)) for row in rows), key=repr)


def by_deltalake(path: str) -> list[Any]:
    return [tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table(columns=list(AND_MORE)).to_pylist()]


def by_duckdb(path: str) -> list[Any]:
    found = DeltaTable(path).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", found)
        return connection.sql("SELECT * FROM found").project(", ".join(f'"{n}"' for n in AND_MORE)).fetchall()


def by_polars(path: str) -> list[Any]:
    return pl.scan_delta(path).select(AND_MORE).collect().rows()


def by_pandas(path: str) -> list[Any]:
    frame = DeltaTable(path).to_pandas(columns=list(AND_MORE))
    return list(frame[list(AND_MORE)].itertuples(index=False, name=None))


@pytest.mark.parametrize("read", [by_deltalake, by_duckdb, by_polars, by_pandas])
def test_every_reader_sees_the_rows_that_spark_sees(lake_to_see: Warehouse, read: Any) -> None:
    expected = lake_to_see.tables.sessions.table.read().select(*C.cols(AND_MORE)).collect()
    found = plain(read(lake_to_see.config.sessions.table))
    assert found == plain([tuple(row) for row in expected])
    assert len(found) == 4


def test_the_sessions_of_one_day_open_few_files(lake_to_see: Warehouse) -> None:
    """Delta's statistics tell every reader which files can hold a day."""
    table = DeltaTable(lake_to_see.config.sessions.table)
    condition = f"session_start >= '{DAY}T00:00:00Z' AND session_start < '{date(2026, 1, 3)}T00:00:00Z'"
    needed, everything = table.file_uris(file_pruning_predicate=condition), table.file_uris()
    assert 0 < len(needed) < len(everything)
    query = "SELECT count(*) FROM found WHERE session_start >= '2026-01-02' AND session_start < '2026-01-03'"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", table.to_pyarrow_dataset())
        of_all = connection.execute(query).fetchall()
        connection.register("found", table.to_pyarrow_dataset(file_pruning_predicate=condition))
        assert connection.execute(query).fetchall() == of_all == [(2,)]
    frame = lake_to_see.tables.sessions.table.read()
    read = frame.where(C.col(C.SESSION_START).between("2026-01-02", "2026-01-02 23:59:59.999999"))
    opened = {row[0] for row in read.select(F.input_file_name()).distinct().collect()}
    assert len(opened) == len(needed)


def test_final_rows_are_a_partition_that_readers_leave_closed(lake_to_see: Warehouse) -> None:
    table = DeltaTable(lake_to_see.config.sessions.table)
    live, final = (table.file_uris(file_pruning_predicate=[(C.IS_FINAL, "=", v)]) for v in ("false", "true"))
    assert set(live).isdisjoint(final)
    assert sorted([*live, *final]) == sorted(table.file_uris())
    assert live
    assert final


def test_statistics_in_milliseconds_hide_no_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    """Delta cuts the bounds of a file to milliseconds: readers have to know, or they pass a file over."""
    place, moment = str(tmp_path / "odd"), "2026-01-02 10:00:00.123456"
    spark.sql(f"SELECT TIMESTAMP '{moment}' AS t").write.format("delta").save(place)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", DeltaTable(place).to_pyarrow_dataset())
        for condition in (f"t = '{moment}'", "t > '2026-01-02 10:00:00.1234'", "t <= '2026-01-02 10:00:00.1235'"):
            assert connection.execute(f"SELECT count(*) FROM found WHERE {condition}").fetchall() == [(1,)]
    exact = datetime(2026, 1, 2, 10, 0, 0, 123456, UTC)
    assert pl.scan_delta(place).filter(pl.col("t") >= exact).collect().height == 1


OF_TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "plain": ("n", {}),
    "fed": ("n", {"delta.enableChangeDataFeed": "true"}),
    "vectors": ("n", {"delta.enableDeletionVectors": "true"}),
    "mapped": ("of n", {"delta.columnMapping.mode": "name"}),
}
READS: dict[str, dict[str, Any]] = {  # the sum of n, or the error
    "arrow": {"plain": 3, "fed": 3, "vectors": "deletionVectors", "mapped": None},
    "query": {"plain": 3, "fed": 3, "vectors": 3, "mapped": 3},
    "polars": {"plain": 3, "fed": 3, "vectors": 3, "mapped": "column mapping"},
}


def sum_of(reader: str, path: str, column: str) -> Any:
    if reader == "polars":
        return pl.scan_delta(path).collect()[column].sum()
    if reader == "query":
        found = QueryBuilder().register("t", DeltaTable(path)).execute(f'SELECT sum("{column}") AS n FROM t')
        return pa.table(found.read_all())["n"].to_pylist()[0]
    with duckdb.connect() as connection:
        connection.register("t", DeltaTable(path).to_pyarrow_dataset())
        return connection.execute(f'SELECT sum("{column}") FROM t').fetchall()[0][0]


def test_what_other_readers_make_of_a_table_s_features(spark: SparkSession, tmp_path: Path) -> None:
    """As docs/readers.md tells it: one that reads nulls where Spark has values is to be known."""
    for name, (column, properties) in OF_TABLES.items():
        place = f"delta.`{tmp_path / name}`"
        told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        spark.sql(f"CREATE TABLE {place} (u INT, `{column}` INT) USING delta" + f" TBLPROPERTIES ({told})" * bool(told))
        spark.sql(f"INSERT INTO {place} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 1), (2, 2), (3, 4)")
        spark.sql(f"DELETE FROM {place} WHERE u = 3")
    found: dict[str, dict[str, Any]] = {}
    for reader, wanted in READS.items():
        found[reader] = {}
        for name, expected in wanted.items():
            try:
                found[reader][name] = sum_of(reader, str(tmp_path / name), OF_TABLES[name][0])
            except Exception as error:  # each reader has errors of its own
                found[reader][name] = expected if isinstance(expected, str) and expected in str(error) else str(error)
    assert found == READS
