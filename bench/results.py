"""What was measured, for people: a table in the terminal, and Markdown with a chart.

`python -m bench.results FILE.json… [--to PAGE.md]` makes one page, and a picture beside it, of one or more files of
cases, and puts the excerpt into README.md, between its markers.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

mpl.use("svg")
from matplotlib import pyplot as plt

mpl.rcParams["svg.hashsalt"] = "sessionizer"  # the same figures make the same file

HEADERS = (
    *("", "seconds", "from, to", "CPU s", "peak GiB", "read MB, files", "written MB, files"),
    *("ratio", "goal", "rows that differ"),
)
BEGIN, END = "<!-- benchmark: made by bench.results -->", "<!-- end of benchmark -->"
IN_SHORT = ("first load", "increment of 1 %", "cold process")
OURS = "sessionizer"
BLUE, GREY = "#2a6fbb", "#b9bec6"


def show(document: dict[str, Any]) -> None:
    """The table of each case, in the terminal."""
    out = Console(width=140, highlight=False)
    for case, rows in _by_case(document).items():
        table = Table(title=case, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for header in HEADERS:
            two_lines = header.replace(", ", ",\n").replace("that ", "that\n")
            table.add_column(two_lines, justify="left" if not header else "right", no_wrap=True)
        for row in rows:
            table.add_row(*_cells(row))
        out.print(table, "")
    out.print(_where(document))


def as_markdown(document: dict[str, Any], picture: str) -> str:
    """All of it as a page."""
    shown = ", ".join(case for case in IN_SHORT if case in _by_case(document))
    chart = f"![{shown}: seconds]({picture})"
    text = ["# Benchmark", "", _where(document), "", chart, ""]
    goals = [[row["case"], row["way"], *_cells(row)[-3:-1]] for row in document["results"] if row["goal"]]
    text += ["## Goals", "", *_table(goals, ("case", "against, or of", "ratio", "goal")), ""]
    for case, rows in _by_case(document).items():
        text += [f"## {case[0].upper()}{case[1:]}", "", *_table([_cells(row) for row in rows], HEADERS), ""]
        for row in rows:
            if row["phases"]:
                spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row["phases"].items())
                text += [f"Phases of {row['way']}, seconds: {spent}.", ""]
    return "\n".join(text)


def excerpt(document: dict[str, Any]) -> str:
    """The lines for the README."""
    cases = _by_case(document)
    text = ["| | seconds | to ours |", "|---|---:|---:|"]
    for case in (c for c in IN_SHORT if c in cases):
        base = next((r["seconds"] for r in cases[case] if r["way"].startswith(OURS)), None)
        text.append(f"| **{case}** | | |")
        text += [f"| {r['way']} | {r['seconds']:.1f} | {r['seconds'] / base:.1f} |" for r in cases[case] if base]
    return "\n".join([*text, "", _where(document)])


def draw(document: dict[str, Any], file: Path) -> None:
    """Bars of the cases that are spoken of most."""
    cases = {name: rows for name, rows in _by_case(document).items() if name in IN_SHORT}
    heights = [len(rows) for rows in cases.values()]
    figure, axes = plt.subplots(
        len(cases), 1, figsize=(8, 0.42 * sum(heights) + 0.9 * len(cases)), height_ratios=heights, squeeze=False
    )
    for axis, (name, rows) in zip(axes.flat, cases.items(), strict=True):
        ways, seconds = [r["way"] for r in rows][::-1], [r["seconds"] for r in rows][::-1]
        bars = axis.barh(ways, seconds, color=[BLUE if w.startswith(OURS) else GREY for w in ways], height=0.7)
        axis.bar_label(bars, fmt="%.1f", padding=4, fontsize=9)
        axis.set_title(f"{name}, seconds", loc="left", fontsize=10, fontweight="bold")
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.tick_params(left=False, bottom=False, labelbottom=False, labelsize=9)
        axis.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def _by_case(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in document["results"]:
        cases.setdefault(row["case"], []).append(row)
    return cases


def _cells(row: dict[str, Any]) -> list[str]:
    verdict = "" if row["met"] is None else " ✓" if row["met"] else " ✗"
    used = [
        f"{row['cpu']:.1f}",
        f"{row['peak'] / 2**30:.1f}",
        f"{row['read'] / 1e6:,.0f}, {row['files_read']:,}",
        f"{row['written'] / 1e6:,.0f}, {row['files_written']:,}",
    ]
    return [
        row["way"],
        f"{row['seconds']:.2f}",
        f"{row['least']:.2f}, {row['most']:.2f}",
        *(used if row["peak"] else [""] * len(used)),
        "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        f"{row['goal'] or ''}{verdict}",
        "" if row["differs"] is None else f"{row['differs']:,}",
    ]


def _table(rows: list[list[str]], headers: tuple[str, ...]) -> list[str]:
    lines = ["| " + " | ".join(headers) + " |", "|---|" + "---:|" * (len(headers) - 1)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _where(document: dict[str, Any]) -> str:
    found = dict(document["environment"])
    cores, memory, driver = found.pop("cores"), found.pop("memory_gib"), found.pop("driver_memory")
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    rounds = statistics.mode(r["rounds"] for r in document["results"])
    return (
        f"Medians of {rounds} rounds after a warm-up, each case in one process in turn; {cores} cores, {memory} GiB "
        f"({driver} for Spark's driver); {versions}. Only ratios mean anything on another machine."
    )


def together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Cases measured one after another on one machine, as one document. Errors: SystemExit if machines differ."""
    first, *others = documents
    if any(other["environment"] != first["environment"] for other in others):
        raise SystemExit("files of different machines or versions do not belong on one page")
    return {**first, "results": [row for document in documents for row in document["results"]]}


def main() -> None:
    """Page, picture and excerpt of files of results."""
    parser = argparse.ArgumentParser(prog="python -m bench.results")
    parser.add_argument("files", nargs="+", type=Path, help="what `python -m bench --out` has written")
    parser.add_argument("--to", type=Path, help="the page; needed for several files")
    asked = parser.parse_args()
    if len(asked.files) > 1 and not asked.to:
        parser.error("several files need --to")
    page = asked.to or asked.files[0].with_suffix(".md")
    picture = page.with_suffix(".svg")
    document = together([json.loads(file.read_text()) for file in asked.files])
    draw(document, picture)
    page.write_text(as_markdown(document, picture.name))
    if asked.to:
        page.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    readme = Path(__file__).parents[1] / "README.md"
    text = readme.read_text()
    if BEGIN in text:
        before, rest = text.split(BEGIN, 1)
        readme.write_text(f"{before}{BEGIN}\n{excerpt(document)}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
