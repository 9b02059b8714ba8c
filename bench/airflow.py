"""A task of Airflow's that merges 1,000 events: each with a Spark of its own, and by a Spark that is up.

`python -m bench.airflow` (`make bench-airflow`) prints medians and ratios. Tasks that a real scheduler has started, in
turn; the seconds are those that Airflow has of the task, from its start to its end. A task whose command does nothing
tells what of them is Airflow's own.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.airflow.conftest import AIRFLOW, COMMAND, Deployment, deployed, until
from tests.connect_server import connect_server

EVENTS, ROUNDS, WARM_UP = 1_000, 5, 3
NOTHING, ALONE, BY_SERVER = "a command that does nothing", "a Spark of its own", "a warm Spark Connect server"
DAGS = {NOTHING: "nothing", ALONE: "alone", BY_SERVER: "by_server"}
# What a run prints, as far as it is looked at here.
IDLE = f"""#!/bin/sh
echo '{{"runs": [{{"accepted": {EVENTS}}}]}}'
"""
OF_EACH = """
from airflow.sdk import DAG
from airflow_dags.command import SessionizerOperator

for name, command in {commands!r}.items():
    with DAG(name, schedule=None, is_paused_upon_creation=False):
        SessionizerOperator(task_id="run", arguments=["run"], config={config!r}, command=command)
"""
DAGS_READ = "SELECT 1 FROM dag WHERE fileloc LIKE '%of_each.py'"


def main() -> None:
    """Prints what a task takes by each."""
    parser = argparse.ArgumentParser(prog="python -m bench.airflow", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that count")
    asked = parser.parse_args()
    if not AIRFLOW.exists():
        raise SystemExit(f"there is no Airflow at {AIRFLOW}: `make bench-airflow` installs it")
    with tempfile.TemporaryDirectory() as folder:
        seconds = measured(Path(folder), asked.rounds)
    table, middle = Table(), {name: statistics.median(each) for name, each in seconds.items()}
    for title in ("a task by", "seconds", "min", "max", "ratio", "of the command"):
        table.add_column(title)
    own = middle[NOTHING]
    for name, each in seconds.items():
        of_command = (middle[name] - own) / (middle[ALONE] - own)
        figures = (middle[name], min(each), max(each), middle[name] / middle[ALONE], of_command)
        table.add_row(name, *(f"{figure:.2f}" for figure in figures))
    Console().print(table)


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """The seconds of each task, by what does its work."""
    deployment, idle = deployed(folder), folder / "idle.sh"
    idle.write_text(IDLE)
    idle.chmod(0o755)
    deployment.append(events(0))
    deployment.sessionizer("init")
    deployment.sessionizer("run")
    seconds: dict[str, list[float]] = {name: [] for name in DAGS}
    with ExitStack() as running:
        url = running.enter_context(connect_server(folder, tuning={"spark.sql.shuffle.partitions": "2"}))
        commands = {NOTHING: [str(idle)], ALONE: COMMAND, BY_SERVER: ["env", f"SPARK_REMOTE={url}", *COMMAND]}
        of_each = {DAGS[name]: command for name, command in commands.items()}
        config = deployment.environment["SESSIONIZER_CONFIG"]
        (deployment.home / "dags" / "of_each.py").write_text(OF_EACH.format(commands=of_each, config=config))
        running.enter_context(deployment.scheduling())
        until(lambda: len(deployment.rows(DAGS_READ)) == len(DAGS), "the DAGs are read")
        hours = count(1)
        for warm_up in [True] * WARM_UP + [False] * rounds:
            for name, dag in DAGS.items():
                if name != NOTHING:
                    deployment.append(events(next(hours)))
                took = task(deployment, dag)
                seconds[name] += [] if warm_up else [took]
    return seconds


def task(deployment: Deployment, dag: str) -> float:
    """How long one took that has read a thousand events."""
    code, said = deployment.airflow("dags", "trigger", dag)
    if code:
        raise SystemExit(said)
    run = until(lambda: _last(deployment, dag), f"{dag} has run")
    if run["state"] != "success":
        raise SystemExit(f"{dag} has ended: {run['state']}")
    (done,) = deployment.results(dag, run["run_id"])["xcoms"]["run"]["runs"]
    if done["accepted"] != EVENTS:
        raise SystemExit(f"the task has read {done['accepted']} events, not {EVENTS}")
    return deployment.seconds(dag, run["run_id"])


def _last(deployment: Deployment, dag: str) -> Any:
    """The last run of a DAG, once it has ended."""
    query = "SELECT run_id, state FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1"
    (run,) = deployment.rows(query, dag)
    return run if run["state"] in ("success", "failed") else None


def events(hour: int) -> str:
    """A thousand of a hundred users, within one hour."""
    day, of_day = divmod(hour, 24)
    times = (f"2026-01-{day + 1:02}T{of_day:02}:{n * 3 // 60:02}:{n * 3 % 60:02}Z" for n in range(EVENTS))
    return "".join(f"user-{n % 100},{time},{n}\n" for n, time in enumerate(times))


if __name__ == "__main__":
    main()
