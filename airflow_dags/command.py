"""The one way from a task to the command line: `sessionizer … --json`, as a process that ends with its task."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

OF_ALL_DAGS: dict[str, Any] = {"max_active_runs": 1, "tags": ["sessionizer"]}
BY_THE_CLOCK = {**OF_ALL_DAGS, "start_date": datetime(2000, 1, 1, tzinfo=UTC), "catchup": False}
KEEPER = str(Path(__file__).with_name("keeper.py"))
ENDED = 15.0  # seconds that the keeper is waited for: a little longer than it takes to end a command by force
# Exit codes that trying again cannot change: a check that failed, a wrong command or config.
FOR_GOOD = (1, 2)
SUMMED = (
    *("events_read", "accepted", "late", "invalid", "duplicates", "amended"),
    *(f"sessions_{name}" for name in ("created", "extended", "merged", "split", "closed", "finalised", "deleted")),
    *("rows_added", "rows_changed", "rows_removed"),
)
AS_OF_LAST = ("run_id", "run_seq", "mode", "source_to_version", "watermark_after", "horizon_after", "live_sessions")


class SessionizerOperator(BaseOperator):
    """Runs one command of `sessionizer`; its JSON document is the task's result.

    arguments: of the command, a template; or a function of the context (and the Jinja environment) that returns them.
    config: the absolute path of the config file, a template. command: how the command line is started. skip_if_nothing:
    the task is skipped where there was nothing to do, so that its assets tell nobody of a change. options: those of any
    operator; give a pool of one slot, so that the commands of one sessions table wait for each other.
    The figures of the runs become the extra of the asset events.
    """

    template_fields: Sequence[str] = ("arguments", "config")

    def __init__(
        self,
        *,
        arguments: Sequence[str] | Callable[[Context, Any], Sequence[str]],
        config: str,
        command: Sequence[str] = ("sessionizer",),
        skip_if_nothing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self.config = config
        self.command = tuple(command)
        self.skip_if_nothing = skip_if_nothing
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the command. Errors: AirflowFailException where trying again is of no use, else AirflowException."""
        asked = self.arguments
        assert not callable(asked)  # rendered before it runs
        code, document = self._call(asked)
        if self._ended:
            raise AirflowException(f"sessionizer {asked[0]} was ended with its task; what it has committed stays")
        if code:
            context["ti"].xcom_push(key="failed", value=document)
            kind = AirflowFailException if code in FOR_GOOD else AirflowException
            raise kind(f"sessionizer {asked[0]} ended with exit code {code}: {_reason(document)}")
        # An earlier try, or a run that was cut off, may have written what nobody has been told of.
        has_told = context["ti"].try_number == 1 and not document.get("finished")
        if self.skip_if_nothing and not document["runs"] and has_told:
            raise AirflowSkipException("nothing new")
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = figures(document["runs"])
        return document

    def on_kill(self) -> None:
        """End the command and all that it has started."""
        if self._process is not None and self._process.stdin is not None and self._process.poll() is None:
            self._ended = True
            self._process.stdin.close()
            self._process.wait(ENDED)

    def _call(self, asked: Sequence[str]) -> tuple[int, dict[str, Any]]:
        """The exit code and the document of a command; what it says on stderr goes to the task's log."""
        command = [*self.command, *asked, "--config", self.config, "--json"]
        self.log.info("%s", command)
        owner = os.getppid()
        with tempfile.TemporaryFile() as stdout:
            self._process = subprocess.Popen(
                [sys.executable, KEEPER, *command],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            told: list[str] = []
            reader = threading.Thread(target=self._tell, args=(self._process.stderr, told), daemon=True)
            reader.start()
            try:
                code = self._wait(owner)
            finally:
                self.on_kill()
            reader.join(ENDED)
            stdout.seek(0)
            return code, _document(stdout.read().decode(errors="replace"), code, told)

    def _wait(self, owner: int) -> int:
        """The exit code; a task that nobody supervises any more ends its command, for another one will be started."""
        assert self._process is not None
        while True:
            try:
                return self._process.wait(1)
            except subprocess.TimeoutExpired:
                if os.getppid() != owner:
                    raise AirflowException("the supervisor of this task is gone") from None

    def _tell(self, lines: IO[bytes], told: list[str]) -> None:
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            told.append(text)
            self.log.info("%s", text)


def figures(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What some runs have done together, and where the last one stands."""
    done = list(runs)
    if not done:
        return {"runs": 0}
    summed = {name: sum(run[name] for run in done) for name in SUMMED}
    return {"runs": len(done), **summed, **{name: done[-1][name] for name in AS_OF_LAST}}


def _document(text: str, code: int, told: Sequence[str]) -> dict[str, Any]:
    """The JSON document at the end of stdout; what a launcher may have printed before it is passed over."""
    try:
        found = json.loads(text[text.rfind("\n{\n") + 1 :])
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if code:
        return {"error": "\n".join(told[-5:]) or "it said nothing"}
    raise AirflowException(f"sessionizer must print a JSON document: got {text[-500:]!r}")


def _reason(document: Mapping[str, Any]) -> str:
    if "error" in document:
        return str(document["error"])
    broken = [f"{name} ({number} rows)" for name, number in document.get("rules", {}).items() if number]
    wrong = f"{document.get('differing', 0)} of {document.get('sessions', 0)} sessions differ from their events"
    return "; ".join([wrong, *(f"broken: {one}" for one in broken)])
