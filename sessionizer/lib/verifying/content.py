"""Which events begin a session where their content may, in `verify`'s own way: one walk over each chain of events."""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.bags import hashed
from sessionizer.lib.expressions import of_event
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.verifying.facts import Fact

# `__why` a session began within the reach of the one before it; of several the first counts.
ENDS_WHEN, MAX_EVENTS, STARTS_WHEN, MIDNIGHT = "ends_when", "max_events", "starts_when", "midnight"
CHANGES_OF, MAX_DURATION = "changes_of", "max_duration"
REASONS = (ENDS_WHEN, MAX_EVENTS, STARTS_WHEN, MIDNIGHT, CHANGES_OF)  # rows remember which, from 1 on
CUT = f"{C.STATE}.{C.STATE_BOUNDARIES}.cut"
ENDED = "__ended"
DAY = 86_400_000_000


def local_date(us: Column, rule: Rule) -> Column:
    """The date in the rule's zone, of times at either end of what a TIMESTAMP holds, too: no zone is a day away."""
    edge = 2**63 - 1 - DAY
    told = F.timestamp_micros(F.greatest(F.least(us, F.lit(edge)), F.lit(-edge)))
    return F.from_utc_timestamp(F.timestamp_micros(us) if rule.time_zone == "UTC" else told, rule.time_zone).cast(
        "date"
    )


def walked(chains: DataFrame, rule: Rule, apart: tuple[str, ...]) -> DataFrame:
    """Events of chains, each with `__start`, `__ahead` and `__why` of the session that it is in.

    In: events with `__reach`, and as `__start` the first time of the chain that they are in: of events that their gaps
    alone would put into one session. apart: what keeps events apart, besides.
    """
    chain, number = (*apart, "__chain"), F.row_number()
    told = hashed(chains.withColumnRenamed(C.START, "__chain"))
    in_order = Window.partitionBy(*C.cols(chain)).orderBy(C.US, *C.cols(rule.order_by), C.JSON)
    numbered = told.withColumn(C.SEQ, number.over(in_order)).drop(C.HASH, C.JSON)
    first_of_time = F.min(C.col(C.SEQ)).over(Window.partitionBy(*C.cols((*chain, C.US))))
    numbered = numbered.withColumn(C.AHEAD, C.col(C.SEQ) - first_of_time)
    about = {C.SEQ: C.col(C.SEQ), C.US: C.col(C.US), C.REACH: C.col(C.REACH), **_asked(rule, chains)}
    event = F.struct(*[column.alias(name) for name, column in about.items()])
    kinds = numbered.select(*[column.alias(name) for name, column in about.items()]).schema
    values = [f.name for f in kinds.fields if f.name.startswith("v")]
    nothing = {name: kinds[name].dataType for name in values}
    begin = F.struct(
        *[F.lit(None).cast("bigint").alias(name) for name in ("start", "reach", "count")],
        F.lit(False).alias(ENDED),
        F.lit(None).cast("date").alias("day"),
        *[F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()],
        F.array().cast(f"array<struct<{C.SEQ}:int,why:string>>").alias("begun"),
    )
    walk = F.aggregate(
        F.sort_array(F.collect_list(event)), begin, lambda at, one: _step(at, one, rule, values), lambda at: at["begun"]
    )
    begun = (
        numbered.groupBy(*C.cols(chain))
        .agg(walk.alias("__begun"))
        .select(*C.cols(chain), F.explode("__begun").alias("__one"))
    )
    begins = begun.select(*C.cols(chain), F.col("__one")[C.SEQ].alias(C.SEQ), F.col("__one").alias("__begun_here"))
    met = joined(numbered, begins, (*chain, C.SEQ), "left")
    first = F.struct(C.col(C.US), C.col(C.AHEAD), F.col("__begun_here")["why"].alias("why"))
    up_to_here = Window.partitionBy(*C.cols(chain)).orderBy(C.SEQ).rowsBetween(Window.unboundedPreceding, 0)
    own = F.last(F.when(F.col("__begun_here").isNotNull(), first), ignorenulls=True).over(up_to_here)
    placed = met.withColumn("__own", own).withColumns(
        {C.START: F.col("__own")[C.US], C.AHEAD: F.col("__own")[C.AHEAD], C.WHY: F.col("__own")["why"]}
    )
    return placed.drop("__own", "__begun_here", "__chain", C.SEQ)


