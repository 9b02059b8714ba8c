"""Files on disk: what is in them, which of it is known already, and a copy of the rest for Spark to read."""

import csv
import gzip
import hashlib
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, cast

from sessionizer.jobs.ingest.lines import ends_in_quotes
from sessionizer.lib.errors import SourceError, UsageError

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # what its byte order mark is, from either end
CHUNK = 1 << 20
BLANK = b" \r\n"
MARKS = ("\x1e", *map(chr, range(0xFDD0, 0xFDF0)))  # a separator of records, and characters that no text has
csv.field_size_limit(2**31 - 1)  # a field may be as long as its line
LONGEST = 1_000  # lines of one record; a quote that stays open longer was never meant to


@dataclass(frozen=True)
class Mark:
    """A prefix of a content: its length in (decompressed) bytes and the SHA-256 of these bytes."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Survey:
    """What one pass over a file found.

    whole: all of it. lines: up to and with the last newline. known: the known prefixes, shortest first.
    packed: whether it is gzipped. bom: the length of the byte order mark.
    """

    whole: Mark
    lines: Mark
    known: tuple[Mark, ...]
    packed: bool
    bom: int


def check_files(files: Sequence[Path]) -> None:
    """Raise a UsageError unless each of these is a file, and none of them a text of another encoding."""
    for file in files:
        if file.is_dir():
            raise UsageError("ingest takes files, and this is a folder", value=str(file), remedy=f"try {file}/*")
        if not file.is_file():
            raise UsageError("a file to ingest must exist", value=str(file), remedy="check the path")
        with suppress(SourceError):  # whoever reads it will say that it cannot be
            if first_bytes(file, 2) in UTF16:
                raise UsageError(
                    "a text to ingest must be UTF-8, and this is UTF-16",
                    value=str(file),
                    remedy="write it anew: iconv -f UTF-16 -t UTF-8 OLD > NEW",
                )


def survey(file: Path, known: Collection[Mark]) -> Survey:
    """Hash a file, and find which of the known contents it begins with, in one pass.

    Errors: SourceError if it cannot be read to its end.
    """
    ahead = deque(sorted({mark.size for mark in known}))
    found: list[Mark] = []
    digest = hashlib.sha256()
    lines, size, head = Mark(0, digest.hexdigest()), 0, b""
    with _opened(file) as (stream, packed):
        while chunk := stream.read(CHUNK):
            head = head or chunk[: len(BOM)]
            newline = size + chunk.rfind(b"\n") + 1
            cuts = {newline} if newline > size else set()
            while ahead and ahead[0] <= size + len(chunk):
                cuts.add(ahead.popleft())
            done = 0
            for cut in sorted(cuts):
                digest.update(chunk[done : cut - size])
                done, mark = cut - size, Mark(cut, digest.hexdigest())
                lines = mark if cut == newline else lines
                if mark in known:
                    found.append(mark)
            digest.update(chunk[done:])
            size += len(chunk)
    whole = Mark(size, digest.hexdigest())
    return Survey(whole, lines, tuple(found), packed, len(BOM) if head == BOM else 0)


def first_bytes(file: Path, most: int) -> bytes:
    """So many bytes of the decompressed content, from its beginning."""
    with _opened(file) as (stream, _):
        return stream.read(most)


def line_at(file: Path, start: int, end: int) -> bytes:
    """The bytes from `start` (of the decompressed content) to the next newline, with it, or to `end` (exclusive)."""
    with _opened(file) as (stream, _):
        stream.seek(start)
        return stream.readline(end - start)


def lines_before(file: Path, offset: int) -> int:
    """How many lines end in so many bytes of the decompressed content."""
    newlines = 0
    with _opened(file) as (stream, _):
        while offset > 0 and (chunk := stream.read(min(CHUNK, offset))):
            newlines += chunk.count(b"\n")
            offset -= len(chunk)
    return newlines


def copy_part(file: Path, target: Path, start: int, end: Mark) -> bool:
    """Copy the bytes from `start` (inclusive) to the end of the mark, decompressed; whether any are not blank.

    Errors: SourceError if the content up to the mark is no longer what was hashed.
    """
    digest, size, has_rows = hashlib.sha256(), 0, False
    with _opened(file) as (stream, _), target.open("wb") as copy:
        while size < end.size and (chunk := stream.read(min(CHUNK, end.size - size))):
            digest.update(chunk)
            wanted = chunk[max(0, start - size) :]
            copy.write(wanted)
            has_rows = has_rows or bool(wanted.strip(BLANK))
            size += len(chunk)
    if digest.hexdigest() != end.sha256:
        raise SourceError(
            "a file must not change while it is read, except that it grows", value=str(file), remedy="ingest it again"
        )
    return has_rows


def join_records(copy: Path, columns: int, sep: str, quote: str) -> str | None:
    """Put each record of the file on one line; the character that then stands for its inner newlines, if any has some.

    Lines are joined only to records that are whole and have the right number of fields: a torn quote swallows
    nothing, its line stays one by itself. Blank lines behind a record keep the numbers of those that follow.
    """
    if copy.stat().st_size == 0:
        return None
    with copy.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        newline = next((mark for mark in MARKS if content.find(mark.encode()) < 0), None)
    if newline is None:
        return None
    joined = False
    target = copy.with_name(copy.name + ".records")
    with copy.open("rb") as lines, target.open("wb") as records:
        for record in _records(lines, columns, sep, quote):
            joined = joined or len(record) > 1
            records.write(newline.encode().join(line.rstrip(b"\n") for line in record) + b"\n" * len(record))
    if joined:
        target.replace(copy)
    else:
        target.unlink()
    return newline if joined else None


@contextmanager
def _opened(file: Path) -> Iterator[tuple[BinaryIO, bool]]:
    try:
        with file.open("rb") as start:
            packed = start.read(len(GZIP)) == GZIP
        with cast(BinaryIO, gzip.open(file, "rb")) if packed else file.open("rb") as stream:
            yield stream, packed
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(
            "a file must be readable to its end", value=str(file), remedy=f"{error}; nothing of it was ingested"
        ) from error


def _opening(sep: str, quote: str) -> Callable[[bytes], bool]:
    """What tells whether a record that begins with these bytes goes on behind them, as a quote of its is open."""
    match = re.compile(ends_in_quotes(sep, quote)).match
    return lambda begun: match(begun.decode(errors="surrogateescape").rstrip("\r\n")) is not None


def _records(lines: Iterator[bytes], columns: int, sep: str, quote: str) -> Iterator[list[bytes]]:
    is_open = _opening(sep, quote)
    mark, again = quote.encode(), deque[bytes]()

    def following() -> bytes:
        return again.popleft() if again else next(lines, b"")

    while line := following():
        record = [line]
        if mark in line and is_open(line):
            while len(record) < LONGEST and (more := following()):
                record.append(more)
                if mark in more and not is_open(b"".join(record)):
                    break
            if not _is_whole(b"".join(record), columns, sep, quote):
                again.extendleft(reversed(record[1:]))
                record = [line]
        yield record


def _is_whole(record: bytes, columns: int, sep: str, quote: str) -> bool:
    lines = StringIO(record.decode(errors="replace"), newline="\n")
    try:
        rows = list(csv.reader(lines, delimiter=sep, quotechar=quote, strict=True))
    except csv.Error:
        return False
    return len(rows) == 1 and len(rows[0]) == columns
