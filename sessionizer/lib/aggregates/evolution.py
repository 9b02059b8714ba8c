"""Evolution: which columns of aggregates come and go from one rule to the next, and rows told by other columns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate

Definitions = Mapping[str, Mapping[str, Any]]  # aggregates by name, as a summary of the rule has them


@dataclass(frozen=True)
class Evolution:
    """What has become of the aggregates.

    added: they have no column yet, or one that a dropped aggregate of just this definition has left. dropped: their
    columns stay, and are null in what is written from now on. left: all whose columns are in the table, and in no rule
    any more. otherwise: names whose columns hold what another definition has made.
    """

    added: Definitions = field(default_factory=dict)
    dropped: Definitions = field(default_factory=dict)
    left: Definitions = field(default_factory=dict)
    otherwise: tuple[str, ...] = ()

    @property
    def may_lack(self) -> set[str]:
        """The columns that may not be there yet, and what live rows remember of them as `_state.…`."""
        return {name for of in self.added.values() for name in _all_columns_of(of)}

    @property
    def may_stay(self) -> set[str]:
        """The same of those that may be there still."""
        return {name for of in self.left.values() for name in _all_columns_of(of)}

    def told(self) -> str:
        """The names, for people: `+kinds, -total`."""
        return ", ".join([*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.dropped)])


def evolution(old: Definitions, new: Definitions, left: Definitions) -> Evolution:
    """From the aggregates of the rows to those of a rule. left: definitions whose columns earlier runs have left."""
    added, dropped = {n: new[n] for n in new if n not in old}, {n: old[n] for n in old if n not in new}
    there = {**left, **dropped}
    taken = {column.lower(): name for name, of in there.items() for column in columns_of(of)}
    differ = [name for name in new if name in old and old[name] != new[name]]
    for name, of in added.items():
        holders = {taken[column.lower()] for column in columns_of(of) if column.lower() in taken}
        if holders and (holders != {name} or there[name] != of):
            differ.append(name)
    return Evolution(added, dropped, {n: of for n, of in there.items() if n not in new}, tuple(differ))


def by_name(aggregates: Iterable[Mapping[str, Any]]) -> Definitions:
    """The aggregates of a summary."""
    return {str(of["name"]): of for of in aggregates}


def columns_of(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that an aggregate of this definition makes."""
    return Aggregate.model_validate(definition).result_columns


def mismatches(found: T.StructType, wanted: T.StructType, evolved: Evolution) -> list[str]:
    """Where a table has not the columns that a rule makes, in name and type, as text.

    What live rows remember counts as columns `_state.…`; whether anything may be null does not matter.
    """
    there, made, may_lack, may_stay = _flat(found), _flat(wanted), evolved.may_lack, evolved.may_stay
    wrong = {name for name in there.keys() & made.keys() if there[name] != made[name]}
    wrong |= (made.keys() - there.keys() - may_lack) | (there.keys() - made.keys() - may_stay)
    return [f"{name} is {_told(there.get(name))} and must be {_told(made.get(name))}" for name in sorted(wrong)]


def widened(there: T.StructType, made: T.StructType) -> T.StructType:
    """The columns that are there, structs with the fields of both, then those that are new; as Spark compares names."""
    fields = {f.name.lower(): f for f in made.fields}

    def both(known: T.StructField) -> T.StructField:
        new = fields.pop(known.name.lower(), known).dataType
        if isinstance(known.dataType, T.StructType) and isinstance(new, T.StructType):
            return T.StructField(known.name, widened(known.dataType, new))
        return known

    return T.StructType([*map(both, there.fields), *fields.values()])


def told_by(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """The rows with just these columns; what they have not, in structs, too, is null."""
    return rows.select(*[_value(rows.schema, field, C.col).alias(field.name) for field in columns.fields])


def _value(there: T.StructType, wanted: T.StructField, get: Callable[[str], Column]) -> Column:
    types = {f.name.lower(): f.dataType for f in there.fields}
    if (found := types.get(wanted.name.lower())) is None:
        return F.lit(None).cast(wanted.dataType)
    value = get(wanted.name)
    of = wanted.dataType
    if not (isinstance(found, T.StructType) and isinstance(of, T.StructType)):
        return value
    if found.simpleString() == of.simpleString():
        return value
    fields = [_value(found, inner, lambda name: value[name]).alias(inner.name) for inner in of.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def _all_columns_of(definition: Mapping[str, Any]) -> tuple[str, ...]:
    return (*columns_of(definition), f"{C.STATE}.{definition['name']}")


def _flat(schema: T.StructType) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in schema.fields:
        if column.name == C.STATE and isinstance(column.dataType, T.StructType):
            found |= {f"{C.STATE}.{f.name}": f.dataType.simpleString() for f in column.dataType.fields}
        else:
            found[column.name] = column.dataType.simpleString()
    return found


def _told(data_type: str | None) -> str:
    return "absent" if data_type is None else data_type.upper()
