"""Tables on a path, read without Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries import oldest
from sessionizer.tables.queries.local import LocalTable

ODD = ("a b", "ü", "x%41y", "a:b", "p/q", "#1", "[a]", "n?m", "é=2", "+", "'", None)


def test_files_are_found_whatever_folders_and_partitions_are_called(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "lake #1 of Zoë" / "it's 100"
    rows = spark.createDataFrame([(value, n) for n, value in enumerate(ODD)], "k STRING, n INT").coalesce(1)
    rows.write.format("delta").partitionBy("k").save(str(folder))
    table = LocalTable(str(folder), "source.table")
    read = table.dataset().to_table().to_pylist()
    assert {row["n"]: row["k"] for row in read} == dict(enumerate(ODD))
    assert {file.partition["k"]: file.read(["n"])["n"].to_pylist() for file in table.files()} == {
        value: [n] for n, value in enumerate(ODD)
    }


TENANTS = {"7": 1, "007": None, "7e12345678": 2, "2026-01-01 08:00:00": 3, "5.0": 4, "5": 4, None: 5, "x": None}


@pytest.mark.parametrize(("tenant", "watermark"), TENANTS.items())
def test_the_watermark_of_a_scope_is_found_by_its_text(tenant: str | None, watermark: int | None) -> None:
    values = ('"7"', '"7e12345678"', '"2026-01-01T08:00:00.000Z"', "5.00", "null")
    scopes = tuple(f'{{"tenant": {value}, "__scope_watermark": {n}}}' for n, value in enumerate(values, 1))
    told: dict[str, Any] = {"rule": {"watermark_per": ["tenant"]}, "scopes_after": scopes}
    assert oldest._watermark(Manifest.model_construct(**told), {"tenant": tenant}, None) == watermark
