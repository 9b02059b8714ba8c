"""Lines of text as rows: of CSV, of JSON, or neither. A line, or a CSV record, is one row: each is accounted for."""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import UNREADABLE
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.errors import explain

LINE = "__line"  # the raw text
NUMBER = "__number"  # where it is: a partition, and its place in there; below 0: before all others
TORN = "__torn"  # why no row could be made of it, as `torn_by` tells; null: one was

NOT_UTF8 = "not UTF-8"
NOT_ONE_OBJECT = "not one JSON object"
NAMED_TWICE = "a name that is there twice"
HALF = "half of a character"
# In JSON an escape of the one half without that of the other.
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALVES = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
_STRICTLY = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_CORRUPT = "__corrupt"
_ROW = "__row"
_IN_PARTITION = 33  # bits, as Spark documents of monotonically_increasing_id


def torn_by(reason: str, column: str | None = None, value: Column | None = None) -> Column:
    """Why a line is torn: by what, and where a column is to blame, which and by what value."""
    said = F.lit(None) if value is None else value
    parts = {"column": F.lit(column), "reason": F.lit(reason), "value": said}
    return F.struct(*[part.cast("string").alias(name) for name, part in parts.items()])


def text_lines(text: DataFrame) -> DataFrame:
    """The lines that are not blank, as valid UTF-8 and without a carriage return at the end.

    In: value STRING, any bytes. Out: `__line` STRING, `__number` BIGINT, `__torn`: of those that are not UTF-8, in
    which two keys could become the same.
    """
    line = F.make_valid_utf8(F.regexp_replace("value", r"\r$", ""))
    torn = F.when(~F.is_valid_utf8("value"), torn_by(NOT_UTF8)).alias(TORN)
    lines = text.select(line.alias(LINE), F.monotonically_increasing_id().alias(NUMBER), torn)
    return lines.where(F.trim(C.col(LINE)) != "")


def not_torn() -> Column:
    """`__torn` of a line that nothing is known against."""
    return F.when(F.lit(False), torn_by("")).alias(TORN)


def places(rows: DataFrame, before: int) -> Column:
    """What number `__number` stands for. rows: all, blank ones too, as they were read; before: lines ahead of them."""
    part = F.shiftright(F.monotonically_increasing_id(), _IN_PARTITION)
    counted = {row[0]: row[1] for row in rows.select(part.alias(_ROW)).groupBy(_ROW).count().collect()}
    ahead = [sum(counted.get(p, 0) for p in range(n)) for n in range(max(counted, default=0) + 1)]
    own = F.shiftright(C.col(NUMBER), _IN_PARTITION).cast("int")
    within = C.col(NUMBER).bitwiseAND(F.lit((1 << _IN_PARTITION) - 1)) + 1
    return F.lit(before) + F.when(own < 0, 0).otherwise(F.get(F.array(*map(F.lit, ahead)), own) + within)


def parse_csv(lines: DataFrame, names: tuple[str, ...], sep: str, quote: str) -> DataFrame:
    """The fields of each line as text; torn where there are more or fewer, or a quoted field does not end.

    A quote within a quoted field is doubled (RFC 4180); an empty field is null; no quote: none is special.
    In: `__line`, `__number`, `__torn`. Out: the same and the named columns, STRING.
    """
    special = quote or "\uffff"  # which is no letter; of nothing, here and below, Spark makes NUL, which texts may have
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "sep": sep,
        "quote": special,
        "escape": special,
        "charToEscapeQuoteEscaping": special,
        "maxColumns": str(max(20480, len(names) + 1)),
    }
    schema = ", ".join(f"{C.quoted(name)} STRING" for name in (*names, _CORRUPT))
    count = f"not {len(names)} fields"
    torn = [C.col(TORN), F.when(C.col(_ROW)[_CORRUPT].isNotNull(), torn_by(count))]
    if quote:
        torn.insert(1, F.when(C.col(LINE).rlike(ends_in_quotes(sep, quote)), torn_by("a quote that nothing closes")))
    rows = lines.withColumn(_ROW, F.from_csv(C.col(LINE), schema, options))
    return rows.select(C.col(LINE), C.col(NUMBER), F.coalesce(*torn).alias(TORN), *_fields(names))


def with_newlines(parsed: DataFrame, mark: str) -> DataFrame:
    """The same text columns, with the newlines that records travelled without: `mark` stood for them."""
    restored = [
        F.translate(C.col(f.name), mark, "\n").alias(f.name) if isinstance(f.dataType, T.StringType) else C.col(f.name)
        for f in parsed.schema.fields
    ]
    return parsed.select(*restored)


