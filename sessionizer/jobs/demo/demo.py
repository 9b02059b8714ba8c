"""demo: a click-stream in three increments, and a picture of what each run makes of it."""

import shlex
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.text import Text

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.console import progress, short, stdout, table
from sessionizer.jobs.demo.data import (
    CAST,
    CONFIG_FILE,
    INCREMENTS,
    MARKER,
    SCHEMA,
    THURSDAY,
    WAREHOUSE,
    clicks,
    write_files,
)
from sessionizer.jobs.demo.picture import MARGIN, NAME_WIDTH, Bar, Scene, Window, legend, timeline, told
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.ingest import ingest
from sessionizer.jobs.queries.sql import documents, query_frame
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.jobs.spark import spark_session
from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import LATE
from sessionizer.lib.config import Config
from sessionizer.lib.errors import UsageError
from sessionizer.lib.reading.lookups import microseconds
from sessionizer.tables.table_set import TableSet

WIDEST = 110
FIRST_HOUR, HOURS = 8, 9
# Little data in a process that has just started: compiling less is quicker. Not for data of any size.
QUICK_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
QUESTIONS = {
    "How many sessions a day, how long are they, and how many of them buy?": """
SELECT session_date, count(*) AS sessions, round(avg(duration_seconds) / 60, 1) AS minutes,
       round(avg(pages), 1) AS pages, round(100 * avg(int(orders > 0)), 1) AS percent_buying,
       sum(revenue) AS revenue
FROM sessions
GROUP BY session_date
ORDER BY session_date""",
    "Which entry pages sell?": """
SELECT entry_page, count(*) AS sessions, round(100 * avg(int(event_count = 1)), 1) AS percent_bounced,
       sum(orders) AS orders, round(sum(revenue) / count(*), 1) AS revenue_a_session
FROM sessions
GROUP BY entry_page
HAVING count(*) > 100
ORDER BY revenue_a_session DESC""",
    "What was not taken, and why?": """
SELECT reason, count(*) AS events, min(event_time) AS earliest, max(event_time) AS latest
FROM rejected_events
GROUP BY reason
ORDER BY events DESC""",
}


def demo(folder: Path, tables: str | None = None) -> None:
    """Make the demo in this folder and show it; one that is there already is made anew.

    tables: a URL below which its tables lie instead. Errors: UsageError for a folder that holds anything else, and for
    a URL that has tables of the demo's names.
    """
    begun, out = time.monotonic(), stdout()
    spark, config = play(folder, out, tables)
    for question in QUESTIONS:
        answer(spark, config, question, out)
    _heading(f"All of it took {time.monotonic() - begun:.0f} s. What to try next:", out)
    for command in next_commands(folder):
        out.print(Text(f"  {command}"), soft_wrap=True)


def play(folder: Path, out: Console, tables: str | None = None) -> tuple[SparkSession, Config]:
    """Write the files, ingest and run them one by one, and draw what each run has made."""
    make_room(folder)
    events = clicks()
    files = write_files(folder, events, tables)
    config = load_config(folder / CONFIG_FILE, env={})
    out.print(f"A small web shop: {len(events):,} clicks since Monday in three files, and five visitors to watch.")
    out.print(legend())
    with progress("starting Spark (the first time it fetches Delta's jars)"):
        spark = spark_session(QUICK_START | config.spark)
    if tables is not None and TableSet(spark, config).sessions.table.exists():
        raise UsageError("the demo needs a place without tables", value=tables, remedy="name another one, or empty it")
    cells = (min(out.width, WIDEST) - NAME_WIDTH - MARGIN) // HOURS
    window = Window(microseconds(THURSDAY + timedelta(hours=FIRST_HOUR)), HOURS, max(cells, 6))
    watched = [(c.file, c.user, microseconds(c.at)) for c in events if c.user in CAST]
    scene = Scene(tuple(CAST))
    for number, file in enumerate(files):
        report = _increment(spark, config, file)
        so_far = _times(click for arrived, *click in watched if arrived <= number)
        new = _times(click for arrived, *click in watched if arrived == number)
        before, scene = scene, replace(look(spark, config, report), events=so_far, new=new)
        _heading(f"Run {number + 1}: {file.name}, what arrived until {INCREMENTS[file.name]:%H:%M}", out)
        out.print(_figures(report))
        out.print()
        out.print(timeline(scene, window), no_wrap=True, crop=False, overflow="ignore")
        if lines := list(told(before, scene)):
            out.print()
            out.print(*(Text(f"- {line}.") for line in lines), sep="\n")
    return spark, config


