"""A model of the commit protocol, and an explorer of all its interleavings.

It knows the protocol from docs/architecture.md ("The life of a commit"), and nothing of the code. Each version of the
source holds one event that makes a session and, where its number is odd, one that is rejected. Two jobs read, commit to
`sessions`, write `event_sessions` and `rejected_events` and enter the ledger, each step at any time; an operator
restores `sessions` to any version, or has it compacted; any job may die, or stall, between any two steps. A step is
what a lock or Delta's own transaction makes whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

RESTORE, UPKEEP, RUN = "restore", "upkeep", "run"
TRACED, REJECTED, LEDGER = range(3)
NAMES = ("event_sessions", "rejected_events", "ledger")
BY_RUN = (TRACED, REJECTED, LEDGER)  # the order in which a run writes them
BY_UNDOING = (LEDGER, TRACED, REJECTED)


class Commit(NamedTuple):
    """One of `sessions`. run: its run_seq; position: the last source version read; rows: all that the table has."""

    kind: str
    run: int = 0
    position: int = 0
    restored_to: int = 0
    rows: tuple[int, ...] = ()


class Write(NamedTuple):
    """One of a table beside it. number: a run's or, of what is done behind it, a RESTORE's; fence: Delta's, if any."""

    number: int | None
    fence: int | None = None
    rows: tuple[int, ...] = ()


class Job(NamedTuple):
    """What a job does next, and to which table; what it has seen: the version, the run in force, and behind and up to
    which version of the source that read, the RESTORE behind it; how far its own run reads.
    """

    at: str = "idle"
    table: int = 0
    version: int = 0
    run: int = 0
    before: int = 0
    position: int = 0
    restored: int = 0
    reads_to: int = 0


class State(NamedTuple):
    """All tables and jobs, and what may still happen."""

    source: int
    sessions: tuple[Commit, ...]
    beside: tuple[tuple[Write, ...], ...]
    jobs: tuple[Job, ...]
    appends: int
    restores: int
    upkeeps: int
    deaths: int


@dataclass(frozen=True)
class Rules:
    """The protocol, and what is left out of it to see that the model would notice.

    fenced: no write is older than the last. guarded: a commit looks whether the table has moved on. barred: behind a
    RESTORE each table gets a fence that those who stalled before it run into. finished: behind a RESTORE the run in
    force is looked for in the tables as they stand, by its own number.
    """

    fenced: bool = True
    guarded: bool = True
    barred: bool = True
    finished: bool = True


def start(*, jobs: int = 2, appends: int = 2, restores: int = 1, upkeeps: int = 0, deaths: int = 1) -> State:
    """Tables that were just made."""
    return State(0, (Commit(UPKEEP),), ((Write(None),),) * 3, (Job(),) * jobs, appends, restores, upkeeps, deaths)


def runs_in_force(sessions: tuple[Commit, ...]) -> Iterator[tuple[int, int, int]]:
    """Runs that count, newest first, with the version of their commit and the last RESTORE behind them, 0: none.

    At the end no run, 0, with version 0.
    """
    reach, restored = len(sessions) - 1, 0
    for version in range(len(sessions) - 1, -1, -1):
        commit = sessions[version]
        if version > reach:
            continue
        if commit.kind == RESTORE:
            reach, restored = commit.restored_to, restored or version
        elif commit.kind == RUN:
            yield commit.run, version, restored
    yield 0, 0, restored


def in_force(sessions: tuple[Commit, ...]) -> tuple[int, int, int]:
    """The last of them."""
    return next(runs_in_force(sessions))


def barred(table: tuple[Write, ...], restored: int) -> tuple[Write, ...]:
    """With a fence that what stalled before the RESTORE runs into."""
    return table if fence(table) >= restored - 1 else (*table, Write(None, restored - 1, table[-1].rows))


def undone(table: tuple[Write, ...], restored: int, last: int) -> tuple[Write, ...]:
    """Back to what the first write after `last` came upon, unless that is done, or overtaken."""
    first = None
    if fence(table) >= restored:
        return table
    for version in range(len(table) - 1, -1, -1):
        number = table[version].number
        if number is None:
            continue
        if number >= restored:
            return table
        if number <= last:
            break
        first = version
    return table if first is None else (*table, Write(restored, None, table[first - 1].rows))


