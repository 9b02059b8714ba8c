"""What an expression names, as far as its text tells, and what of that is another thing by the columns of today.

Every name is taken for a column if there is one, but for parts of others; what stands behind it, `.b`, `['b']`, `[0]`,
leads to a part. Where the way ends, or goes on in words of SQL, all that lies there is named.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Literal, NamedTuple

from pyspark.sql import types as T

from sessionizer.lib.expressions import COMMENT, TEXT
from sessionizer.lib.schema.evolution import by_file, has_lost, has_replaced, is_replaced, met_by

How = Literal["another", "without parts", "gone"]
_NAME = r"`(?:[^`]|``)*`|\w+"
_TOKEN = re.compile(rf"(?P<nothing>{TEXT}|{COMMENT})|(?P<part>\.\s*)?(?P<name>{_NAME})", re.DOTALL)
_STEP = re.compile(rf"\s*(?:\.\s*(?P<name>{_NAME})|\[\s*(?P<text>{TEXT})\s*\]|(?P<index>\[[^\]]*\]))", re.DOTALL)
Steps = Sequence[str | None]  # names, and None: the element of an array, the value of a map


class Change(NamedTuple):
    """What an expression names that is another thing now: how, and the column, or its part by path."""

    how: How
    path: str


def changes(text: str, before: T.StructType, after: T.StructType) -> list[Change]:
    """What of this expression, or column, is another thing by the columns of after. In: bare types."""
    known = {name.lower() for name in (*before.names, *after.names)}

    def is_none(step: str | None) -> bool:  # of a table, or a function
        return step is None or step.lower() not in known

    ways: list[Steps] = [[text]] if text.lower() in known else [[*dropwhile(is_none, way)] for way in _ways(text)]
    found = [_change(way, before, after, ()) for way in ways if way]
    return [change for change in found if change is not None]


def _ways(text: str) -> Iterator[Steps]:
    """Every way that an expression may take into its columns."""
    for token in _TOKEN.finditer(text):
        if token["name"] and not token["part"]:
            way: list[str | None] = [_unquoted(token["name"])]
            end = token.end()
            while step := _STEP.match(text, end):
                way.append(None if step["index"] else _unquoted(step["name"] or step["text"]))
                end = step.end()
            yield way


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[0] in "`'\"" else name


def _change(way: Steps, was: T.DataType, now: T.DataType, path: tuple[str, ...]) -> Change | None:
    match was, now:
        case T.StructType(), T.StructType() if way and (both := (_of(was, way[0]), _of(now, way[0]))) != (None, None):
            return _change_behind(way[1:], *both, by_file(was, now)[0], path)
        case T.ArrayType(), T.ArrayType() if way:
            inner = way[1:] if way[0] is None else [way[0], *way[1 + (way[1:2] == [None]) :]]  # a.b[0] is a[0].b
            return _change(inner, was.elementType, now.elementType, path)
        case T.MapType(), T.MapType() if way and was.keyType == now.keyType:
            return _change(way[1:], was.valueType, now.valueType, path)
    if has_replaced(was, now):
        return Change("another", ".".join(path))
    return Change("without parts", ".".join(path)) if has_lost(was, now) else None


def _of(columns: T.StructType, name: str | None) -> T.StructField | None:
    return next((f for f in columns.fields if name is not None and f.name.lower() == name.lower()), None)


def _change_behind(
    way: Steps,
    was: T.StructField | None,
    now: T.StructField | None,
    then: Mapping[str, T.StructField],
    path: tuple[str, ...],
) -> Change | None:
    """Of what lies behind the columns of one name. then: those of before by what they are called in the files."""
    if was is not None and now is not None and is_replaced(was, now):
        return Change("another", ".".join((*path, now.name)))
    if was is not None and now is None:
        return Change("gone", ".".join((*path, was.name)))
    assert now is not None
    told = then.get(met_by(now), was)  # none: it came later
    return None if told is None else _change(way, told.dataType, now.dataType, (*path, now.name))
