"""A task of Airflow's that merges 1,000 events: each with a Spark of its own, and by a Spark that is up.

`python -m bench.airflow` (`make bench-airflow`) prints medians and their ratio. Real Airflow, real tasks, in turn; the
seconds are those that Airflow has of the task, from its start to its end.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.airflow.conftest import AIRFLOW, Deployment, deployed
from tests.connect_server import connect_server

EVENTS, ROUNDS, WARM_UP = 1_000, 5, 3
ALLOWED = 0.35
ALONE, BY_SERVER = "a Spark of its own", "a warm Spark Connect server"


def main() -> None:
    """Exit code 1 if the server saves less than it should."""
    parser = argparse.ArgumentParser(prog="python -m bench.airflow", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that count")
    asked = parser.parse_args()
    if not AIRFLOW.exists():
        raise SystemExit(f"there is no Airflow at {AIRFLOW}: `make bench-airflow` installs it")
    with tempfile.TemporaryDirectory() as folder:
        seconds = measured(Path(folder), asked.rounds)
    table, middle = Table(), {name: statistics.median(each) for name, each in seconds.items()}
    for title in ("", "seconds", "min", "max", "to the first"):
        table.add_column(title)
    for name, each in seconds.items():
        figures = (middle[name], min(each), max(each), middle[name] / middle[ALONE])
        table.add_row(name, *(f"{figure:.2f}" for figure in figures))
    Console().print(table)
    if (ratio := middle[BY_SERVER] / middle[ALONE]) > ALLOWED:
        sys.exit(f"a task by a warm server takes {ratio:.2f} of one that starts Spark: at most {ALLOWED} is promised")


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """The seconds of each task, by what does its work."""
    deployment, seconds = deployed(folder), {ALONE: list[float](), BY_SERVER: list[float]()}
    deployment.append(events(0))
    deployment.sessionizer("init")
    deployment.sessionizer("run")
    with connect_server(folder, tuning={"spark.sql.shuffle.partitions": "2"}) as url:
        ways = {ALONE: dict[str, str](), BY_SERVER: {"SPARK_REMOTE": url}}
        number = 0
        for warm_up in [True] * WARM_UP + [False] * rounds:
            for name, environment in ways.items():
                number += 1
                took = task(deployment, number, environment)
                seconds[name] += [] if warm_up else [took]
    return seconds


def task(deployment: Deployment, number: int, environment: dict[str, str]) -> float:
    """How long one took that has read the events of this hour."""
    deployment.append(events(number))
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
