"""Processes that do the product's jobs, warm, as they are asked; and are killed for good."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from sessionizer.lib.config import Config

ROOT = Path(__file__).parents[1]
PATIENCE = 280  # seconds until a process that hangs is given up


def without_remote(environment: Mapping[str, str]) -> dict[str, str]:
    """What PySpark itself sets for a Spark that is elsewhere is left out."""
    return {name: v for name, v in environment.items() if not name.startswith(("SPARK_CONNECT", "SPARK_REMOTE"))}


class Worker:
    """One process of `tests.jobs.driver`: `ask` returns at once, `answer` waits; `kill` takes its JVM along."""

    def __init__(self, log: Path, settings: Mapping[str, str] | None = None, *, lives_long: bool = False) -> None:
        """log: where it tells how it goes. lives_long: so long that fast machine code is worth making."""
        self.log, self._told = log, log.open("a")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.driver", json.dumps(dict(settings or {})), *["long"] * lives_long],
            cwd=ROOT,
            # A Java of its own, also where the tests have a Spark that is elsewhere.
            env=without_remote(os.environ) | {"TZ": "UTC", "SESSIONIZER_CLASS_ARCHIVE": "on"},
            stdin=pipe,
            stdout=pipe,
            stderr=self._told,
            text=True,
            start_new_session=True,  # a group of its own, which is killed as one
        )
        self.is_ready = False

    def wait_ready(self) -> "Worker":
        """Return when Spark is up."""
        if not self.is_ready:
            assert "ready" in self._line()
            self.is_ready = True
        return self

    def ask(
        self, job: str, config: Config, killed: tuple[int, bool, list[int]] | None = None, /, **options: Any
    ) -> None:
        """Have it begin a job."""
        asked = {"job": job, "config": json.loads(config.model_dump_json(by_alias=True))}
        self._stdin.write(json.dumps(asked | {"with": options, "killed": killed}) + "\n")
        self._stdin.flush()

    def answer(self) -> Any:
        """What the job returned. Errors: AssertionError where it failed."""
        told = self._line()
        assert "done" in told, (told, self.log.read_text()[-4000:])
        return told["done"]

    def do(self, job: str, config: Config, **options: Any) -> Any:
        """A job, waited for."""
        self.wait_ready().ask(job, config, **options)
        return self.answer()

    def die(self, job: str, config: Config, nth: int, *, after: bool) -> None:
        """Have it begin a job, and end for good, with its JVM, at the nth write of it."""
        self.ask(job, config, (nth, after, []))
        assert self.ended() == -9
        self.kill()
        self.close()

    def ended(self) -> int:
        """Its exit code, when it has died."""
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL to the process and to its JVM, whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def is_gone(self) -> bool:
        """Whether its JVM has ended, too, which takes longer where that leaves an archive of its classes."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def __enter__(self) -> "Worker":
        return self

    def close(self) -> None:
        """Have it end by itself, or else for good."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        for file in (self.process.stdout, self._told):
            if file is not None:
                file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def _line(self) -> dict[str, Any]:
        """The next line that it says, within PATIENCE."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            assert waiting.select(PATIENCE), f"silent for {PATIENCE} s"
        line = self.process.stdout.readline()
        assert line, (self.process.wait(PATIENCE), self.log.read_text()[-4000:])
        return json.loads(line)


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(said: str, holds: Any, seconds: float = PATIENCE) -> None:
    """Return as soon as it holds. Errors: AssertionError with what was `said`, after so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, said
        time.sleep(0.05)
