"""What ended long ago, forgotten for good: a run that takes final rows away and keeps in mind up to when."""

import json
from dataclasses import replace
from math import lcm

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.driver import going_on, lasting, repair
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.manifests import forgetting
from sessionizer.jobs.run.phases import Phases, Say, not_before
from sessionizer.jobs.run.retries import with_retries
from sessionizer.jobs.run.scopes import scopes_from_json
from sessionizer.lib import columns as C
from sessionizer.lib.durations import parse_duration
from sessionizer.lib.joins import joined
from sessionizer.tables.manifest import Manifest

FROM, TO, UP_TO = "__from", "__to", "__up_to"


def forget(kind: Kind, keep: int, now: int, say: Say, *, dry_run: bool = False) -> int:
    """Forget final rows that ended further behind the latest than this, in microseconds; how many they are.

    Rows and mark are one commit with a manifest: a RESTORE to before it brings both back. Never rows in the horizon.
    """

    def step() -> int:
        phases, position = Phases(), kind.home.position()
        if not dry_run:
            repair(kind, position, say)
        done = position.manifest
        if done is None or (before := _mark(kind, keep, done)) is None:
            return 0
        number = kind.home.ended(before).count()
        if dry_run or not number:
            return number
        position = lasting(kind, position)
        say(f"forgetting {number:,} {kind.name}")
        manifest = forgetting(kind, done, position, before=before, number=number, now=not_before(now, done))
        with phases("commit"):
            entry = kind.home.forget(before, manifest)
        with going_on(kind, say):
            with phases("side_tables"):
                side_tables.forget(kind, manifest)
            side_tables.enter(kind, manifest, phases.timing(entry))
        return number

    return with_retries(step, say, kind.name)


def _mark(kind: Kind, keep: int, done: Manifest) -> int | None:
    """Before which time rows have ended that are forgotten; None: there are none. It never goes back."""
    if (latest := kind.home.latest_end()) is None:
        return None
    mark = min([latest - keep, *horizons(kind, done), *_first(kind.home.live(), kind.home.layout.end)])
    if kind.name == "sessions":
        judged, rows = done.as_judged(kind.rule), kind.home.table.read()  # whatever the configuration says now
        if judged.freezes:  # which would take the events of those that are gone for its own
            amid = (C.col(C.SESSION_START) <= F.col(TO)) & (C.col(C.SESSION_END) >= F.col(FROM))
            mark = _untangled(rows.where(~C.col(C.IS_LATE)), mark, done.key, amid)
        if judged.by_content:  # whose id tells how many events of its time come before it
            mark = _untangled(rows.where(C.col(C.IS_LATE)), mark, done.key, C.col(C.SESSION_END) == F.col(FROM))
    mark -= mark % _unit(kind, done)  # an event is older than it whether its time is truncated or not
    return mark if done.forgotten is None else max(mark, done.forgotten)


def _unit(kind: Kind, done: Manifest) -> int:
    """Of times, by the configuration and by the rows, which may have another one."""
    told = done.rule.get("time_unit")
    return kind.rule.time_unit if told is None else lcm(kind.rule.time_unit, parse_duration(str(told)))


def without_horizon(kind: Kind, done: Manifest) -> list[int]:
    """The earliest start of a live session whose scope, or key, has no horizon, as backfills make them."""
    per, live = done.rule.get("watermark_per", "table"), kind.home.live()
    if per == "table":
        return []
    if per == "key":
        live = live.where(C.col(C.STATE)[C.STATE_FLUSH_MARK].isNull())
    elif tuple(per) == kind.rule.scope and done.scopes_after:
        known = scopes_from_json(done.scopes_after, replace(kind.rule, made=()), live)
        live = joined(live, known.where(C.col(C.SCOPE_FLUSH_MARK).isNotNull()), kind.rule.scope, "left_anti")
    return _first(live, C.SESSION_START)


def _first(rows: DataFrame, time: str) -> list[int]:
    """The earliest such time, if there are any rows: of a scope without a watermark, too."""
    first = rows.agg(F.unix_micros(F.min(C.col(time)))).collect()[0][0]
    return [] if first is None else [first]


def _untangled(rows: DataFrame, mark: int, key: tuple[str, ...], beside: Column) -> int:
    """The mark, or one so early that no row is forgotten beside one of its key that stays, from `__from` to `__to`."""
    expires = F.unix_micros(C.col(C.EXPIRES_AT))
    while True:
        ended = C.col(C.IS_FINAL) & (expires < mark)
        staying = rows.where(~ended).select(*C.cols(key), C.col(C.SESSION_START).alias(FROM), _reach().alias(TO))
        gone = rows.where(ended).select(*C.cols((*key, C.SESSION_START, C.SESSION_END)), expires.alias(UP_TO))
        (first,) = joined(gone, staying, key, "inner", beside).agg(F.min(UP_TO)).collect()[0]
        if first is None:
            return mark
        mark = first


def _reach() -> Column:
    """Up to when a row may hold events: a live one grows."""
    return F.when(C.col(C.IS_FINAL), C.col(C.SESSION_END)).otherwise(C.col(C.EXPIRES_AT))


def horizons(kind: Kind, done: Manifest) -> list[int]:
    """Those of all scopes that are known: what is in time in any of them is not forgotten."""
    if done.scopes_after:  # whatever the configuration says now
        found = [json.loads(line).get(C.SCOPE_FLUSH_MARK) for line in done.scopes_after]
    elif done.rule.get("watermark_per") == "key":
        least = F.min(C.col(C.STATE)[C.STATE_FLUSH_MARK])
        found = [kind.home.live().agg(least).collect()[0][0]]
    else:
        found = [done.horizon_after]
    return [horizon for horizon in found if horizon is not None]
