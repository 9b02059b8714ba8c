"""What has become of each session, or window, between two versions of the table: the change feed, compacted."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.windows.windows import DELETE, INSERT, UPDATE

CHANGE = "change"
BEFORE_CHANGE = ("delete", "update_preimage")  # of `_change_type`: the row as it was


def net_changes(feed: DataFrame, columns: tuple[str, ...], identity: tuple[str, ...] = (C.SESSION_ID,)) -> DataFrame:
    """One row per session, or what these columns tell apart, that is there and was not, is not the same, or is gone.

    In: `columns` of the table, `_change_type` and `_commit_version`, from the change feed of any stretch
    of versions. Rows that a RESTORE or a rebuild takes out and puts back as they were are no change.
    Out: `change` STRING (`insert`, `update`, `delete`) and `columns`; a deleted row is the row as it was last.
    """
    kept = feed.select(*C.cols(columns)).schema
    is_after = ~C.col(C.CHANGE_TYPE).isin(*BEFORE_CHANGE)
    image = F.struct(
        is_after.alias("is_there"),
        F.sha2(canonical_json(kept), 256).alias("content"),  # maps cannot be compared as they are
        F.struct(*C.cols(columns)).alias("row"),
    )
    moment = F.struct(C.col(C.COMMIT_VERSION), is_after)  # within a version, what was comes before what is
    ends = feed.groupBy(*C.cols(identity)).agg(
        F.min_by(image, moment).alias("__first"), F.max_by(image, moment).alias("__last")
    )
    was_there, is_there = ~F.col("__first.is_there"), F.col("__last.is_there")
    change = (
        F.when(is_there & ~was_there, INSERT)
        .when(was_there & ~is_there, DELETE)
        .when(was_there & is_there & (F.col("__first.content") != F.col("__last.content")), UPDATE)
    )
    changed = ends.select(change.alias(CHANGE), F.col("__last.row").alias("__row")).where(F.col(CHANGE).isNotNull())
    return changed.select(CHANGE, *[F.col("__row")[name].alias(name) for name in columns])
