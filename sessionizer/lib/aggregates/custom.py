"""Aggregates that the configuration writes in SQL: `fn: custom`."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.aggregates.functions import NESTED, Over, Parts, Triple, counting, ranked
from sessionizer.lib.canonical import compared
from sessionizer.lib.config import Aggregate as Spec
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.expressions import expression_of


def custom(spec: Spec, value_type: T.DataType, order: list[Column], events: DataFrame) -> Triple:
    """The steps that a configuration states, for values of this type.

    `update` folds the values of a part into `acc`, in order, from `initial` on; `merge` joins parts in the order of
    their first events, the earlier one being `left`; `finish` makes the result of `acc`.

    Errors: ConfigError for an expression that does not parse, names something else than its own names, or does not
    give the type of `initial`.
    """
    scope = _Scope(spec, events)
    initial = scope.column("initial", {})
    acc_type = scope.type_of(initial, {})
    update = scope.step("update", {"acc": acc_type, "value": value_type}, acc_type)
    merge = scope.step("merge", {"left": acc_type, "right": acc_type}, acc_type)
    scope.column("finish", {"acc": acc_type})
    result = _lambda(("acc",), spec.finish or "acc")

    def state(first: Column, acc: Column) -> Column:
        return F.when(first.isNotNull(), F.struct(first.alias("first"), acc.alias("acc")))

    def partial(value: Column, over: Over) -> Parts:
        one = ranked(value, order, counting(spec))
        values = F.transform(F.sort_array(over(F.collect_list(one))), lambda r: r["value"])
        return [state(over(F.min(one)), F.call_function("aggregate", values, initial, update))]

    def merged(parts: Parts, over: Over) -> Parts:
        states = F.array_sort(over(F.collect_list(parts[0])), lambda a, b: compared(a["first"], b["first"]))
        earliest = F.get(states, 0)
        others = F.transform(F.slice(states, 2, F.size(states)), lambda s: s["acc"])
        return [state(earliest["first"], F.call_function("aggregate", others, earliest["acc"], merge))]

    def finish(parts: Parts) -> list[Column]:
        acc = F.when(parts[0].isNull(), initial).otherwise(parts[0]["acc"])
        return [F.get(F.call_function("transform", F.array(acc), result), 0)]

    return Triple(("state",), partial, merged, finish)


@dataclass(frozen=True)
class _Scope:
    """Where the expressions of one aggregate are checked: they see their own names, and no column of the events."""

    spec: Spec
    events: DataFrame

    def column(self, option: str, names: dict[str, T.DataType]) -> Column:
        return expression_of(self._text(option), self._frame(names), f"aggregates.{self.spec.name}.{option}")

    def type_of(self, column: Column, names: dict[str, T.DataType]) -> T.DataType:
        return self._frame(names).select(column.alias("result")).schema["result"].dataType

    def step(self, option: str, names: dict[str, T.DataType], acc_type: T.DataType) -> Column:
        """A lambda over these names that gives the accumulator's type."""
        text, column = self._text(option), self.column(option, names)
        given = self.type_of(column, names)
        if given.simpleString() == acc_type.simpleString():
            return _lambda(tuple(names), text)
        if not self._widens(given, acc_type):
            wanted = given.simpleString().upper()
            raise ConfigError(
                f"aggregates.{self.spec.name}.{option} gives {wanted}, and initial {acc_type.simpleString().upper()}",
                value=text,
                remedy=f"write both with the same type, for example initial: CAST({self.spec.initial} AS {wanted})",
            )
        return _lambda(tuple(names), f"CAST(({text}\n) AS {acc_type.simpleString()})")

    def _widens(self, given: T.DataType, acc_type: T.DataType) -> bool:
        """Whether a cast loses nothing; precision of decimals, which grows with every addition, is kept to."""
        if isinstance(given, NESTED) or isinstance(acc_type, NESTED):
            return False
        if isinstance(given, T.DecimalType) and isinstance(acc_type, T.DecimalType):
            return True
        names = {"given": given, "acc": acc_type}
        return self.type_of(F.coalesce(F.col("acc"), F.col("given")), names) == acc_type

    def _text(self, option: str) -> str:
        text: str | None = getattr(self.spec, option)
        return text or "acc"

    def _frame(self, names: dict[str, T.DataType]) -> DataFrame:
        return self.events.select(*[F.lit(None).cast(t).alias(n) for n, t in names.items()])


def _lambda(names: tuple[str, ...], text: str) -> Column:
    arguments = ", ".join(names)
    return F.expr(f"({arguments}) -> {text}" if len(names) > 1 else f"{arguments} -> {text}")
