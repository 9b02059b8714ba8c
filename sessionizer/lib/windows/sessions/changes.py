"""Changes: what a run writes, as inserts, updates and deletes of session rows."""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.evolution import told_by
from sessionizer.lib.compare import same_row
from sessionizer.lib.windows.sessions.recompute import old_rows
from sessionizer.lib.windows.windows import DELETE, INSERT, UPDATE

# About each change, for counting and for the commit: rows absorbed, status before, new events, the old row's place.
ABOUT = {
    C.ABSORBED_ROWS: "int",
    C.STATUS_BEFORE: "string",
    C.FRESH: "bigint",
    C.WAS_FINAL: "boolean",
    C.OLD_START: "bigint",
    C.INTO: "string",
    C.RANGE: "bigint",
    C.IS_PART: "boolean",
    C.BUCKETS: "array<bigint>",
}
HOW = (C.RUN_ID, C.SUPERSEDES)  # say how a row came about, not what it is
WAS = "__was"  # of the row of this id: whether it is final, its start and status


def merged_changes(settled: DataFrame, *, each_watermark: bool = False) -> DataFrame:
    """The merged rows that differ from what the table holds, each with what to do to it.

    In: what `lifecycle.settle` returns. each_watermark: rows hold the watermark of their key.
    Out: the same columns, `__change` STRING: `insert`, `update` (the id is in the table) or `delete` (a tombstone: of
    its columns only `session_id` means anything; never the id of a row that stays), and those of `ABOUT`.
    All come from one explode over the sessions, which are evaluated once.
    """
    if C.ABSORBED not in settled.columns:
        return _new(settled)
    before = F.get(C.col(C.ABSORBED), F.lit(0))
    differs = (
        (C.col(C.FRESH) > 0)
        | ~before[C.STATUS].eqNullSafe(C.col(C.STATUS))
        | ~before[C.END_REASON].eqNullSafe(C.col(C.END_REASON))
    )
    if each_watermark:
        moved = C.col(C.STATE)[C.STATE_WATERMARK], C.col(C.STATE)[C.STATE_FLUSH_MARK]
        differs = differs | ~before[C.W].eqNullSafe(moved[0]) | ~before[C.MARK].eqNullSafe(moved[1])
        if C.STATE_LAST_ARRIVAL in settled.schema[C.STATE].dataType.names:  # type: ignore[attr-defined]
            differs = differs | ~before[C.LAST_ARRIVAL].eqNullSafe(C.col(C.STATE)[C.STATE_LAST_ARRIVAL])
    own = C.col(C.SESSION_ID)
    tombstones = F.transform(
        F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] != own), lambda row: _action(row, F.lit(DELETE))
    )
    same = F.get(F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] == own), F.lit(0))
    upsert = _action(same, F.when(same.isNotNull(), UPDATE).otherwise(INSERT), own)
    exploded = settled.where(differs).withColumn("__action", F.explode(F.concat(F.array(upsert), tombstones)))
    action = C.col("__action")
    return exploded.withColumns(
        {
            C.SESSION_ID: action["id"],
            C.CHANGE: action["change"],
            C.WAS_FINAL: action["was_final"],
            C.OLD_START: action["old_start"],
            C.INTO: F.when(action["change"] == DELETE, own),
            C.ABSORBED_ROWS: F.size(C.col(C.ABSORBED)),
            C.STATUS_BEFORE: _first(C.col(C.ABSORBED))[C.STATUS],
        }
    ).drop("__action")


