"""What a run writes beside its table: one fenced write a table, the ledger row last."""

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.kinds import REJECTED, RUNS, Kind, fence
from sessionizer.jobs.run.pipeline import RunResult
from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import bind
from sessionizer.lib.config import Aggregate
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.lib.expressions import of_event
from sessionizer.lib.joins import joined
from sessionizer.lib.windows.sessions.memberships import event_sessions, session_updates
from sessionizer.tables.delta import Commit, Superseded, Table
from sessionizer.tables.delta.readable import read_through
from sessionizer.tables.event_outputs import EventOutput
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.places.object_store import is_stored
from sessionizer.tables.position import Position
from sessionizer.tables.rejected_events import BY_MARK, FOR_GOOD, RejectedEvents
from sessionizer.tables.runs import Timing

MOST_DIGITS = 38
UPDATES = "session_updates"
TAKES = ("withdrawn", "forgotten", "moved", "readmitted")  # counts of events whose rows leave rejected_events


def write(context: RunContext, result: RunResult, manifest: Manifest, restored: int | None = None) -> None:
    """Write what the tables beside it do not have of this run yet.

    rejected_events comes last: the same result is computed again from what it held before.
    restored: the version of the RESTORE, if any, that has put this run in force again (here and below).
    """
    kind = context.kind
    if kind.outputs:
        of = result.memberships()
        adds_only = not manifest.sessions.get("moved") and of.removed is None
        for name, table in _own_outputs(kind, manifest).items():
            if _has(kind, name, table.table, manifest, restored):
                continue
            rows = event_sessions(of, context.rule) if name == "event_sessions" else _updates(context, result)
            with _once(kind, name, table.table, manifest, restored):
                table.write(rows, manifest, _commit(kind, name, manifest, restored), adds_only=adds_only)
    if lacks_rejects(kind, manifest, restored):
        with _once(kind, REJECTED, kind.rejected_events.table, manifest, restored):
            _write_rejects(context, result, manifest, _commit(kind, REJECTED, manifest, restored))


def check(context: RunContext, result: RunResult) -> None:
    """Raise before anything is written where a function of the config's own, or a sum, fails for a session on its way.

    Of sums those of decimals with as many digits as there are: all others have room for more.
    """
    if UPDATES not in context.kind.outputs:
        return
    events = context.sample()
    if any(_may_fail(of, events) for of in context.rule.aggregates):
        read_through(_updates(context, result))


def _may_fail(of: Aggregate, events: DataFrame) -> bool:
    if of.fn not in ("sum", "avg") or (text := of.value(events.columns)) is None:
        return of.fn == "custom"
    value, _ = of_event(text, events, f"aggregates.{of.name}.of")
    kind = events.select(value.alias("value")).schema["value"].dataType
    return isinstance(kind, T.DecimalType) and kind.precision + 10 > MOST_DIGITS


def _updates(context: RunContext, result: RunResult) -> DataFrame:
    """The rows of session_updates."""
    stored = context.stored()
    live = None if stored.lacks_state else stored.live  # sessions that are made again go on from nothing
    return session_updates(result.memberships(), live, context.rule, bind(context.rule, context.sample()))


def forget(kind: Kind, manifest: Manifest, restored: int | None = None) -> None:
    """Take away what the optional tables tell of the rows that a run has forgotten."""
    assert manifest.forgotten is not None
    gone = kind.home.ended(manifest.forgotten, manifest.sessions_version)
    for name, output in kind.outputs.items():
        if not _has(kind, name, output.table, manifest, restored):
            with _once(kind, name, output.table, manifest, restored):
                output.forget(gone, _commit(kind, name, manifest, restored))


def enter(kind: Kind, manifest: Manifest, timing: Timing, restored: int | None = None) -> None:
    """Write the row of the ledger, which says that the run is complete."""
    is_anew = manifest.mode == "rebuild" and not is_entered(kind, manifest, restored)
    for output in _own_outputs(kind, manifest).values() if is_anew else ():
        output.note_whole()
    with _once(kind, RUNS, kind.runs.table, manifest, restored):
        kind.runs.append(manifest, timing, _commit(kind, RUNS, manifest, restored))
    check_is_own(kind, manifest)


