"""What a file may be: its format, its columns, which is the time and which the key. A look at its first rows."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from sessionizer.jobs.ingest.access_log import access_log_schema
from sessionizer.jobs.ingest.file_reader import Format
from sessionizer.jobs.ingest.files import BOM, first_bytes
from sessionizer.jobs.ingest.time_formats import ISO, patterns_of
from sessionizer.lib import columns as C
from sessionizer.lib.errors import SourceError

HEAD, ROWS = 4 << 20, 20_000  # bytes and rows that are looked at
SUFFIXES: dict[str, Format] = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
SEPARATORS = ",;\t|"
ACCESS_LOG = re.compile(rb'\S+ \S+ \S+ \[\d{2}/\w{3}/\d{4}:[^\]]+\] "')
DEEPEST, MOST_FIELDS = 5, 100  # of structs that are looked into
MOSTLY = 0.95  # of the values that are there: what all are taken to be
ISO_TIME = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?\s*")
SECONDS = (5e8, 4e9)  # of the years 1985 to 2096
NAMES_OF_TIME = ("event_time", "timestamp", "ts", "time", "datetime", "occurred", "created", "date", "at")
NAMES_OF_KEYS = (
    *("user", "visitor", "customer", "member", "account", "client", "device", "cookie", "email", "player", "driver"),
    *("host", "ip", "sensor", "machine"),
)
# Numbers, but no digits that begin with a zero, or a plus, which name something.
NUMBER = re.compile(r"\s*[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
WHOLE = re.compile(r"\s*-?(0|[1-9]\d{0,18})\s*")


@dataclass(frozen=True)
class Column:
    """A column, or a field within one, and its first values.

    kind: of Spark, for `--schema`; None: none that a config could use.
    """

    name: str
    values: Sequence[Any] = field(repr=False)
    kind: str | None
    is_within: bool = False

    @property
    def there(self) -> list[Any]:
        """The values that are no null, nor blank."""
        return [value for value in self.values if value is not None and str(value).strip()]

    @property
    def distinct(self) -> int:
        """How many different ones."""
        return len(set(map(str, self.there)))


@dataclass(frozen=True)
class Guess:
    """What a file may be. time_formats: of the columns that may be the time, the likeliest first. keys: likewise.

    declared: whether the file says of which types its columns are. fit_alike: the patterns that read as many values of
    a column as its time format, and may read them otherwise.
    """

    format: Format
    columns: tuple[Column, ...]
    time_formats: dict[str, str]
    keys: tuple[str, ...]
    csv_sep: str = ","
    declared: bool = True
    fit_alike: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """The column of this name."""
        return next(column for column in self.columns if column.name == name)


def format_of(file: Path) -> Format:
    """By its suffix, else by how it begins."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    if suffixes and (named := SUFFIXES.get(suffixes[-1])) is not None:
        return named
    head = first_bytes(file, 1 << 16).removeprefix(BOM).lstrip()
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"{"):
        return "json"
    return "access-log" if ACCESS_LOG.match(head) else "csv"


def guess(file: Path) -> Guess:
    """Look at a file's first rows. Errors: SourceError where nothing is in it."""
    kind, sep = format_of(file), ","
    if kind == "access-log":
        names = access_log_schema(C.EVENT_TIME).fieldNames()
        return Guess(kind, tuple(Column(n, (), "string") for n in names), {C.EVENT_TIME: ISO}, ("host",))
    if kind == "parquet":
        rows = _parquet(file)
    elif kind == "json":
        rows = values_of(objects(first_bytes(file, HEAD).splitlines()[:ROWS]))
    else:
        try:
            rows, sep = _csv(first_bytes(file, HEAD))
        except csv.Error as error:
            raise SourceError("the file must be csv, json, parquet or an access log", value=str(file)) from error
    chosen = {name.lower(): name for name in sorted(rows)}  # where capitals alone differ, as `one_of_each` does
    rows = {name: values for name, values in rows.items() if chosen[name.lower()] == name}
    columns = tuple(_column(name, values, is_text=kind == "csv") for name, values in rows.items())
    columns += tuple(
        replace(_column(name, values, is_text=False), is_within=True) for name, values in fields_within(rows).items()
    )
    if not any(column.there for column in columns):
        raise SourceError("the file must have rows to look at", value=str(file), remedy="name another one")
    formats = _times(columns)
    times = {name: form for name, (form, *_) in formats.items()}
    alike = {name: others for name, (_, *others) in formats.items()}
    return Guess(kind, columns, times, _keys(columns, times), sep, declared=kind != "csv", fit_alike=alike)


