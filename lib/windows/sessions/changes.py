"""Changes: what a run writes, as inserts, updates and deletes of session rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C

INSERT, UPDATE, DELETE = "insert", "update", "delete"
# About each change, for counting and for the commit: rows absorbed, status before, new events, the old row's place.
ABOUT = (C.ABSORBED_ROWS, C.STATUS_BEFORE, C.FRESH, C.WAS_FINAL, C.OLD_START, C.INTO)


def changes(settled: DataFrame, *, each_watermark: bool = False) -> DataFrame:
    """The rows that differ from what the table holds, each with what to do to it.

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
    own = C.col(C.SESSION_ID)
    tombstones = F.transform(
        F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] != own), lambda row: _action(row, F.lit(DELETE))
    )
    exploded = settled.where(differs).withColumn("__action", F.explode(F.concat(F.array(_upsert(own)), tombstones)))
    action = C.col("__action")
    return exploded.withColumns(
        {
            C.SESSION_ID: action["id"],
            C.CHANGE: action["change"],
            C.WAS_FINAL: action["was_final"],
            C.OLD_START: action["old_start"],
            C.INTO: F.when(action["change"] == DELETE, own),
            C.ABSORBED_ROWS: F.size(C.col(C.ABSORBED)),
            C.STATUS_BEFORE: before[C.STATUS],
        }
    ).drop("__action")


def replacements(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """The same for islands that were recomputed: their rows that differ, and tombstones for ids that are gone.

    In: what `rederive.redone` returns.
    """
    same = F.get(F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] == C.col(C.SESSION_ID)), F.lit(0))
    upserts = rows.withColumns(
        {
            C.CHANGE: F.when(same.isNotNull(), UPDATE).otherwise(INSERT),
            C.WAS_FINAL: same[C.IS_FINAL],
            C.OLD_START: same[C.START],
            C.ABSORBED_ROWS: F.size(C.col(C.ABSORBED)),
            C.STATUS_BEFORE: same[C.STATUS],
            C.FRESH: F.lit(1).cast("bigint"),
        }
    )
    tombstones = gone.withColumn(C.CHANGE, F.lit(DELETE))
    return upserts.unionByName(tombstones, allowMissingColumns=True)


def additions(settled: DataFrame) -> DataFrame:
    """The same for rows that no other row has anything to do with."""
    return _new(settled)


def counts(frame: DataFrame) -> dict[str, Column]:
    """Aggregate columns that count what `changes` returns, for one `observe` over it."""
    upserted = C.col(C.CHANGE) != DELETE
    absorbed, before, fresh = C.col(C.ABSORBED_ROWS), C.col(C.STATUS_BEFORE), C.col(C.FRESH) > 0
    was_live = C.col(C.WAS_FINAL) == F.lit(False)

    def turned(status: str) -> Column:
        return F.count_if(upserted & (C.col(C.STATUS) == status) & ~before.eqNullSafe(F.lit(status)))

    return {
        "rows": F.count(F.lit(1)),
        "updated": F.count_if(C.col(C.CHANGE) == UPDATE),
        "created": F.count_if(upserted & (absorbed == 0)),
        "extended": F.count_if(upserted & (absorbed == 1) & fresh & (C.col(C.CHANGE) == UPDATE))
        + F.count_if(upserted & (absorbed == 1) & fresh & (C.col(C.CHANGE) == INSERT) & C.col(C.RANGE).isNull()),
        "split": F.count_if((absorbed == 1) & (C.col(C.CHANGE) == INSERT) & C.col(C.RANGE).isNotNull()),
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


def apply(table: DataFrame | None, changed: DataFrame) -> DataFrame:
    """The sessions table after the changes of a run: for whoever keeps it as a frame.

    In: rows of the table, or None where there are none; `Outcome.changes`. Out: rows of the table.
    """
    columns = [n for n in changed.columns if not n.startswith("__")]
    written = changed.where(C.col(C.CHANGE) != DELETE).select(*C.cols(tuple(columns)))
    if table is None:
        return written
    ids = changed.select(C.col(C.SESSION_ID).alias("__id"))
    kept = table.join(ids, C.col(C.SESSION_ID) == C.col("__id"), "left_anti")
    return kept.select(*C.cols(tuple(columns))).unionByName(written)


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


def _upsert(own: Column) -> Column:
    row = F.get(F.filter(C.col(C.ABSORBED), lambda row: row[C.SESSION_ID] == own), F.lit(0))
    change = F.when(row.isNotNull(), UPDATE).otherwise(INSERT)
    return F.struct(
        own.alias("id"), change.alias("change"), row[C.IS_FINAL].alias("was_final"), row[C.START].alias("old_start")
    )


def _action(row: Column, change: Column) -> Column:
    return F.struct(
        row[C.SESSION_ID].alias("id"),
        change.alias("change"),
        row[C.IS_FINAL].alias("was_final"),
        row[C.START].alias("old_start"),
    )
