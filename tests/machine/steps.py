"""Steps of a history, and how the oracle takes them.

A row's number is that of its user times 100 and its own, so that a user can be taken out of a history.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.machine.books import Counts
from tests.machine.oracle import World
from tests.machine.rule import Late, Row

Changes = dict[int, dict[str, Any]]
OWN = 100


@dataclass(frozen=True)
class Add:
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Update:
    changes: Changes = field(hash=False)


@dataclass(frozen=True)
class Delete:
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Overwrite:
    """All rows are written anew, with these changes."""

    changes: Changes = field(hash=False)
    gone: tuple[int, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class AddColumn:
    """The source gets a column that nobody uses and no row fills."""


@dataclass(frozen=True)
class Change:
    """From now on by another lateness, in minutes, and another policy for what is late."""

    allowed: int
    late: Late


@dataclass(frozen=True)
class Aggregates:
    """From now on with those aggregates that come later, or without them."""

    added: bool


@dataclass(frozen=True)
class Run:
    now: int
    flush: bool = False
    advance: int | None = None


@dataclass(frozen=True)
class Backfill:
    now: int
    low: int
    high: int
    keys: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True)
class Readmit:
    now: int
    low: int
    high: int


@dataclass(frozen=True)
class Rebuild:
    now: int


@dataclass(frozen=True)
class Erase:
    """Deletes that were ignored are made."""

    now: int
    low: int
    high: int


@dataclass(frozen=True)
class Forget:
    """Sessions that ended so much further behind the latest, in microseconds, are gone for good."""

    now: int
    keep: int


Job = Run | Backfill | Readmit | Erase | Rebuild | Forget


@dataclass(frozen=True)
class Crash:
    """The job dies before its nth write: the first is that of sessions, and what follows is owed."""

    job: Job
    nth: int


@dataclass(frozen=True)
class Maintain:
    """Small files are compacted, old ones removed, the log summed up."""

    now: int


@dataclass(frozen=True)
class Restore:
    """Sessions go back to before so many jobs, as far as there are any; the source does not."""

    jobs: int


Beside = AddColumn | Change | Aggregates | Maintain | Restore  # what is neither a change of rows nor a job
Step = Add | Update | Delete | Overwrite | Job | Crash | Beside


def do(world: World, step: Step) -> list[Counts]:
    """The counts of increments, if it is a run."""
    match step:
        case Add() if step.rows:
            world.add(step.rows)
        case Update() if step.changes:
            world.change(step.changes)
        case Delete() if step.numbers:
            world.delete(step.numbers)
        case Overwrite():
            world.overwrite(step.changes, step.gone, step.rows)
        case AddColumn():
            world.reshape()
        case Change():
            world.change_rule(step.allowed, step.late)
        case Aggregates():
            world.change_aggregates(step.added)
        case Crash() if step.nth > 1:
            do(world, step.job)
        case Run() | Backfill() | Readmit() | Erase() | Rebuild() | Forget():
            return _worked(world, step)
    return []


def _worked(world: World, step: Job) -> list[Counts]:
    match step:
        case Run():
            return world.run(step.now, step.flush, step.advance)
        case Backfill():
            world.backfill(step.now, step.low, step.high, None if step.keys is None else set(step.keys))
        case Readmit():
            world.readmit(step.now, step.low, step.high)
        case Rebuild():
            world.rebuild(step.now)
        case Erase():
            world.erase(step.now, step.low, step.high)
        case Forget():
            world.forget(step.keep)
    return []


def of_users(steps: Iterable[Step], users: set[int]) -> list[Step]:
    """What happens to these users."""

    def rows(of: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(row for row in of if row.n // OWN in users)

    def changes(of: Changes) -> Changes:
        return {n: change for n, change in of.items() if n // OWN in users}

    def numbers(of: Iterable[int]) -> tuple[int, ...]:
        return tuple(n for n in of if n // OWN in users)

    found: list[Step] = []
    for step in steps:
        match step:
            case Add():
                found.append(Add(rows(step.rows)))
            case Update():
                found.append(Update(changes(step.changes)))
            case Delete():
                found.append(Delete(numbers(step.numbers)))
            case Overwrite():
                found.append(Overwrite(changes(step.changes), numbers(step.gone), rows(step.rows)))
            case _:
                found.append(step)
    return found
