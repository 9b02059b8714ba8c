"""What the provider of OpenLineage is told: the tables that a task reads and writes, and what it has done."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_dags.datasets import dataset, datasets, of_each, reads_and_writes
from tests.airflow.conftest import AIRFLOW, ROOT, Deployment
from tests.airflow.test_scheduler import command_line

pytestmark = pytest.mark.timeout(1800)
WRITTEN = ["sessions", "rejected_events", "runs"]
FILL = """
from airflow.sdk import DAG, Asset, task

with DAG("fill", schedule=None):

    @task(outlets=[Asset("{uri}")])
    def load():
        return None

    load()
"""
SLOW = 'case "$1" in check-config) sleep 599;; esac; exit 2'
# What the provider is made of as if it were not installed.
WITHOUT = """
import sys
sys.modules["openlineage"] = sys.modules["airflow.providers.openlineage.conf"] = None
from airflow_dags import backfill, maintain, sessionize, verify
assert "airflow_dags.lineage" not in sys.modules
"""


@pytest.fixture
def told(deployment: Deployment, tmp_path: Path) -> Iterator[Path]:
    """The file that events of OpenLineage are added to."""
    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    before = dict(deployment.environment)
    deployment.environment["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    deployment.environment["AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT"] = "60"  # on a machine that does much else
    yield file
    deployment.environment = before


def of_task(file: Path, job: str) -> list[dict[str, Any]]:
    """The events of a task, in order."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return [event for event in events if event["job"]["name"] == job]


def names(of: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in of]


def test_a_run_tells_its_tables_and_its_figures(deployment: Deployment, told: Path) -> None:
    deployment.append("dan,2026-01-01T12:55:00Z,512\n")
    done = deployment.test_dag("sessionize")
    assert done["state"] == "success", done["said"]
    start, complete = of_task(told, "sessionize.sessionize")
    lake = deployment.folder / "lake"
    for event, kind in ((start, "START"), (complete, "COMPLETE")):
        assert event["eventType"] == kind
        assert names(event["inputs"]) == [("file", str(lake / "events"))]
        assert names(event["outputs"]) == [("file", str(lake / name)) for name in WRITTEN]
    figures = complete["run"]["facets"]["sessionizer"]["figures"]
    assert figures == deployment.asset_events()[-1]
    assert figures["accepted"] >= 1
    rows = figures["rows_added"] + figures["rows_changed"]
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == rows
    assert "sessionizer" not in start["run"]["facets"]


def test_a_task_that_loads_a_file_tells_of_the_same_table(deployment: Deployment, told: Path) -> None:
    file, events = deployment.home / "dags" / "fill.py", deployment.folder / "lake" / "events"
    file.write_text(FILL.format(uri=f"file://{events}"))
    try:
        assert deployment.test_dag("fill")["state"] == "success"
    finally:
        file.unlink()
    assert names(of_task(told, "fill.load")[-1]["outputs"]) == [("file", str(events))]


def test_a_run_that_fails_tells_its_tables_and_why(deployment: Deployment, told: Path) -> None:
    deployment.environment["SESSIONIZER__SESSIONS__TABLE"] = "nowhere"
    done = deployment.test_dag("sessionize")
    assert done["state"] == "failed"
    start, fail = of_task(told, "sessionize.sessionize")
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert names(fail["inputs"]) == [("file", str(deployment.folder / "lake" / "events"))]
    assert names(fail["outputs"])[0] == ("file", str(deployment.folder / "nowhere"))
    assert "nowhere" in fail["run"]["facets"]["errorMessage"]["message"]
    assert "sessionizer" not in fail["run"]["facets"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("no-such-command", "its tables are not known: cannot start no-such-command"),
        (f"sh -c '{SLOW}' sh", "took too long"),
    ],
)
def test_a_task_whose_tables_are_not_said_goes_on(deployment: Deployment, told: Path, command: str, why: str) -> None:
    deployment.environment |= {"SESSIONIZER_COMMAND": command, "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "8"}
    done = deployment.test_dag("sessionize")
    assert why in done["said"]
    assert "sessionizer run ended with exit code" in done["said"]
    start, fail = of_task(told, "sessionize.sessionize")
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert [start["inputs"], start["outputs"], fail["inputs"], fail["outputs"]] == [[], [], [], []]
    assert [pid for pid in Path("/proc").glob("[0-9]*") if command_line(int(pid.name)) == b"sleep\x00599\x00"] == []


def test_dags_need_no_provider(tmp_path: Path) -> None:
    python = AIRFLOW.with_name("python")
    environment = {"SESSIONIZER_CONFIG": "/srv/shop.yaml", "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(tmp_path)}
    subprocess.run([python, "-c", WITHOUT], check=True, timeout=120, env=environment)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/srv/lake/events", ("file", "/srv/lake/events")),
        ("file:///srv/lake/events/", ("file", "/srv/lake/events")),
        ("s3a://lake/shop/events", ("s3://lake", "shop/events")),
        ("s3://*****@lake/events", ("s3://lake", "events")),
        ("gs://lake/events", ("gs://lake", "events")),
        ("abfss://in@shop.dfs.core.windows.net/events", ("abfss://in@shop.dfs.core.windows.net", "events")),
        ("hdfs://names:8020/lake/events", ("hdfs://names:8020", "/lake/events")),
        ("dbfs:/lake/events", ("dbfs", "/lake/events")),
        ("shop.events", ("hive://metastore:9083", "shop.events")),
        ("spark_catalog.shop.`my events`", ("hive://metastore:9083", "shop.my events")),
    ],
)
def test_a_table_is_called_as_by_openlineage(location: str, told: tuple[str, str]) -> None:
    assert dataset(location, "hive://metastore:9083") == told


def test_without_its_catalog_a_name_is_no_dataset() -> None:
    assert datasets({"events": "shop.events", "sessions": "/lake/s"}, "") == {"sessions": ("file", "/lake/s")}


@pytest.mark.parametrize(
    ("command", "reads", "writes"),
    [
        ("run", "events", "sessions rejected_events runs event_sessions session_updates"),
        ("slide --once", "events", "windows rejected_window_events window_runs"),
        ("backfill --from a --to b --windows", "events", "windows rejected_window_events window_runs"),
        ("backfill --from a --to b --compare", "events sessions rejected_events", ""),
        ("verify --sample 1%", "events sessions rejected_events", ""),
        ("ingest clicks.csv", "", "events rejected_events"),
        ("ingest calls.csv --source calls", "", "events_calls rejected_events"),
        ("ingest calls.csv --source=calls", "", "events_calls rejected_events"),
        ("status", "", ""),
    ],
)
def test_commands_read_and_write(command: str, reads: str, writes: str) -> None:
    assert reads_and_writes(command.split()) == (tuple(reads.split()), tuple(writes.split()))


def test_a_run_of_several_sources_reads_them_all() -> None:
    known = ["events_calls", "events_clicks", "sessions", "event_sessions"]
    assert of_each(("events", "sessions"), known, read=True) == ("events_calls", "events_clicks", "sessions")
    assert of_each(("events", "sessions"), ["events", "sessions"], read=True) == ("events", "sessions")


def test_a_mapping_table_is_read_and_not_written() -> None:
    known = ["events_calls", "events_clicks", "mapping_calls"]
    assert of_each(("events",), known, read=True) == tuple(known)
    assert of_each(("events", "rejected_events"), known, read=False) == (*known[:2], "rejected_events")
    assert of_each(("events",), ["events", "mapping"], read=False) == ("events",)