def answer(spark: SparkSession, config: Config, question: str, out: Console) -> None:
    """One of the questions, its query and what it finds."""
    query = QUESTIONS[question].strip()
    with progress("asking"):
        rows = documents(query_frame(spark, config, query))
    _heading(question, out)
    out.print(Text(query, "dim"), soft_wrap=True)
    out.print()
    out.print(table(list(rows[0]), [[_plain(v) for v in row.values()] for row in rows]))


def make_room(folder: Path) -> None:
    """Make the folder, and remove an earlier demo from it, though nothing else that somebody has put there."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("the demo needs a folder, and this is a file", value=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return
    config = folder / CONFIG_FILE
    if not (config.is_file() and config.read_text(encoding="utf-8", errors="replace").startswith(MARKER)):
        raise UsageError(
            "the demo needs an empty folder, or one of an earlier demo", value=str(folder), remedy="name another one"
        )
    for name in INCREMENTS:
        (folder / name).unlink(missing_ok=True)
    if (folder / WAREHOUSE).exists():
        shutil.rmtree(folder / WAREHOUSE)


def look(spark: SparkSession, config: Config, report: RunReport) -> Scene:
    """What the tables say of the visitors to watch: their sessions of Thursday, and their late events."""
    tables, mine, m = TableSet(spark, config), F.col("user_id").isin(list(CAST)), report.manifest
    rows = tables.sessions.table.read().where(mine & (F.unix_micros(C.SESSION_END) >= microseconds(THURSDAY)))
    times = [F.unix_micros(name) for name in (C.SESSION_START, C.SESSION_END)]
    shown = rows.select(C.SESSION_ID, "user_id", *times, C.EVENT_COUNT, C.STATUS, C.SUPERSEDES)
    bars = tuple(Bar(*row) for row in shown.orderBy(C.SESSION_START).collect())
    late = tables.rejected_events.table.read().where(mine & (F.col(C.REASON) == LATE))
    late_times = late.select("user_id", F.unix_micros(C.EVENT_TIME)).collect() if m.events["late"] else []
    return Scene(tuple(CAST), bars, late=_times(late_times), watermark=m.watermark_after, horizon=m.horizon_after)


def next_commands(folder: Path) -> Iterator[str]:
    """Commands to copy, with the demo's real folder."""
    program = "sessionizer"
    if not shutil.which(program):
        file = Path(sys.executable).with_name(program)
        program = str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
    config = f"-c {shlex.quote(str(folder / CONFIG_FILE))}"
    csv = shlex.quote(str(folder / [*INCREMENTS][-1]))
    query = "SELECT * FROM sessions WHERE user_id = 'bert' ORDER BY session_start"
    yield f"{program} status {config}"
    yield f'{program} sql {config} "{query}"'
    yield f"{program} report {config}  # all of it on one page, report.html"
    yield f"{program} ingest {config} {csv} --format csv  # known already: adds nothing"
    yield f"{program} run {config} --flush --dry-run  # what ending every session would change"


def _increment(spark: SparkSession, config: Config, file: Path) -> RunReport:
    with progress(f"ingesting {file.name}") as say:
        ingest(spark, config, [file], IngestOptions(format="csv", schema=SCHEMA), now=datetime.now(UTC))
        if not TableSet(spark, config).sessions.table.exists():
            say("making the tables")
            init(spark, config, None, lambda _: None)
        (report,) = run(spark, config, RunOptions(), say)
    return report


def _figures(report: RunReport) -> object:
    m = report.manifest
    figures = {
        "events": m.events["events_read"],
        "late": m.events["late"],
        "invalid": m.events["invalid"],
        "created": m.sessions["created"],
        "extended": m.sessions["extended"],
        "merged": m.sessions["merged"],
        "turned final": m.sessions["finalised"],
        "still live": m.live_sessions,
        "watermark": short(m.watermark_after),
        "seconds": round((report.timing.seconds or {}).get("total", 0.0), 1),
    }
    return table(list(figures), [list(figures.values())])


def _heading(text: str, out: Console) -> None:
    out.print()
    out.print(Text(text, "bold"))


def _plain(value: object) -> object:
    return value.replace("T", " ").split(".")[0] if isinstance(value, str) and value[10:11] == "T" else value


def _times(rows: Iterable[Sequence[Any]]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = defaultdict(list)
    for user, us in sorted(tuple(row) for row in rows):
        times[user].append(us)
    return dict(times)
