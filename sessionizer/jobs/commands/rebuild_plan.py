"""rebuild --dry-run: which rows a rebuild would bring, take away and change; nothing is written."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.console import print_rows
from sessionizer.jobs.queries.sql import documents
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.compute import Checkpoints, outlasting
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.driver import repair
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.manifests import check_is_last
from sessionizer.jobs.run.phases import Phases, Say, wall_clock
from sessionizer.jobs.run.policies import check_expectations, check_filter, check_policies
from sessionizer.lib import columns as C
from sessionizer.lib.compare import same_row, tolerances
from sessionizer.lib.errors import SessionizerError, UsageError
from sessionizer.tables.delta import Superseded
from sessionizer.tables.position import Position

COMES, GOES, CHANGES, STAYS = "comes", "goes", "changes", "stays"
WHAT, DAY, BEFORE, AFTER = "what", "day", "before", "after"
OLD, NEW = "__old", "__new"  # the same, beside a key of any name
# What says how a row came about, not what it is.
HOW = {"sessions": (C.RUN_ID, C.SUPERSEDES, C.STATE), "windows": (C.RUN_ID, C.STATE)}
EXAMPLES = 10
IMPOSSIBLE = (SessionizerError, PySparkException, Py4JJavaError)  # what stops a repair, but for races


@dataclass(frozen=True)
class Plan:
    """What a rebuild would do. days: of each day (of the rows' starts) how many come, go and change.

    columns: those that are new (+) or gone (-). examples: row objects with `what`, `before` and `after`. changed: the
    parts of the rule that differ from the one that the rows follow now, as text.
    """

    of: str
    changed: Sequence[str]
    columns: Sequence[str]
    stays: int
    days: Sequence[dict[str, Any]]
    examples: Sequence[dict[str, Any]]

    def total(self, what: str) -> int:
        """How many rows come, go or change."""
        return sum(day[what] for day in self.days)


def plan(kind: Kind, say: Say, now: int | None = None) -> Plan:
    """Compute what `rebuild` would write, and compare it with the table. Errors: as for a rebuild."""
    kind.require()
    found = kind.home.position()
    with suppress(Superseded):  # it says what would be by then
        check_is_last(kind, found)
    position = side_tables.as_followed(kind, found)
    side_tables.check_told(kind, position, of_rebuild=True)
    context = RunContext.anew(kind, position, wall_clock() if now is None else now)
    check_filter(context)
    say("reading events again")
    with kind.tables.events.reading(context.increment):
        result = context.result()
        check_policies(result, context)
        check_expectations(context, result, Phases())
        rows = outlasting(result.changes.drop(C.CHANGE, *HOW[kind.name]))
    say("comparing")
    table = kind.home.table.read(position.version).drop(*HOW[kind.name])
    key = kind.summary["key"] if position.manifest is None else position.manifest.rule.get("key")
    there = {field.name: field.dataType for field in table.schema.fields}
    is_typed_so = all(there.get(name) == rows.schema[name].dataType for name in kind.home.layout.identity)
    is_comparable = is_typed_so and key == kind.summary["key"]
    told = Checkpoints().held(_told(rows, table, kind, is_comparable=is_comparable))
    counts = told.groupBy(DAY, WHAT).count().orderBy(DAY).collect()
    days: dict[str, dict[str, Any]] = {}
    for row in counts:
        if row[WHAT] != STAYS:
            day = days.setdefault(str(row[DAY]), {DAY: str(row[DAY]), COMES: 0, GOES: 0, CHANGES: 0})
            day[row[WHAT]] = row["count"]
    first = told.where(F.col(WHAT) != STAYS).orderBy(DAY, WHAT, F.to_json(AFTER), F.to_json(BEFORE)).limit(EXAMPLES)
    new, old = (set(frame.columns) for frame in (rows, table))
    return Plan(
        of=kind.name,
        changed=[] if position.manifest is None else position.manifest.differs(kind.summary),
        columns=[*(f"+{name}" for name in sorted(new - old)), *(f"-{name}" for name in sorted(old - new))],
        stays=sum(row["count"] for row in counts if row[WHAT] == STAYS),
        days=list(days.values()),
        examples=documents(first.select(WHAT, BEFORE, AFTER)),
    )


def repair_if_possible(kind: Kind, position: Position, say: Say) -> Position:
    """What an unfinished run would still write, a rebuild replaces, but for what stays out for good.

    The position that it goes on from. Errors: UsageError where that is not known.
    """
    check_is_last(kind, position)  # else what it writes beside the table would be taken for written
    done = position.manifest
    try:
        repair(kind, position, say)
    except IMPOSSIBLE as error:
        if done is None or not side_tables.lacks_lasting(kind, done, position.restored):
            return side_tables.as_followed(kind, position)
        if not isinstance(error, SessionizerError):  # of Spark: what it met may be over the next time
            raise
        raise UsageError(
            f"the last run was cut off before it wrote which events stay out for good, and cannot be finished: {error}",
            value=done.run_id,
            remedy=f"where the rule has changed, set the rule as it was, and `{kind.command}` finishes it; "
            f"where what it read is gone, a RESTORE of {kind.name} to version {done.sessions_version} undoes it",
        ) from error
    return position


def as_document(found: Plan) -> dict[str, Any]:
    """The plan for machines."""
    totals = {what: found.total(what) for what in (COMES, GOES, CHANGES)}
    return {
        "dry_run": True,
        "of": found.of,
        "rule": list(found.changed),
        "columns": list(found.columns),
        **totals,
        STAYS: found.stays,
        "days": list(found.days),
        "examples": list(found.examples),
    }


def show(found: Plan) -> None:
    """The plan for a person."""
    for line in found.changed:
        print(f"rule: {line}")
    if found.columns:
        print(f"columns: {', '.join(found.columns)}")
    come, go, change = (found.total(what) for what in (COMES, GOES, CHANGES))
    print(
        f"A rebuild would bring {come:,} {found.of}, take {go:,} away and change {change:,}; {found.stays:,} stay as "
        "they are. Nothing was written."
    )
    if found.days:
        print()
        print_rows([DAY, COMES, GOES, CHANGES], [[day[n] for n in (DAY, COMES, GOES, CHANGES)] for day in found.days])
        print()
        rows = [[row[WHAT], *_example(row)] for row in found.examples]
        print_rows([WHAT, "row", "as it is", "as it would be"], rows, title="Examples")


def _told(rows: DataFrame, table: DataFrame, kind: Kind, *, is_comparable: bool) -> DataFrame:
    """The rows of either: `what` becomes of them, the `day` of their start, `before` and `after`."""
    identity, start = kind.home.layout.identity, kind.home.layout.start
    types = {f.name: f.dataType for f in table.schema.fields}
    made = {f.name: f.dataType.simpleString() for f in rows.schema.fields}  # which knows nothing of nulls within
    both = [n for n in types if made.get(n) == types[n].simpleString()]
    if not is_comparable:  # by another key no row is one of the others
        goes = (
            _packed(table, (), BEFORE).withColumn(WHAT, F.lit(GOES)).withColumn(DAY, F.col(BEFORE)[start].cast("date"))
        )
        comes = (
            _packed(rows, (), AFTER).withColumn(WHAT, F.lit(COMES)).withColumn(DAY, F.col(AFTER)[start].cast("date"))
        )
        return goes.unionByName(comes, allowMissingColumns=True).select(WHAT, DAY, BEFORE, AFTER)
    old, new = _packed(table, identity, OLD), _packed(rows, identity, NEW)
    each = [F.first(name, ignorenulls=True).alias(name) for name in (OLD, NEW)]
    met = old.unionByName(new, allowMissingColumns=True).groupBy(*C.cols(tuple(identity))).agg(*each)
    before, after = F.col(OLD), F.col(NEW)
    within = tolerances(kind.rule)
    alike = same_row({n: before[n] for n in both}, {n: after[n] for n in both}, {n: types[n] for n in both}, within)
    what = F.when(before.isNull(), COMES).when(after.isNull(), GOES).when(alike, STAYS).otherwise(CHANGES)
    day = F.coalesce(before[start], after[start]).cast("date")
    return met.select(what.alias(WHAT), day.alias(DAY), before.alias(BEFORE), after.alias(AFTER))


def _packed(rows: DataFrame, identity: Sequence[str], name: str) -> DataFrame:
    return rows.select(*C.cols(tuple(identity)), F.struct(*C.cols(tuple(rows.columns))).alias(name))


def _example(row: dict[str, Any]) -> list[str]:
    """Of a row its first columns, and what differs."""
    before, after = row[BEFORE] or {}, row[AFTER] or {}
    whole = after or before
    named = ", ".join(str(value) for name, value in list(whole.items())[:2])
    if before and after:
        names = [name for name in after if name in before and before[name] != after[name]]
    else:
        names = [name for name in whole if name.endswith(("_start", "_end", "_count"))]
    return [named, *("; ".join(f"{n}: {side[n]}" for n in names if n in side) for side in (before, after))]
