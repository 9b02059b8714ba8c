"""verify --windows: recompute the sliding windows from the accepted events, and compare the table with them."""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.verify import (
    Asked,
    asked_for,
    counted,
    judged_rejects,
    ledger_gaps,
    left,
    rejected_beside,
    sampled,
    undisturbed,
)
from sessionizer.jobs.reporting.verdict import Verdict, examples_of, first_wrong
from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.driver import settled
from sessionizer.jobs.run.kinds import Kind, kind_of
from sessionizer.jobs.run.phases import Say, wall_clock
from sessionizer.jobs.run.policies import check_fits
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.durations import EVER
from sessionizer.lib.time.spans import within
from sessionizer.lib.verifying import rules
from sessionizer.lib.verifying.bag import accepted, judged
from sessionizer.lib.verifying.differences import EXPECTED, FOUND
from sessionizer.lib.verifying.facts import facts_of
from sessionizer.lib.verifying.windows import Shape, broken_window_rules, expected_windows, window_differences
from sessionizer.lib.windows.sliding.rule import SlidingRule

TIMES = (C.WINDOW_START, C.WINDOW_END)


def verify_windows(spark: SparkSession, config: Config, asked: Asked, say: Say = lambda _: None) -> Verdict:
    """Compare the windows table with what its accepted events make; nothing is written but unfinished side tables.

    With `lateness: session` windows depend on how events arrived: they are not recomputed.
    """
    kind = kind_of(spark, config, windows=True)
    kind.require()
    return undisturbed(kind, lambda: _verified(kind, SlidingRule.of(config), asked, say), say)


def _verified(kind: Kind, of: SlidingRule, asked: Asked, say: Say) -> Verdict:
    compute = Checkpoints()
    position = settled(kind, say)
    if position.manifest is not None:
        check_fits(kind, position.manifest)
        kind = replace(kind, rule=position.manifest.as_judged(kind.rule))
    context = RunContext.look_back(kind, position, wall_clock(), "verify", {})
    rule, shape, forgotten = context.rule, Shape(of.difference, of.unit), context.clock.forgotten
    rows = compute.held(
        left(asked_for(kind.home.table.read(position.version), asked, rule.key, TIMES), C.WINDOW_END, forgotten)
    )
    broken = broken_window_rules(rows, rule, shape)
    broken[rules.ADDS_UP] = ledger_gaps(kind)
    with kind.tables.events.reading(context.increment):
        source = _source(context, asked, shape)
        rejects, near = rejected_beside(context, source, rule)
        events = accepted(source, rejects, near, rule)
        broken |= judged_rejects(context, rejects, near, events, whole=asked == Asked())
        counts = counted(broken)
        examples = examples_of(broken, counts)
        found = Verdict(rows.count(), 0, False, 0, (), counts, examples, "windows", (*rule.key, C.WINDOW_START))
        if rule.lateness == "session":
            return found
        say("recomputing the windows from their events")
        theirs, facts = compute.held(sampled(events, asked, rule.key)), facts_of(rule, context.sample())
        made = left(expected_windows(theirs, rule, shape, facts, context.clock), C.WINDOW_END, forgotten)
        told = compute.held(window_differences(rows, asked_for(made, asked, rule.key, TIMES), rule, facts))
    order = [F.coalesce(F.col(FOUND)[name], F.col(EXPECTED)[name]) for name in found.identity]
    wrong = first_wrong(told, order)
    return replace(found, events=theirs.count(), recomputed=True, differing=told.count(), wrong=wrong)


def _source(context: RunContext, asked: Asked, shape: Shape) -> DataFrame:
    """The rows of the source, judged, that make the windows asked for, and maybe others."""
    if asked == Asked(sample=asked.sample):
        return judged(context.past.events(None), context.rule)
    low = -EVER if asked.low is None else asked.low - asked.low % shape.unit
    high = EVER if asked.high is None else asked.high - asked.high % shape.unit
    spans = [(low - shape.reach, high + shape.reach + shape.unit - 1)]
    return judged(context.past.events(spans), context.rule).where(within(C.col(C.US), spans))
