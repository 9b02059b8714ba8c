"""Rejected rows as the sources tell them now: those of each source by its own columns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.kinds import Kind
from sessionizer.lib import columns as C
from sessionizer.lib.admission.corrections import too_old
from sessionizer.lib.admission.freed import not_overtaken
from sessionizer.lib.admission.rejects import remaining
from sessionizer.lib.admission.retold import retold
from sessionizer.lib.admission.united import as_type
from sessionizer.lib.admission.validate import expressions_of
from sessionizer.lib.admission.verdicts import BESIDE
from sessionizer.lib.aggregates.evolution import Definitions
from sessionizer.lib.config import EventSource
from sessionizer.lib.config.sources import made_columns_of, times_of
from sessionizer.lib.errors import SourceMismatch
from sessionizer.lib.rule import Rule
from sessionizer.lib.schema.evolution import bare_columns, comes_back, is_told_otherwise, untold
from sessionizer.lib.schema.named import changes
from sessionizer.tables.delta import Table
from sessionizer.tables.event_tables import Events
from sessionizer.tables.increments import Increments, passed
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.rejected_events import TIMED
from sessionizer.tables.source import naming, telling_anew

if TYPE_CHECKING:
    from sessionizer.jobs.run.context import RunContext

OF_SOURCES = ("source.where", "source.event_time")  # of several each has its own
OF_BEFORE = "/* by the columns of before */"  # behind an `of` that names a column which is no longer there
Columns = tuple[T.StructType, T.StructType]  # before and after


def told_otherwise(done: Manifest, columns: Mapping[str, str]) -> dict[str, Columns]:
    """The sources whose rows have another text by the columns of today; those of an older release are not known.

    Of one that no run has begun nothing was ever told.
    """
    return {name: both for name, both in _changed(done, columns).items() if is_told_otherwise(*both)}


def _changed(done: Manifest, columns: Mapping[str, str]) -> dict[str, Columns]:
    """The sources that have other columns than those which runs have told their rows by."""
    begun = {name: of for name, of in done.consumed.items() if of.to_version is not None and name in columns}
    known = {name: (of.columns, columns[name]) for name, of in begun.items()}
    texts = {name: both for name, both in known.items() if both[0] not in ("", both[1])}
    return {name: (_columns(before), _columns(after)) for name, (before, after) in texts.items()}


def brought_back(events: Events, done: Manifest, columns: Mapping[str, str]) -> dict[str, list[Columns]]:
    """The sources in which RESTOREs bring columns back that rows were told without: those columns, and those told.

    They may lie behind the increment: what is read before it is told with the columns of the latest version, too.
    """
    found = dict[str, list[Columns]]()
    for name, (told, _) in _changed(done, columns).items():
        one, of = events.each[name], done.consumed[name]
        back = _restored(one.table, of.version) if one.goes_on(of, one.table.version) else []
        if more := [(then, told) for then in back if comes_back(told, then)]:
            found[name] = more
    return found


def _restored(table: Table, version: int) -> list[T.StructType]:
    """The columns that RESTOREs behind this version have from before it. A RESTORE to a time tells no version."""
    behind = (table.entry(number) for number in range(version + 1, table.version + 1))
    made = [e for e in behind if e is not None and e.operation == "RESTORE"]
    back = [e.columns for e in made if int(e.parameters.get("version") or version) <= version]
    return [bare_columns(columns) for columns in back if columns is not None]


def told_apart(context: "RunContext", done: Manifest) -> set[str]:
    """The sources whose rows have other texts than rejected_events has of them, which nothing can tell anew."""
    old, new = made_columns_of(done.rule), made_columns_of(context.kind.summary)
    changed = {name for name in old.keys() & new.keys() if old[name] != new[name]} | context.position.renamed
    events = context.kind.tables.events
    return changed | events.told_apart(done) | {*brought_back(events, done, context.columns)}


def left_behind(
    left: Definitions, done: Manifest | None, columns: Mapping[str, str], back: Mapping[str, Sequence[Columns]]
) -> Definitions:
    """Definitions of aggregates that are in no rule now; of other columns than those of today they are others.

    back: what `brought_back` returns.
    """
    changed = {} if done is None else {name: [both] for name, both in told_otherwise(done, columns).items()}

    def told(of: Mapping[str, Any]) -> Mapping[str, Any]:
        mine = [each for name, each in (*changed.items(), *back.items()) if of.get("source") in (None, name)]
        is_of = of.get("of") and any(changes(of["of"], *both) for each in mine for both in each)
        return {**of, "of": f"{of['of']} {OF_BEFORE}"} if is_of else of

    return {name: told(of) for name, of in left.items()}


def check_columns(kind: Kind, done: Manifest | None, columns: Mapping[str, str], increment: Increments) -> None:
    """Raise where older events would have another key, value, or order within one time, by the columns of today.

    columns: of each source at the end of the increment. Errors: SourceMismatch.
    """
    for name, why in () if done is None else _otherwise(kind, done, columns):
        with naming(name):
            raise SourceMismatch(
                why,
                value=f"version {increment.as_of()}",
                remedy=f"`sessionizer rebuild{kind.option}` makes all {kind.name} anew by the columns of today",
            )


def _otherwise(kind: Kind, done: Manifest, columns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The sources of which that is so, and why."""
    by_rows = kind.rule.by_content or any(one.of.made for one in kind.tables.events.each.values())

    def tells() -> bool:  # whole rows, as they were
        return by_rows or kind.rejected_events.is_of_runs

    for name, back in brought_back(kind.tables.events, done, columns).items():
        texts = _named(kind.rule, kind.tables.events.each[name].of)
        lacking = [how for both in back for text in texts for how, _ in changes(text, *both)]
        if tells() or any(name or how != "gone" for how in lacking):
            yield name, "a RESTORE of the source has brought columns back that runs have read its rows without"
    for name, both in told_otherwise(done, columns).items():
        of = kind.tables.events.each[name].of
        named = {how: path for text in _named(kind.rule, of) for how, path in changes(text, *both)}
        if kind.rule.by_content or of.made:
            by = "boundaries by content" if kind.rule.by_content else "keys by SQL"
            why = "columns of the source were renamed, dropped or retyped, and"
            yield name, f"{why} {by} go by whole rows as they are told"
        if (path := named.get("another")) is not None:
            yield name, f"columns of the source are others than those of the same names which runs have read: {path}"
        if (other := untold(*both)) and tells():
            why = "a column of the source has another type, which does not tell what its older values are"
            yield name, f"{why}: {other[0]}"
        if (path := named.get("without parts")) is not None:
            why = "a column that the configuration names as a whole has lost parts, or tells them otherwise"
            yield name, f"{why}: {path}"
        if name and (path := named.get("gone")) is not None:
            why = "a column that the configuration names is gone from the source, or has another name there"
            yield name, f"{why}: {path}"


