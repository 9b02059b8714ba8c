"""The manifest of a run: what a commit to `sessions` says of itself; the last one *is* the position."""

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.evolution import Evolution, by_name, columns_of, evolution
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import SourceTime

Mode = Literal["run", "backfill", "readmit", "rebuild", "verify", "forget"]
MARK = "sessionizer_run"
AGGREGATES = "aggregates"  # in the summary of a rule
POLICY = (
    *("watermark_from", "watermark_delay", "allowed_lateness", "lateness", "revive"),
    *("max_future_skew", "idle_after", "idle_clock", "late_events", "invalid_events"),
    *("corrections", "deletes", "erase_when"),
)
OF_STATES = ("watermark_delay", "allowed_lateness", "idle_after", "idle_clock")  # those that say when a row is what


class Since(BaseModel):
    """The run that has taken an aggregate up: its number, and its clock in microseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_seq: int
    now: int


class Read(BaseModel):
    """How far a table has been read: its id, and versions as `source_…` of a manifest has them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    from_version: int | None
    to_version: int | None

    @property
    def version(self) -> int:
        """The version that has been consumed; -1: none yet."""
        return -1 if self.to_version is None else self.to_version

    @property
    def is_passed(self) -> bool:
        """Whether the run has read none of it."""
        return self.from_version is not None and self.from_version > self.version

    def passed(self) -> Self:
        """The same after a run that has left it alone."""
        return self.model_copy(update={"from_version": self.version + 1})


class Consumed(Read):
    """How far a source has been read, and its mapping table.

    Of one among several: columns, and where it stood before the run and after it, event time and wall clock.
    """

    began: int | None = None
    columns: str = ""
    latest_before: int | None = None
    latest_after: int | None = None
    came_at_before: int | None = None
    came_at_after: int | None = None
    stitch: Read | None = None

    def first_unread(self, last: int) -> int:
        """The first version that no run has read; behind the last one of a source that waits: none of it has come."""
        return (last if self.to_version is None else self.to_version) + 1