def recomputed_changes(
    rows: DataFrame, ranges: DataFrame, table: DataFrame | None, names: tuple[str, ...], within: dict[str, float]
) -> DataFrame:
    """The same for recomputed sessions: those that differ from the table in any column, and tombstones.

    In: settled rows, which are held, as they are read several times; the ranges that they lie in. table: the rows of
    the table that may have their ids; None: all rows differ. names: the columns that are compared. within: how far
    apart results may be.
    """
    same = F.get(F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] == C.col(C.SESSION_ID)), F.lit(0))
    rows = rows.withColumn(C.IS_PART, _is_part())
    whole = F.when(~F.coalesce(C.col(C.IS_PART), F.lit(False)), _first(C.col(C.ABSORBED))[C.STATUS])
    was = F.struct(*[same[name].alias(name) for name in (C.IS_FINAL, C.START, C.STATUS)])
    told = rows.withColumn(WAS, F.when(same.isNotNull(), was))
    if table is not None:
        told = _differing(told, table, names, within)
    upserts = told.withColumns(
        {
            C.CHANGE: F.when(C.col(WAS).isNotNull(), UPDATE).otherwise(INSERT),
            C.WAS_FINAL: C.col(WAS)[C.IS_FINAL],
            C.OLD_START: C.col(WAS)[C.START],
            C.ABSORBED_ROWS: F.greatest(F.size(C.col(C.ABSORBED)), C.col(WAS).isNotNull().cast("int")),
            C.STATUS_BEFORE: F.coalesce(C.col(WAS)[C.STATUS], whole),
            C.FRESH: F.lit(1).cast("bigint"),
        }
    ).drop(WAS)
    old = old_rows(ranges).select(
        F.col("row")[C.SESSION_ID].alias("__id"),
        F.col("row")[C.IS_FINAL].alias(C.WAS_FINAL),
        F.col("row")[C.START].alias(C.OLD_START),
    )
    gone = old.join(rows.select(C.col(C.SESSION_ID)), F.col("__id") == C.col(C.SESSION_ID), "left_anti")
    tombstones = gone.withColumnRenamed("__id", C.SESSION_ID).withColumn(C.CHANGE, F.lit(DELETE))
    return upserts.unionByName(tombstones, allowMissingColumns=True)


def without_others(rows: DataFrame, ranges: DataFrame, table: DataFrame) -> DataFrame:
    """Recomputed sessions but those of the table that are not of the ranges: they are as they were.

    By gaps of their own sessions end before what begins ahead of them, and lie amid what still lives.
    """
    own = old_rows(ranges).select(F.col("row")[C.SESSION_ID].alias("__id"))
    others = table.select(C.col(C.SESSION_ID).alias("__id")).join(own, "__id", "left_anti")
    return rows.join(others, C.col(C.SESSION_ID) == F.col("__id"), "left_anti")


