"""Metrics as Prometheus reads them, and a line of JSON for each run."""

import json
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main
from sessionizer.jobs.reporting.metrics import check_writable, write_metrics
from sessionizer.lib.errors import UsageError
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse


def read(file: Path) -> dict[tuple[str, ...], float]:
    """Name and labels (but the table) of each sample, and its value."""
    families = text_string_to_metric_families(file.read_text())
    return {
        (s.name.removeprefix("sessionizer_"), *[v for k, v in s.labels.items() if k != "table"]): s.value
        for family in families
        for s in family.samples
    }


@pytest.mark.broad
def test_the_metrics_say_what_the_ledger_says(lake_to_see: Warehouse, tmp_path: Path) -> None:
    file = tmp_path / "sessionizer.prom"
    file.write_text("of an earlier run")
    write_metrics(lake_to_see.kind, file, us(clock("+1d 13:10")))
    found = read(file)
    expected = {
        ("runs_total", "run"): 3,
        ("events_read_total",): 8,
        ("events_accepted_total",): 7,
        ("late_events_total",): 1,
        ("rejected_events_total", "late"): 1,
        ("sessions_total", "created"): 4,
        ("sessions_total", "extended"): 2,
        ("sessions_total", "merged"): 0,
        ("sessions_total", "split"): 0,
        ("sessions_total", "finalised"): 2,
        ("sessions_emitted_total",): 2,
        ("unique_keys",): 2,
        ("idle_keys",): 0,
        ("live_sessions",): 2,
        ("source_version",): 2,
        ("watermark_timestamp_seconds",): us(clock("+1d 12:10")) / 1e6,
        ("watermark_lag_seconds",): 3600,
        ("last_run_events_read",): 2,
        ("last_run_late_events",): 1,
    }
    assert {name: found[name] for name in expected} == expected
    ledger = lake_to_see.ledger("seconds", "files_written", "files_read")
    assert found["run_seconds_total", "total"] == pytest.approx(sum(row[0]["total"] for row in ledger))
    assert found["last_run_seconds", "commit"] == ledger[-1][0]["commit"]
    assert found["files_written_total",] == sum(row[1] for row in ledger)
    assert found["files_read_total",] == sum(row[2] for row in ledger)
    assert [f.name for f in tmp_path.iterdir()] == ["sessionizer.prom"]


@pytest.mark.parametrize("place", ["nowhere/sessionizer.prom", "."])
def test_a_file_that_cannot_be_written_is_named_before_the_run(tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="--metrics-file"):
        check_writable(str(tmp_path / place), {})


def test_a_run_writes_a_line_of_json_and_its_metrics(
    lake_to_see: Warehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Warehouse(lake_to_see.spark, tmp_path)
    made.append("user | at | n\nann | 10:00 | 1")
    made.init()
    (tmp_path / "sessionizer.yaml").write_text(
        "source: {table: events, key: [user], event_time: at}\n"
        "sessions: {table: sessions}\naggregates: [{name: total, fn: sum, of: n}]\n"
    )
    command = [
        "run",
        "-c",
        str(tmp_path / "sessionizer.yaml"),
        "--log-json",
        "--metrics-file",
        str(tmp_path / "m.prom"),
    ]
    monkeypatch.setattr(sys, "argv", ["sessionizer", *command])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["run_seq"], told["events_read"], told["sessions_created"]) == ("run", 1, 1, 1)
    assert told["seconds"]["total"] > 0
    assert read(tmp_path / "m.prom")["sessions_total", "created"] == 1


@pytest.mark.broad
def test_sliding_windows_have_the_same_metrics(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Warehouse(spark, tmp_path, sliding={"table": str(tmp_path / "windows"), "time_difference": "10m"})
    made.append("user | at | n\nann | 10:00 | 1\nann | 10:05 | 2\n- | 10:05 | 3")
    made.init()
    (tmp_path / "sessionizer.yaml").write_text(
        "source: {table: events, key: [user], event_time: at}\nsessions: {table: sessions}\n"
        "sliding: {table: windows, time_difference: 10m}\n"
    )
    file = tmp_path / "windows.prom"
    command = ["slide", "-c", str(tmp_path / "sessionizer.yaml"), "--metrics-file", str(file), "--json"]
    monkeypatch.setattr(sys, "argv", ["sessionizer", *command])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    found = read(file)
    expected = {
        ("live_windows",): run["live_windows"],
        ("runs_total", "run"): 1,
        ("windows_total", "created"): 3,
        ("rejected_events_total", "null_key"): 1,
        ("unique_keys",): 1,
        ("source_version",): 0,
        ("watermark_timestamp_seconds",): us(clock("10:05")) / 1e6,
        ("last_run_windows", "created"): 3,
        ("last_run_windows", "finalised"): 0,
        ("last_run_events_read",): 3,
    }
    assert {name: found[name] for name in expected} == expected

    assert found["last_run_seconds", "commit"] > 0

    with pytest.raises(SystemExit):  # nothing is new: the position and the last run are told again
        main()
    again = read(file)
    assert again["last_run_timestamp_seconds",] == found["last_run_timestamp_seconds",]
    assert again["watermark_lag_seconds",] > found["watermark_lag_seconds",]
