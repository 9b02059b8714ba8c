"""Every command by a Spark that runs elsewhere, behind Spark Connect, and what is said where there is none."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connect_server import connect_server
from tests.processes import ROOT

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


def test_tables_on_the_server_s_disk_are_looked_at_without_it_where_it_is_on_this_machine(folder: Path) -> None:
    """A server named localhost sees this disk; of any other nobody knows."""
    code, _, err = said(folder, "sc://localhost:1", "run")
    assert (code, "source.table does not exist" in err) == (2, True), err
    code, _, err = said(folder, "sc://127.0.0.2:1", "run")
    assert (code, "Spark server was not reached" in err) == (3, True), err


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


@pytest.mark.parametrize("url", ["sc://localhost:1", "sc://127.0.0.2:1"])
def test_a_server_that_is_not_there_is_an_error_of_one_sentence(folder: Path, url: str) -> None:
    code, _, err = said(folder, url, "ingest", "clicks.csv", "--format", "csv", "--schema", TYPES)
    assert (code, "Spark server was not reached" in err) == (3, True), err


@pytest.mark.slow
def test_a_server_without_delta_is_an_error_of_one_sentence(folder: Path) -> None:
    with connect_server(folder, {}) as url:
        code, _, err = said(folder, url, "init")
    assert (code, "no Delta" in err) == (3, True), err
