"""Sessions: live rows as intervals, islands as merged sessions."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates import Aggregate
from lib.rule import Rule

LIVE_FIELDS = (C.SESSION_ID, C.STATUS, C.END_REASON, C.SUPERSEDES)


def new_intervals(folded: DataFrame) -> DataFrame:
    """The accepted partials of `fold`, as intervals: its columns without the verdict."""
    accepted = folded.where(C.col(C.VERDICT).isNull())
    return accepted.drop(C.VERDICT)


def live_intervals(live: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Live rows of the sessions table, as intervals.

    Out: the columns of `new_intervals`, and `__live`, a struct of the row's id, status, end reason and trail.
    """
    return live.select(
        *C.cols(rule.key),
        F.unix_micros(C.col(C.SESSION_START)).alias(C.START),
        F.unix_micros(C.col(C.SESSION_END)).alias(C.END),
        C.col(C.EVENT_COUNT).alias(C.COUNT),
        *[part for a in aggregates for part in a.resume()],
        F.struct(*C.cols(LIVE_FIELDS)).alias(C.LIVE),
    )


def merge_islands(marked: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """One row per island: the union of its intervals.

    Out: the key columns, `__start`, `__end`, `__count`, the merged parts, `__absorbed` (the `__live` structs of
    the live rows in it) and `__fresh` BIGINT (its events that are new). Where no table was read, `__live` is not
    there, nothing is absorbed and everything is new.
    """
    types = {field.name: field.dataType for field in marked.schema.fields}
    merged = [part for a in aggregates for part in a.merge()]
    trail = (
        [
            F.collect_list(C.col(C.LIVE)).alias(C.ABSORBED),
            F.sum(F.when(C.col(C.LIVE).isNull(), C.col(C.COUNT)).otherwise(0)).alias(C.FRESH),
        ]
        if C.LIVE in types
        else []
    )
    sessions = marked.groupBy(*C.cols(rule.key), C.col(C.ISLAND)).agg(
        F.min(C.col(C.START)).alias(C.START),
        F.max(C.col(C.END)).alias(C.END),
        F.sum(C.col(C.COUNT)).alias(C.COUNT),
        *merged,
        *trail,
    )
    parts = [name for a in aggregates for name in a.part_columns]
    return sessions.select(
        *C.cols(rule.key),
        C.col(C.START),
        C.col(C.END),
        C.col(C.COUNT),
        *[C.col(name).cast(types[name]).alias(name) for name in parts],  # a sum of decimals widens at every merge
        *[C.col(name) for name in (C.ABSORBED, C.FRESH) if trail],
    )
