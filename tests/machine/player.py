"""Plays a history through the public jobs, and compares every table with the oracle's after each of them."""

import json
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.runs import ledger_row
from tests.kills import Killed
from tests.machine.comparing import Comparison, Difference
from tests.machine.oracle import World
from tests.machine.places import Place, config_of
from tests.machine.rule import Rule
from tests.machine.steps import (
    Add,
    AddColumn,
    Aggregates,
    Backfill,
    Change,
    Crash,
    Delete,
    Erase,
    Forget,
    Job,
    Maintain,
    Overwrite,
    Readmit,
    Rebuild,
    Restore,
    Run,
    Step,
    Update,
    do,
)
from tests.machine.telling import key_text


class Player:
    """One history in one place. goes_back: whether sessions are restored in it."""

    def __init__(self, spark: SparkSession, place: Place, rule: Rule, *, goes_back: bool = False) -> None:
        self.spark, self.place, self.rule, self.goes_back = spark, place, rule, goes_back
        self.world = World(rule)
        self.states: list[tuple[int, World]] = []  # after each job: the version of sessions, and the world
        self.comparison = Comparison(place, rule, self.world)

    def play(self, step: Step) -> list[Difference]:
        """Nothing is compared after what happens to the source alone, nor where a job has died: something is owed."""
        match step:
            case Add() | Update() | Delete() | Overwrite() | AddColumn():
                before, versions = self.world.source, len(self.world.versions)
                do(self.world, step)
                if len(self.world.versions) > versions:
                    self.place.change(step, before, self.world.source)
                return []
            case Crash():
                at = self._version()
                try:
                    with self.place.dying(step.nth):
                        self._do(step.job)
                except Killed:
                    if self._version() > at:
                        do(self.world, step.job)
                    return []
                do(self.world, step.job)
                return self._compared()
            case Change() | Aggregates():
                do(self.world, step)
                self.place.follow(self.world.rule)
                return []
            case Maintain():
                self.place.maintain(self._told(step.now))
                return self._compared()
            case Restore():
                if len(self.states) > 1:
                    self.states = self.states[: -step.jobs] or self.states[:1]
                    version, then = self.states[-1]
                    self.place.restore(version)
                    self.world = self.comparison.world = self.world.back_in(then)
                    self.comparison.holders = {}
                return []
        counts = do(self.world, step)
        rows = self._do(step)
        return [*self._compared(), *self.comparison.of_ledger(rows, counts)]

    def _compared(self) -> list[Difference]:
        if self.goes_back:
            self.states.append((self._version(), self.world.copy()))
        return self.comparison.compared()

    def _version(self) -> int:
        return self.place.warehouse.tables.sessions.table.version

    def _do(self, job: Job) -> list[dict[str, Any]]:
        """Rows of the ledger, of runs."""
        match job:
            case Run():
                advance = None if job.advance is None else self._told(job.advance)
                override = WatermarkOverride(advance_to=advance, flush=job.flush)
                reports = self.place.warehouse.run(now=self._told(job.now), override=override)
                return [ledger_row(r.manifest, r.timing) for r in reports]
            case Backfill():
                asked = None
                if job.keys is not None:
                    asked = tuple(json.dumps({"k1": key_text(key[0], self.rule)}) for key in job.keys)
                backfill(self.place.warehouse.kind, self._look(job, asked))
            case Readmit():
                readmit(self.place.warehouse.kind, self._look(job))
            case Erase():
                readmit(self.place.warehouse.kind, replace(self._look(job), deletes=True))
            case Forget():
                forget(self.place.warehouse.kind, job.keep, self._told(job.now), self.place.warehouse.said.append)
            case Rebuild():
                self.comparison.holders = {}
                rebuild(self.place.warehouse.kind, now=self._told(job.now))
        return []

    def verified(self) -> list[Difference]:
        """What `verify` finds."""
        verdict = verify(self.spark, config_of(self.place), Asked())
        return [] if verdict.clean else [Difference("verify", str(verdict))]

    def _look(self, step: Backfill | Readmit | Erase, keys: tuple[str, ...] | None = None) -> LookBack:
        return LookBack(self._told(step.low), self._told(step.high), keys, now=self._told(step.now))

    def _told(self, time: int) -> int:
        return time - self.rule.earlier
