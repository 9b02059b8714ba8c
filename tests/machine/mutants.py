"""Faults seeded in the product: each a small change of the text of one function, and a rule by which it shows.

The function's changed text is compiled, and its code put in the place of the old one, so that whoever has imported the
function runs the change.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from sessionizer.lib.admission import accepted, corrections, dedupe, freed, lateness, verdicts
from sessionizer.lib.aggregates import binding
from sessionizer.lib.time import micros, watermarks
from sessionizer.lib.windows.sessions import (
    changes,
    cuts,
    fold,
    islands,
    lifecycle,
    memberships,
    recompute,
    sessions,
)
from tests.machine.histories import CHANGES, JOBS
from tests.machine.options import EPOCH
from tests.machine.rule import FIRST, Rule


@dataclass(frozen=True)
class Mutant:
    """`old`, as it stands in the function, has become `new`. The rest is of the histories that show it."""

    name: str
    function: Callable[..., Any]
    old: str
    new: str
    rule: Rule = field(default_factory=Rule)
    jobs: tuple[str, ...] = JOBS
    changes: tuple[str, ...] = CHANGES
    rounds: int = 4

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Inside it the product has the fault."""
        text = dedent(inspect.getsource(self.function))
        assert self.old in text, f"{self.name}: {self.function.__qualname__} no longer has {self.old!r}"
        names = dict(self.function.__globals__)
        exec(compile(text.replace(self.old, self.new), inspect.getfile(self.function), "exec"), names)
        before = self.function.__code__
        self.function.__code__ = names[self.function.__name__].__code__
        try:
            yield
        finally:
            self.function.__code__ = before


