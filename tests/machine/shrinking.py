"""From a history that fails to a small one that fails the same way."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from tests.machine.steps import OWN, Add, Delete, Overwrite, Run, Step, Update, of_users

Fails = Callable[[list[Step]], bool]


def shrunk(steps: list[Step], fails: Fails, suspects: Iterable[int], budget: int = 60) -> list[Step]:
    """`suspects`: users whose rows differ. Each smaller history that fails, too, takes the place of the last."""
    tries = iter(range(budget))
    for smaller in (_without_users(suspects), _without_steps, _without_rows, _without_steps):
        steps = _descend(steps, fails, smaller, tries)
    return [step for step in steps if not _is_empty(step)]


def _descend(
    steps: list[Step], fails: Fails, smaller: Callable[[list[Step]], Iterator[list[Step]]], tries: Iterator[int]
) -> list[Step]:
    found = True
    while found:
        found = False
        for candidate in smaller(steps):
            if next(tries, None) is None:
                return steps
            if fails(candidate):
                steps, found = candidate, True
                break
    return steps


def _without_users(suspects: Iterable[int]) -> Callable[[list[Step]], Iterator[list[Step]]]:
    def smaller(steps: list[Step]) -> Iterator[list[Step]]:
        users = sorted({n // OWN for step in steps for n in numbers(step)})
        for user in suspects:
            if {user} < set(users):
                yield of_users(steps, {user})
        for size in (len(users) // 2, len(users) // 4, 1):
            for low in range(0, len(users), max(size, 1)) if size else ():
                rest = set(users) - set(users[low : low + size])
                if rest:
                    yield of_users(steps, rest)

    return smaller


def _without_steps(steps: list[Step]) -> Iterator[list[Step]]:
    for n in range(len(steps) - 1, -1, -1):
        if n > 1:
            yield steps[:n] + steps[n + 1 :]
            if isinstance(steps[n], Run) and (steps[n].flush or steps[n].advance is not None):  # type: ignore[union-attr]
                yield [*steps[:n], Run(steps[n].now), *steps[n + 1 :]]  # type: ignore[union-attr]


def _without_rows(steps: list[Step]) -> Iterator[list[Step]]:
    for n, step in enumerate(steps):
        for one in list(numbers(step)):
            yield [*steps[:n], _without(step, one), *steps[n + 1 :]]


def _without(step: Step, number: int) -> Step:
    def kept(changes: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return {n: change for n, change in changes.items() if n != number}

    match step:
        case Add():
            return Add(tuple(row for row in step.rows if row.n != number))
        case Update():
            return Update(kept(step.changes))
        case Delete():
            return Delete(tuple(n for n in step.numbers if n != number))
        case Overwrite():
            gone, rows = (n for n in step.gone if n != number), (row for row in step.rows if row.n != number)
            return replace(step, changes=kept(step.changes), gone=tuple(gone), rows=tuple(rows))
        case _:
            return step


def numbers(step: Step) -> list[int]:
    """Of the rows that the step names."""
    match step:
        case Add():
            return [row.n for row in step.rows]
        case Update():
            return list(step.changes)
        case Delete():
            return list(step.numbers)
        case Overwrite():
            return [*step.changes, *step.gone, *(row.n for row in step.rows)]
        case _:
            return []


def _is_empty(step: Step) -> bool:
    return isinstance(step, Add | Update | Delete) and not numbers(step)
