"""Types of config fields: how their text is read, what it may be, and how a JSON Schema describes it."""

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from sessionizer.lib.durations import DAY, PATTERN, format_duration, parse_duration
from sessionizer.lib.errors import printable

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: C:/ is a drive
_PART = r"(?:`[^`]+`|[0-9]*[A-Za-z_][A-Za-z0-9_]*)"
LONGEST = 10_000_000 * DAY
DEFAULT_CATALOG = "spark_catalog."  # Spark's own; names without a catalog are of it
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{1,2}}")


def plain_name(name: str, what: str, example: str) -> str:
    """The name, which SQL takes without quotes. what: it is, as in "the name of a column, "."""
    if not re.fullmatch(r"[^\W\d]\w*", name) or name.startswith("__"):
        raise broken_rule(f"must be {what}of letters, digits and _, and not begin with __", f"Write {example}", name)
    return name


def broken_rule(rule: str, remedy: str, value: object = None) -> PydanticCustomError:
    """Make an error whose parts stay apart for the loader to report; no value: it shows the field's own."""
    return PydanticCustomError("broken_rule", "{rule}", {"rule": rule, "remedy": remedy, "value": value})


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that stands there a second time, in whatever case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def location_kind(text: str) -> Literal["path", "url", "name"]:
    """Tell what a table's location is.

    `s3a://lake/events` is a URL, `warehouse/events`, `./events` and `events` are paths, `db.events` and
    `catalog.db.events` are catalog names.
    """
    if _URL.match(text):
        return "url"
    return "path" if "/" in text or "." not in text or text.startswith(".") else "name"


def _located(text: str, info: ValidationInfo) -> str:
    kind = location_kind(text)
    if printable(text) != text:
        raise broken_rule("must not hold control characters", "Write plain text")
    if kind == "name" and not _NAME.fullmatch(text):
        raise broken_rule(
            "must be a path, a URL, db.table or catalog.db.table",
            "Write ./ before a path with dots, and in backticks a part of a name with other than letters, digits and _",
        )
    if (kind == "url" and not urlsplit(text).path.strip("/")) or not text.strip("/"):
        raise broken_rule("must be a folder, not a whole bucket or disk", "Add a folder for the table")
    if kind == "path":
        text = _file(text, info)
    if kind != "name" and "`" in text:
        raise broken_rule("must not hold a backtick: Delta makes no table there", "Name another folder", text)
    return text


def database_of(name: str) -> str:
    """The database of a catalog name, with its catalog where that is said."""
    return ".".join(re.findall(_PART, name)[:-1])


def beside(table: str, name: str) -> str:
    """Locate a table of this name in the same folder, or in the same catalog database."""
    if location_kind(table) == "name":
        return f"{database_of(table)}.{name}"
    return os.path.join(os.path.dirname(table.rstrip("/")), name)


def overlap(one: str, other: str) -> bool:
    """Tell whether two locations are the same, or one lies inside the other: VACUUM would empty the inner."""
    places = []
    for location in (one, other):
        if location_kind(location) == "name":
            places.append(location.replace("`", "").lower().removeprefix(DEFAULT_CATALOG) + "/")
        else:
            places.append(re.sub(r"^file:/+", "/", location).rstrip("/") + "/")
    return places[0].startswith(places[1]) or places[1].startswith(places[0])


def _instant(value: object) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise broken_rule(
            "must be an ISO 8601 date or time", "Write it like 2026-01-31T08:00:00Z; without a zone it is UTC"
        ) from None


def _spark_text(value: object) -> str:
    if isinstance(value, str | int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise broken_rule("must be text, a whole number, true or false", "Put the value in quotes")


def _file(text: str, info: ValidationInfo) -> str:
    return os.path.normpath(os.path.join((info.context or {}).get("folder", ""), os.path.expanduser(text)))


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Location = Annotated[Text, AfterValidator(_located)]
File = Annotated[Text, AfterValidator(_file)]
Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["30s", "2h45m"]}),
]
Instant = Annotated[
    datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "examples": ["2026-01-31T08:00:00Z"]})
]
Count = Annotated[int, Field(ge=1, strict=True)]
Length = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]  # of an array
SparkValue = Annotated[str, BeforeValidator(_spark_text), WithJsonSchema({"type": ["string", "integer", "boolean"]})]


def _not_negative(microseconds: int) -> int:
    if microseconds < 0:
        raise broken_rule("must not be negative", "Use 0s or longer")
    if microseconds > LONGEST:  # times that are added to such a one would overflow
        raise broken_rule("must be at most 10000000d", "Use a shorter one: no times are so far apart")
    return microseconds


def _positive(microseconds: int) -> int:
    if microseconds <= 0:
        raise broken_rule("must be longer than 0s", "Use a duration such as 30m")
    return _not_negative(microseconds)


Wait = Annotated[Duration, AfterValidator(_not_negative)]
Gap = Annotated[Duration, AfterValidator(_positive)]


class Section(BaseModel):
    """A mapping in the config file: frozen, and no keys but the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StartVersion(Section):
    """Begin at a version of the source table."""

    version: int = Field(ge=0, strict=True, description="The first version of the source that is read")


class StartTimestamp(Section):
    """Begin at an instant of the source table's history."""

    timestamp: Instant = Field(description="Commits of the source from this instant on are read; UTC without a zone")


def _start_form(value: object) -> str | None:
    if isinstance(value, StartVersion | StartTimestamp):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return f"({next(iter(value))})" if set(value) in ({"version"}, {"timestamp"}) else None
    return "(word)" if value in ("earliest", "latest") else None


# The parentheses keep the tags, which pydantic puts into an error's path, apart from names of fields.
Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("(word)")]
    | Annotated[StartVersion, Tag("(version)")]
    | Annotated[StartTimestamp, Tag("(timestamp)")],
    Discriminator(
        _start_form,
        custom_error_type="start_form",
        custom_error_message="must be earliest, latest, {version: N} or {timestamp: T}",
    ),
]


class DynamicGap(Section):
    """A gap of each event's own."""

    expr: Text = Field(description="SQL expression over an event that gives an INTERVAL, or text that is one")
    at_least: Gap | None = Field(None, description="Shorter gaps are raised to this, which also makes runs quicker")


SessionGap = Annotated[
    Annotated[Gap, Tag("(duration)")] | Annotated[DynamicGap, Tag("(expression)")],
    Discriminator(lambda value: "(expression)" if isinstance(value, Mapping | DynamicGap) else "(duration)"),
]
Scope = Annotated[
    Annotated[Literal["table", "key"], Tag("(word)")] | Annotated[tuple[Text, ...], Tag("(columns)")],
    Discriminator(lambda value: "(word)" if isinstance(value, str) else "(columns)"),
]
