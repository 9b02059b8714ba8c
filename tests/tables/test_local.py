"""Tables on a path, read without Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

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
