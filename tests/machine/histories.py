"""Histories: what happens to a source and to its tables, step by step, to many users at once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.machine.rule import FIRST, MINUTE, Late, Row, Rule
from tests.machine.steps import (
    OWN,
    Add,
    AddColumn,
    Aggregates,
    Backfill,
    Change,
    Changes,
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
)

DAYS_LATER = 9 * 1440
CHANGES = ("update", "update", "delete", "overwrite", "blink")
JOBS = (*["run"] * 8, "wait", "flush", "advance", "backfill", "readmit", "erase", "rebuild", "forget")
LATE: tuple[Late, ...] = ("quarantine", "drop", "amend", "separate")
DOUBLES = (None, "0.0", "-0.0", "1.5", "-2.0", "3.25", "nan", "inf", "-inf")


class Teller:
    """Tells one history. What the rules leave open it leaves out.

    jobs, changes: what is drawn from. shifting: whether lateness and what becomes of late events change all the time.
    """

    def __init__(
        self,
        rule: Rule,
        random: Random,
        users: int = 30,
        rounds: int = 5,
        jobs: Sequence[str] = JOBS,
        changes: Sequence[str] = CHANGES,
        shifting: bool = False,
    ) -> None:
        self.rule, self.random, self.rounds, self.jobs = rule, random, rounds, jobs
        self.shifting = shifting
        self.happens = (*["add"] * 6, *(() if rule.freezes else changes))
        self.users = range(1, (users if rule.key else min(users, 4)) + 1)
        self.rows: dict[int, Row] = {}
        self.numbers = dict.fromkeys(self.users, 0)
        self.fresh: set[int] = set()  # what no run has read yet
        self.settled = rule.corrections == "apply"  # whether what has just come waits for a run before it is changed
        self.copied: set[int] = set()
        self.waiting: set[str] = set()  # whether insertions, or changes, are there that no run has read
        self.aside = Random(str(random.getstate()))  # for what changes no row
        self.now = 45 if rule.skew < DAYS_LATER else DAYS_LATER
        self.base = 0
        self.gains = rule.gains

    def tell(self) -> list[Step]:
        first = Add(tuple(row for user in self.users for row in self._events(user, 3, 0, 25)))
        steps: list[Step] = [first]
        if self.rule.from_version is not None:
            steps.append(Add(tuple(row for user in self.users for row in self._events(user, 2, 0, 30))))
        steps.append(self._run(Run(self._time())))
        for _ in range(self.rounds):
            if self.shifting or self.aside.random() < 0.5:
                steps += self._beside()
            # One watermark for all follows the latest of many events: they must go on for some to be in time.
            further = self.random.choice((0, 0, 5, 10) if self.rule.per else (10, 20, 30))
            self.base += further
            self.now += further
            for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                steps += self._of_source()
            steps += self._of_jobs()
        return steps

    def _beside(self) -> list[Step]:
        """What changes no row; how chains are judged across a change of rule is left open."""
        change = Change(self.aside.choice((0, 5, 30)), self.aside.choice(LATE))
        if self.shifting:
            return [change]
        steps: list[Step] = [AddColumn(), Maintain(FIRST + self.now * MINUTE)]
        steps += [] if self.rule.fails else [Aggregates(not self.gains)] * 2
        told = self.aside.choice([*steps, *([change] * 2 if self.rule.lateness == "event" else [])])
        self.gains ^= isinstance(told, Aggregates)
        return [told]

    # The source.

    def _of_source(self) -> list[Step]:
        kind = self.random.choice(self.happens)
        self.waiting.add("add" if kind == "add" else "change")
        return list(getattr(self, f"_{kind}")())

    def _add(self) -> Iterator[Step]:
        rows = [row for user in self._some(0.5) for row in self._events(user, 3, self.base, self.base + 40)]
        for row in self._picked(0.08):
            rows.append(self._copy(row))
        yield Add(tuple(rows))

    def _update(self) -> Iterator[Step]:
        changes = {row.n: self._change(row) for row in self._picked(0.12, settled=self.settled)}
        self._apply(changes)
        yield Update(changes)

    def _delete(self) -> Iterator[Step]:
        gone = tuple(row.n for row in self._picked(0.12, settled=self.settled))
        for n in gone:
            del self.rows[n]
        yield Delete(gone)

    def _overwrite(self) -> Iterator[Step]:
        changes = {row.n: self._change(row, moves=False) for row in self._picked(0.1, settled=self.settled)}
        self._apply(changes)
        gone = tuple(row.n for row in self._picked(0.05, settled=self.settled) if row.n not in changes)
        for n in gone:
            del self.rows[n]
        yield Overwrite(changes, gone, tuple(row for user in self._some(0.1) for row in self._events(user, 1, 0, 60)))

    def _blink(self) -> Iterator[Step]:
        """Rows are removed, and added again as they were."""
        rows = [row for row in self._picked(0.1, settled=True) if row.n not in self.copied]
        if self.rule.corrections == "apply":
            yield Delete(tuple(row.n for row in rows))
            yield Add(tuple(rows))

    def _events(self, user: int, most: int, low: int, high: int) -> list[Row]:
        found = []
        for _ in range(self.random.randint(1, most)):
            self.numbers[user] += 1
            found.append(self._event(user, user * OWN + self.numbers[user], low, high))
        for row in found:
            self.rows[row.n] = row
        self.fresh |= {row.n for row in found}
        return found

    def _event(self, user: int, n: int, low: int, high: int) -> Row:
        random = self.random
        names = f"u{user}" if self.rule.key != ("k1", "k2") else f"u{user // 3}"
        rare = random.random()
        at: int | None = FIRST + random.randint(low, high) * MINUTE
        if rare < 0.03:
            at = None
        elif rare < 0.06 and (self.rule.per or random.random() < 2 / len(self.users)):
            at = FIRST + self.base * MINUTE + random.randint(60, 110) * MINUTE
        elif rare < 0.09:
            at = (at or 0) + random.choice((-1, 1))
        return Row(
            n,
            names if random.random() > 0.04 else None,
            (user if self.rule.key == ("k1", "k2") else random.randint(1, 2)) if random.random() > 0.04 else None,
            at,
            n if random.random() < 0.75 else user * OWN + random.randint(1, 3),
            random.choice((1, 1, 2, 2, 3, 3, 10, 10, 20, 20, 0, -1, None) if self.rule.gap is None else (1,)),
            random.randint(1, 2),
            random.choice((None, 1, 2, 3, 4, 5)),
            random.choice(DOUBLES),
        )

    def _change(self, row: Row, moves: bool = True) -> dict[str, Any]:
        event = self._event(row.n // OWN, row.n, self.base, self.base + 40)
        if not moves or self.random.random() < 0.4:
            return {"x": event.x, "v": event.v}
        if self.random.random() < 0.3:
            return {"k1": f"u{self.random.choice(self.users)}"}
        if self.random.random() < 0.2:
            return {"id": event.id, "g": event.g}
        return {"at": event.at}

    def _copy(self, row: Row) -> Row:
        """The row as it is, or one with the same id at another time."""
        if self.rule.lateness == "session" or self.random.random() < 0.6 or row.at is None:
            self.copied.add(row.n)
            self.fresh.add(row.n)
            return row
        self.numbers[row.n // OWN] += 1
        n = row.n // OWN * OWN + self.numbers[row.n // OWN]
        self.rows[n] = row._replace(n=n, at=row.at + self.random.choice((-3, -2, -1, 1, 2, 3)) * MINUTE)
        self.fresh.add(n)
        return self.rows[n]

    def _apply(self, changes: Changes) -> None:
        for n, change in changes.items():
            self.rows[n] = self.rows[n]._replace(**change)

    def _some(self, share: float) -> list[int]:
        return [user for user in self.users if self.random.random() < share]

    def _picked(self, share: float, settled: bool = False) -> list[Row]:
        return [
            row for row in self.rows.values() if self.random.random() < share and not (settled and row.n in self.fresh)
        ]

    # The jobs.

    def _of_jobs(self) -> list[Step]:
        """Now and then a job dies on the way, or sessions are restored; a run comes after it."""
        if self.rule.lateness == "event" and self.random.random() < 0.1:
            return [Restore(self.random.choice((1, 1, 2, 3))), self._run(Run(self._time()))]
        told = self._job()
        several = self.rule.one_by_one or self.rule.corrections != "apply"  # increments, of which one dies
        if several or self.random.random() < 0.8:
            return told
        *before, job = told
        assert isinstance(job, Job)
        return [*before, Crash(job, self.random.randint(1, 5)), self._run(Run(self._time()))]

    def _job(self) -> list[Step]:
        kind = self.random.choice(self.jobs)
        run = Run(self._time())
        low = self.random.randint(-1, self.base + 60)
        span = FIRST + low * MINUTE, FIRST + (low + self.random.choice((1, 5, 20, 60))) * MINUTE
        match kind:
            case "wait" if self.rule.idle_by_arrival and "change" not in self.waiting:
                self.now += self.random.choice((200, 200, DAYS_LATER))
                return [self._run(Run(self._time()))]
            case "flush":
                return [self._run(replace(run, flush=True))]
            case "advance":
                return [self._run(replace(run, advance=FIRST + (self.base + self.random.randint(0, 60)) * MINUTE))]
            case "backfill" if not self.rule.freezes:
                named = [(f"u{user}",) for user in self._some(0.3)]
                keys = tuple(named) if self.rule.key == ("k1",) and self.random.random() < 0.5 and named else None
                return [self._run(run), Backfill(self._time(), *span, keys)]
            case "readmit" if not self.rule.freezes:
                return [self._run(run), Readmit(self._time(), *span)]
            case "erase" if self.rule.corrections == "ignore":
                return [self._run(run), Erase(self._time(), *span)]
            case "forget" if not self.rule.freezes:
                return [self._run(run), Forget(self._time(), self.random.choice((0, 5, 20, 60)) * MINUTE)]
            case "rebuild":
                self._run(run)
                reads = [] if self.rule.corrections == "apply" else [run]  # first what is not to be made
                return [*reads, Rebuild(self._time())]
            case _:
                return [self._run(run)]

    def _run(self, run: Run) -> Run:
        self.fresh, self.waiting = set(), set()
        return run

    def _time(self) -> int:
        self.now += 1
        return FIRST + self.now * MINUTE
