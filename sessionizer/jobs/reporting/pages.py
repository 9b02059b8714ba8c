"""Pages of HTML from the templates beside this file: all is escaped, nothing is loaded from elsewhere."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sessionizer.lib.errors import RunFailed


def write_page(template: str, file: Path, **values: Any) -> None:
    """Fill a template and write it."""
    environment = Environment(
        loader=PackageLoader("sessionizer.jobs", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = lambda value: f"{value:,}"
    text = environment.get_template(template).render(**values)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFailed("the page cannot be written", value=str(file), remedy=str(error.strerror)) from error
