"""Columns and SQL expressions that the configuration names, resolved against a frame."""

import difflib
import json
import re
from collections.abc import Iterator, Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.bags import own_columns
from sessionizer.lib.config import MadeKey
from sessionizer.lib.config.key import parts_of
from sessionizer.lib.engine import VALUE, analysis, attempt, pads
from sessionizer.lib.errors import ConfigError, SourceMismatch

_RESHAPING = re.compile("window|_metadata", re.IGNORECASE)
# What Spark takes for the present when it becomes a time: in the text as it is written, and as it is analysed.
_WORDS = "(?:now|today|tomorrow|yesterday)"
_NOW = re.compile(rf"\b(?:date|timestamp\w*)\s*(?:'\s*{_WORDS}\s*'|\"\s*{_WORDS}\s*\")", re.IGNORECASE)
_ENCRYPTS = re.compile(r"`?\baes_encrypt\b`?\s*\(", re.IGNORECASE)
# Where its fifth argument is none, and its third not this mode, it takes a new vector each time.
_VECTOR, _NONE, _ECB = 4, {"''", '""'}, {"'ecb'", '"ecb"'}
_NAME = re.compile(r"[A-Za-z_]\w*")
# Parts of patterns: a text of SQL, and a comment.
TEXT = r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
COMMENT = r"--[^\n]*|/\*.*?\*/"
_QUOTED, _COMMENT = (re.compile(of, re.DOTALL) for of in (f"{TEXT}|`[^`]*`", COMMENT))
_ALL = re.compile(r"(?:^|[(,]|\bdistinct\b|(?:[a-z_]\w*|')\s*\.)\s*\*", re.IGNORECASE)  # else it multiplies
# Names that mean something where no column has them.
_LITERALS = (
    *("true", "false", "null", "current_date", "current_time", "current_timestamp", "localtimestamp"),
    *("user", "current_user", "session_user", "grouping__id"),
)
_CAST_NOW = re.compile(rf"\b(?:cast|date|timestamp|\w*to_\w+)\(\s*{_WORDS}\s*(?=[ ,)])", re.IGNORECASE)


def expression(text: str, frame: DataFrame, field: str) -> Column:
    """The column of this name, else the SQL expression; `field` names it in errors."""
    if text.lower() in (name.lower() for name in frame.columns):
        return C.col(text)
    try:
        parsed = F.expr(text)
        # Resolves the names now, where the error can be named; WHERE takes only what is computed row by row. A remote
        # Spark is asked only for columns that are not known.
        frame.where(parsed.isNotNull()).select(F.lit(1)).schema  # noqa: B018
    except ParseException as error:
        raise ConfigError(
            f"{field} is neither a column nor an SQL expression", value=text, remedy=first_line(error)
        ) from error
    except AnalysisException as error:
        raise SourceMismatch(
            f"{field} does not fit the source table",
            value=text,
            remedy=f"{first_line(error)} The table has: {', '.join(own_columns(frame.columns))}",
        ) from error
    _check_repeatable(parsed, text, frame, field)
    return parsed


def of_event(text: str, events: DataFrame, field: str) -> tuple[Column, Column | None]:
    """The same of an event: its value, null where that cannot be computed; and whether so, None: it always can."""
    parsed = expression(text, events, field)
    is_column = text.lower() in (name.lower() for name in events.columns)
    tried = None if is_column else attempt(parsed, events)
    return (parsed, None) if tried is None else (tried[VALUE], tried.isNull())


def with_keys(events: DataFrame, made: Sequence[MadeKey]) -> DataFrame:
    """The events with the key columns that the source has not; null where an expression has no value.

    In: columns of the source, and others. Out: the same, these, and for each a `__made_…` that tells it apart.
    Errors: SourceMismatch, ConfigError for what does not fit the source.
    """
    for problem in made_problems(made, events.schema):
        raise problem
    keys = {key.name: of_event(key.expr, events, key_field(key))[0] for key in made}
    marks = {f"{C.MADE}{key.name}": F.lit(None).cast("boolean") for key in made}
    return events.withColumns(keys | marks) if made else events


def key_field(key: MadeKey) -> str:
    """What errors call its expression."""
    return f"source.key.{key.name}"