def fence(table: tuple[Write, ...]) -> int:
    return max((write.fence for write in table if write.fence is not None), default=0)


def has(table: tuple[Write, ...], run: int, restored: int, rules: Rules) -> bool:
    """Whether a table has what this run owes it."""
    if not restored or not rules.finished:
        return fence(table) >= run
    return fence(table) >= restored or any(write.number == run for write in table)


def written(table: tuple[Write, ...], number: int, rows: tuple[int, ...], rules: Rules) -> tuple[Write, ...]:
    """With these rows, unless the fence says that they, or later ones, are there."""
    if rules.fenced and fence(table) >= number:
        return table
    return (*table, Write(number, number, tuple(sorted(table[-1].rows + rows))))


def owed(table: int, run: int, low: int, high: int) -> tuple[int, ...]:
    """The rows that a run which read the source's versions behind `low` up to `high` has for a table."""
    read = range(low + 1, high + 1)
    match table:
        case 0:  # TRACED
            return tuple(read)
        case 1:  # REJECTED
            return tuple(version for version in read if version % 2)
        case _:
            return (run,)


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """All that can happen next."""
    if state.appends:
        yield "append", state._replace(source=state.source + 1, appends=state.appends - 1)
    for n, job in enumerate(state.jobs):
        for name, after in job_steps(state, n, rules):
            yield f"job {n}: {name}", after
        if state.deaths and job.at != "idle":
            yield f"job {n}: dies", _with(state._replace(deaths=state.deaths - 1), n, Job())
    if state.restores:
        for version, commit in enumerate(state.sessions[:-1]):
            entry = Commit(RESTORE, restored_to=version, rows=commit.rows)
            yield (
                f"RESTORE to {version}",
                state._replace(sessions=(*state.sessions, entry), restores=state.restores - 1),
            )
    if state.upkeeps:
        entry = Commit(UPKEEP, rows=state.sessions[-1].rows)
        yield "OPTIMIZE", state._replace(sessions=(*state.sessions, entry), upkeeps=state.upkeeps - 1)


def job_steps(state: State, n: int, rules: Rules) -> Iterator[tuple[str, State]]:  # noqa: PLR0912
    """What this job does next: one step, if any."""
    job = state.jobs[n]
    match job.at:
        case "idle":
            run, version, restored = in_force(state.sessions)
            position = state.sessions[version].position if run else 0
            before = _position_before(state.sessions, run) if run else 0
            at = "bar" if restored else "look"
            seen = Job(at, BY_UNDOING[0], len(state.sessions) - 1, run, before, position, restored)
            yield "reads", _with(state, n, seen)
        case "bar" | "undo":
            table = state.beside[job.table]
            if job.at == "bar":
                new, then = barred(table, job.restored) if rules.barred else table, job._replace(at="undo")
            else:
                new, then = undone(table, job.restored, job.run), _following(job, BY_UNDOING, "bar", "look")
            yield f"{job.at}s {NAMES[job.table]}", _with(_beside(state, job.table, new), n, then)
        case "look":
            if not job.run or has(state.beside[LEDGER], job.run, job.restored, rules):
                yield "finds all there", _with(state, n, job._replace(at="plan"))
            else:
                yield "finds a run cut off", _with(state, n, job._replace(at="repair", table=BY_RUN[0]))
        case "repair" | "write":
            table, then = state.beside[job.table], _following(job, BY_RUN, job.at, "plan")
            repairs = job.at == "repair"
            low, high = (job.before, job.position) if repairs else (job.position, job.reads_to)
            rows, number = owed(job.table, job.run, low, high), job.run
            if repairs:
                number = job.restored or job.run
                rows = () if has(table, job.run, job.restored, rules) else rows
            new = written(table, number, rows, rules) if rows else table
            if not repairs and then.at == "plan":
                then = Job()
            yield f"{job.at}s {NAMES[job.table]}", _with(_beside(state, job.table, new), n, then)
        case "plan":
            if state.source == job.position:
                yield "finds nothing new", _with(state, n, Job())
            else:
                yield "plans", _with(state, n, job._replace(at="commit", reads_to=state.source))
        case "commit":
            run, since = job.version + 1, state.sessions[job.version + 1 :]
            moved = rules.guarded and any(commit.kind != UPKEEP for commit in since)
            if moved or (rules.fenced and max(commit.run for commit in state.sessions) >= run):
                yield "is overtaken", _with(state, n, Job())
                return
            read = tuple(range(job.position + 1, job.reads_to + 1))
            entry = Commit(RUN, run, job.reads_to, rows=tuple(sorted(state.sessions[-1].rows + read)))
            after = state._replace(sessions=(*state.sessions, entry))
            yield "commits", _with(after, n, job._replace(at="write", table=BY_RUN[0], run=run))


