"""What the commit of a run says of itself."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.kinds import REJECTED, Kind, fence
from sessionizer.jobs.run.pipeline import NO_OVERRIDE, RunResult
from sessionizer.jobs.run.retelling import brought_back, left_behind
from sessionizer.jobs.run.scopes import scopes_as_json
from sessionizer.lib import __version__
from sessionizer.lib import columns as C
from sessionizer.lib.errors import ConfigError, TableError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import SourceTime, WatermarkState
from sessionizer.tables.delta import Commit, Superseded, Table
from sessionizer.tables.events import EventTable
from sessionizer.tables.increments import Increment
from sessionizer.tables.manifest import Consumed, Manifest, Read, Since, policy
from sessionizer.tables.position import Position
from sessionizer.tables.stitch.stitched import StitchedTable

MOST_SCOPES = 1000
SELDOM = ("duplicates", "amended", "corrected", "withdrawn", "forgotten", "moved", "readmitted")


def manifest_of(context: RunContext, result: RunResult, started_at: int) -> Manifest:
    """The manifest of this run."""
    position, increment, rule, kind = context.position, context.increment, context.rule, context.kind
    before, after, counts, override = context.clock, result.clock, result.events, context.override
    done = position.manifest if context.mode != "rebuild" else None
    comes = context.mode in ("run", "rebuild") and (counts.read or counts.readmitted)  # a freed copy, too
    came_at = None if position.manifest is None else position.manifest.events_came_at
    back = {} if done is None else brought_back(kind.tables.events, done, context.columns)
    live_before = 0 if done is None else done.live_sessions or 0
    asked = {"advance_to": override.advance_to, "flush": override.flush} if override != NO_OVERRIDE else {}
    return Manifest(
        run_id=_run_id(position),
        run_seq=position.version + 1,
        mode=context.mode,
        arguments={**asked, **context.arguments},
        product_version=__version__,
        home=None if kind.home.table.by_name else kind.home.table.id,
        side_tables=kind.side_table_ids(),
        **_consumed(context, after),
        source_files=increment.files,
        source_bytes=increment.bytes,
        sessions_version=position.version,
        now=before.now,
        events_came_at=before.now if comes else came_at,
        left_unread=bool(increment.more),
        started_at=started_at,
        watermark_before=before.watermark,
        watermark_after=after.watermark,
        horizon_before=before.horizon(rule),
        horizon_after=after.horizon(rule),
        flush_mark_before=before.flush_mark,
        flush_mark_after=after.flush_mark,
        scopes_before=_scopes(before, rule),
        scopes_after=_scopes(after, rule),
        forgotten=after.forgotten,
        policy=policy(rule) | ({"watermark_delay": after.delay} if rule.sources else {}),
        rule_fingerprint=kind.fingerprint,
        rule=kind.summary,
        filled={spec.name: _since(spec.name, context) for spec in rule.aggregates},
        left=left_behind(context.evolved.left, done, context.columns, back),
        source_schema=context.schema,
        # They are told before the commit, so that what cannot be told stops the run and not what follows it.
        retold=context.tells_anew and context.rejects() is not None,
        events={
            "events_read": counts.read,
            "accepted": counts.accepted,
            "late": counts.late,
            "invalid": counts.invalid,
            **{name: n for name in SELDOM if (n := getattr(counts, name))},
        },
        rejected=counts.rejected,
        sessions=result.counts,
        live_sessions=live_before + result.counts["live_change"] if result.counts else None,
    )


def _consumed(context: RunContext, after: WatermarkState) -> dict[str, Any]:
    """How far each source has been read; of one alone in the fields of its own."""
    before, events = context.clock.sources, context.kind.tables.events
    found = {
        name: Consumed(
            id=events.tables[name].id,
            from_version=one.first,
            to_version=one.last if one.last >= 0 else None,
            began=context.began.get(name),
            columns=context.columns.get(name, ""),
            stitch=_stitched_to(events.each[name], one),
            **_moment(before.get(name), "before"),
            **_moment(after.sources.get(name), "after"),
        )
        for name, one in context.increment.of.items()
    }
    if "" not in found:
        return {"source_id": "", "source_from_version": None, "source_to_version": None, "sources": found}
    names = ("id", "from_version", "to_version", "began", "columns", "stitch")
    return {f"source_{name}": getattr(found[""], name) for name in names}


def _stitched_to(source: EventTable, increment: Increment) -> Read | None:
    """How far its mapping table has been read."""
    if not isinstance(source, StitchedTable) or (to := increment.mapping) is None:
        return None
    return Read(id=source.mapping.table.id, from_version=to.first, to_version=to.last)


def _moment(of: SourceTime | None, moment: str) -> dict[str, int | None]:
    return {} if of is None else {f"latest_{moment}": of.latest, f"came_at_{moment}": of.came_at}


def _read_nothing(of: Consumed) -> Consumed:
    """The same after a run that has left the source alone."""
    stands = {"latest_before": of.latest_after, "came_at_before": of.came_at_after}
    stitch = None if of.stitch is None else of.stitch.passed()
    return of.passed().model_copy(update={"stitch": stitch, **stands})


def with_counts(manifest: Manifest, counts: Mapping[str, int]) -> Manifest:
    """The manifest of a run whose rows are all new, with what was counted as they were written."""
    return manifest.model_copy(update={"sessions": counts, "live_sessions": counts["live_change"]})


def forgetting(  # noqa: PLR0913
    kind: Kind, done: Manifest, position: Position, *, before: int, number: int, now: int
) -> Manifest:
    """The manifest of a run that only takes so many rows away, those that ended before this time; all else stands."""
    ids = kind.side_table_ids()
    times = {
        f"{name}_before": getattr(done, f"{name}_after") for name in ("watermark", "horizon", "flush_mark", "scopes")
    }
    return done.model_copy(
        update=times
        | {
            "run_id": _run_id(position),
            "run_seq": position.version + 1,
            "mode": "forget",
            "arguments": {"before": before},
            "product_version": __version__,
            # Those that the runs before have written to, and this one, too.
            "side_tables": {n: of for n, of in done.side_tables.items() if n == REJECTED or ids.get(n) == of},
            "source_from_version": None if done.sources else done.consumed[""].version + 1,
            "source_stitch": None if done.source_stitch is None else done.source_stitch.passed(),
            "sources": {name: _read_nothing(of) for name, of in done.sources.items()},
            "source_files": 0,
            "source_bytes": 0,
            "sessions_version": position.version,
            "now": now,
            "started_at": now,
            "forgotten": before,
            "retold": False,
            "events": {},
            "rejected": {},
            "sessions": {"rows": number, "deleted": number},
        }
    )


def stands(before: WatermarkState, after: WatermarkState) -> bool:
    """Whether no watermark has moved."""
    if before.scopes is not None and after.scopes is not None:
        return scopes_as_json(before.scopes) == scopes_as_json(after.scopes)
    return (before.watermark, before.flush_mark) == (after.watermark, after.flush_mark)


def _since(aggregate: str, context: RunContext) -> Since | None:
    """Since which run its column is filled; None: from the first row on."""
    done = context.position.manifest
    if aggregate in context.evolved.added:
        return Since(run_seq=context.position.version + 1, now=context.clock.now)
    return None if done is None or context.mode == "rebuild" else done.filled.get(aggregate)


def _run_id(position: Position) -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{position.version + 1:06d}-{secrets.token_hex(3)}"


def _scopes(clock: WatermarkState, rule: Rule) -> tuple[str, ...] | None:
    """The watermarks of scopes. No horizon goes back, even if more lateness is allowed: its mark is where it is."""
    if clock.scopes is None or rule.watermark_per == "key":
        return None
    mark = F.greatest(C.col(C.SCOPE_WATERMARK) - rule.allowed_lateness, C.col(C.SCOPE_FLUSH_MARK))
    lines = scopes_as_json(clock.scopes.withColumn(C.SCOPE_FLUSH_MARK, mark))
    if len(lines) > MOST_SCOPES:
        raise ConfigError(
            f"time.watermark.per must name columns with at most {MOST_SCOPES:,} different values",
            value=f"{', '.join(rule.scope)}: {len(lines):,} values",
            remedy="set per: table, or per: key, whose watermarks lie on the sessions themselves",
        )
    return lines


def check_is_last(kind: Kind, position: Position) -> None:
    """Raise where a table beside it has runs behind the last one: an older copy of the table lies in its place.

    What a RESTORE has undone, and bars from then on, is no such run: where the log tells of no RESTORE since the last
    run, there is nothing behind that, else nothing behind the version. Errors: TableError; Superseded where another
    process has gone on.
    """
    done, last = position.manifest, position.version
    if done is not None and position.restored is None and kind.home.table.entry(done.run_seq) is not None:
        last = done.run_seq
    beside, home = kind.roles(), kind.home.table.id
    if not (newer := [of.location for role, of in beside.items() if of.has_fence(Commit(fence(home, role), last + 1))]):
        return
    if kind.home.position().version > position.version:
        raise Superseded(f"{kind.name} has moved on since version {position.version}")
    raise TableError(
        f"the {kind.name} table is older than a table beside it, which has runs behind the last one",
        value=f"version {position.version}; {', '.join(newer)}",
        remedy="where a copy was brought back, those of the tables beside it must be of the same time: "
        f"{', '.join(table.location for table in beside.values())}. "
        f"Without them remove these, then `sessionizer init` and `sessionizer rebuild{kind.option}`",
    )


def of_runs(kind: Kind) -> list[Table]:
    """The tables beside it, but rejected_events where no run has written to it."""
    rejects, *others = kind.side_tables()
    return [rejects, *others] if kind.rejected_events.is_of_runs else others


def check_no_rows(kind: Kind, tables: list[Table]) -> None:
    """Raise where one of these has rows; the table of this kind knows of no run."""
    if full := [table for table in tables if table.size()[0]]:
        if kind.home.position().manifest is not None:
            raise Superseded("another process was faster")
        raise TableError(
            f"{', '.join(table.field for table in full)} must be empty, for {kind.name} know of no run: "
            "their log no longer reaches back to one, or they are a new table beside those of an old one",
            value=", ".join(table.location for table in full),
            remedy="remove the tables that have rows, or name others; then `sessionizer init`",
        )