def _csv(head: bytes) -> tuple[dict[str, list[Any]], str]:
    """The separator is the one that most lines have as often as the first, which names the columns."""
    text = head.removeprefix(BOM).decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if len(head) >= HEAD:
        text = text[: text.rfind("\n") + 1]
    first = [line for line in text[: 1 << 16].split("\n") if line.strip()][:100]
    if not first:
        return {}, ","

    def fits(sep: str) -> tuple[int, int]:
        names, *others = csv.reader(first, delimiter=sep)
        return sum(len(row) == len(names) for row in others) * (len(names) > 1), len(names)

    sep = max(SEPARATORS, key=fits)
    names, *rows = islice((row for row in csv.reader(StringIO(text, newline=""), delimiter=sep) if row), ROWS)
    whole = [row for row in rows if len(row) == len(names)]
    return {name or f"_c{n}": [row[n] for row in whole] for n, name in enumerate(names)}, sep


def objects(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The JSON objects that lines hold; other lines are left out."""
    return [row for line in lines if isinstance(row := _parsed(line), dict)]


def values_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each member."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def fields_within(columns: Mapping[str, list[Any]], depth: int = 1) -> dict[str, list[Any]]:
    """The values of the fields within columns that hold structs alone, by names such as `user.id`."""
    found = dict[str, list[Any]]()
    for name, values in columns.items():
        there = [value for value in values if value is not None]
        names = dict.fromkeys(inner for value in there if isinstance(value, dict) for inner in value)
        if all(isinstance(value, dict) for value in there) and 0 < len(names) <= MOST_FIELDS and depth <= DEEPEST:
            inner = {f"{name}.{n}": [None if value is None else value.get(n) for value in values] for n in names}
            found |= {n: of for n, of in inner.items() if n not in columns} | fields_within(inner, depth + 1)
    return found


def _parsed(line: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _parquet(file: Path) -> dict[str, list[Any]]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    try:
        batch = next(ParquetFile(file).iter_batches(ROWS), None)
    except (OSError, pa.ArrowException) as error:
        raise SourceError("a parquet file cannot be read", value=str(file), remedy=str(error)) from error
    if batch is None:
        return {}
    return {name: list(map(_value, column)) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _value(scalar: Any) -> Any:
    """Of Parquet; null for what Python has nothing for: a year beyond 9999, a zone that it does not know."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return scalar.as_py()
    except (OverflowError, ValueError, LookupError):
        return {name: _value(part) for name, part in scalar.items()} if isinstance(scalar, pa.StructScalar) else None


def _column(name: str, values: list[Any], *, is_text: bool) -> Column:
    column = Column(name, values, None)
    return Column(name, values, _kind(column.there, is_text=is_text))


def _kind(there: Sequence[Any], *, is_text: bool) -> str | None:
    """The type of the values in Spark's words, None for what holds others within it."""
    kinds: list[tuple[str, Callable[[Any], bool]]] = [
        ("boolean", lambda v: isinstance(v, bool)),
        ("bigint", lambda v: isinstance(v, int) and -(2**63) <= v < 2**63),
        ("double", lambda v: isinstance(v, int | float | Decimal)),
        ("timestamp", lambda v: isinstance(v, datetime | date)),
        ("string", lambda v: isinstance(v, str)),
    ]
    if is_text:
        kinds = [
            ("boolean", lambda v: v.strip().lower() in ("true", "false")),
            ("bigint", lambda v: bool(WHOLE.fullmatch(v)) and -(2**63) <= int(v) < 2**63),
            ("double", lambda v: not v.lstrip().startswith("+") and _is_double(v)),
        ]
    found = next((kind for kind, holds in kinds if there and all(map(holds, there))), None)
    return found or ("string" if is_text or not there else None)


def _is_double(text: str) -> bool:
    """Whether a text is a number that a DOUBLE holds with all its digits, and Python with its exponent."""
    with suppress(InvalidOperation):
        return NUMBER.fullmatch(text) is not None and Decimal(text.strip()) == Decimal(repr(float(text)))
    return False


def _times(columns: Sequence[Column]) -> dict[str, list[str]]:
    found = {c.name: forms for c in columns if (forms := _time_formats(c))}
    return dict(sorted(found.items(), key=lambda item: _rank(item[0], NAMES_OF_TIME)))


def _time_formats(column: Column) -> list[str]:
    """Those that fit best, the likeliest first; none of what is no time."""
    if not column.there or column.kind in (None, "boolean"):
        return []
    if column.kind == "timestamp":
        return [ISO]
    there = [str(value) for value in column.there]
    numbers = [float(value) for value in there if NUMBER.fullmatch(value)]
    if len(numbers) >= MOSTLY * len(there):
        looks = _rank(column.name, NAMES_OF_TIME) < len(NAMES_OF_TIME)
        units = {"epoch_s": 1, "epoch_ms": 1_000} if looks else {}
        return [form for form, per in units.items() if _share(numbers, _lies_near_now(per)) >= MOSTLY]
    if _share(there, lambda v: bool(ISO_TIME.fullmatch(v))) >= MOSTLY:
        return [ISO]
    return patterns_of(there, MOSTLY)


def _lies_near_now(per_second: int) -> Callable[[float], bool]:
    return lambda value: SECONDS[0] * per_second <= value <= SECONDS[1] * per_second


def _share(values: Sequence[Any], holds: Callable[[Any], bool]) -> float:
    return sum(map(holds, values)) / len(values)


def _keys(columns: Sequence[Column], times: dict[str, str]) -> tuple[str, ...]:
    """Columns that come again and again, those that are named like somebody first, then those with more values."""
    taken = {name.lower() for name in (*C.FIXED_SESSION_COLUMNS, *C.FIXED_EVENT_COLUMNS)}

    def may_be(column: Column) -> bool:
        known = column.kind in ("string", "bigint") and column.name not in times and column.name.lower() not in taken
        return known and column.distinct > 1 and _is_repeated(column)

    def order(column: Column) -> tuple[int, int]:
        return _rank_of_key(column.name), -column.distinct

    return tuple(column.name for column in sorted(filter(may_be, columns), key=order))


def _rank_of_key(name: str) -> int:
    """`user` and `user_id` are somebody; `user_agent` may only say something of one."""
    last = next(reversed(_words(name)), "")
    names_one = last in NAMES_OF_KEYS or last in ("id", "key", "hash", "uuid", "guid", "name", "address")
    return _rank(name, NAMES_OF_KEYS) if names_one else len(NAMES_OF_KEYS) + 1


def _is_repeated(column: Column) -> bool:
    """Somebody comes more than once, or is so new that it cannot be told."""
    most = 1.0 if _rank_of_key(column.name) < len(NAMES_OF_KEYS) else 0.9
    return column.distinct <= most * len(column.there)


def _rank(name: str, known: Sequence[str]) -> int:
    """The place of the first of these words in the name; their number where none is."""
    words = _words(name)
    return next((n for n, word in enumerate(known) if word in words or word == name.lower()), len(known))


def _words(name: str) -> list[str]:
    """`userId`, `user_id` and `User ID` are user and id; letters may be of any script, and there may be none."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word.lower() for word in re.findall(r"[^\W\d_]+|\d+", apart)]
