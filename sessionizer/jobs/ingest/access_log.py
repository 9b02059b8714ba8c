"""Lines of web servers' access logs: Common and Combined Log Format."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import LINE, NOT_UTF8, NUMBER, TORN, torn_by
from sessionizer.lib import columns as C

# Possessive throughout: no line, however long or strange, makes the match backtrack or recurse.
_QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_GRAMMAR = (
    r"(?s)^(\S++) (\S++) (\S++) \[([^\]]++)\] "
    rf"{_QUOTED} (\d{{3}}|-) (\d{{1,18}}|-)"
    rf"(?: {_QUOTED} {_QUOTED}(?: {_QUOTED})*+)?+ *$"
)
_REQUEST = r"(?s)^([A-Za-z][A-Za-z_-]*+) (.+) ([A-Za-z]++/[0-9.]++)$"
_TIME = "dd/MMM/yyyy:HH:mm:ss Z"  # month names are English for Spark, whatever the locale
_FIELDS = "__fields"
_MOMENT = "__moment"


def access_log_schema(event_time: str) -> T.StructType:
    """The columns of an access log, with the time under this name."""
    request = ("request", "method", "path", "protocol")
    names = ("host", "ident", "auth_user", event_time, *request, "status", "bytes", "referer", "user_agent")
    types = {"status": T.IntegerType(), "bytes": T.LongType(), event_time: T.TimestampType()}
    return T.StructType([T.StructField(name, types.get(name, T.StringType())) for name in names])


def parse_access_log(lines: DataFrame, event_time: str) -> DataFrame:
    r"""The fields of each line; torn where it is neither Common nor Combined, or its time does not exist.

    `h - - [14/Oct/2019:10:50:18 +0200] "GET /a HTTP/1.1" 200 5 "-" "curl"`: `-` is null; quoted fields after the
    user agent are left out. Texts stay as logged: `\"` is not unescaped. A request that is not METHOD PATH
    PROTOCOL is in `request` alone.
    In: `__line`, `__number`, `__torn`. Out: the same and the columns of `access_log_schema`.
    """
    # One match a line instead of one a field: a line holds no newline, so its fields can be split by newlines.
    one_each = F.regexp_replace(C.col(LINE), _GRAMMAR, "\n".join(f"${n}" for n in range(1, 10)))
    split = lines.withColumn(_FIELDS, F.split(one_each, "\n", -1))
    time = F.get(C.col(_FIELDS), F.lit(3))
    timed = split.withColumn(_MOMENT, F.try_to_timestamp(time, F.lit(_TIME)))
    torn = F.coalesce(
        F.when(C.col(TORN)["reason"] != NOT_UTF8, C.col(TORN)),  # servers log whatever bytes a client sends
        F.when(F.size(C.col(_FIELDS)) != 9, torn_by("neither Common nor Combined Log Format")),
        F.when(C.col(_MOMENT).isNull(), torn_by("no such time", event_time, time)),
    )
    request = _given(4)
    values = [
        *(_given(n) for n in range(3)),
        C.col(_MOMENT),
        request,
        *(F.nullif(F.regexp_extract(request, _REQUEST, n), F.lit("")) for n in (1, 2, 3)),
        *(_given(n) for n in range(5, 9)),
    ]
    named = [
        v.try_cast(f.dataType).alias(f.name) for v, f in zip(values, access_log_schema(event_time).fields, strict=True)
    ]
    return timed.select(C.col(LINE), C.col(NUMBER), torn.alias(TORN), *named)


def _given(index: int) -> Column:
    field = F.get(C.col(_FIELDS), F.lit(index))
    return F.when(~field.isin("-", ""), field)
