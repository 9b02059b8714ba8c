"""How rows and histories are told to people."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.machine.options import sections
from tests.machine.oracle import World
from tests.machine.rule import FIRST, MINUTE, Key, Row, Rule
from tests.machine.steps import Add, Backfill, Delete, Overwrite, Readmit, Rebuild, Run, Step, Update, do

SCHEMA = "n INT, k1 STRING, k2 INT, at TIMESTAMP, id INT, g INT, o INT, x INT, v DOUBLE"
TYPES = dict(column.split() for column in SCHEMA.split(", "))


def clock(time: int | None) -> str:
    """The minute of the day, and microseconds beyond it."""
    if time is None:
        return "-"
    minutes, rest = divmod(time - FIRST, MINUTE)
    return f"{minutes}" if not rest else f"{minutes}+{rest}us"


def sql(name: str, value: Any) -> str:
    if value is None:
        return f"CAST(NULL AS {TYPES[name]})"
    if name == "at":
        return f"timestamp_micros({value})"
    return f"CAST('{value}' AS {TYPES[name]})"


def drawn(key: Key, columns: dict[str, Any]) -> str:
    """Times as minutes of the day; doubles as near as makes no difference, the two zeros as one."""
    return " ".join([str(key), *(f"{name}={cell(name, value)}" for name, value in columns.items())])


def cell(name: str, value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(cell("", v) for v in value) + "]"
    if name in ("session_start", "session_end", "expires_at"):
        return clock(value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.9g}"
    return str(value)


def reproduction(rule: Rule, steps: list[Step]) -> str:
    """The history as lines of a test in tests/exactness."""
    world = World(rule)
    lines = [f"# {rule}", f"done = Play(spark, tmp_path, {SCHEMA!r}, **{sections(rule, Path('.'))})"]
    for step in steps:
        do(world, step)
        lines += written(step, world)
        if step is steps[0]:
            lines.append("done.init()")
    return "\n".join(lines)


def written(step: Step, world: World) -> list[str]:
    """The step in the notation of a Play."""
    match step:
        case Add():
            return [f'done.add("""\n{table(step.rows)}\n""")']
        case Update():
            values = {
                n: ", ".join(f"{c} = {sql(c, v)}" for c, v in change.items()) for n, change in step.changes.items()
            }
            return [f'done.source("UPDATE {{}} SET {values[n]} WHERE n = {n}")' for n in values]
        case Delete():
            return [f'done.source("DELETE FROM {{}} WHERE n IN ({", ".join(map(str, step.numbers))})")']
        case Overwrite():
            rows = [", ".join(sql(*cell) for cell in row._asdict().items()) for row in world.source.elements()]
            return [f'done.source("INSERT OVERWRITE {{}} VALUES {", ".join(f"({row})" for row in rows)}")']
        case Run():
            pushed = ["flush=True"] if step.flush else []
            pushed += [] if step.advance is None else [f"advance_to=at({clock(step.advance)})"]
            override = f"override=WatermarkOverride({', '.join(pushed)})" if pushed else ""
            return [f"done.at({clock(step.now)}).run({override})"]
        case Backfill():
            keys = "".join(f', \'{{"k1": "{key[0]}"}}\'' for key in step.keys or ())
            return [f"done.at({clock(step.now)}).backfill({clock(step.low)}, {clock(step.high)}{keys})"]
        case Readmit():
            return [f"done.at({clock(step.now)}).readmit({clock(step.low)}, {clock(step.high)})"]
        case Rebuild():
            return [f"done.at({clock(step.now)}).rebuild()"]


def assigned(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {sql(name, value)}" for name, value in change.items())


def table(rows: Iterable[Row]) -> str:
    cells = [Row._fields, *(row._replace(at=clock(row.at)) for row in rows)]  # type: ignore[arg-type]
    return "\n".join("    " + " | ".join("-" if cell is None else str(cell) for cell in line) for line in cells)
