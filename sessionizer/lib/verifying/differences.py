"""Where a sessions table is not what it should be: row by row, column by column; and rules that need no recompute."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.compare import ADDED, same_value, tolerances
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.expressions import of_event
from sessionizer.lib.rule import Rule
from sessionizer.lib.verifying import rules
from sessionizer.lib.verifying.content import REASONS, local_date
from sessionizer.lib.verifying.facts import NEAR, Fact
from sessionizer.lib.verifying.plan import CLOSED, FLUSH, IDLE, MAX_DURATION, OPEN, reaches

MISSING, EXTRA, DIFFERS = "missing", "extra", "differs"
KIND, WHICH, FOUND, EXPECTED = "kind", "columns", "found", "expected"
SQL, UNFILLED = "__sql", "__unfilled"
Since = Mapping[str, int]
NEVER: Since = {}
BY_CLOCK = (C.STATUS, C.END_REASON, C.IS_FINAL)


def differences(  # noqa: PLR0913
    table: DataFrame, expected: DataFrame, rule: Rule, facts: Sequence[Fact], since: Since = NEVER, *, flushed: bool
) -> DataFrame:
    """Where the table is not what it should be.

    In: rows of the sessions table; the rows that it should have, as `expected_sessions` makes them, with these facts.
    since: of aggregates that came later, what `unfilled` takes. flushed: whether some run may have ended what was open.
    What only the run's own clock or a flush decides is not compared: status and end_reason of what they ended, and the
    state of sessions with a clock per key.
    Out: session_id, kind STRING (missing, extra or differs), columns ARRAY<STRING>, found and expected: the rows, and
    what live ones remember as `_state.…`; null where there is none.
    """
    by_fact, within = {fact.name: fact for fact in facts}, tolerances(rule)
    left_out = (C.SUPERSEDES, *(BY_CLOCK if rule.watermark_per == "key" else ()))
    results = [name for spec in rule.aggregates if spec.sql is None for name in spec.result_columns]
    shown = [n for n in (*rule.key, *C.BEFORE_AGGREGATES, *results, *C.AFTER_AGGREGATES) if n not in left_out]
    remembered = [fact.name for fact in facts if fact.is_remembered]
    columns = [C.col(n).alias(n) for n in shown] + [by_fact[n].found.alias(n) for n in remembered]
    left = table.select(
        F.struct(*columns).alias(FOUND),
        C.col(C.IS_FINAL).alias("__final"),
        wrong_sql(table, rule, since).alias(SQL),
        _named(unfilled(rule, since)).alias(UNFILLED),
    )
    nearness = {fact.name: C.col(NEAR + fact.name) for fact in facts if fact.near is not None}
    right = expected.select(
        F.struct(*[C.col(n).alias(n) for n in (*shown, *remembered)]).alias(EXPECTED), *nearness.values()
    )
    found, wanted = F.col(FOUND), F.col(EXPECTED)
    joined = left.join(right, found[C.SESSION_ID] == wanted[C.SESSION_ID], "full")
    types = {f.name: f.dataType for f in left.select(f"{FOUND}.*").schema.fields}
    same = {
        name: same_value(
            found[name],
            wanted[name].cast(kind),
            kind,
            by_fact[name].within if name in by_fact else within.get(name, 0.0),
            nearness.get(name),
        )
        for name, kind in types.items()
    }
    same |= {name: same[name] | F.col("__final") for name in remembered}
    lacking = {name: F.coalesce(F.array_contains(UNFILLED, name), F.lit(False)) for name in results}
    same |= {name: same[name] | lacks for name, lacks in lacking.items()}
    same |= {name: same[name] | excused for name, excused in _by_clock(rule, flushed=flushed).items() if name in same}
    wrong = [F.when(~equal, F.lit(name)) for name, equal in same.items()]
    told = joined.select(
        F.coalesce(found[C.SESSION_ID], wanted[C.SESSION_ID]).alias(C.SESSION_ID),
        F.when(found.isNull(), MISSING).when(wanted.isNull(), EXTRA).otherwise(DIFFERS).alias(KIND),
        F.concat(F.array_compact(F.array(*wrong)), F.coalesce(SQL, F.array().cast("array<string>"))).alias(WHICH),
        found,
        wanted,
    )
    return told.where((F.col(KIND) != DIFFERS) | (F.size(WHICH) > 0))


def unfilled(rule: Rule, since: Since) -> dict[str, Column]:
    """By column of aggregates that came later: whether a row of the table is older and final, and has nothing there.

    since: the `run_seq` of the run that took an aggregate up, by name; the `run_id` of a row tells its own.
    """
    older = written_before(rule, since)
    return {name: C.col(name).isNull() & C.col(C.IS_FINAL) & is_older for name, is_older in older.items()}


def written_before(rule: Rule, since: Since) -> dict[str, Column]:
    """The same: whether the run that has written a row, by its `run_id`, had no such aggregate."""
    return {
        name: F.coalesce(C.run_number() < since[spec.name], F.lit(False))
        for spec in rule.aggregates
        if spec.name in since
        for name in spec.result_columns
    }


def not_emptied(table: DataFrame, since: Since) -> DataFrame:
    """Rows that hold something in a column that a dropped aggregate has left, though written since it was dropped.

    since: the `run_seq` of the run that dropped it, by column.
    """
    wrong = [C.col(name).isNotNull() & (C.run_number() >= run_seq) for name, run_seq in since.items()]
    return table.where(reduce(or_, wrong)).select(C.SESSION_ID, C.RUN_ID)


def wrong_sql(table: DataFrame, rule: Rule, since: Since = NEVER) -> Column:
    """The columns that the configuration makes in SQL and that are not what the others of their row make."""
    types = {f.name: f.dataType for f in table.schema.fields}
    lacks, wrong = unfilled(rule, since), dict[str, Column]()
    for name, sql in ((a.name, a.sql) for a in rule.aggregates if a.sql is not None):
        value, fails = of_event(sql, table, f"aggregates.{name}.sql")
        differs = ~same_value(C.col(name), value.cast(types[name]), types[name], ADDED)
        told = differs if fails is None else fails | differs
        wrong[name] = F.when(lacks.get(name, F.lit(False)), F.lit(False)).otherwise(told)
    return _named(wrong)


def broken_rules(table: DataFrame, rule: Rule) -> dict[str, DataFrame]:
    """Rows that break what holds for every sessions table, by the rule that they break; needs no events."""
    ids = table.groupBy(C.SESSION_ID).agg(F.count(F.lit(1)).alias("rows")).where(F.col("rows") > 1)
    found = {rules.ONCE: ids}
    start, end = C.col(C.SESSION_START), C.col(C.SESSION_END)
    found[rules.IN_ORDER] = table.where((start > end) | (end >= C.col(C.EXPIRES_AT))).select(
        C.SESSION_ID, C.SESSION_START, C.SESSION_END
    )
    lasts = F.unix_micros(end) - F.unix_micros(start)
    date = local_date(F.unix_micros(start), rule)
    by_times = (C.col(C.DURATION_SECONDS) == lasts / F.lit(1e6)) & (C.col(C.SESSION_DATE) == date)
    found[rules.BY_TIMES] = table.where(~F.coalesce(by_times, F.lit(False))).select(C.SESSION_ID, C.SESSION_START)
    if not isinstance(rule.gap, DynamicGap):
        expires = F.try_add(F.unix_micros(end), F.lit(rule.gap))
        wrong = ~expires.eqNullSafe(F.unix_micros(C.col(C.EXPIRES_AT)))
        found[rules.EXPIRES] = table.where(wrong).select(C.SESSION_ID, C.SESSION_END, C.EXPIRES_AT)
    if rule.max_duration is not None:
        longer = table.where(lasts > rule.max_duration)
        found[rules.NOT_LONGER] = longer.select(C.SESSION_ID, C.DURATION_SECONDS)
    if rule.by_content:
        by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.SESSION_START, C.SESSION_END)
        overlaps = table.where(~C.col(C.IS_LATE)).withColumn("__overlaps", start < F.lag(end).over(by_time))
        found[rules.NO_OVERLAP] = overlaps.where("__overlaps").select(C.SESSION_ID, C.SESSION_START)
    elif rules.is_recomputed(rule):
        by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.SESSION_START, C.SESSION_ID)
        before = F.lag(C.col(C.EXPIRES_AT)).over(by_time)
        apart = ~reaches(before, start, rule)
        if rule.max_duration is not None:
            first = F.lag(start).over(by_time)
            apart = apart | (F.unix_micros(start) - F.unix_micros(first) > rule.max_duration)
        near = table.where(~C.col(C.IS_LATE)).withColumn("__apart", apart).where(~F.col("__apart"))
        found[rules.APART] = near.select(C.SESSION_ID, C.SESSION_START)
    if rule.watermark_per == "key":
        watermark, horizon = C.col(C.STATE)[C.STATE_WATERMARK], C.col(C.STATE)[C.STATE_FLUSH_MARK]
        reach = F.unix_micros(C.col(C.EXPIRES_AT))
        passed = (reach < horizon) | ((C.col(C.STATUS) == OPEN) & (watermark > reach))
        found[rules.BY_KEY] = table.where(passed).select(C.SESSION_ID)
    state = (C.col(C.IS_FINAL) & C.col(C.STATE).isNotNull()) | (C.col(C.EVENT_COUNT) < 1)
    found[rules.NO_STATE] = table.where(state).select(C.SESSION_ID)
    return found


def miscounted(table: DataFrame, events: DataFrame, rule: Rule) -> DataFrame:
    """Keys whose sessions hold another number of events than were accepted, and by how many."""
    key = C.cols(rule.key)
    each = events.select(*key, F.lit(-1).cast("bigint").alias(C.EVENT_COUNT))
    both = table.select(*key, C.col(C.EVENT_COUNT)).unionByName(each)
    return both.groupBy(*key).agg(F.sum(C.col(C.EVENT_COUNT)).alias("__too_many")).where(F.col("__too_many") != 0)


def _named(conditions: Mapping[str, Column]) -> Column:
    """The names of those that hold."""
    named = [F.when(holds, F.lit(name)) for name, holds in conditions.items()]
    return F.array_compact(F.array(*named)) if named else F.array().cast("array<string>")


def _by_clock(rule: Rule, *, flushed: bool) -> dict[str, Column]:
    """Which columns may differ, as the run's own clock or a flush may have ended the session that was found."""
    reason, status = F.col(FOUND)[C.END_REASON], F.col(FOUND)[C.STATUS]
    excused = {C.END_REASON: (reason == FLUSH) & (status != OPEN) & F.lit(flushed)}
    if rule.idle_after is not None and rule.idle_clock == "processing_time":  # idle, and cut, too
        idle = reason.isin(IDLE, MAX_DURATION, *REASONS) & (status == CLOSED) & (F.col(EXPECTED)[C.STATUS] == OPEN)
        excused = {C.STATUS: idle, C.END_REASON: excused[C.END_REASON] | idle}
    return {name: F.coalesce(condition, F.lit(False)) for name, condition in excused.items()}
