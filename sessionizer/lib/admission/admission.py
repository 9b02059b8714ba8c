"""Admission: which events count. Rows of the source in, signed changes of the accepted bag out (SEMANTICS §3)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.accepted import Past, accepted, as_rejects
from sessionizer.lib.admission.corrections import reconciled
from sessionizer.lib.admission.dedupe import mark_duplicates, only_freed, was_judged
from sessionizer.lib.admission.event_counts import EventCounts
from sessionizer.lib.admission.freed import Readmission, asked_for, copies_of, deletions, freed, judged_again, of_main
from sessionizer.lib.admission.lateness import decided, judge_late, with_places
from sessionizer.lib.admission.rejects import IDENTITY, kept, leaving, rejected
from sessionizer.lib.admission.validate import raw_us, validate
from sessionizer.lib.admission.verdicts import (
    APART,
    BESIDE,
    CORRECTED,
    FORGOTTEN,
    IN,
    MOVED,
    OUT,
    REASONS,
    STAYS,
    WITHDRAWN,
)
from sessionizer.lib.bags import hashed
from sessionizer.lib.compute import Compute
from sessionizer.lib.errors import UsageError
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import Spans, day_spans
from sessionizer.lib.time.watermarks import WatermarkState


@dataclass(frozen=True)
class Admission:
    """The judgement of one run's events.

    events: rows of the source, or of its change feed. clock: as it stood before the run. past: what was consumed;
    None: there is none (`is_first`), or it is not known. asked: rejected events to judge again. only_adds: whether all
    events are new; else some may undo each other. begins: whether what lies before the start of a source is among them.
    places: what their place says of events older than the horizon, once it is judged: key columns, `__bucket` as by
    `bucket`, `__enters`. tells_copies: no, as long as places are judged; what is late is so beside copies, too, and is
    the original of none.
    """

    events: DataFrame
    rule: Rule
    clock: WatermarkState
    past: Past | None
    compute: Compute
    asked: Readmission | None = None
    is_first: bool = False
    only_adds: bool = True
    begins: bool = False
    places: DataFrame | None = None
    bucket: Column | None = None
    tells_copies: bool = True

    def judged(self) -> DataFrame:
        """Each event with its verdict, as long as nothing has left the source and nothing is judged again."""
        return self._in_time(self._apart_from_copies(self._validated(), None))

    def judged_with_changes(self) -> DataFrame:
        """The same where rows have left the source, or rejected ones are judged again; computed."""
        rule, clock = self.rule, self.clock
        valid, rejects = self._validated(), self._rejects()
        if C.CHANGE_TYPE in self.events.columns:
            standing = None if rejects is None else as_rejects(rejects, rule)
            valid = reconciled(valid, standing, rule, clock.forgotten, begins=self.begins)
        for free in self._freed(valid, rejects):
            valid = valid.unionByName(free, allowMissingColumns=True)
        return self.compute.held(
            self._in_time(judged_again(self._apart_from_copies(valid, rejects), rule, clock.forgotten))
        )

    def _validated(self) -> DataFrame:
        is_marked = self.is_first and C.CHANGE_TYPE in self.events.columns
        in_flight = (C.AGE,) if is_marked and C.AGE in self.events.columns else ()
        return validate(self.events, self.rule, self.clock, in_flight)

    def placed(self, judged: DataFrame, places: DataFrame, bucket: Column) -> DataFrame:
        """Judged rows, none of them `pending` any more. places: partials of the pending ones, with `__enters`."""
        return decided(with_places(judged, places, self.rule, bucket), self.rule, self.clock)

    def _apart_from_copies(self, valid: DataFrame, rejects: DataFrame | None) -> DataFrame:
        if self.rule.dedupe is None or not (self.tells_copies or C.FREED in valid.columns):
            return valid
        if not self.tells_copies:
            told = mark_duplicates(was_judged(valid), self._originals(valid, rejects), self.rule, self.clock)
            return only_freed(told)
        if self.places is not None and self.bucket is not None:
            valid = with_places(valid, self.places, self.rule, self.bucket)
        if self.is_first and C.CHANGE_TYPE in valid.columns:  # what stays where it is comes before others
            stays = C.col(C.CHANGE_TYPE).eqNullSafe(F.lit(STAYS))
            kept = mark_duplicates(valid.where(stays), None, self.rule, self.clock)
            known = kept.where(C.col(C.VERDICT).isNull())
            return mark_duplicates(valid.where(~stays), known, self.rule, self.clock).unionByName(kept)
        return mark_duplicates(valid, self._originals(valid, rejects), self.rule, self.clock)

    def _in_time(self, marked: DataFrame) -> DataFrame:
        judged = judge_late(marked, self.rule, self.clock)
        return judged if self.places is None else decided(judged, self.rule, self.clock)

    def rejected(self, judged: DataFrame) -> DataFrame:
        """The rows that the run adds to rejected_events, without its own columns."""
        anew = judged.drop(C.FREED) if C.FREED in judged.columns else judged
        return rejected(anew, self.rule)

    def leaving(self, judged: DataFrame, counts: EventCounts) -> DataFrame | None:
        """The rows of rejected_events that leave with the run; None where there are none."""
        before = self._rejects() if counts.takes_rejects or self.asked is not None else None
        return None if before is None else leaving(before, judged, self.rule)

    def accepted(self, judged: DataFrame, counts: EventCounts) -> Callable[[Spans], DataFrame]:
        """What makes the accepted rows within spans of time, after the run."""
        if self.past is None and not self.is_first:
            return _unknown

        def read(spans: Spans) -> DataFrame:
            source = self.events.drop(C.CHANGE_TYPE, C.AGE) if self.past is None else self.past.events(spans)
            return accepted(source, self._rejects_after(judged, counts), self.rule, self.compute, spans)

        return read

    def _rejects_after(self, judged: DataFrame, counts: EventCounts) -> DataFrame | None:
        """What is rejected after the run, as `accepted` takes it."""
        before, now = self._rejects(), None
        if before is not None and (gone := self.leaving(judged, counts)) is not None:
            before = _apart_from(before, gone)
        if counts.rejected:
            stay = judged.where(C.col(C.VERDICT).isin(*REASONS, APART) & C.col(C.US).isNotNull())
            now = self.rejected(stay).withColumn(C.RUN_SEQ, F.lit(self.clock.run_seq))
        return _both(*[None if rows is None else as_rejects(rows, self.rule) for rows in (before, now)])

    def known(self, judged: DataFrame, counts: EventCounts) -> Callable[[Spans], DataFrame]:
        """What makes the accepted rows within spans of time, before any of these came."""
        return self._before(judged, self._rejects() if counts.takes_rejects else None)

    def _rejects(self) -> DataFrame | None:
        return None if self.past is None else self.past.rejected()

    def _freed(self, valid: DataFrame, rejects: DataFrame | None) -> list[DataFrame]:
        """Rejected events to judge again: those asked for, copies of what is gone; and deletions made at last."""
        if rejects is None or self.past is None:
            return []
        wanted, made = None, []
        if self.asked is not None:
            wanted = self.compute.held(asked_for(rejects, self.asked, self.rule, self.compute))
            makes = self.asked.corrections or self.asked.deletes
            made = [deletions(wanted, self.events, self.rule)] if makes else []
        if self.rule.dedupe is not None and (wanted is not None or C.CHANGE_TYPE in self.events.columns):
            names = C.cols((*self.rule.key, C.US))
            if C.CHANGE_TYPE in self.events.columns:  # of identical copies some may be gone themselves
                rejects = _apart_from(rejects, leaving(rejects, valid, self.rule))
            lost = [r.where(C.col(C.VERDICT).isin(WITHDRAWN, MOVED)).select(*names) for r in (valid, *made)]
            if wanted is not None:  # what lies apart is accepted, and may turn out to be a copy
                apart = wanted.where(C.col(C.KEPT) == BESIDE)
                lost.append(apart.withColumn(C.US, F.unix_micros(C.col(C.EVENT_TIME))).select(*names))
            copies = copies_of(reduce(DataFrame.unionByName, lost), rejects, self.rule)
            wanted = copies if wanted is None else wanted.unionByName(copies).dropDuplicates(list(IDENTITY))
        if wanted is None:
            return []
        held, gone = self.compute.held(wanted), made[0] if made else None
        again = freed(held, self.past, self.rule, self.clock, self.compute, made=gone)
        if again is None or gone is None:
            return made if again is None else [again]
        again = self.compute.held(again)
        return [of_main(gone, again), again]

    def _originals(self, valid: DataFrame, rejects: DataFrame | None) -> DataFrame | None:
        """Accepted events near these, as they were before any of these came: what copies are found by."""
        if self.past is None or self.rule.dedupe is None:
            return None
        margin = self.rule.dedupe.within + self.rule.time_unit - 1  # spans are of times that are not truncated
        asks = F.coalesce(C.col(C.VERDICT) == CORRECTED, F.lit(True))  # what has a verdict is a copy of nothing
        spans = day_spans(valid.where(asks), C.col(C.US), self.compute, margin)
        return self._before(valid, rejects)(spans)

    def _before(self, valid: DataFrame, rejects: DataFrame | None) -> Callable[[Spans], DataFrame]:
        """What makes the accepted rows within spans of time as they were before any of these came.

        rejects: rows of rejected_events, of which some leave with rows that are gone; None: nothing is gone.
        """
        past = self.past
        if past is None:
            return lambda _: validate(self.events.limit(0), self.rule, self.clock)
        came, stay = valid, self._rejects() if rejects is None else rejects
        if C.FREED in valid.columns:
            came = valid.where(C.col(C.FREED).isNull()).drop(C.FREED)
            stay = None if stay is None else _without_freed(stay, valid)
        if rejects is not None and stay is not None:
            stay = _apart_from(stay, leaving(rejects, came, self.rule))
        is_gone = F.coalesce(C.col(C.VERDICT).isin(WITHDRAWN, FORGOTTEN), F.lit(False))
        out = hashed(came.where(~is_gone & C.col(C.US).isNotNull())).select(
            *C.cols(self.rule.key),
            raw_us(valid).alias(C.US),
            C.col(C.HASH),
            C.col(C.JSON),
            kept(came).alias(C.KEPT),
            F.lit(None).cast("bigint").alias(C.RUN_SEQ),
        )
        if stay is not None:
            out = out.unionByName(as_rejects(stay, self.rule))
        return lambda spans: accepted(past.events(spans), out, self.rule, self.compute, spans)


def _apart_from(rejects: DataFrame, gone: DataFrame) -> DataFrame:
    """The rows of rejected_events but these."""
    return joined(rejects, gone, IDENTITY, "left_anti")


def _without_freed(rejects: DataFrame, valid: DataFrame) -> DataFrame:
    """The rejected rows as if those judged again had not been accepted: neither kept in a session nor apart."""
    again = valid.where(C.col(C.FREED)[C.KEPT] != OUT).select(
        *[C.col(C.FREED)[name].alias(name) for name in IDENTITY], F.lit(True).alias("__again")
    )
    met = joined(rejects, again, IDENTITY, "left").where(~(F.col("__again").isNotNull() & (C.col(C.KEPT) == IN)))
    return met.withColumn(C.KEPT, F.when(F.col("__again"), OUT).otherwise(C.col(C.KEPT))).drop("__again")


def _both(one: DataFrame | None, other: DataFrame | None) -> DataFrame | None:
    if one is None or other is None:
        return other if one is None else one
    return one.unionByName(other)


def _unknown(_: Spans) -> DataFrame:
    raise UsageError(
        "sessions have to be recomputed from events here, and the past is not given",
        remedy="pass past=Past(…): max_duration, amend, revive and corrections need it",
    )
