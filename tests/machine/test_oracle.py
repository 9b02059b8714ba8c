"""The oracle by itself: what it says of small plays, and that its books are in balance after any history."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.machine.drawing import drawn
from tests.machine.histories import Teller
from tests.machine.options import covering, rule_of
from tests.machine.oracle import World
from tests.machine.rule import FIRST, MINUTE, Row, Rule
from tests.machine.steps import Add, do
from tests.machine.walk import aggregates

NOW = FIRST + 10_000 * MINUTE


def row(user: str, minute: float, n: int = 1, gap: int = 1) -> Row:
    return Row(n, user, 1, FIRST + int(minute * MINUTE), n, gap, 1, n, "1.5")


def made(rule: Rule, *parts: list[Row]) -> World:
    world = World(rule)
    for part in parts:
        world.add(part)
        world.run(NOW)
    return world


def spans(world: World) -> list[tuple[float, float, int, bool]]:
    found = [(s.start, s.end, len(s.events), s.late) for s in world.sessions() if s.key != ("tick",)]
    return sorted(((a - FIRST) / MINUTE, (b - FIRST) / MINUTE, n, late) for a, b, n, late in found)


def test_the_gap_joins_or_splits_at_exactly_its_length() -> None:
    events = [row("a", t) for t in (0, 10, 20.5)]
    assert spans(made(Rule(), events)) == [(0, 10, 2, False), (20.5, 20.5, 1, False)]
    assert [n for *_, n, _ in spans(made(Rule(splits=True), events))] == [1, 1, 1]


def test_the_reach_starts_anew_at_every_cut() -> None:
    rule = Rule(gap=None, longest=12)
    assert spans(made(rule, [row("a", 0, gap=60), row("a", 13), row("a", 15)])) == [
        (0, 0, 1, False),
        (13, 13, 1, False),
        (15, 15, 1, False),
    ]


def test_late_events_are_left_out_taken_in_or_apart() -> None:
    events = [row("tick", 100)], [row("a", 5)]
    assert spans(made(Rule(), *events)) == []
    assert spans(made(Rule(late="amend"), *events)) == [(5, 5, 1, False)]
    apart = made(Rule(late="separate"), *events)
    assert spans(apart) == [(5, 5, 1, True)]
    apart.backfill(NOW, FIRST, FIRST + 10 * MINUTE)
    assert (spans(apart), list(apart.rejected)) == ([(5, 5, 1, False)], [])


def test_an_event_that_touches_a_live_session_is_not_late_by_session() -> None:
    events = [row("tick", 100), row("a", 95)], [row("a", 86), row("a", 77), row("a", 60)]
    assert spans(made(Rule(lateness="session"), *events)) == [(77, 95, 3, False)]


def test_a_final_session_is_revived_or_stays_beside_the_new_one() -> None:
    events = [row("tick", 100), row("a", 85)], [row("a", 92)]
    assert spans(made(Rule(lateness="session"), *events)) == [(85, 85, 1, False), (92, 92, 1, False)]
    assert spans(made(Rule(lateness="session", revive=True), *events)) == [(85, 92, 2, False)]


def test_of_copies_the_lowest_is_accepted_and_when_it_goes_the_next() -> None:
    world = made(Rule(within=60, allowed=1000), [row("a", 0, 1)._replace(id=7), row("a", 1, 2)._replace(id=7)])
    assert spans(world) == [(0, 0, 1, False)]
    world.delete([1])
    world.run(NOW)
    assert (spans(world), list(world.rejected)) == ([(1, 1, 1, False)], [])


def test_a_correction_in_quarantine_is_made_when_it_is_readmitted() -> None:
    world = made(Rule(corrections="quarantine"), [row("a", 5, 3)])
    world.change({3: {"at": FIRST + 7 * MINUTE}})
    world.run(NOW)
    assert (spans(world), [r.kept for r in world.rejected]) == ([(5, 5, 1, False)], ["in", "out"])
    world.readmit(NOW, FIRST, FIRST + 100 * MINUTE)
    assert (spans(world), list(world.rejected)) == ([(7, 7, 1, False)], [])


@pytest.mark.parametrize("seed", range(3))
def test_accepted_is_the_source_without_what_is_out_and_with_what_is_in(seed: int) -> None:
    random = Random(seed)
    for choice in covering(random):
        rule = rule_of(choice)
        world = World(rule)
        for step in Teller(rule, random, users=6).tell():
            do(world, step)
            by_kept = {
                kept: Counter(r.row for r in world.rejected if r.kept == kept) for kept in ("out", "in", "apart")
            }
            accepted = Counter(e.row for e in (*world.main, *world.apart))
            source = world.consumed or Counter()
            assert accepted + by_kept["out"] == source + by_kept["in"], (rule, step)
            assert Counter(e.row for e in world.apart) == by_kept["apart"]
            assert sum(len(s.events) for s in world.with_forgotten()) == accepted.total()


@pytest.mark.parametrize("seed", range(5))
def test_any_split_gives_the_rows_of_one_run_where_late_events_are_taken_in(seed: int) -> None:
    random = Random(seed)
    for choice in covering(random):
        rule = replace(rule_of(choice), late="amend", within=None, from_version=None)
        rows = [r for s in Teller(rule, random, users=6).tell() if isinstance(s, Add) for r in s.rows]
        random.shuffle(rows)
        whole, split = made(rule, rows), made(rule, *(rows[n::3] for n in range(3)))
        assert whole_rows(whole) == whole_rows(split)


def whole_rows(world: World) -> list[str]:
    rows = [(s, aggregates(world.rule, s)) for s in world.sessions()]
    return sorted(drawn(s.key, {"session_start": s.start, "expires_at": s.expires, **made}) for s, made in rows)
