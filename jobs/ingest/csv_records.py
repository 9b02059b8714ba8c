"""CSV records that span lines: a quoted field may hold newlines (RFC 4180)."""

import csv
import re
from collections import deque
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from jobs.ingest.lines import ends_in_quotes

MARKS = ("\x1e", *map(chr, range(0xFDD0, 0xFDF0)))  # a separator of records, and characters that no text has
LONGEST = 1_000  # lines of one record; a quote that stays open longer was never meant to


def join_records(copy: Path, columns: int, sep: str, quote: str) -> str | None:
    """Put each record of the file on one line; the character that then stands for its inner newlines, if any has some.

    Lines are joined only to records that are whole and have the right number of fields: a torn quote swallows
    nothing, its line stays one by itself.
    """
    newline = _unused(copy) if copy.stat().st_size else None
    if newline is None:
        return None
    joined = False
    target = copy.with_name(copy.name + ".records")
    with copy.open("rb") as lines, target.open("wb") as records:
        for record in _records(lines, columns, sep, quote):
            joined = joined or len(record) > 1
            records.write(newline.encode().join(line.rstrip(b"\n") for line in record) + b"\n")
    if joined:
        target.replace(copy)
    else:
        target.unlink()
    return newline if joined else None


def _unused(copy: Path) -> str | None:
    """A character that the file does not hold."""
    with copy.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return next((mark for mark in MARKS if content.find(mark.encode()) < 0), None)


def _records(lines: Iterator[bytes], columns: int, sep: str, quote: str) -> Iterator[list[bytes]]:
    is_open = re.compile(ends_in_quotes(sep, quote).encode()).match
    mark, again = quote.encode(), deque[bytes]()

    def following() -> bytes:
        return again.popleft() if again else next(lines, b"")

    while line := following():
        record = [line]
        if mark in line and is_open(line.rstrip(b"\r\n")):
            while len(record) < LONGEST and (more := following()):
                record.append(more)
                if mark in more and not is_open(b"".join(record).rstrip(b"\r\n")):
                    break
            if not _is_whole(b"".join(record), columns, sep, quote):
                again.extendleft(reversed(record[1:]))
                record = [line]
        yield record


def _is_whole(record: bytes, columns: int, sep: str, quote: str) -> bool:
    text = record.decode(errors="replace").splitlines(keepends=True)
    try:
        rows = list(csv.reader(text, delimiter=sep, quotechar=quote, strict=True))
    except csv.Error:
        return False
    return len(rows) == 1 and len(rows[0]) == columns