def _following(job: Job, order: tuple[int, ...], again: str, then: str) -> Job:
    """The same for the next table, or what comes after the last."""
    place = order.index(job.table) + 1
    return job._replace(at=then) if place == len(order) else job._replace(at=again, table=order[place])


def wrong(state: State, rules: Rules) -> str | None:
    """What is wrong in this state, or would be once a job has run alone to its end."""
    run, version, _ = in_force(state.sessions)
    read = state.sessions[version].position if run else 0
    if (rows := state.sessions[-1].rows) != tuple(range(1, read + 1)):
        return f"sessions has {rows}, and its position is {read}"
    if any(job.at != "idle" for job in state.jobs):
        return None
    ended = state
    for _ in range(100):
        before = ended
        for _, after in job_steps(ended, 0, rules):
            ended = after
        if before.jobs[0].at == "plan" and ended.jobs[0].at == "idle":
            break
    else:
        return "a job alone never comes to its end"
    if (rows := ended.sessions[-1].rows) != tuple(range(1, ended.source + 1)):
        return f"sessions has {rows}, and the source {ended.source}"
    runs = tuple(run for run, _, _ in runs_in_force(ended.sessions) if run)[::-1]
    for table, right in enumerate((owed(TRACED, 0, 0, ended.source), owed(REJECTED, 0, 0, ended.source), runs)):
        if (rows := ended.beside[table][-1].rows) != right:
            return f"{NAMES[table]} has {rows}, and right is {right}"
    return None


@dataclass(frozen=True)
class Explored:
    """How many states there are, and the shortest way to a wrong one."""

    states: int
    fault: str | None = None
    way: tuple[str, ...] = ()


def explore(state: State, rules: Rules | None = None) -> Explored:
    """All states that can be reached, by the shortest way first, up to the first that is wrong."""
    rules = rules or Rules()
    came: dict[State, tuple[State, str] | None] = {state: None}
    front = [state]
    while front:
        following = []
        for now in front:
            if fault := wrong(now, rules):
                return Explored(len(came), fault, _way(came, now))
            for name, after in steps(now, rules):
                if after not in came:
                    came[after] = (now, name)
                    following.append(after)
        front = following
    return Explored(len(came))


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way = []
    while (step := came[state]) is not None:
        state, name = step
        way.append(name)
    return tuple(way[::-1])


def _position_before(sessions: tuple[Commit, ...], run: int) -> int:
    """Where the run before this one had come to, as its manifest has it."""
    at = next(version for version, commit in enumerate(sessions) if commit.kind == RUN and commit.run == run)
    earlier, version, _ = in_force(sessions[:at])
    return sessions[version].position if earlier else 0


def _with(state: State, n: int, job: Job) -> State:
    return state._replace(jobs=(*state.jobs[:n], job, *state.jobs[n + 1 :]))


def _beside(state: State, table: int, writes: tuple[Write, ...]) -> State:
    return state._replace(beside=(*state.beside[:table], writes, *state.beside[table + 1 :]))


def without(rule: str) -> Rules:
    """The protocol without one of its rules."""
    return replace(Rules(), **{rule: False})
