"""The timeline of one key: its sessions as bars, its events as dots, and what was left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sessionizer.jobs.queries import lookups_duckdb, sql_duckdb
from sessionizer.jobs.queries.lookups import LookUp
from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import OUT
from sessionizer.lib.config import Config, events_of
from sessionizer.lib.errors import UsageError, counted
from sessionizer.tables.queries.duckdb import quoted
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sessionizer.jobs.reporting.charts import Palette

KINDS = (".png", ".svg", ".pdf")
MOST = 5_000  # dots that a picture can show
PLACES = 400  # that dots can be told apart in
STATUSES = {"open": 1, "closed": 2, "final": 0}  # and their colours
OF_SESSIONS, OF_EVENTS, LEFT_OUT = 3.0, 2.0, 1.0  # how high each lies
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = (  # of what is drawn, inclusive: a picture's ticks may lie beyond it, and know the years 1 to 9999
    (moment - EPOCH) // timedelta(microseconds=1)
    for moment in (datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC))
)


@dataclass(frozen=True)
class Timeline:
    """What is drawn of a key. Times: microseconds. sessions: start, end, status, events; rejected: time and reason.

    events: None where only Spark reads their time or their key, or knows which rows are events.
    """

    title: str
    sessions: Sequence[tuple[int, int, str, int]]
    events: Sequence[int] | None
    rejected: Sequence[tuple[int, str]]


def check_plot(file: Path, asked: LookUp) -> None:
    """Raise unless a picture can be made there, of one key."""
    if file.suffix not in KINDS or not file.absolute().parent.is_dir():
        raise UsageError("--plot must name a .png, .svg or .pdf file in a folder that is there", value=str(file))
    if not asked.key or asked.version is not None or asked.at is not None:
        raise UsageError("--plot draws one key as it is now", remedy="add --key, and leave --as-of out")


def timeline(config: Config, asked: LookUp) -> Timeline:
    """Read it. Errors: UsageError where that takes Spark, or nothing is found."""
    try:
        found = lookups_duckdb.look_up(config, asked, whole=True)
        times = f"epoch_us({C.SESSION_START}), epoch_us({C.SESSION_END}), {C.STATUS}, {C.EVENT_COUNT}"
        sessions = _rows(config, f"SELECT {times} FROM ({found.text}) ORDER BY 1, 2")
        tables = LocalTableSet(config)
        mine = " AND ".join(lookups_duckdb.of_keys(asked, tables.config.source.key, tables.sessions.schema))
        inside = _inside(sessions)
        out = f"{C.KEPT} = '{OUT}'"  # the others are in a session
        of_rejected = f"SELECT epoch_us({C.EVENT_TIME}), {C.REASON} FROM rejected_events WHERE {out} AND {mine}"
        near = inside(f"epoch_us({C.EVENT_TIME})")
        rejected = _rows(config, f"{of_rejected} AND {near} ORDER BY 1 DESC, 2 LIMIT {MOST}")
        events = _events(tables, mine, inside)
    except NeedsSpark as reason:
        raise UsageError("--plot draws tables on a path of this machine", value=str(reason)) from reason
    drawn = tellable(Timeline("", sessions, events, rejected))
    if not drawn.sessions and not drawn.rejected:
        raise UsageError(
            "there is nothing to draw: the tables know nothing of this key in the years 2 to 9998",
            value=", ".join(asked.key),
        )
    number = sum(row[3] for row in drawn.sessions)
    title = f"{', '.join(asked.key)}: {_number(len(drawn.sessions), 'session')} of {_number(number, 'event')}"
    return replace(drawn, title=title)


def tellable(found: Timeline) -> Timeline:
    """What of it lies in the years 2 to 9998, which a picture can tell."""
    return replace(
        found,
        sessions=[row for row in found.sessions if row[0] >= FIRST and row[1] <= LAST],
        events=None if found.events is None else [us for us in found.events if FIRST <= us <= LAST],
        rejected=[row for row in found.rejected if FIRST <= row[0] <= LAST],
    )


def draw(found: Timeline, file: Path) -> None:
    """Draw it."""
    from sessionizer.jobs.reporting import charts  # noqa: PLC0415

    charts.save(charts.titled(partial(of_key, found), found.title), file, "time, UTC")


def of_key(found: Timeline, axes: "Axes", palette: "Palette") -> None:
    """The bars and dots."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num  # noqa: PLC0415

    def x(us: int) -> float:
        return float(date2num(EPOCH + timedelta(microseconds=us)))  # type: ignore[no-untyped-call]

    shown = [*(us for row in found.sessions for us in row[:2]), *(us for us, _ in found.rejected)]
    width = max(x(max(shown)) - x(min(shown)), 1 / 1440)
    for status, colour in STATUSES.items():
        bars = [(x(s), max(x(e) - x(s), width / 400)) for s, e, kind, _ in found.sessions if kind == status]
        if bars:
            axes.broken_barh(bars, (OF_SESSIONS - 0.25, 0.5), facecolors=palette.series[colour], label=status)
    for start, end, _, number in found.sessions:
        if x(end) - x(start) > width / 25:
            axes.text((x(start) + x(end)) / 2, OF_SESSIONS, f"{number:,}", color="white", ha="center", va="center")
    rows = [(OF_SESSIONS, "sessions")]
    if found.events is not None:
        rows.append((OF_EVENTS, "events"))
        step = width / PLACES  # what lies closer together is one dot
        dots = [place * step for place in sorted({round(x(us) / step) for us in found.events})]
        axes.plot(dots, [OF_EVENTS] * len(dots), "o", color=palette.ink, ms=4, alpha=0.5)
    if found.rejected:
        rows.append((LEFT_OUT, "left out"))
    for n, reason in enumerate(sorted({reason for _, reason in found.rejected})):
        times = [x(us) for us, why in found.rejected if why == reason]
        axes.plot(times, [LEFT_OUT] * len(times), "X", color=palette.series[(4 + n) % 6], ms=8, label=reason)
    for y, name in rows:
        axes.annotate(
            name,
            (0, y),
            xycoords=("axes fraction", "data"),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
        )
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(rows[-1][0] - 0.6, OF_SESSIONS + 0.6)
    axes.set_xlim(max(x(min(shown)) - width / 40, x(FIRST)), min(x(max(shown)) + width / 40, x(LAST)))
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(visible=True, axis="x")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderpad=0, handletextpad=0.5)


