"""The views of `tables/sql`: one SELECT a file, in SQL that Spark and DuckDB both know."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Formatter

from sessionizer.lib.errors import UsageError


@dataclass(frozen=True)
class View:
    """A view. reads: the frames that stand in braces in its text."""

    name: str
    text: str
    reads: frozenset[str]

    def check(self, columns: Sequence[str], query: str) -> None:
        """Raise where these columns of it, named in a query, have a name twice: the table's own, and the view's."""
        names = [name.lower() for name in columns]
        if (twice := next((name for name in names if names.count(name) > 1), None)) and names_table(query, self.name):
            raise UsageError(
                f"{self.name} adds a column of a name that the table has already",
                value=twice,
                remedy="the view says what it adds to a SELECT over the table; or give the aggregate another name, and "
                "`sessionizer rebuild`",
            )


def view_names() -> Iterator[str]:
    """The names of all views, in order."""
    yield from sorted(file.name.removesuffix(".sql") for file in files("sessionizer.tables").joinpath("sql").iterdir())


def names_table(query: str, name: str) -> bool:
    """Whether a query may mean this table: its name is a word of it."""
    return re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE) is not None


def views_named_in(query: str, key: Sequence[str]) -> Iterator[View]:
    """The views that a query may mean: a look into its text, which finds too many rather than too few.

    key: the key columns, as the engine quotes them, which a view has as `{key}`; none: all rows are of one.
    """
    columns = ", ".join(key).replace("{", "{{").replace("}", "}}") or "1"
    for file in sorted(files("sessionizer.tables").joinpath("sql").iterdir(), key=lambda f: f.name):
        name, text = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8").replace("{key}", columns)
        if name in query.lower():
            yield View(name, text, frozenset(field for _, field, _, _ in Formatter().parse(text) if field))
