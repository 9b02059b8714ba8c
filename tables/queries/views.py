"""The views of `tables/sql`: one SELECT a file, in SQL that Spark and DuckDB both know."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Formatter


@dataclass(frozen=True)
class View:
    """A view. reads: the frames that stand in braces in its text."""

    name: str
    text: str
    reads: frozenset[str]


def views_named_in(query: str) -> Iterator[View]:
    """The views that a query may mean: a look into its text, which finds too many rather than too few."""
    for file in sorted(files("tables").joinpath("sql").iterdir(), key=lambda f: f.name):
        name, text = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        if name in query.lower():
            yield View(name, text, frozenset(field for _, field, _, _ in Formatter().parse(text) if field))