def check_is_own(kind: Kind, manifest: Manifest) -> None:
    """Raise where the ledger has another run of this number: in an object store one commit may replace another."""
    if not is_stored(kind.home.table.path):
        return
    entered = kind.runs.since(manifest.run_seq)
    own = [run_id for run_seq, run_id in entered if run_seq == manifest.run_seq]
    others = [run_id for _, run_id in entered if run_id != manifest.run_id]
    if not others or (manifest.run_id in own and _has_moved_on(kind, manifest)):
        return
    raise TableError(
        f"two processes wrote to {kind.name} at once, and the commit of one has replaced that of the other",
        value=f"{manifest.run_id} in the table, {', '.join(sorted(others))} in its ledger",
        remedy=f"a RESTORE of {kind.name} to version {manifest.sessions_version}, and the next `{kind.command}` reads "
        "again what came since; from then on have one process write at a time",
    )


def _has_moved_on(kind: Kind, manifest: Manifest) -> bool:
    """Whether another run has been entered since, as it should."""
    now = kind.home.position().manifest
    return now is not None and now.run_seq > manifest.run_seq


def undo_after(kind: Kind, run_seq: int, restored: int) -> None:
    """Bring all back to what they were when this run was the last; restored: the version of the RESTORE that asks so.

    It lies between the numbers of the runs before and after it, so that its own traces are undone by the next, too.
    The ledger comes first: a run that has stalled may still write to tables that are not barred, but is not entered.
    """
    tables: dict[str, Table | RejectedEvents] = {RUNS: kind.runs.table}
    tables |= {name: output.table for name, output in kind.outputs.items()}
    for role, table in (tables | {REJECTED: kind.rejected_events}).items():
        undoing = Commit(_fence(kind, role), restored)
        table.bar(undoing, run_seq)
        table.restore(undoing, run_seq)


