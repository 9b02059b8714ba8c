"""Reading a part of a file into rows that fit the source table."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.access_log import access_log_schema, parse_access_log
from sessionizer.jobs.ingest.file_columns import FileColumn, conform, declare, declared_types, fit, of_a_type, read_as
from sessionizer.jobs.ingest.files import Mark, copy_part, join_records, line_at, lines_before
from sessionizer.jobs.ingest.lines import (
    HALF,
    LINE,
    NUMBER,
    TORN,
    not_torn,
    parse_csv,
    parse_json,
    places,
    text_lines,
    torn_by,
    with_newlines,
)
from sessionizer.jobs.ingest.names import (
    check_arrival,
    csv_header,
    one_of_each,
    renamed,
    require_used,
    time_column,
    used_in,
)
from sessionizer.jobs.ingest.objects import as_known, inferred, require_objects, with_objects
from sessionizer.jobs.ingest.time_formats import ISO, PER_SECOND, check_time_type, parquet_rows, parse_time
from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.lib.expressions import fields_within, first_line
from sessionizer.tables.delta.settings import having

Format = Literal["csv", "json", "parquet", "access-log"]
CASE_SENSITIVE = {"spark.sql.caseSensitive": "true"}  # off, names that differ only in capitals would stop Spark
LINE_FORMATS = ("csv", "json", "access-log")


@dataclass(frozen=True)
class IngestOptions:
    """How to read files.

    time_format: iso, epoch_s, epoch_ms or a datetime pattern of Spark, of the config's event_time column.
    csv_quote: "" where quotes mean nothing. csv_header: without one the names come from `schema`.
    rename: old name to new. schema: types of some columns under their names in the file ("amount double").
    add_columns: new columns in a file extend the table; else they are an error. source: of several the one they are of.
    """

    format: Format
    time_format: str = ISO
    csv_sep: str = ","
    csv_quote: str = '"'
    csv_header: bool = True
    rename: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    add_columns: bool = False
    source: str | None = None

    def __post_init__(self) -> None:
        if len(self.csv_sep) != 1 or self.csv_sep in "\r\n":
            raise UsageError("csv_sep must be one character", value=self.csv_sep)
        if len(self.csv_quote) > 1 or self.csv_quote == self.csv_sep:
            raise UsageError("csv_quote must be one character other than csv_sep, or empty", value=self.csv_quote)
        if self.format == "csv" and not self.csv_header and not self.schema:
            raise UsageError(
                "a csv file without a header needs a schema", remedy="name all its columns: --schema 'a string, …'"
            )


@dataclass(frozen=True)
class Part:
    """The bytes of a file from `start` to the end of a mark; `bom`: the length of its byte order mark."""

    file: Path
    start: int
    end: Mark
    bom: int


@dataclass(frozen=True)
class Rows:
    """What a part of a file holds.

    rows: under the names and types of the table, and `__torn`. raw: the same as they were read, blank lines, too.
    begin: where in the file the first line is that is read as such; 0 in Parquet. broken: what there is of the line
    before that.
    """

    rows: DataFrame
    raw: DataFrame
    file: Path
    begin: int = 0
    broken: bytes = b""

    def number(self) -> Column:
        """What number `__number` stands for, of a line or, in Parquet, of a row; from 1."""
        unfinished = self.broken != b"" and not self.broken.endswith(b"\n")
        return places(self.raw, lines_before(self.file, self.begin) + unfinished)


class FileReader:
    """Reads files of one format. Errors: UsageError where the options do not make sense."""

    def __init__(self, spark: SparkSession, config: Config, options: IngestOptions) -> None:
        self.spark = spark
        self.source = config.of(options.source or "")
        self.used = " ".join(used_in(config, self.source))
        self.options = options
        self.declared = declared_types(options.schema or "")
        self._check_time_format()

    @contextmanager
    def read(self, part: Part, table: T.StructType | None) -> Iterator[Rows | None]:
        """The rows of a part; None if all is blank.

        table: the columns of the source table, None where it is not there yet.
        Errors: SourceError where the file does not fit.
        """
        names, rows_begin = self._header(part)
        begin = max(part.start, rows_begin)
        broken = b""
        if part.start and self.options.format in LINE_FORMATS:
            broken = line_at(part.file, begin - 1, part.end.size)[1:]  # a newline, unless a line was taken unfinished
        with TemporaryDirectory(prefix="sessionizer-", ignore_cleanup_errors=True) as folder, spark_errors(part.file):
            copy, begin = Path(folder) / "rows", begin + len(broken)
            has_rows = copy_part(part.file, copy, begin, part.end)
            if not has_rows and not broken.strip():
                yield None
                return
            if self.options.format == "parquet":
                with parquet_rows(self.spark, copy, part.file) as raw:
                    line = [canonical_json(raw.schema).alias(LINE), F.monotonically_increasing_id().alias(NUMBER)]
                    parsed = raw.select(*line, not_torn(), *C.cols(tuple(raw.columns)))
                    columns = self._columns(raw.schema, part, table)
                    yield Rows(conform(parsed, columns, self.options.time_format), raw, part.file)
                return
            in_quotes = self.options.format == "csv" and self.options.csv_quote != ""
            newline = self._joined(copy, len(names)) if in_quotes else None
            raw = self.spark.read.option("lineSep", "\n").text(copy.as_uri())
            lines = text_lines(raw)
            if broken.strip():
                lines = lines.unionByName(self._literal(broken, torn_by("the rest of a line that was taken for whole")))
            parsed, columns = self._text(lines, copy, names, part, table)
            parsed = with_newlines(parsed, newline) if newline else parsed
            yield Rows(conform(parsed, columns, self.options.time_format), raw, part.file, begin, broken)

    def is_unfinished(self, line: bytes) -> bool:
        """Whether a last line without a newline looks like the beginning of one that is still being written."""
        if not line.strip():
            return False
        if self.options.format == "access-log" and not line.rstrip().endswith(b'"'):
            return True  # a number whose digits may go on, and whatever comes behind it
        lines = self._literal(line)
        is_json = self.options.format == "json"
        parsed = parse_json(lines, T.StructType([])) if is_json else parse_access_log(lines, C.EVENT_TIME)
        return not parsed.where(C.col(TORN)["reason"] != HALF).isEmpty()  # which no end makes whole

    def _text(
        self, lines: DataFrame, copy: Path, names: tuple[str, ...], part: Part, table: T.StructType | None
    ) -> tuple[DataFrame, list[FileColumn]]:
        if self.options.format == "csv":
            texts = T.StructType([T.StructField(name, T.StringType()) for name in names])
            columns = self._columns(texts, part, table)
            return parse_csv(lines, names, self.options.csv_sep, self.options.csv_quote), columns
        if self.options.format == "access-log":
            time = (None if self.source.arrival else time_column(self.source.event_time, ())) or C.EVENT_TIME
            return parse_access_log(lines, time), self._columns(access_log_schema(time), part, table)
        with having(self.spark, CASE_SENSITIVE):
            found, once = inferred(lines, copy)
            # Names as the table, the options and the config write them.
            wanted = [*self.options.rename, *self.declared.fieldNames(), *self.source.own_key, self.source.event_time]
            found, doubles = one_of_each(found, [*(table.fieldNames() if table else ()), *wanted])
            found = self._with_objects(found, lines, copy, table)
        columns = self._columns(found, part, table)
        fields = T.StructType([T.StructField(c.found, c.json_type) for c in columns if not c.way])
        return parse_json(lines, fields, doubles, once), columns

    def _with_objects(
        self, found: T.StructType, lines: DataFrame, copy: Path, table: T.StructType | None
    ) -> T.StructType:
        known = as_known(found, table, self.options.rename) if table else found
        sure = {f.name.lower() for f in known.fields if isinstance(f.dataType, T.StructType)}
        sure |= {name.lower() for name in self.declared.fieldNames()}
        there = {name.lower() for name in (table.fieldNames() if table else ())}
        sure |= {n.lower() for n in found.fieldNames() if self.options.rename.get(n, n).lower() in there}
        folder = copy.with_name("objects")
        objects = with_objects(found, lines, folder, list(self.options.rename), sure)
        return one_of_each(objects, ())[0]

    def _columns(self, found: T.StructType, part: Part, table: T.StructType | None) -> list[FileColumn]:
        is_json = self.options.format == "json"
        declared = declare(found, self.declared, optional=is_json)
        known = table.fieldNames() if is_json and table is not None else ()
        if is_json:
            declared = as_known(declared, table, self.options.rename) if table else declared
            require_objects(declared, self.declared, found, self.options.rename, known)
        within = fields_within(declared)
        names, lifted = renamed(declared.fieldNames(), within, self.options.rename, known)
        # What a file has grown by may happen to lack an optional member; its beginning had what is needed.
        if not (is_json and part.start > 0):
            require_used([*names, *lifted.values()], within, self.source, str(part.file))
        time = time_column(self.source.event_time, [*names, *lifted.values()]) if self.source.arrival is None else None
        check_arrival(self.source, [*names, *lifted.values()], table, add_columns=self.options.add_columns)
        types = {f.name: f.dataType for f in found.fields}
        columns = []
        for given, name in zip(declared.fields, names, strict=True):
            kind = self._type(name, time, given.dataType, types.get(given.name, T.StringType()))
            read = read_as(given.dataType, types.get(given.name, given.dataType))
            as_found = None if read == given.dataType else read
            columns.append(FileColumn(given.name, name, kind, name == time, as_found))
        for path, name in lifted.items():
            inner = reduce(_field_type, within[path], cast(T.DataType, declared))
            kind = self._type(name, time, inner, inner)
            columns.append(FileColumn(path, name, kind, name == time, way=within[path]))
        typed = of_a_type(columns, table, self.used)
        return typed if table is None else fit(typed, table, self.declared, add_columns=self.options.add_columns)

    def _type(self, name: str, time: str | None, declared: T.DataType, found: T.DataType) -> T.DataType:
        """The type that a column is to have."""
        if name != time:
            return declared
        check_time_type(name, found, self.options.time_format)
        return T.TimestampType()

    def _joined(self, copy: Path, columns: int) -> str | None:
        return join_records(copy, columns, self.options.csv_sep, self.options.csv_quote)

    def _header(self, part: Part) -> tuple[tuple[str, ...], int]:
        """The column names of a csv file, and where its rows begin."""
        if self.options.format != "csv" or not self.options.csv_header:
            return tuple(self.declared.fieldNames()), part.bom
        return csv_header(part.file, part.bom, part.end.size, self.options.csv_sep, self.options.csv_quote)

    def _literal(self, line: bytes, torn: Column | None = None) -> DataFrame:
        text = F.lit(line.decode(errors="replace").rstrip("\r\n"))
        why = not_torn() if torn is None else torn.alias(TORN)
        return self.spark.range(1).select(text.alias(LINE), F.lit(-1).cast("bigint").alias(NUMBER), why)

    def _check_time_format(self) -> None:
        if self.options.time_format in (ISO, *PER_SECOND):
            return
        try:
            parsed = parse_time(F.lit("2000-01-01"), T.StringType(), self.options.time_format)
            self.spark.range(1).select(parsed).collect()
        except (PySparkException, Py4JJavaError) as error:
            raise UsageError(
                "time_format must be iso, epoch_s, epoch_ms or a datetime pattern of Spark",
                value=self.options.time_format,
                remedy="write a pattern like dd.MM.yyyy HH:mm:ss",
            ) from error


def _field_type(struct: T.DataType, name: str) -> T.DataType:
    return cast(T.StructType, struct)[name].dataType


@contextmanager
def spark_errors(file: Path) -> Iterator[None]:
    """Name the file in what Spark says about it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SourceError("a file must fit its format and the table", value=str(file), remedy=_said(error)) from error


def _said(error: PySparkException | Py4JJavaError) -> str:
    """The innermost cause in one line; that of an error from the JVM is what tells."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.toString()).strip().splitlines()[0]
    return first_line(error)
