"""What has become of each session, or window, between two versions of the table: the change feed, compacted."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.windows.windows import DELETE, INSERT, UPDATE

CHANGE = "change"
BEFORE_CHANGE = ("delete", "update_preimage")  # of `_change_type`: the row as it was


def net_changes(
    feed: DataFrame,
    columns: tuple[str, ...],
    identity: tuple[str, ...] = (C.SESSION_ID,),
    held: Sequence[int] = (),
) -> DataFrame:
    """One row per session, or what these columns tell apart, that is there and was not, is not the same, or is gone.

    In: `columns` of the table, `_change_type` and `_commit_version`, from the change feed of any stretch
    of versions. Rows that a RESTORE or a rebuild takes out and puts back as they were are no change.
    held: versions of it that a reader may have read in place of the one before it: what differs from any of these is
    told, too, `update` for what is there and `delete` for what is not, though others may have it so already.
    Out: `change` STRING (`insert`, `update`, `delete`) and `columns`; a deleted row is the row as it was last.
    """
    kept = feed.select(*C.cols(columns)).schema
    is_after = ~C.col(C.CHANGE_TYPE).isin(*BEFORE_CHANGE)
    content = F.sha2(canonical_json(kept), 256)  # maps cannot be compared as they are
    image = F.struct(is_after.alias("is_there"), content.alias("content"), F.struct(*C.cols(columns)).alias("row"))

    def of_held(images: Column, value: Column) -> Column:
        return F.collect_set(F.when(images & C.col(C.COMMIT_VERSION).isin(*held), value))

    without = F.array_except(of_held(~is_after, C.col(C.COMMIT_VERSION)), of_held(is_after, C.col(C.COMMIT_VERSION)))
    moment = F.struct(C.col(C.COMMIT_VERSION), is_after)  # within a version, what was comes before what is
    ends = feed.groupBy(*C.cols(identity)).agg(
        F.min_by(image, moment).alias("__first"),
        F.max_by(image, moment).alias("__last"),
        of_held(is_after, content).alias("__held"),
        (F.size(without) > 0).alias("__was_gone"),
    )
    was_there, is_there = ~F.col("__first.is_there"), F.col("__last.is_there")
    others = F.array_except(F.array_append("__held", F.col("__first.content")), F.array(F.col("__last.content")))
    change = (
        F.when(is_there & ~was_there, INSERT)
        .when(~is_there & (was_there | (F.size("__held") > 0)), DELETE)
        .when(is_there & (F.col("__was_gone") | (F.size(others) > 0)), UPDATE)
    )
    changed = ends.select(change.alias(CHANGE), F.col("__last.row").alias("__row")).where(F.col(CHANGE).isNotNull())
    return changed.select(CHANGE, *[F.col("__row")[name].alias(name) for name in columns])
