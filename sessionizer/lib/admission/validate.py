"""Valid events: which rows of the source could be part of a session at all (SEMANTICS §1, §4, §6)."""

import hashlib
from collections.abc import Collection, Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import RENAME_IT
from sessionizer.lib.admission.verdicts import (
    BEFORE_START,
    CORRECTED,
    CORRECTION,
    EXPRESSION_FAILED,
    FORGOTTEN,
    IGNORED_DELETE,
    IN_THE_FUTURE,
    LATE,
    NON_POSITIVE_GAP,
    NULL_KEY,
    NULL_TIME,
    WITHDRAWN,
)
from sessionizer.lib.bags import own_columns
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.config.sources import WITHOUT_DATE, cast_column
from sessionizer.lib.durations import EVER
from sessionizer.lib.errors import ConfigError, SourceError, SourceMismatch
from sessionizer.lib.expressions import (
    column_problems,
    condition_of_event,
    key_field,
    made_problems,
    name_problem,
    of_event,
    with_keys,
)
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import steady
from sessionizer.lib.time.watermarks import WatermarkState

MADE_BY = "2"  # another one whenever the same rule and source come to other columns of the table, state included
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
TIME_TYPES = (T.TimestampType, T.TimestampNTZType, T.StringType)


def validate(events: DataFrame, rule: Rule, clock: WatermarkState, in_flight: tuple[str, ...] = ()) -> DataFrame:
    """Each event with its time and, if it is invalid or a change of the source, its verdict; `where` has been applied.

    In: the source's columns (and, from a change feed, its `_change_type`, or `before_start`, `correction`, `late`,
    `ignored_delete`).
    in_flight: columns of ours that come along.
    Out: the same columns, what `with_keys` adds, `__us` BIGINT (microseconds since the epoch, UTC; with a time unit in
    whole units, and the time itself as `__raw_us`), `__gap` BIGINT (of a dynamic gap) and `__verdict` STRING: null for
    a valid event, else the reason to reject it: the first of before_start, correction, late, expression_failed (one of
    the rule's expressions over events has no value, as in 1/0), null_time, null_key, non_positive_gap and in_the_future
    (strictly more than `max_future_skew` ahead) counts. Of changes `corrected`, which comes before all that makes
    an event with a time invalid where they wait in quarantine, or for a row that is gone `withdrawn`, `forgotten` if it
    was invalid.
    Errors: SourceError for a key or time column that is missing or of a type that cannot serve.
    """
    _check_settings(events)
    check_names(events, in_flight)
    for problem in _column_problems(events.schema, rule):
        raise problem
    failed = _failed(events, rule)
    if (passes := passing(events, rule)) is not None:
        events = events.where(passes)
    keyed = with_keys(events, rule.made)
    for problem in _key_problems(keyed.schema, rule.key):
        raise problem
    timed = keyed.withColumn(C.US, event_time_us(events, rule))
    if isinstance(rule.gap, DynamicGap):
        timed = timed.withColumn(C.GAP, gap_us(rule.gap, events))
    if rule.time_unit > 1:
        timed = timed.withColumns({C.RAW_US: C.col(C.US), C.US: C.col(C.US) - F.pmod(C.US, F.lit(rule.time_unit))})
    return timed.withColumn(C.VERDICT, _verdict(timed, rule, clock, failed))


def source_problems(columns: T.StructType, rule: Rule) -> Iterator[SourceMismatch]:
    """What is wrong with the columns that a rule names, as far as names and types alone tell."""
    yield from _column_problems(columns, rule)
    if rule.dedupe is not None:
        yield from column_problems(rule.dedupe.by, columns, "source.dedupe.by", compared=True)
    types = {f.name.lower(): f.dataType for f in columns.fields}
    if (kind := types.get(rule.event_time.lower())) is not None:
        found = [_time_problem(rule.event_time, kind)]
    else:
        found = [name_problem(rule.event_time, columns, "source.event_time")]
    found += [name_problem(a.of, columns, f"aggregates.{a.name}.of") for a in rule.aggregates if a.of is not None]
    yield from (problem for problem in found if problem is not None)


def raw_us(judged: DataFrame) -> Column:
    """The event time as the source has it, in microseconds."""
    return C.col(C.RAW_US if C.RAW_US in judged.columns else C.US)


