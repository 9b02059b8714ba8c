"""check: are the tables as they promise to be?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.jobs.console import stdout, table
from sessionizer.jobs.quality.checks import Quality, Verdict
from sessionizer.jobs.quality.expectations import (
    Suite,
    events_suite,
    read_suite,
    rejected_events_suite,
    runs_suite,
    sessions_suite,
    windows_suite,
)
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.phases import Say
from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import event_time_us, passing
from sessionizer.lib.errors import UsageError
from sessionizer.lib.expressions import with_keys

SUITES = {"sessions": sessions_suite, "windows": windows_suite}
BUILT_IN = (*SUITES, "rejected_events", "events", "runs")


@dataclass(frozen=True)
class Asked:
    """What to check, beside what is always checked. Times: microseconds.

    most_late: share of all events. longest_lag: of the watermark behind `now`; None: however long.
    suites: files of the user's own, about these rows. docs: the folder for Data Docs.
    """

    now: int
    most_late: float
    longest_lag: int | None
    suites: tuple[Path, ...]
    docs: Path


@dataclass(frozen=True)
class Checked:
    """The verdicts, and where the Data Docs begin."""

    verdicts: list[Verdict]
    docs: str

    @property
    def exit_code(self) -> int:
        """0: all hold. 1: data break one. 3: one could not be evaluated, which says nothing about the data."""
        if any(v.error is not None for v in self.verdicts):
            return 3
        return 0 if all(v.holds for v in self.verdicts) else 1


def check(kind: Kind, asked: Asked, say: Say) -> Checked:
    """Run the suites of all tables, and the user's own."""
    kind.require()
    config = kind.tables.config
    own = [*([Path(kind.expectations)] if kind.expectations else []), *asked.suites]
    suites = {_suite_name(file, own): read_suite(file) for file in own}
    if asked.longest_lag is not None and kind.rule.watermark_per == "key":
        raise UsageError(
            "--max-lag needs a watermark of the table, and time.watermark.per is key: each key has its own",
            remedy="leave it out, or look at `sessions --open`",
        )
    oldest = None if asked.longest_lag is None else asked.now - asked.longest_lag
    rows, events = kind.home.table.read().drop(C.STATE), _keys_and_times(kind)
    rejects = rejected_events_suite(kind.rule.time_unit)
    say("importing Great Expectations")
    quality = Quality(asked.docs)
    verdicts: list[Verdict] = []
    for frame, named_by, checks in (
        (rows, kind.home.layout.identity, {kind.name: SUITES[kind.name](config), **suites}),
        (kind.rejected_events.table.read(), (C.EVENT_HASH,), {"rejected_events": rejects}),
        (events, (), {"events": events_suite(config)}),
        (kind.runs.table.read(), (C.RUN_ID,), {"runs": runs_suite(asked.most_late, oldest)}),
    ):
        whole = frame is rows and suites  # a suite of one's own may look at any column
        held = (frame if whole else _named(frame, [*checks.values()], named_by)).persist()  # each takes several looks
        try:
            for name, suite in checks.items():
                say(f"checking {name}")
                verdicts += quality.validate(held, name, suite, named_by) if suite else []
        finally:
            held.unpersist()
    from sessionizer.jobs.quality.data_docs import stand_alone  # noqa: PLC0415  (what it needs comes with the library)

    stand_alone(asked.docs)
    return Checked(verdicts, str(asked.docs.absolute() / "index.html"))


def _keys_and_times(kind: Kind) -> DataFrame:
    """Of the events that `where` lets through: their keys, and event_time."""
    events, rule = kind.tables.events.as_they_stand(), kind.rule
    passes = passing(events, rule)
    keyed = with_keys(events if passes is None else events.where(passes), rule.made)
    time = F.timestamp_micros(event_time_us(keyed, rule)).alias(C.EVENT_TIME)
    return keyed.select(*C.cols(rule.key), time)


def _suite_name(file: Path, own: Sequence[Path]) -> str:
    """The name of its file, or the whole path where another suite has that name."""
    alone = [other.stem for other in own].count(file.stem) == 1 and file.stem not in BUILT_IN
    return file.stem if alone else str(file)


def _named(frame: DataFrame, suites: Sequence[Suite], named_by: tuple[str, ...]) -> DataFrame:
    """The columns that suites may mean: a look into their arguments, which finds too many rather than too few."""
    text = " ".join(_texts((named_by, [e.kwargs for suite in suites for e in suite]))).lower()
    named = [name for name in frame.columns if name.lower() in text or C.quoted(name).lower() in text]
    return frame.select(*C.cols(tuple(named)))


def _texts(value: object) -> Iterator[str]:
    """All texts within lists and objects."""
    if isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def as_document(checked: Checked) -> dict[str, Any]:
    """The verdicts for machines."""
    return {
        "holds": checked.exit_code == 0,
        "broken": sum(not v.holds and v.error is None for v in checked.verdicts),
        "errors": sum(v.error is not None for v in checked.verdicts),
        "data_docs": checked.docs,
        "expectations": [asdict(v) for v in checked.verdicts],
    }


def show(checked: Checked) -> None:
    """The verdicts for a person: what is wrong first."""
    out = stdout()
    verdicts = sorted(checked.verdicts, key=lambda v: v.holds)
    rows = [[_mark(v), v.suite, v.about, v.why, _broken(v)] for v in verdicts]
    out.print(table(["", "suite", "about", "must hold", "rows"], rows))
    holding = sum(v.holds for v in checked.verdicts)
    out.print(f"\n{holding} of {len(checked.verdicts)} expectations hold. Data Docs: {checked.docs}", soft_wrap=True)


def _broken(verdict: Verdict) -> str:
    if verdict.error is not None:
        return verdict.error
    number = "" if verdict.broken is None else f"{verdict.broken:,}: "
    return number + ", ".join(verdict.rows[:3])


def _mark(verdict: Verdict) -> str:
    if verdict.error is not None:
        return "error"
    return "holds" if verdict.holds else "BROKEN"
