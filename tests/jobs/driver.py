"""The jobs, by name; a process that does them as it is asked: `python -m tests.jobs.driver [SETTINGS_AS_JSON [long]]`.

The process says `{"ready": PID}` when Spark is up. Then each line on stdin asks, `{"job", "config", "with", "killed"}`,
and is answered by a line, `{"done"}` or `{"failed"}`. killed: [n, after, pids]:
SIGKILL before or after the nth write, to these processes, or to this very one.
"""

import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main as main_of_commands
from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.ingest import ingest
from sessionizer.jobs.run.driver import run, slide
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.jobs.spark import spark_session
from sessionizer.lib.config import Config
from sessionizer.tables.table_set import TableSet
from tests.kills import killing, shooting, shot

Job = Callable[..., Any]


def _run(spark: SparkSession, config: Config, **options: Any) -> list[int]:
    return [r.manifest.events["accepted"] for r in run(spark, config, RunOptions(**options), tell)]


def _slide(spark: SparkSession, config: Config, **options: Any) -> list[int]:
    return [r.manifest.events["accepted"] for r in slide(spark, config, RunOptions(**options), tell)]


def _backfill(spark: SparkSession, config: Config, windows: bool = False, **asked: Any) -> int:
    return len(backfill(kind_of(spark, config, windows=windows), LookBack(**asked), tell))


def _readmit(spark: SparkSession, config: Config, windows: bool = False, **asked: Any) -> int:
    return len(readmit(kind_of(spark, config, windows=windows), LookBack(**asked), tell))


def _rebuild(spark: SparkSession, config: Config, windows: bool = False, **asked: Any) -> int:
    return rebuild(kind_of(spark, config, windows=windows), say=tell, **asked).manifest.events["accepted"]


def _ingest(spark: SparkSession, config: Config, files: list[str], **options: Any) -> list[int]:
    paths, now = [Path(file) for file in files], datetime.now(UTC)
    return [r.added for r in ingest(spark, config, paths, IngestOptions(**options), now=now)]


def _init(spark: SparkSession, config: Config) -> None:
    init(spark, config, None, tell)


def _maintain(spark: SparkSession, config: Config, **asked: Any) -> list[str]:
    return [done.table for done in maintain(spark, config, Upkeep(**asked), tell)]


def _verify(spark: SparkSession, config: Config) -> bool:
    is_right = verify(spark, config, Asked(), tell).clean
    return is_right and (config.sliding is None or verify_windows(spark, config, Asked(), tell).clean)


def _restore(spark: SparkSession, config: Config, back: int) -> int:
    """By hand, to the run before the last `back` ones; a local disk wants the lock for any commit."""
    sessions = TableSet(spark, config).sessions
    with sessions.table.lock():
        runs = list(sessions.manifests())
        version = runs[min(back, len(runs) - 1)].sessions_version + 1
        spark.sql(f"RESTORE delta.`{config.sessions.table}` TO VERSION AS OF {version}")
    return version


def _command(_: SparkSession, __: Config, folder: str, arguments: list[str]) -> tuple[int, str, str]:
    """The command line in a folder: its exit code, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["sessionizer", *arguments]),
    ):
        try:
            main_of_commands()
        except SystemExit as stopped:
            return int(stopped.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("a command ends by an exit code")


def _sql(spark: SparkSession, _: Config, text: str) -> list[list[Any]]:
    """What Spark itself says, row by row."""
    return [list(row) for row in spark.sql(text).collect()]


JOBS: dict[str, Job] = {
    "command": _command,
    "sql": _sql,
    "run": _run,
    "slide": _slide,
    "backfill": _backfill,
    "backfill of windows": partial(_backfill, windows=True),
    "readmit": _readmit,
    "rebuild": _rebuild,
    "ingest": _ingest,
    "init": _init,
    "maintain": _maintain,
    "verify": _verify,
    "restore": _restore,
}


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """What came of one line."""
    config = Config.model_validate(asked["config"])
    nth, after, pids = asked.get("killed") or (0, False, [])
    death = shooting(pids) if pids else shot
    dying: AbstractContextManager[None] = killing(nth, after, death) if nth else nullcontext()
    try:
        with dying:
            return {"done": JOBS[asked["job"]](spark, config, **asked.get("with", {}))}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def main(settings: dict[str, str], *, lives_long: bool) -> None:
    spark = spark_session({"spark.driver.memory": "1g"} | settings, small=not lives_long)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}, lives_long="long" in sys.argv[2:])