def gap_us(gap: DynamicGap, events: DataFrame) -> Column:
    """The gap of each event (at `__us`) in microseconds, at least `at_least`; null or not positive as it is."""
    value, _ = of_event(gap.expr, events, "session.gap.expr")
    kind = events.select(value.alias("g")).schema["g"].dataType
    if isinstance(kind, T.StringType):
        value = value.try_cast("interval")
    elif not isinstance(kind, T.DayTimeIntervalType | T.CalendarIntervalType):
        raise ConfigError(
            f"session.gap.expr must give an INTERVAL, and this is {kind.simpleString().upper()}",
            value=gap.expr,
            remedy="write INTERVAL 30 MINUTES, or make_dt_interval(0, 0, 0, seconds)",
        )
    us = F.unix_micros(F.try_add(F.timestamp_micros(C.col(C.US)), value)) - C.col(C.US)
    return us if gap.at_least is None else F.when(us > 0, F.greatest(us, F.lit(gap.at_least)))


def schema_hash(rows: DataFrame, rule: object) -> str:
    """A hash of the rule, and of the source's own columns: while it stays, so do the columns that they make."""
    own = set(own_columns(rows.columns))
    fields = [f"{f.name} {f.dataType.simpleString()}" for f in rows.schema.fields if f.name in own]
    return hashlib.sha256("\n".join([MADE_BY, repr(rule), *fields]).encode()).hexdigest()[:16]


def expressions_of(rule: Rule, columns: Collection[str] = ()) -> dict[str, str]:
    """The rule's expressions over single events, which have these columns, by the config's fields; columns, too."""
    asked = {"source.where": rule.where, "source.event_time": rule.event_time}
    asked |= {key_field(key): key.expr for key in rule.made}
    asked["session.gap.expr"] = rule.gap.expr if isinstance(rule.gap, DynamicGap) else None
    asked |= {"session.starts_when": rule.starts_when, "session.ends_when": rule.ends_when}
    asked |= {f"session.changes_of[{i}]": text for i, text in enumerate(rule.changes_of)}
    asked |= {f"aggregates.{a.name}.of": a.value(columns) for a in rule.aggregates}
    return {field: text for field, text in asked.items() if text is not None}


def _failed(events: DataFrame, rule: Rule) -> list[Column]:
    """For each of these expressions that may have no value: whether it has none."""
    found = [of_event(text, events, field)[1] for field, text in expressions_of(rule, events.columns).items()]
    return [fails for fails in found if fails is not None]


def event_time_us(events: DataFrame, rule: Rule) -> Column:
    """The event time in microseconds; null where there is none, or it is before all (-EVER), or a text no full date."""
    none = F.lit(-EVER)
    return F.nullif(F.greatest(_event_time_us(events, rule), none), none)  # a text is read once: `when` would twice


def _event_time_us(events: DataFrame, rule: Rule) -> Column:
    time, _ = of_event(rule.event_time, events, "source.event_time")
    time_type = events.select(time.alias("t")).schema["t"].dataType
    if (problem := _time_problem(rule.event_time, time_type)) is not None:
        raise problem
    match time_type:
        case T.TimestampType():
            text = _text_cast(rule.event_time, events)
            return F.unix_micros(time if text is None else F.when(~text.rlike(WITHOUT_DATE), time))
        case T.TimestampNTZType():
            return F.unix_micros(time.cast("timestamp"))
    # A time without a date would otherwise be read as a time of today.
    dated = F.when(time.cast("string").rlike(r"^\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}"), time)  # of any collation
    return F.unix_micros(dated.try_cast("timestamp"))


def _text_cast(expression: str, events: DataFrame) -> Column | None:
    """The column of texts that an expression does no more than make times of."""
    kinds = {field.name.lower(): field.dataType for field in events.schema.fields}
    name = cast_column(expression)
    return C.col(name) if name and isinstance(kinds.get(name.lower()), T.StringType) else None


def passing(events: DataFrame, rule: Rule) -> Column | None:
    """Whether `where` lets an event through, or fails for it; false or null: it does not. None: there is no `where`."""
    if rule.where is None:
        return None
    condition, fails = _where(events, rule.where)
    return condition if fails is None else condition | fails


def is_let_through(events: DataFrame, rule: Rule) -> Column:
    """Whether `where` has a value for an event, and lets it through."""
    if rule.where is None:
        return F.lit(True)
    condition, fails = _where(events, rule.where)
    passes = F.coalesce(condition, F.lit(False))
    return passes if fails is None else passes & ~fails


def _where(events: DataFrame, where: str) -> tuple[Column, Column | None]:
    return condition_of_event(where, events, "source.where", "event_type <> 'ping'")


