"""`corrections`: what it does to sessions that rows of the source are updated or deleted."""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, model_validator

from sessionizer.lib.config.types import Section, Text, broken_rule


class CorrectionsApart(Section):
    """What deletes do, and what all else does that changes rows."""

    deletes: Literal["apply", "ignore", "fail"] = Field(
        "apply",
        description="Rows that a DELETE takes away: apply takes their events out of the sessions; ignore leaves them "
        "in, as housekeeping is no correction; fail stops a run that would take one out",
    )
    updates: Literal["apply", "fail"] = Field(
        "apply", description="What UPDATE, MERGE and overwrites change: apply recomputes the sessions; fail stops"
    )
    erase_when: Text | None = Field(
        None,
        description="With deletes: ignore, SQL over a deleted row, _commit_timestamp and _commit_metadata (the "
        "userMetadata of the DELETE): where it is true, the event is taken out after all",
    )

    @model_validator(mode="after")
    def _what_is_applied_erases_all(self) -> Self:
        if self.erase_when is not None and self.deletes != "ignore":
            raise broken_rule(
                "can have erase_when only with deletes: ignore: all other deletes are alike",
                "Write deletes: ignore, or remove corrections.erase_when",
                self.erase_when,
            )
        return self


Corrections = Annotated[
    Annotated[Literal["apply", "quarantine", "fail"], Tag("(word)")] | Annotated[CorrectionsApart, Tag("(apart)")],
    Discriminator(lambda value: "(apart)" if isinstance(value, Mapping | CorrectionsApart) else "(word)"),
]
Policy = Literal["apply", "ignore", "quarantine", "fail"]


class Policies(NamedTuple):
    """What becomes of the rows that a DELETE takes away, and of what all other commits change."""

    deletes: Policy
    updates: Literal["apply", "quarantine", "fail"]
    erase_when: str | None = None

    @property
    def one_by_one(self) -> bool:
        """Whether each commit that changes rows has to be an increment of its own, else it depends on when runs come.

        Where changes are not made, what they change may have come just before, and stays as it came.
        """
        return self.updates == "quarantine" or self.deletes != self.updates


def policies(corrections: str | CorrectionsApart) -> Policies:
    """The same as a rule has it."""
    if isinstance(corrections, CorrectionsApart):
        return Policies(corrections.deletes, corrections.updates, corrections.erase_when)
    return Policies(corrections, corrections)  # type: ignore[arg-type]
