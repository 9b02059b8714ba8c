"""How rows and histories are told to people."""

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from tests.machine.oracle import World
from tests.machine.rule import FIRST, MINUTE, Key, Row, Rule
from tests.machine.steps import (
    Add,
    AddColumn,
    Aggregates,
    Backfill,
    Beside,
    Change,
    Crash,
    Delete,
    Erase,
    Forget,
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
from tests.machine.telling import key_text, schema, types


def clock(time: int | None) -> str:
    """The minute of the day, and microseconds beyond it."""
    if time is None:
        return "-"
    minutes, rest = divmod(time - FIRST, MINUTE)
    return f"{minutes}" if not rest else f"{minutes}+{rest}us"


def sql(name: str, value: Any, rule: Rule) -> str:
    """A cell of the source as SQL has it."""
    if value is None:
        return f"CAST(NULL AS {types(rule)[name]})"
    if name == "at":
        return f"timestamp_micros({value - rule.earlier})"
    return f"CAST('{key_text(value, rule) if name == 'k1' else value}' AS {types(rule)[name]})"


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
    if isinstance(value, int | float | Decimal):
        return "nan" if math.isnan(value) else f"{float(value) + 0.0:.9g}"
    return str(value)


IMPORTS = """from contextlib import suppress
from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.exactness.play import Play, at
from tests.kills import Killed, killing
from tests.machine.options import sections
from tests.machine.rule import Rule
"""


def reproduction(rule: Rule, steps: list[Step]) -> str:
    """The history as lines of a test in tests/exactness, which run as they are."""
    world = World(rule)
    lines = [IMPORTS, f"rule = {rule}", f"done = Play(spark, tmp_path, {schema(rule)!r}, **sections(rule, tmp_path))"]
    for step in steps:
        do(world, step)
        lines += written(step, world, rule)
        if step is steps[0]:
            lines.append("done.init()")
    return "\n".join(lines)


def written(step: Step, world: World, rule: Rule) -> list[str]:
    """The step in the notation of a Play."""

    def minute(time: int) -> str:
        """As a Play counts them."""
        minutes, rest = divmod(time - rule.earlier - FIRST, MINUTE)
        return f"{minutes}" if not rest else f"{minutes} + {rest} / {MINUTE}"

    match step:
        case Add():
            return [f'done.append_frame(spark.sql("{rows_of(step.rows, rule)}"))']
        case Update():
            values = {
                n: ", ".join(f"{c} = {sql(c, v, rule)}" for c, v in change.items())
                for n, change in step.changes.items()
            }
            return [f'done.source("UPDATE {{}} SET {values[n]} WHERE n = {n}")' for n in values]
        case Delete():
            return [f'done.source("DELETE FROM {{}} WHERE n IN ({", ".join(map(str, step.numbers))})")']
        case Overwrite():
            return [f'done.source("INSERT OVERWRITE {{}} {rows_of(world.source.elements(), rule)}")']
        case Run():
            pushed = ["flush=True"] if step.flush else []
            pushed += [] if step.advance is None else [f"advance_to=at({minute(step.advance)})"]
            override = f"override=WatermarkOverride({', '.join(pushed)})" if pushed else ""
            return [f"done.at({minute(step.now)}).run({override})"]
        case Backfill():
            keys = "".join(f", {json.dumps({'k1': key_text(key[0], rule)})!r}" for key in step.keys or ())
            return [f"done.at({minute(step.now)}).backfill({minute(step.low)}, {minute(step.high)}{keys})"]
        case Readmit():
            return [f"done.at({minute(step.now)}).readmit({minute(step.low)}, {minute(step.high)})"]
        case Erase():
            # as `readmit`, with deletes=True
            return [f"done.at({minute(step.now)}).readmit_deletes()"]
        case Forget():
            return [f"forget(done.kind, {step.keep}, done.now, done.said.append)"]
        case Rebuild():
            return [f"done.at({minute(step.now)}).rebuild()"]
        case Crash():
            (line,) = written(step.job, world, rule)
            return [f"with suppress(Killed), killing({step.nth}, after=False):", f"    {line}"]
        case _:
            return _beside(step, world)


def _beside(step: Beside, world: World) -> list[str]:
    match step:
        case AddColumn():
            return ['done.source("ALTER TABLE {} ADD COLUMN added INT")']
        case Change() | Aggregates():
            return [f"rule = {world.rule}", "done.change(**sections(rule, tmp_path))"]
        case Maintain():
            return ["# `maintain`"]
        case Restore():
            return [f"# RESTORE of sessions to before {step.jobs} jobs"]


def rows_of(rows: Iterable[Row], rule: Rule) -> str:
    """Rows of the source, which may be none, as a query."""
    told = values_of(rows, rule)
    nothing = Row(*[None] * len(Row._fields))  # type: ignore[arg-type]
    of, limit = (told, "") if told else (values_of([nothing], rule), " LIMIT 0")
    return f"SELECT * FROM VALUES {of} AS t({', '.join(Row._fields)}){limit}"


def values_of(rows: Iterable[Row], rule: Rule) -> str:
    return ", ".join(f"({', '.join(sql(*cell, rule) for cell in row._asdict().items())})" for row in rows)
