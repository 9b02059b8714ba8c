"""Data Docs that need nothing but themselves: those of Great Expectations ask other hosts for scripts and styles."""

import ast
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sessionizer.jobs.reporting.pages import write_page

TITLE = "Data Docs"
OF_OTHERS = re.compile(r"<script\b.*?</script>|<style\b.*?</style>|<link\b[^>]*>|<img\b[^>]*>", re.DOTALL)
HANDLERS = re.compile(r"\son\w+=(\"[^\"]*\"|'[^']*')")
ROWS = re.compile(r"^\s*data: (\[.*\]),\s*$", re.MULTILINE)


def stand_alone(docs: Path) -> None:
    """Write each page of the site anew, with the content that it has, in a page of ours.

    The tables of the index are rows of data for a script that is loaded; here they are tables. Older pages are of ours.
    """
    for file in sorted(docs.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        if "<script" not in text:
            continue
        if file == docs / "index.html":
            rows = [row for found in ROWS.findall(text) for row in ast.literal_eval(found)]
            validations = [row for row in rows if "_validation_success_text" in row]
            suites = [row for row in rows if "_validation_success_text" not in row]
            write_page("data_docs.html", file, title=TITLE, validations=validations, suites=_sorted(suites))
        else:
            write_page("data_docs.html", file, title=f"{file.stem} · {TITLE}", content=_content(text))


def _content(text: str) -> Markup:
    """What is in the body, without what is loaded or done by scripts."""
    body = re.search(r"<body[^>]*>(.*)</body>", text, re.DOTALL)
    return Markup(HANDLERS.sub("", OF_OTHERS.sub("", body[1] if body else "")))


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["expectation_suite_name"]))
