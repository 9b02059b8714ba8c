"""Run a command that ends when its owner ends: `python keeper.py COMMAND…`, in a session of its own.

The owner holds a pipe that is stdin here. When it is closed, be it on purpose or because the owner was killed, the
command and all that it has started get SIGTERM and, ten seconds later, SIGKILL.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

GRACE = 10.0


def main(command: Sequence[str]) -> int:
    """The exit code of the command, as a shell tells it."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # it is for the others in the group; they have the default again
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    abandoned = threading.Event()
    threading.Thread(target=_end_with_owner, args=(child, abandoned), daemon=True).start()
    code = child.wait()
    if abandoned.is_set():
        time.sleep(2 * GRACE)  # the thread ends the whole group, this process too
    return code if code >= 0 else 128 - code


def _end_with_owner(child: "subprocess.Popen[bytes]", abandoned: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    abandoned.set()
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1)  # what the command has started ends after it
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