def parse_json(
    lines: DataFrame, schema: T.StructType, doubles: tuple[str, ...] = (), once: Column | None = None
) -> DataFrame:
    """The members of the one JSON object of each line; torn where there is no object, more than one, or a misfit.

    In: `__line`, `__number`, `__torn`. Out: the same and the columns of the schema. A line with a member of `doubles`
    is torn: its name differs only in capitals from a column's. once: which lines have no name twice; None: none has.
    """
    rows = lines.withColumn(_ROW, _read_json(C.col(LINE), schema.fields))
    corrupt = C.col(_ROW)[_CORRUPT].isNotNull()
    torn = [
        C.col(TORN),
        F.when(~_is_one_object(C.col(LINE)), torn_by(NOT_ONE_OBJECT)),
        F.when(corrupt, F.coalesce(*_misfits(C.col(LINE), schema), torn_by(NOT_ONE_OBJECT))),
    ]
    escapes = F.replace(C.col(LINE), F.lit("\\\\"), F.lit("_"))  # without backslashes that stand for themselves
    torn.append(F.when(C.col(LINE).contains("\\u") & escapes.rlike(_HALVES), torn_by(HALF)))
    if once is not None:
        torn.append(F.when(~once, torn_by(NAMED_TWICE)))
    if doubles:
        has_double = F.arrays_overlap(F.json_object_keys(C.col(LINE)), F.array(*map(F.lit, doubles)))
        torn.append(F.when(has_double, torn_by("a name that differs from a column's only in capitals")))
    torn_or_not = F.coalesce(*torn).alias(TORN)
    return rows.select(C.col(LINE), C.col(NUMBER), torn_or_not, *_fields(tuple(schema.fieldNames())))


def names_once(text: Column) -> Column:
    """Whether no object of a text of JSON has two members of one name, of which Spark would take the last.

    Only of what is JSON to the letter, without `NaN` and the like, can that be told.
    """
    is_strict = F.from_json(text, "MAP<STRING, STRING>", _STRICTLY).isNotNull()
    return F.try_parse_json(text).isNotNull() | ~is_strict


def _read_json(text: Column, fields: Sequence[T.StructField]) -> Column:
    read = T.StructType([*fields, T.StructField(_CORRUPT, T.StringType())])
    return F.from_json(text, read, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})


def _misfits(line: Column, schema: T.StructType) -> list[Column]:
    """For each column that is not read as text: why the line is torn, if the value of this column tears it."""
    members = F.from_json(line, "MAP<STRING, STRING>")
    return [
        F.when(
            _read_json(line, [field])[_CORRUPT].isNotNull(),
            torn_by(f"no {field.dataType.simpleString().upper()}", field.name, members[field.name]),
        )
        for field in schema.fields
        if not isinstance(field.dataType, T.StringType)
    ]


def unreadable_rows(  # noqa: PLR0913
    torn: DataFrame,
    number: Column,
    file: str,
    run_id: str,
    schema: T.StructType,
    *,
    source: str = "",
    hash_only: bool = False,
) -> DataFrame:
    """Torn lines as rows of `rejected_events`, whose schema this is; columns that are not known are null.

    In: `__torn` as `conform` leaves it, null for rows that could be read. number: of the line, of `NUMBER`. source: its
    name, where there are several. hash_only: without the event.
    The event is {"column": …, "file": …, "line": …, "number": …, "reason": …, "value": …}, of which column and value
    are there if one column is to blame.
    """
    lines = told(torn, number).withColumn("file", F.lit(file))
    hashed = lines.select(canonical_json(lines.schema).alias(C.EVENT)).withColumn(
        C.EVENT_HASH, F.sha2(C.col(C.EVENT), 256)
    )
    known = {
        C.REASON: F.lit(UNREADABLE),
        C.EVENT: F.lit(None) if hash_only else C.col(C.EVENT),
        C.EVENT_HASH: C.col(C.EVENT_HASH),
        C.ORDINAL: F.lit(1),
        C.RUN_ID: F.lit(run_id),
        **({C.SOURCE: F.lit(source)} if source else {}),
    }
    return hashed.select(*(known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in schema.fields))


def told(torn: DataFrame, number: Column) -> DataFrame:
    """What is known of torn lines: line, number, column, reason, value."""
    lines = torn.where(C.col(TORN).isNotNull()).select(f"{TORN}.*")
    return lines.select(C.col(LINE).alias("line"), number.alias("number"), f"{TORN}.*")


def examples(torn: DataFrame, number: Column, most: int) -> list[str]:
    """What is wrong with the first lines: line 3: amount is no DOUBLE: got 'x'."""
    rows = told(torn, number).drop("line").orderBy("number").limit(most).collect()
    return [_said(*row) for row in rows]


def _said(number: int, column: str | None, reason: str, value: str | None) -> str:
    what = reason if column is None else f"{column} is {reason}"
    return f"line {number}: {explain(what, value)}".rstrip(".")


def _is_one_object(line: Column) -> Column:
    """Spark reads one value and ignores what follows it; in an array with another object, nothing can follow."""
    pair = F.from_json(F.concat(F.lit("["), line, F.lit(",{}]")), T.ArrayType(T.StructType([])))
    return F.coalesce(F.size(pair) == 2, F.lit(False))


def ends_in_quotes(sep: str, quote: str) -> str:
    """Matches a line whose last field opens a quote and does not close it, which Spark would take as it is."""
    q, s = re.escape(quote), re.escape(sep)
    inside = f"{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+"
    field = f"(?:{inside}{q}[^{s}]*+|[^{q}{s}][^{s}]*+)?+{s}"
    return f"(?s)^(?:{field})*+{inside}$"


def _fields(names: tuple[str, ...]) -> list[Column]:
    return [C.col(_ROW)[name].alias(name) for name in names]
