"""What must hold before a run goes on, or before it writes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.quality.checks import gate
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.kinds import REJECTED, Kind, Ruled
from sessionizer.jobs.run.phases import Phases
from sessionizer.jobs.run.pipeline import RunResult
from sessionizer.jobs.run.retelling import OF_BEFORE, as_before, told_apart, told_otherwise
from sessionizer.lib import columns as C
from sessionizer.lib.admission.accepted import accepted, as_rejects
from sessionizer.lib.admission.verdicts import BEFORE_START, CORRECTION, DUPLICATE, EXPRESSION_FAILED, IN, INVALID, LATE
from sessionizer.lib.aggregates.evolution import Definitions, by_name, told_by
from sessionizer.lib.bags import taken, undone
from sessionizer.lib.config import Aggregate
from sessionizer.lib.config.sources import filters_of
from sessionizer.lib.errors import ConfigError, RunFailed, SourceError, SourceMismatch, TableError, UsageError
from sessionizer.lib.expressions import of_event
from sessionizer.lib.windows.windows import DELETE
from sessionizer.tables.manifest import AGGREGATES, Manifest
from sessionizer.tables.source import read_as

if TYPE_CHECKING:
    from sessionizer.tables.delta import Table
    from sessionizer.tables.queries.local import LocalTable


def check_rule(kind: Ruled, done: Manifest, *, may_evolve: bool = False) -> None:
    """Raise if the rows of the table follow another rule than the configuration states.

    may_evolve: aggregates may have come and gone, for a run takes them up.
    """
    if done.as_judged(kind.rule).freezes and not kind.rule.freezes:
        raise ConfigError(
            f"final {kind.name} have stayed as they were whatever came near them (lateness: session, no revive), and "
            "now they would not: the table is that of neither rule",
            value=f"lateness: {kind.rule.lateness}, revive: {kind.rule.revive}, late_events: {kind.rule.late_events}",
            remedy=kind.anew,
        )
    if done.rule_fingerprint == kind.fingerprint:
        return
    if kind.evolves and done.follows(kind.summary):
        return _check_aggregates(kind, done, may_evolve=may_evolve)
    raise ConfigError(
        f"the rule has changed since the {kind.name} table was made, and its rows follow the old one: "
        + "; ".join(done.differs(kind.summary)),
        remedy=kind.anew,
    )


def _check_aggregates(kind: Ruled, done: Manifest, *, may_evolve: bool) -> None:
    evolved = done.evolution(kind.summary)
    if evolved.otherwise:
        name, *_ = evolved.otherwise
        old = {**done.left, **by_name(done.rule[AGGREGATES])}.get(name)
        raise ConfigError(
            f"aggregates.{name} has a column that another definition has filled, and final {kind.name} would keep its "
            "values",
            value=None if old is None or OF_BEFORE in str(old.get("of")) else json.dumps(old),
            remedy="give it another name, which is a column of its own; or set the old definition again; or "
            f"`sessionizer rebuild{kind.option}` makes all {kind.name} anew",
        )
    if not may_evolve:
        raise ConfigError(
            f"aggregates have come or gone since the last run, which the {kind.name} table is as of",
            value=evolved.told(),
            remedy=f"`sessionizer {kind.command}` takes them up; or set the old ones again",
        )


def check_fits(kind: Kind, done: Manifest, *, may_evolve: bool = False) -> None:
    """The same; and if a table beside it is not the one that runs have written to, or has missed some.

    Which events the rows are made without, rejected_events alone knows.
    """
    check_rule(kind, done, may_evolve=may_evolve)
    check_rejects(kind, kind.rejected_events.table, done)
    for name, output in kind.outputs.items():
        missed = bool(done.side_tables) and done.side_tables.get(name) != output.table.id
        if missed and (output.is_whole or output.table.size()[0]):
            raise TableError(
                f"{output.table.field} was not among the tables of the last run, so that runs have not come to it",
                value=output.table.location,
                remedy=f"`sessionizer rebuild{kind.option}` makes it anew, too; or name a new table, "
                "`sessionizer init`, and it begins from now on",
            )


def check_outputs(kind: Kind, done: Manifest, restored: int | None) -> None:
    """Raise where a run is complete, and an optional table that it knew has not had its rows."""
    if not side_tables.has_outputs(kind, done, restored):
        raise TableError(
            f"run {done.run_id} was cut off, and finished by a configuration without "
            f"{' and '.join(kind.outputs)}, which lacks its rows",
            value=", ".join(output.table.location for output in kind.outputs.values()),
            remedy=f"`sessionizer rebuild{kind.option}` makes it anew, too; or name a new table, `sessionizer init`, "
            "and it begins from now on",
        )


def check_rejects(kind: Ruled, table: "Table | LocalTable", done: Manifest) -> None:
    """Raise unless rejected_events is the table that runs have written to."""
    if done.side_tables.get(REJECTED, own := table.id) != own:
        raise TableError(
            f"{table.field} is not the table that runs have written to, whose rows say which events {kind.name} are "
            "made without",
            value=table.location,
            remedy=f"name that table, its id is {done.side_tables[REJECTED]}; without it "
            f"`sessionizer rebuild{kind.option}` makes all {kind.name} anew from the source as it stands; where a "
            f"start, ignored deletes or quarantine keep events out or in, make {kind.name} in a table of its own",
        )


def check_filter(context: RunContext) -> None:
    """Raise where a rebuild might take in what must stay out: rejected_events has nothing that `where` hid."""
    done, kind = context.position.manifest, context.kind
    if done is None:
        return
    _check_read(kind, done, context.increment.lasts)
    if "ignore" in (kind.rule.deletes, done.policy.get("deletes")) or context.lasting():
        check_rejects(kind, kind.rejected_events.table, done)
    _check_origin(context, done)
    if kind.rule.corrections != "quarantine":
        _check_none_wait(context, "a rebuild reads the source as it stands")
    old, new, read = filters_of(done.rule), filters_of(kind.summary), read_as(done, kind.tables.events.ids)
    if not (changed := {name: was for name, was in read.items() if new[name] != old[was]}):
        return
    remedy = f"set source.where as it was, or make {kind.name} in a table of its own"
    forgets = context.clock.forgotten is not None
    if any(old[was] and (context.began.get(name) or forgets) for name, was in changed.items()):
        raise UsageError(
            "source.where has changed, and of the rows that it hid nobody knows which lie before source.start, or are "
            "late by what has been forgotten",
            value=kind.rule.where,
            remedy=remedy,
        )
    if context.has_rejected(CORRECTION):
        raise UsageError(
            "source.where has changed, and corrections in quarantine may move events to where it hides them",
            value=kind.rule.where,
            remedy=f"`sessionizer readmit{kind.option}` by the rule as it was makes them first; or {remedy}",
        )


def _check_origin(context: RunContext, done: Manifest) -> None:
    """Raise where what must stay out, or in, is told by rows that sources have no longer so: `source`, keys by SQL."""
    what, names, mine = "source has become sources, or the other way round", list(done.sources), F.lit(True)
    if bool(done.sources) == bool(context.rule.sources):
        if not (names := sorted(told_apart(context, done))):
            return
        what = "keys by SQL of several sources have changed, or the name of one, or the column of a mapping table"
        what = f"{what}, or a RESTORE has brought columns back"
        mine = C.col(C.SOURCE).isin(names) if done.sources else mine
    rejects = context.kind.rejects_before(context.clock.run_seq, context.position)
    lasting = [C.col(C.KEPT) == IN, C.col(C.REASON) == BEFORE_START, *replace(context, began={}).lasting()]
    if rejects is not None and not rejects.where(mine & reduce(or_, lasting)).isEmpty():
        raise UsageError(
            f"{what}, and rejected_events tells by whole rows which events stay out of sessions for good, or in them",
            value=", ".join(names) or "source",
            remedy=f"set the sources as they were, or make {context.kind.name} in a table of its own",
        )


def _check_read(kind: Kind, done: Manifest, last: Mapping[str, int]) -> None:
    """Raise where a rebuild would make changes of rows that are to leave the events where they are."""
    if (version := kind.tables.events.unread_to_keep(done, last)) is not None:
        other = "a rebuild by corrections: {deletes: apply} goes on without these events"
        if kind.rule.deletes != "ignore":
            other = "`readmit` makes what waits, and a rebuild by corrections: apply these changes"
        raise UsageError(
            f"{version} takes rows away whose events are to stay, and no run has read it yet: a rebuild loses them",
            value=f"corrections: {kind.tables.config.corrections!r}",
            remedy=f"`sessionizer {kind.command}` reads it first, by the rule as it was; where none can, {other}",
        )


def check_policies(result: RunResult, context: RunContext) -> None:
    """Raise where the rule says that a run must not go on with such events; nothing is written."""
    rejects, rule, increment = result.events.rejected, context.rule, context.increment
    late = (LATE,) if context.mode == "run" else ()  # what has been forgotten is late elsewhere, whatever the rule
    if (rows := rejects.get(CORRECTION)) and rule.corrections == "fail":
        raise SourceError(
            f"versions {increment.told()} of the source update or delete rows, and corrections is fail",
            value=f"{rows} change rows",
            remedy=f"set corrections: apply, which recomputes the {context.kind.name} they touch",
        )
    events = result.events
    corrects = events.withdrawn or events.corrected or events.forgotten
    if context.mode == "run" and rule.corrections == "apply" and corrects:
        _check_none_wait(context, "the source updates or deletes rows")
    for policy, reasons, remedy in (
        ("late_events", late, "set late_events: quarantine or amend; what has passed stays so by a longer lateness"),
        ("invalid_events", INVALID, "mend the source, or set invalid_events: quarantine"),
    ):
        if getattr(rule, policy) != "fail" or not any(rejects.get(reason) for reason in reasons):
            continue
        come = _come(result, reasons)
        if number := come.count():
            are = "event is" if number == 1 else "events are"
            raise RunFailed(
                f"{number:,} {are} {policy.removesuffix('_events')}, and {policy} is fail; the first: "
                + _first_of(come),
                remedy=f"{remedy}; nothing was written",
            )


def _check_none_wait(context: RunContext, what: str) -> None:
    """Raise where corrections wait: new ones may be of the same events, which the table has as they were before."""
    if context.has_rejected(CORRECTION):
        raise SourceError(
            f"{what}, and earlier corrections, which may be of the same events, wait in rejected_events since "
            "corrections was quarantine",
            remedy=f"`sessionizer readmit{context.kind.option}` makes them; or set corrections: quarantine again",
        )


def check_expectations(context: RunContext, result: RunResult, phases: Phases) -> None:
    """Raise where rows to be written are not as expected."""
    expected, identity = context.kind.expectations, context.kind.home.layout.identity
    if expected is None or not result.counts or result.counts["rows"] == result.counts["deleted"]:
        return
    rows = result.changes.where(C.col(C.CHANGE) != DELETE).drop(C.CHANGE, C.STATE)
    with phases("expectations"):
        gate(rows, Path(expected), context.kind.name, identity)


def _come(result: RunResult, reasons: tuple[str, ...]) -> DataFrame:
    """The events that are rejected so, without those that were before, and are judged again; what waited was not."""
    rows, gone = result.rejected().where(C.col(C.REASON).isin(*reasons)), result.leaving()
    if gone is None:
        return rows
    hashes = gone.where(C.col(C.REASON) != CORRECTION).select(C.col(C.EVENT_HASH).alias(C.HASH))
    return taken(rows.withColumn(C.HASH, C.col(C.EVENT_HASH)), hashes).where(~C.col(C.TAKEN))


def _first_of(rows: DataFrame) -> str:
    first = rows.orderBy(C.EVENT_TIME, C.EVENT_HASH).limit(10)
    told = first.select(C.REASON, C.EVENT).collect()  # Python has no place for every time
    return "; ".join(f"{row[C.REASON]}: {row[C.EVENT]}" for row in told)


def check_same_events(context: RunContext) -> None:
    """Raise where events would count no longer, or again, by aggregates that come or go: as `of` fails for them."""
    evolved, done = context.evolved, context.position.manifest
    if done is None or not done.has_consumed or not (evolved.added or evolved.dropped):
        return
    events = context.kind.tables.events
    sample, rejects = context.sample(), context.rejects()
    added, dropped = _failing(evolved.added, sample), _failing(evolved.dropped, as_before(sample, done))
    wrong = None
    if added:
        rule = replace(
            context.rule, aggregates=tuple(a for a in context.rule.aggregates if a.name not in evolved.added)
        )
        _check_told_alike(context, done)
        out = None if rejects is None else as_rejects(rejects.where(C.col(C.REASON) != DUPLICATE), rule)
        at = context.increment.of_those(events.begun(done))  # whose files are there; those of before may not be
        known = events.as_of(at, None) if at.is_empty else undone(events.as_of(at, None), events.read(at))
        counting = accepted(told_by(known, sample.schema), out, rule, Checkpoints())
        if not counting.where(reduce(or_, added.values())).isEmpty():
            wrong = f"{', '.join(added)} fails for events that are in {context.kind.name}, or copies of these"
    if dropped and rejects is not None and not rejects.where(C.col(C.REASON) == EXPRESSION_FAILED).isEmpty():
        wrong = f"{', '.join(dropped)} may be why events are rejected, which would count without it"
    if wrong is not None:
        raise ConfigError(
            f"an aggregate that comes or goes must not change which events count, and the `of` of {wrong}",
            remedy="write a new one so that it is null there, as try_cast(…) and try_divide(…) are; or "
            f"`sessionizer rebuild{context.kind.option}` judges all events anew",
        )


def _check_told_alike(context: RunContext, done: Manifest) -> None:
    """Raise where columns have other names or types than older events were judged by."""
    if told_otherwise(done, context.columns):
        raise SourceMismatch(
            "columns of the source were renamed, dropped or retyped, and a run by new aggregates would not know what "
            "older events are by these",
            value=f"version {context.increment.as_of()}",
            remedy=f"`sessionizer {context.kind.command}` by the aggregates as they were reads it first",
        )


def _failing(aggregates: Definitions, events: DataFrame) -> dict[str, Column]:
    """Of aggregates whose `of` may fail: whether it does, for an event."""
    values = {name: Aggregate.model_validate(of).value(events.columns) for name, of in aggregates.items()}
    tried = {n: of_event(text, events, f"aggregates.{n}.of")[1] for n, text in values.items() if text is not None}
    return {name: fails for name, fails in tried.items() if fails is not None}
