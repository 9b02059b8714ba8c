"""Figures that tests count while they try things, told as one table when all are done.

A test takes the fixture `tally`: `tally.add("faults tried")`, `tally.add("rows lost", 0)`.
"""

from collections import Counter
from typing import Any

import pytest


class Tally:
    """Sums by name, in the order in which the names were first heard."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.notes: dict[str, str] = {}

    def add(self, name: str, number: int = 1) -> None:
        """Count; 0 makes a name appear of which nothing has happened."""
        self.figures[name] += number

    def note(self, name: str, text: str) -> None:
        """What is no number to add up, such as a ratio."""
        self.notes[name] = text

    def lines(self) -> list[str]:
        """A line for each figure, the numbers in a column."""
        numbers = {name: f"{number:,}" for name, number in self.figures.items()} | self.notes
        long = max(map(len, numbers), default=0)
        wide = max(map(len, numbers.values()), default=0)
        return [f"{name:<{long}}  {number:>{wide}}" for name, number in numbers.items()]


KEPT = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """What is counted here is told at the end of all."""
    return pytestconfig.stash.setdefault(KEPT, Tally())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands its figures over."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        mine = session.config.stash.setdefault(KEPT, Tally())
        output["tally"] = [dict(mine.figures), mine.notes]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The process that tells takes them over."""
    everything = node.config.stash.setdefault(KEPT, Tally())
    figures, notes = getattr(node, "workeroutput", {}).get("tally", ({}, {}))
    for name, number in figures.items():
        everything.add(name, number)
    everything.notes.update(notes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if told := config.stash.setdefault(KEPT, Tally()).lines():
        terminalreporter.section("what was tried")
        for line in told:
            terminalreporter.write_line(line)