_LATEST = 'F.max(C.col(C.US)).over(__import__("pyspark").sql.Window.partitionBy(F.lit(0)))'
QUICK = (
    Mutant("the gap excludes its end", islands.beyond, "start > reach if", "start >= reach if"),
    Mutant(
        "a session that was taken over stays",
        changes.merged_changes,
        "lambda row: row[C.SESSION_ID] != own",
        "lambda row: F.lit(False)",
        Rule(allowed=30),
    ),
    Mutant("copies within, and not at its end", dedupe.mark_duplicates, "<= within", "< within", Rule(within=2)),
    Mutant("final at the horizon", lifecycle.settle, "_known(reach < C.col(C.H))", "_known(reach <= C.col(C.H))"),
)
OTHERS = (
    Mutant(
        "buckets around 1970 are twice as wide",
        micros.floor_div,
        " - F.when(us % width < 0, 1).otherwise(0)",
        "",
        Rule(earlier=FIRST - EPOCH),
    ),
    Mutant(
        "the last reach, and not the greatest",
        islands.mark_islands,
        "F.max(C.col(C.REACH)).over(all_before)",
        "F.lag(C.col(C.REACH)).over(by_time)",
        Rule(gap=None),
    ),
    Mutant(
        "the greatest gap reaches from the last event",
        fold.fold,
        "F.max(F.try_add(C.col(C.US), C.col(C.GAP)))",
        "F.try_add(F.max(C.col(C.US)), F.max(C.col(C.GAP)))",
        Rule(gap=None, at_least=4),
    ),
    Mutant(
        "max_duration excludes its end",
        cuts._Walk._reasons,
        '- current["start"] > rule',
        '- current["start"] >= rule',
        Rule(longest=12),
    ),
    Mutant(
        "order_by settles nothing",
        binding.bind,
        "[C.col(C.US), *[C.col(name) for name in rule.order_by]]",
        "[C.col(C.US), *[C.col(name) - C.col(name) for name in rule.order_by]]",
        Rule(ordered=True, per=("k1",), allowed=30),
    ),
    Mutant(
        "state is not compared",
        sessions.Sessions.diff,
        "if n not in HOW)",
        "if n not in (*HOW, C.STATE))",
        Rule(aggregates="kinds", per=("k1",), allowed=30),
        jobs=("run",),
        changes=("update",) * 12,
        rounds=6,
    ),
    Mutant(
        "lateness is judged by the horizon after the run",
        lateness.judge_late,
        "C.col(C.US) < C.col(C.H)",
        f"C.col(C.US) < {_LATEST}",
    ),
    Mutant("late at the horizon", lateness.judge_late, "C.col(C.US) < C.col(C.H)", "C.col(C.US) <= C.col(C.H)"),
    Mutant(
        "late at the horizon by its place",
        sessions.Sessions.judge_places,
        "~(F.max(C.col(C.REACH)).over(group) < C.col(C.H))",
        "~(F.max(C.col(C.REACH)).over(group) <= C.col(C.H))",
        Rule(lateness="session", revive=True),
    ),
    Mutant(
        "a flush sets no mark",
        watermarks.WatermarkState.horizon,
        "latest(by_watermark, self.flush_mark)",
        "by_watermark",
        Rule(allowed=30),
        ("flush",),
    ),
    Mutant(
        "a flush of a scope ends at the reach, and not past it",
        watermarks.advance_scopes,
        "(F.max(C.col(C.REACH)) + 1)",
        "F.max(C.col(C.REACH))",
        Rule(per=("k1",)),
        ("flush",),
    ),
    Mutant(
        "the watermark goes back",
        watermarks.advance_to,
        "latest(clock.watermark, watermark)",
        "clock.watermark if watermark is None else watermark",
        Rule(earliest=True),
    ),
    Mutant(
        "the watermark is not behind",
        watermarks.advance,
        "candidate - rule.watermark_delay",
        "candidate",
        Rule(delay=5),
    ),
    Mutant(
        "idle since the start",
        lifecycle._idle,
        "C.col(C.W) - C.col(C.END)",
        "C.col(C.W) - C.col(C.START)",
        Rule(idle_after=7, gap=20),
    ),
    Mutant("what is gone stays", verdicts.effect, "isin(WITHDRAWN, MOVED)", "isin(MOVED)"),
    Mutant(
        "late sessions are merged with the others",
        lateness.with_population,
        "C.col(C.VERDICT) == APART",
        "F.lit(False)",
        Rule(late="separate"),
    ),
    Mutant(
        "what is readmitted counts as late",
        freed.judged_again,
        "F.when(enters, READMITTED)",
        "F.when(enters, LATE)",
        jobs=("backfill", "readmit"),
    ),
    Mutant(
        "a span includes its end",
        freed.asked_for,
        "(time < asked.high)",
        "(time <= asked.high)",
        Rule(per=("k1",)),
        ("backfill",),
        rounds=6,
    ),
    Mutant(
        "copies of what is gone stay away",
        freed.copies_of,
        "F.abs(t - time) <= within",
        "F.abs(t - time) < 0",
        Rule(within=1440),
        rounds=6,
    ),
    Mutant(
        "what an overwrite leaves is a correction",
        corrections._netted,
        ' - F.col("__undone")',
        "",
        Rule(corrections="quarantine"),
        rounds=6,
    ),
    Mutant(
        "what stays in its session is not read again",
        accepted.accepted,
        "if seen[IN]:",
        "if seen[IN] < 0:",
        Rule(corrections="quarantine", late="amend"),
        rounds=6,
    ),
    Mutant(
        "an island to redo keeps its oldest part",
        recompute.mark_roles,
        'start >= F.col("__from")',
        'start > F.col("__from")',
        Rule(longest=2, allowed=30),
    ),
    Mutant(
        "live sessions are not made again for an aggregate that is taken up",
        sessions.Sessions._with_places,
        "if not stored.lacks_state or stored.live is None:",
        "if True:",
        Rule(allowed=30, lateness="session", late="amend"),
        jobs=("run",),
        rounds=8,
    ),
    Mutant(
        "the trail of ids ends after one step",
        lifecycle._supersedes,
        "F.concat(absorbed[C.SESSION_ID], F.flatten(absorbed[C.SUPERSEDES]))",
        "F.flatten(absorbed[C.SUPERSEDES])",
    ),
    Mutant(
        "events stay under the id that was taken over",
        memberships._with_moves,
        "moves = of.renamed.withColumn(KIND, F.lit(RENAME))",
        "moves = of.renamed.withColumn(KIND, F.lit(RENAME)).limit(0)",
        Rule(traced=True, allowed=30),
    ),
)
