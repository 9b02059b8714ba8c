"""The table of figures at the end of a run of tests."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTING = """
def test_one(tally):
    tally.add("lines fuzzed", 1200)
    tally.add("rows lost", 0)

def test_two(tally):
    tally.add("lines fuzzed")
"""


def told_at_the_end(folder: Path, tests: str) -> list[str]:
    (folder / "test_counting.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.summary",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
    ]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line]


def test_what_tests_have_counted_stands_in_a_table_at_the_end(tmp_path: Path) -> None:
    told = told_at_the_end(tmp_path, COUNTING)
    table = told.index(next(line for line in told if "what was tried" in line))
    assert told[table + 1 : table + 3] == ["lines fuzzed  1,201", "rows lost         0"]


def test_where_nothing_was_counted_there_is_no_table(tmp_path: Path) -> None:
    assert "what was tried" not in "\n".join(told_at_the_end(tmp_path, "def test_nothing(): pass"))
