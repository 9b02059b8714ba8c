"""Measure: `python -m bench [CASE…] [--full] [--events N] [--table PATH --key COLUMN --time COLUMN]`.

Writes bench/out/latest.json as it goes, and prints a table at the end. Exit code 1 where results differ from ours that
must not; goals that are not met are shown, not punished: the machine may be busy.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import functions as F

from bench.cases import FULL, SMALL, Case
from bench.lab import Lab, Result, as_document, laboratory, say
from bench.results import show
from bench.ways import TrailingWindow

EVENTS = 10_000_000
OUT = Path(__file__).parent / "out"
MAY_DIFFER = (TrailingWindow.name,)


def main() -> None:
    """Runs the cases that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(FULL)}; all of them with --full, a few without")
    parser.add_argument("--full", action="store_true", help="all cases, all ways")
    parser.add_argument("--events", type=int, default=EVENTS, help="how many events the cases start from")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--warm-up", type=int, default=3, help="rounds before them, at least one")
    parser.add_argument("--out", type=Path, default=OUT / "latest.json", help="where the figures go")
    parser.add_argument("--keep", type=Path, help="a folder for the generated tables, to use them again")
    parser.add_argument("--table", help="a Delta table of your own instead of generated events; it is only read")
    parser.add_argument("--key", help="its key column")
    parser.add_argument("--time", help="its column of event times")
    asked = parser.parse_args()
    known = FULL if asked.full else {**FULL, **SMALL}
    if unknown := set(asked.cases) - set(known):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if asked.table and not (asked.key and asked.time):
        parser.error("--table needs --key and --time")
    if asked.warm_up < 1 or asked.rounds < 1:
        parser.error("--rounds and --warm-up must be at least 1")
    names = asked.cases or (["first-load"] if asked.table else list(FULL if asked.full else SMALL))
    with laboratory(asked.events, asked.rounds, asked.warm_up, asked.keep) as lab:
        if asked.table:
            lab.events = copy_of(lab, asked.table, asked.key, asked.time)
        results = list(measured(lab, {name: known[name] for name in names}, asked.out))
    show(as_document(results))
    if any(r.differs for r in results if r.way not in MAY_DIFFER):
        raise SystemExit("other ways came to other sessions")


def measured(lab: Lab, cases: dict[str, Case], out: Path) -> Iterator[Result]:
    """The results of these cases, kept in a file case by case."""
    results: list[Result] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for name, case in cases.items():
        say(f"— {name}")
        lab.tidy()
        for result in case(lab):
            results.append(result)
            yield result
        out.write_text(json.dumps(as_document(results), indent=1) + os.linesep)


def copy_of(lab: Lab, table: str, key: str, time: str) -> int:
    """A user's events in a table of the lab's own; how many."""
    theirs = lab.spark.read.format("delta").load(table)
    number = theirs.count()
    events = theirs.select(
        F.col(key).cast("string").alias("user_id"),
        F.col(time).cast("timestamp").alias("event_time"),
        F.lit("/").alias("page"),
        F.lit(1).cast("decimal(8,2)").alias("amount"),
    ).where("user_id IS NOT NULL AND event_time IS NOT NULL")
    lab.source_of(events, f"events-{number}", max(number // 1_000_000, 1))
    return number


if __name__ == "__main__":
    main()
