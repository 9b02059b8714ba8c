"""`source.key`: columns of the source, fields within them, and SQL over one event that makes a column."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from sessionizer.lib.columns import quoted
from sessionizer.lib.config.types import Section, Text

_QUOTED = r"`(?:[^`]|``)+`"
_PART = rf"(?:{_QUOTED}|\w+)"
_PATH = re.compile(rf"{_PART}(?:\.{_PART})+")


class MadeKey(Section):
    """A key column that the source has not: SQL makes it of each event."""

    name: Text = Field(description="Name of the key column in all tables")
    expr: Text = Field(description="Column, field within one (user.id) or SQL expression over an event")


KeyEntry = Annotated[
    Annotated[Text, Tag("(column)")] | Annotated[MadeKey, Tag("(expression)")],
    Discriminator(lambda value: "(expression)" if isinstance(value, Mapping | MadeKey) else "(column)"),
]


def parts_of(text: str) -> tuple[str, ...]:
    """The names on the way to a field within a column, `user.id`; none: it is no such way."""
    return tuple(map(_unquoted, re.findall(_PART, text))) if _PATH.fullmatch(text) else ()


def is_named(text: str) -> bool:
    """Whether this names a column, or a field within one, and computes nothing."""
    return re.fullmatch(_PART, text) is not None or _PATH.fullmatch(text) is not None


def key_of(entry: str | MadeKey) -> str | MadeKey:
    """The name of a column of the source, or what makes one: a field within a column is called by its last part."""
    if isinstance(entry, MadeKey):
        return entry
    if parts := parts_of(entry):
        return MadeKey(name=parts[-1], expr=entry)
    return _unquoted(entry)


def name_of(entry: str | MadeKey) -> str:
    """The name of the key column."""
    return key.name if isinstance(key := key_of(entry), MadeKey) else key


def of_source(entry: str | MadeKey, columns: Sequence[str]) -> str | MadeKey:
    """The entry for a source of these columns: one that is called `user.id` as a whole comes before a field."""
    if isinstance(entry, str) and parts_of(entry) and entry.lower() in (name.lower() for name in columns):
        return quoted(entry)
    return entry


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if re.fullmatch(_QUOTED, name) else name


def key_summary(names: Sequence[str], made: Sequence[MadeKey]) -> list[object]:
    """The key as a rule tells it: names, and what makes those that the source has not."""
    expressions = {key.name: key.model_dump() for key in made}
    return [expressions.get(name, name) for name in names]