def _named(rule: Rule, of: EventSource) -> tuple[str, ...]:
    """The columns and expressions by which the rule, or what one source says of its events, takes these."""
    own = rule.of_source(of)
    names = (*own.key, *own.order_by, *rule.order_by, *(() if rule.dedupe is None else rule.dedupe.by))
    names = names if of.stitch is None else (*names, of.stitch.from_)
    shared = [text for field, text in expressions_of(replace(rule, aggregates=())).items() if field not in OF_SOURCES]
    mine = [a.of for a in rule.aggregates if a.of is not None and a.source in (None, of.label)]
    return (*names, *shared, *mine, *expressions_of(replace(own, aggregates=())).values())


def told_anew(
    rejects: DataFrame, done: Manifest, columns: Mapping[str, str], events: Events, rule: Rule | None
) -> DataFrame:
    """The rows of rejected_events as today's columns tell them; computed.

    rule: what the key and time of rejects are of; None: they are of another one.
    Errors: SourceError where a source cannot be read as it was.
    """
    changed, parts = told_otherwise(done, columns), list[DataFrame]()
    for name, one in events.each.items():
        mine = rejects.where(C.col(C.SOURCE) == name) if name else rejects
        if name in changed:
            then = passed(done.consumed[name])
            with naming(name), telling_anew(then.last, is_rebuild=rule is None):
                are_whole = mine.where(C.col(C.EVENT).isNull()).isEmpty()
                source = None if are_whole else _typed(one.as_of(then, None), changed[name][0])
                own = replace(rule.of_source(one.of), made=()) if rule is not None and name else rule
                mine = Checkpoints().held(retold(mine, source, *changed[name], own))
        parts.append(mine)
    return reduce(DataFrame.unionByName, parts)


