"""Reading a part of a file into rows that fit the source table."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.access_log import access_log_schema, parse_access_log
from sessionizer.jobs.ingest.file_columns import (
    FileColumn,
    conform,
    declare,
    fit,
    one_of_each,
    read_as,
    renamed,
    require_used,
    time_column,
)
from sessionizer.jobs.ingest.files import Mark, copy_part, join_records, line_at
from sessionizer.jobs.ingest.lines import LINE, TORN, parse_csv, parse_json, text_lines, with_newlines
from sessionizer.jobs.ingest.time_formats import ISO, PER_SECOND, check_time_type, parse_time
from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.lib.expressions import first_line
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
    add_columns: new columns in a file extend the table; else they are an error.
    """

    format: Format
    time_format: str = ISO
    csv_sep: str = ","
    csv_quote: str = '"'
    csv_header: bool = True
    rename: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    add_columns: bool = False

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


class FileReader:
    """Reads files of one format. Errors: UsageError where the options do not make sense."""

    def __init__(self, spark: SparkSession, config: Config, options: IngestOptions) -> None:
        self.spark = spark
        self.source = config.source
        self.options = options
        self.declared = self._declared()
        self._check_time_format()

    @contextmanager
    def read(self, part: Part, table: T.StructType | None) -> Iterator[DataFrame | None]:
        """The rows of a part under the names and types of the table, and `__torn_line`; None if all is blank.

        table: the columns of the source table, None where it is not there yet.
        Errors: SourceError where the file does not fit.
        """
        names, rows_begin = self._header(part)
        begin = max(part.start, rows_begin)
        broken = b""
        if part.start and self.options.format in LINE_FORMATS:
            broken = line_at(part.file, begin - 1, part.end.size)[1:]  # a newline, unless a line was taken unfinished
        with TemporaryDirectory(prefix="sessionizer-", ignore_cleanup_errors=True) as folder, spark_errors(part.file):
            copy = Path(folder) / "rows"
            has_rows = copy_part(part.file, copy, begin + len(broken), part.end)
            if not has_rows and not broken.strip():
                yield None
                return
            if self.options.format == "parquet":
                rows = self.spark.read.parquet(copy.as_uri())
                raw = canonical_json(rows.schema).alias(LINE)
                parsed = rows.select(raw, F.lit(False).alias(TORN), *C.cols(tuple(rows.columns)))
                columns = self._columns(rows.schema, part, table)
            else:
                parsed, columns = self._text(copy, broken, names, part, table)
            yield conform(parsed, columns, self.options.time_format)

    def is_unfinished(self, line: bytes) -> bool:
        """Whether a last line without a newline looks like the beginning of one that is still being written."""
        if not line.strip():
            return False
        lines = self._literal(line)
        if self.options.format == "json":
            parsed = parse_json(lines, T.StructType([]))
        else:
            parsed = parse_access_log(lines, C.EVENT_TIME)
        return any(row[TORN] for row in parsed.select(TORN).collect())

    def _text(
        self, copy: Path, broken: bytes, names: tuple[str, ...], part: Part, table: T.StructType | None
    ) -> tuple[DataFrame, list[FileColumn]]:
        uri, sep, quote = copy.as_uri(), self.options.csv_sep, self.options.csv_quote
        in_quotes = self.options.format == "csv" and quote != ""
        newline = join_records(copy, len(names), sep, quote) if in_quotes else None
        lines = text_lines(self.spark.read.option("lineSep", "\n").text(uri))
        if broken.strip():
            lines = lines.unionByName(self._literal(broken, torn=True))
        if self.options.format == "csv":
            texts = T.StructType([T.StructField(name, T.StringType()) for name in names])
            columns = self._columns(texts, part, table)
            parsed = parse_csv(lines, names, sep, quote)
            return with_newlines(parsed, newline) if newline else parsed, columns
        if self.options.format == "access-log":
            time = time_column(self.source.event_time, ()) or C.EVENT_TIME
            return parse_access_log(lines, time), self._columns(access_log_schema(time), part, table)
        with having(self.spark, CASE_SENSITIVE):
            inferred = self.spark.read.options(mode="DROPMALFORMED", lineSep="\n", encoding="UTF-8").json(uri).schema
        # Names as the table, the options and the config write them.
        wanted = [*self.options.rename, *self.declared.fieldNames(), *self.source.key, self.source.event_time]
        found, doubles = one_of_each(inferred, [*(table.fieldNames() if table else ()), *wanted])
        columns = self._columns(found, part, table)
        fields = T.StructType([T.StructField(c.found, c.json_type) for c in columns])
        return parse_json(lines, fields, doubles), columns

    def _columns(self, found: T.StructType, part: Part, table: T.StructType | None) -> list[FileColumn]:
        is_json = self.options.format == "json"
        declared = declare(found, self.declared, optional=is_json)
        names = renamed(declared.fieldNames(), self.options.rename, optional=is_json)
        # What a file has grown by may happen to lack an optional member; its beginning had what is needed.
        if not (is_json and part.start > 0):
            require_used(names, self.source, str(part.file))
        time = time_column(self.source.event_time, names)
        types = {f.name: f.dataType for f in found.fields}
        columns = []
        for given, name in zip(declared.fields, names, strict=True):
            is_time = name == time
            if is_time:
                check_time_type(name, types.get(given.name, T.StringType()), self.options.time_format)
            wanted = T.TimestampType() if is_time else given.dataType
            read = read_as(given.dataType, types.get(given.name, given.dataType))
            columns.append(FileColumn(given.name, name, wanted, is_time, None if read == given.dataType else read))
        return columns if table is None else fit(columns, table, add_columns=self.options.add_columns)

    def _header(self, part: Part) -> tuple[tuple[str, ...], int]:
        """The column names of a csv file, and where its rows begin."""
        if self.options.format != "csv" or not self.options.csv_header:
            return tuple(self.declared.fieldNames()), part.bom
        line, begin = b"", part.bom
        while not line.strip():
            line = line_at(part.file, begin, part.end.size)
            begin += len(line)
            if not line:
                return (), begin
        text = line.decode(errors="replace").rstrip("\r\n")
        try:
            (names,) = csv.reader(
                [text],
                delimiter=self.options.csv_sep,
                quotechar=self.options.csv_quote or None,
                quoting=csv.QUOTE_MINIMAL if self.options.csv_quote else csv.QUOTE_NONE,
            )
        except csv.Error as error:
            raise SourceError(
                "the first line of a csv file must name its columns", value=str(part.file), remedy=str(error)
            ) from error
        return tuple(name or f"_c{n}" for n, name in enumerate(names)), begin

    def _literal(self, line: bytes, *, torn: bool = False) -> DataFrame:
        text = line.decode(errors="replace").rstrip("\r\n")
        return self.spark.range(1).select(F.lit(text).alias(LINE), F.lit(torn).alias(TORN))

    def _declared(self) -> T.StructType:
        if not self.options.schema:
            return T.StructType([])
        try:
            return cast(T.StructType, T.StructType.fromDDL(self.options.schema))
        except PySparkException as error:
            raise UsageError(
                "the schema must be columns and their types, in SQL",
                value=self.options.schema,
                remedy="write it like 'amount double, paid boolean'",
            ) from error

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
