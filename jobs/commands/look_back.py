"""Backfill, readmit, rebuild: sessions made again from events that have been consumed before."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.run.increment import Inputs, compute
from jobs.run.sessionize import Phases, RunReport, Say, check_rule, commit, repair, settled, wall_clock, with_retries
from lib import columns as C
from lib.computed import outlasting
from lib.config import Config
from lib.errors import SessionizerError, UsageError
from lib.rule import Rule
from lib.windows.sessions.backfill import Span, readmitted
from tables.lake import Lake
from tables.manifest import Mode

IMPOSSIBLE = (SessionizerError, PySparkException, Py4JJavaError)  # what stops a repair, but for races
DAY = 24 * 3600 * 1_000_000
CHUNK = 7 * DAY


@dataclass(frozen=True)
class LookBack:
    """What to recompute: sessions that touch [low, high) (microseconds), of these keys (JSON objects; none: all)."""

    low: int
    high: int
    keys: tuple[str, ...] | None = None
    chunk: int = CHUNK
    dry_run: bool = False
    now: int | None = None

    def chunks(self) -> list[tuple[int, int]]:
        """The spans that are committed one by one."""
        edges = [*range(self.low, self.high, self.chunk), self.high]
        return list(pairwise(edges))

    def arguments(self, low: int, high: int) -> dict[str, Any]:
        """What the manifest of one chunk keeps."""
        keys = {} if self.keys is None else {"keys": list(self.keys)}
        return {"low": low, "high": high, "from": self.low, "to": self.high, **keys}


def backfill(
    spark: SparkSession,
    config: Config,
    asked: LookBack,
    say: Say = lambda _: None,
    on_chunk: Callable[[RunReport, int, int], None] = lambda *_: None,
) -> list[RunReport]:
    """Recompute every session that touches the span, as of the consumed source version; chunk by chunk.

    Watermark and position stay as they are. A backfill that was cut off goes on behind its last chunk when it is
    asked for again. `on_chunk` hears of each chunk: its report, its number from 1 on, how many there are.
    """
    if asked.low >= asked.high:
        raise UsageError("--from must be earlier than --to")
    lake = Lake(spark, config)
    lake.require()
    chunks = asked.chunks()
    begun = 0 if asked.dry_run else _done_before(lake, asked, len(chunks))
    reports = []
    for number, (low, high) in list(enumerate(chunks, 1))[begun:]:
        say(f"recomputing span {number} of {len(chunks)}")
        step = partial(_look_back, lake, "backfill", asked.arguments(low, high), asked, say)
        report = with_retries(step, say)
        assert report is not None
        reports.append(report)
        on_chunk(report, number, len(chunks))
    return reports


def readmit(spark: SparkSession, config: Config, asked: LookBack, say: Say = lambda _: None) -> list[RunReport]:
    """Take the quarantined late events of a span into the sessions after all; they leave rejected_events."""
    lake = Lake(spark, config)
    lake.require()
    settled(lake, say)
    rule = Rule.of(config)
    late = readmitted(lake.rejected_events.table.read(), Span(asked.low, asked.high), rule)
    time = F.unix_micros(C.col(C.EVENT_TIME))
    bounds = late.agg(F.min(time).alias("low"), F.max(time).alias("high")).first()
    if bounds is None or bounds["low"] is None:
        return []
    low, high = int(bounds["low"]), int(bounds["high"]) + 1
    keys = tuple(sorted(_as_json(late, rule))) if rule.key else None
    whole = LookBack(low, high, keys, high - low, asked.dry_run, asked.now)
    step = partial(_look_back, lake, "readmit", whole.arguments(low, high), whole, say)
    report = with_retries(step, say)
    return [] if report is None else [report]


def rebuild(spark: SparkSession, config: Config, now: int | None = None, say: Say = lambda _: None) -> RunReport:
    """Make all sessions anew from the source as it stands, by the present rule, in one atomic overwrite.

    Nothing is late, and the position is the version read, so that this serves a source, too, that was made again or
    has lost its changes. The table as it was stays reachable by time travel; RESTORE brings it back with its position.
    """
    lake = Lake(spark, config)
    lake.require()
    asked = LookBack(0, 0, now=now)
    report = with_retries(partial(_look_back, lake, "rebuild", {}, asked, say), say)
    assert report is not None
    return report


def _look_back(lake: Lake, mode: Mode, arguments: Mapping[str, Any], asked: LookBack, say: Say) -> RunReport:
    phases = Phases()
    with phases("plan"):
        position = lake.sessions.position()
        if not asked.dry_run:
            # What an unfinished run would still write, a rebuild replaces: it need not be possible any more.
            with suppress(*IMPOSSIBLE) if mode == "rebuild" else nullcontext():
                repair(lake, position, say)
        if position.manifest is not None and mode != "rebuild":
            check_rule(lake, position.manifest)
        now = asked.now if asked.now is not None else wall_clock()
        inputs = (
            Inputs.anew(lake, position, now)
            if mode == "rebuild"
            else Inputs.look_back(lake, position, now, mode, arguments)
        )
    say("reading events again")
    with phases("sessionize"), lake.events.reading(inputs.increment):
        outcome = compute(lake, inputs)
    manifest = inputs.manifest(outcome, phases.started)
    if asked.dry_run:
        return RunReport(manifest, phases.timing(), dry_run=True, changes=outlasting(outcome.changes))
    say(f"writing {outcome.counts['rows']:,} sessions")
    return commit(lake, inputs, outcome, manifest, phases)


def _done_before(lake: Lake, asked: LookBack, number: int) -> int:
    """How many chunks of just this backfill are done, if it has not come to its end."""
    last = position = 0
    manifest = lake.sessions.position().manifest
    for done in lake.sessions.manifests():
        if done.mode != "backfill":
            continue
        same = done.arguments == asked.arguments(done.arguments["low"], done.arguments["high"])
        current = manifest is not None and done.rule_fingerprint == manifest.rule_fingerprint
        if same and current:
            chunks = asked.chunks()
            place = (done.arguments["low"], done.arguments["high"])
            position = chunks.index(place) + 1 if place in chunks else 0
            last = position if position < number else 0
        break
    return last


def _as_json(rows: DataFrame, rule: Rule) -> Iterator[str]:
    keys = rows.select(F.to_json(F.struct(*C.cols(rule.key))).alias("key")).distinct()
    return (row["key"] for row in keys.collect())
