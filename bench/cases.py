"""The cases: what is measured, against what, and how good it is meant to be."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import delta
from pyspark.sql import functions as F

from bench.clicks import Clicks
from bench.lab import MEMORY, Lab, Result, phases
from bench.meter import Cost, metered
from bench.ways import (
    DuckDB,
    Floor,
    LagAndCumsum,
    Merging,
    Ours,
    Polars,
    SessionWindow,
    SessionWindowLocally,
    Streaming,
    TrailingWindow,
    Way,
)
from sessionizer.tables.delta import Commit, Table
from tests.connect_server import connect_server

Case = Callable[[Lab], Iterator[Result]]
USERS_PER_EVENT = 1 / 40
DAYS = 30
TO_WARM_UP = 10  # tiny increments
TO_WARM_A_SERVER = 6  # runs
# Ratios to our time that are the goals of a first load; None: shown alone.
FIRST_LOAD: dict[type[Way], float | None] = {
    SessionWindow: 3.5,
    SessionWindowLocally: 3.0,
    LagAndCumsum: 2.7,
    DuckDB: 1.0,
    Polars: 1.0,
}
MOST_OVER_FLOOR = 1.6


class Growing:
    """A source that grows, and our table of it."""

    def __init__(self, lab: Lab, name: str, before: Clicks) -> None:
        self.lab, self.last, self.number = lab, before, 0
        self.source = lab.source(before, name)
        self.ours = Ours(lab.spark, self.source, lab.folder / f"{name}-ours")
        self.ours.forget()
        self.ours.load()

    def by(self, events: int, days: float) -> Callable[[int], None]:
        """What appends so many events of so many days each time."""

        def arrive(_: int) -> None:
            self.number += 1
            self.last = self.last.then(events, days, 50 + self.number)
            self.lab.append(self.source, self.last)

        return arrive


def history(lab: Lab, events: int | None = None) -> Clicks:
    """A month of clicks."""
    number = events or lab.events
    return Clicks(number, int(number * USERS_PER_EVENT), DAYS)


def first_load(lab: Lab, others: tuple[type[Way], ...] = tuple(FIRST_LOAD)) -> Iterator[Result]:
    """All events into a new table."""
    name = "first load"
    source = lab.source(history(lab), f"events-{lab.events}")
    ours = Ours(lab.spark, source, lab.folder)
    ways: list[Way] = [ours, *(other(lab.spark, source, lab.folder) for other in others)]
    for way in ways:
        way.forget()
        way.load()
    differ = {way.name: lab.differences(ours, way) for way in ways[1:]}
    ready = ours.spark.read.format("delta").load(ours.table).localCheckpoint()
    floor = Floor(lab.spark, source, lab.folder, ready)
    works = {way.name: way.load for way in (*ways, floor)}
    costs = lab.in_turn(name, works, emptied((*ways, floor)))
    mine = Result.of(name, ours.name, costs[ours.name], phases=phases(ours))
    yield mine
    for way in ways[1:]:
        result = Result.of(name, way.name, costs[way.name], differs=differ[way.name])
        yield result.judge(result.seconds / mine.seconds, at_least=FIRST_LOAD[type(way)])
    least = Result.of(name, floor.name, costs[floor.name])
    yield least.judge(mine.seconds / least.seconds, at_most=MOST_OVER_FLOOR)


def small_first_load(lab: Lab) -> Iterator[Result]:
    """The same against fewer."""
    yield from first_load(lab, (SessionWindow, LagAndCumsum))


def increments(
    lab: Lab, share: float, goals: dict[type[Way], float | None], name: str, times: int = 1
) -> Iterator[Result]:
    """A share of new events into a table that holds the rest (`times` the usual), brought up to date by each way."""
    events = lab.events * times
    growing = Growing(lab, f"growing-by-{share:g}-{events}", history(lab, events))
    ours, others = growing.ours, [other(lab.spark, growing.source, lab.folder) for other in goals]
    for other in others:
        other.forget()
        other.load()
    ways: list[Way] = [ours, *others]
    more = growing.by(int(events * share), DAYS * share)
    costs = lab.in_turn(name, {way.name: way.update for way in ways}, more, warm_up=1 if times > 1 else None)
    mine = Result.of(name, ours.name, costs[ours.name], phases=phases(ours))
    yield mine
    for way in ways[1:]:
        result = Result.of(name, way.name, costs[way.name], differs=lab.differences(ours, way))
        yield result.judge(result.seconds / mine.seconds, at_least=goals[type(way)])


def one_percent(lab: Lab) -> Iterator[Result]:
    """The increment that is spoken of most."""
    goals: dict[type[Way], float | None] = {
        Merging: None,
        SessionWindow: 10.0,
        TrailingWindow: None,
        Streaming: 1.5,
        DuckDB: None,
    }
    yield from increments(lab, 0.01, goals, "increment of 1 %")


def one_percent_of_more(lab: Lab) -> Iterator[Result]:
    """The same with four times the history: what a full recompute costs grows with it."""
    yield from increments(lab, 0.01, {SessionWindow: 10.0}, "increment of 1 %, 4 times the history", times=4)


def small_one_percent(lab: Lab) -> Iterator[Result]:
    """The same against fewer."""
    yield from increments(lab, 0.01, {SessionWindow: 10.0, Streaming: 1.5}, "increment of 1 %")


def ten_percent(lab: Lab) -> Iterator[Result]:
    """A large one."""
    goals: dict[type[Way], float | None] = {
        Merging: None,
        SessionWindow: None,
        TrailingWindow: None,
        Streaming: 2.0,
    }
    yield from increments(lab, 0.1, goals, "increment of 10 %")


def tiny(lab: Lab) -> Iterator[Result]:
    """A small one."""
    goals: dict[type[Way], float | None] = {TrailingWindow: None, Streaming: None}
    yield from increments(lab, 0.0001, goals, "increment of 0.01 %")


def late(lab: Lab) -> Iterator[Result]:
    """An increment of which 2 % come up to six hours late, as in all cases, and one without."""
    name, plain = "2 % late events", history(lab)
    shares = {"none late": 0.0, "2 % late": plain.late}
    growing = {label: Growing(lab, f"late-{share:g}", replace(plain, late=share)) for label, share in shares.items()}
    works = {label: each.ours.update for label, each in growing.items()}
    more = [each.by(lab.events // 100, DAYS / 100) for each in growing.values()]

    def arrive(number: int) -> None:
        for each in more:
            each(number)

    costs = lab.in_turn(name, works, arrive)
    none, some = (Result.of(name, label, costs[label]) for label in works)
    yield none
    yield some.judge(some.seconds / none.seconds)


def hundred(lab: Lab) -> Iterator[Result]:
    """A hundred tiny increments after ten that warm up: the last ten must not cost more than the first ten."""
    name, growing, costs = "100 increments of 0.01 %", Growing(lab, "hundred", history(lab)), list[Cost]()
    more = growing.by(lab.events // 10_000, DAYS / 10_000)
    for number in range(TO_WARM_UP + 100):
        more(number)
        with metered(lab.folder) as cost:
            growing.ours.update()
        if number >= TO_WARM_UP:
            costs.append(cost)
    first, last = (
        Result.of(name, f"sessionizer, {n} ten", c) for n, c in (("first", costs[:10]), ("last", costs[-10:]))
    )
    yield first
    yield last.judge(last.seconds / first.seconds, at_most=1.2)


def pair(lab: Lab, name: str, ways: dict[str, Ours], at_most: float | None, times: int = 1) -> Iterator[Result]:
    """First loads by ourselves of two kinds of data or rule; the ratio is the second by `times` to the first."""
    works, anew = {n: w.load for n, w in ways.items()}, emptied(tuple(ways.values()))
    costs = lab.in_turn(name, works, anew, warm_up=1 if times > 1 else None)
    one, two = (Result.of(name, n, costs[n], phases=phases(w)) for n, w in ways.items())
    yield one
    yield two.judge(two.seconds / one.seconds / times, at_most=at_most)


def skew(lab: Lab) -> Iterator[Result]:
    """A key that makes 30 % of all events."""
    even = lab.source(history(lab), f"events-{lab.events}")
    plain = history(lab)
    hot = lab.source(Clicks(plain.events, plain.users, DAYS, one_key=0.3), "skewed")
    ways = {n: Ours(lab.spark, s, lab.folder / n) for n, s in (("even", even), ("one key has 30 %", hot))}
    yield from pair(lab, "skew", ways, 1.3)


def bots(lab: Lab) -> Iterator[Result]:
    """Bots that never stop, cut by a longest duration."""
    plain = history(lab)
    source = lab.source(Clicks(plain.events, plain.users, DAYS, bots=0.05), "bots")
    ways = {
        "5 % by bots": Ours(lab.spark, source, lab.folder / "uncut"),
        "the same, max_duration 4h": Ours(
            lab.spark, source, lab.folder / "cut", session={"gap": "30m", "max_duration": "4h"}
        ),
    }
    yield from pair(lab, "max_duration", ways, None)


def content(lab: Lab) -> Iterator[Result]:
    """A condition that begins sessions, true of one event in a hundred: of every fifth visit."""
    yield from pair(lab, "content", _by_content(lab), 1.3)


def cold_content(lab: Lab) -> Iterator[Result]:
    """The same, where a process starts for each load, as users have it."""
    name, ways = "content, cold process", _by_content(lab)
    works = {label: partial(_run, _config_of(lab, way, f"{n}-cold")) for n, (label, way) in enumerate(ways.items())}
    costs = lab.in_turn(name, works, emptied(tuple(ways.values())), warm_up=1)
    # Of processes that come and go the meter sees nothing but the time.
    one, two = (Result.of(name, n, [Cost(each.seconds) for each in of]) for n, of in costs.items())
    yield one
    yield two.judge(two.seconds / one.seconds, at_most=1.3)


def _by_content(lab: Lab) -> dict[str, Ours]:
    source = lab.source(history(lab), "content")
    rule = {"gap": "30m", "starts_when": "length(page) = 7"}
    return {
        "by the gap alone": Ours(lab.spark, source, lab.folder / "by-gap"),
        "and starts_when": Ours(lab.spark, source, lab.folder / "by-content", session=rule),
    }


def wide(lab: Lab) -> Iterator[Result]:
    """Twenty more columns, and ten aggregates instead of one."""
    plain = history(lab, lab.events // 5)
    source = lab.source(Clicks(plain.events, plain.users, DAYS, wide=20), "wide")
    amounts = [{"name": f"{fn}_amount", "fn": fn, "of": "amount"} for fn in ("min", "max", "avg", "stddev")]
    pages = [{"name": f"{fn}_page", "fn": fn, "of": "page"} for fn in ("first", "last", "count_distinct")]
    texts = [{"name": f"max_{n}", "fn": "max", "of": f"more_{n}"} for n in range(2)]
    many = [{"name": "revenue", "fn": "sum", "of": "amount"}, *amounts, *pages, *texts]
    ways = {
        "one aggregate": Ours(lab.spark, source, lab.folder / "one"),
        "ten aggregates": Ours(lab.spark, source, lab.folder / "ten", aggregates=many),
    }
    yield from pair(lab, "wide rows", ways, None)


def scale(lab: Lab) -> Iterator[Result]:
    """Ten times the events."""
    ways = {}
    for events in (lab.events, lab.events * 10):
        source = lab.source(history(lab, events), f"events-{events}")
        ways[f"{events:,} events"] = Ours(lab.spark, source, lab.folder / f"n{events}")
    yield from pair(lab, "10 times the events, per event", ways, 1.3, times=10)


def grown(lab: Lab, name: str, tables: dict[str, Clicks], increment: Clicks, at_most: float | None) -> Iterator[Result]:
    """The same increment into tables of different size."""
    works, made = {}, {}
    for label, clicks in tables.items():
        source = lab.source(clicks, f"{name}-{clicks.events}")
        ours = Ours(lab.spark, source, lab.folder / f"{name}-of-{clicks.events}")
        ours.forget()
        ours.load()
        works[label], made[label] = ours.update, (ours, source)

    def arrive(number: int) -> None:
        more = Clicks(
            increment.events, increment.users, increment.days, increment.start + number * 3600, 300 + number, late=0
        )
        for _, source in made.values():
            lab.append(source, more)

    costs = lab.in_turn(name, works, arrive)
    one, two = (Result.of(name, label, costs[label], phases=phases(made[label][0])) for label in tables)
    yield one
    yield two.judge(two.seconds / one.seconds, at_most=at_most)


def final_sessions(lab: Lab) -> Iterator[Result]:
    """The same increment with 1M final sessions and with fifty times as many; nearly every event is one."""

    def of(sessions: int) -> Clicks:
        return Clicks(sessions, sessions * 20, DAYS, visit=1, bots=0, late=0)

    small = lab.events // 10
    tables = {f"some {n:,} final sessions": of(n) for n in (small, small * 50)}
    after = Clicks(small // 10, small, 1 / 24, start=of(1).start + (DAYS + 10) * 86_400)
    yield from grown(lab, "history", tables, after, 1.2)


def live_sessions(lab: Lab) -> Iterator[Result]:
    """The same increment with few and with many live sessions."""
    begin = history(lab).start
    tables = {
        f"{n:,} events of the last hour": Clicks(n, n * 20, 1 / 24, begin, bots=0, late=0)
        for n in (lab.events // 1000, lab.events // 10)
    }
    after = Clicks(lab.events // 100, lab.events // 10, 1 / 24, begin + 3600)
    yield from grown(lab, "live-sessions", tables, after, None)


def fixed(lab: Lab) -> Iterator[Result]:
    """What a run costs that has nothing or little to do, against a bare MERGE of 1,000 rows into the same table."""
    name, growing = "fixed cost", Growing(lab, "fixed", history(lab, lab.events // 10))
    ours = growing.ours
    copy = lab.folder / "fixed-bare"
    table = lab.spark.read.format("delta").load(ours.table)
    made = Table(lab.spark, str(copy), "bare")
    made.create(
        table.schema,
        ["is_final"],
        {"delta.enableChangeDataFeed": "true", "delta.dataSkippingStatsColumns": "session_id,session_start"},
    )
    made.append(table, Commit("bench", 1))

    def bare() -> None:
        rows = table.where("not is_final").limit(1000).withColumn("event_count", F.col("event_count") + 1)
        merge = delta.DeltaTable.forPath(lab.spark, str(copy)).alias("t")
        merge.merge(
            rows.localCheckpoint().alias("s"), "t.session_id = s.session_id AND t.is_final = false"
        ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    works = {"bare MERGE": bare, "run, 1,000 events": ours.update, "run, nothing new": ours.update}
    costs = lab.in_turn(name, works, growing.by(1000, 1 / 24))
    merge, little, nothing = (Result.of(name, n, costs[n]) for n in works)
    yield merge
    yield little.judge(little.seconds / merge.seconds, at_most=2)
    yield nothing.judge(nothing.seconds / merge.seconds, at_most=0.5)


PLAIN = """
import sys
from delta import DeltaTable
from sessionizer.jobs.spark import spark_session
spark = spark_session({"spark.driver.memory": "1g"})
rows = spark.range(1000).selectExpr("id", "id * 2 AS twice")
rows.write.format("delta").save(sys.argv[1])
table = DeltaTable.forPath(spark, sys.argv[1]).alias("t")
table.merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
assert spark.read.format("delta").load(sys.argv[1]).count() == 1000
"""


def cold(lab: Lab) -> Iterator[Result]:
    """A process from its start to its exit: `sessionizer run` of 1,000 events, alone and by a Spark that is up.

    Plain PySpark is beside it.
    """
    name = "cold process"
    growing = [Growing(lab, f"cold-{n}", history(lab, lab.events // 100)) for n in ("alone", "by-server")]
    arrive = [each.by(1000, 1 / 24) for each in growing]
    configs = [_config_of(lab, each.ours, each.source.name, memory="1g") for each in growing]
    plain_number = iter(range(100))

    def plain() -> None:
        target = str(lab.folder / f"cold-plain-{next(plain_number)}")
        _process([sys.executable, "-c", PLAIN, target], {"SESSIONIZER_CLASS_ARCHIVE": "off"})

    def both_arrive(number: int) -> None:
        for of in arrive:
            of(number)

    with connect_server(lab.folder, tuning={"spark.sql.shuffle.partitions": "2"}) as url:
        for number in range(TO_WARM_A_SERVER):
            arrive[1](number)
            _run(configs[1], {"SPARK_REMOTE": url})
        works = {
            "plain PySpark: write, MERGE, read": plain,
            "sessionizer run": lambda: _run(configs[0]),
            "by a warm Spark Connect server": lambda: _run(configs[1], {"SPARK_REMOTE": url}),
        }
        costs = lab.in_turn(name, works, both_arrive, warm_up=1)
    # Of processes that come and go the meter sees nothing but the time.
    theirs, mine, warm = (Result.of(name, n, [Cost(each.seconds) for each in c]) for n, c in costs.items())
    yield theirs
    yield mine.judge(mine.seconds / theirs.seconds, at_most=0.75)
    yield warm.judge(warm.seconds / mine.seconds, at_most=0.35)


def emptied(ways: tuple[Way, ...]) -> Callable[[int], None]:
    """What makes them begin anew before each round."""

    def forget(_: int) -> None:
        for way in ways:
            way.forget()

    return forget


def _config_of(lab: Lab, way: Ours, name: str, memory: str = MEMORY) -> Path:
    """The file by which a process of its own makes what a way makes."""
    file, shown = lab.folder / f"{name}.yaml", way.config.model_dump(mode="json", exclude_unset=True)
    file.write_text(json.dumps({**shown, "spark": {"spark.driver.memory": memory}}))
    return file


def _run(config: Path, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    command = [sys.executable, "-m", "sessionizer.jobs.cli", "run", "--config", str(config), "--json"]
    if not json.loads(_process(command, environment)):
        raise SystemExit("the cold run has found nothing to do")


def _process(command: list[str], environment: Mapping[str, str]) -> str:
    root = str(Path(__file__).parents[1])
    everything = {**os.environ, "PYTHONPATH": root, **environment}
    done = subprocess.run(command, env=everything, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[:4]} failed:\n{done.stderr}")
    return done.stdout


SMALL: dict[str, Case] = {"first-load": small_first_load, "one-percent": small_one_percent, "cold": cold}
FULL: dict[str, Case] = {
    "first-load": first_load,
    "tiny": tiny,
    "one-percent": one_percent,
    "one-percent-of-more": one_percent_of_more,
    "ten-percent": ten_percent,
    "late": late,
    "hundred": hundred,
    "skew": skew,
    "bots": bots,
    "content": content,
    "cold-content": cold_content,
    "wide": wide,
    "fixed": fixed,
    "cold": cold,
    "live": live_sessions,
    "history": final_sessions,
    "scale": scale,
}
