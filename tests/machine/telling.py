"""Rows and times as the tables have them: keys of their type, times of their era, and back."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.machine.rule import FIRST, Key, Row, Rule, number
from tests.oracle import at, us

OTHERS = "k2 INT, at TIMESTAMP, id INT, g INT, o INT, x INT, v DOUBLE"
ARROW = dict.fromkeys(Row._fields, pa.int32()) | {"at": pa.timestamp("us", "UTC"), "v": pa.float64()}
KEYS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "DECIMAL(12,2)": pa.decimal128(12, 2),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "BINARY": pa.binary(),
}


def schema(rule: Rule) -> str:
    """The source's columns."""
    return f"n INT, {in_source('k1', rule)} {rule.type_of_key}, {OTHERS}"


def types(rule: Rule) -> dict[str, str]:
    return dict(column.split() for column in schema(rule).split(", ")) | {"k1": rule.type_of_key}


def in_source(name: str, rule: Rule) -> str:
    """What the source calls the column; in order of names in the same place."""
    return "k1_told" if rule.is_made and name == "k1" else name


def key_of(name: str, rule: Rule) -> Any:
    """The user as the key's column has them: `u7`, 7, 7.25, seven microseconds past, or bytes."""
    n = int(name[1:])
    match rule.type_of_key:
        case "BIGINT":
            return n
        case "DECIMAL(12,2)":
            return Decimal(n) + Decimal("0.25")
        case "TIMESTAMP":
            return at(FIRST + n)
        case "BINARY":
            return name.encode()
    return name


def key_text(name: str, rule: Rule) -> str:
    """The same as JSON and as SQL have it, between quotes."""
    value = key_of(name, rule)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    return value.decode() if isinstance(value, bytes) else str(value)


def arrow(rows: Iterable[Row], rule: Rule) -> pa.Table:
    """The rows as the source has them."""
    kinds = ARROW | {"k1": KEYS[rule.type_of_key]}
    columns = list(zip(*[_told(row, rule) for row in rows], strict=True)) or [()] * len(Row._fields)
    arrays = [pa.array(c, kinds[n]) for n, c in zip(Row._fields, columns, strict=True)]
    return pa.table(arrays, [in_source(name, rule) for name in Row._fields])


def read(table: pa.Table, rule: Rule) -> list[dict[str, Any]]:
    """Rows of a table as they are told here: times in microseconds of our era, keys as `u7`."""
    return [{name: _back(name, cell, rule) for name, cell in row.items()} for row in table.to_pylist()]


def who(row: dict[str, Any], rule: Rule) -> Key:
    return tuple(row[name] for name in rule.key)


def columns_read(names: Sequence[str]) -> list[str]:
    """Without what nobody compares: states, and times that may lie outside all years."""
    return [n for n in names if n not in ("_state", "watermark", "horizon")]


def _told(row: Row, rule: Rule) -> tuple[Any, ...]:
    told = row._replace(
        k1=None if row.k1 is None else key_of(row.k1, rule),
        at=None if row.at is None else at(row.at - rule.earlier),  # type: ignore[arg-type]
        v=number(row.v),  # type: ignore[arg-type]
    )
    return tuple(told)


def _back(name: str, cell: Any, rule: Rule) -> Any:
    if name == "k1" and cell is not None:
        return f"u{_user(cell)}"
    if isinstance(cell, datetime):
        return us(cell) + rule.earlier
    return cell


def _user(cell: Any) -> int:
    if isinstance(cell, datetime):
        return us(cell) - FIRST
    if isinstance(cell, bytes):
        return int(cell.decode()[1:])
    return int(cell[1:]) if isinstance(cell, str) else int(cell)
