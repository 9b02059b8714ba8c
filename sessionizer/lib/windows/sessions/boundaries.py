"""Boundaries by content: what events hold, how many they are, or midnight ends a session, too (SEMANTICS §2).

Partials and live rows tell as much as it takes to see that a session of them would have to be cut. Then it is made of
its events; all others cost no more than folding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import Aggregate, is_storable
from sessionizer.lib.aggregates.functions import Triple
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.expressions import condition_of_event, is_ordered, of_event
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import floor_div

# What begins the next session within the reach of the one before it; of several the first counts.
ENDS_WHEN, MAX_EVENTS, STARTS_WHEN = "ends_when", "max_events", "starts_when"
MIDNIGHT, CHANGES_OF, MAX_DURATION = "midnight", "changes_of", "max_duration"
REASONS = (ENDS_WHEN, MAX_EVENTS, STARTS_WHEN, MIDNIGHT, CHANGES_OF, MAX_DURATION)
CUT = "cut"  # the part that says which, as its number
DAY_OF = "day"
Parts = Callable[[str], Column]


@dataclass(frozen=True)
class Content:
    """What of a single event matters: columns over rows of the source. starts, ends: true or false, where asked for."""

    starts: Column | None
    ends: Column | None
    values: tuple[Column, ...]

    def struct(self, rule: Rule) -> Column:
        """All of it, the time, and the day where it matters."""
        day = None if rule.cut_at is None else local_day(C.col(C.US), rule)
        told = {C.US: C.col(C.US), STARTS_WHEN: self.starts, ENDS_WHEN: self.ends, DAY_OF: day}
        told |= {f"v{i}": value for i, value in enumerate(self.values)}
        return F.struct(*[column.alias(name) for name, column in told.items() if column is not None])


@dataclass(frozen=True)
class _Part:
    name: str
    partial: Callable[[Column], Column]
    merge: Callable[[Column], Column]


def content_of(rule: Rule, events: DataFrame) -> Content:
    """What the rule asks of events. In: for the columns of the source. Errors: ConfigError, SourceMismatch."""
    values = tuple(_value(text, events) for text in rule.changes_of)
    return Content(
        _condition(rule.starts_when, events, STARTS_WHEN), _condition(rule.ends_when, events, ENDS_WHEN), values
    )


def facts_of_content(rule: Rule, events: DataFrame) -> Aggregate:
    """What partials and live rows tell, as an aggregate that has no column of its own."""
    parts = _parts(rule)
    triple = Triple(
        tuple(part.name for part in parts),
        lambda value, over: [over(part.partial(value)) for part in parts],
        lambda columns, over: [over(part.merge(c)) for part, c in zip(parts, columns, strict=True)],
        lambda columns: [],
    )
    value = content_of(rule, events).struct(rule)
    return Aggregate(C.STATE_BOUNDARIES, (), value, triple, tuple(part_column(part.name) for part in parts))


def part_column(name: str) -> str:
    """The column of a part, in flight."""
    return f"__boundary_{name}"


def _parts(rule: Rule) -> list[_Part]:
    def time(v: Column, where: Column) -> Column:
        return F.when(where, v[C.US])

    found = [_Part(CUT, lambda v: F.max(F.lit(None).cast("int")), F.max)]
    if rule.starts_when is not None:
        found += [
            _Part("starts", lambda v: F.count_if(v[STARTS_WHEN]), F.sum),
            _Part("first_other", lambda v: F.min(time(v, ~v[STARTS_WHEN])), F.min),
        ]
    if rule.ends_when is not None:
        found += [
            _Part("ends", lambda v: F.count_if(v[ENDS_WHEN]), F.sum),
            _Part("last_other", lambda v: F.max(time(v, ~v[ENDS_WHEN])), F.max),
        ]
    if rule.cut_at is not None:  # where clocks go back over midnight, the last event may lie in the day of the first
        found += [
            _Part("least_day", lambda v: F.min(v[DAY_OF]), F.min),
            _Part("most_day", lambda v: F.max(v[DAY_OF]), F.max),
        ]
    for i, _ in enumerate(rule.changes_of):
        found += [
            _Part(f"least{i}", lambda v, i=i: F.min(v[f"v{i}"]), F.min),  # type: ignore[misc]
            _Part(f"most{i}", lambda v, i=i: F.max(v[f"v{i}"]), F.max),  # type: ignore[misc]
        ]
    return found


def must_be_cut(rule: Rule, part: Parts, start: Column, end: Column, count: Column) -> Column:
    """Whether what lies within the reach of each other is, or may be, more than one session.

    part: a merged part by its name. Where two events of one time are in doubt, their order is to tell.
    """
    found = [] if rule.max_duration is None else [end - start > rule.max_duration]
    if rule.by_content:
        found.append(part(CUT).isNotNull())
    if rule.starts_when is not None:
        found += [part("starts") > 1, (part("starts") == 1) & (part("first_other") <= start)]
    if rule.ends_when is not None:
        found += [part("ends") > 1, (part("ends") == 1) & (part("last_other") >= end)]
    found += [part(f"least{i}") != part(f"most{i}") for i, _ in enumerate(rule.changes_of)]
    if rule.max_events is not None:
        found.append(count > rule.max_events)
    if rule.cut_at is not None:
        found.append(part("least_day") != part("most_day"))
    return reduce(or_, [F.coalesce(one, F.lit(False)) for one in found], F.lit(False))


def is_to_cut(rule: Rule) -> Column:
    """The same of partials, or of merged ones."""
    return must_be_cut(rule, lambda name: C.col(part_column(name)), C.col(C.START), C.col(C.END), C.col(C.COUNT))


def end_by_content(rule: Rule, count: Column) -> list[tuple[str, Column]]:
    """Why a session has ended, but for its gap: reasons, each with whether it holds, over merged sessions."""
    found: list[tuple[str, Column]] = []
    if rule.ends_when is not None:
        found.append((ENDS_WHEN, C.col(part_column("ends")) > 0))
    if rule.max_events is not None:
        found.append((MAX_EVENTS, count >= rule.max_events))
    if rule.by_content:
        found += [(reason, C.col(part_column(CUT)) == number_of(reason)) for reason in REASONS[2:5]]
    return found


def salt_of(population: Column | None, ahead: Column | None) -> Column:
    """What ids of sessions hash beside key and start, where these do not tell them apart; null: nothing.

    population: the run of late events apart. ahead: how many events of its time come before the first of a session.
    """
    salts = []
    if population is not None:
        salts.append(F.when(population.isNotNull(), F.concat(F.lit("late#"), population.cast("string"))))
    if ahead is not None:
        salts.append(F.when(ahead > 0, F.concat(F.lit("+"), ahead.cast("string"))))
    salt = F.concat_ws("", *salts)
    return F.when(salt != "", salt)


def with_cut(
    sessions: DataFrame, rule: Rule, within: tuple[str, ...], is_beyond: Callable[[Column, Column], Column]
) -> DataFrame:
    """Sessions of islands with what the next one tells: why it has begun before their reach.

    is_beyond: of a start, and a reach.
    """
    following = Window.partitionBy(*C.cols(within)).orderBy(C.ISLAND)
    start, why = (F.lead(C.col(name)).over(following) for name in (C.START, C.WHY))
    if rule.max_events is not None:
        is_full = (C.col(C.COUNT) >= rule.max_events) & (why != number_of(ENDS_WHEN))
        why = F.when(is_full, number_of(MAX_EVENTS)).otherwise(why)
    return sessions.withColumn(part_column(CUT), F.when(~is_beyond(start, C.col(C.REACH)), why))


def number_of(reason: str) -> Column:
    """A reason in flight, and in a live row's state: as a text it would have partials sorted. INT."""
    return F.lit(REASONS.index(reason) + 1)


