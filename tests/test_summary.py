"""The table of figures at the end of a run of tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COUNTING = """
def test_one(tally):
    tally.add("lines fuzzed", 1200)
    tally.add("rows lost", 0)

def test_two(tally):
    tally.add("lines fuzzed")
    tally.note("ratio", "1.02")
"""


def told_at_the_end(folder: Path, tests: str, processes: int = 0) -> list[str]:
    (folder / "test_counting.py").write_text(tests)
    options = ["-p", "tests.summary", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    command = [sys.executable, "-m", "pytest", f"-n{processes}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("processes", [0, 2])
def test_what_tests_have_counted_stands_in_a_table_at_the_end(tmp_path: Path, processes: int) -> None:
    told = told_at_the_end(tmp_path, COUNTING, processes)
    table = told.index(next(line for line in told if "what was tried" in line))
    assert told[table + 1 : table + 4] == ["lines fuzzed  1,201", "rows lost         0", "ratio          1.02"]


def test_where_nothing_was_counted_there_is_no_table(tmp_path: Path) -> None:
    assert "what was tried" not in "\n".join(told_at_the_end(tmp_path, "def test_nothing(): pass"))
