"""Small tables drawn as text, so that a test shows its data beside its assertion."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def rows(text: str, **read: Callable[[str], Any]) -> list[dict[str, Any]]:
    """The rows of a table with a header line and `|` between cells; `-` is a null, `read` makes values of cells.

    >>> rows('''
    ...     user | n
    ...     ann  | 1
    ...     bob  | -
    ... ''', n=int)
    [{'user': 'ann', 'n': 1}, {'user': 'bob', 'n': None}]
    """
    header, *lines = [_cells(line) for line in text.splitlines() if line.strip()]
    assert all(len(line) == len(header) for line in lines), f"a line has not {len(header)} cells"
    return [
        {name: None if cell == "-" else read.get(name, str)(cell) for name, cell in zip(header, line, strict=True)}
        for line in lines
    ]


def clock(text: str) -> datetime:
    """`10:30` or `10:30:15.000001`, of the day that the tests play on; `+1d 10:30` is a day later."""
    days, _, time = text.rpartition("d ")
    hours, minutes, *seconds = time.split(":")
    return DAY + timedelta(
        days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=float(seconds[0]) if seconds else 0
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]
