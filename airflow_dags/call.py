"""A call of the command line: a process that ends with its task, and its JSON document."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from airflow.sdk.exceptions import AirflowException

KEEPER = str(Path(__file__).with_name("keeper.py"))
_BEGIN = re.compile(r"^[{\[]", re.MULTILINE)
ENDED = 15.0  # seconds that the keeper is waited for: a little longer than it takes to end a command by force


class Call:
    """One command under its keeper. log: where what it says on stderr goes, with the command itself."""

    def __init__(self, command: Sequence[str], log: Any) -> None:
        self.command = tuple(command)
        self.log = log
        self.was_ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def document(self, seconds: float | None = None) -> tuple[int, Any]:
        """The exit code and the document. seconds: how long it may take.

        Errors: AirflowException where it takes longer, where nobody supervises the task, where there is no document.
        """
        self.log.info("%s", list(self.command))
        owner = os.getppid()
        until = math.inf if seconds is None else time.monotonic() + seconds
        with tempfile.TemporaryFile() as stdout:
            self._process = subprocess.Popen(
                [sys.executable, KEEPER, *self.command],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            told: list[str] = []
            reader = threading.Thread(target=self._tell, args=(self._process.stderr, told), daemon=True)
            reader.start()
            try:
                code = self._wait(owner, until)
            finally:
                self.end()
            reader.join(ENDED)
            stdout.seek(0)
            return code, _document(stdout.read().decode(errors="replace"), code, told)

    def end(self) -> None:
        """End the command and all that it has started, if it has not ended."""
        if self._process is not None and self._process.stdin is not None and self._process.poll() is None:
            self.was_ended = True
            self._process.stdin.close()
            self._process.wait(ENDED)

    def _wait(self, owner: int, until: float) -> int:
        """The exit code; a task that nobody supervises any more ends its command, for another one will be started."""
        assert self._process is not None
        while True:
            try:
                return self._process.wait(1)
            except subprocess.TimeoutExpired:
                if os.getppid() != owner:
                    raise AirflowException("the supervisor of this task is gone") from None
                if time.monotonic() > until:
                    raise AirflowException(f"{shlex.join(self.command)} took too long") from None

    def _tell(self, lines: IO[bytes], told: list[str]) -> None:
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            told.append(text)
            self.log.info("%s", text)


def _document(text: str, code: int, told: Sequence[str]) -> Any:
    """The JSON document, an object or a list, at the end of stdout.

    What a launcher may have printed before it is passed over.
    """
    for begin in _BEGIN.finditer(text):
        with suppress(ValueError):
            return json.loads(text[begin.start() :])
    if code:
        return {"error": "\n".join(told[-5:]) or "it said nothing"}
    raise AirflowException(f"sessionizer must print a JSON document: got {text[-500:]!r}")
