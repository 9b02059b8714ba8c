"""What becomes of aggregates, and of the columns that they have, from one rule to the next; needs no Spark."""

from typing import Any

import pytest
from pyspark.sql import types as T

from sessionizer.lib.aggregates.evolution import Definitions, by_name, evolution, mismatches, widened

TOTAL = {"name": "total", "fn": "sum", "of": "n"}
KINDS = {"name": "kinds", "fn": "set", "of": "k", "at_most": 5}
LARGEST = {"name": "total", "fn": "max", "of": "n"}


def named(*of: dict[str, Any]) -> Definitions:
    return by_name(of)


@pytest.mark.parametrize(
    ("old", "new", "left", "told", "otherwise"),
    [
        ([TOTAL], [TOTAL], [], "", ()),
        ([TOTAL], [KINDS, TOTAL], [], "+kinds", ()),
        ([TOTAL, KINDS], [KINDS], [], "-total", ()),
        ([TOTAL], [LARGEST], [], "", ("total",)),
        ([], [TOTAL], [TOTAL], "+total", ()),  # the same comes back
        ([], [LARGEST], [TOTAL], "+total", ("total",)),
        ([TOTAL], [TOTAL | {"name": "Total"}], [], "+Total, -total", ("Total",)),  # Spark knows no case
        ([], [TOTAL | {"name": "kinds_truncated"}], [KINDS], "+kinds_truncated", ("kinds_truncated",)),
    ],
)
def test_what_comes_what_goes_and_what_cannot(
    old: list[dict[str, Any]],
    new: list[dict[str, Any]],
    left: list[dict[str, Any]],
    told: str,
    otherwise: tuple[str, ...],
) -> None:
    found = evolution(named(*old), named(*new), named(*left))
    assert (found.told(), found.otherwise) == (told, otherwise)
    assert set(found.left) == {of["name"] for of in (*old, *left)} - {of["name"] for of in new}


STRING, INT, LONG = T.StringType(), T.IntegerType(), T.LongType()


def struct(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, data_type) for name, data_type in columns.items()])


def test_a_table_may_lack_what_comes_and_have_what_has_gone_and_nothing_else() -> None:
    there = struct(u=STRING, total=LONG, _state=struct(total=INT))
    made = struct(u=STRING, kinds=T.ArrayType(INT), kinds_truncated=T.BooleanType(), _state=struct(kinds=INT))
    assert mismatches(there, made, evolution(named(TOTAL), named(KINDS), {})) == []
    assert mismatches(there, made, evolution({}, named(KINDS), {})) == [
        "_state.total is INT and must be absent",
        "total is BIGINT and must be absent",
    ]
    assert mismatches(there, made, evolution(named(TOTAL), {}, {})) == [
        "_state.kinds is absent and must be INT",
        "kinds is absent and must be ARRAY<INT>",
        "kinds_truncated is absent and must be BOOLEAN",
    ]
    wider = struct(u=STRING, total=T.DoubleType(), _state=struct(total=INT))
    found = mismatches(there, wider, evolution({}, named(TOTAL), named(TOTAL)))
    assert found == ["total is BIGINT and must be DOUBLE"]


def test_new_columns_and_fields_come_behind_those_that_are_there() -> None:
    there = struct(u=STRING, run_id=STRING, _state=struct(l=INT, a=INT), old=INT)
    made = struct(U=STRING, kinds=INT, run_id=STRING, _state=struct(l=INT, b=INT))
    both = struct(u=STRING, run_id=STRING, _state=struct(l=INT, a=INT, b=INT), old=INT, kinds=INT)
    assert widened(there, made) == both
