"""verify --windows: recompute the sliding windows from the accepted events, and compare the table with them."""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.commands.verify import SHOWN, Asked, Verdict, counted, judged_rejects, ledger_gaps, sampled
from jobs.run.compute import Checkpoints
from jobs.run.context import RunContext
from jobs.run.driver import settled
from jobs.run.kinds import kind_of
from jobs.run.phases import Say, wall_clock
from jobs.run.policies import check_rule
from lib import columns as C
from lib.admission.accepted import accepted, as_rejects
from lib.aggregates.binding import OF_WINDOWS, bind
from lib.compare import with_scales
from lib.config import Config
from lib.reading.differences import EXPECTED, FOUND
from lib.reading.expected_windows import broken_window_rules, expected_windows, window_differences
from lib.time.micros import timestamp
from lib.windows.sliding.rule import SlidingRule

FOREVER = 10**17  # µs


def verify_windows(spark: SparkSession, config: Config, asked: Asked, say: Say = lambda _: None) -> Verdict:
    """Compare the windows table with what its accepted events make; nothing is written but unfinished side tables.

    With `lateness: session` windows depend on how events arrived: they are not recomputed.
    """
    kind, compute, rule = kind_of(spark, config, windows=True), Checkpoints(), SlidingRule.of(config)
    kind.require()
    position = settled(kind, say)
    if position.manifest is not None:
        check_rule(kind, position.manifest)
    context = RunContext.look_back(kind, position, wall_clock(), "verify", {})
    rows = _asked_for(kind.home.table.read(position.version), asked, rule)
    kept = compute.held(rows)
    broken = broken_window_rules(kept, rule)
    broken["the counts of every run add up"] = ledger_gaps(kind)
    with kind.tables.events.reading(context.increment):
        events = _accepted(context, asked, rule, compute)
        broken |= judged_rejects(context, events, rule.events, whole=asked == Asked())
        counts = counted(broken)
        examples = {name: [str(tuple(r)) for r in broken[name].limit(3).collect()] for name, n in counts.items() if n}
        found = Verdict(kept.count(), 0, False, 0, (), counts, examples, "windows", (*rule.key, C.WINDOW_START))
        if rule.events.lateness == "session":
            return found
        say("recomputing the windows from their events")
        scaled = replace(rule, events=with_scales(rule.events, context.sample().columns))
        aggregates = bind(scaled.events, context.sample(), OF_WINDOWS)
        theirs = compute.held(sampled(events, asked, rule.key))
        expected = _asked_for(expected_windows(theirs, scaled, aggregates, context.clock), asked, rule)
        told = compute.held(window_differences(kept, expected, rule, aggregates))
    order = [F.coalesce(F.col(FOUND)[name], F.col(EXPECTED)[name]) for name in found.identity]
    wrong = [row.asDict(recursive=True) for row in told.orderBy(*order).limit(SHOWN).collect()]
    return replace(found, events=theirs.count(), recomputed=True, differing=told.count(), wrong=wrong)


def _accepted(context: RunContext, asked: Asked, rule: SlidingRule, compute: Checkpoints) -> DataFrame:
    """The accepted events that make the windows asked for, and maybe others."""
    span = None
    if asked != Asked(sample=asked.sample):
        low = -FOREVER if asked.low is None else asked.low - asked.low % rule.unit
        high = FOREVER if asked.high is None else asked.high - asked.high % rule.unit
        span = [(low - rule.reach, high + rule.reach + rule.unit - 1)]
    rejects = context.past().rejected()
    kept_out = None if rejects is None else as_rejects(rejects, rule.events)
    return accepted(context.past().events(span), kept_out, rule.events, compute, span)


def _asked_for(rows: DataFrame, asked: Asked, rule: SlidingRule) -> DataFrame:
    if asked.low is not None:
        rows = rows.where(C.col(C.WINDOW_END) >= timestamp(asked.low))
    if asked.high is not None:
        rows = rows.where(C.col(C.WINDOW_START) < timestamp(asked.high))
    return sampled(rows, asked, rule.key)
