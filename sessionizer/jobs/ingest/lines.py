"""Lines of text as rows: of CSV, of JSON, or neither. A line, or a CSV record, is one row: each is accounted for."""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import UNREADABLE
from sessionizer.lib.canonical import canonical_json

LINE = "__line"  # the raw text
TORN = "__torn"  # whether no row could be made of it
TORN_LINE = "__torn_line"  # the raw text where it is torn, else null

_CORRUPT = "__corrupt"
_ROW = "__row"


def text_lines(text: DataFrame) -> DataFrame:
    """The lines that are not blank, as valid UTF-8 and without a carriage return at the end.

    In: value STRING, any bytes. Out: `__line` STRING, `__torn` BOOLEAN (false).
    """
    line = F.make_valid_utf8(F.regexp_replace("value", r"\r$", ""))
    lines = text.select(line.alias(LINE), F.lit(False).alias(TORN))
    return lines.where(F.trim(C.col(LINE)) != "")


def parse_csv(lines: DataFrame, names: tuple[str, ...], sep: str, quote: str) -> DataFrame:
    """The fields of each line as text; torn where there are more or fewer, or a quoted field does not end.

    A quote within a quoted field is doubled (RFC 4180); an empty field is null; no quote: none is special.
    In: `__line`, `__torn`. Out: the same and the named columns, STRING.
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "sep": sep,
        "quote": quote,
        "escape": quote,
        "maxColumns": str(max(20480, len(names) + 1)),
    }
    schema = ", ".join(f"{C.quoted(name)} STRING" for name in (*names, _CORRUPT))
    torn = C.col(TORN) | C.col(_ROW)[_CORRUPT].isNotNull()
    if quote:
        torn = torn | C.col(LINE).rlike(ends_in_quotes(sep, quote))
    rows = lines.withColumn(_ROW, F.from_csv(C.col(LINE), schema, options))
    return rows.select(C.col(LINE), torn.alias(TORN), *_fields(names))


def with_newlines(parsed: DataFrame, mark: str) -> DataFrame:
    """The same text columns, with the newlines that records travelled without: `mark` stood for them."""
    restored = [
        F.translate(C.col(f.name), mark, "\n").alias(f.name) if isinstance(f.dataType, T.StringType) else C.col(f.name)
        for f in parsed.schema.fields
    ]
    return parsed.select(*restored)


def parse_json(lines: DataFrame, schema: T.StructType, doubles: tuple[str, ...] = ()) -> DataFrame:
    """The members of the one JSON object of each line; torn where there is no object, more than one, or a misfit.

    In: `__line`, `__torn`. Out: the same and the columns of the schema. A line with a member of `doubles` is torn: its
    name differs only in capitals from a column's.
    """
    read = T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    rows = lines.withColumn(_ROW, F.from_json(C.col(LINE), read, options))
    torn = C.col(TORN) | C.col(_ROW)[_CORRUPT].isNotNull() | ~_is_one_object(C.col(LINE))
    if doubles:
        has_double = F.arrays_overlap(F.json_object_keys(C.col(LINE)), F.array(*map(F.lit, doubles)))
        torn = torn | F.coalesce(has_double, F.lit(False))
    return rows.select(C.col(LINE), torn.alias(TORN), *_fields(tuple(schema.fieldNames())))


def unreadable_rows(torn: DataFrame, file: str, run_id: str, schema: T.StructType) -> DataFrame:
    """Torn lines as rows of `rejected_events`, whose schema this is; columns that are not known are null.

    In: `__torn_line` STRING, null for rows that could be read. The event is {"file": …, "line": …}; `ordinal`
    counts identical ones.
    """
    lines = torn.where(C.col(TORN_LINE).isNotNull()).select(F.lit(file).alias("file"), C.col(TORN_LINE).alias("line"))
    hashed = lines.select(canonical_json(lines.schema).alias(C.EVENT)).withColumn(
        C.EVENT_HASH, F.sha2(C.col(C.EVENT), 256)
    )
    identical = f"row_number() OVER (PARTITION BY {C.EVENT_HASH} ORDER BY {C.EVENT_HASH})"
    known = {
        C.REASON: F.lit(UNREADABLE),
        C.EVENT: C.col(C.EVENT),
        C.EVENT_HASH: C.col(C.EVENT_HASH),
        C.ORDINAL: F.expr(identical),
        C.RUN_ID: F.lit(run_id),
    }
    return hashed.select(*(known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in schema.fields))


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
