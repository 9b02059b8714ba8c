"""changes: what runs have changed or made final, for those who follow the table of sessions or of windows."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame

from sessionizer.jobs.console import print_csv, stderr
from sessionizer.jobs.queries import sql
from sessionizer.jobs.queries.lookups import NOT_SHOWN
from sessionizer.jobs.run.kinds import Kind
from sessionizer.lib import columns as C
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.lib.joins import joined
from sessionizer.lib.reading.lookups import in_order
from sessionizer.lib.reading.net_changes import CHANGE, net_changes
from sessionizer.tables.position import Log
from sessionizer.tables.queries.history import BEFORE_ALL_RUNS, History, RunCommit, versions_behind
from sessionizer.tables.queries.local_history import LocalHistory

MODES = ("append", "update", "complete")
START_ANEW = "start anew from `changes --mode complete`, and go on from the last run that it names"
IS_THERE = f"{START_ANEW}; what turned final is still there: --mode append"


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


@dataclass(frozen=True)
class Wanted:
    """What is to be read for what was asked, `last` being the last run that is in it.

    The rows of `version`; of the `runs` behind a number, up to another, those that they made final; of all that are
    final those that no run had made so as of another version, `told`; or the changes of a `span` of versions, both
    inclusive, which tell what is other than in any of the versions `held`, too.
    """

    last: RunCommit
    version: int
    runs: tuple[int, int] | None = None
    told: int | None = None
    span: tuple[int, int] | None = None
    held: Sequence[int] = ()


def wanted(history: History | LocalHistory, asked: Asked, columns: Sequence[str]) -> Wanted:
    """It, as the history tells. columns: of the table.

    Errors: UsageError for a run that there never was; TableError where the history is gone.
    """
    version, last = history.now()
    if asked.run is not None:
        last = history.run(asked.run)
    since = None if asked.since_run is None else history.run(asked.since_run)
    match asked.mode:
        case "complete":
            return Wanted(last, version if asked.run is None else max(_version(last, history.name), 0))
        case "append":
            if since is not None and since.version != BEFORE_ALL_RUNS.version and _restored(history.table, since):
                return Wanted(last, version, told=_version(since, history.name, remedy=START_ANEW))
            # By the number in the id of a run: a ledger that was made anew has not all of them.
            return Wanted(last, version, runs=(last.run_seq - 1 if since is None else since.run_seq, last.run_seq))
    if any(name.lower() == CHANGE for name in columns):
        raise UsageError(
            f"--mode update adds a column named {CHANGE}, and the {history.name} table has one of its own",
            remedy="rename that one",
        )
    if since is None:
        first = to = _version(last, history.name)
        held: Sequence[int] = ()
    else:
        first, to = _version(since, history.name) + 1, version
        held = versions_behind(history.table, first - 1)
    return Wanted(last, version, span=(max(first, 0), max(to, 0)), held=held)


def changes(kind: Kind, asked: Asked) -> tuple[RunCommit, DataFrame]:
    """The rows that a consumer asks for, in order and without `_state`, and the last run that is in them.

    complete: all rows, as they are or as the run left them.
    append: rows that turned final in these runs; a final row that is amended comes again with the run that did it, and
    one that a RESTORE has brought back where it had been another, or none, as of the run asked for.
    update: what `net_changes` returns. Since a run, it is exactly what makes the table of then the table of now,
    whatever lay in between: merges, RESTORE, OPTIMIZE, changes by hand, and whenever behind that run then was.
    Errors: as of `wanted`; TableError where the change feed is off or gone.
    """
    kind.home.require()
    history, layout = History(kind.home, kind.runs), kind.home.layout
    columns = tuple(name for name in kind.home.table.schema.names if name != C.STATE)
    found = wanted(history, asked, columns)
    if found.span is not None:
        feed = history.changes(*found.span)
        rows, columns = net_changes(feed, columns, layout.identity, found.held), (CHANGE, *columns)
    else:
        rows = history.read(found.version).drop(C.STATE)  # which may have had fewer columns then
        columns = tuple(rows.columns)
        if found.runs is not None:
            low, high = found.runs
            rows = rows.where(C.col(C.IS_FINAL) & (C.run_number() > low) & (C.run_number() <= high))
        elif found.told is not None:
            rows, told = (frame.where(C.col(C.IS_FINAL)) for frame in (rows, history.read(found.told)))
            now, then = ({f.name: f.dataType for f in frame.schema.fields} for frame in (rows, told))
            names = (*layout.identity, C.RUN_ID)
            if all(now[name] == then.get(name) for name in names):  # else another key made all of them anew
                rows = joined(rows, told, names, "left_anti")
    return found.last, in_order(rows.select(*C.cols(columns)), (*kind.rule.key, *layout.order))


def as_document(asked: Asked, last: RunCommit, rows: list[Any]) -> dict[str, Any]:
    """Mode, last run and row objects."""
    return {"mode": asked.mode, "last_run": last.run_id, "last_run_seq": last.run_seq, "rows": rows}


def document(kind: Kind, asked: Asked) -> dict[str, Any]:
    """The same; times as ISO-8601 UTC."""
    with _reading(kind):
        last, rows = changes(kind, asked)
        return as_document(asked, last, sql.documents(rows))


def show(kind: Kind, asked: Asked, limit: int, *, as_csv: bool = False, wide: bool = False) -> None:
    """All rows as CSV, or a table of the first ones; where to go on from is a note on stderr."""
    with _reading(kind):
        last, rows = changes(kind, asked)
        if as_csv:
            print_csv(sql.text_rows(rows))
        else:
            sql.show(rows.drop(*NOT_SHOWN[kind.name]), limit, wide=wide)
    say_next(last)


def say_next(last: RunCommit) -> None:
    """Where to go on from."""
    if last.run_id is not None:
        stderr().print(f"last run: {last.run_id}; the next changes: --since-run {last.run_seq}")


def _reading(kind: Kind) -> AbstractContextManager[None]:
    what = f"{kind.name}, or its change feed, of these runs"
    return History(kind.home, kind.runs).reading(what, START_ANEW)


def _restored(log: Log, since: RunCommit) -> bool:
    """Whether a RESTORE lies behind a run, so that numbers of runs do not tell which of them its table had."""
    later = takewhile(lambda entry: since.version is None or entry.version > since.version, log.history())
    return any(entry.operation == "RESTORE" for entry in later)


def _version(run: RunCommit, name: str, remedy: str = IS_THERE) -> int:
    if run.version is None:
        raise TableError(
            f"the history of {name} does not reach back to this run any more", value=run.run_id, remedy=remedy
        )
    return run.version
