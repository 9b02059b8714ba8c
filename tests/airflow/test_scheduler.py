"""What only a scheduler shows: `airflow backfill create`, a run by an asset, tasks that are killed."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import Deployment, until
from tests.airflow.test_keeper import alive, members

pytestmark = pytest.mark.timeout(1800)
LOADER = """
from airflow.sdk import DAG, Asset, task

with DAG("load", schedule=None):

    @task(outlets=[Asset("clicks")])
    def load():
        return None

    load()
"""


@pytest.fixture(scope="module")
def before_backfill(deployment: Deployment) -> int:
    """How many events of the sessions asset there were before three hours were asked for.

    They are asked for while nobody else writes to Airflow's database: the command reads and writes in one transaction,
    which SQLite refuses at once beside another writer, and what it has written before that stays.
    """
    deployment.sessionizer("run")
    hours = ["--from-date", "2026-01-01T10:00:00+00:00", "--to-date", "2026-01-01T12:00:00+00:00"]
    for arguments in (
        ["dags", "reserialize"],
        ["dags", "unpause", "sessionize", "--yes"],
        ["backfill", "create", "--dag-id", "sessionize", *hours, "--max-active-runs", "3"],
    ):
        code, said = deployment.airflow(*arguments)
        assert code == 0, said
    return len(deployment.asset_events())


@pytest.fixture(scope="module")
def scheduled(deployment: Deployment, before_backfill: int) -> Iterator[Deployment]:
    """The deployment, scheduling."""
    (deployment.home / "dags" / "load.py").write_text(LOADER)
    with deployment.scheduling():
        until(lambda: deployment.rows("SELECT 1 FROM dag WHERE dag_id = 'load'"), "the DAGs are read")
        yield deployment


def runs(deployment: Deployment, dag: str, kind: str) -> list[Any]:
    query = "SELECT * FROM dag_run WHERE dag_id = ? AND run_type = ? ORDER BY logical_date"
    return deployment.rows(query, dag, kind)


def over(found: list[Any]) -> list[Any]:
    return [run for run in found if run["state"] in ("success", "failed")]


def ended(found: list[Any], number: int) -> list[Any]:
    return found if len(over(found)) == len(found) == number else []


def test_a_backfill_recomputes_the_data_interval_of_each_of_its_runs(
    scheduled: Deployment, before_backfill: int
) -> None:
    found = until(lambda: ended(runs(scheduled, "sessionize", "backfill"), 3), "three runs")
    assert [run["state"] for run in found] == ["success"] * 3
    spans = []
    for run in found:
        (done,) = scheduled.results("sessionize", run["run_id"])["xcoms"]["sessionize"]["runs"]
        assert (done["mode"], done["dry_run"], done["late"]) == ("backfill", False, 0)
        spans.append((done["from"], done["to"]))
    assert spans == [(f"2026-01-01T{hour}:00:00Z", f"2026-01-01T{hour + 1}:00:00Z") for hour in (10, 11, 12)]
    # The scheduled run beside them consumes versions, whatever its interval. There are none, so nobody is told of it.
    hourly = until(lambda: over(runs(scheduled, "sessionize", "scheduled")), "the run of this hour")[0]
    assert scheduled.results("sessionize", hourly["run_id"])["tasks"] == {"sessionize": ["skipped"]}
    assert [event["mode"] for event in scheduled.asset_events()[before_backfill:]] == ["backfill"] * 3


def test_an_event_of_the_source_starts_a_run(scheduled: Deployment) -> None:
    scheduled.append("cat,2026-01-01T12:50:00Z,256\n")
    assert scheduled.airflow("dags", "unpause", "load", "--yes")[0] == 0
    assert scheduled.airflow("dags", "trigger", "load")[0] == 0
    (run,) = until(lambda: ended(runs(scheduled, "sessionize", "asset_triggered"), 1), "a run by the asset")
    assert run["state"] == "success"
    # Where the hour has just turned, the run of the clock may have been faster.
    told = [event for event in scheduled.asset_events() if event["mode"] == "run"]
    assert [(event["events_read"], event["sessions_created"]) for event in told[-1:]] == [(1, 1)]


@pytest.mark.parametrize("how", ["the task is killed", "its supervisor is asked to stop"])
def test_a_task_that_ends_by_force_leaves_no_twin(scheduled: Deployment, how: str) -> None:
    if how == "the task is killed":
        kind = "scheduled"  # the weekly run, which begins as soon as it may
        assert scheduled.airflow("dags", "unpause", "verify", "--yes")[0] == 0
    else:
        kind = "manual"
        code, said = scheduled.airflow("dags", "trigger", "verify", "--conf", json.dumps({"sample": "100%"}))
        assert code == 0, said
    before = len(over(runs(scheduled, "verify", kind)))
    (keeper,) = until(lambda: keepers(scheduled, "verify"), "the command is running")
    until(lambda: [pid for pid in members(keeper) if b"java" in command_line(pid)], "Spark is up", 60)
    everything, task = members(keeper), parent(keeper)
    assert len(everything) >= 3, "the keeper, the command, Spark"
    begun = time.monotonic()
    if how == "the task is killed":
        os.kill(task, signal.SIGKILL)
    else:
        os.kill(parent(task), signal.SIGTERM)
    until(lambda: not any(map(alive, everything)), "all that the task has started is gone", 20)
    print(f"{how}: nothing was left after {time.monotonic() - begun:.1f} s")
    found = until(lambda: over(runs(scheduled, "verify", kind))[before:], "the run has ended")
    assert [run["state"] for run in found] == ["failed"]
    assert keepers(scheduled, "verify") == []


def keepers(deployment: Deployment, command: str) -> list[int]:
    """The processes that keep this command of the deployment; each leads the group of all that it has started."""
    words = {command.encode(), b"--config", deployment.environment["SESSIONIZER_CONFIG"].encode()}
    all_pids = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
    found = [pid for pid in all_pids if words <= set(command_line(pid).split(b"\0"))]
    named = [pid for pid in found if command_line(pid).split(b"\0")[1:2] and b"keeper.py" in command_line(pid)]
    return [pid for pid in named if group(pid) == pid]  # not what it has forked and is not a command yet


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
