"""Tables on a path, read without Spark."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.tables.delta import Entry, Table
from sessionizer.tables.delta.changes import Shape
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries import oldest
from sessionizer.tables.queries.local import LocalTable, NeedsSpark

ODD = ("a b", "ü", "x%41y", "a:b", "p/q", "#1", "[a]", "n?m", "é=2", "+", "'", None)


def test_files_are_found_whatever_folders_and_partitions_are_called(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "lake #1 of Zoë" / "it's 100"
    rows = spark.createDataFrame([(value, n) for n, value in enumerate(ODD)], "k STRING, n INT").coalesce(1)
    rows.write.format("delta").partitionBy("k").save(str(folder))
    table = LocalTable(str(folder), "source.table")
    read = table.dataset().to_table().to_pylist()
    assert {row["n"]: row["k"] for row in read} == dict(enumerate(ODD))
    assert sorted(n for file in table.files() for n in file.read(["n"])["n"].to_pylist()) == [*range(len(ODD))]


@pytest.mark.parametrize("place", ["{}", "file://{}"])
def test_a_shallow_clone_is_left_to_spark(tmp_path: Path, place: str) -> None:
    of, clone = tmp_path / "of", tmp_path / "clone"
    write_deltalake(of, pa.table({"n": [1]}))
    log = Path("_delta_log", f"{0:020d}.json")
    (clone / log).parent.mkdir(parents=True)
    told = (of / log).read_text().replace('"path":"', f'"path":"{place.format(of)}/')
    (clone / log).write_text(told)
    with pytest.raises(NeedsSpark, match="files of it lie elsewhere"):
        LocalTable(str(clone), "source.table").dataset()


@pytest.mark.parametrize("name", ["lake", "lake #1", "lake?"])
def test_commits_are_numbered_as_they_lie_whatever_a_folder_is_called_and_they_say_of_themselves(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    for n in range(4):
        write_deltalake(place, pa.table({"n": [n, n]}), mode="append")
    second = place / "_delta_log" / f"{1:020d}.json"
    second.write_text("".join(line for line in second.read_text().splitlines(True) if "commitInfo" not in line))
    found = [(entry.version, entry.rows, entry.operation) for entry in LocalTable(str(place), "source.table").history()]
    assert found == [(3, 2, "WRITE"), (2, 2, "WRITE"), (1, 2, ""), (0, 2, "WRITE")]
    assert [entry.version for entry in LocalTable(str(place), "source.table").history(2)] == [3, 2]


def test_a_text_in_a_log_may_hold_other_ends_of_lines(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"s": ["a\u2028b\x85c"]}))
    assert "\u2028" in (tmp_path / "_delta_log" / f"{0:020d}.json").read_text()
    assert [entry.version for entry in LocalTable(str(tmp_path), "source.table").history()] == [0]


def test_a_folder_whose_name_deltalake_takes_for_another_is_left_to_spark(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "a b", pa.table({"n": [1, 2, 3]}))
    with pytest.raises(NeedsSpark, match=r"the path of source\.table has %20 in it"):
        LocalTable(str(tmp_path / "a%20b"), "source.table")


def test_files_may_have_times_that_python_has_none_of(tmp_path: Path) -> None:
    hour, year_0 = 3_600_000_000, -62_135_600_400_000_000
    rows = pa.table({"at": pa.array([year_0, 2**62, hour], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path, rows)
    (file,) = LocalTable(str(tmp_path), "source.table").files()
    assert (file.count(), file.is_final) == (3, None)


def test_a_commit_tells_how_many_rows_it_changes_and_not_how_many_it_copies(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = f"delta.`{tmp_path}`"
    spark.range(20).coalesce(1).write.format("delta").option("delta.enableDeletionVectors", "false").save(str(tmp_path))
    into = f"MERGE INTO {at} t USING (SELECT explode(sequence(0, 3)) AS id) s ON t.id = s.id"
    for statement in (
        f"UPDATE {at} SET id = id + 100 WHERE id < 3",
        f"DELETE FROM {at} WHERE id > 100",
        f"{into} WHEN MATCHED THEN UPDATE SET t.id = 30",
        f"{into} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE",
    ):
        spark.sql(statement)
    part = spark.range(7, 8).write.format("delta").mode("overwrite")
    part.option("replaceWhere", "id = 7").save(str(tmp_path))
    spark.range(5).write.format("delta").mode("overwrite").save(str(tmp_path))
    for table in (LocalTable(str(tmp_path), "source.table"), Table(spark, str(tmp_path), "source.table")):
        assert [entry.rows for entry in table.history()] == [5, 2, 5, 1, 2, 3, 20]


TENANTS = {
    "7": 1,
    "007": None,
    "7e12345678": 2,
    "2026-01-01 08:00:00": 3,
    "5.0": 4,
    "5": 4,
    None: 5,
    "x": None,
    b"ab": 6,
    "ab": None,
    b"\x00\xff\x10": 8,
    "+10000-01-01 00:00:01": 7,
}


@pytest.mark.parametrize(("tenant", "watermark"), TENANTS.items())
def test_the_watermark_of_a_scope_is_found_by_its_value(tenant: str | bytes | None, watermark: int | None) -> None:
    values = (
        '"7"',
        '"7e12345678"',
        '"2026-01-01T08:00:00.000Z"',
        "5.00",
        "null",
        '"YWI="',
        '"+10000-01-01T00:00:01.000000"',
        '"AP8Q"',
    )
    scopes = tuple(f'{{"tenant": {value}, "__scope_watermark": {n}}}' for n, value in enumerate(values, 1))
    told: dict[str, Any] = {"rule": {"watermark_per": ["tenant"]}, "scopes_after": scopes}
    assert oldest._watermark(Manifest.model_construct(**told), {"tenant": tenant}, None) == watermark


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (3_000_000, pa.date32(), "+10183-09-21"),
        (-800_000, pa.date32(), "-0221-09-04"),
        (-719_528, pa.date32(), "0000-01-01"),
        (2**31 - 1, pa.date32(), "+5881580-07-11"),
        (2**62, pa.timestamp("us", "UTC"), "+148108-07-06 14:00:27.387904"),
        (1 - 2**62, pa.timestamp("us"), "-144169-06-28 09:59:32.612097"),
        (253_402_300_800_120_000, pa.timestamp("us", "UTC"), "+10000-01-01 00:00:00.12"),
        (253_402_300_800_000_000, pa.timestamp("us"), "+10000-01-01 00:00:00"),
    ],
)
def test_a_key_of_a_year_that_python_does_not_have_is_told_as_spark_writes_it(
    number: int, kind: pa.DataType, text: str
) -> None:
    assert oldest._texts({"k": oldest._value(pa.array([None, number], kind), 1)}) == {"k": text}


def test_the_first_commit_has_changed_no_columns() -> None:
    """A log that is read by its entries knows no columns of before, and says so in its own way."""
    nothing: Any = SimpleNamespace(schema_at={}.__getitem__)
    made = Entry(0, 0, "CREATE TABLE", {}, {}, None, T.StructType().add("u", "string"))
    shape = Shape(nothing)
    assert not shape.is_changed(made)
    assert shape.is_changed(replace(made, version=1, columns=T.StructType().add("v", "string")))
