"""Watermarks as manifests keep them, those of scopes as text; and keys as text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.kinds import Kind
from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import as_type, is_widened
from sessionizer.lib.canonical import JSON_OPTIONS, READING_OPTIONS, from_text
from sessionizer.lib.durations import EVER
from sessionizer.lib.errors import UsageError
from sessionizer.lib.expressions import with_keys
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import OF_SCOPE, WatermarkOverride, WatermarkState, as_literals, latest
from sessionizer.tables.manifest import Manifest

MOST_TOLD = 100_000  # scopes of runs that are looked at again


def scopes_as_json(scopes: DataFrame) -> tuple[str, ...]:
    """Each scope with its times as one line of JSON, in order."""
    kept = [n for n in scopes.columns if n != C.SCOPE_FLUSHED_FROM]
    rows = scopes.select(F.to_json(F.struct(*C.cols(tuple(kept))), JSON_OPTIONS).alias("line"))
    return tuple(sorted(row["line"] for row in Checkpoints().rows(rows)))


def scopes_from_json(lines: tuple[str, ...], rule: Rule, events: DataFrame) -> DataFrame:
    """What `scopes_as_json` has written; `events` tells the types of the scope's columns."""
    times = [T.StructField(name, T.LongType()) for name in OF_SCOPE]
    schema = T.StructType([*_scope_columns(rule, events), *times])
    rows = events.sparkSession.createDataFrame([(line,) for line in lines], "line STRING")
    parsed = rows.select(F.from_json("line", schema, READING_OPTIONS).alias("scope")).select("scope.*")
    return as_literals(parsed, Checkpoints())


def horizons_of_scopes(
    runs: Sequence[Manifest], rule: Rule, events: DataFrame
) -> tuple[frozenset[int], DataFrame | None]:
    """The runs that tell the horizons of all their scopes, by which they have judged; and these horizons.

    In: runs, the newest first. Out: run_seq, the scope's columns, its mark; None: there are none.
    """
    told = [(run.run_seq, run.scopes_before) for run in runs if run.scopes_before is not None and rule.scope]
    told = told[: sum(number <= MOST_TOLD for number in accumulate(len(lines) for _, lines in told))]
    known = frozenset(number for number, _ in told)
    if not (lines := [(number, line) for number, of in told for line in of]):
        return known, None
    schema = T.StructType([*_scope_columns(rule, events), T.StructField(C.SCOPE_FLUSH_MARK, T.LongType())])
    rows = events.sparkSession.createDataFrame(lines, f"{C.RUN_SEQ} BIGINT, line STRING")
    parsed = rows.select(C.RUN_SEQ, F.from_json("line", schema, READING_OPTIONS).alias("scope"))
    return known, parsed.select(C.RUN_SEQ, "scope.*")


def _scope_columns(rule: Rule, events: DataFrame) -> list[T.StructField]:
    return with_keys(events, rule.made).select(*C.cols(rule.scope)).schema.fields


def keys_from_json(lines: Sequence[str], rule: Rule, events: DataFrame) -> DataFrame:
    """Keys, one JSON object of the key columns each, as rows; `events` tells their types.

    Errors: UsageError for a value that is not of its column's type.
    """
    types = with_keys(events, rule.made).select(*C.cols(rule.key)).schema.fields
    texts = T.StructType([T.StructField(f.name, T.StringType()) for f in types])
    rows = events.sparkSession.createDataFrame([(line,) for line in lines], "line STRING")
    parsed = rows.select(F.from_json("line", texts, READING_OPTIONS).alias("key")).select("key.*")
    for f in types:
        misfit = parsed.where(C.col(f.name).isNotNull() & from_text(C.col(f.name), f.dataType).isNull())
        for row in Checkpoints().rows(misfit.select(C.col(f.name)).limit(1)):
            raise UsageError(
                f"a key must be of the type of its column: {f.name} is {f.dataType.simpleString().upper()}",
                value=row[0],
            )
    return parsed.select(*[from_text(C.col(f.name), f.dataType).alias(f.name) for f in types]).distinct()


def clock_of_sources(done: Manifest, now: int) -> WatermarkState:
    """Where each of several sources stands, and no more."""
    return WatermarkState(now, sources=done.times_of_sources("after"), delay=done.policy.get("watermark_delay", 0))


def clock_of(done: Manifest | None, kind: Kind, events: DataFrame, now: int, number: int) -> WatermarkState:
    """The watermarks as the last run has left them. The horizon never goes back, even if more lateness is allowed."""
    if done is None:
        return WatermarkState(now, run_seq=number)
    clock = replace(clock_of_sources(done, now), run_seq=number, forgotten=done.forgotten)
    if kind.rule.scope:
        return scoped(clock, done.scopes_after, kind.rule, events) if has_scopes_of(done, kind) else clock
    return replace(clock, watermark=done.watermark_after, flush_mark=latest(done.flush_mark_after, done.horizon_after))


def as_keyed_now(
    tables: tuple[DataFrame | None, DataFrame | None], events: DataFrame, rule: Rule
) -> tuple[DataFrame | None, DataFrame | None] | None:
    """Rows of the table with their keys of the types that those of events have now; None where they are no wider."""

    def typed(rows: DataFrame | None) -> DataFrame | None:
        return None if rows is None else rows.withColumns({n: as_type(C.col(n), *both) for n, both in kinds.items()})

    wanted = events.select(*C.cols(rule.key)).schema
    there = next((rows.select(*C.cols(rule.key)).schema for rows in tables if rows is not None), wanted)
    kinds = {name: (one.dataType, other.dataType) for name, one, other in zip(rule.key, there, wanted, strict=True)}
    kinds = {name: (then, now) for name, (then, now) in kinds.items() if then.simpleString() != now.simpleString()}
    if not kinds:
        return tables
    return (typed(tables[0]), typed(tables[1])) if all(is_widened(*both) for both in kinds.values()) else None


def has_scopes_of(done: Manifest | None, kind: Kind) -> bool:
    """Whether watermarks belonged to the same columns of the same source then; a rebuild may find others."""
    events = kind.tables.events
    if done is None or not events.goes_on(done, events.versions):
        return False
    return _scope_of(done.rule) == _scope_of(kind.summary)


def _scope_of(summary: Mapping[str, Any]) -> tuple[object, list[object]]:
    """What watermarks belong to: of key columns by name those that an expression makes, of whole keys all."""
    per, key = summary.get("watermark_per"), summary.get("key", ())
    return per, [one for one in key if per == "key" or (not isinstance(one, str) and one["name"] in (per or ()))]


def scoped(clock: WatermarkState, scopes: tuple[str, ...] | None, rule: Rule, events: DataFrame) -> WatermarkState:
    """The watermarks with those of scopes, where there are any."""
    return replace(clock, scopes=scopes_from_json(scopes, rule, events)) if scopes and rule.scope else clock


def moves(asked: WatermarkOverride, clock: WatermarkState) -> bool:
    """Whether more is asked of the watermark, of any scope, than it is."""
    if asked.flush or asked.advance_to is None:
        return asked.flush
    if clock.scopes is None:
        return clock.watermark is None or asked.advance_to > clock.watermark
    known = F.coalesce(C.col(C.SCOPE_WATERMARK), F.lit(-EVER))
    return not clock.scopes.where(known < asked.advance_to).isEmpty()
