"""Every command by a Spark that runs elsewhere, behind Spark Connect, and what is said where there is none."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from airflow_dags import keeper
from tests.connect_server import WITH_DELTA, connect_server, free_port
from tests.processes import ROOT, wait_until

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
pytestmark = [pytest.mark.broad, pytest.mark.timeout(600)]

CLICKS = "user,at,page\nann,2026-01-01T08:00:00Z,a\nann,2026-01-01T08:10:00Z,b\nbob,2026-01-01T09:00:00Z,a\n"
MORE = "user,at,page\nann,2026-01-01T08:35:00Z,c\nbob,2026-01-01T12:00:00Z,a\n"
TYPES = "user STRING, at TIMESTAMP, page STRING"
CONFIG = """
source: {table: events, key: [user], event_time: at}
sessions: {table: sessions}
session: {gap: 30m}
time: {allowed_lateness: 1d}
aggregates: [{name: pages, fn: count_distinct, of: "upper(page)"}]
spark: {spark.driver.memory: 3g, spark.sql.shuffle.partitions: "1"}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    return tmp_path


def said(folder: Path, url: str, *command: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose Spark is at the URL."""
    done = subprocess.run(
        [sys.executable, "-m", "sessionizer.jobs.cli", *command],
        env=os.environ | {"SPARK_REMOTE": url, "PYTHONPATH": str(ROOT), "JAVA_HOME": "/nowhere", "TZ": "UTC"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def asked(folder: Path, url: str, *command: str) -> Any:
    code, out, err = said(folder, url, *command, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("is_here", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_warehouse_is_kept_by_a_server_alone(folder: Path, server: str, is_here: bool) -> None:
    """From a file to sessions, with late events, a backfill, upkeep and verify; no Java is started here."""
    server = server if is_here else elsewhere(server)
    (folder / "sessionizer.yaml").write_text(f"{CONFIG}outputs: {{session_updates: updates}}\n")

    def do(*command: str) -> None:
        code, out, err = said(folder, server, *command)
        assert code == 0, (command, out, err)

    do("ingest", "clicks.csv", "--format", "csv", "--schema", TYPES)
    do("init")
    do("run")
    (folder / "more.csv").write_text(MORE)
    do("ingest", "more.csv", "--format", "csv", "--schema", TYPES)
    do("run")
    found = asked(folder, server, "sql", "SELECT user, event_count, pages FROM sessions ORDER BY user, session_start")
    assert [tuple(row.values()) for row in found] == [("ann", 3, 3), ("bob", 1, 1), ("bob", 1, 1)]
    do("verify")


def test_a_first_run_by_a_server_begins_behind_its_start(folder: Path, server: str) -> None:
    for name, events in (("clicks.csv", CLICKS), ("more.csv", MORE)):
        (folder / name).write_text(events)
        asked(folder, server, "ingest", name, "--format", "csv", "--schema", TYPES)
    begun = CONFIG.replace("event_time: at", "event_time: at, start: {version: 2}")
    (folder / "sessionizer.yaml").write_text(begun)
    asked(folder, server, "run", "--init")
    found = asked(folder, server, "sql", "SELECT user, event_count, pages FROM sessions ORDER BY user, session_start")
    assert [tuple(row.values()) for row in found] == [("ann", 1, 1), ("bob", 1, 1)]
    assert said(folder, server, "verify")[0] == 0


TELLS_ITS_LOG = """
import json, sys
from sessionizer.jobs.spark import spark_session
from sessionizer.tables.delta import Commit, Table
spark = spark_session({"spark.remote": sys.argv[1]})
table = Table(spark, sys.argv[2], "sessions.table")
if sys.argv[3] == "grow":
    table.create(spark.range(0).withColumnRenamed("id", "a \u2028 b").schema, [], {"delta.checkpointInterval": "3"})
    for n in range(5):
        rows = spark.range(n).withColumnRenamed("id", "a \u2028 b")
        table.append(rows, Commit(f"app {n % 3}", n + 1, json.dumps({"said": "\u2028 \x85", "n": n})))
log = table._log
print(json.dumps({
    "here": type(log).__name__ == "FilesLog",
    "exists": log.exists(), "missing": Table(spark, sys.argv[2] + "-not", "sessions.table").exists(),
    "version": log.version(), "size": log.size(), "id": log.id(),
    "schema": [log.schema().json(), log.schema_at(2).json()],
    "fences": [log.transactions(), log.transaction("app 1"), log.transaction("none")],
    "settings": [log.setting("delta.checkpointInterval"), log.setting("none"), log.partition_columns(), log.kept_us()],
    "entries": [e.__dict__ for e in table.history()], "lines": [log.lines(n, whole=True) for n in range(7)],
}, default=str))
"""


def test_the_log_says_the_same_from_the_disk_and_by_the_server(tmp_path: Path, server: str) -> None:
    found = []
    for url, what in ((elsewhere(server), "grow"), (server, "look"), (elsewhere(server), "look")):
        done = subprocess.run(
            [sys.executable, "-c", TELLS_ITS_LOG, url, str(tmp_path / "table"), what],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert [each.pop("here") for each in found] == [False, True, False]
    assert found[0] == found[1] == found[2]
    assert (found[0]["version"], found[0]["exists"], found[0]["missing"]) == (5, True, False)
    assert "_last_checkpoint" in {file.name for file in (tmp_path / "table" / "_delta_log").iterdir()}


def elsewhere(url: str) -> str:
    """The same server, by a name of which nobody knows that it is this machine."""
    return url.replace("localhost", "127.0.0.1")


def test_tables_of_a_server_on_this_machine_are_looked_at_without_it(folder: Path, server: str) -> None:
    """A server named localhost sees this disk; of any other, and where there is no such table, nobody knows."""
    nowhere = "sc://localhost:1"
    assert said(folder, nowhere, "run")[0] == 3
    for command in (("ingest", "clicks.csv", "--format", "csv", "--schema", TYPES), ("init",), ("run",)):
        assert said(folder, server, *command)[0] == 0
    code, out, err = said(folder, nowhere, "run")
    assert (code, "Nothing new" in out + err) == (0, True), out + err
    assert said(folder, nowhere, "status")[0] == 0
    code, _, err = said(folder, elsewhere(nowhere), "run")
    assert (code, "Spark server was not reached" in err) == (3, True), err


@pytest.mark.slow
def test_the_demo_by_a_server(tmp_path: Path, server: str) -> None:
    code, out, err = said(tmp_path, server, "demo", str(tmp_path / "demo"))
    assert (code, "Run 3" in out) == (0, True), err


@pytest.mark.slow
def test_history_is_made_right_by_a_server_alone(folder: Path, server: str) -> None:
    for command in (
        ("ingest", "clicks.csv", "--format", "csv", "--schema", TYPES),
        ("init",),
        ("run",),
        ("backfill", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"),
        ("maintain",),
        ("rebuild", "--yes"),
        ("verify",),
        ("status",),
    ):
        code, out, err = said(folder, server, *command)
        assert code == 0, (command, out, err)


def test_expressions_and_queries_are_as_safe_as_beside_a_jvm(folder: Path, server: str) -> None:
    assert said(folder, server, "ingest", "clicks.csv", "--format", "csv", "--schema", TYPES)[0] == 0
    for unsafe in ("rand() < 0.5", "now() > at", "user IN (SELECT 'ann')", "at > 'today'"):
        (folder / "unsafe.yaml").write_text(CONFIG.replace("event_time: at", f'event_time: at, where: "{unsafe}"'))
        code, _, err = said(folder, server, "init", "-c", "unsafe.yaml")
        assert (code, "source.where" in err) == (2, True), (unsafe, err)
    for query in ("DROP TABLE sessions", "SELECT reflect('java.lang.System', 'exit', 1)"):
        code, _, err = said(folder, server, "sql", query)
        assert code == 2, (query, err)


@pytest.mark.parametrize("url", ["sc://localhost:1", "sc://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_an_error_of_one_sentence(folder: Path, url: str) -> None:
    code, _, err = said(folder, url, "ingest", "clicks.csv", "--format", "csv", "--schema", TYPES)
    assert (code, "Spark server was not reached" in err) == (3, True), err


def jobs_at(port: int) -> set[int]:
    """What a server computes at present, by its page."""
    begin = f"http://localhost:{port}/api/v1/applications"
    with urlopen(begin, timeout=30) as said:
        (application,) = json.load(said)
    with urlopen(f"{begin}/{application['id']}/jobs?status=running", timeout=30) as said:
        return {job["jobId"] for job in json.load(said)}


def takes_long(port: int) -> bool:
    """Whether the server is at the same job for some seconds."""
    before = jobs_at(port)
    time.sleep(3)
    return bool(before & jobs_at(port))


@pytest.mark.slow
def test_a_command_whose_task_is_gone_leaves_nothing_at_work_at_the_server(folder: Path) -> None:
    events = (f"u{n},2026-01-01T08:{n % 60:02d}:00Z,a\n" for n in range(50_000))
    (folder / "clicks.csv").write_text("user,at,page\n" + "".join(events))
    slow = "aggregate(sequence(1, 100000 + length(page)), 0L, (sum, x) -> sum + x) > 0"  # milliseconds of each event
    (folder / "slow.yaml").write_text(CONFIG.replace("event_time: at", f'event_time: at, where: "{slow}"'))
    port = free_port()
    with connect_server(folder, WITH_DELTA | {"spark.ui.enabled": "true", "spark.ui.port": str(port)}) as url:
        for command in (["ingest", "clicks.csv", "--format", "csv", "--schema", TYPES], ["init"]):
            code, _, err = said(folder, url, *command)
            assert code == 0, err
        run = [sys.executable, "-m", "sessionizer.jobs.cli", "run", "-c", "slow.yaml"]
        with subprocess.Popen(
            [sys.executable, keeper.__file__, *run],
            env=os.environ | {"SPARK_REMOTE": url, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdin=subprocess.PIPE,
            start_new_session=True,
        ) as kept:
            wait_until("the server is at work", lambda: takes_long(port), 180)
            assert kept.stdin is not None
            kept.stdin.close()  # as it is when the task is gone
            wait_until("the server has stopped", lambda: not jobs_at(port), 30)


@pytest.mark.slow
def test_a_server_without_delta_is_an_error_of_one_sentence(folder: Path) -> None:
    with connect_server(folder, {}) as url:
        code, _, err = said(folder, url, "ingest", "clicks.csv", "--format", "csv", "--schema", TYPES)
    assert (code, "no Delta" in err) == (3, True), err
