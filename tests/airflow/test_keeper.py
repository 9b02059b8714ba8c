"""The keeper: a command ends with its owner, however that one ends, and takes along all that it has started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_dags import keeper
from tests.airflow.conftest import until

# A command with a child of its own that does not listen to SIGTERM, as a JVM that hangs.
STUBBORN = """
import signal, subprocess, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code])
time.sleep(0.5)
(folder / "pids.new").write_text(f"{child.pid}")
(folder / "pids.new").rename(folder / "pids")
time.sleep(600)
"""
# An owner that starts it as the operator does, and waits.
OWNER = """
import subprocess, sys, time
process = subprocess.Popen(
    [sys.executable, sys.argv[1], sys.executable, "-c", sys.argv[2], sys.argv[3]],
    stdin=subprocess.PIPE, start_new_session=True,
)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_an_owner_that_is_killed(how: signal.Signals, tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, keeper.__file__, STUBBORN, str(tmp_path)])
    until((tmp_path / "pids").exists, "the command is up", 20)
    child = int((tmp_path / "pids").read_text())
    assert alive(child)
    group = os.getpgid(child)
    owner.send_signal(how)
    owner.wait()
    until(lambda: not alive(child), "the command's child is gone", 20)
    until(lambda: not members(group), "all of the group are gone", 5)


def members(group: int) -> list[int]:
    def of(pid: int) -> int | None:
        try:
            return os.getpgid(pid)
        except ProcessLookupError:
            return None

    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if of(int(p.name)) == group and alive(int(p.name))]


@pytest.mark.parametrize(
    ("code", "told"), [("print('done')", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_of_a_command_is_told(code: str, told: int) -> None:
    begun = time.monotonic()
    command = [sys.executable, keeper.__file__, sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.wait(20) == told
        assert process.stdout is not None
        assert process.stdout.read() == (b"done\n" if told == 0 else b"")
    assert time.monotonic() - begun < 5


def test_a_command_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, keeper.__file__, "no-such-command"], stdin=subprocess.PIPE, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (127, b"cannot start no-such-command: No such file or directory\n")