def condition_of_event(text: str, events: DataFrame, field: str, example: str) -> tuple[Column, Column | None]:
    """The same of a condition. Errors: ConfigError, with the example, where it is neither true nor false."""
    condition, fails = of_event(text, events, field)
    kind = events.select(condition.alias("c")).schema["c"].dataType
    if not isinstance(kind, T.BooleanType):
        raise ConfigError(
            f"{field} must be true or false for each event, and this is {kind.simpleString().upper()}",
            value=text,
            remedy=f"write a comparison, such as {example}",
        )
    return condition, fails


def expression_of(text: str, names: DataFrame, field: str, hint: str = "") -> Column:
    """The same over names that are not those of the source: what does not fit them is an error of the config.

    names: of it only the schema counts; WHERE would find columns that a frame no longer has, so it gets another one.
    """
    try:
        return expression(text, names.sparkSession.createDataFrame([], names.schema), field)
    except SourceMismatch as error:
        said = first_line(cause) if isinstance(cause := error.__cause__, Exception) else error.rule
        raise ConfigError(
            f"{field} does not fit what it can use",
            value=text,
            remedy=f"{said} It can use: {', '.join(names.columns) or 'no names'}{hint}",
        ) from error


def _check_repeatable(parsed: Column, text: str, frame: DataFrame, field: str) -> None:
    """Raise a ConfigError unless the value follows from the row alone, and is the same whenever it is computed."""
    if _ALL.search(_COMMENT.sub(" ", _QUOTED.sub("''", text))):
        raise ConfigError(
            f"{field} must name the columns that it means: * takes in those that a run adds, too",
            value=text,
            remedy="name them, as in struct(user, at)",
        )
    found = analysis(parsed, frame)
    if found.elsewhere or (_RESHAPING.search(text) and found.reshapes()):
        raise ConfigError(
            f"{field} must be computed from each row by itself, as it is",
            value=text,
            remedy="write it without subqueries, window(…), session_window(…) and _metadata; "
            "join what is elsewhere into the source table",
        )
    tells_the_time = found.present or _NOW.search(text) or _CAST_NOW.search(found.text)
    if tells_the_time or not found.repeatable or _is_by_chance(text):
        raise ConfigError(
            f"{field} must give the same value whenever it is computed: a run that was cut off is computed again",
            value=text,
            remedy="write it without rand(), uuid(), now(), current_user(), 'today', aes_encrypt(…) without a vector "
            "and the like; sha2(…) hides a value and stays the same",
        )
    if padded := pads(parsed, frame):
        used = [name for name in padded if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)] or padded
        more = f", and so of {', '.join(used[1:])}" if used[1:] else ""
        raise ConfigError(
            f"{field} must not compare CHAR(n) as it is: Spark pads the other text, as long as it knows the length",
            value=text,
            remedy=f"write rtrim({used[0]}) = 'x'{more}",
        )


def _is_by_chance(text: str) -> bool:
    """Whether a call of `aes_encrypt` takes a vector of its own."""
    calls = [_arguments(text[found.end() :]) for found in _ENCRYPTS.finditer(text)]
    return any(_NONE.issuperset(call[_VECTOR : _VECTOR + 1]) and _ECB.isdisjoint(call[2:3]) for call in calls)


def _arguments(text: str) -> list[str]:
    """What stands up to the closing bracket, parted by its commas; in lower case."""
    found, depth, quote, before = [""], 0, "", ""
    for letter in text:
        if quote or letter in "'\"":
            quote = "" if letter == quote and before != "\\" else quote or letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if depth < 0:
                break
        elif letter == "," and not depth:
            found.append("")
            continue
        found[-1], before = found[-1] + letter, "" if before == "\\" else letter
    return [argument.strip().lower() for argument in found]


def require_columns(names: Sequence[str], frame: DataFrame, field: str, *, compared: bool = False) -> None:
    """Raise a SourceMismatch if the frame lacks one of these columns (named without case, as Spark does).

    compared: or if their values cannot be, as those of a MAP.
    """
    for problem in column_problems(names, frame.schema, field, compared=compared):
        raise problem


