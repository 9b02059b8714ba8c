"""Steps as the oracle does them."""

from tests.machine.histories import Add, Backfill, Delete, Overwrite, Readmit, Rebuild, Run, Step, Update
from tests.machine.oracle import Counts, World


def do(world: World, step: Step) -> list[Counts]:
    """The counts of increments, if it is a run."""
    match step:
        case Add() if step.rows:
            world.add(step.rows)
        case Update() if step.changes:
            world.change(step.changes)
        case Delete() if step.numbers:
            world.delete(step.numbers)
        case Overwrite():
            world.overwrite(step.changes, step.gone, step.rows)
        case Run():
            return world.run(step.now, step.flush, step.advance)
        case Backfill():
            world.backfill(step.now, step.low, step.high, None if step.keys is None else set(step.keys))
        case Readmit():
            world.readmit(step.now, step.low, step.high)
        case Rebuild():
            world.rebuild(step.now)
    return []
