"""A MERGE that writes many rows of one partition is written by several tasks."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.tables.delta import FILES_WRITTEN, Commit, Table, settings

SCHEMA = T.StructType(
    [T.StructField(n, t) for n, t in (("n", T.LongType()), ("done", T.BooleanType()), ("x", T.StringType()))]
)
FOUR_KB = "concat_ws('', transform(sequence(1, 64), i -> sha2(concat(id, '-', i), 256)))"
MIB = 1 << 20
TASKS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(
    ("file_size", "many", "tasks"), [(MIB, False, 1), (MIB, True, 2), (settings.SHUFFLED, True, 1)]
)
@pytest.mark.broad
def test_tasks_are_as_many_as_files_worth_having(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_size: int, many: bool, tasks: int
) -> None:
    monkeypatch.setattr(settings, "SHUFFLED", file_size)
    spark.conf.set(TASKS, 2)
    try:
        before = [spark.conf.get(name, None) for name in settings.by_all_cores()]
        table = Table(spark, str(tmp_path / "table"), "sessions.table")
        table.create(SCHEMA, ["done"], {})
        rows = spark.range(1000).selectExpr("id AS n", "true AS done", f"{FOUR_KB} AS x")
        table.append(rows.coalesce(1), Commit("a", 1))
        changes = rows.selectExpr("*", "n % 100 = 0 AS gone").where("n % 10 = 0")
        table.merge(changes, "t.n = s.n", Commit("a", 2), delete_when="s.gone", many=many)
        (entry,) = table.history(1)
        assert entry.metric(FILES_WRITTEN) == tasks
        assert table.read().count() == 990
        assert [spark.conf.get(name, None) for name in settings.by_all_cores()] == before
    finally:
        spark.conf.set(TASKS, 1)
