"""Judging events: which are accepted, which are rejected and why (SEMANTICS §1, §4, §6)."""

import hashlib
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.canonical import canonical_json
from lib.config import DynamicGap
from lib.errors import ConfigError, SourceError
from lib.expressions import expression, require_columns
from lib.rule import Rule
from lib.time.micros import steady
from lib.time.watermarks import WatermarkState, with_clock

CORRECTION = "correction"
NULL_TIME = "null_time"
NULL_KEY = "null_key"
NON_POSITIVE_GAP = "non_positive_gap"
IN_THE_FUTURE = "in_the_future"
DUPLICATE = "duplicate"
LATE = "late"
UNREADABLE = "unreadable"

INVALID = (NULL_TIME, NULL_KEY, NON_POSITIVE_GAP, IN_THE_FUTURE, UNREADABLE)
REASONS = (CORRECTION, *INVALID, DUPLICATE, LATE)
# Verdicts on events whose sessions are recomputed from events: late ones that are accepted after all, rows as they
# are after an update of the source, and rows as they were before an update or a delete.
AMENDED = "amended"
CORRECTED = "corrected"
WITHDRAWN = "withdrawn"
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


def validate(events: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Each event with its time and, if it is invalid or a correction, its verdict; `where` has been applied.

    In: the source's columns (and, from a change feed, its `_change_type`).
    Out: the same columns, `__us` BIGINT (microseconds since the epoch, UTC), `__gap` BIGINT (of a dynamic gap) and
    `__verdict` STRING: null for a valid event, else a reason to reject it, `corrected` or `withdrawn`. The first of
    correction, null_time, null_key, non_positive_gap and in_the_future (strictly more than `max_future_skew` ahead)
    counts.
    Errors: SourceError for a key or time column that is missing or of a type that cannot serve.
    """
    _check_zone(events)
    _check_names(rule, events)
    require_columns(rule.key, events, "source.key")
    require_columns(rule.order_by, events, "source.order_by")
    _check_keys(rule, events)
    if rule.where is not None:
        events = events.where(_condition(rule.where, events))
    timed = events.withColumn(C.US, event_time_us(events, rule))
    if isinstance(rule.gap, DynamicGap):
        timed = timed.withColumn(C.GAP, _gap_us(rule.gap, events))
    return timed.withColumn(C.VERDICT, _verdict(timed, rule, clock))


def judge_late(valid: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Valid events with the watermark and horizon of their scope, and those strictly older than the horizon late.

    Out: the same columns, `__watermark`, `__horizon` BIGINT; `__verdict` is `late` (`amended`, where the rule accepts
    them after all) if it was null. With `lateness: session` nothing is late yet: its group decides.
    """
    judged = with_clock(valid, rule, clock, beside=C.col(C.US)).drop(C.MARK, C.FLUSHED)
    if rule.lateness == "session":
        return judged
    late = C.col(C.VERDICT).isNull() & (C.col(C.US) < C.col(C.H))
    return judged.withColumn(C.VERDICT, F.when(late, verdict_if_late(rule)).otherwise(C.col(C.VERDICT)))


def judge(events: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Each event with its time and its verdict: `validate`, then `judge_late`."""
    return judge_late(validate(events, rule, clock), rule, clock)


def verdict_if_late(rule: Rule) -> str:
    """What becomes of a late event: whoever amends accepts it."""
    return AMENDED if rule.late_events == "amend" else LATE


def rejected(judged: DataFrame, rule: Rule) -> DataFrame:
    """The rejected among judged events, as rows of `rejected_events` without the run's own columns.

    Out: the key columns, event_time, reason, watermark, horizon, event (canonical JSON; null where the rule says to
    drop such events), event_hash (SHA-256 of it, hex), ordinal (1, 2, … among identical rows of this run),
    source_version.
    """
    feed = [name for name in judged.columns if name in FROM_FEED]
    version = C.col(C.COMMIT_VERSION) if C.COMMIT_VERSION in feed else F.lit(None)
    rows = with_hash(judged.where(C.col(C.VERDICT).isin(*REASONS)))
    identical = Window.partitionBy(C.EVENT_HASH).orderBy(version)
    reason = C.col(C.VERDICT)
    hash_only = reason == DUPLICATE
    if rule.late_events in ("drop", "separate"):
        hash_only = hash_only | (reason == LATE)
    if rule.invalid_events == "drop":
        hash_only = hash_only | reason.isin(*INVALID)
    return rows.select(
        *C.cols(rule.key),
        F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME),
        reason.alias(C.REASON),
        F.timestamp_micros(C.col(C.W)).alias(C.WATERMARK),
        F.timestamp_micros(C.col(C.H)).alias(C.HORIZON),
        F.when(~hash_only, C.col(C.EVENT)).alias(C.EVENT),
        C.col(C.EVENT_HASH),
        F.row_number().over(identical).alias(C.ORDINAL),
        version.cast("bigint").alias(C.SOURCE_VERSION),
    )


def as_rejected(events: DataFrame, rule: Rule) -> DataFrame:
    """Judged events as they stand in `rejected_events`: the key columns, event_time, event_hash."""
    time = F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME)
    return with_hash(events).select(*C.cols(rule.key), time, C.col(C.EVENT_HASH))


def with_hash(events: DataFrame) -> DataFrame:
    """Source rows with `event` (canonical JSON of the source's own columns) and `event_hash` (its SHA-256, hex)."""
    payload = tuple(n for n in events.columns if not n.startswith("__") and n not in FROM_FEED)
    json = events.withColumn(C.EVENT, canonical_json(events.select(*C.cols(payload)).schema))
    return json.withColumn(C.EVENT_HASH, F.sha2(C.col(C.EVENT), 256))


def schema_hash(rows: DataFrame, rule: object) -> str:
    """A hash of the rule, and of the source's own columns: while it stays, so do the columns that they make."""
    own = [f"{f.name} {f.dataType.simpleString()}" for f in rows.schema.fields if f.name not in FROM_FEED]
    return hashlib.sha256("\n".join([repr(rule), *own]).encode()).hexdigest()[:16]


def _gap_us(gap: DynamicGap, events: DataFrame) -> Column:
    """The gap of each event in microseconds, raised to `at_least`; null or not positive as it is."""
    value = expression(gap.expr, events, "session.gap.expr")
    kind = events.select(value.alias("g")).schema["g"].dataType
    if isinstance(kind, T.StringType):
        value = value.try_cast("interval")
    elif not isinstance(kind, T.DayTimeIntervalType | T.CalendarIntervalType):
        raise ConfigError(
            f"session.gap.expr must give an INTERVAL, and this is {kind.simpleString().upper()}",
            value=gap.expr,
            remedy="write INTERVAL 30 MINUTES, or make_dt_interval(0, 0, 0, seconds)",
        )
    us = F.unix_micros(F.timestamp_micros(C.col(C.US)) + value) - C.col(C.US)
    return us if gap.at_least is None else F.when(us > 0, F.greatest(us, F.lit(gap.at_least)))


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


def _verdict(events: DataFrame, rule: Rule, clock: WatermarkState) -> Column:
    us = C.col(C.US)
    rules: list[tuple[str, Column]] = [(NULL_TIME, us.isNull())]
    if rule.null_keys == "reject" and rule.key:
        rules.append((NULL_KEY, reduce(or_, [C.col(name).isNull() for name in rule.key])))
    if isinstance(rule.gap, DynamicGap):
        rules.append((NON_POSITIVE_GAP, C.col(C.GAP).isNull() | (C.col(C.GAP) <= 0)))
    rules.append((IN_THE_FUTURE, us > steady(clock.now + rule.max_future_skew, us)))
    if C.CHANGE_TYPE in events.columns:
        kind = C.col(C.CHANGE_TYPE)
        if rule.corrections == "apply":
            rules.insert(0, (WITHDRAWN, kind.isin("delete", "update_preimage")))
            rules.append((CORRECTED, kind == "update_postimage"))
        else:
            rules.insert(0, (CORRECTION, kind != "insert"))
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


def _check_names(rule: Rule, events: DataFrame) -> None:
    """A column of the source that is named as one in flight would be taken for it."""
    ours = (C.SESSION_ID, C.EVENT, C.EVENT_HASH) if rule.traces else ()
    for name in events.columns:
        if name.startswith("__"):
            raise SourceError(
                "the source must have no column whose name begins with __: such names are kept for what is computed",
                value=name,
                remedy="rename it in the source (ALTER TABLE … RENAME COLUMN, or ingest --rename)",
            )
        if name.lower() in ours:
            raise SourceError(
                "with outputs.event_sessions or outputs.session_updates the source must have no column of this name",
                value=name,
                remedy="rename it in the source, or leave these outputs out",
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
