"""The change rows of a run of sliding windows, judged and folded: what `slide` recomputes windows for."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import AMENDED, CORRECTED, LATE, REASONS, WITHDRAWN, validate
from lib.aggregates.binding import Aggregate, bind
from lib.bags import HASH, hashed, netted
from lib.computed import computed
from lib.time.watermarks import WatermarkState, with_clock
from lib.windows.sliding.places import OLD
from lib.windows.sliding.rule import SlidingRule
from lib.windows.sliding.windows import points, truncated

ANYWAY = (AMENDED, CORRECTED)  # accepted whatever the horizon; all windows that they concern are recomputed
RAW = "__raw"  # the event time before it was truncated


@dataclass(frozen=True)
class News:
    """The change rows of a run, judged one by one.

    judged: source rows with `__us` (truncated), `__verdict`, `__watermark`, `__horizon`; computed when it is read.
    points: held; a row for each key, time and verdict. counts: source rows by verdict, `in_time` for those that have
    none. earliest, latest: of all valid events. span: first and last time that windows may change by; None: no such.
    """

    judged: DataFrame
    points: DataFrame
    aggregates: tuple[Aggregate, ...]
    counts: Mapping[str, int]
    earliest: int | None
    latest: int | None
    span: tuple[int, int] | None

    @property
    def recomputes_final(self) -> bool:
        """Whether final windows may change too."""
        return any(self.counts[verdict] for verdict in (*ANYWAY, WITHDRAWN))


def take_in(feed: DataFrame, rule: SlidingRule, clock: WatermarkState) -> News:
    """Judge the rows of a source or of its change feed, and fold them by key and time; they are read once.

    An event strictly older than the horizon is `late`; with `lateness: session` it is `old`, and the windows that it
    would enter decide.
    """
    aggregates = bind(rule.events, feed)
    judged = judge(feed, rule, clock)
    held, seen = computed(fold(judged, rule, aggregates), _news_columns())
    if seen[WITHDRAWN]:
        judged = netted(hashed(judged)).drop(HASH)
        held, seen = computed(fold(judged, rule, aggregates), _news_columns())
    first, last = seen["first"], seen["last"]
    return News(
        judged,
        held,
        aggregates,
        counts={name: seen[name] or 0 for name in ("in_time", OLD, WITHDRAWN, *ANYWAY, *REASONS)},
        earliest=seen["earliest"],
        latest=seen["latest"],
        span=None if first is None or last is None else (first, last),
    )


def events_span(news: News, rule: SlidingRule) -> tuple[int, int] | None:
    """Between which event times (inclusive) lie all events that windows of the news may hold."""
    return news.span and (news.span[0] - rule.reach, news.span[1] + rule.reach + rule.unit - 1)


def starts_span(news: News, rule: SlidingRule) -> tuple[int, int] | None:
    """Between which times (inclusive) start all windows that the news may change."""
    return news.span and (news.span[0] - rule.difference, news.span[1] + rule.unit)


def judge(feed: DataFrame, rule: SlidingRule, clock: WatermarkState) -> DataFrame:
    """Source rows with their time, as it is and truncated, their verdict, and the clock that gave it."""
    valid = validate(feed, rule.events, clock).withColumn(RAW, C.col(C.US))
    timed = with_times(valid.withColumn(C.US, truncated(C.col(C.US), rule)), rule, clock, C.W, C.H)
    older = C.col(C.VERDICT).isNull() & (C.col(C.US) < C.col(C.H))
    verdict = AMENDED if rule.amends else LATE if rule.lateness == "event" else OLD
    return timed.withColumn(C.VERDICT, F.when(older, verdict).otherwise(C.col(C.VERDICT)))


def fold(judged: DataFrame, rule: SlidingRule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Points of judged rows, apart by verdict."""
    return points(judged, rule, aggregates, by=(C.VERDICT, C.H))


def with_times(rows: DataFrame, rule: SlidingRule, clock: WatermarkState, *columns: str) -> DataFrame:
    """The rows with these columns of their scope's clock."""
    return with_clock(rows, rule.events, clock).select(*C.cols((*rows.columns, *columns)))


def _news_columns() -> dict[str, Column]:
    """Aggregate columns over points for `News`."""
    verdict, n, t = C.col(C.VERDICT), C.col(C.COUNT), C.col(C.US)
    valid = verdict.isNull() | verdict.isin(LATE, OLD, *ANYWAY)
    changing = (verdict.isNull() | verdict.isin(OLD, WITHDRAWN, *ANYWAY)) & t.isNotNull()
    return {
        "in_time": F.sum(F.when(verdict.isNull(), n)),
        **{name: F.sum(F.when(verdict == name, n)) for name in (OLD, WITHDRAWN, *ANYWAY, *REASONS)},
        "earliest": F.min(F.when(valid, t)),
        "latest": F.max(F.when(valid, t)),
        "first": F.min(F.when(changing, t)),
        "last": F.max(F.when(changing, t)),
    }
