"""Several sources by the command line: files of each, one run of all, and what every command says of them."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionizer.tables.queries.duckdb import connect
from tests.quick_tables import append
from tests.shell import Shell
from tests.warehouse import SOURCE

CONFIG = """
sources:
  - {name: clicks, table: lake/clicks, key: [user]}
  - {name: calls, table: lake/calls, key: [{name: user, expr: caller}], event_time: begun}
sessions: {table: lake/sessions}
session: {gap: 30m}
time: {allowed_lateness: 0s}
aggregates: [{name: clicks, fn: count, source: clicks}, {name: talked, fn: sum, of: seconds}]
"""
CLICKS = """user,event_time
ann,2024-01-01T10:00:00Z
bob,2024-01-01T12:00:00Z
"""
CALLS = """caller,begun,seconds
ann,2024-01-01T10:20:00Z,60
ann,2024-01-01T11:00:00Z,5
torn
"""


@pytest.fixture
def shell(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    (tmp_path / "calls.csv").write_text(CALLS)
    return Shell(capsys, monkeypatch, tmp_path)


@pytest.mark.broad
def test_files_of_two_sources_become_sessions_and_every_command_knows_both(shell: Shell) -> None:
    code, _, err = shell("ingest", "clicks.csv")
    assert (code, "--source must say which of several sources the files are of" in err) == (2, True)
    shell.json("ingest", "clicks.csv", "--source", "clicks")
    (file,) = shell.json("ingest", "calls.csv", "--source", "calls", "--schema", "seconds bigint")["files"]
    assert (file["added"], file["unreadable"]) == (2, 1)

    (run,) = shell.json("run", "--init", "--metrics-file", "m.prom")["runs"]
    assert (run["accepted"], run["sessions_created"], run["sources"]) == (4, 3, {"calls": 1, "clicks": 1})
    assert run["watermark_after"] == "2024-01-01T11:00:00Z"  # calls are behind
    metrics = (shell.folder / "m.prom").read_text()
    assert 'sessionizer_source_version{source="clicks"' in metrics or 'source="clicks"' in metrics
    assert shell.json("run") == {"runs": [], "caught_up": True}

    found = shell.json("status")
    assert {name: of["consumed_version"] for name, of in found["sources"].items()} == {"calls": 1, "clicks": 1}
    assert found["sources"]["calls"]["latest_event"] == "2024-01-01T11:00:00Z"
    held = found["oldest_open"]["held_by"]
    assert "source_behind" in [one["by"] for one in held]
    code, out, _ = shell("status")
    assert (code, "lake/calls" in out, "come to 2024-01-01" in out) == (0, True, True)

    tables = {row["table"]: row["rows"] for row in shell.json("show")["tables"]}
    assert (tables["events_clicks"], tables["events_calls"], tables["sessions"]) == (2, 2, 3)
    (row,) = shell.json("sql", "SELECT source, reason FROM rejected_events", "--engine", "duckdb")
    assert row == {"source": "calls", "reason": "unreadable"}

    span = ("--from", "2024-01-01", "--to", "2024-01-02")
    assert shell.json("backfill", *span, "--dry-run")["source"]["version"] == {"calls": 1, "clicks": 1}
    assert shell.json("verify", "--dry-run")["source"]["rows_at_most"] == 4
    assert shell.json("verify")["clean"]
    plan = shell.json("rebuild", "--dry-run")
    assert (plan["comes"], plan["goes"], plan["changes"], plan["stays"]) == (0, 0, 0, 3)
    code, _, err = shell("run", "--to-version", "1")
    assert (code, "--to-version is of one source" in err) == (2, True)


def test_columns_that_do_not_go_together_are_told_before_spark_starts(shell: Shell) -> None:
    lake, at = shell.folder / "lake", datetime(2024, 1, 1, 10, tzinfo=UTC)
    append(lake / "clicks", [("ann", at, "ads")], "user STRING, event_time TIMESTAMP, Source STRING", SOURCE)
    append(lake / "calls", [("ann", at, 1)], "caller STRING, begun TIMESTAMP, event_time INT", SOURCE)
    code, _, err = shell("check-config")
    assert code == 2
    assert "sources, clicks: of several sources none must have a column source: it says" in err
    assert "must have one type in all, and one spelling: got 'event_time INT, event_time TIMESTAMP'" in err


def test_what_stands_in_the_way_says_which_source(shell: Shell) -> None:
    code, _, err = shell("check-config")
    assert code == 2
    assert "sources, calls: sources.calls.table does not exist" in err
    assert "sources, clicks: sources.clicks.table does not exist" in err


def test_duckdb_knows_the_events_of_a_source_whatever_the_case_of_its_name() -> None:
    clicks = SimpleNamespace(dataset=lambda: pa.table({"n": [1]}))
    config = SimpleNamespace(source=SimpleNamespace(key=()), each=())
    tables: Any = SimpleNamespace(config=config, existing=lambda: {"events_Clicks": clicks})
    query = "SELECT n FROM Events_clicks"
    assert connect(tables, query).execute(query).fetchall() == [(1,)]
