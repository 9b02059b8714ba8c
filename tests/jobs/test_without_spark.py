"""Commands that are quick, because they start no JVM, say what Spark says, and leave to Spark what only Spark reads."""

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.commands.status import show, status, status_without_spark
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.console import print_csv, print_json
from sessionizer.jobs.queries import listing, lookups, lookups_duckdb, sql_duckdb
from sessionizer.jobs.queries import sql as by_spark
from sessionizer.jobs.queries.lookups import LookUp
from sessionizer.lib.errors import ConfigError, TableError, UsageError
from sessionizer.tables.queries.duckdb import check_told_alike
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark
from sessionizer.tables.queries.oldest import key_text
from sessionizer.tables.queries.status import is_small
from sessionizer.tables.table_set import TableSet
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

HEAVY = ("pyspark", "delta", "deltalake", "duckdb", "pandas", "numpy", "pyarrow", "matplotlib", "jinja2")


def process(*command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": root} | env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["report", "--help"], ["advise", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = f"""
import sys
from sessionizer.jobs.cli import main
sys.argv = ["sessionizer", *{arguments!r}]
try:
    main()
except SystemExit as stopped:
    assert not stopped.code
print("imported", sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = process("-c", code, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["imported []"], done.stderr


def test_status_and_sql_need_no_java(lake_to_see: Warehouse) -> None:
    nowhere = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = process("-m", "sessionizer.jobs.cli", "status", "--json", cwd=lake_to_see.folder, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sessions"] == {"open": 2, "closed": 0, "final": 2}
    done = process("-m", "sessionizer.jobs.cli", "sessions", "--key", "bob", cwd=lake_to_see.folder, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split()[0] == "bob"
    other_rule = {"SESSIONIZER__SESSION__GAP": "77m"}
    ledger = ("runs", "--json", "--limit", "2")
    done = process("-m", "sessionizer.jobs.cli", *ledger, cwd=lake_to_see.folder, **nowhere, **other_rule)
    assert [(run["run_seq"], run["finished_at"][-1]) for run in json.loads(done.stdout)] == [(3, "Z"), (2, "Z")]
    query = ("sql", "--engine", "duckdb", "--csv", 'SELECT "user", total FROM live_sessions ORDER BY 1')
    done = process("-m", "sessionizer.jobs.cli", *query, cwd=lake_to_see.folder, **nowhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "user,total\nbob,12\ncleo,6\n", "")


def test_status_says_the_same_as_by_spark(lake_to_see: Warehouse) -> None:
    with_spark, without = status(lake_to_see.spark, lake_to_see.config), status_without_spark(lake_to_see.config)
    by_clock = ("watermark_lag_seconds", "oldest_waiting_seconds")
    lags = [[found.pop(name) for name in by_clock] for found in (with_spark, without)]
    assert with_spark == without
    assert lags[1] == pytest.approx(lags[0], abs=60)
    assert (without["versions_behind"], without["rows_behind"], without["events"]["late"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sessions ORDER BY session_id",
        "SELECT * FROM final_sessions ORDER BY session_id",
        "SELECT status, count(*) AS n, sum(duration_seconds) AS s FROM live_sessions GROUP BY status ORDER BY 1",
        "SELECT * FROM numbered_sessions ORDER BY session_id",
        "SELECT * FROM rejected_events ORDER BY event_hash",
        "SELECT * FROM runs ORDER BY run_seq",
        "SELECT * FROM events ORDER BY n",
        "SELECT user AS a, n AS b, NULL AS c FROM events WHERE n > 99;",
    ],
)
def test_duckdb_answers_as_spark_does(lake_to_see: Warehouse, query: str) -> None:
    frame = by_spark.query_frame(lake_to_see.spark, lake_to_see.config, query)
    checked = sql_duckdb.checked_query(lake_to_see.config, query)
    assert sql_duckdb.documents(checked) == by_spark.documents(frame)
    if "runs" not in query:  # a map is written differently
        assert list(sql_duckdb.text_rows(checked)) == list(by_spark.text_rows(frame))


def test_json_has_all_the_digits_of_decimals(lake_to_see: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT CAST('12345678901234567890.123456789' AS DECIMAL(30, 9)) AS d, CAST(0.5 AS DOUBLE) AS f, 'a' AS t"
    checked = sql_duckdb.checked_query(lake_to_see.config, query)
    frame = by_spark.query_frame(lake_to_see.spark, lake_to_see.config, f"SELECT *, array(d) AS more FROM ({query})")
    found = [*sql_duckdb.documents(checked), *by_spark.documents(frame)]
    print_json(found)
    told = "".join(capsys.readouterr().out.split())
    row = '"d":12345678901234567890.123456789,"f":0.5,"t":"a"'
    assert told == f'[{{{row}}},{{{row},"more":[12345678901234567890.123456789]}}]'


def test_numbers_of_single_precision_are_told_alike(lake_to_see: Warehouse) -> None:
    numbers = (
        "CAST(0.1 AS FLOAT) AS a, CAST(3.4028234e38 AS FLOAT) AS b, CAST(-1.5 AS FLOAT) AS c, CAST(0 AS FLOAT) AS d"
    )
    checked = sql_duckdb.checked_query(lake_to_see.config, f"SELECT {numbers}")
    assert sql_duckdb.documents(checked) == [{"a": 0.1, "b": 3.4028235e38, "c": -1.5, "d": 0.0}]


def test_times_that_python_lacks_are_told_alike(lake_to_see: Warehouse) -> None:
    times = (
        "('10000-01-01 00:00:00'), ('9999-12-31 23:59:59.9'), ('0001-01-01 00:00:00.000001'), ('0000-05-01 00:00:00')"
    )
    query = "SELECT CAST({0} AS TIMESTAMP{1}) AS t, CAST({0} AS DATE) AS d FROM (VALUES {2}) AS a(x) ORDER BY t"
    checked = sql_duckdb.checked_query(lake_to_see.config, query.format("x", "TZ", times))
    far = times.replace("('10000", "('+10000")
    frame = by_spark.query_frame(lake_to_see.spark, lake_to_see.config, query.format("x", "", far))
    assert sql_duckdb.documents(checked) == by_spark.documents(frame)


def test_a_text_that_is_none_in_utf8_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'events'}` (user STRING, at TIMESTAMP, n INT, page STRING) USING delta")
    made = Warehouse(spark, tmp_path, aggregates=[{"name": "entry", "fn": "first", "of": "page"}])
    made.init()
    row = "'ann', TIMESTAMP'2026-01-01 10:00', 1, CAST(X'636166E9' AS STRING)"
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'events'}` VALUES ({row})")
    made.run()
    query = lookups_duckdb.look_up(made.config, LookUp(key=("ann",)), whole=True)
    for told in (sql_duckdb.documents, lambda of: next(iter(sql_duckdb.text_rows(of)))):
        with pytest.raises(NeedsSpark, match="UTF-8"):
            told(query)


def test_csv_quotes_what_would_end_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[list[str | None]] = [["a", "b"], ["x\ry", None], ["x\ny", "1"]]
    print_csv(rows)
    told = capsys.readouterr().out
    assert (told, [*csv.reader(io.StringIO(told, newline=""))]) == ('a,b\n"x\ry",\n"x\ny",1\n', [*map(blank, rows)])


def blank(row: list[str | None]) -> list[str]:
    return [value or "" for value in row]


def test_a_view_whose_tables_are_not_there_is_told(lake_to_see: Warehouse, tmp_path: Path) -> None:
    config = lake_to_see.configured(sessions={"table": str(tmp_path / "none")})
    for view in ("final_sessions", "session_changes"):
        with pytest.raises(UsageError, match=f"{view} has no table to read yet"):
            by_spark.query_frame(lake_to_see.spark, config, f"SELECT * FROM {view}")


def test_numbers_of_keys_are_told_as_spark_tells_them() -> None:
    told = {10.0: "10.0", 1e7: "1.0E7", -12345678.5: "-1.23456785E7", 1e-5: "1.0E-5", 0.001: "0.001", 0.0: "0.0"}
    assert {value: key_text(value) for value in told} == told


def test_a_key_that_the_table_lacks_is_told_by_spark_too(lake_to_see: Warehouse) -> None:
    config = lake_to_see.configured(source={"key": ["users"]})
    for look_up in (
        lambda asked: lookups_duckdb.look_up(config, asked, whole=True),
        lambda asked: lookups.look_up(TableSet(lake_to_see.spark, config), asked),
    ):
        with pytest.raises(ConfigError, match=r"source\.key names a column that the sessions table does not have"):
            look_up(LookUp(key=("ann",)))


def test_no_table_of_another_config_answers_in_the_same_session(lake_to_see: Warehouse, tmp_path: Path) -> None:
    other = lake_to_see.configured(sessions={"table": str(tmp_path / "none")})
    for table in ("sessions", "events"):
        by_spark.query_frame(lake_to_see.spark, lake_to_see.config, f"SELECT * FROM {table}")
    with pytest.raises(UsageError, match="sessions has no table to read yet"):
        by_spark.query_frame(lake_to_see.spark, other, "SELECT * FROM sessions")


def test_json_has_no_numbers_that_json_has_not(lake_to_see: Warehouse) -> None:
    query = "SELECT CAST('NaN' AS DOUBLE) AS n, CAST('Infinity' AS DOUBLE) AS i, CAST('-Infinity' AS DOUBLE) AS m"
    checked = sql_duckdb.checked_query(lake_to_see.config, query)
    frame = by_spark.query_frame(lake_to_see.spark, lake_to_see.config, query)
    assert (
        sql_duckdb.documents(checked) == by_spark.documents(frame) == [{"n": "NaN", "i": "Infinity", "m": "-Infinity"}]
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("DELETE FROM sessions", "sql takes one query"),
        ("COPY sessions TO 'copy.csv'", "sql takes one query"),
        ("SELECT 1) ; DROP VIEW sessions; SELECT (1", "sql takes one query"),
        ("SELECT nobody FROM sessions", "nobody"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM lake_to_see", "there is no lake_to_see"),
    ],
)
def test_duckdb_changes_nothing_and_sees_nothing_else(lake_to_see: Warehouse, query: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sql_duckdb.checked_query(lake_to_see.config, query)


@pytest.mark.parametrize(
    "asked",
    [
        LookUp(),
        LookUp(key=("ann",)),
        LookUp(key=("nobody's",)),
        LookUp(key_from=("b",)),
        LookUp(key_to=("bob",), backward=True),
        LookUp(key_from=("ann",), key_to=("bob",), limit=2),
        LookUp(earliest_end=us(clock("10:25")), latest_start=us(clock("10:30"))),
        LookUp(latest_end=us(clock("10:25")) - 1),
        LookUp(only_open=True),
        LookUp(retention=0),
        LookUp(retention=600_000_000, backward=True, limit=1),
    ],
)
def test_look_ups_say_the_same_as_by_spark(lake_to_see: Warehouse, asked: LookUp) -> None:
    found = sql_duckdb.documents(lookups_duckdb.look_up(lake_to_see.config, asked, whole=True))
    assert found == lookups.as_documents(lake_to_see.tables, asked)


@pytest.mark.parametrize(
    "asked", [LookUp(version=1), LookUp(at=1), LookUp(key=("ann", "b")), LookUp(key=("a",), key_from=("b",))]
)
def test_look_ups_that_only_spark_answers_and_those_that_nobody_does(lake_to_see: Warehouse, asked: LookUp) -> None:
    with pytest.raises((NeedsSpark, UsageError)) as caught:
        lookups_duckdb.look_up(lake_to_see.config, asked, whole=True)
    if caught.type is UsageError:
        with pytest.raises(UsageError) as by_spark_too:
            lookups.as_documents(lake_to_see.tables, asked)
        assert str(by_spark_too.value) == str(caught.value)


SINGLE = T.FloatType()


@pytest.mark.parametrize(
    ("kind", "alike"),
    [
        (SINGLE, True),
        (T.ArrayType(SINGLE), True),
        (T.MapType(T.StringType(), T.DoubleType()), True),
        (T.StructType([T.StructField("lat", SINGLE)]), False),
        (T.ArrayType(T.ArrayType(SINGLE)), False),
        (T.MapType(T.StringType(), SINGLE), False),
        (T.MapType(T.DateType(), T.LongType()), False),
    ],
)
def test_what_duckdb_writes_otherwise_is_left_to_spark(kind: T.DataType, alike: bool) -> None:
    columns = T.StructType([T.StructField("value", kind)])
    with nullcontext() if alike else pytest.raises(NeedsSpark, match="DuckDB writes value"):
        check_told_alike(columns)


@pytest.mark.parametrize(
    ("location", "kind"),
    [("db.sessions", "a name"), ("gs://lake/sessions", "a url"), ("file:/lake/sessions", "a url")],
)
def test_tables_elsewhere_are_left_to_spark(lake_to_see: Warehouse, location: str, kind: str) -> None:
    config = lake_to_see.configured(sessions={"table": location})
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
    lake_to_see: Warehouse, tmp_path: Path, properties: dict[str, str], feature: str
) -> None:
    table = str(tmp_path / "sessions")
    writer = lake_to_see.tables.sessions.table.read().write.format("delta").options(**properties)
    writer.save(table)
    config = lake_to_see.configured(
        sessions={"table": table},
        outputs={
            "runs": lake_to_see.config.outputs.runs,
            "rejected_events": lake_to_see.config.outputs.rejected_events,
        },
    )
    with pytest.raises(NeedsSpark, match=rf"sessions\.table uses {feature}"):
        status_without_spark(config)
    with pytest.raises(NeedsSpark, match="uses"):
        sql_duckdb.checked_query(config, "SELECT * FROM final_sessions")
    runs = sql_duckdb.checked_query(config, "SELECT count(*) AS n FROM runs")
    assert sql_duckdb.documents(runs) == [{"n": 3}]


def test_a_table_that_is_not_there_is_named_at_once(lake_to_see: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"sessions\.table does not exist"):
        status_without_spark(lake_to_see.configured(sessions={"table": str(tmp_path / "nothing")}))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").touch()
    with pytest.raises(TableError, match=r"is not one: it holds dear\.txt"):
        status_without_spark(lake_to_see.configured(sessions={"table": str(tmp_path / "letters")}))


def test_odd_letters_in_paths(lake_to_see: Warehouse, tmp_path: Path) -> None:
    odd = tmp_path / "a b#c%20d"
    odd.symlink_to(lake_to_see.folder)
    config = load_config(odd / "sessionizer.yaml", env={"SESSIONIZER__SESSIONS__TABLE": str(odd / "sessions")})
    assert status_without_spark(config)["runs"] == 3
    found = sql_duckdb.documents(sql_duckdb.checked_query(config, "SELECT count(*) AS n FROM sessions"))
    assert found == [{"n": 4}]


def test_a_library_of_an_extra_is_named_when_it_is_missing(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
from sessionizer.jobs.cli import main
sys.argv = ["sessionizer", "report"]
main()
"""
    done = process("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install '.[report]' in the checkout" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "completed"), [("sessionizer rep", "report"), ("sessionizer run --metr", "--metrics-file")]
)
def test_the_shell_completes_commands_and_options(words: str, completed: str, tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['sessionizer']; from sessionizer.jobs.cli import main; main()"
    asked = {"_SESSIONIZER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert process("-c", code, cwd=tmp_path, **asked).stdout.split() == [completed]


@pytest.mark.parametrize("whole", [False, True])
def test_little_work_is_told_by_the_logs(
    lake_to_see: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: bool
) -> None:
    tables = LocalTableSet(lake_to_see.config)
    assert is_small(tables, whole=whole)
    monkeypatch.setattr("sessionizer.tables.queries.status.SMALL_BYTES", 0)
    assert not is_small(tables, whole=whole)
    nothing = LocalTableSet(lake_to_see.configured(sessions={"table": str(tmp_path / "nothing")}))
    assert not is_small(nothing, whole=whole)


def test_the_tables_are_listed(lake_to_see: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    found = listing.listed(lake_to_see.config)
    assert found == listing.listed_by_spark(lake_to_see.spark, lake_to_see.config)
    assert {one.table: one.rows for one in found} == {"events": 9, "sessions": 4, "rejected_events": 1, "runs": 3}
    listing.show(found)
    assert "live_sessions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("query", "says"),
    [("SELECT * FROM sesions", "did you mean sessions?"), ("SELECT * FROM zzz", "there are events, final_sessions")],
)
def test_a_misspelt_table_is_answered_with_the_nearest(lake_to_see: Warehouse, query: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        by_spark.query_frame(lake_to_see.spark, lake_to_see.config, query)
    assert says in str(caught.value)
    with pytest.raises(UsageError) as without:
        sql_duckdb.checked_query(lake_to_see.config, query)
    assert str(without.value) == str(caught.value)


def test_a_key_that_the_table_does_not_have_is_named(lake_to_see: Warehouse) -> None:
    config = lake_to_see.configured(source={"key": ["usr"]})
    with pytest.raises(ConfigError, match=r"the sessions table does not have: got 'usr'\. did you mean user\?"):
        lookups_duckdb.look_up(config, LookUp(), whole=True)


def test_times_of_the_last_runs_are_iso_in_json_and_short_for_a_person(
    lake_to_see: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    found = status_without_spark(lake_to_see.config)
    run = found["last_runs"][-1]
    assert (run["watermark_before"], run["watermark_after"]) == (None, "2026-01-01T10:25:00Z")
    assert run["finished_at"].endswith("Z")
    show(found)
    assert run["finished_at"][:19].replace("T", " ") in capsys.readouterr().out
