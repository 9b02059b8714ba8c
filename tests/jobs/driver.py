"""The main job in a process of its own: `python -m tests.jobs.driver FOLDER CONFIG_AS_JSON [killed_before_ledger]`.

It says `FOLDER/ready.PID` when Spark is up, and runs as soon as there is `FOLDER/go`; what it did is its output.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from jobs.sessionize import RunOptions, run
from jobs.spark import spark_session
from lib.config import Config
from tables.runs import Runs


def main(folder: Path, config: Config, *, killed: bool) -> None:
    spark = spark_session({"spark.driver.memory": "1g"})
    if killed:
        Runs.append = _kill_me  # type: ignore[method-assign, assignment]
    (folder / f"ready.{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    reports = run(spark, config, RunOptions(), lambda text: print(text, file=sys.stderr))
    print(json.dumps([r.manifest.events["accepted"] for r in reports]))


def _kill_me(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Config.model_validate_json(sys.argv[2]), killed="killed_before_ledger" in sys.argv)