def _inside(sessions: Sequence[tuple[int, int, str, int]]) -> Callable[[str], str]:
    """The condition on a time in microseconds: within what these sessions span, and a little around it."""
    if not sessions:
        return lambda us: f"{us} IS NOT NULL"
    low, high = min(row[0] for row in sessions), max(row[1] for row in sessions)
    room = max((high - low) // 20, 60_000_000)
    return lambda us: f"{us} BETWEEN {low - room} AND {high + room}"


def _events(tables: LocalTableSet, mine: str, inside: Callable[[str], str]) -> list[int] | None:
    """The times of the key's events, where time and key are columns, and all rows are events."""
    parts = []
    for source in tables.config.each:
        types = {f.name.lower(): f.dataType.typeName() for f in tables.events[source.label].schema.fields}
        is_made = len(source.own_key) < len(source.keys)
        is_time = types.get(source.event_time.lower()) in ("timestamp", "timestamp_ntz")
        if is_made or not is_time or source.where is not None:
            return None
        us = f"epoch_us({quoted(source.event_time)})"
        parts.append(f"SELECT {us} FROM {events_of(source)} WHERE {mine} AND {inside(us)}")
    rows = _rows(tables.config, f"{' UNION ALL '.join(parts)} ORDER BY 1 DESC LIMIT {MOST}")
    return [row[0] for row in rows]


def _rows(config: Config, text: str) -> list[tuple]:  # type: ignore[type-arg]
    return list(sql_duckdb.rows(sql_duckdb.checked_query(config, text)))


def _number(number: int, what: str) -> str:
    return counted(number, what)