def local_day(us: Column, rule: Rule) -> Column:
    """The day, since the epoch, in the rule's zone."""
    if rule.time_zone == "UTC":
        return floor_div(us, DAY).cast("int")
    told = F.greatest(F.least(us, F.lit(2**63 - 1 - DAY)), F.lit(DAY - 2**63))  # no zone is a day away
    return F.unix_date(F.from_utc_timestamp(F.timestamp_micros(told), rule.time_zone).cast("date"))


def _condition(text: str | None, events: DataFrame, name: str) -> Column | None:
    if text is None:
        return None
    value, _ = condition_of_event(text, events, f"session.{name}", "event = 'login'")
    return F.coalesce(value, F.lit(False))


def _value(text: str, events: DataFrame) -> Column:
    value, _ = of_event(text, events, "session.changes_of")
    kind = events.select(value.alias("v")).schema["v"].dataType
    if not is_ordered(kind):
        raise ConfigError(
            f"session.changes_of must name values that can be compared, and this is {kind.simpleString().upper()}",
            value=text,
            remedy="name a part of it, or write to_json(…) around it",
        )
    if not is_storable(kind):
        raise ConfigError(
            "session.changes_of must name values that a Delta table can hold, as live sessions do, and this is "
            f"{kind.simpleString().upper()}",
            value=text,
            remedy="cast it, or write a difference of times as unix_micros(…) - unix_micros(…)",
        )
    return value
