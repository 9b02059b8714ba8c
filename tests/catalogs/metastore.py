"""A real metastore: Spark's Hive support upon Derby, which lies in a folder; and tables by name in it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from sessionizer.jobs.config_file import load_config
from sessionizer.lib.config import Config
from tests.few_rows import FOR_FEW_ROWS
from tests.processes import ROOT, Worker, wait_until, without_remote

CONFIG = "sessionizer.yaml"
DATABASE = "lake"


def settings_of(folder: Path) -> dict[str, str]:
    """What leads Spark to the metastore in the folder, which the first start makes."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={folder}/derby.log",
    }


class Lake:
    """Tables by name, of one config on disk, and a process that does commands upon them."""

    def __init__(self, folder: Path, prefix: str = DATABASE) -> None:
        """prefix: what stands before the names of tables, a database or a catalog and a database."""
        self.folder, self.prefix = folder, prefix
        self.config = self.named()
        self.worker = self.begun()
        self.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")

    def begun(self) -> Worker:
        return Worker(self.folder / "log", settings_of(self.folder) | FOR_FEW_ROWS)

    def named(self, file: str = CONFIG, prefix: str | None = None, **names: str) -> Config:
        """Write a config, and load it; prefix, names (of source, sessions, windows): where they are others."""
        told = {name: f"{prefix or self.prefix}.{name}" for name in ("source", "sessions", "windows")} | names
        fields: dict[str, Any] = {
            "source": {"table": told["source"], "key": ["user"], "event_time": "at"},
            "sessions": {"table": told["sessions"]},
            "session": {"gap": "30m"},
            "time": {"allowed_lateness": "1d"},
            "aggregates": [{"name": "total", "fn": "sum", "of": "n"}],
            "sliding": {"table": told["windows"], "time_difference": "10m", "grace": "2d"},
            "spark": settings_of(self.folder),
        }
        (self.folder / file).write_text(yaml.safe_dump(fields))
        return load_config(self.folder / file)

    def sql(self, text: str) -> list[list[Any]]:
        """What Spark says, without the product."""
        found: list[list[Any]] = self.worker.do("sql", self.config, text=text)
        return found

    def tables(self, database: str = DATABASE) -> set[str]:
        return {name for _, name, is_temporary in self.sql(f"SHOW TABLES IN {database}") if not is_temporary}

    def place(self, database: str, name: str) -> Path:
        """The folder of a table that the metastore places."""
        return self.folder / "warehouse" / f"{database}.db" / name

    def __call__(self, *arguments: str, config: str = CONFIG) -> str:
        """What a command prints."""
        code, out, err = self._ended(config, arguments)
        assert code == 0, (arguments, out, err)
        return out

    def refused(self, *arguments: str, config: str = CONFIG) -> str:
        """The one sentence, with its remedy, that a command ends by."""
        code, out, err = self._ended(config, arguments)
        said = [line for line in err.splitlines() if line.startswith("error: ")]
        assert (code in (2, 3), len(said)) == (True, 1), (arguments, code, out, err)
        assert err.splitlines()[-1] == said[0], err
        return said[0].removeprefix("error: ")

    def _ended(self, config: str, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        command, *others = arguments
        told = [command, "-c", config, *others]
        code, out, err = self.worker.do("command", self.config, folder=str(self.folder), arguments=told)
        return code, out, err

    def ingest(self, name: str, text: str, config: str = CONFIG) -> str:
        (self.folder / name).write_text(text)
        return self("ingest", name, "--schema", "n int", config=config)

    def totals(self, *engine: str) -> list[str]:
        """User, events and sum of each session, as CSV."""
        query = "SELECT user, event_count, total FROM sessions ORDER BY user, session_start"
        return self("sql", *engine, "--csv", query).splitlines()[1:]

    def killed(self, job: str, nth: int, *, after: bool) -> None:
        """The job dies at this write, and its process with it; another takes its place."""
        self.worker.wait_ready().die(job, self.config, nth, after=after)
        self.worker = self.begun()

    def by_itself(self, *arguments: str) -> str:
        """What a command prints that is a process of its own. Derby lets one in at a time: the other ends first."""
        self.worker.close()
        wait_until("the other process has not ended", self.worker.is_gone)
        done = subprocess.run(
            [sys.executable, "-c", "from sessionizer.jobs.cli import main; main()", *arguments],
            cwd=self.folder,
            env=without_remote(os.environ) | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
