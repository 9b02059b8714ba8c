"""Judging events: which are accepted, which are rejected and why (SEMANTICS §1, §4, §6)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.canonical import canonical_json
from lib.errors import ConfigError, SourceError
from lib.expressions import expression, require_columns
from lib.rule import Rule
from lib.times import timestamp
from lib.watermarks import Clock

CORRECTION = "correction"
NULL_TIME = "null_time"
NULL_KEY = "null_key"
IN_THE_FUTURE = "in_the_future"
LATE = "late"
UNREADABLE = "unreadable"

INVALID = (NULL_TIME, NULL_KEY, IN_THE_FUTURE, UNREADABLE)
FROM_FEED = (C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP)
KEY_TYPES = (
    T.StringType,
    T.IntegralType,
    T.DecimalType,
    T.FloatType,
    T.DoubleType,
    T.BooleanType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def judge(events: DataFrame, rule: Rule, clock: Clock) -> DataFrame:
    """Each event with its time and its verdict; rows that `where` leaves out are gone.

    In: the source's columns (and, from a change feed, its `_change_type`).
    Out: the same columns, `__us` BIGINT (microseconds since the epoch, UTC) and `__verdict` STRING: null for an
    accepted event, else the reason it is rejected for. The first of correction, null_time, null_key,
    in_the_future (strictly more than `max_future_skew` ahead) and late (strictly older than the horizon) counts.
    Errors: SourceError for a key or time column that is missing or of a type that cannot serve.
    """
    _check_zone(events)
    require_columns(rule.key, events, "source.key")
    require_columns(rule.order_by, events, "source.order_by")
    _check_keys(rule, events)
    if rule.where is not None:
        events = events.where(_condition(rule.where, events))
    timed = events.withColumn(C.US, event_time_us(events, rule))
    return timed.withColumn(C.VERDICT, _verdict(timed, rule, clock))


def rejected(judged: DataFrame, rule: Rule, clock: Clock) -> DataFrame:
    """The rejected among judged events, as rows of `rejected_events` without the run's own columns.

    Out: the key columns, event_time, reason, watermark, horizon, event (canonical JSON), event_hash (SHA-256 of
    it, hex), ordinal (1, 2, … among identical rows of this run), source_version.
    """
    feed = [name for name in judged.columns if name in FROM_FEED]
    payload = [n for n in judged.columns if n not in (C.US, C.VERDICT, *feed)]
    version = C.col(C.COMMIT_VERSION) if C.COMMIT_VERSION in feed else F.lit(None)
    rows = (
        judged.where(C.col(C.VERDICT).isNotNull())
        .withColumn(C.EVENT, canonical_json(judged.select(*C.cols(tuple(payload))).schema))
        .withColumn(C.EVENT_HASH, F.sha2(C.col(C.EVENT), 256))
    )
    identical = Window.partitionBy(C.EVENT_HASH).orderBy(version)
    return rows.select(
        *C.cols(rule.key),
        F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME),
        C.col(C.VERDICT).alias(C.REASON),
        timestamp(clock.watermark).alias(C.WATERMARK),
        timestamp(clock.horizon(rule)).alias(C.HORIZON),
        C.col(C.EVENT),
        C.col(C.EVENT_HASH),
        F.row_number().over(identical).alias(C.ORDINAL),
        version.cast("bigint").alias(C.SOURCE_VERSION),
    )


def event_time_us(events: DataFrame, rule: Rule) -> Column:
    """The event time in microseconds; null where there is none, or where a text is not a full date."""
    time = expression(rule.event_time, events, "source.event_time")
    time_type = events.select(time.alias("t")).schema["t"].dataType
    match time_type:
        case T.TimestampType():
            return F.unix_micros(time)
        case T.TimestampNTZType():
            return F.unix_micros(time.cast("timestamp"))
        case T.StringType():
            # A time without a date would otherwise be read as a time of today.
            dated = F.when(time.rlike(r"^\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}"), time)
            return F.unix_micros(dated.try_cast("timestamp"))
        case _:
            raise SourceError(
                "source.event_time must be a TIMESTAMP, a TIMESTAMP_NTZ or a text, "
                f"and this is {time_type.simpleString().upper()}",
                value=rule.event_time,
                remedy="write an expression such as timestamp_seconds(…), timestamp_millis(…) or timestamp_micros(…)",
            )


def _condition(text: str, events: DataFrame) -> Column:
    condition = expression(text, events, "source.where")
    kind = events.select(condition.alias("c")).schema["c"].dataType
    if not isinstance(kind, T.BooleanType):
        raise ConfigError(
            f"source.where must be true or false for each event, and this is {kind.simpleString().upper()}",
            value=text,
            remedy="write a comparison, such as event_type <> 'ping'",
        )
    return condition


def _verdict(events: DataFrame, rule: Rule, clock: Clock) -> Column:
    us, horizon = C.col(C.US), clock.horizon(rule)
    rules: list[tuple[str, Column]] = [
        (NULL_TIME, us.isNull()),
        (IN_THE_FUTURE, us > clock.now + rule.max_future_skew),
    ]
    if rule.null_keys == "reject" and rule.key:
        null_key = F.lit(False)
        for name in rule.key:
            null_key = null_key | C.col(name).isNull()
        rules.insert(1, (NULL_KEY, null_key))
    if C.CHANGE_TYPE in events.columns:
        rules.insert(0, (CORRECTION, C.col(C.CHANGE_TYPE) != "insert"))
    if horizon is not None:
        rules.append((LATE, us < horizon))
    (reason, holds), *others = rules
    verdict = F.when(holds, reason)
    for reason, holds in others:
        verdict = verdict.when(holds, reason)
    return verdict


def _check_zone(events: DataFrame) -> None:
    """A text or a TIMESTAMP_NTZ has no zone of its own: it would be read in the session's."""
    zone = events.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "Z", "GMT", "+00:00"):
        raise ConfigError(
            "the time zone of the Spark session must be UTC",
            value=zone,
            remedy="set spark.sql.session.timeZone to UTC; results can be shown in any zone afterwards",
        )


def _check_keys(rule: Rule, events: DataFrame) -> None:
    for name in rule.key:
        key_type = events.select(C.col(name)).schema[0].dataType
        if not isinstance(key_type, KEY_TYPES):
            raise SourceError(
                f"a key column must hold single values, and this one is {key_type.simpleString().upper()}",
                value=name,
                remedy="name a column of text, numbers, dates or booleans in source.key",
            )