class Manifest(BaseModel):
    """Everything that recomputing a run's outcome needs. Times: microseconds since the epoch, UTC."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    run_seq: int = Field(description="Version of sessions that was read + 1: the fence")
    mode: Mode = "run"
    arguments: Mapping[str, Any] = {}
    product_version: str
    home: str | None = Field(
        None, description="Id of its own table; None: a catalog has it, or an older release wrote it"
    )
    source_id: str
    side_tables: Mapping[str, str] = Field({}, description="Ids of rejected_events and the optional tables, by name")
    source_from_version: int | None = Field(description="First version read; None: all rows as of the last")
    source_to_version: int | None = Field(description="Last version consumed; None: nothing yet")
    source_began: int | None = Field(None, description="First version that any run has read; None: from the start")
    source_stitch: Read | None = Field(None, description="How far its mapping table has been read")
    sources: Mapping[str, Consumed] = Field(
        {}, description="Of several sources each by its name; then source_… is void"
    )
    source_files: int = 0
    source_bytes: int = 0
    sessions_version: int = Field(description="Version of sessions that was read")
    now: int
    events_came_at: int | None = Field(None, description="Clock of the last run that has read events")
    left_unread: bool = Field(False, description="More of the source was there than it read")
    started_at: int
    watermark_before: int | None
    watermark_after: int | None
    horizon_before: int | None
    horizon_after: int | None
    flush_mark_before: int | None
    flush_mark_after: int | None
    scopes_before: tuple[str, ...] | None = Field(None, description="Watermarks of scopes, each as JSON")
    scopes_after: tuple[str, ...] | None = None
    forgotten: int | None = Field(None, description="Final rows that ended before it are gone for good")
    policy: Mapping[str, Any] = Field(description="The parts of the rule that decide what is accepted, and when")
    rule_fingerprint: str
    rule: Mapping[str, Any]
    filled: Mapping[str, Since | None] = Field(
        {}, description="Aggregates in order, and since which run their columns are filled; none: from the first row on"
    )
    left: Mapping[str, Mapping[str, Any]] = Field(
        {}, description="Dropped aggregates whose columns are there still, with their definitions"
    )
    source_schema: str = Field(description="Hash of rule and source: while it stays, so do the sessions' columns")
    source_columns: str = Field("", description="Those of the source, as JSON, which rejected rows are told by")
    retold: bool = Field(False, description="Rejected rows were told anew: columns of the source have changed")
    events: Mapping[str, int]
    rejected: Mapping[str, int]
    sessions: Mapping[str, int] = Field(
        description="Counts; none: all rows are new, and were counted as they were written"
    )
    live_sessions: int | None = Field(description="Rows that are not final, after the run; None: not counted yet")

    def text(self) -> str:
        """The JSON that goes into the commit."""
        void = set() if self.sources else {"sources"}  # of one source a manifest reads as it always has
        void |= {"source_stitch"} if self.source_stitch is None else set()
        told = self.model_dump_json(exclude_defaults=False, by_alias=True, exclude=void)
        return told.replace("{", f'{{"kind":"{MARK}",', 1)

    @classmethod
    def parse(cls, text: str | None) -> "Manifest | None":
        """The manifest in a commit's metadata, or None where there is none."""
        if not text or MARK not in text:
            return None
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def told(self, name: str) -> int | None:
        """`watermark_after`, `horizon_before` and so on; where scopes have their own, of the one furthest behind."""
        scopes = self.scopes_before if name.endswith("_before") else self.scopes_after
        if not scopes:
            return getattr(self, name)  # type: ignore[no-any-return]
        field = C.SCOPE_WATERMARK if name.startswith("watermark") else C.SCOPE_FLUSH_MARK
        found = [json.loads(line).get(field) for line in scopes]
        return min((us for us in found if us is not None), default=None)

    def differs(self, summary: Mapping[str, Any]) -> list[str]:
        """Where a rule is not the one that the rows follow."""
        old = self.rule
        return [f"{k}: {old.get(k)!r} → {summary.get(k)!r}" for k in {**old, **summary} if old.get(k) != summary.get(k)]

    def follows(self, summary: Mapping[str, Any]) -> bool:
        """Whether a rule differs from that of the rows by nothing, or by its aggregates alone."""
        old, new = ({k: v for k, v in of.items() if k != AGGREGATES} for of in (self.rule, summary))
        return old == new

    def evolution(self, summary: Mapping[str, Any]) -> Evolution:
        """What becomes of the aggregates with a rule that follows this one."""
        return evolution(by_name(self.rule[AGGREGATES]), by_name(summary[AGGREGATES]), self.left)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns, those that SQL makes among them."""
        return tuple(entry if isinstance(entry, str) else entry["name"] for entry in self.rule["key"])

    def aggregates(self) -> tuple[Aggregate, ...]:
        """Those that the rows follow, in order."""
        of = by_name(self.rule[AGGREGATES])
        return tuple(Aggregate.model_validate(of[name]) for name in (self.filled or of))

    @property
    def consumed(self) -> Mapping[str, Consumed]:
        """How far each source has been read, by its name; the only one has none: ""."""
        if self.sources:
            return self.sources
        alone = Consumed(
            id=self.source_id,
            from_version=self.source_from_version,
            to_version=self.source_to_version,
            began=self.source_began,
            columns=self.source_columns,
            stitch=self.source_stitch,
        )
        return {"": alone}

    @property
    def columns(self) -> dict[str, str]:
        """Those of each source, as JSON."""
        return {name: of.columns for name, of in self.consumed.items()}

    @property
    def has_consumed(self) -> bool:
        """Whether any version of any source has been read, or passed over."""
        return any(of.to_version is not None for of in self.consumed.values())

    @property
    def read_no_events(self) -> bool:
        """Whether there was no version of a source to read."""
        return all(of.is_passed for of in self.consumed.values())

    @property
    def read_nothing(self) -> bool:
        """Whether there was none of a mapping table, either."""
        stitches = [of.stitch for of in self.consumed.values() if of.stitch is not None]
        return self.read_no_events and all(stitch.is_passed for stitch in stitches)

    @property
    def each_has_ended(self) -> bool:
        """Whether each key has a watermark of its own, and none has any session that lives."""
        return bool(self.rule.get("watermark_per") == "key" and self.live_sessions == 0)

    def called(self, names: Mapping[str, str], renamed: Set[str]) -> Self:
        """The same, its sources by other names. names: the old ones by the new ones; what has none keeps its own.

        renamed: the old ones that no longer say what they said.
        """
        if not renamed or "" in (*names, *self.consumed):
            return self

        def by_name(told: Mapping[str, Any]) -> dict[str, Any]:
            left = {f"-{old}" if old in renamed else old: of for old, of in told.items() if old not in names.values()}
            return left | {name: told[old] for name, old in names.items()}

        rule = {**self.rule, "sources": by_name(self.rule["sources"])}
        return self.model_copy(update={"sources": by_name(self.sources), "rule": rule})

    def by_units(self, time_unit: int) -> Self:
        """The same; what has been forgotten goes on to a whole unit, as an event is older whether truncated or not."""
        up = None if self.forgotten is None else -(-self.forgotten // time_unit) * time_unit
        return self if up == self.forgotten else self.model_copy(update={"forgotten": up})

    def times_of_sources(self, moment: Literal["before", "after"]) -> dict[str, SourceTime]:
        """Where each of several sources stood before the run, or after it."""
        told = {
            name: (getattr(of, f"latest_{moment}"), getattr(of, f"came_at_{moment}"))
            for name, of in self.sources.items()
        }
        return {name: SourceTime(us, came_at) for name, (us, came_at) in told.items() if came_at is not None}

    def as_judged(self, rule: Rule, names: tuple[str, ...] = POLICY) -> Rule:
        """The rule with the policy of this run, or a part of it, which may have been changed since."""
        known: dict[str, Any] = {name: value for name, value in self.policy.items() if name in names}
        if "corrections" in known:  # of a run that knew no other policy for deletes
            known = {"deletes": known["corrections"], "erase_when": None} | known
        return replace(rule, **known)


def policy(rule: Rule) -> dict[str, Any]:
    """The fields of a rule that runs may change without a rebuild."""
    return {name: getattr(rule, name) for name in POLICY}


def are_told_alike(runs: Iterable[Manifest]) -> bool:
    """Whether the sources have had the same columns since the first run, or the last rebuild. In: the newest first."""
    columns = None
    for run in runs:
        columns = run.columns if columns is None else columns
        if run.columns != columns:
            return False
        if run.mode == "rebuild" or run.run_seq == 1:
            return True
    return False


def emptied_since(runs: Iterable[Manifest], columns: Iterable[str]) -> dict[str, int]:
    """By column that a dropped aggregate has left: the number of the run that dropped it.

    In: the newest first; the columns of the table, as somebody may have dropped such a one, too.
    """
    found, known = dict[str, int](), {name.lower() for name in columns}
    for run in runs:
        known &= {name.lower() for of in run.left.values() for name in columns_of(of)}
        if not known:
            break
        found |= dict.fromkeys(known, run.run_seq)
    return found


def may_have_flushed(runs: Iterable[Manifest]) -> bool:
    """Whether a run may have ended what was open, as far as the log tells. In: the newest first."""
    for run in runs:
        flushes = bool(run.arguments.get("flush"))
        if flushes or run.mode == "rebuild" or run.run_seq == 1:
            return flushes
    return True