def is_entered(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether nothing is missing of this run: the ledger has it."""
    return _has(kind, RUNS, kind.runs.table, manifest, restored)


def is_complete(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether all but the ledger have what this run owes them."""
    return has_outputs(kind, manifest, restored) and not lacks_rejects(kind, manifest, restored)


def has_outputs(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether the optional tables that this run knew have what it owes them."""
    own = _own_outputs(kind, manifest).items()
    return all(_has(kind, name, output.table, manifest, restored) for name, output in own)


def _own_outputs(kind: Kind, manifest: Manifest) -> dict[str, EventOutput]:
    """The optional tables among those that a run has named as its own; of an older release all."""
    ids = manifest.side_tables
    return {name: output for name, output in kind.outputs.items() if not ids or ids.get(name) == output.table.id}


def lacks_lasting(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether it is not yet written which events have been rejected for good, or are so no longer."""
    if is_entered(kind, manifest, restored):
        return False
    for_good, has_mark = FOR_GOOD, manifest.forgotten is not None
    if has_mark:  # what is older is late for good
        for_good = for_good | BY_MARK
    lasts = manifest.retold or bool(manifest.rejected.keys() & for_good)
    if kind.rule.keeps_deleted or manifest.arguments.get("deletes") or has_mark or _began_late(manifest):
        takes = manifest.mode == "rebuild" or any(manifest.events.get(name) for name in TAKES)
        lasts = lasts or (takes and _tells(kind, manifest, for_good, restored))
    return lasts and lacks_rejects(kind, manifest, restored)


def check_told(kind: Kind, position: Position, *, of_rebuild: bool = False) -> None:
    """Raise where the last run was cut off before it wrote what it has rejected, by which a dry run would go.

    of_rebuild: which goes by what stays out for good alone.
    """
    done, restored = position.manifest, position.restored
    lacks = lacks_lasting if of_rebuild else lacks_rejects
    if done is not None and not is_entered(kind, done, restored) and lacks(kind, done, restored):
        raise TableError(
            "the last run has not written yet which events stay out, so that nobody can tell what would be",
            value=done.run_id,
            remedy=f"`sessionizer {kind.command}` finishes it first, where it was cut off",
        )


def as_followed(kind: Kind, position: Position) -> Position:
    """That of a rebuild: where rejected_events cannot follow a RESTORE, the table is taken as it stands.

    Errors: UsageError where it has rows that outlast a rebuild, as runs have told them that are undone, or where runs
    that are not have told some, or nobody knows: the undone ones may have taken these away.
    """
    if kind.follows(position):
        return position
    done = position.manifest
    for_good = FOR_GOOD | (BY_MARK if done is not None and done.forgotten is not None else frozenset())
    told = done is not None and _tells(kind, done, for_good, position.restored)
    if not told and _telling(kind, for_good).isEmpty():
        return replace(position, restored=None)
    raise UsageError(
        f"rejected_events tells what stays out of {kind.name} for good, or in them, and cannot follow the RESTORE: it "
        "is no longer there as it was before the runs that this has undone",
        value=f"version {position.restored} of {kind.name}",
        remedy=f"a RESTORE of {kind.name} to the last version before any RESTORE, as DESCRIBE HISTORY has it; or make "
        "them in a table of their own",
    )


def _tells(kind: Kind, done: Manifest, reasons: Set[str], restored: int | None) -> bool:
    """Whether runs up to this one may have rejected events so: by a ledger that knows them all, or rows, or unknown."""
    first, home = kind.runs.first(), kind.home
    if first is None or (first > 1 and (home.table.entry(0) is None or next(home.manifests(first - 1), None))):
        return restored is not None or not _telling(kind, reasons).isEmpty()
    return bool((kind.runs.reasons(done.run_seq) | done.rejected.keys()) & reasons)


def _telling(kind: Kind, reasons: Set[str]) -> DataFrame:
    """The rows of rejected_events that runs have told for one of these reasons."""
    return kind.rejected_events.table.read().where(C.col(C.REASON).isin(*reasons) & C.col(C.RUN_SEQ).isNotNull())


def _began_late(manifest: Manifest) -> bool:
    """Whether events lie before the start of a source."""
    return any(of.began for of in manifest.consumed.values())


def lacks_rejects(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether rejected_events does not have yet what this run, which is not entered, owes it."""
    return _owes_rejects(manifest) and not _has(kind, REJECTED, kind.rejected_events.table, manifest, restored)


def has_rejects(kind: Kind, manifest: Manifest, restored: int | None) -> bool:
    """Whether it has, and the run owed it some."""
    return _owes_rejects(manifest) and not lacks_rejects(kind, manifest, restored)


def _owes_rejects(manifest: Manifest) -> bool:
    counts = [manifest.rejected, *(manifest.events.get(name) for name in TAKES)]
    return manifest.mode == "rebuild" or manifest.retold or any(counts)


@contextmanager
def _once(kind: Kind, role: str, table: Table, manifest: Manifest, restored: int | None) -> Iterator[None]:
    """A write that another process, which has repaired this run meanwhile, may have done: the same rows are there."""
    try:
        yield
    except Superseded:  # or upkeep came between: then nothing is there, and the run is repaired
        if not _has(kind, role, table, manifest, restored):
            raise


def _write_rejects(context: RunContext, result: RunResult, manifest: Manifest, commit: Commit) -> None:
    table = context.kind.rejected_events
    if manifest.mode == "rebuild" or manifest.retold:
        rejected = result.rejected() if manifest.rejected else result.rejected().limit(0)
        stay = context.staying() if manifest.mode == "rebuild" else _left(context, result)
        table.write_anew(rejected, stay, manifest, commit)
    else:
        gone = None if table.is_empty else result.leaving()
        table.write(result.rejected() if manifest.rejected else None, gone, manifest, commit)


def _left(context: RunContext, result: RunResult) -> DataFrame | None:
    """The rows of earlier runs that are left, as the columns of today tell them."""
    rejects, gone = context.rejects(), result.leaving()
    if rejects is None or gone is None:
        return rejects
    return joined(rejects, gone, (C.EVENT_HASH, C.ORDINAL, C.RUN_SEQ), "left_anti")


def _commit(kind: Kind, role: str, manifest: Manifest, restored: int | None) -> Commit:
    """What a run writes; behind a RESTORE by the number of that, as the table may have had later runs."""
    return Commit(_fence(kind, role, manifest), manifest.run_seq if restored is None else restored)


def _fence(kind: Kind, role: str, manifest: Manifest | None = None) -> str:
    """By the id that the table had in a run: another one may lie there since."""
    return fence((None if manifest is None else manifest.home) or kind.home.table.id, role)


def _has(kind: Kind, role: str, table: Table, manifest: Manifest, restored: int | None) -> bool:
    if table.has_fence(_commit(kind, role, manifest, restored)):
        return True
    return restored is not None and table.has_had(Commit(_fence(kind, role, manifest), manifest.run_seq))
