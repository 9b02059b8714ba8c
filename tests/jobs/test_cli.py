"""The command line as a user and a machine meet it: results on stdout, the rest on stderr, exit codes."""

import json
import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sessionizer.lib import __version__
from tests.jobs.test_without_spark import process
from tests.shell import Shell

CONFIG = """
source: {table: lake/events, key: [user]}
sessions: {table: lake/sessions}
session: {gap: 30m}
aggregates: [{name: total, fn: sum, of: amount}]
"""
CLICKS = """user,event_time,amount
ann,2024-01-01T10:00:00Z,1.5
ann,2024-01-01T10:20:00Z,2
"bob, jr",2024-01-01T10:30:00Z,4
,2024-01-01T10:30:00Z,4
torn
"""

# A command whose JVM is killed within a commit.
DEADLY = """
import os, sys
from pyspark import SparkContext
from sessionizer.jobs import cli
from sessionizer.jobs.command_line import run
from sessionizer.jobs.run.compute import Checkpoints, given_back
from sessionizer.jobs.spark import spark_session
from sessionizer.tables.delta.settings import having

def dying(**_):
    spark = spark_session(small=True)
    with given_back(), having(spark, {"spark.sql.shuffle.partitions": "3"}):
        held = Checkpoints().held(spark.range(1))
        process = SparkContext._gateway.proc
        os.kill(process.pid, 9)
        process.wait()
        held.count()

run._increments = dying
sys.argv = ["sessionizer", "run", "--json"]
cli.main()
"""


@pytest.fixture
def shell(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    return Shell(capsys, monkeypatch, tmp_path)


def test_from_a_file_to_sessions(shell: Shell) -> None:
    load = ("ingest", "clicks.csv", "--format", "csv", "--schema", "amount decimal(10,2)")
    (file,) = shell.json(*load)["files"]
    assert (file["added"], file["unreadable"], file["skipped"]) == (4, 1, False)
    assert "made" in " ".join(shell.json("init")["done"])

    code, out, err = shell("run", "--init", "--dry-run")  # they are there
    assert (code, "dry run" in out, "insert" in out, "starting Spark" in err) == (0, True, True, True)
    ran = shell.json("run")
    assert ran["caught_up"], "though it had something to do"
    (run,) = ran["runs"]
    assert (run["events_read"], run["accepted"], run["invalid"], run["sessions_created"]) == (4, 3, 1, 2)
    assert run["watermark_after"] == "2024-01-01T10:30:00Z"
    assert shell.json("run") == {"runs": [], "caught_up": True}
    code, out, err = shell("run")
    assert (code, out) == (
        0,
        "Nothing new: the source is consumed up to version 1, the watermark is 2024-01-01 10:30:00.\n",
    )
    assert [r["sessions_finalised"] for r in shell.json("run", "--flush")["runs"]] == [2]

    found = shell.json("status")
    assert found["sessions"] == {"open": 0, "closed": 0, "final": 2}
    assert (found["versions_behind"], found["events"]["invalid"]) == (0, 1)
    code, out, _ = shell("status")
    assert code == 0
    assert "0 open, 0 closed, 2 final" in out

    (shell.folder / "more.csv").write_text(CLICKS + CLICKS.splitlines()[-1] + "\n")
    shell.json(*load[:1], "more.csv", *load[2:])
    assert shell.json("run", "--to-version", "1") == {"runs": [], "caught_up": False}, "more is there"


@pytest.mark.parametrize("table", ["default.events", "spark_catalog.default.events"])
def test_a_name_that_ends_with_the_command_is_refused(shell: Shell, table: str) -> None:
    (shell.folder / "sessionizer.yaml").write_text(CONFIG.replace("lake/events", table))
    code, _, err = shell("ingest", "clicks.csv")
    assert (code, "source.table must be a path, or a name in a catalog that outlasts the command" in err) == (2, True)


@pytest.mark.broad
def test_sql_reads_and_changes_nothing(shell: Shell) -> None:
    shell.json("ingest", "clicks.csv", "--format", "csv", "--schema", "amount decimal(10,2)")
    shell.json("init")
    shell.json("run")
    query = "SELECT user, session_end, total FROM sessions ORDER BY user"
    assert shell.json("sql", query) == [
        {"user": "ann", "session_end": "2024-01-01T10:20:00.000000Z", "total": 3.50},
        {"user": "bob, jr", "session_end": "2024-01-01T10:30:00.000000Z", "total": 4.00},
    ]
    code, out, err = shell("sql", "--csv", query)
    assert (code, err) == (0, "")
    ann, bob = (f"2024-01-01T{at}:00.000000Z" for at in ("10:20", "10:30"))
    assert out == f'user,session_end,total\nann,{ann},3.50\n"bob, jr",{bob},4.00\n'
    listed = "SELECT array('a', NULL) AS l, named_struct('x', 1) AS s, CAST(NULL AS INT) AS n, true AS b"
    assert shell("sql", "--csv", listed)[1] == 'l,s,n,b\n"[""a"", null]","{""x"": 1}",,true\n'
    assert shell.json("sql", "SELECT reason FROM rejected_events ORDER BY 1;") == [
        {"reason": "null_key"},
        {"reason": "unreadable"},
    ]
    for statement in ("DELETE FROM sessions", "DROP VIEW sessions", "INSERT INTO runs SELECT * FROM runs", "SELECT ("):
        code, out, err = shell("sql", statement)
        assert (code, out) == (2, "")
        assert "sql takes one query" in err
    twice = "SELECT count(*) AS n, 'x' AS n FROM sessions"
    assert shell.json("sql", twice) == [{"n": 2, "n_1": "x"}]
    code, out, _ = shell("sql", twice)
    assert (code, out.split()) == (0, ["n", "n", "2", "x"])
    code, _, err = shell("sql", "SELECT nobody FROM sessions")
    assert (code, "nobody" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "-c", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["run"], 3, "sessionizer ingest"),
        (["init"], 3, "make it first"),
        (["ingest", "nowhere.csv", "--format", "csv"], 2, "nowhere.csv"),
        (["ingest", "clicks.csv", "--format", "xml"], 2, "--format must be one of csv, json, parquet, access-log"),
        (["ingest", "clicks.csv", "--format", "csv", "--rename", "a"], 2, "--rename must be old=new"),
        (["run", "--now", "tomorrow"], 2, "--now must be a time"),
        (["run", "--no-such-option"], 2, "No such option"),
    ],
)
def test_a_failure_is_a_sentence_and_an_exit_code(shell: Shell, arguments: list[str], code: int, says: str) -> None:
    found, out, err = shell(*arguments)
    assert (found, out) == (code, "")
    assert says in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.broad
