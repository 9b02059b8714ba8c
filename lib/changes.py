"""Changes: what a run writes, as inserts, updates and deletes of session rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C

INSERT, UPDATE, DELETE = "insert", "update", "delete"


def changes(settled: DataFrame) -> DataFrame:
    """The rows that differ from what the table holds, each with what to do to it.

    In: what `lifecycle.settle` returns.
    Out: the same columns and `__change` STRING: `insert`, `update` (the id is in the table) or `delete` (a
    tombstone: of its columns only `session_id` means anything; never the id of a row that stays).
    All come from one explode over the sessions, which are evaluated once.
    """
    if C.ABSORBED not in settled.columns:
        return settled.withColumn(C.CHANGE, F.lit(INSERT))
    before = F.get(C.col(C.ABSORBED), 0)
    differs = (
        (C.col(C.FRESH) > 0)
        | ~before[C.STATUS].eqNullSafe(C.col(C.STATUS))
        | ~before[C.END_REASON].eqNullSafe(C.col(C.END_REASON))
    )
    absorbed = C.col(C.ABSORBED)[C.SESSION_ID]
    own = C.col(C.SESSION_ID)
    upsert = _action(own, F.when(F.array_contains(absorbed, own), UPDATE).otherwise(INSERT))
    tombstones = F.transform(F.filter(absorbed, lambda i: i != own), lambda i: _action(i, F.lit(DELETE)))
    exploded = settled.where(differs).withColumn("__action", F.explode(F.concat(F.array(upsert), tombstones)))
    return (
        exploded.withColumn(C.SESSION_ID, C.col("__action")["id"])
        .withColumn(C.CHANGE, C.col("__action")["change"])
        .drop("__action")
    )


def _action(session: Column, change: Column) -> Column:
    return F.struct(session.alias("id"), change.alias("change"))


def counts(frame: DataFrame) -> dict[str, Column]:
    """Aggregate columns that count what `changes` returns, for one `observe` over it."""
    upserted = C.col(C.CHANGE) != DELETE
    if C.ABSORBED in frame.columns:
        absorbed, before = F.size(C.col(C.ABSORBED)), F.get(C.col(C.ABSORBED), 0)[C.STATUS]
        fresh = C.col(C.FRESH) > 0
    else:
        absorbed, before, fresh = F.lit(0), F.lit(None).cast("string"), F.lit(True)

    def turned(status: str) -> Column:
        return F.count_if(upserted & (C.col(C.STATUS) == status) & ~before.eqNullSafe(F.lit(status)))

    return {
        "rows": F.count(F.lit(1)),
        "updated": F.count_if(C.col(C.CHANGE) == UPDATE),
        "created": F.count_if(upserted & (absorbed == 0)),
        "extended": F.count_if(upserted & (absorbed == 1) & fresh),
        "merged": F.count_if(upserted & (absorbed > 1)),
        "closed": turned("closed"),
        "finalised": turned("final"),
        "deleted": F.count_if(C.col(C.CHANGE) == DELETE),
        "live_change": F.sum(
            F.when((C.col(C.CHANGE) == INSERT) & ~C.col(C.IS_FINAL), 1)
            .when((C.col(C.CHANGE) == DELETE) | ((C.col(C.CHANGE) == UPDATE) & C.col(C.IS_FINAL)), -1)
            .otherwise(0)
        ),
    }
