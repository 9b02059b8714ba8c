"""verify --dry-run: what would be read, and which checks would run; by the logs alone, nothing is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessionizer.jobs.commands.verify import Asked, around, reaches_far
from sessionizer.jobs.console import iso, short, stdout, table
from sessionizer.jobs.plans.backfill import part_document, told_part, told_rows
from sessionizer.jobs.plans.touched import REACHES, by_status, outermost, touching, unfinished
from sessionizer.jobs.run.kinds import Ruled
from sessionizer.lib.durations import EVER
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import Spans
from sessionizer.lib.verifying import rules
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.tables.event_outputs import WHOLE
from sessionizer.tables.manifest import Manifest, emptied_since
from sessionizer.tables.position import position_of
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.queries.spread import Part, check_read, part_within


@dataclass(frozen=True)
class Plan:
    """What verify would do.

    part: files of the source that it reads. rows: those of the table that it looks at, of all keys, by status.
    recomputed: whether they are made again from events. checks: the rules that it looks at beside. first: what would be
    repaired before.
    """

    of: str
    asked: Asked
    part: Part
    rows: dict[str, int]
    recomputed: bool
    checks: Sequence[str]
    first: str | None


def plan(tables: LocalTableSet, of: Ruled, asked: Asked) -> Plan:
    """What `verify` would do with these tables; the rule has been found to fit.

    Errors: as of `verify`, as far as logs tell; NeedsSpark for tables that only Spark reads.
    """
    home, _ = tables.home(of.name)
    position = position_of(home)
    done = of.consumed(position.manifest)
    versions = check_read(tables, done)
    rule = done.as_judged(of.rule)
    left = [] if done.forgotten is None else [f"epoch_us({REACHES[of.name]}) >= {done.forgotten}"]
    return Plan(
        of.name,
        asked,
        part_within(tables, versions, _spans(tables, of, asked)),
        by_status(tables, of, [*touching(of, asked.low, asked.high), *left]),
        rules.is_recomputed(rule) if of.name == "sessions" else rule.lateness == "event",
        _checks(tables, of, rule, whole=asked == Asked(), done=done),
        unfinished(tables, of, position),
    )


def as_document(plan: Plan) -> dict[str, Any]:
    """The plan for machines; times as ISO-8601, null for no bound."""
    return {
        "dry_run": True,
        "from": iso(plan.asked.low),
        "to": iso(plan.asked.high),
        "sample": plan.asked.sample,
        "source": part_document(plan.part),
        plan.of: plan.rows,
        "recomputed": plan.recomputed,
        "rules": list(plan.checks),
        "rule_fits": True,
        "repaired_first": plan.first,
    }


def show(plan: Plan) -> None:
    """The plan for a person."""
    asked, out = plan.asked, stdout()
    sample = "" if asked.sample is None else f", those of about {asked.sample:.4g} of the keys"
    compared = "made again from their events and compared" if plan.recomputed else "not made again: lateness is session"
    rows = [
        ("span", _bounds(asked)),
        ("source", told_part(plan.part)),
        (plan.of, f"{told_rows(plan.rows)}{sample}: {compared}"),
        ("rule", "the config fits the table"),
    ]
    out.print(table(["", ""], rows if plan.first is None else [*rows, ("before", plan.first)]))
    out.print("\n".join(["rules:", *(f"  {name}" for name in plan.checks)]))


def _bounds(asked: Asked) -> str:
    low = [] if asked.low is None else [f"from {short(asked.low)}"]
    return " ".join([*low, *([] if asked.high is None else [f"to {short(asked.high)}"])]) or "all"


def _spans(tables: LocalTableSet, of: Ruled, asked: Asked) -> Spans | None:
    """Which times of the source are read; None: all."""
    if asked.low is None and asked.high is None:
        return None
    low, high = -EVER if asked.low is None else asked.low, EVER if asked.high is None else asked.high
    if of.name == "windows":
        shape = SlidingRule.of(tables.config)
        return [(low - low % shape.unit - shape.reach, high - high % shape.unit + shape.reach + shape.unit - 1)]
    return None if reaches_far(of.rule) else [outermost(tables, of, *around(asked, of.rule))]


def _checks(tables: LocalTableSet, of: Ruled, rule: Rule, *, whole: bool, done: Manifest) -> list[str]:
    """The rules that are looked at."""
    of_sessions = of.name == "sessions"
    found = [*(rules.of_sessions(rule) if of_sessions else rules.of_windows()), rules.ADDS_UP]
    found += [rules.EMPTIED] if of_sessions and emptied_since([done], tables.sessions.columns) else []
    for output in tables.event_outputs if of_sessions and whole else ():
        has_all = output.setting(WHOLE) is not None and bool(output.files())
        found += rules.of_trace(output.field.removeprefix("outputs."), rule, whole=has_all)
    rejects = tables.rejected_events if of_sessions else tables.of_windows["rejected_window_events"]
    found += rules.of_the_source(rule) if whole else []
    found += rules.of_rejects(rule, whole=whole) if rejects.files() else []
    counts_all = of_sessions and whole and not rules.is_recomputed(rule) and done.forgotten is None
    return [*found, *([rules.IN_ONE] if counts_all else [])]