def column_problems(
    names: Sequence[str], columns: T.StructType, field: str, *, compared: bool = False
) -> Iterator[SourceMismatch]:
    """The same of columns alone: each problem by itself."""
    known = {f.name.lower(): f.dataType for f in columns.fields}
    for name in names:
        kind = known.get(name.lower())
        if compared and kind is not None and not is_ordered(kind):
            yield SourceMismatch(
                f"{field} must name columns whose values can be compared, and this is {kind.simpleString().upper()}",
                value=name,
                remedy="name another column, or ingest what matters of it as a column of its own",
            )
        if kind is None:
            rule = f"{field} names a column that the source table does not have"
            is_within = name.lower() in (path.lower() for path in fields_within(columns))
            lift = f"it lies within a column: make it one of its own, as `ingest --rename {name}=NEW` does"
            yield SourceMismatch(
                rule, value=name, remedy=lift if is_within else nearest(name, own_columns(columns.names))
            )


def made_problems(made: Sequence[MadeKey], columns: T.StructType) -> Iterator[SourceMismatch]:
    """What is wrong with key columns that the source has not, as far as names alone tell."""
    known = {name.lower() for name in columns.names}
    for key in made:
        if key.name.lower() in known:
            yield SourceMismatch(
                "source.key gives a column a name that the source table has already",
                value=key.name,
                remedy=f"give it another one: {{name: key_{key.name}, expr: {json.dumps(key.expr)}}}",
            )
        problem = name_problem(key.expr, columns, key_field(key))
        if problem is None and key.expr.lower() not in known and _is_missing(parts_of(key.expr), columns):
            there = [*own_columns(columns.names), *fields_within(columns)]
            problem = SourceMismatch(
                "source.key names a field that the source table does not have",
                value=key.expr,
                remedy=nearest(key.expr, there),
            )
        if problem is not None:
            yield problem


def _is_missing(parts: Sequence[str], kind: T.DataType) -> bool:
    """Whether there is surely no field at the end of this way: of a MAP or a VARIANT nobody knows."""
    if not parts or not isinstance(kind, T.StructType):
        return bool(parts) and isinstance(kind, T.AtomicType) and not isinstance(kind, T.VariantType)
    first, *others = parts
    found = next((f.dataType for f in kind.fields if f.name.lower() == first.lower()), None)
    return found is None or _is_missing(others, found)


def fields_within(columns: T.StructType) -> dict[str, tuple[str, ...]]:
    """The fields within structs, `user.id`, and the way to each."""
    return {".".join(way): way for way in _ways(columns) if len(way) > 1}


def _ways(columns: T.StructType) -> Iterator[tuple[str, ...]]:
    for field in columns.fields:
        yield (field.name,)
        if isinstance(field.dataType, T.StructType):
            yield from ((field.name, *way) for way in _ways(field.dataType))


def name_problem(text: str, columns: T.StructType, field: str) -> SourceMismatch | None:
    """What is wrong with an expression that is a name alone, if the source has nothing of this name."""
    known = (*(name.lower() for name in columns.names), *_LITERALS)
    if not _NAME.fullmatch(text) or text.lower() in known:
        return None
    return SourceMismatch(
        f"{field} does not fit the source table", value=text, remedy=nearest(text, own_columns(columns.names))
    )


def closest(name: str, known: Sequence[str]) -> str | None:
    """Which of these names may be meant."""
    near = difflib.get_close_matches(name.lower(), [other.lower() for other in known], n=1)
    return next((other for other in known if other.lower() in near), None)


def nearest(name: str, known: Sequence[str], whose: str = "the table") -> str:
    """Which of these names may be meant, and all that there are."""
    there = f"{whose} has: {', '.join(known) or 'no columns'}"
    meant = closest(name, known)
    return there if meant is None else f"did you mean {meant}? {there[0].upper()}{there[1:]}"


def is_ordered(kind: T.DataType) -> bool:
    """Whether values of the type can be compared."""
    match kind:
        case T.StructType():
            return all(is_ordered(f.dataType) for f in kind.fields)
        case T.ArrayType():
            return is_ordered(kind.elementType)
    return not isinstance(kind, T.MapType | T.VariantType | T.CalendarIntervalType)


def is_collated(kind: T.DataType) -> bool:
    """Whether it holds texts of which several are equal."""
    match kind:
        case T.StringType():
            return kind != T.StringType()
        case T.StructType():
            return any(is_collated(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return is_collated(kind.elementType)
    return False


def first_line(error: Exception) -> str:
    """What Spark says first; the rest is plan and stack."""
    return str(error).strip().splitlines()[0]
