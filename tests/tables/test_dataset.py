"""What DuckDB reads: every row, whatever a table's log tells or does not tell of its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.dataset import field
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from sessionizer.tables.queries.dataset import dataset_of

US = pa.timestamp("us", "UTC")
FAR = 253402300800000000 * 10  # microseconds: of no year that Python knows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two files: times and numbers within, one of each, beyond and missing."""
    place = str(tmp_path_factory.mktemp("table"))
    for day, times, numbers in (
        (1, [None, 5_000, 9_000_001], [float("nan"), 3.0, None]),
        (2, [FAR, 7_000, None], [float("inf"), -0.0, 1.0]),
    ):
        part = pa.table(
            {
                "day": [f"of {day}"] * 3,
                "time": pa.array(times, US),
                "number": numbers,
                "row": range(day * 10, day * 10 + 3),
            }
        )
        write_deltalake(place, part, partition_by=["day"], mode="append")
    return dataset_of(DeltaTable(place), SubTreeFileSystem(place, LocalFileSystem()))


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("number > 5", [10, 20]),  # NaN is more than all others
        ("number < 5", [11, 21, 22]),
        ("number = 'NaN'", [10]),
        ("number IS NULL", [12]),
        ("time IS NULL", [10, 22]),
        ("time > TIMESTAMPTZ '2020-01-01'", [20]),
        ("time < TIMESTAMPTZ '2020-01-01'", [11, 12, 21]),
        ("NOT time < TIMESTAMPTZ '2020-01-01'", [20]),
        ("time > TIMESTAMPTZ '1970-01-01 00:00:09'", [12, 20]),
        ("time IS DISTINCT FROM TIMESTAMPTZ '1970-01-01 00:00:00.005'", [10, 12, 20, 21, 22]),
        ("day = 'of 2'", [20, 21, 22]),
        ("day > 'of 1' AND time IS NOT NULL", [20, 21]),
    ],
)
def test_no_row_is_passed_over(rows: Any, where: str, found: Sequence[int]) -> None:
    with duckdb.connect() as connection:
        told = connection.register("rows", rows).execute(f"SELECT row FROM rows WHERE {where} ORDER BY row").fetchall()
    assert [row for (row,) in told] == found


def test_files_without_such_times_are_not_opened(rows: Any, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"time": pa.array([10], US)}))
    write_deltalake(str(tmp_path), pa.table({"time": pa.array([10_000_000], US)}), mode="append")
    early = next(
        file for file in tmp_path.glob("*.parquet") if pq.read_table(file)["time"].cast("int64")[0].as_py() == 10
    )
    found = dataset_of(DeltaTable(str(tmp_path)), SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    early.unlink()
    assert found.to_table(filter=field("time") > pa.scalar(1_000_000, US)).num_rows == 1
