"""What every table must hold, by docs/semantics.md alone: everything anew from the accepted events, after each step."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

from tests.machine.books import ABOVE_ALL, Bag, Counts, End, Event, Rejected, Scope, Session
from tests.machine.rule import MINUTE, Key, Late, Row, Rule, time_of
from tests.machine.walk import islands, made

Rows = Counter[Row]
NOTHING: Rows = Counter()
BY_MARK = ("late", "duplicate", "expression_failed", "null_key", "non_positive_gap", "in_the_future")


class Version(NamedTuple):
    """All rows of the source, those that an update has made, and whether rows have gone or were written anew.

    deletes: whether it is a DELETE.
    """

    rows: Rows
    images: Rows
    changes: bool
    deletes: bool = False


class World:
    """A source, and what has been made of it."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.source: Rows = Counter()
        self.told: list[Version] = []  # all versions of the source
        self.versions: list[Version] = []  # those that are not yet consumed
        self.consumed: Rows | None = None
        self._empty()
        self.scopes: dict[Key, Scope] = defaultdict(Scope)
        self.run_seq = 0
        self.now = 0
        self.is_behind = False  # whether something waits that the run has not read
        self.unsure_since = -1  # the last run that changed history: what it did to arrivals and ends is left open
        self.flushes_unsure = False  # whether a flush came with a change of history
        self.frozen = 0
        self.forgotten = -ABOVE_ALL  # what ended before it is gone for good
        self.had = rule.gains  # whether the last run had the aggregates that come later
        self.takes_up = False  # whether the next one takes up, or drops, some
        self.open_keys: set[Key] = set()  # which of their events a final session holds cannot be told any more

    def _empty(self) -> None:
        def alike(row: Row) -> Any:
            return self.rule.who(row), row.id

        self.main: Bag[Event] = Bag(alike)
        self.apart: Bag[Event] = Bag(alike)
        self.rejected: Bag[Rejected] = Bag(alike)
        self.may_join: list[tuple[Key, int, int]] = []  # where sessions lay before the run, by key
        self.walked: list[Session] | None = None  # the sessions of these events, as long as none comes or goes
        self.without: set[Event] = set()  # events of final sessions that may lack the aggregates that came later
        self.kept: set[Event] = set()  # where these are dropped: events of final sessions that have them still

    # The source.

    def add(self, rows: Iterable[Row]) -> None:
        self._version(self.source + Counter(rows))

    def change(self, changes: dict[int, dict[str, Any]]) -> None:
        after: Rows = Counter()
        images: Rows = Counter()
        for row, times in self.source.items():
            image = row._replace(**changes.get(row.n, {}))
            after[image] += times
            if row.n in changes:
                images[image] += times
        if images:
            self._version(after, images, changes=True)

    def delete(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        if any(row.n in gone for row in self.source):
            left = Counter({row: times for row, times in self.source.items() if row.n not in gone})
            self._version(left, changes=True, deletes=True)

    def overwrite(self, changes: dict[int, dict[str, Any]], gone: Iterable[int], rows: Iterable[Row]) -> None:
        kept = Counter({row: times for row, times in self.source.items() if row.n not in set(gone)})
        after: Rows = Counter()
        for row, times in kept.items():
            after[row._replace(**changes.get(row.n, {}))] += times
        self._version(after + Counter(rows), changes=bool(self.source))

    def reshape(self) -> None:
        """A version without a change of rows."""
        self._version(self.source)

    def _version(self, after: Rows, images: Rows = NOTHING, *, changes: bool = False, deletes: bool = False) -> None:
        self.source = after
        self.told.append(Version(self._passing(after), self._passing(images), changes, deletes))
        self.versions.append(self.told[-1])

    def _passing(self, rows: Rows) -> Rows:
        if not self.rule.filters:
            return rows
        return Counter({row: times for row, times in rows.items() if self.rule.passes(row)})

    def copy(self) -> "World":
        """As it is now; what the source held, which nothing changes, is the same."""
        return deepcopy(self, {id(rows): rows for version in self.told for rows in version[:2]})

    def back_in(self, then: "World") -> "World":
        """As sessions are restored to what they were then: what has come to the source since is to be read again."""
        world = then.copy()
        world.versions += self.told[len(world.told) :]
        world.told, world.source = self.told, self.source
        world.run_seq = world.unsure_since = self.run_seq + 1
        world.change_rule(self.rule.allowed, self.rule.late)
        if world.rule.gains != self.rule.gains:
            world.change_aggregates(self.rule.gains)
        return world

    def change_rule(self, allowed: int, late: Late) -> None:
        """No horizon goes back, however much lateness is allowed from now on."""
        for scope in self.scopes.values():
            scope.mark = scope.horizon(self.rule.allowed * MINUTE)
        self.rule = replace(self.rule, allowed=allowed, late=late)

    def change_aggregates(self, added: bool) -> None:
        """The next run takes them up: sessions that live then have them, others once they are written again."""
        self.rule, self.takes_up = replace(self.rule, gains=added), True

    def _take_up(self) -> None:
        self.takes_up = False
        if self.rule.gains == self.had:
            return
        final, self.had = [s.events for s in self._made() if s.late or self._is_final(s)], self.rule.gains
        if self.had:
            self.without = {e for events in final if not self.kept.issuperset(events) for e in events}
        else:
            self.kept = {e for events in final if not self.without.issuperset(events) for e in events}

    def _whole(self) -> dict[Event, list[Event]]:
        """By event, all of its session, where that matters: it is written again if one of them goes."""
        return {e: s.events for s in self._made() for e in s.events} if self.without or self.kept else {}

    def _is_written(self, events: Iterable[Event]) -> None:
        """A session of these events is: with the aggregates that there are now."""
        (self.without if self.had else self.kept).difference_update(events)

    @property
    def has_later(self) -> bool:
        return self.rule.gains and not self.takes_up

    def may_lack(self, s: Session) -> bool:
        """Whether it may be NULL in an aggregate that came later."""
        return (s.late or self._is_final(s)) and self.without.issuperset(s.events)

    # The jobs.

    def run(self, now: int, flush: bool = False, advance: int | None = None) -> list[Counts]:
        """One increment, or one for each version; only the last is pushed."""
        if self.consumed is None and self.rule.from_version is not None:
            self._begin(self.rule.from_version)
        self._take_up()
        parts, first, self.versions = self._parts(), len(self.told) - len(self.versions), []
        done = []
        for number, part in enumerate(parts, 1):
            self.is_behind = number < len(parts)
            pushed = (False, None) if self.is_behind else (flush, advance)
            done.append(self._increment(part, first, now, *pushed))
            first += len(part)
        return done

    def _parts(self) -> list[list[Version]]:
        """What is read by itself: each version, or each that changes rows where these are not made, or all."""
        if self.consumed is None or not self.versions:
            return [self.versions]
        if self.rule.one_by_one:
            return [[version] for version in self.versions]
        parts: list[list[Version]] = [[]]
        for version in self.versions:
            if self.rule.corrections != "apply" and parts[-1] and (version.changes or parts[-1][-1].changes):
                parts.append([])
            parts[-1].append(version)
        return parts

    def _begin(self, version: int) -> None:
        """What lies before the first version that is read is in no session."""
        self.consumed = self.versions[version - 1].rows
        self.versions = self.versions[version:]
        self.rejected.extend(Rejected(row, "before_start", "out", self.run_seq + 1) for row in self.consumed.elements())

    def backfill(self, now: int, low: int, high: int, keys: set[Key] | None = None) -> None:
        self._look_back(now)
        self._take_in(
            lambda r: (
                (r.reason == "late" or (r.reason == "in_the_future" and not self._ahead(r.row, now)))
                and not self._is_forgotten(r.row)
                and low <= time_of(r.row) < high
                and (keys is None or self.rule.who(r.row) in keys)
            )
        )
        for s in self._made():
            if self.had and (keys is None or s.key in keys) and any(low <= e.t < high for e in s.events):
                self._is_written(s.events)

    def readmit(self, now: int, low: int, high: int) -> None:
        self._look_back(now)
        inside = {r for r in self.rejected if r.row.at is not None and low <= r.row.at < high}
        corrections = [r for r in self.rejected if r.reason == "correction"]
        moves = [r for r in corrections if r.kept == "out"]
        before = 0
        while before != (before := len(inside)):
            made = inside.intersection(corrections)
            commits = {r.version for r in made} & {r.version for r in moves}
            keys = {self.rule.who(r.row) for r in made} & {self.rule.who(r.row) for r in moves}
            inside |= {r for r in corrections if r.version in commits or self.rule.who(r.row) in keys}
        gone = [r for r in inside.intersection(corrections) if r.kept == "in"]  # ignored deletes are not asked for
        for r in gone:
            self.rejected.remove(r)
        freed = self._withdraw(r.row for r in gone)
        self._take_in(
            lambda r: (
                r in inside
                and (
                    r.reason == "correction"
                    or (not self._is_forgotten(r.row) and r.reason == "late")
                    or (not self._is_forgotten(r.row) and r.reason == "in_the_future" and not self._ahead(r.row, now))
                )
            ),
            freed,
            {(self.rule.who(r.row), r.row.at) for r in gone},
        )

    def erase(self, now: int, low: int, high: int) -> None:
        self._look_back(now)
        made = [r for r in self.rejected if r.reason == "ignored_delete" and low <= time_of(r.row) < high]
        for r in made:
            self.rejected.remove(r)
        self._take_in(lambda _: False, self._withdraw(r.row for r in made))

    def forget(self, keep: int) -> None:
        """Final sessions that ended further behind the latest; never into a horizon, nor past the first live one."""
        found = self.sessions()
        live = [s for s in found if not s.late and not self._is_final(s)]
        scopes = {self.rule.scope(s.events[0].row) for s in live} if self.rule.per_key else set(self.scopes)
        horizons = [h for scope in scopes if (h := self._horizon(scope)) is not None and h > -ABOVE_ALL]
        ends = [max((s.expires for s in found), default=-ABOVE_ALL) - keep, *horizons, *(s.expires for s in live)]
        mark = max(min(ends), self.forgotten)
        if any(s.expires < mark for s in found if s not in live):
            self.forgotten = mark
            self.run_seq += 1

    def _is_forgotten(self, row: Row) -> bool:
        return row.at is not None and row.at < self.forgotten

    def _forgotten_among(self, before: Counter[Row]) -> list[Rejected]:
        """What no run has read and is late by the mark: all so old but for what comes in place of one that counted."""
        assert self.consumed is not None
        gone, come = (before - self.consumed).elements(), (self.consumed - before).elements()
        places = {(self.rule.who(row), row.at) for row in gone if all(r.kept != "out" for r in self.rejected.of(row))}
        late = [row for row in come if self._is_forgotten(row) and (self.rule.who(row), row.at) not in places]
        return [Rejected(row, "late", "out", self.run_seq) for row in late]

    def rebuild(self, now: int) -> None:
        self._look_back(now)
        before, self.versions, self.consumed = self.consumed or Counter(), [], self._passing(self.source)
        unread, gone = self._forgotten_among(before), before - self.consumed
        for r in sorted((r for row in gone for r in self.rejected.of(row) if r.kept == "out"), key=lambda r: r.run):
            if gone[r.row]:
                gone[r.row] -= 1
                self.rejected.remove(r)
        self.had, self.takes_up = self.rule.gains, False
        old = [r for r in self.rejected if r.reason in BY_MARK and r.kept != "apart" and self._is_forgotten(r.row)]
        lasting = [r for r in self.rejected if r.reason in ("before_start", "correction", "ignored_delete")]
        lasting += [replace(r, reason="late", kept="out") for r in old if self._invalid(r.row) is None] + unread
        self._empty()
        left = Counter(self.consumed)
        for r in lasting:
            if r.kept == "out" and left[r.row]:
                left[r.row] -= 1
                self.rejected.add(replace(r, run=self.run_seq))
        staying = [r for r in lasting if r.kept == "in"]
        self.rejected.extend(staying)
        rows = [*left.elements(), *(r.row for r in staying)]
        counts = self._enter(rows, Counter(rows), in_place=Counter(rows))
        self._follow(counts.seen)
        self._settle()

    def _increment(
        self,
        versions: list[Version],
        first: int,
        now: int,
        flush: bool = False,
        advance: int | None = None,
    ) -> Counts:
        self.run_seq += 1
        self.now = now
        before = self.consumed or Counter()
        after = versions[-1].rows if versions else before
        images = sum((version.images for version in versions), NOTHING) if self.consumed is not None else NOTHING
        gone, come = list((before - after).elements()), list((after - before).elements())
        places = {(self.rule.who(row), row.at) for row in gone}
        corrected = Counter(
            {
                row: times if (self.rule.who(row), row.at) in places else min(times, images[row])
                for row, times in Counter(come).items()
            }
        )
        self.consumed = after
        if gone or corrected.total():
            self.unsure_since = self.run_seq
        made_by = self._made_by(before, versions, first)
        left = {(self.rule.who(row), row.at) for row in gone if self._lies_in_main(row)}
        in_place = {row: n for row, n in corrected.items() if (self.rule.who(row), row.at) in left}
        corrected = Counter({r: n for r, n in corrected.items() if r in in_place or not self._is_forgotten(r)})
        ignored = self.rule.corrections == "ignore" and any(version.deletes for version in versions)
        stay = ignored or self.rule.corrections == "quarantine"
        kept = [row for row in gone if stay and not self._erases(row)]
        self._keep(kept, made_by)
        self.may_join = self._may_join()
        freed = self._withdraw((Counter(gone) - Counter(kept)).elements(), last=True)
        never_late = corrected
        if self.rule.corrections == "quarantine":
            unmade = Counter({row: times for row, times in corrected.items() if row.at is not None})
            self.rejected.extend(
                Rejected(row, "correction", "out", self.run_seq, made_by[row]) for row in unmade.elements()
            )
            come, never_late = list((Counter(come) - unmade).elements()), corrected - unmade
        again = [r.row for r in freed]
        counts = self._enter(come + again, never_late + Counter(again), in_place=Counter(in_place))
        counts.plain = not gone and not corrected.total()
        self._follow(counts.seen)
        self._settle(flush, advance)
        scope = self.scopes.get((), Scope())
        counts.watermark, counts.horizon = scope.watermark, scope.horizon(self.rule.allowed * MINUTE)
        return counts

    # Corrections.

    def _lies_in_main(self, row: Row) -> bool:
        """Whether one that goes is neither left out nor apart."""
        others = [r for r in self.rejected.of(row) if r.kept in ("out", "apart")]
        return not others

    def _withdraw(self, rows: Iterable[Row], *, last: bool = False) -> list[Rejected]:
        """Take rows out of where they are: rejected ones first, then those apart. Gives the copies that this frees.

        last: of those apart what came last goes first.
        """
        accepted, whole = [], self._whole()
        for row in self._not_out(rows):
            aparts = [r for r in self.rejected.of(row) if r.kept == "apart"]
            apart = (max if last else min)(aparts, key=lambda r: r.run, default=None)
            if apart is not None:
                self._leave(apart, whole)
            else:
                gone = self.main.of(row)[0]
                self.main.remove(gone)
                self._is_written(whole.get(gone, ()))
                self.walked = None
            accepted.append(row)
        return [r for row in accepted for r in self._copies_freed(row)]

    def _copies_freed(self, gone: Row) -> list[Rejected]:
        """The rejected copies of an accepted row that is gone, which leave, to be judged again."""
        freed = [r for r in self.rejected.like(gone) if r.reason == "duplicate" and self._copies(r.row, gone)]
        for r in freed:
            self.rejected.remove(r)
        return freed

    def _erases(self, row: Row) -> bool:
        return self.rule.corrections == "ignore" and self.rule.erases is not None and row.x == self.rule.erases

    def _keep(self, rows: Iterable[Row], made_by: dict[Row, int]) -> None:
        """Leave the events of deleted rows where they are."""
        reason = "ignored_delete" if self.rule.corrections == "ignore" else "correction"
        kept = [Rejected(row, reason, "in", self.run_seq, made_by[row]) for row in self._not_out(rows)]
        self.rejected.extend(kept)

    @staticmethod
    def _made_by(before: Rows, versions: list[Version], first: int) -> dict[Row, int]:
        """The last of these versions, numbered from the first on, in which a row came or went."""
        found: dict[Row, int] = {}
        for number, version in enumerate(versions, first):
            found |= dict.fromkeys((before - version.rows) + (version.rows - before), number)
            before = version.rows
        return found

    def _not_out(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that were not left out; the others leave the rejected ones."""
        found = []
        for row in rows:
            out = next((r for r in self.rejected.of(row) if r.kept == "out"), None)
            if out is not None:
                self.rejected.remove(out)
            else:
                found.append(row)
        return found

    def _leave(self, rejected: Rejected, whole: dict[Event, list[Event]]) -> None:
        """whole: by event, all of its session, as it was before any went."""
        self.rejected.remove(rejected)
        if rejected.kept == "apart":
            gone = next(e for e in self.apart.of(rejected.row) if e.run == rejected.run)
            self.apart.remove(gone)
            self._is_written(whole.get(gone, ()))
            self.walked = None

    # Looking back.

    def _look_back(self, now: int) -> None:
        self.run_seq += 1
        self.now, self.unsure_since = now, self.run_seq
        self.kept = set()  # which rows this writes again, and so without what has been dropped, is left open

    def _take_in(
        self,
        wanted: Callable[[Rejected], bool],
        freed: Iterable[Rejected] = (),
        left: Collection[tuple[Key, int | None]] = (),
    ) -> None:
        taken, copies, whole = [r for r in self.rejected if wanted(r)], dict.fromkeys(freed), self._whole()
        for r in taken:
            self._leave(r, whole)
        for apart in [r for r in taken if r.kept == "apart"]:
            copies |= dict.fromkeys(self._copies_freed(apart.row))
        rows = [r.row for r in (*taken, *copies)]
        in_place = [r.row for r in taken if r.reason == "correction" and (self.rule.who(r.row), r.row.at) in left]
        self._enter(rows, Counter(rows), in_place=Counter(in_place))

    # Admission.

    def _enter(self, rows: list[Row], never_late: Rows, in_place: Rows = NOTHING) -> Counts:
        """Judge rows: invalid, copy, late; in order of time, so that of several copies the lowest is the original.

        in_place: those that are as old as what has been forgotten, and not late either.
        """
        counts = Counts(plain=True)
        valid = []
        for row in rows:
            reason = self._invalid(row)
            if reason is None:
                valid.append(row)
            else:
                counts.invalid += 1
                self.rejected.add(Rejected(row, reason, "out", self.run_seq))
        is_late = self._lateness(valid)
        exempt, judged = Counter(never_late), []
        for row in valid:
            judged.append((row, self._is_old(row, in_place) or (not exempt[row] and is_late(row))))
            exempt[row] -= bool(exempt[row])
        accepts = {row: self.rule.late in ("amend", "separate") and not self._is_old(row, in_place) for row in valid}
        # What is late and left out is the original of no copy, so it comes last.
        judged.sort(
            key=lambda j: (j[1] and not accepts[j[0]], j[0].at, j[0].o if self.rule.ordered else 0, j[0].canonical)
        )
        for row, late in judged:
            amends = self.rule.late == "amend" and accepts[row]
            if self.rule.within is not None and any(
                self._copies(row, e.row) for e in (*self.main.like(row), *self.apart.like(row))
            ):
                counts.duplicates += 1
                self.rejected.add(Rejected(row, "duplicate", "out", self.run_seq))
                continue
            counts.seen.append(row)
            if late and not amends:
                counts.late += 1
                apart = self.rule.late == "separate" and accepts[row]
                self.rejected.add(Rejected(row, "late", "apart" if apart else "out", self.run_seq))
                if apart:
                    self.apart.add(Event(row, self.now, self.run_seq))
            else:
                counts.accepted += 1
                counts.amended += late
                self.main.add(Event(row, self.now, self.run_seq))
        self.walked = None
        return counts

    def _may_join(self) -> list[tuple[Key, int, int]]:
        """The sessions that events may be merged with, as they are before the run."""
        if self.rule.lateness == "event":
            return []
        joins = (s for s in self._made() if not s.late and (self.rule.revive or not self._is_final(s)))
        return [(s.key, s.start, s.expires) for s in joins]

    def _is_old(self, row: Row, in_place: Rows) -> bool:
        return self._is_forgotten(row) and not in_place[row]

    def _invalid(self, row: Row) -> str | None:
        if self.rule.fails and row.x == 4:
            return "expression_failed"
        if row.at is None:
            return "null_time"
        if not self.rule.groups_nulls and None in self.rule.who(row):
            return "null_key"
        if self.rule.gap is None and (row.g is None or row.g <= 0):
            return "non_positive_gap"
        return "in_the_future" if self._ahead(row, self.now) else None

    def _ahead(self, row: Row, now: int) -> bool:
        return row.at is not None and row.at > now + self.rule.skew * MINUTE

    def _copies(self, one: Row, other: Row) -> bool:
        if self.rule.within is None or one.at is None or other.at is None:
            return False
        same = (self.rule.who(one), one.id) == (self.rule.who(other), other.id)
        return same and abs(one.at - other.at) <= self.rule.within * MINUTE

    def _lateness(self, rows: list[Row]) -> Callable[[Row], bool]:
        """By the horizon as it stands: of the event, or of all that it would be merged with."""
        horizons = {self.rule.scope(row): self._horizon(self.rule.scope(row)) for row in rows}

        def is_late(time: int, scope: Key) -> bool:
            horizon = horizons[scope]
            return horizon is not None and time < horizon

        if self.rule.lateness == "event":
            return lambda row: is_late(time_of(row), self.rule.scope(row))
        spans = defaultdict(list)
        for key, start, expires in self.may_join:
            spans[key].append((start, expires))
        for row in rows:
            if not self._is_forgotten(row):
                spans[self.rule.who(row)].append((time_of(row), self.rule.reach(row)))
        chains = {key: islands(self.rule, theirs) for key, theirs in spans.items()}

        def merged_reach(row: Row) -> int:
            start, end = time_of(row), self.rule.reach(row)
            return next(reach for first, reach in chains[self.rule.who(row)] if first <= start and end <= reach)

        return lambda row: is_late(merged_reach(row), self.rule.scope(row))

    # Time.

    def _follow(self, rows: Iterable[Row]) -> None:
        times = defaultdict(list)
        for row in rows:
            times[self.rule.scope(row)].append(time_of(row))
        for scope, seen in times.items():
            candidate = min(seen) if self.rule.earliest else max(seen)
            self.scopes[scope].reach(candidate - self.rule.delay * MINUTE)

    def _settle(self, flush: bool = False, advance: int | None = None) -> None:
        """Move time by hand, end what is idle, and freeze what is final."""
        self.flushes_unsure |= flush and self.unsure_since == self.run_seq
        if advance is not None:
            for scope in self.scopes.values():
                if scope.watermark is not None:
                    scope.reach(advance)
        reaches: dict[Key, int] = {}
        arrivals: dict[Key, int] = {}
        live = set()
        for s in self._made():
            if not s.late:
                place = self.rule.scope(s.events[0].row)
                live |= set() if self._is_final(s) else {place}
                reaches[place] = max(s.expires, reaches.get(place, -ABOVE_ALL))
                arrivals[place] = max(*(e.arrived for e in s.events), arrivals.get(place, -ABOVE_ALL))
        for place, reach in reaches.items():
            scope = self.scopes[place]
            no_event = self.now - arrivals[place] > (self.rule.idle_after or 0) * MINUTE
            idle = self.rule.per_key and no_event and not self.is_behind
            if flush and (scope.mark is None or reach >= scope.mark):
                scope.ends.append(End("flush", scope.begins, reach + 1, self.run_seq, scope.ended))
                scope.mark = reach + 1
                scope.reach(reach + 1)
            if idle and place in live:
                scope.ends.append(End("idle", scope.begins, reach + 1, self.run_seq, scope.ended))
                scope.mark = reach + 1 if scope.mark is None else max(reach + 1, scope.mark)
        if self.rule.freezes:
            for s in self._made():
                if not s.late and self._is_final(s):
                    self.frozen += 1
                    for e in s.events:
                        e.frozen = e.frozen or self.frozen
            self.walked = None
            self._leave_open()
        self._forget_keys()

    def _forget_keys(self) -> None:
        """A key without a live session has no watermark; its horizon lies past its final ones."""
        if not self.rule.per_key:
            return
        final: dict[Key, int | None] = dict.fromkeys(self.scopes)
        live = set()
        for s in self._made():
            if s.late:
                continue
            place = self.rule.scope(s.events[0].row)
            if not self._is_final(s):
                live.add(place)
            final[place] = max(s.expires + 1, final.get(place) or -ABOVE_ALL)
        for place in final.keys() - live:
            self.scopes[place].watermark, self.scopes[place].mark = None, final[place]

    def _leave_open(self) -> None:
        """Keys with an event amid the time of a final session that is not its own, unless it is like all of them."""
        spans = defaultdict(list)
        for s in self._made():
            if s.events[0].frozen:
                spans[s.key].append(s)
        for e in self.main:
            amid = (s for s in spans.get(self.rule.who(e.row), ()) if s.start <= e.t <= s.end)
            if any(s.events[0].frozen != e.frozen and {e.row} != {own.row for own in s.events} for s in amid):
                self.open_keys.add(self.rule.who(e.row))

    def _horizon(self, scope: Key) -> int | None:
        known = self.scopes[scope].horizon(self.rule.allowed * MINUTE)
        if self.forgotten == -ABOVE_ALL:
            return known
        return self.forgotten if known is None else max(known, self.forgotten)

    # States.

    def sessions(self) -> list[Session]:
        """The rows of sessions, each in its state."""
        found = [s for s in self._made() if s.expires >= self.forgotten]
        cut = self._cut(found) if self._cuts() else set[Session]()
        for session in found:
            session.states = self._states(session, session in cut)
        return found

    def with_forgotten(self) -> list[Session]:
        """All that the events make, whatever the table still has."""
        return self._made()

    def _cuts(self) -> bool:
        return self.rule.longest is not None or self.rule.by_content

    def _cut(self, found: list[Session]) -> set[Session]:
        """Those of chains that are cut: made anew with any of them, they lose what a flush or the clock has ended."""
        of_key = defaultdict(list)
        for s in found:
            of_key[s.key].append(s)
        cut = set()
        for same in of_key.values():
            for first, reach in islands(self.rule, [(s.start, s.expires) for s in same]):
                chain = [s for s in same if first <= s.start and s.expires <= reach]
                cut |= set(chain) if len(chain) > 1 else set()
        return cut

    def _made(self) -> list[Session]:
        if self.walked is None:
            self.walked = made(self.rule, self.main, self.apart)
        return self.walked

    def _is_final(self, s: Session) -> bool:
        horizon = self._horizon(self.rule.scope(s.events[0].row))
        return any(e.frozen for e in s.events) or (horizon is not None and s.expires < horizon)

    def _states(self, s: Session, is_cut: bool) -> set[tuple[str, str | None]]:
        """(status, end_reason), the first that applies."""
        scope = self.scopes[self.rule.scope(s.events[0].row)]
        last = s.start + (self.rule.longest if self.rule.longest is not None else ABOVE_ALL) * MINUTE
        base = s.why
        if s.late:
            return {("final", base), ("final", "flush")}
        ended = next((end for end in scope.ends if end.since <= s.expires < end.until), None)
        sure = max(e.run for e in s.events) > self.unsure_since and not is_cut
        if self._is_final(s):
            if ended is None:  # a key that had ended has no watermark: by which a flush ended it anew is left open
                unsure = self.rule.per_key and self.flushes_unsure
                return {("final", base), *({("final", "flush")} if unsure else set())}
            reason = base if ended.reason == "idle" and base != "gap" else ended.reason
            by_hand = max(e.run for e in s.events) > ended.run or ended.run < self.unsure_since
            by_hand = by_hand or s.expires < ended.surely or is_cut
            return {("final", reason), *({("final", base)} if by_hand else set())}
        watermark = scope.watermark if scope.watermark is not None else -ABOVE_ALL
        if watermark > s.expires or watermark > last:
            return {("closed", base)}
        idle = ("closed", base if base != "gap" else "idle")
        if self.rule.idle_after is None:
            return {("open", None)}
        after = self.rule.idle_after * MINUTE
        if not self.rule.idle_by_arrival:
            return {idle} if watermark - s.end > after else {("open", None)}
        is_idle = self.now - max(e.arrived for e in s.events) > after
        return ({idle} if is_idle else {("open", None)}) if sure else {idle, ("open", None)}
