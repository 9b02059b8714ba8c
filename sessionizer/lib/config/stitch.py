"""`stitch`: a table that says whose each device is, and the column that events get from it."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from sessionizer.lib import columns as C
from sessionizer.lib.config.types import Location, Section, Text, broken_rule, plain_name


class Stitch(Section):
    """A mapping table, by which events get a column."""

    model_config = ConfigDict(serialize_by_alias=True)

    table: Location = Field(description="Path, URL or catalog name of the mapping table; its change data feed is on")
    from_: Text = Field(alias="from", description="Column of the mapping table and of the events that they meet by")
    to: Text = Field(description="Column of the mapping table whose value the events get; of several the smallest")
    as_: Text | None = Field(None, alias="as", description="Name of the column that the events get; to, unless told")

    @model_validator(mode="after")
    def _the_column_has_a_plain_name(self) -> Self:
        plain_name(self.column, "the name of a column, ", "as: user_id")
        if self.column.lower() in (C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP):
            raise broken_rule("must not call the column as one of a change feed", "Write as: user_id", self.column)
        return self

    @property
    def column(self) -> str:
        """The name of the column that the events get."""
        return self.to if self.as_ is None else self.as_

    def summary(self) -> dict[str, str]:
        """As a rule tells it. Which table it is of, its id tells."""
        return {"from": self.from_, "to": self.to, "as": self.column}
