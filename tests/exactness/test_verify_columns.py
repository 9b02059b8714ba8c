"""Of each column of a sessions table, and each part of what live rows remember, verify tells a wrong value."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.commands import verify as command
from sessionizer.lib import columns as C
from tests.exactness.play import Play

Plays = Callable[..., Play]
Place = tuple[str, ...]  # a column, or a part of one

OF_ALL = ("count", "min", "max", "first", "last", "count_distinct", "set", "list", "approx_count_distinct")
AGGREGATES: list[dict[str, Any]] = [
    *({"name": f"a_{fn}", "fn": fn, "of": "n"} for fn in (*OF_ALL, "sum", "avg", "stddev")),
    *({"name": f"few_{fn}", "fn": fn, "of": "n", "at_most": 2} for fn in ("set", "list")),
    *({"name": f"a_{fn}", "fn": fn, "of": "n > 2"} for fn in ("bool_or", "bool_and")),
    {"name": "median", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
    {"name": "twice", "sql": "a_sum * 2"},
    {"name": "own", "fn": "custom", "of": "n", "initial": "0L", "update": "acc + value", "merge": "left + right"},
]
BY_CONTENT = {
    **{"gap": "10m", "starts_when": "n = 98", "ends_when": "n = 99", "changes_of": ["n > 90"], "cut_at": "midnight"},
    **{"max_events": 50, "max_duration": "2h"},
}
NOT_OF_EVENTS = {(C.SUPERSEDES,), (C.RUN_ID,), (C.STATE, "_layout")}  # how a row came about
FINAL, LIVE = 70, 110  # users of each: more than there are places


def places_of(kind: T.StructType, path: Place = ()) -> Iterator[tuple[Place, T.DataType]]:
    for field in kind.fields:
        if isinstance(field.dataType, T.StructType):
            yield from places_of(field.dataType, (*path, field.name))
        else:
            yield (*path, field.name), field.dataType


def another(value: Column, kind: T.DataType, sketch: bytes) -> Column:
    """One that differs."""
    match kind:
        case T.BooleanType():
            return F.coalesce(~value, F.lit(True))
        case T.TimestampType():
            return F.coalesce(value + F.expr("INTERVAL 1 MICROSECOND"), F.timestamp_micros(F.lit(0)))
        case T.DateType():
            return F.date_add(value, 1)
        case T.StringType():
            return F.concat(F.coalesce(value, F.lit("")), F.lit("x"))
        case T.ArrayType():
            nothing = F.array(F.lit(None).cast(kind.elementType))
            return F.when(F.size(value) > 0, F.slice(value, 2, 100)).otherwise(nothing)
        case T.BinaryType():
            return F.lit(sketch)
    return F.coalesce((value + 1).cast(kind), F.lit(7).cast(kind))


def spoilt(rows: DataFrame, sketches: dict[str, bytes]) -> tuple[DataFrame, dict[str, Place]]:
    """The rows, of each user but tick another column changed; and which."""
    told: dict[str, Place] = {}
    columns = {name: F.col(name) for name in rows.columns}
    schema = rows.schema
    for letter, of in (("f", T.StructType([f for f in schema.fields if f.name != C.STATE])), ("l", schema)):
        for number, (place, kind) in enumerate(places_of(of)):
            user, (name, *parts) = f"{letter}{number:03}", place
            value = F.col(name)
            for part in parts:
                value = value[part]
            new = another(value, kind, sketches.get(".".join(parts), b""))
            if parts:
                new = F.col(name).withField(".".join(f"`{part}`" for part in parts), new)
            columns[name] = F.when(F.col("u") == user, new).otherwise(columns[name])
            told[user] = place
    return rows.select(*[column.alias(name) for name, column in columns.items()]).localCheckpoint(), told


@pytest.mark.broad
@pytest.mark.timeout(900)
def test_a_wrong_value_of_each_column_is_found(play: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [*((f"f{i:03}", 0) for i in range(FINAL)), *((f"l{i:03}", 100) for i in range(LIVE))]
    events = [f"{user}@{begin + minute}={n}" for user, begin in times for minute, n in ((1, 1), (3, 3), (4, 4))]
    done = play(" ".join([*events, "tick@106=50"]), session=BY_CONTENT, aggregates=AGGREGATES)
    done.runs(" ".join(f"l{i:03}@108=9" for i in range(LIVE))).assert_clean()
    rows = done.tables.sessions.table.read()
    kinds = [".".join(path[1:]) for path, kind in places_of(rows.schema) if isinstance(kind, T.BinaryType)]
    first = rows.where("u = 'tick'").select(*[f"{C.STATE}.{kind}" for kind in kinds]).collect()[0]
    wrong, told = spoilt(rows, dict(zip(kinds, map(bytes, first), strict=True)))
    with done.tables.sessions.table.lock():
        wrong.write.format("delta").mode("overwrite").save(done.config.sessions.table)
    seen: list[Any] = []

    def all_wrong(told: DataFrame, _: object) -> list[Any]:
        seen.extend(told.collect())
        return []

    monkeypatch.setattr(command, "first_wrong", all_wrong)
    done.verify()
    found = {row[side]["u"] for row in seen for side in ("found", "expected") if row[side] is not None}
    assert {place for user, place in told.items() if user not in found} == NOT_OF_EVENTS
