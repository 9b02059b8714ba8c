"""backfill --dry-run: which spans would be made again, and what lies in them; by logs alone, nothing is computed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from rich.filesize import decimal

from sessionizer.jobs.commands.chunks import Chunk, spans_of
from sessionizer.jobs.commands.look_back import LookBack, done_to, left
from sessionizer.jobs.console import iso, print_rows, short, stdout, table
from sessionizer.jobs.plans.touched import by_status, late_within, of_any, stretches, touching, unfinished
from sessionizer.jobs.run.kinds import Ruled
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import counted
from sessionizer.lib.time.spans import near_spans
from sessionizer.tables.position import position_of
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.queries.spread import Part, Spread, check_read, part_within

LISTED, SHOWN = 1_000, 20  # spans


@dataclass(frozen=True)
class Plan:
    """What a backfill would do.

    asked: what is left to do of what was asked for; goes_on: as the same command was cut off behind the rest. spans:
    those that would be committed one by one, the first of so `many`. part: files of the source that events of them may
    lie in. rows: those of the table that touch them, by status. late: events that would be taken in. first: what would
    be repaired before.
    """

    of: str
    asked: LookBack
    spans: Sequence[Chunk]
    many: int
    part: Part
    rows: dict[str, int]
    late: int
    goes_on: bool
    first: str | None


def plan(tables: LocalTableSet, of: Ruled, asked: LookBack) -> Plan:
    """What `backfill` would do with these tables; the rule has been found to fit.

    Errors: as of `backfill`, as far as logs tell; NeedsSpark for tables that only Spark reads.
    """
    home, _ = tables.home(of.name)
    position = position_of(home)
    done = of.consumed(position.manifest)
    versions = check_read(tables, done)
    asked = left(of, done, asked)
    begin, _ = done_to(home, asked)
    todo = replace(asked, low=begin) if begin < asked.high else asked
    part = part_within(tables, versions, [(todo.low, todo.high - 1)])
    keys = of_any(todo.keys, home.schema)
    files = part_within(tables, versions, [(todo.low - of.rule.reach_back, todo.high - 1 + of.rule.reach_back)]).files
    known = stretches(tables, of, todo.low, todo.high, todo.chunk or DAY)
    kept = todo.low if done is None or done.forgotten is None else max(todo.low, done.forgotten)
    return Plan(
        of.name,
        todo,
        *_spans(files, todo, of.rule.reach_back, known),
        part=part,
        rows=by_status(tables, of, [*touching(of, todo.low, todo.high), *keys]),
        late=0 if todo.columns else late_within(tables, of, kept, todo.high, keys),
        goes_on=todo.low > asked.low,
        first=unfinished(tables, of, position),
    )


def as_document(plan: Plan) -> dict[str, Any]:
    """The plan for machines; times as ISO-8601."""
    return {
        "dry_run": True,
        "from": iso(plan.asked.low),
        "to": iso(plan.asked.high),
        "goes_on": plan.goes_on,
        "spans": plan.many,
        "first_spans": [{"from": iso(low), "to": iso(high)} for low, high in plan.spans],
        "source": part_document(plan.part),
        plan.of: plan.rows,
        "late_events": plan.late,
        "rule_fits": True,
        "repaired_first": plan.first,
    }


def part_document(part: Part) -> dict[str, object]:
    """What would be read of the sources; the version is that of each by its name, where there are several."""
    return {
        "version": part.versions.get("", dict(part.versions)),
        "files": len(part.files),
        "files_in_all": part.of,
        "rows_at_most": part.rows,
        "bytes": part.bytes,
    }


def show(plan: Plan) -> None:
    """The plan for a person."""
    asked, out = plan.asked, stdout()
    as_they_stand = "" if plan.first is None else ", as the tables stand before that is done"
    rows = [
        ("span", f"{short(asked.low)} - {short(asked.high)}{' (the rest is done)' if plan.goes_on else ''}"),
        ("commits", "1" if plan.many == 1 else f"{'about' if asked.chunk is None else 'at most'} {plan.many:,}"),
        ("source", told_part(plan.part)),
        (plan.of, f"{told_rows(plan.rows)} touch it"),
        ("late events", f"{counted(plan.late, 'event')} would be taken in{as_they_stand}"),
        ("rule", "the config fits the table"),
    ]
    out.print(table(["", ""], rows if plan.first is None else [*rows, ("before", plan.first)]))
    if plan.many > 1:
        print_rows(["from", "to"], [[short(low), short(high)] for low, high in plan.spans[:SHOWN]])
        if plan.many > SHOWN:
            out.print(f"… and {plan.many - SHOWN:,} more")
    out.print(f"Nothing was computed or written; --compare computes how many {plan.of} would change.")


def told_part(part: Part) -> str:
    """Files, rows and bytes for a person."""
    rows = "" if part.rows is None else f"at most {counted(part.rows, 'row')} in "
    versions = ", ".join(f"{name} {version}".strip() for name, version in part.versions.items())
    return f"{rows}{len(part.files):,} of {counted(part.of, 'file')} ({decimal(part.bytes)}), as of version {versions}"


def told_rows(rows: dict[str, int]) -> str:
    """`3 (1 open, 2 final)`."""
    return f"{sum(rows.values()):,} ({', '.join(f'{number:,} {status}' for status, number in rows.items())})"


def _spans(files: Sequence[Spread], asked: LookBack, reach: int, known: Mapping[int, int]) -> tuple[list[Chunk], int]:
    """The first spans that would be committed one by one, and how many there are: at most, or of days about.

    reach: how far from its event a row may begin or end. known: how many rows of our tables come in by each stretch.
    Where in a file its rows lie nobody knows without opening it: they are taken to lie evenly.
    """
    unit = asked.chunk or DAY
    if asked.high - asked.low <= unit:
        return [(asked.low, asked.high)], 1
    places = [_places(file, asked, unit, reach) for file in files]
    if asked.chunk is None:
        rows = _rows_of_days(files, places)
        for day, number in known.items():
            rows[day] += number
        spans = spans_of(rows, asked.low, asked.high, None)
        return spans, len(spans)
    runs = near_spans([*places, *((n, n) for n in known)], most=len(places) + len(known) + 1, apart=1)
    first = islice(chain.from_iterable(range(low, high + 1) for low, high in runs), LISTED + 1)
    spans = spans_of(dict.fromkeys(first, 1), asked.low, asked.high, unit)
    return spans[:LISTED], max(sum(high - low + 1 for low, high in runs), 1)


def _places(file: Spread, asked: LookBack, unit: int, reach: int) -> tuple[int, int]:
    """The first and the last stretch of the span that events of a file, or their rows, may lie in."""
    first = asked.low if file.first is None else min(max(file.first - reach, asked.low), asked.high - 1)
    last = asked.high - 1 if file.last is None else max(min(file.last, asked.high - 1), asked.low)
    return (first - asked.low) // unit, (last - asked.low) // unit


def _rows_of_days(files: Sequence[Spread], places: Sequence[tuple[int, int]]) -> dict[int, float]:
    """About how many rows lie in each day of the span; a file has the same in each of its days there."""
    rows: defaultdict[int, float] = defaultdict(float)
    for file, (first, last) in zip(files, places, strict=True):
        for day in range(first, last + 1):
            rows[day] += (file.rows or 0) / (last - first + 1)
    return rows
