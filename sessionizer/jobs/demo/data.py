"""The demo's click-stream: a small web shop, seeded, and five named visitors whose every click is written out."""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sessionizer.tables.places.object_store import is_stored

MARKER = "# Made by sessionizer demo"
CONFIG_FILE = "sessionizer.yaml"
WAREHOUSE = "warehouse"
SCHEMA = "amount decimal(10,2)"
COLUMNS = ("event_id", "user_id", "event_time", "page", "event_type", "amount")

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
THURSDAY = MONDAY + timedelta(days=3)
USERS = 3_000
VISITS_A_DAY = 1_300
PER_HOUR = (1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 13, 13, 14, 13, 11, 11, 12, 13, 14, 15, 14, 10, 5, 2)  # visits, relative
DELAYED = 0.03  # of the visits: a phone without network hands in its last clicks later
TORN_LINE = 'e-torn,user-0007,"2026-03-05T13:0'


INCREMENTS = {  # the files, each with what arrives until this hour of Thursday
    "1-morning.csv": THURSDAY + timedelta(hours=11),
    "2-noon.csv": THURSDAY + timedelta(hours=14),
    "3-afternoon.csv": THURSDAY + timedelta(hours=17),
}

# Who to watch: the times of Thursday that each of the three files brings.
CAST = {
    "anna": ("10:35 10:41 10:55", "11:15 11:38 12:02 12:25 12:50 13:10 13:34 13:55", "14:10 14:24"),
    "bert": ("10:00 10:05 10:12 10:50 10:57", "10:31", "15:24 15:33 15:45"),
    "cleo": ("09:10 09:18 09:26", "12:34 12:41 12:52", "09:41"),
    "dora": ("08:12 08:16 08:24", "11:50 11:58 12:05", "16:31 16:40 16:51"),
    "bot": ("", "", ""),  # a price crawler: a click a minute, since Monday
}

CONFIG = f"""{MARKER}
# Paths are relative to this file. Each key has a default; docs/config.md shows them all.
source:
  table: {WAREHOUSE}/events        # a Delta table; `sessionizer ingest` makes it from files
  key: [user_id]                   # sessions are cut per user
  event_time: event_time
  order_by: [event_id]             # settles first and last where two events have the same time
sessions:
  table: {WAREHOUSE}/sessions      # rejected_events and runs are made beside it
session:
  gap: 30m                         # inactivity that ends a session
time:
  allowed_lateness: 2h             # how far behind the watermark an event still counts
aggregates:                        # columns of the sessions table, computed over the events of each session
  - {{name: pages, fn: count_distinct, of: page}}
  - {{name: entry_page, fn: first, of: page}}
  - {{name: exit_page, fn: last, of: page}}
  - {{name: orders, fn: count, of: "CASE WHEN event_type = 'purchase' THEN 1 END"}}
  - {{name: revenue, fn: sum, of: amount}}
"""


@dataclass(frozen=True)
class Click:
    """One event, and which of the files brings it (0, 1, 2)."""

    at: datetime
    user: str | None
    page: str
    kind: str
    amount: str
    file: int


def config_of(tables: str | None) -> str:
    """The demo's config; tables: a URL below which they lie, else beside it."""
    if tables is None:
        return CONFIG
    client = "spark:\n  spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0\n" if is_stored(tables) else ""
    return CONFIG.replace(f"{WAREHOUSE}/", f"{tables.rstrip('/')}/") + client


def write_files(folder: Path, clicks: list[Click], tables: str | None = None) -> list[Path]:
    """Write the config and a CSV file per increment; the paths of the CSV files."""
    (folder / CONFIG_FILE).write_text(config_of(tables), encoding="utf-8")
    paths = [folder / name for name in INCREMENTS]
    for file, path in enumerate(paths):
        with path.open("w", encoding="utf-8", newline="") as text:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(COLUMNS)
            for number, c in enumerate(clicks, 1):
                if c.file == file:
                    time = c.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                    writer.writerow([f"e{number:06}", c.user or "", time, c.page, c.kind, c.amount])
            if file == 1:
                text.write(TORN_LINE + "\n")
    return paths


def clicks(seed: int = 7) -> list[Click]:
    """All clicks in the order of their files; the same seed makes the same clicks."""
    chance = random.Random(seed)
    made = [*_cast(), *_crawler(), *_crowd(chance), Click(_thursday("11:42"), None, "/", "view", "", 1)]
    return sorted(made, key=lambda c: (c.file, c.at, c.user or ""))


def _cast() -> Iterator[Click]:
    for user, files in CAST.items():
        for file, times in enumerate(files):
            for number, time in enumerate(times.split()):
                page = ("/", "/c/shoes", "/p/4711")[number % 3]
                yield Click(_thursday(time), user, page, "view", "", file)


def _crawler() -> Iterator[Click]:
    at = MONDAY
    while (file := _file_of(at)) is not None:
        yield Click(at, "bot", f"/p/{4000 + int(at.timestamp()) // 60 % 900}", "view", "", file)
        at += timedelta(minutes=1)


def _crowd(chance: random.Random) -> Iterator[Click]:
    for day in range(4):
        for _ in range(VISITS_A_DAY):
            hour = chance.choices(range(24), PER_HOUR)[0]
            start = MONDAY + timedelta(days=day, hours=hour, seconds=round(chance.random() * 3600, 3))
            user = f"user-{int(USERS * chance.random() ** 2):04}"  # few come often, many rarely
            yield from _visit(chance, user, start)


def _visit(chance: random.Random, user: str, start: datetime) -> Iterator[Click]:
    """A visit: pages one after the other; of a delayed one the second half arrives hours later."""
    length = 1 + min(int(chance.expovariate(1 / 5)), 40)
    delay = timedelta(minutes=chance.uniform(10, 240)) if chance.random() < DELAYED else timedelta()
    at, page = start, "/"
    for number in range(length):
        arrival = at + delay if number >= length / 2 else at
        page, kind, amount = _next_page(chance, page, number)
        if (file := _file_of(arrival)) is not None:
            yield Click(at, user, page, kind, amount, file)
        at += timedelta(seconds=round(5 + chance.expovariate(1 / 110), 3))


def _next_page(chance: random.Random, page: str, number: int) -> tuple[str, str, str]:
    """Page, event type and amount of the next click: the way from the door to the till."""
    if number == 0:
        return chance.choice(("/", "/", "/", "/sale", "/c/shoes", f"/p/{chance.randrange(4000, 4900)}")), "view", ""
    if page == "/cart":
        return "/checkout", "view", ""
    if page == "/checkout":
        return "/thanks", "purchase", f"{chance.lognormvariate(3.7, 0.6):.2f}"
    if page.startswith("/p/") and chance.random() < 0.15:
        return "/cart", "add_to_cart", ""
    if page.startswith(("/c/", "/sale", "/p/")) and chance.random() < 0.7:
        return f"/p/{chance.randrange(4000, 4900)}", "view", ""
    return f"/c/{chance.choice(('shoes', 'bags', 'coats', 'hats'))}", "view", ""


def _file_of(arrival: datetime) -> int | None:
    """The file that what arrives at this instant is in (exclusive of its end); None: none of them yet."""
    return next((i for i, until in enumerate(INCREMENTS.values()) if arrival < until), None)


def _thursday(time: str) -> datetime:
    return datetime.fromisoformat(f"{THURSDAY:%Y-%m-%d}T{time}Z")
