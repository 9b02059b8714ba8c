"""What people and machines see: progress on stderr, results on stdout."""

import csv
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any
from uuid import uuid4

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, OverflowMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sessionizer.lib.errors import printable, without_passwords

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BAR_WIDTH = 40
NUMBERS = (int, float, Decimal)
BETWEEN = 2  # blanks between two columns
SHORTEST_CUT = 20  # letters of a cell that is cut
PLAIN_WIDTH = 160  # columns of a result that goes into a file or a pipe


def stdout() -> Console:
    """The console for results; wide enough where nobody's terminal sets the width."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def stderr() -> Console:
    """The console for progress, notes and errors."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


class Line:
    """A line of what is going on: `line("writing")`, or `line.bar(3, 10, "spans")` where the end is known."""

    def __init__(self, show: Callable[[RenderableType], None], *, drawn: bool = False) -> None:
        """drawn: the line is overwritten in place, so that a bar can grow."""
        self._show = show
        self._drawn = drawn
        self._begun = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say what comes now."""
        self._show(_line(text))

    def bar(self, done: int, total: int, what: str) -> None:
        """Say how much is done, and how long the rest takes if it goes on like this."""
        left = timedelta(seconds=round((time.monotonic() - self._begun) / max(done, 1) * (total - done)))
        text = f"{done} of {total} {what} done" + (f", about {left} left" if done < total else "")
        drawing = Columns([ProgressBar(total, done, width=BAR_WIDTH), text])
        self._show(drawing if self._drawn else text)


@contextmanager
def progress(first: str, *, quiet: bool = False) -> Iterator[Line]:
    """A line of what is going on: a spinner on a terminal, plain lines in a log; nothing if quiet."""
    console = stderr()
    if quiet:
        yield Line(lambda _: None)
    elif console.is_terminal:
        with console.status(_line(first)) as status:
            yield Line(status.update, drawn=True)
    else:
        console.print(_line(first))
        yield Line(console.print)


def print_json(value: object) -> None:
    """One JSON document on stdout; decimals are numbers with all their digits."""
    mark = uuid4().hex  # what json cannot write as a number is a text at first
    text = json.dumps(
        value, ensure_ascii=False, indent=2, default=lambda v: f"{mark}{v}" if isinstance(v, Decimal) else str(v)
    )
    sys.stdout.write(re.sub(f'"{mark}([^"]*)"', r"\1", text) + "\n")


def print_csv(rows: Iterable[Sequence[Any]]) -> None:
    """Rows as CSV on stdout; null is nothing."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(row)  # it quotes what has either of the two
        sys.stdout.write(line.getvalue().removesuffix("\r\n") + "\n")


def iso(us: int | None) -> str | None:
    """Microseconds since the epoch as ISO-8601 UTC; years that Python lacks stay a number."""
    if us is None:
        return None
    try:
        return (EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{us} µs since 1970"


def short(us: int | None) -> str:
    """Microseconds since the epoch for a person's eye."""
    return plain(iso(us)) or "-"


def plain(time: str | None) -> str | None:
    """What `iso` says, for a person's eye."""
    return None if time is None else time.replace("T", " ").removesuffix("Z").split(".")[0]


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> Table:
    """A light table: numbers to the right, nulls as a dash; words too long for a terminal are cut, not broken."""
    overflow: OverflowMethod = "ellipsis" if sys.stdout.isatty() else "fold"
    numeric = [all(isinstance(row[i], NUMBERS) or row[i] is None for row in rows) for i in range(len(headers))]
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header, is_number in zip(headers, numeric, strict=True):
        made.add_column(Text(printable(header)), justify="right" if is_number else "left", overflow=overflow)
    for row in rows:
        made.add_row(*[Text(_cell(value)) for value in row])
    return made


def print_rows(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None, wide: bool | None = None
) -> None:
    """Rows of data on stdout, a line each: on a terminal what fits into it, with a word on what does not.

    wide: whole cells and all columns, as in a file or a pipe; None: the command has no --wide.
    """
    rows = [[_one_line(value) if isinstance(value, str) else value for value in row] for row in rows]
    texts = [[printable(header) for header in headers], *([_cell(value) for value in row] for row in rows)]
    widths = [max(cell_len(row[i]) for row in texts) for i in range(len(headers))]
    out, whole = stdout(), sum(widths) + BETWEEN * len(widths)
    shown = len(widths)
    if wide or not sys.stdout.isatty():
        out.width = max(whole, 1)
    elif whole > out.width:
        widths = _capped(widths, out.width)
        ends = list(accumulate(width + BETWEEN for width in widths))
        shown = max(sum(end <= out.width + BETWEEN for end in ends), 1)
    made = table(headers[:shown], [row[:shown] for row in rows], title=title)
    for column, width in zip(made.columns, widths, strict=False):
        column.no_wrap, column.overflow, column.width = True, "ellipsis", width
    out.print(made)
    if shown < len(headers):
        how = "with --json" if wide is None else "with --wide, --json"
        out.print(f"… and, {how} or a wider terminal: {', '.join(map(printable, headers[shown:]))}")


def _capped(widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns, long ones cut until all fit, though not to less than can be read."""
    capped = list(widths)
    for most in range(max(widths), SHORTEST_CUT - 1, -1):
        capped = [min(width, most) for width in widths]
        if sum(capped) + BETWEEN * (len(capped) - 1) <= room:
            break
    return capped


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, NUMBERS) else printable(str(value))


def _line(text: str) -> Text:
    return Text(printable(without_passwords(text)))
