"""`aggregates`: columns computed over the events of a session, or of a window."""

from collections.abc import Collection
from typing import Literal, Self

from pydantic import Field, StrictBool, field_validator, model_validator

from sessionizer.lib import columns as C
from sessionizer.lib.config.types import Length, Section, Text, broken_rule

Fn = Literal[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "stddev",
    "first",
    "last",
    "count_distinct",
    "set",
    "list",
    "approx_count_distinct",
    "approx_percentile",
    "bool_or",
    "bool_and",
    "custom",
]
FUNCTIONS_WITH = {
    "at_most": ("set", "list"),
    "ignore_nulls": ("first", "last", "custom"),
    "percentile": ("approx_percentile",),
    **dict.fromkeys(("initial", "update", "merge", "finish"), ("custom",)),
}
NEEDED_BY = {"approx_percentile": ("percentile",), "custom": ("initial", "update", "merge")}


class Aggregate(Section):
    """A column computed over the events of a session, or from its other columns."""

    name: Text = Field(description="Name of the column in the sessions table")
    fn: Fn | None = Field(
        None,
        description="Function; count without `of` counts events, set holds the distinct values in ascending order and "
        "list all values in time order (both without nulls), stddev is that of a sample: null for a single value",
    )
    of: Text | None = Field(None, description="Column or SQL expression; needed for all functions but count")
    sql: Text | None = Field(
        None,
        description="Instead of fn: SQL expression over the finished session: key columns, session_start, "
        "session_end, expires_at, duration_seconds, event_count and the other aggregates, those with sql only if "
        "they come before",
    )
    at_most: Length | None = Field(
        None,
        description="set and list only: the largest number of values kept, the smallest of a set and the earliest of "
        "a list; the column <name>_truncated tells whether there were more",
    )
    ignore_nulls: StrictBool = Field(False, description="first, last and custom only: skip nulls")
    percentile: float | None = Field(
        None, ge=0, le=1, description="approx_percentile only, and needed there: 0.5 is the median, 0.95 the 95th"
    )
    initial: Text | None = Field(
        None, description="custom only: SQL of the accumulator before any event; its type is the accumulator's"
    )
    update: Text | None = Field(
        None,
        description="custom only: SQL of the accumulator after an event, from `acc` and `value`; events come in order "
        "of time, order_by and value, nulls included unless ignore_nulls",
    )
    merge: Text | None = Field(
        None,
        description="custom only: SQL that joins two accumulators, `left` and `right`; the first event of left is the "
        "earlier one, but times may overlap. However events are split, merging must give what updating gives",
    )
    finish: Text | None = Field(None, description="custom only: SQL of the result, from `acc`; default: acc")
    source: Text | None = Field(
        None, repr=False, description="Of several sources the one whose events count here alone, by its name"
    )

    @field_validator("percentile", mode="before")
    @classmethod
    def _percentile_is_a_share(cls, value: object) -> object:
        try:
            share = None if isinstance(value, bool) else float(str(value))
        except ValueError:
            share = None
        if value is not None and (share is None or not 0 <= share <= 1):
            raise broken_rule("must be a number from 0 to 1", "Write 0.95 for the 95th percentile", value)
        return share

    @model_validator(mode="after")
    def _options_fit_function(self) -> Self:
        if self.name.startswith("_"):
            raise broken_rule("must not have a name that starts with _", "Choose another name", self.name)
        if self.fn is None and self.sql is None:
            raise broken_rule("must have fn or sql", f"Add `fn: ` and a function to {self.name}", self.name)
        given = {name for name, value in self if value is not None and value is not False}
        if self.sql is not None and (others := sorted(given - {"name", "sql"})):
            raise broken_rule("must have nothing beside name and sql", f"Remove {', '.join(others)}", self.name)
        if self.sql is None and self.of is None and self.fn != "count":
            raise broken_rule("must say of what", f"Add `of: ` and a column or SQL expression to {self.name}", self.fn)
        for option, functions in FUNCTIONS_WITH.items():
            if option in given and self.fn not in functions:
                whose = " and ".join(functions)
                raise broken_rule(f"can have {option} only with {whose}", f"Remove it from {self.name}", self.fn)
        for option in NEEDED_BY.get(self.fn or "", ()):
            if option not in given:
                raise broken_rule(f"must have {option}", f"Add `{option}: ` to {self.name}", self.fn)
        return self

    def value(self, columns: Collection[str] = ()) -> str | None:
        """What is aggregated, as SQL over an event; null for those of other sources. None: nothing but their number.

        columns: those there are; the name of one stands for it, whatever else it would mean.
        """
        if self.source is None:
            return self.of
        is_column = self.of is not None and self.of.lower() in {name.lower() for name in columns}
        of = C.quoted(self.of) if self.of is not None and is_column else self.of or "true"
        return f"CASE WHEN {self.of_source} THEN ({of}\n) END"

    @property
    def of_source(self) -> str | None:
        """Whether an event is of the source that counts here alone, as SQL; None: all count."""
        return None if self.source is None else f"{C.SOURCE} = {C.literal(self.source)}"

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Columns of the sessions table: a capped set or list also tells whether it was cut."""
        return (self.name,) if self.at_most is None else (self.name, f"{self.name}_truncated")
