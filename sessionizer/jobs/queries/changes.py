"""changes: what runs have changed or made final, for those who follow the table of sessions or of windows."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from sessionizer.jobs.console import print_csv, stderr
from sessionizer.jobs.queries import sql
from sessionizer.jobs.queries.lookups import NOT_SHOWN
from sessionizer.jobs.run.kinds import Kind
from sessionizer.lib import columns as C
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.lib.reading.lookups import in_order
from sessionizer.lib.reading.net_changes import CHANGE, net_changes
from sessionizer.tables.queries.history import History, RunCommit

MODES = ("append", "update", "complete")
START_ANEW = "start anew from `changes --mode complete`, and go on from the last run that it names"


@dataclass(frozen=True)
class Asked:
    """Which changes: of one run, of all runs after one, or (neither) of the last. Runs: run_id or run_seq.

    Errors: UsageError for what cannot be asked.
    """

    mode: str
    run: str | None = None
    since_run: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"--mode must be one of {', '.join(MODES)}", value=self.mode)
        if self.run is not None and self.since_run is not None:
            raise UsageError("changes are of one run (--run) or of all runs after one (--since-run), not both")
        if self.mode == "complete" and self.since_run is not None:
            raise UsageError("--since-run goes with --mode append or update: complete gives all rows")


def changes(kind: Kind, asked: Asked) -> tuple[RunCommit, DataFrame]:
    """The rows that a consumer asks for, in order and without `_state`, and the last run that is in them.

    complete: all rows, as they are or as the run left them.
    append: rows that turned final in these runs; a final row that is amended comes again with the run that did it.
    update: what `net_changes` returns. Since a run, it is exactly what makes the table of then the table of now,
    whatever lay in between: merges, RESTORE, OPTIMIZE, changes by hand.
    Errors: UsageError for a run that there never was; TableError where the change feed is off or gone.
    """
    kind.home.require()
    history, layout = History(kind.home, kind.runs), kind.home.layout
    version, last = history.now()
    if asked.run is not None:
        last = history.run(asked.run)
    since = None if asked.since_run is None else history.run(asked.since_run)
    columns = tuple(name for name in kind.home.table.schema.names if name != C.STATE)
    match asked.mode:
        case "complete":
            rows = history.read(version if asked.run is None else _version(last, kind))
        case "append":
            kind.runs.table.require("`sessionizer init` makes it")
            ids = [str(last.run_id)] if since is None else history.later_runs(since, last)
            rows = history.read(version).where(C.col(C.IS_FINAL) & C.col(C.RUN_ID).isin(ids))
        case _:
            if any(name.lower() == CHANGE for name in columns):
                raise UsageError(
                    f"--mode update adds a column named {CHANGE}, and the {kind.name} table has one of its own",
                    remedy="rename that one",
                )
            if since is None:
                first = to = _version(last, kind)
            else:
                first, to = _version(since, kind) + 1, version
            rows = net_changes(history.changes(max(first, 0), max(to, 0)), columns, layout.identity)
            columns = (CHANGE, *columns)
    return last, in_order(rows.select(*C.cols(columns)), (*kind.rule.key, *layout.order))


def document(kind: Kind, asked: Asked) -> dict[str, Any]:
    """Mode, last run and row objects; times as ISO-8601 UTC."""
    with _reading(kind):
        last, rows = changes(kind, asked)
        return {
            "mode": asked.mode,
            "last_run": last.run_id,
            "last_run_seq": last.run_seq,
            "rows": sql.documents(rows),
        }


def show(kind: Kind, asked: Asked, limit: int, *, as_csv: bool = False, wide: bool = False) -> None:
    """All rows as CSV, or a table of the first ones; where to go on from is a note on stderr."""
    with _reading(kind):
        last, rows = changes(kind, asked)
        if as_csv:
            print_csv(sql.text_rows(rows))
        else:
            sql.show(rows.drop(*NOT_SHOWN), limit, wide=wide)
    if last.run_id is not None:
        stderr().print(f"last run: {last.run_id}; the next changes: --since-run {last.run_seq}")


def _reading(kind: Kind) -> AbstractContextManager[None]:
    what = f"{kind.name}, or its change feed, of these runs"
    return History(kind.home, kind.runs).reading(what, START_ANEW)


def _version(run: RunCommit, kind: Kind) -> int:
    if run.version is None:
        raise TableError(
            f"the history of {kind.name} does not reach back to this run any more",
            value=run.run_id,
            remedy=f"{START_ANEW}; what turned final is still there: --mode append",
        )
    return run.version
