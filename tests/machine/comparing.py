"""Every table against the oracle's books: what is too much, what is missing, what is otherwise."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.machine.books import Counts, Event, Session
from tests.machine.drawing import clock, drawn
from tests.machine.options import TRACES
from tests.machine.oracle import World
from tests.machine.places import Place
from tests.machine.rule import Key, Rule
from tests.machine.telling import who
from tests.machine.walk import aggregates, later, nearly
from tests.oracle import session_id


@dataclass(frozen=True)
class Difference:
    """What a table holds, or lacks."""

    table: str
    what: str
    key: Key | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.what}"


class Comparison:
    """The world as it should be, and the tables as they are."""

    def __init__(self, place: Place, rule: Rule, world: World) -> None:
        self.place, self.rule, self.world = place, rule, world
        self.names: dict[tuple[Key, int], str] = {}  # ids by key and start
        self.holders: dict[Event, str] = {}

    def compared(self) -> list[Difference]:
        rows = self.place.rows(self.place.warehouse.config.sessions.table)
        sessions = self.world.sessions()
        found = [
            *self._of_sessions(rows, sessions),
            *self._of_ids(rows, sessions),
            *self._of_rejected(),
            *(self._of_traces(rows) if self.rule.traced else []),
        ]
        return [difference for difference in found if difference.key not in self.world.open_keys]

    def _of_sessions(self, rows: list[dict[str, Any]], sessions: list[Session]) -> Iterable[Difference]:
        wanted: dict[str, list[Session]] = defaultdict(list)
        for s in sessions:
            wanted[self._shown(s)].append(s)
        names = ["session_start", "session_end", "expires_at", "session_date", "event_count", "is_late"]
        names.append("duration_seconds")
        for row in rows:
            made = {n: row[n] for n in (*names, *aggregates(self.rule, sessions[0]))} if sessions else {}
            shown = drawn(who(row, self.rule), made)
            state = row["status"], row["end_reason"]
            if not wanted[shown]:
                yield Difference("sessions", f"too much: {shown} {state}", who(row, self.rule))
                continue
            same = wanted[shown]
            fitting = [s for s in same if state in s.states]
            one = next((s for s in fitting if self._has_later(row, s)), (fitting or same)[0])
            if not fitting:
                right = [s.states for s in same]
                yield Difference("states", f"{shown} is {state}, and not {right}", who(row, self.rule))
            elif not self._has_later(row, one):
                found = {name: row[name] for name in later(self.rule, one)}
                told = f"{shown} has {found}, and not {[later(self.rule, s) for s in fitting]}"
                yield Difference("sessions", told, who(row, self.rule))
            same.remove(one)
            near = nearly(self.rule, one)
            if wrong := [name for name, is_right in near.items() if not is_right(row[name])]:
                yield Difference("sessions", f"{shown}: {[(n, row[n]) for n in wrong]}", who(row, self.rule))
            if row["is_final"] != (row["status"] == "final"):
                yield Difference("states", f"{shown} is {state}, is_final {row['is_final']}", who(row, self.rule))
        for shown, missing in wanted.items():
            yield from (Difference("sessions", f"missing: {shown} {s.states}", s.key) for s in missing)

    def _has_later(self, row: dict[str, Any], s: Session) -> bool:
        """Whether it has this session's aggregates that come later, or none where no run has written it since."""
        if not self.world.has_later:
            return True
        right = later(self.rule, s)
        found = {name: row[name] for name in right}
        return found == right or (set(found.values()) == {None} and self.world.may_lack(s))

    def _shown(self, s: Session) -> str:
        made = {
            "session_start": s.start,
            "session_end": s.end,
            "expires_at": s.expires,
            "session_date": self.rule.day(s.start),
            "event_count": len(s.events),
            "is_late": s.late,
            "duration_seconds": (s.end - s.start) / 1e6,
        }
        return drawn(s.key, made | aggregates(self.rule, s))

    def _of_ids(self, rows: list[dict[str, Any]], sessions: list[Session]) -> Iterable[Difference]:
        by_id = Counter(row["session_id"] for row in rows)
        yield from (Difference("ids", f"{name} is the id of {n} rows") for name, n in by_id.items() if n > 1)
        if self.rule.freezes:
            return
        places = Counter((s.key, s.start) for s in sessions if not s.late)
        rows = [row for row in rows if not row["is_late"]]
        if self.rule.type_of_key == "STRING":
            wanted = Counter(self._id(s) for s in sessions if not s.late)
            for name, n in (Counter(row["session_id"] for row in rows) - wanted).items():
                yield Difference("ids", f"{name} is the id of {n} rows, and not of {wanted[name]}")
        found = {(who(row, self.rule), row["session_start"]): row for row in rows}
        found = {place: row for place, row in found.items() if places[place] == 1}
        for place, row in found.items():
            name = self.names.setdefault(place, row["session_id"])
            if name != row["session_id"] and not self.rule.by_content:
                yield Difference("ids", f"the session of {place} has another id than before", place[0])
        holders = {}
        for s in sessions:
            made = None if s.late else found.get((s.key, s.start))
            if made is None:
                continue
            for e in s.events:
                holders[e] = made["session_id"]
                before = self.holders.get(e)
                if before is not None and before not in by_id and before not in (made["supersedes"] or ()):
                    yield Difference("ids", f"the session of {s.key, s.start} does not name {before}", s.key)
        self.holders = holders

    def _id(self, s: Session) -> str:
        return session_id(s.key, s.start - self.rule.earlier, f"+{s.ahead}" if s.ahead else "")

    def _of_rejected(self) -> Iterable[Difference]:
        found = Counter(
            (who(row, self.rule), row["event_time"], row["reason"], row["kept"])
            for row in self.place.rows(self.place.warehouse.config.outputs.rejected_events)
        )
        wanted = Counter((self.rule.who(r.row), r.row.at, r.reason, r.kept) for r in self.world.rejected)
        for what, rows in (("too much", found - wanted), ("missing", wanted - found)):
            yield from (Difference("rejected_events", f"{what}: {row} x{n}", row[0]) for row, n in rows.items())

    def _of_traces(self, rows: list[dict[str, Any]]) -> Iterable[Difference]:
        """Every event is traced once, to its session, and the last row of a session has what the session has."""
        places = {row["session_id"]: (who(row, self.rule), row["session_start"], row["is_late"]) for row in rows}
        sessions = self.world.sessions()
        if not sessions:
            return
        wanted: Counter[Any] = Counter((s.key, e.t, (s.key, s.start, s.late)) for s in sessions for e in s.events)
        for table in TRACES:
            traced = self.place.rows(str(self.place.warehouse.folder / table))
            found: Counter[Any] = Counter(
                (who(r, self.rule), r["event_time"], places.get(r["session_id"])) for r in traced
            )
            for what, events in (("too much", found - wanted), ("missing", wanted - found)):
                yield from (Difference(table, f"{what}: {event} x{n}", event[0]) for event, n in events.items())
        by_session = defaultdict(list)
        for row in traced:
            by_session[row["session_id"]].append(row)
        for row in rows:
            updates = sorted(by_session[row["session_id"]], key=lambda r: r["n"])
            names = aggregates(self.rule, sessions[0])
            # Of sessions that were merged the rows keep the numbers that they had in their own.
            if (len(updates), updates[-1]["n"] if updates else 0) != (row["event_count"], row["event_count"]):
                numbers = [r["n"] for r in updates]
                yield Difference("session_updates", f"{places[row['session_id']]}: {numbers}", who(row, self.rule))
            elif drawn((), {n: updates[-1][n] for n in names}) != drawn((), {n: row[n] for n in names}):
                yield Difference(
                    "session_updates", f"{places[row['session_id']]} ends with {updates[-1]}", who(row, self.rule)
                )

    def of_ledger(self, reports: list[dict[str, Any]], counts: list[Counts]) -> Iterable[Difference]:
        """In: rows of the ledger; what the oracle has counted."""
        names = ("accepted", "late", "invalid", "duplicates")
        for report in reports:
            if report["events_read"] != sum(report[name] for name in names):
                yield Difference("runs", f"does not add up: {report}")
        if len(reports) != len(counts):
            return
        for report, wanted in zip(reports, counts, strict=True):
            if wanted.plain:
                for name in (*names, "amended"):
                    if report[name] != getattr(wanted, name):
                        yield Difference("runs", f"{name} is {report[name]}, and not {getattr(wanted, name)}")
            if not self.rule.per:
                for name in ("watermark", "horizon"):
                    told, right = report[f"{name}_after"], getattr(wanted, name)
                    found = None if told is None else told + self.rule.earlier
                    if found != right:
                        yield Difference("runs", f"{name} is {clock(found)}, and not {clock(right)}")
