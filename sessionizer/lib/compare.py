"""When two rows are the same: the one comparison of results (SEMANTICS §3)."""

import re
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.canonical import JSON_OPTIONS, for_json, sorted_maps
from sessionizer.lib.expressions import is_ordered
from sessionizer.lib.rule import Rule

FLOATS = (T.DoubleType, T.FloatType)
# Relatively, how far two results of the same events may be apart, added in another order or sketched by other parts.
ADDED = 1e-9
SINGLE = 1e-5  # in single precision
SKETCHED = {"stddev": 1e-6, "approx_count_distinct": 0.1, "approx_percentile": 0.05}
ALL_HELD = 200  # values that a sketch holds one by one: it tells the same of them in whatever order they came


def tolerances(rule: Rule) -> dict[str, float]:
    """By column: how far apart results may be that depend on the order in which events are added.

    SQL sees other columns: what it makes of them may be as far apart as any that it names.
    """
    found = {a.name: ADDED for a in rule.aggregates if a.fn in ("sum", "avg", "custom")}
    found |= {a.name: SKETCHED[a.fn] for a in rule.aggregates if a.fn in SKETCHED}
    for made in (a for a in rule.aggregates if a.sql is not None):
        named = (near for name, near in found.items() if _is_named(name, str(made.sql)))
        found[made.name] = max(named, default=ADDED)
    return found


def _is_named(name: str, sql: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


def same_row(
    one: Mapping[str, Column],
    other: Mapping[str, Column],
    types: Mapping[str, T.DataType],
    within: Mapping[str, float] | None = None,
    events: Column | None = None,
) -> Column:
    """Whether two rows are the same in these columns. events: of how many they are, where sketches are told by it."""
    near = within or {}
    same = [same_value(one[name], other[name], types[name], near.get(name, 0.0)) for name in types]
    if events is not None:
        sketched = [name for name in types if near.get(name, 0.0) > SKETCHED["stddev"]]
        same += [(events > ALL_HELD) | same_value(one[name], other[name], types[name], ADDED) for name in sketched]
    return reduce(Column.__and__, same, F.lit(True))


def same_value(
    one: Column, other: Column, data_type: T.DataType, within: float = 0.0, near: Column | None = None
) -> Column:
    """Whether two results are the same: identical, NaN and infinities too; numbers maybe nearly.

    within: how far apart numbers may be, relatively; near: the same absolutely.
    """
    if within and isinstance(data_type, T.StructType):
        fields = [same_value(one[f.name], other[f.name], f.dataType, within) for f in data_type.fields]
        return reduce(Column.__and__, fields, one.isNull().eqNullSafe(other.isNull()))
    if within and isinstance(data_type, T.MapType):
        entry = T.StructType([T.StructField("key", data_type.keyType), T.StructField("value", data_type.valueType)])
        one, other = (F.map_entries(sorted_maps(value, data_type)) for value in (one, other))
        return same_value(one, other, T.ArrayType(entry), within)
    if within and isinstance(data_type, T.ArrayType):
        pairs = F.zip_with(one, other, lambda a, b: same_value(a, b, data_type.elementType, within))
        alike = (F.size(one) == F.size(other)) & F.forall(pairs, lambda same: same)
        return F.when(one.isNull() | other.isNull(), one.isNull() & other.isNull()).otherwise(alike)
    if not is_ordered(data_type):
        one, other = (F.to_json(F.struct(for_json(v, data_type).alias("v")), JSON_OPTIONS) for v in (one, other))
    same = one.eqNullSafe(other)
    is_exact = not within and near is None
    if is_exact or not isinstance(data_type, FLOATS if 0 < within <= ADDED else T.NumericType):
        return same
    a, b = one.cast("double"), other.cast("double")
    within = max(within, SINGLE) if isinstance(data_type, T.FloatType) else within
    most = within * F.greatest(F.abs(a), F.abs(b))
    most = most if near is None else F.greatest(most, near)
    return same | F.coalesce(_is_finite(a) & _is_finite(b) & (F.abs(a - b) <= most), F.lit(False))


def _is_finite(value: Column) -> Column:
    return ~F.isnan(value) & (F.abs(value) < float("inf"))
