"""Plays a history through the public jobs, and compares every table with the oracle's after each of them."""

import json

from pyspark.sql import SparkSession

from jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from jobs.commands.verify import Asked, verify
from lib.time.watermarks import WatermarkOverride
from tables.runs import ledger_row
from tests.machine.comparing import Comparison, Difference
from tests.machine.oracle import World
from tests.machine.places import Place, config_of
from tests.machine.rule import Rule
from tests.machine.steps import Add, Backfill, Delete, Overwrite, Readmit, Rebuild, Run, Step, Update, do
from tests.machine.telling import key_text


class Player:
    """One history in one place."""

    def __init__(self, spark: SparkSession, place: Place, rule: Rule) -> None:
        self.spark, self.place, self.rule = spark, place, rule
        self.world = World(rule)
        self.comparison = Comparison(place, rule, self.world)

    def play(self, step: Step) -> list[Difference]:
        """Nothing is compared after what happens to the source alone."""
        before, versions = self.world.source, len(self.world.versions)
        counts = do(self.world, step)
        match step:
            case Add() | Update() | Delete() | Overwrite():
                if len(self.world.versions) > versions:
                    self.place.change(step, before, self.world.source)
                return []
            case Run():
                advance = None if step.advance is None else self._told(step.advance)
                override = WatermarkOverride(advance_to=advance, flush=step.flush)
                reports = self.place.warehouse.run(now=self._told(step.now), override=override)
                rows = [ledger_row(r.manifest, r.timing) for r in reports]
                return [*self.comparison.compared(), *self.comparison.of_ledger(rows, counts)]
            case Backfill():
                asked = None
                if step.keys is not None:
                    asked = tuple(json.dumps({"k1": key_text(key[0], self.rule)}) for key in step.keys)
                backfill(self.place.warehouse.kind, self._look(step, asked))
            case Readmit():
                readmit(self.place.warehouse.kind, self._look(step))
            case Rebuild():
                rebuild(self.place.warehouse.kind, now=self._told(step.now))
                self.comparison.holders = {}
        return self.comparison.compared()

    def verified(self) -> list[Difference]:
        """What `verify` finds."""
        verdict = verify(self.spark, config_of(self.place), Asked())
        return [] if verdict.clean else [Difference("verify", str(verdict))]

    def _look(self, step: Backfill | Readmit, keys: tuple[str, ...] | None = None) -> LookBack:
        return LookBack(self._told(step.low), self._told(step.high), keys, now=self._told(step.now))

    def _told(self, time: int) -> int:
        return time - self.rule.earlier
