"""Commands that are quick, because they start no JVM, say what Spark says, and leave to Spark what only Spark reads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from jobs import sql as by_spark
from jobs import sql_duckdb
from jobs.status import status, status_without_spark
from lib.config_file import load_config
from lib.errors import TableError, UsageError
from tables.local import NeedsSpark
from tests.warehouse import Warehouse

HEAVY = ("pyspark", "delta", "deltalake", "duckdb", "pandas", "numpy", "pyarrow", "pydantic", "matplotlib", "jinja2")
FEW = """
user | at    | n
-----|-------|---
ann  | 10:00 | 1
ann  | 10:20 | 2
"b,  | 10:25 | 3
"""
MORE = """
user | at        | n
-----|-----------|---
ann  | 10:30     | 4
bob  | +1d 12:00 | 5
cleo | +1d 12:10 | 6
"""
LATE = """
user | at        | n
-----|-----------|---
ann  | 09:00     | 9
bob  | +1d 12:01 | 7
"""
UNREAD = """
user | at        | n
-----|-----------|---
bob  | +1d 12:03 | 7
"""


def process(*command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": root} | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three runs, one late event, one version not read yet."""
    made = Warehouse(spark, tmp_path_factory.mktemp("lake"), time={"allowed_lateness": "1h"})
    made.append(FEW)
    made.init()
    made.run()
    for events in (MORE, LATE):
        made.append(events)
        made.run()
    made.append(UNREAD)
    fields = made.config.model_dump(mode="json", exclude_none=True, exclude={"time", "outputs"})
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields | {"time": {"allowed_lateness": "1h"}}))
    return made


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["report", "--help"], ["advise", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = f"""
import sys
from jobs.cli import main
sys.argv = ["sessionizer", *{arguments!r}]
try:
    main()
except SystemExit as stopped:
    assert not stopped.code
print("imported", sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = process("-c", code, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["imported []"], done.stderr


def test_status_and_sql_need_no_java(warehouse: Warehouse) -> None:
    nowhere = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = process("-m", "jobs.cli", "status", "--json", cwd=warehouse.folder, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sessions"] == {"open": 2, "closed": 0, "final": 2}
    query = ("sql", "--engine", "duckdb", "--csv", 'SELECT "user", total FROM live_sessions ORDER BY 1')
    done = process("-m", "jobs.cli", *query, cwd=warehouse.folder, **nowhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "user,total\nbob,12\ncleo,6\n", "")


def test_status_says_the_same_as_by_spark(warehouse: Warehouse) -> None:
    with_spark, without = status(warehouse.spark, warehouse.config), status_without_spark(warehouse.config)
    lags = [found.pop("watermark_lag_seconds") for found in (with_spark, without)]
    assert with_spark == without
    assert lags[1] == pytest.approx(lags[0], abs=60)
    assert (without["versions_behind"], without["rows_behind"], without["events"]["late"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sessions ORDER BY session_id",
        "SELECT * FROM final_sessions ORDER BY session_id",
        "SELECT status, count(*) AS n, sum(duration_seconds) AS s FROM live_sessions GROUP BY status ORDER BY 1",
        "SELECT * FROM rejected_events ORDER BY event_hash",
        "SELECT * FROM runs ORDER BY run_seq",
        "SELECT * FROM events ORDER BY n, at",
        "SELECT user AS a, n AS b, NULL AS c FROM events WHERE n > 99;",
    ],
)
def test_duckdb_answers_as_spark_does(warehouse: Warehouse, query: str) -> None:
    frame = by_spark.query_frame(warehouse.spark, warehouse.config, query)
    checked = sql_duckdb.checked_query(warehouse.config, query)
    assert sql_duckdb.documents(checked) == by_spark.documents(frame)
    if "runs" not in query:  # a map is written differently
        assert list(sql_duckdb.csv_lines(checked)) == list(by_spark.csv_lines(frame))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("DELETE FROM sessions", "sql takes one query"),
        ("COPY sessions TO 'copy.csv'", "sql takes one query"),
        ("SELECT 1) ; DROP VIEW sessions; SELECT (1", "sql takes one query"),
        ("SELECT nobody FROM sessions", "nobody"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM warehouse", "warehouse does not exist"),
    ],
)
def test_duckdb_changes_nothing_and_sees_nothing_else(warehouse: Warehouse, query: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sql_duckdb.checked_query(warehouse.config, query)


@pytest.mark.parametrize(
    ("location", "kind"),
    [("db.sessions", "a name"), ("s3a://lake/sessions", "a url"), ("file:/lake/sessions", "a url")],
)
def test_tables_elsewhere_are_left_to_spark(warehouse: Warehouse, location: str, kind: str) -> None:
    config = warehouse.configured(sessions={"table": location})
    with pytest.raises(NeedsSpark, match=kind):
        status_without_spark(config)
    with pytest.raises(NeedsSpark, match=kind):
        sql_duckdb.checked_query(config, "SELECT 1")


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
    ],
)
def test_tables_that_only_spark_reads_are_left_to_it(
    warehouse: Warehouse, tmp_path: Path, properties: dict[str, str], feature: str
) -> None:
    table = str(tmp_path / "sessions")
    writer = warehouse.lake.sessions.table.read().write.format("delta").options(**properties)
    writer.save(table)
    config = warehouse.configured(
        sessions={"table": table},
        outputs={"runs": warehouse.config.outputs.runs, "rejected_events": warehouse.config.outputs.rejected_events},
    )
    with pytest.raises(NeedsSpark, match=rf"sessions\.table uses {feature}"):
        status_without_spark(config)
    with pytest.raises(NeedsSpark, match="uses"):
        sql_duckdb.checked_query(config, "SELECT * FROM final_sessions")
    runs = sql_duckdb.checked_query(config, "SELECT count(*) AS n FROM runs")
    assert sql_duckdb.documents(runs) == [{"n": 3}]


def test_a_table_that_is_not_there_is_named_at_once(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"sessions\.table does not exist"):
        status_without_spark(warehouse.configured(sessions={"table": str(tmp_path / "nothing")}))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").touch()
    with pytest.raises(TableError, match=r"is not one: it holds dear\.txt"):
        status_without_spark(warehouse.configured(sessions={"table": str(tmp_path / "letters")}))


def test_odd_letters_in_paths(warehouse: Warehouse, tmp_path: Path) -> None:
    odd = tmp_path / "a b#c%20d"
    odd.symlink_to(warehouse.folder)
    config = load_config(odd / "sessionizer.yaml", env={"SESSIONIZER__SESSIONS__TABLE": str(odd / "sessions")})
    assert status_without_spark(config)["runs"] == 3
    found = sql_duckdb.documents(sql_duckdb.checked_query(config, "SELECT count(*) AS n FROM sessions"))
    assert found == [{"n": 4}]
