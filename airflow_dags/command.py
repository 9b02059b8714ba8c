"""The one way from a task to the command line: `sessionizer … --json`, as a process that ends with its task."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_dags.call import Call
from airflow_dags.datasets import datasets, reads_and_writes
from airflow_dags.reasons import is_for_good, reason

OF_ALL_DAGS: dict[str, Any] = {"max_active_runs": 1, "tags": ["sessionizer"]}
BY_THE_CLOCK = {**OF_ALL_DAGS, "start_date": datetime(2000, 1, 1, tzinfo=UTC), "catchup": False}
SUMMED = (
    *("events_read", "accepted", "late", "invalid", "duplicates", "amended"),
    *(f"sessions_{name}" for name in ("created", "extended", "merged", "split", "closed", "finalised", "deleted")),
    *(f"windows_{name}" for name in ("created", "updated", "finalised", "deleted")),
    *("rows_added", "rows_changed", "rows_removed"),
)
AS_OF_LAST = (
    *("run_id", "run_seq", "mode", "source_to_version", "watermark_after", "horizon_after"),
    *("live_sessions", "live_windows"),
)


class SessionizerOperator(BaseOperator):
    """Runs one command of `sessionizer`; its JSON document is the task's result: of a look-up or `sql` a list of rows.

    arguments: of the command, a template; or a function of the context (and the Jinja environment) that returns them.
    config: the absolute path of the config file, a template. command: how the command line is started. skip_if_nothing:
    the task is skipped where there was nothing to do, so that its assets tell nobody of a change. catalog: what
    OpenLineage calls the catalog of tables that the config names (`db.events`); "": these are not told. options: those
    of any operator; give a pool of one slot, so that the commands of one sessions table wait for each other.
    The figures of the runs become the extra of the asset events; a command that does none leaves it empty.
    """

    template_fields: Sequence[str] = ("arguments", "config")

    def __init__(
        self,
        *,
        arguments: Sequence[str] | Callable[[Context, Any], Sequence[str]],
        config: str,
        command: Sequence[str] = ("sessionizer",),
        skip_if_nothing: bool = False,
        catalog: str = "",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self.config = config
        self.command = tuple(command)
        self.skip_if_nothing = skip_if_nothing
        self.catalog = catalog
        self._call: Call | None = None
        self._document: Any = None

    def execute(self, context: Context) -> Any:
        """Run the command. Errors: AirflowFailException where trying again is of no use, else AirflowException."""
        asked = self.arguments
        assert not callable(asked)  # rendered before it runs
        self._call = self._to(asked)
        code, document = self._call.document()
        if self._call.was_ended:
            raise AirflowException(f"sessionizer {asked[0]} was ended with its task; what it has committed stays")
        if code:
            context["ti"].xcom_push(key="failed", value=document)
            kind = AirflowFailException if is_for_good(code, document) else AirflowException
            raise kind(f"sessionizer {asked[0]} ended with exit code {code}: {reason(document)}")
        self._document = document
        # An earlier try, or a run that was cut off, may have written what nobody has been told of.
        if isinstance(document, dict) and isinstance(document.get("runs"), list):  # `status` has their number
            has_told = context["ti"].try_number == 1 and not document.get("finished")
            if self.skip_if_nothing and not document["runs"] and has_told:
                raise AirflowSkipException("nothing new")
            for outlet in self.outlets:
                context["outlet_events"][outlet].extra = figures(document["runs"])
        return document

    def on_kill(self) -> None:
        """End the command and all that it has started."""
        if self._call is not None:
            self._call.end()

    def get_openlineage_facets_on_start(self) -> Any:
        """What the command will read and write: an OperatorLineage, for the provider of OpenLineage alone."""
        return self._lineage(None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The same, and what it has done; of a task that failed, too."""
        return self._lineage(self._document)

    def _to(self, asked: Sequence[str]) -> Call:
        return Call([*self.command, *asked, "--config", self.config, "--json"], self.log)

    def _lineage(self, document: Any) -> Any:
        """Where the tables lie the command line says, for it may be on another machine, with its config."""
        from airflow_dags.lineage import lineage, patience

        asked = self.arguments
        assert not callable(asked)
        if not any(reads_and_writes(asked)):
            return None
        code, found = self._to(["check-config", "--file-only"]).document(patience())
        if code:
            raise AirflowException(f"its tables are not known: {reason(found)}")
        return lineage(asked, datasets(found["tables"], self.catalog), document)


def figures(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What some runs have done together, and where the last one stands."""
    done = list(runs)
    if not done:
        return {"runs": 0}
    last = done[-1]  # the names are those of sessions or of windows
    summed = {name: sum(run[name] for run in done) for name in SUMMED if name in last}
    return {"runs": len(done), **summed, **{name: last[name] for name in AS_OF_LAST if name in last}}
