"""A task of Airflow's that merges 1,000 events: each with a Spark of its own, and by a Spark that is up.

`python -m bench.airflow` (`make bench-airflow`) prints medians and ratios. Real Airflow, real tasks, in turn; the
seconds are those that Airflow has of the task, from its start to its end. A task whose command does nothing tells
what of them is Airflow's own.
"""

import argparse
import statistics
import tempfile
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.airflow.conftest import AIRFLOW, Deployment, deployed
from tests.connect_server import connect_server

EVENTS, ROUNDS, WARM_UP = 1_000, 5, 3
NOTHING, ALONE, BY_SERVER = "a command that does nothing", "a Spark of its own", "a warm Spark Connect server"
# What a run prints, as far as it is looked at here.
IDLE = f"""#!/bin/sh
echo '{{"runs": [{{"accepted": {EVENTS}}}]}}'
"""


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
    with connect_server(folder, tuning={"spark.sql.shuffle.partitions": "2"}) as url:
        ways = {NOTHING: {"SESSIONIZER_COMMAND": str(idle)}, ALONE: {}, BY_SERVER: {"SPARK_REMOTE": url}}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        hours = count(1)
        for warm_up in [True] * WARM_UP + [False] * rounds:
            for name, environment in ways.items():
                if name != NOTHING:
                    deployment.append(events(next(hours)))
                took = task(deployment, environment)
                seconds[name] += [] if warm_up else [took]
    return seconds


def task(deployment: Deployment, environment: dict[str, str]) -> float:
    """How long one took that has read a thousand events."""
    before = dict(deployment.environment)
    deployment.environment |= environment
    done = deployment.test_dag("sessionize")
    deployment.environment = before
    if done["state"] != "success":
        raise SystemExit(done["said"])
    (run,) = done["xcoms"]["sessionize"]["runs"]
    if run["accepted"] != EVENTS:
        raise SystemExit(f"the task has read {run['accepted']} events, not {EVENTS}")
    return deployment.seconds("sessionize", done["run_id"])


def events(hour: int) -> str:
    """A thousand of a hundred users, within one hour."""
    day, of_day = divmod(hour, 24)
    times = (f"2026-01-{day + 1:02}T{of_day:02}:{n * 3 // 60:02}:{n * 3 % 60:02}Z" for n in range(EVENTS))
    return "".join(f"user-{n % 100},{time},{n}\n" for n, time in enumerate(times))


if __name__ == "__main__":
    main()