def told(changed: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Changes with just these columns of the table, `__change` and those of `ABOUT`."""
    about = [C.col(n) if n in changed.columns else F.lit(None).cast(kind).alias(n) for n, kind in ABOUT.items()]
    return changed.select(*C.cols((*columns, C.CHANGE)), *about)


def counts() -> dict[str, Column]:
    """Aggregate columns that count changes, for one `observe` over them."""
    upserted = C.col(C.CHANGE) != DELETE
    absorbed, before, fresh = C.col(C.ABSORBED_ROWS), C.col(C.STATUS_BEFORE), C.col(C.FRESH) > 0
    was_live = C.col(C.WAS_FINAL) == F.lit(False)
    is_split = F.coalesce(C.col(C.IS_PART) & (C.col(C.CHANGE) == INSERT), F.lit(False))

    def turned(status: str) -> Column:
        return F.count_if(upserted & (C.col(C.STATUS) == status) & ~before.eqNullSafe(F.lit(status)))

    return {
        "rows": F.count(F.lit(1)),
        "updated": F.count_if(C.col(C.CHANGE) == UPDATE),
        "created": F.count_if(upserted & (absorbed == 0)),
        "extended": F.count_if(upserted & (absorbed == 1) & fresh & ~is_split),
        "split": F.count_if(is_split),
        "merged": F.count_if(upserted & (absorbed > 1)),
        "closed": turned("closed"),
        "finalised": turned("final"),
        "deleted": F.count_if(C.col(C.CHANGE) == DELETE),
        "moved": F.count_if((C.col(C.CHANGE) == DELETE) | C.col(C.RANGE).isNotNull()),
        "touched_final": F.count_if(C.col(C.WAS_FINAL)),
        "live_change": F.sum(
            F.when(upserted & ~C.col(C.IS_FINAL), 1).otherwise(0)
            - F.when((C.col(C.CHANGE) != INSERT) & was_live, 1).otherwise(0)
        ),
    }


def _differing(rows: DataFrame, table: DataFrame, names: tuple[str, ...], within: dict[str, float]) -> DataFrame:
    """The rows that the table has not, or not so. The few that have these ids are picked out first.

    The table is told by the columns of the rows: as aggregates come and go it may have others, or parts in other order.
    What it has of aggregates that are no more may be of other events: such a row is written anew, without it. A row of
    the id that lies elsewhere, as it was changed by hand, is the one that was (`WAS`), too.
    """
    compared = T.StructType([f for f in rows.schema.fields if f.name in names])
    was = {name: f"__was_{name}" for name in compared.names}
    left = [n for n in table.columns if n.lower() not in {other.lower() for other in (*rows.columns, *HOW, C.STATE)}]
    has_left = reduce(or_, [C.col(name).isNotNull() for name in left], F.lit(False)).alias("__has_left")
    told = told_by(table.select("*", has_left), T.StructType([*compared, T.StructField("__has_left", T.BooleanType())]))
    before = told.select(*[C.col(name).alias(alias) for name, alias in was.items()], "__has_left")
    same_id = C.col(C.SESSION_ID) == C.col(was[C.SESSION_ID])
    before = before.join(F.broadcast(rows.select(C.col(C.SESSION_ID))), same_id, "left_semi")
    met = rows.join(before, same_id, "left")
    types = {f.name: f.dataType for f in compared.fields}
    then = {name: C.col(was[name]) for name in types}
    same = same_row({name: C.col(name) for name in types}, then, types, within, C.col(C.EVENT_COUNT))
    there = C.col(was[C.SESSION_ID]).isNotNull()
    start = F.unix_micros(then[C.SESSION_START]).alias(C.START)
    found = F.struct(then[C.IS_FINAL].alias(C.IS_FINAL), start, then[C.STATUS].alias(C.STATUS))
    met = met.withColumn(WAS, F.coalesce(C.col(WAS), F.when(there, found))).where(~there | ~same | F.col("__has_left"))
    return met.drop(*was.values(), "__has_left")


def _first(rows: Column) -> Column:
    """Of the rows that a session took over the one that began first: whose id it has, if it begins as before."""
    names = (C.START, C.SESSION_ID, C.STATUS)
    return F.array_min(F.transform(rows, lambda row: F.struct(*[row[name].alias(name) for name in names])))


def _is_part() -> Column:
    """Whether a recomputed session is one of several that one row of the table has become."""
    absorbed = C.col(C.ABSORBED)
    same = Window.partitionBy(C.col(C.RANGE), F.get(absorbed, F.lit(0))[C.SESSION_ID])
    return (F.size(absorbed) == 1) & (F.count_if(F.size(absorbed) == 1).over(same) > 1)


def _new(settled: DataFrame) -> DataFrame:
    return settled.withColumns(
        {
            C.CHANGE: F.lit(INSERT),
            C.WAS_FINAL: F.lit(None).cast("boolean"),
            C.OLD_START: F.lit(None).cast("bigint"),
            C.ABSORBED_ROWS: F.lit(0),
            C.STATUS_BEFORE: F.lit(None).cast("string"),
            C.FRESH: F.lit(1).cast("bigint"),
        }
    )


def _action(row: Column, change: Column, own_id: Column | None = None) -> Column:
    return F.struct(
        (row[C.SESSION_ID] if own_id is None else own_id).alias("id"),
        change.alias("change"),
        row[C.IS_FINAL].alias("was_final"),
        row[C.START].alias("old_start"),
    )
