"""What verify has found: of rows that differ and of rules that are broken, for people and for machines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from sessionizer.jobs.console import stdout, table
from sessionizer.jobs.queries.sql import documents
from sessionizer.lib import columns as C
from sessionizer.lib.errors import counted, printable
from sessionizer.lib.verifying.differences import DIFFERS, EXPECTED, FOUND, KIND, WHICH

SHOWN = 20


@dataclass(frozen=True)
class Verdict:
    """What was found. wrong: the first differing rows; broken: rows that break a rule, by rule.

    of: what the rows are; identity: the columns that tell them apart.
    """

    sessions: int
    events: int
    recomputed: bool
    differing: int
    wrong: Sequence[dict[str, Any]] = ()
    broken: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    of: str = "sessions"
    identity: tuple[str, ...] = (C.SESSION_ID,)

    @property
    def clean(self) -> bool:
        """Whether the table is what it should be."""
        return not self.differing and not any(self.broken.values())


def first_wrong(told: DataFrame, order: Sequence[Column]) -> list[dict[str, Any]]:
    """The first rows that differ, as documents: Python has no times before year 1, and its own zone."""
    return documents(told.orderBy(*order).limit(SHOWN))


def examples_of(frames: dict[str, DataFrame], counts: dict[str, int]) -> dict[str, list[str]]:
    """Some rows that break a rule, by rule."""
    return {
        name: [str(tuple(row.values())) for row in documents(frames[name].limit(3))] for name, n in counts.items() if n
    }


def show(verdict: Verdict) -> None:
    """What was found, the differing sessions side by side."""
    out = stdout()
    for name, number in verdict.broken.items():
        if number:
            out.print(
                f"broken: {name}: {counted(number, 'row')}, such as {printable('; '.join(verdict.examples[name]))}"
            )
    for row in verdict.wrong:
        named = ", ".join(printable(str(value)) for value in _place(row, verdict).values())
        out.print(f"\n{named}: {_TOLD[row[KIND]]}")
        out.print(table(["column", "in the table", "recomputed"], _side_by_side(row)))
    if verdict.differing > len(verdict.wrong):
        out.print(f"\n… and {verdict.differing - len(verdict.wrong):,} more")
    checked = counted(verdict.sessions, verdict.of.removesuffix("s"))
    checked += f" of {counted(verdict.events, 'event')}" if verdict.recomputed else ""
    rules, option = f"{len(verdict.broken)} rules", " --windows" if verdict.of == "windows" else ""
    if not verdict.recomputed:
        out.print(f"lateness is session: {verdict.of} depend on arrival, so that only rules were checked")
    if verdict.clean:
        out.print(
            f"The table is right: {checked}, recomputed and compared; {rules} hold."
            if verdict.recomputed
            else f"{rules} hold for {checked}."
        )
    elif not verdict.differing:
        broken = sum(number > 0 for number in verdict.broken.values())
        whole = f"; {checked}, recomputed and compared, are right" if verdict.recomputed else ""
        out.print(
            f"\n{broken} of {rules} are broken{whole}. `sessionizer rebuild{option}` makes {verdict.of}, and "
            "what is told of them, anew; the ledger stays."
        )
    else:
        most, whole = (f"`sessionizer {name}{option}`" for name in ("backfill", "rebuild"))
        out.print(f"\nThe table is wrong: {verdict.differing:,} of {checked} differ.")
        out.print(f"{most} makes most rows right that were changed by hand, {whole} all.")


def as_document(verdict: Verdict) -> dict[str, Any]:
    """The same for machines."""
    named = (KIND, WHICH, FOUND, EXPECTED)
    return {
        "clean": verdict.clean,
        verdict.of: verdict.sessions,
        "events": verdict.events,
        "recomputed": verdict.recomputed,
        "differing": verdict.differing,
        "differences": [_place(row, verdict) | {name: row[name] for name in named} for row in verdict.wrong],
        "rules": verdict.broken,
    }


def _place(row: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """What tells a differing row apart."""
    return {name: (row[FOUND] or row[EXPECTED])[name] for name in verdict.identity}


_TOLD = {
    "missing": "the table lacks this row",
    "extra": "the table has a row that its events do not make",
    DIFFERS: "the table has another value",
}


def _side_by_side(row: dict[str, Any]) -> list[list[str]]:
    found, expected = row[FOUND] or {}, row[EXPECTED] or {}
    names = row[WHICH] if row[KIND] == DIFFERS else list(found or expected)
    edges = (C.SESSION_START, C.SESSION_END, C.WINDOW_START, C.WINDOW_END)
    shown = [n for n in (*names, *edges) if n in (found or expected)]
    return [[n, str(found.get(n, "-")), str(expected.get(n, "-"))] for n in dict.fromkeys(shown)]