def still_waiting(context: "RunContext") -> DataFrame | None:
    """The rows of rejected_events that a rebuild goes by, which reads what no run has read as one increment.

    An update in quarantine whose new row has gone is made, rows whose events are gone leave, and what has come and is
    older than what has been forgotten is late.
    """
    rejects, rule, done, clock = context.rejects(), context.rule, context.position.manifest, context.clock
    events, together = context.kind.tables.events, partial(DataFrame.unionByName, allowMissingColumns=True)
    if done is None:
        return rejects
    left, compute = rejects, Checkpoints()
    if rejects is not None and rule.corrections == "quarantine":
        left = not_overtaken(rejects, events.as_of(context.increment, None), rule, done.key, compute)
    is_asked = left is not None or clock.forgotten is not None
    if not is_asked or not (changes := [*events.unread(done, context.increment)]):
        return left
    unread = reduce(together, changes)
    found = [] if left is None else [remaining(left, unread)]
    if clock.forgotten is not None:
        found.append(too_old(unread, rejects, rule, clock))
    return compute.held(reduce(together, found))


def may_be_late(context: "RunContext") -> list[Column]:
    """Which rows of rejected_events may be late by what has been forgotten, whatever they were; none: nothing has been.

    None of those apart: they counted.
    By another event_time than they are told by all of them may.
    """
    done, forgotten = context.position.manifest, context.clock.forgotten
    may = C.col(C.REASON).isin(*TIMED) & (C.col(C.KEPT) != BESIDE)
    if done is None or forgotten is None:
        return []
    time = C.col(C.EVENT_TIME)
    is_old = (F.unix_micros(time) < forgotten) | (F.lit(context.tells_anew) & time.isNull())  # it may get one
    return [may & is_old if times_of(done.rule) == times_of(context.kind.summary) else may]


def of_sources(rejects: DataFrame | None, rule: Rule) -> DataFrame | None:
    """Those of the sources that the rule names: of others a rebuild knows nothing any more."""
    if rejects is None or not rule.sources:
        return rejects
    return rejects.where(C.col(C.SOURCE).isin(*rule.sources)) if C.SOURCE in rejects.columns else None


def as_before(sample: DataFrame, done: Manifest) -> DataFrame:
    """No rows of the sources, with the columns that they had when they were read; in: with those that they have."""
    known = [_columns(text) for text in done.columns.values() if text]  # of an older release they are not known
    fields = {f.name: T.StructField(f.name, f.dataType) for of in known for f in of.fields}
    return sample.sparkSession.createDataFrame([], T.StructType(list(fields.values()))) if known else sample


def _typed(source: DataFrame, columns: T.StructType) -> DataFrame:
    """Rows of a source by the columns by which those of all were told, which others may have widened, or got later."""
    kinds = {field.name: field.dataType for field in source.schema.fields}
    told = {f.name: as_type(C.col(f.name), kinds[f.name], f.dataType) for f in columns.fields if f.name in kinds}
    lacking = {f.name: F.lit(None).cast(f.dataType) for f in columns.fields if f.name not in kinds}
    return source.withColumns(told | lacking)


def _columns(text: str) -> T.StructType:
    return bare_columns(T.StructType.fromJson(json.loads(text)))
