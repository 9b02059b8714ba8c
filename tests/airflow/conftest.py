"""A real Airflow with its own home, the real command line, real Delta tables: all as in a deployment, but small."""

import io
import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import csv

from tests.few_rows import FOR_FEW_ROWS

ROOT = Path(__file__).parents[2]
AIRFLOW = Path(os.environ.get("SESSIONIZER_TEST_AIRFLOW", ROOT / ".venv-airflow" / "bin" / "airflow"))
# As users have it, commands start from the archive of classes, which the suite's own process leaves alone.
COMMAND = ["env", "-u", "SESSIONIZER_CLASS_ARCHIVE", f"PYTHONPATH={ROOT}", sys.executable, "-m", "sessionizer.jobs.cli"]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONFIG = f"""
source: {{table: lake/events, key: [user]}}
sessions: {{table: lake/sessions}}
session: {{gap: 30m}}
time: {{allowed_lateness: 1h}}
aggregates: [{{name: total, fn: sum, of: amount}}]
spark: {json.dumps({"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK} | FOR_FEW_ROWS)}
"""
PATIENCE = 600.0


class Deployment:
    """An Airflow home with the DAGs, and a folder with a config and its tables."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "airflow"
        (self.home / "dags").mkdir(parents=True)
        (self.home / "dags" / "airflow_dags").symlink_to(ROOT / "airflow_dags")
        (folder / "sessionizer.yaml").write_text(CONFIG)
        self.port = free_port()
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "SESSIONIZER", "PYTEST"))}
        self.environment = clean | {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "for this test alone, and nobody else",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            # Several of Airflow's processes write to it, and one waits for another five seconds at most by default.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db?timeout=60",
            "SESSIONIZER_COMMAND": shlex.join(COMMAND),
            "SESSIONIZER_CONFIG": str(folder / "sessionizer.yaml"),
            "SESSIONIZER_EVENTS_ASSET": "clicks",
            "SESSIONIZER_RETRIES": "0",
        }

    def sessionizer(self, *arguments: str) -> Any:
        """The document of a command."""
        command = [*COMMAND, *arguments, "--config", self.environment["SESSIONIZER_CONFIG"], "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def append(self, events: str) -> None:
        """Add events to the source, by another writer than Spark: `user,time,amount` a line."""
        types = {"user": pa.string(), "event_time": pa.timestamp("us", "UTC"), "amount": pa.float64()}
        options = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        read = csv.read_csv(io.BytesIO(events.encode()), csv.ReadOptions(column_names=list(types)), None, options)
        records_changes = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(self.folder / "lake" / "events", read, mode="append", configuration=records_changes)

    def airflow(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code and all that a command of Airflow says; again where SQLite has let another writer go first."""
        for _ in range(5):
            with self.service(*arguments, environment=environment) as process:
                log = Path(process.log.name)
                process.wait(PATIENCE)
            if process.returncode == 0 or "database is locked" not in log.read_text():
                break
        return process.returncode, log.read_text()

    def test_dag(self, dag: str, **conf: Any) -> dict[str, Any]:
        """`airflow dags test`; the state and, by task, the results of the run."""
        _, said = self.airflow("dags", "test", dag, *(["--conf", json.dumps(conf)] if conf else []))
        (run,) = self.rows("SELECT run_id, state FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1", dag)
        return {"state": run["state"], "said": said, "run_id": run["run_id"], **self.results(dag, run["run_id"])}

    def seconds(self, dag: str, run_id: str) -> float:
        """How long the one task of a run took, as Airflow has it."""
        query = "SELECT duration FROM task_instance WHERE dag_id = ? AND run_id = ?"
        (task,) = self.rows(query, dag, run_id)
        return float(task["duration"])

    def results(self, dag: str, run_id: str) -> dict[str, Any]:
        """tasks: their states; xcoms: what they have returned, by task (mapped ones in a list) or by task.key."""
        run = (dag, run_id)
        tasks = self.rows("SELECT task_id, state FROM task_instance WHERE dag_id = ? AND run_id = ?", *run)
        query = "SELECT task_id, map_index, key, value FROM xcom WHERE dag_id = ? AND run_id = ? ORDER BY map_index"
        xcoms: dict[str, Any] = {}
        for row in self.rows(query, *run):
            name = row["task_id"] if row["key"] == "return_value" else f"{row['task_id']}.{row['key']}"
            if row["map_index"] < 0:
                xcoms[name] = json.loads(row["value"])
            else:
                xcoms.setdefault(name, []).append(json.loads(row["value"]))
        states: dict[str, list[str]] = {}
        for row in tasks:
            states.setdefault(row["task_id"], []).append(row["state"])
        return {"tasks": states, "xcoms": xcoms}

    def asset_events(self) -> list[dict[str, Any]]:
        """The extras of the events of the sessions asset, oldest first."""
        query = (
            "SELECT e.extra FROM asset_event e JOIN asset a ON e.asset_id = a.id "
            "WHERE a.name = 'sessionizer_sessions' ORDER BY e.id"
        )
        return [json.loads(row["extra"]) for row in self.rows(query)]

    def rows(self, query: str, *values: Any) -> list[Mapping[str, Any]]:
        """Of Airflow's database."""
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=30)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query, values)]

    @contextmanager
    def scheduling(self) -> Iterator[None]:
        """With an API server, a DAG processor and a scheduler: tasks that start before the first answers fail."""
        with ExitStack() as running:
            running.enter_context(self.service("api-server"))
            until(lambda: is_open(self.port), "the API server answers")
            for service in ("dag-processor", "scheduler"):
                running.enter_context(self.service(service))
            yield

    @contextmanager
    def service(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator["Service"]:
        """A command of Airflow that runs as long as the block; nothing that it has started outlives it."""
        service = Service(self, arguments, environment or {})
        try:
            yield service
        finally:
            service.end()


class Service(subprocess.Popen[bytes]):
    """A command of Airflow in a session of its own; what it says is in a file."""

    def __init__(self, deployment: Deployment, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.log = (deployment.folder / f"{'-'.join(arguments[:3])}.log").open("wb")
        super().__init__(
            [str(AIRFLOW), *arguments],
            env={**deployment.environment, **environment},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self) -> None:
        """Ask it to stop, then stop it."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGTERM)
            try:
                self.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self.wait()
        self.log.close()


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What `holds` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.5)
    raise AssertionError(f"it did not happen in {seconds:.0f} s: {what}")


def deployed(folder: Path) -> Deployment:
    """With Airflow's database and pool."""
    made = Deployment(folder)
    for arguments in (("db", "migrate"), ("pools", "set", "sessionizer", "1", "one command at a time")):
        code, said = made.airflow(*arguments)
        assert code == 0, said
    return made


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment of the file's own, and a source with two users' events of three hours."""
    if not AIRFLOW.exists():
        pytest.fail(f"there is no Airflow at {AIRFLOW}: `make test-airflow` installs it")
    made = deployed(tmp_path_factory.mktemp("deployment"))
    made.append(
        "ann,2026-01-01T10:00:00Z,1\nann,2026-01-01T10:10:00Z,2\nbob,2026-01-01T10:20:00Z,4\n"
        "ann,2026-01-01T11:30:00Z,8\nbob,2026-01-01T12:40:00Z,16\n,2026-01-01T12:00:00Z,32\n",
    )
    made.sessionizer("init")
    yield made
    shutil.rmtree(made.home / "logs", ignore_errors=True)