def test_a_command_leaves_nothing_of_spark_where_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    done = process("-m", "sessionizer.jobs.cli", "ingest", "clicks.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["clicks.csv", "lake", "sessionizer.yaml"]


def test_names_that_only_the_product_knows_are_in_no_message(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise AnalysisException('[DATATYPE_MISMATCH] Cannot resolve "(__us > `__gap`)" due to data type mismatch.')

    monkeypatch.setattr("sessionizer.jobs.command_line.run._increments", fail)
    code, _, err = shell("run")
    assert (code, "__" in err, "a column that is computed" in " ".join(err.split())) == (3, False, True)


def test_with_json_a_failure_is_a_document_too(shell: Shell) -> None:
    code, out, _ = shell("run", "--json")
    assert (code, json.loads(out)["exit_code"]) == (3, 3)


def test_a_bug_is_a_document_too_and_no_check_that_has_found_something(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Shell(capsys, monkeypatch, tmp_path)

    def fail(**_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("sessionizer.jobs.command_line.run._increments", fail)
    code, out, err = shell("run", "--json")
    assert (code, json.loads(out)["exit_code"], "Traceback" in err) == (70, 70, True)
    assert "this should not have happened: ZeroDivisionError: division by zero" in json.loads(out)["error"]
    code, _, err = shell("run", "--log-json")
    assert (code, json.loads(err.splitlines()[-1])["exit_code"]) == (70, 70)


@pytest.mark.broad
def test_a_spark_that_dies_amid_a_commit_is_told_in_a_sentence(tmp_path: Path) -> None:
    done = process("-c", DEADLY, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"]) == (3, 3), done.stderr
    assert document["error"].startswith("Spark ended amid the command.")
    assert "Traceback" not in done.stderr


def test_schema_and_help_and_version_need_no_config(shell: Shell) -> None:
    code, out, _ = shell("--version")
    assert (code, out.split()[:2]) == (0, ["sessionizer", __version__])
    code, out, _ = shell("schema")
    assert (code, json.loads(out)["title"]) == (0, "Config")
    commands = re.findall(r"^[ │]+([a-z]+)  ", shell("--help")[1], re.MULTILINE)
    assert len(commands) >= 19
    for command in commands:
        code, out, _ = shell(command, "--help")
        assert (code, f"Example: sessionizer {command}" in " ".join(out.split())) == (0, True), command
