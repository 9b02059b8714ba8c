"""Names of a file's columns, and of the fields within them: which are there, which are wanted, what they become."""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from sessionizer.jobs.ingest.files import line_at
from sessionizer.lib.config import Config, EventSource
from sessionizer.lib.config.types import first_repeated
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.lib.expressions import closest, nearest

ASKING = (  # keys of a config that name columns, or hold SQL over them
    *("key", "expr", "event_time", "prune_by", "where", "order_by", "from", "by", "of"),
    *("starts_when", "ends_when", "changes_of", "erase_when"),
)


def csv_header(file: Path, begin: int, end: int, sep: str, quote: str) -> tuple[tuple[str, ...], int]:
    """The column names of a csv file, and where its rows begin; between these two places of its content."""
    line = b""
    while not line.strip():
        line = line_at(file, begin, end)
        begin += len(line)
        if not line:
            return (), begin
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(
            "the first line of a csv file must be UTF-8",
            value=str(file),
            remedy="write the file anew: iconv -f ISO-8859-1 -t UTF-8 OLD > NEW, if it is Latin-1",
        ) from error
    try:
        (names,) = csv.reader(
            [text],
            delimiter=sep,
            quotechar=quote or None,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        )
    except csv.Error as error:
        raise SourceError(
            "the first line of a csv file must name its columns", value=str(file), remedy=str(error)
        ) from error
    return tuple(name or f"_c{n}" for n, name in enumerate(names)), begin


def one_of_each(found: T.StructType, wanted: Iterable[str]) -> tuple[T.StructType, tuple[str, ...]]:
    """Of fields whose names differ only in capitals the one that is wanted, else the one in small letters; the others.

    Errors: SourceError for such fields within a field.
    """
    known, chosen = set(wanted), dict[str, T.StructField]()
    for field in sorted(found.fields, key=lambda field: (field.name in known, field.name)):
        chosen[field.name.lower()] = field
        if (double := _doubled(field.dataType)) is not None:
            raise SourceError(
                f"fields within {field.name} must not differ only in capitals",
                value=double,
                remedy="mend the lines that have one of the two",
            )
    kept = [field for field in found.fields if chosen[field.name.lower()] is field]
    return T.StructType(kept), tuple(field.name for field in found.fields if field not in kept)


def _doubled(data_type: T.DataType) -> str | None:
    match data_type:
        case T.StructType():
            names = [name.lower() for name in data_type.fieldNames()]
            twice = (f.name for f in data_type.fields if names.count(f.name.lower()) > 1)
            within = (name for f in data_type.fields if (name := _doubled(f.dataType)) is not None)
            return next(twice, None) or next(within, None)
        case T.ArrayType():
            return _doubled(data_type.elementType)
    return None


def renamed(
    names: Sequence[str], within: Iterable[str], rename: Mapping[str, str], known: Collection[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The names after renaming, no two of them equal; and the new names of fields `within` the columns.

    known: new names of what may be absent: columns that the table has.
    Errors: UsageError for a name that is not there, SourceError for one that is there twice.
    """
    own = {name.lower(): name for name in names}
    inner = {name.lower(): name for name in within if name.lower() not in own}
    may_lack, new, lifted = {name.lower() for name in known}, dict[str, str](), dict[str, str]()
    for old, name in rename.items():
        if old.lower() in own:
            new[old.lower()] = name
        elif old.lower() in inner:
            lifted[inner[old.lower()]] = name
        elif name.lower() not in may_lack:
            there = [*names, *inner.values()]
            raise UsageError(
                "a column to rename must be in the file", value=old, remedy=nearest(old, there, whose="the file")
            )
    result = [new.get(name.lower(), name) for name in names]
    if twice := first_repeated([*result, *lifted.values()]):
        raise SourceError("a file must name each column once", value=twice, remedy="rename one of them in the file")
    return result, lifted


def time_column(event_time: str, names: Iterable[str]) -> str | None:
    """The column that `source.event_time` names, whether or not it is among these; None for an expression."""
    plain = event_time[1:-1] if re.fullmatch(r"`[^`]+`", event_time) else event_time
    for name in names:
        if name.lower() == plain.lower():
            return name
    return plain if plain != event_time or re.fullmatch(r"[^\W\d]\w*", plain) else None


def used_in(config: Config, source: EventSource) -> Iterator[str]:
    """The names and SQL by which the config, or this source of it, asks for columns of events."""
    shared = config.model_dump(include={"session", "corrections", "aggregates", "sliding", "events"}, by_alias=True)
    yield from _asked([source.model_dump(by_alias=True), *shared.values()], "")


def _asked(part: Any, name: str) -> Iterator[str]:
    """The texts of `ASKING` in a part of a config that lies under this name."""
    if isinstance(part, dict):
        for inner, value in part.items():
            yield from _asked(value, inner)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _asked(value, name)
    elif isinstance(part, str) and name in ASKING:
        yield part


def source_of(config: Config, name: str | None) -> EventSource:
    """The source of this name, or the only one. Errors: UsageError where that is none of them."""
    if (name or "") in [source.label for source in config.each]:
        return config.of(name or "")
    names = ", ".join(config.names)
    if name is None:
        raise UsageError("--source must say which of several sources the files are of", remedy=f"one of: {names}")
    remedy = f"one of: {names}" if names else "leave it out: the config has one source alone"
    raise UsageError("--source must be the name of a source of the config", value=name, remedy=remedy)


def require_used(names: Sequence[str], within: Iterable[str], source: EventSource, file: str) -> None:
    """Raise a SourceError if a key column of the source's own, or a plain event_time column, is not among these names.

    within: fields within the columns, which a name could be given to.
    """
    known = {name.lower() for name in names}
    time = time_column(source.event_time, names) if source.arrival is None else None
    used = [("source.key", key) for key in source.own_key]
    used += [("source.event_time", time)] if time is not None else []
    for field, name in used:
        if name.lower() not in known:
            there = [*names, *within]
            old = closest(name, there) or "OLD"
            raise SourceError(
                f"{file} lacks a column that {field} names",
                value=name,
                remedy=f"{nearest(name, there, whose='the file')}; --rename {old}={name} gives it this name",
            )


def check_arrival(source: EventSource, names: Sequence[str], table: T.StructType | None, *, add_columns: bool) -> None:
    """Raise a SourceError where the column for the time of arrival is in the file, or cannot be in the table."""
    if source.arrival is None:
        return
    name = source.arrival.lower()
    if name in (other.lower() for other in names):
        raise SourceError(
            "the file has the column that is to be filled with the time of arrival",
            value=source.arrival,
            remedy=f"write source.event_time: {source.arrival}, if it tells when events happened; or name another one",
        )
    if table is not None and name not in (other.lower() for other in table.fieldNames()) and not add_columns:
        raise SourceError(
            "the table does not have the column for the time of arrival",
            value=source.arrival,
            remedy="--add-columns adds it; rows that are there have no time then, and are rejected: null_time",
        )
