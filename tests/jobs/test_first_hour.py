"""The first hour of somebody new, by commands alone: from a file to an answer, and wrong steps on the way."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.test_new import CSV, JSON, LOG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
SLOWER = 4  # than two idle cores: beside other tests
TO_AN_ANSWER, TO_AN_ERROR = 60 * SLOWER, 2 * SLOWER  # seconds


class Newcomer:
    """Types commands in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "sessionizer"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sessionizer.jobs.cli "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}

    def types(self, line: str, code: int = 0) -> str:
        """What a line of the shell prints."""
        done = subprocess.run(
            line, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "sessions"), [("clicks.csv", CSV, 2), ("events.jsonl", JSON, 2), ("access.log", LOG, 1)]
)
def test_from_a_file_to_an_answer(newcomer: Newcomer, name: str, content: str, sessions: int) -> None:
    (newcomer.folder / name).write_text(content)
    begun = time.monotonic()
    said = newcomer.types(f"sessionizer new {name}").splitlines()
    for command in (line for line in said if line.startswith("  sessionizer")):
        newcomer.types(command)
    answer = json.loads(newcomer.types("sessionizer sessions --json"))
    assert time.monotonic() - begun < TO_AN_ANSWER
    assert len(answer) == sessions


def test_each_wrong_step_is_answered_at_once_with_what_to_do(newcomer: Newcomer) -> None:
    (newcomer.folder / "clicks.csv").write_text(CSV)
    steps = [
        ("sessionizer run", "there is no config file"),
        ("sessionizer new nothing.csv", "check the path"),
        ("sessionizer new clicks.csv --key who", "the file has: Customer ID"),
    ]
    newcomer.types("sessionizer new clicks.csv -c there.yaml")
    steps += [
        ("sessionizer run -c there.yaml", "sessionizer ingest"),
        ("sessionizer sessions -c there.yaml", "`sessionizer init` makes it"),
        ("sessionizer slide -c there.yaml", "add a section such as sliding"),
        ("sessionizer backfill -c there.yaml --from 2026-01-02 --to 2026-01-01", "--from must be earlier than --to"),
    ]
    for line, says in steps:
        begun = time.monotonic()
        code = 3 if "run -c" in line or "sessions -c" in line else 2
        assert says in " ".join(newcomer.types(line, code).split()), line
        assert time.monotonic() - begun < TO_AN_ERROR, line
