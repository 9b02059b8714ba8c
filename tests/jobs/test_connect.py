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


def test_a_warehouse_is_kept_by_a_server_alone(folder: Path, server: str) -> None:
    """From a file to sessions, with late events, a backfill, upkeep and verify; no Java is started here."""

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


def test_a_server_that_is_not_there_is_an_error_of_one_sentence(folder: Path) -> None:
    code, _, err = said(folder, "sc://localhost:1", "run")
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
        code, _, err = said(folder, url, "init")
    assert (code, "no Delta" in err) == (3, True), err