def with_reason(sessions: DataFrame, rule: Rule, apart: tuple[str, ...]) -> DataFrame:
    """Sessions with `__ended` STRING, what has ended them but for time; and what live rows remember of that."""
    following = Window.partitionBy(*C.cols(apart)).orderBy(C.START, C.AHEAD)
    start, why = (F.lead(C.col(name)).over(following) for name in (C.START, C.WHY))
    reached = start <= C.col(C.REACH) if rule.gap_boundary == "joins" else start < C.col(C.REACH)
    cut = F.when(reached, why)
    own = [F.when(F.col("__ends") > 0, ENDS_WHEN)] if rule.ends_when is not None else []
    own += [F.when(C.col(C.EVENT_COUNT) == rule.max_events, MAX_EVENTS)] if rule.max_events is not None else []
    told = F.coalesce(*own, F.when(cut.isin(STARTS_WHEN, MIDNIGHT, CHANGES_OF), cut))
    number = F.array_position(F.array(*map(F.lit, (*REASONS, MAX_DURATION))), cut).cast("int")
    return sessions.withColumns({ENDED: told, CUT: number})


def content_facts(rule: Rule, events: DataFrame) -> list[Fact]:
    """What live rows remember of content. events: for the columns of the source."""
    if not rule.by_content:
        return []
    us, asked, state = C.col(C.US), _asked(rule, events), C.col(C.STATE)[C.STATE_BOUNDARIES]
    parts: dict[str, Column] = {}
    if rule.starts_when is not None:
        starts = asked["starts"]
        parts |= {"starts": F.count_if(starts), "first_other": F.min(F.when(~starts, us))}
    if rule.ends_when is not None:
        ends = asked["ends"]
        parts |= {"ends": F.count_if(ends), "last_other": F.max(F.when(~ends, us))}
    if rule.cut_at is not None:
        day = F.unix_date(asked["day"])
        parts |= {"least_day": F.min(day), "most_day": F.max(day)}
    for i, _ in enumerate(rule.changes_of):
        parts |= {f"least{i}": F.min(asked[f"v{i}"]), f"most{i}": F.max(asked[f"v{i}"])}
    name = f"{C.STATE}.{C.STATE_BOUNDARIES}"
    found = [Fact(f"{name}.{part}", state[part], column) for part, column in parts.items()]
    return [*found, Fact(CUT, state["cut"], F.max(F.lit(None).cast("int")))]


def ends_of(rule: Rule, events: DataFrame) -> list[Column]:
    """How many events of a session are to be its last one, as `__ends`."""
    return [] if rule.ends_when is None else [F.count_if(_asked(rule, events)["ends"]).alias("__ends")]


def _asked(rule: Rule, events: DataFrame) -> dict[str, Column]:
    def holds(text: str, field: str) -> Column:
        return F.coalesce(of_event(text, events, field)[0], F.lit(False))

    found = {}
    if rule.starts_when is not None:
        found["starts"] = holds(rule.starts_when, "session.starts_when")
    if rule.ends_when is not None:
        found["ends"] = holds(rule.ends_when, "session.ends_when")
    if rule.cut_at is not None:
        found["day"] = local_date(C.col(C.US), rule)
    named = [of_event(text, events, "session.changes_of")[0] for text in rule.changes_of]
    return found | {f"v{i}": value for i, value in enumerate(named)}


def _step(at: Column, event: Column, rule: Rule, values: list[str]) -> Column:
    """at: of the session so far. The first reason that holds begins a new one."""
    us, reach = event[C.US], at["reach"]
    reasons = [("gap", us > reach if rule.gap_boundary == "joins" else us >= reach)]
    if rule.ends_when is not None:
        reasons.append((ENDS_WHEN, at[ENDED]))
    if rule.max_events is not None:
        reasons.append((MAX_EVENTS, at["count"] == rule.max_events))
    if rule.starts_when is not None:
        reasons.append((STARTS_WHEN, event["starts"]))
    if rule.cut_at is not None:
        reasons.append((MIDNIGHT, event["day"] != at["day"]))
    if values:
        reasons.append((CHANGES_OF, reduce(or_, [F.coalesce(event[v] != at[v], F.lit(False)) for v in values])))
    if rule.max_duration is not None:
        reasons.append((MAX_DURATION, us - at["start"] > rule.max_duration))
    why = F.coalesce(*[F.when(holds, name) for name, holds in reasons])
    begins = at["start"].isNull() | why.isNotNull()
    begun = F.struct(
        event[C.SEQ].alias(C.SEQ), F.when(at["start"].isNotNull(), F.nullif(why, F.lit("gap"))).alias("why")
    )
    return F.struct(
        F.when(begins, us).otherwise(at["start"]).alias("start"),
        F.when(begins, event[C.REACH]).otherwise(F.greatest(reach, event[C.REACH])).alias("reach"),
        F.when(begins, F.lit(1).cast("bigint")).otherwise(at["count"] + 1).alias("count"),
        (event["ends"] if rule.ends_when is not None else F.lit(False)).alias(ENDED),
        (event["day"] if rule.cut_at is not None else F.lit(None).cast("date")).alias("day"),
        *[F.when(begins, event[v]).otherwise(F.coalesce(event[v], at[v])).alias(v) for v in values],
        F.when(begins, F.concat(at["begun"], F.array(begun))).otherwise(at["begun"]).alias("begun"),
    )