def _verdict(events: DataFrame, rule: Rule, clock: WatermarkState, failed: list[Column]) -> Column:
    us, fails = C.col(C.US), reduce(or_, failed) if failed else None
    invalid: list[tuple[str, Column]] = [] if fails is None else [(EXPRESSION_FAILED, fails)]
    invalid.append((NULL_TIME, us.isNull()))
    if rule.null_keys == "reject" and rule.key:
        invalid.append((NULL_KEY, reduce(or_, [C.col(name).isNull() for name in rule.key])))
    if isinstance(rule.gap, DynamicGap):
        invalid.append((NON_POSITIVE_GAP, C.col(C.GAP).isNull() | (C.col(C.GAP) <= 0)))
    future = (IN_THE_FUTURE, us > steady(min(clock.now + rule.max_future_skew, EVER), us))
    if C.CHANGE_TYPE not in events.columns:
        return _first_that_holds([*invalid, future])
    kind = C.col(C.CHANGE_TYPE)
    is_gone = kind.isin("delete", "update_preimage", IGNORED_DELETE)
    was_invalid = is_gone & reduce(or_, [holds for _, holds in invalid])
    waits, is_update = (kind == CORRECTION) & us.isNotNull(), kind == "update_postimage"
    known = [(BEFORE_START, kind == BEFORE_START), (CORRECTION, waits)]
    apart = [*known, (FORGOTTEN, was_invalid), (IGNORED_DELETE, kind == IGNORED_DELETE), (WITHDRAWN, is_gone)]
    if rule.corrections == "quarantine":  # both images of an update wait for the same, whatever it makes of the event
        in_time = (
            F.lit(True) if clock.forgotten is None else us >= clock.forgotten
        )  # else it may be late, and is judged
        apart.append((CORRECTED, is_update & in_time & us.isNotNull()))
    return _first_that_holds([*apart, *invalid, future, (LATE, kind == LATE), (CORRECTED, is_update)])


def _first_that_holds(rules: list[tuple[str, Column]]) -> Column:
    (reason, holds), *others = rules
    verdict = F.when(holds, reason)
    for reason, holds in others:
        verdict = verdict.when(holds, reason)
    return verdict


def _check_settings(events: DataFrame) -> None:
    """A text or a TIMESTAMP_NTZ has no zone of its own: it would be read in the session's.

    And without ANSI mode what fails is null: which events count would depend on it.
    """
    zone, ansi = (events.sparkSession.conf.get(f"spark.sql.{name}") for name in ("session.timeZone", "ansi.enabled"))
    if str(ansi).strip().lower() != "true":
        raise ConfigError(
            "the Spark session must be in ANSI mode", value=ansi, remedy="set spark.sql.ansi.enabled to true"
        )
    if zone not in ("UTC", "Etc/UTC", "Z", "GMT", "+00:00"):
        raise ConfigError(
            "the time zone of the Spark session must be UTC",
            value=zone,
            remedy="set spark.sql.session.timeZone to UTC; results can be shown in any zone afterwards",
        )


def check_names(events: DataFrame, in_flight: tuple[str, ...] = ()) -> None:
    """A column of the source that is named as one in flight would be taken for it. Errors: SourceError."""
    for name in events.columns:
        if name.startswith("__") and name not in in_flight:
            raise SourceError(
                "the source must have no column whose name begins with __: such names are kept for what is computed",
                value=name,
                remedy=RENAME_IT,
            )


def _column_problems(columns: T.StructType, rule: Rule) -> Iterator[SourceMismatch]:
    yield from column_problems(rule.own_key, columns, "source.key")
    yield from made_problems(rule.made, columns)
    yield from column_problems(rule.order_by, columns, "source.order_by", compared=True)
    yield from _key_problems(columns, rule.own_key)


def _key_problems(columns: T.StructType, key: tuple[str, ...]) -> Iterator[SourceMismatch]:
    types = {f.name.lower(): f.dataType for f in columns.fields}
    for name in key:
        kind = types.get(name.lower())
        if kind is not None and not isinstance(kind, KEY_TYPES):
            yield SourceMismatch(
                f"a key column must hold single values, and this one is {kind.simpleString().upper()}",
                value=name,
                remedy="name a column of text, numbers, dates or booleans in source.key",
            )
        elif isinstance(kind, T.StringType) and kind != T.StringType():  # ids hash one of several spellings
            yield SourceMismatch(
                "a key column must hold texts that are equal only where they are the same, and this one is "
                f"{kind.simpleString().upper()}",
                value=name,
                remedy="write a key by SQL in source.key, such as expr: lower(collate(mail, 'UTF8_BINARY'))",
            )


def _time_problem(text: str, kind: T.DataType) -> SourceMismatch | None:
    if isinstance(kind, TIME_TYPES):
        return None
    return SourceMismatch(
        f"source.event_time must be a TIMESTAMP, a TIMESTAMP_NTZ or a text, and this is {kind.simpleString().upper()}",
        value=text,
        remedy="write an expression such as timestamp_seconds(…), timestamp_millis(…) or timestamp_micros(…)",
    )
