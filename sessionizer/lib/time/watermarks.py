"""Watermark, horizon and flush mark: what time it is for the events (SEMANTICS §4)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.compute import Compute
from sessionizer.lib.durations import EVER
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import steady

CANDIDATE, MARK = "__candidate", "__mark"
OF_SCOPE = (C.SCOPE_WATERMARK, C.SCOPE_FLUSH_MARK, C.SCOPE_FLUSHED_FROM)


@dataclass(frozen=True)
class WatermarkOverride:
    """What a person asks of the clock beyond what the events say."""

    advance_to: int | None = None
    flush: bool = False


@dataclass(frozen=True)
class SourceTime:
    """Where one of several sources stands. Microseconds; None = no event has come yet.

    latest: the event time that it has come to. came_at: the wall clock of the last run that has read an event of it,
    or has left some of it unread; before that of the first run of all.
    """

    latest: int | None
    came_at: int


@dataclass(frozen=True)
class WatermarkState:
    """Where time stands. Everything is microseconds since the epoch, UTC; None = not known yet.

    now: the run's wall clock, for events from the future and for idle sessions alone.
    watermark: older events are no longer expected.
    flush_mark: a lower bound of the horizon that a flush has set.
    flushed_from: the watermark just before a flush of this very run, which names what the flush ended.
    scopes: the same three for each scope where `watermark.per` is not the table: the scope's columns and
    `OF_SCOPE`. None: no scope is known yet, or each key's clock lies on its live rows (per: key).
    run_seq: the number of the run, which ids of sessions outside the promise of order hold (SEMANTICS §6).
    forgotten: what ended before it has been forgotten for good, and no horizon is earlier (SEMANTICS §5).
    ends_no_key: for want of events, as it stands still in a look back, or some are there that no run has read.
    sources: where each of several stands, by name; one alone is not told apart. delay: by which the watermark has
    stayed behind them.
    """

    now: int
    watermark: int | None = None
    flush_mark: int | None = None
    flushed_from: int | None = None
    scopes: DataFrame | None = None
    run_seq: int = 0
    forgotten: int | None = None
    ends_no_key: bool = False
    sources: Mapping[str, SourceTime] = field(default_factory=dict)
    delay: int = 0

    def horizon(self, rule: Rule) -> int | None:
        """Events strictly older than this are late: max(watermark - allowed lateness, flush mark)."""
        by_watermark = None if self.watermark is None else self.watermark - rule.allowed_lateness
        return latest(by_watermark, self.flush_mark)

    def awaiting(self, names: Collection[str]) -> "WatermarkState":
        """The same where these sources and no key are idle, as something of them is there that no run has read."""
        waited_for = {name: replace(of, came_at=self.now) for name, of in self.sources.items() if name in names}
        return replace(self, sources={**self.sources, **waited_for}, ends_no_key=bool(names))


def with_clock(frame: DataFrame, rule: Rule, clock: WatermarkState, beside: Column | None = None) -> DataFrame:
    """The rows with `__watermark`, `__horizon`, `__flush_mark`, `__flushed_from` of their scope; null = not known.

    beside: a column that may be null, to have them as data (`times.steady`) where they would be literals.
    """
    timed = _of_scope(frame, rule, clock, beside)
    if clock.forgotten is None:
        return timed
    return timed.withColumn(C.H, F.greatest(C.col(C.H), steady(clock.forgotten, beside)))


def _of_scope(frame: DataFrame, rule: Rule, clock: WatermarkState, beside: Column | None) -> DataFrame:
    scopes = clock.scopes
    if not rule.scope or scopes is None:
        times = {
            C.W: clock.watermark,
            C.H: clock.horizon(rule),
            C.MARK: clock.flush_mark,
            C.FLUSHED: clock.flushed_from,
        }
        return frame.withColumns({n: steady(None if rule.scope else us, beside) for n, us in times.items()})
    named = scopes.select(
        *C.cols(rule.scope),
        C.col(C.SCOPE_WATERMARK).alias(C.W),
        F.greatest(C.col(C.SCOPE_WATERMARK) - rule.allowed_lateness, C.col(C.SCOPE_FLUSH_MARK)).alias(C.H),
        C.col(C.SCOPE_FLUSH_MARK).alias(C.MARK),
        C.col(C.SCOPE_FLUSHED_FROM).alias(C.FLUSHED),
    )
    return joined(frame, named if rule.watermark_per == "key" else F.broadcast(named), rule.scope, "left")


def advance(clock: WatermarkState, earliest_event: int | None, latest_event: int | None, rule: Rule) -> WatermarkState:
    """The clock after a run that saw valid events between these two times (both inclusive, late ones too).

    >>> rule = Rule(key=(), gap=1, watermark_delay=5)
    >>> advance(WatermarkState(now=0, watermark=10), 3, 20, rule).watermark
    15
    >>> advance(WatermarkState(now=0, watermark=10), 3, 4, rule).watermark
    10
    """
    candidate = earliest_event if rule.watermark_from == "min_event_time" else latest_event
    return advance_to(clock, None if candidate is None else candidate - rule.watermark_delay)


def advance_each(clock: WatermarkState, edges: Mapping[str, int | None], rule: Rule) -> WatermarkState:
    """The clock after a run that saw valid events of several sources; edges: as far as each of these came.

    The watermark follows the source that is furthest behind. One without an event for longer than
    `watermark_idle_after`, by the wall clock of the runs, is left out; one that has never had any holds it until then.
    A delay that is shorter than it was moves it with the next event.

    >>> rule = Rule(key=(), gap=1, sources=("a", "b"), watermark_idle_after=10)
    >>> first = advance_each(WatermarkState(now=0), {"a": 20}, rule)
    >>> first.watermark, advance_each(replace(first, now=5), {"b": 7}, rule).watermark
    (None, 7)
    >>> advance_each(replace(first, now=11), {"a": 30}, rule).watermark
    30
    """
    each = {name: _after(clock.sources.get(name), edges.get(name), clock.now) for name in rule.sources}
    idle = rule.watermark_idle_after
    waited_for = [of.latest for of in each.values() if idle is None or clock.now - of.came_at <= idle]
    came = any(us is not None for us in edges.values())
    delay = rule.watermark_delay if came else max(rule.watermark_delay, clock.delay)
    moved, known = replace(clock, sources=each, delay=delay), [us for us in waited_for if us is not None]
    if not known or len(known) < len(waited_for):
        return moved
    return advance_to(moved, min(known) - delay)


def _after(before: SourceTime | None, edge: int | None, now: int) -> SourceTime:
    """Where a source stands after a run: it never goes back."""
    if edge is None:
        return SourceTime(None, now) if before is None else before
    return SourceTime(latest(None if before is None else before.latest, edge), now)


def edges(rule: Rule) -> list[Column]:
    """Aggregates over events with `__us`: of each of several sources, how far it has come."""
    us, edge = C.col(C.US), _edge_of(rule)
    return [edge(F.when(C.col(C.SOURCE) == name, us)).alias(f"{C.EDGE}{n}") for n, name in enumerate(rule.sources)]


def latest_edges(rule: Rule, counts: Column) -> dict[str, Column]:
    """The same over partials that have them, by name; of those for which this holds."""
    edge = _edge_of(rule)
    return {f"{C.EDGE}{n}": edge(F.when(counts, F.col(f"{C.EDGE}{n}"))) for n, _ in enumerate(rule.sources)}


def _edge_of(rule: Rule) -> Callable[[Column], Column]:
    return F.min if rule.watermark_from == "min_event_time" else F.max


def advance_to(clock: WatermarkState, watermark: int | None) -> WatermarkState:
    """The clock with at least this watermark; it never goes back."""
    return replace(clock, watermark=latest(clock.watermark, watermark))


def flush(clock: WatermarkState, latest_reach: int | None) -> WatermarkState:
    """The clock 1 µs past every reach, so that every session ends and is final; no session, no change."""
    if latest_reach is None:
        return clock
    mark = latest(clock.flush_mark, latest_reach + 1)
    before = -EVER if clock.watermark is None else clock.watermark  # where nothing was known, all is ended by hand
    return replace(advance_to(clock, mark), flush_mark=mark, flushed_from=before)


def advance_scopes(  # noqa: PLR0913
    clock: WatermarkState,
    valid: DataFrame,
    reaches: DataFrame | None,
    rule: Rule,
    *,
    override: WatermarkOverride,
    compute: Compute,
) -> WatermarkState:
    """The clock of every scope after a run: what `advance`, `advance_to` and `flush` do, for each by itself.

    In: partials of this run's valid events (`__start`, `__end`), late ones too; `__reach` of all that a flush ends,
    None without a flush.
    """
    none = dict.fromkeys((*OF_SCOPE[:2], MARK), F.lit(None).cast("bigint"))
    edge = F.min(C.col(C.START)) if rule.watermark_from == "min_event_time" else F.max(C.col(C.END))
    by_scope = C.cols(rule.scope)
    rows = valid.groupBy(*by_scope).agg((edge - rule.watermark_delay).alias(CANDIDATE)).withColumns(none)
    if clock.scopes is not None:
        rows = rows.unionByName(clock.scopes.select(*by_scope, *OF_SCOPE[:2]), allowMissingColumns=True)
    if reaches is not None:
        marks = reaches.groupBy(*by_scope).agg((F.max(C.col(C.REACH)) + 1).alias(MARK))
        rows = rows.unionByName(marks, allowMissingColumns=True)
    known = rows.groupBy(*by_scope).agg(*[F.max(C.col(n)).alias(n) for n in (CANDIDATE, *none)])
    pushed = F.lit(override.advance_to).cast("bigint")
    # `greatest` skips nulls.
    before_flush = F.greatest(C.col(C.SCOPE_WATERMARK), F.col(CANDIDATE), pushed)
    scopes = known.select(
        *by_scope,
        F.greatest(before_flush, F.col(MARK)).alias(C.SCOPE_WATERMARK),
        F.greatest(C.col(C.SCOPE_FLUSH_MARK), F.col(MARK)).alias(C.SCOPE_FLUSH_MARK),
        F.when(F.col(MARK).isNotNull(), F.coalesce(before_flush, F.lit(-EVER))).alias(C.SCOPE_FLUSHED_FROM),
    )
    return replace(clock, scopes=scopes if rule.watermark_per == "key" else as_literals(scopes, compute))


def clocks_of_keys(live: DataFrame | None, final: DataFrame | None, events: DataFrame, rule: Rule) -> DataFrame | None:
    """The scopes of `per: key`, as live rows keep them.

    A key without live rows is forgotten; when it comes back, its horizon is 1 µs past the latest `expires_at` of
    its final rows. These are looked up for the keys of these events alone.
    """
    by_key = C.cols(rule.key)
    found = []
    if live is not None:
        state = C.col(C.STATE)
        found.append(
            live.select(
                *by_key,
                state[C.STATE_WATERMARK].alias(C.SCOPE_WATERMARK),
                state[C.STATE_FLUSH_MARK].alias(C.SCOPE_FLUSH_MARK),
            )
        )
    if final is not None:
        keys = events.select(*by_key).distinct()
        past = joined(final.where(~C.col(C.IS_LATE)), keys, rule.key, "left_semi")
        after = F.unix_micros(C.col(C.EXPIRES_AT)) + 1
        found.append(
            past.select(*by_key, F.lit(None).cast("bigint").alias(C.SCOPE_WATERMARK), after.alias(C.SCOPE_FLUSH_MARK))
        )
    if not found:
        return None
    rows = found[0] if len(found) == 1 else found[0].unionByName(found[1])
    return rows.groupBy(*by_key).agg(
        F.max(C.SCOPE_WATERMARK).alias(C.SCOPE_WATERMARK),
        F.max(C.SCOPE_FLUSH_MARK).alias(C.SCOPE_FLUSH_MARK),
        F.lit(None).cast("bigint").alias(C.SCOPE_FLUSHED_FROM),
    )


def latest(*times: int | None) -> int | None:
    """The latest of the times that are known."""
    return max((t for t in times if t is not None), default=None)


def as_literals(scopes: DataFrame, compute: Compute) -> DataFrame:
    """The scopes as literal rows: there are few, and later steps must not compute them again.

    Times and dates pass through Python as numbers: it has none before year 1, and tells others by its own zone.
    """
    numbers = scopes.select(*[_as_number(C.col(f.name), f.dataType).alias(f.name) for f in scopes.schema])
    rows = scopes.sparkSession.createDataFrame(compute.rows(numbers), T.StructType(numbers.schema.fields))
    return rows.select(*[_from_number(C.col(f.name), f.dataType).alias(f.name) for f in scopes.schema])


def _as_number(value: Column, kind: T.DataType) -> Column:
    match kind:
        case T.DateType():
            return F.unix_date(value)
        case T.TimestampType() | T.TimestampNTZType():
            return F.unix_micros(value.cast(T.TimestampType()))
    return value


def _from_number(value: Column, kind: T.DataType) -> Column:
    match kind:
        case T.DateType():
            return F.date_from_unix_date(value)
        case T.TimestampType() | T.TimestampNTZType():
            return F.timestamp_micros(value).cast(kind)
    return value
