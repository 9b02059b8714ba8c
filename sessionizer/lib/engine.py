"""What Spark's public API does not tell, asked of the JVM where one is beside this process.

Elsewhere, over Spark Connect, the same is worked out by what is public. No other module of `lib` or `jobs` knows which.
What releases of Spark and Delta do differently is here, too: `with_flag`, `has_heaps`, `lacks_function`.
"""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from inspect import signature
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C

VALUE = "value"
_ALL_FIELDS = 2**31 - 1
_IDS = re.compile(r"#\d+L?|(?<=CommonExpressionId\()\d+")
_SUBQUERIES = re.compile(r"\b(?:scalar-subquery|exists|list|lateral-subquery|multi-subquery|functiontable)#\d+ \[")
_PRESENT = re.compile(r"\b(?:now|localtimestamp|current_\w+)\(")
# What no value makes fail: where an expression is of these alone, Spark may skip files by it.
_NEVER_FAILS = {
    *("AttributeReference", "Literal", "Alias", "GetStructField", "If", "CaseWhen", "Coalesce", "IsNull", "IsNotNull"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "InSet"),
    *("And", "Or", "Not", "StartsWith", "EndsWith", "Contains", "Lower", "Upper", "StringTrim", "Length"),
}
_EXPLAINED = re.compile(r"== Analyzed Logical Plan ==\n[^\n]*\n(.*?)\n\n?== ", re.DOTALL)


def is_remote(spark: SparkSession) -> bool:
    """Whether Spark runs elsewhere, behind Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def sees_this_disk(spark: SparkSession) -> bool:
    """Whether a path means the same to Spark as to this process: its server is named localhost, or it runs here.

    And has no other file system for paths without one, as HDFS is where Hadoop's settings name it.
    """
    if is_remote(spark):
        return is_this_machine(f"sc://{spark.client.host}")
    return str(spark._jsc.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")


def is_this_machine(url: str) -> bool:
    """Whether a server's URL says so."""
    return urlsplit(url).hostname == "localhost"


def with_flag(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the JVM's that takes a last flag, here False; in Spark 4.0 and Delta 4.0 it has none yet."""
    try:
        return function(*arguments, False)
    except Py4JJavaError:
        raise
    except Py4JError as error:
        if "does not exist" not in str(error):
            raise
        return function(*arguments)


def has_heaps() -> bool:
    """Whether `min_by` gives several values and holds no more than these, as from Spark 4.2 on."""
    return "k" in signature(F.min_by).parameters


def lacks_function(error: AnalysisException) -> bool:
    """Whether Spark does not know a function by this name: of KLL sketches there are not all before 4.1.2."""
    return error.getCondition() == "UNRESOLVED_ROUTINE"


@dataclass(frozen=True)
class Analysis:
    """What Spark makes of an expression over a frame.

    text: the expression as it is analysed. elsewhere: it reads other rows. present: it tells the time, or who asks.
    repeatable: it is the same whenever it is computed. reshapes: the rows below it are changed for it.
    """

    text: str
    elsewhere: bool
    present: bool
    repeatable: bool
    reshapes: Callable[[], bool]


def analysis(parsed: Column, frame: DataFrame) -> Analysis:
    """Of an expression that resolves against the frame."""
    return _by_text(parsed, frame) if is_remote(frame.sparkSession) else _by_tree(parsed, frame)


def attempt(parsed: Column, frame: DataFrame) -> Column | None:
    """The value as the only field of a struct, which is null in rows where it cannot be computed: `CAST('x' AS INT)`.

    None where it can be in every row, or where nothing public does the same: Spark elsewhere then stops at such a row.
    """
    if is_remote(frame.sparkSession):
        return None
    jvm: Any = frame.sparkSession._jvm
    catalyst, columns = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    _, tree = _analysed(parsed, frame)
    if _never_fails(tree, catalyst.Cast):
        return None
    inner = columns.expression(F.struct(parsed.alias(VALUE))._jc)
    return F.when(_always(frame, tree), Column(columns.column(catalyst.TryEval(inner))))


def _always(frame: DataFrame, tree: Any) -> Column:
    """True, which Spark cannot know beforehand: what stands behind it stays there.

    Else Spark would compute a part that two expressions share, or `nullif` and BETWEEN use twice, ahead of them.
    It seems to depend on a column of the frame, one that the expression reads anyway.
    """
    fields, names = [f for f in frame.schema.fields if f.nullable or _has_hash(f.dataType)], _names(tree)
    if not fields:
        return F.lit(True)
    field = max(fields, key=lambda f: (f.name in names, f.nullable))
    column = C.col(field.name)
    of_row = column.isNull().cast("int") if field.nullable else F.pmod(F.hash(column), F.lit(2))
    return F.get(F.array(F.lit(True), F.lit(True)), of_row)


def _has_hash(kind: T.DataType) -> bool:
    return isinstance(kind, T.AtomicType) and not isinstance(kind, T.VariantType)


def _names(tree: Any) -> list[str]:
    attributes = tree.references().toSeq()
    return [attributes.apply(n).name() for n in range(attributes.size())]


def _never_fails(tree: Any, cast: Any) -> bool:
    kind, below = tree.getClass().getSimpleName(), tree.children()
    is_safe = kind in _NEVER_FAILS or (kind == "Cast" and _has_room(below.apply(0).dataType(), tree.dataType(), cast))
    if kind == "Like":  # a pattern from a column may be none
        is_safe = below.apply(1).getClass().getSimpleName() == "Literal"
    return is_safe and all(_never_fails(below.apply(n), cast) for n in range(below.size()))


def _has_room(was: Any, now: Any, cast: Any) -> bool:
    """Whether the one type has all values of the other. Not all of a DATE, which there may be of the year 300000."""
    is_time = str(was.typeName()) == "date" and str(now.typeName()).startswith("timestamp")
    return bool(cast.canUpCast(was, now)) and not is_time


def plan_text(frame: DataFrame) -> str:
    """The analysed plan of a frame, with all its fields."""
    if not is_remote(frame.sparkSession):
        plan: Any = frame._jdf.queryExecution().analyzed()
        return str(with_flag(plan.treeString, True, False, _ALL_FIELDS, False))
    out = io.StringIO()
    with redirect_stdout(out):
        frame.explain(mode="extended")
    found = _EXPLAINED.search(out.getvalue())
    return found[1] if found else out.getvalue()


def release(frame: DataFrame) -> None:
    """Give back what a local checkpoint holds; a server does so when nobody refers to the frame any more."""
    if not is_remote(frame.sparkSession):
        frame._jdf.logicalPlan().rdd().unpersist(False)


def _analysed(parsed: Column, frame: DataFrame) -> tuple[Any, Any]:
    """The plan, and the expression in it."""
    plan: Any = frame.select(parsed)._jdf.queryExecution().analyzed()
    return plan, plan.expressions().head()


def _by_tree(parsed: Column, frame: DataFrame) -> Analysis:
    jvm: Any = frame.sparkSession._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    (plan, tree), whole = _analysed(parsed, frame), frame.select("*")
    return Analysis(
        text=str(tree),
        elsewhere=tree.containsPattern(pattern.PLAN_EXPRESSION()),
        present=tree.containsPattern(pattern.CURRENT_LIKE()),
        repeatable=tree.deterministic(),
        reshapes=lambda: not plan.child().equals(whole._jdf.queryExecution().analyzed().child()),
    )


def _by_text(parsed: Column, frame: DataFrame) -> Analysis:
    own, _, below = plan_text(frame.select(parsed)).partition("\n+- ")
    return Analysis(
        text=own,
        elsewhere=_SUBQUERIES.search(own) is not None,
        present=_PRESENT.search(own) is not None,
        repeatable=_joins(parsed, frame),
        reshapes=lambda: _without_ids(below) != _without_ids(plan_text(frame.select("*")).partition("\n+- ")[2]),
    )


def pads(parsed: Column, frame: DataFrame) -> list[str]:
    """The columns that are CHAR(n), where the expression would be another one if they were texts like others."""
    padded = [f.name for f in frame.schema.fields if str(f.metadata.get(C.LENGTH, "")).startswith("char(")]
    if not padded:
        return []
    plain = frame.withColumns({name: F.coalesce(C.col(name)) for name in padded})
    texts = [_without_ids(_as_computed(parsed, one)) for one in (frame, plain)]
    return padded if texts[0] != texts[1] else []


def _as_computed(parsed: Column, frame: DataFrame) -> str:
    """An expression with what functions such as `decode` stand for; over Connect as it is told."""
    if is_remote(frame.sparkSession):
        return analysis(parsed, frame).text
    rule = getattr(frame.sparkSession._jvm, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$")
    plan = getattr(rule, "MODULE$").apply(frame.select(parsed)._jdf.queryExecution().analyzed())
    return str(plan.toString()).partition("\n+- ")[0]


def _without_ids(plan: str) -> str:
    return _IDS.sub("#", plan)


def _joins(parsed: Column, frame: DataFrame) -> bool:
    """Whether Spark takes it as the condition of a join: only what is the same whenever it is computed."""
    try:
        frame.join(frame.sparkSession.range(1).select(F.col("id").alias("__id")), parsed.isNotNull()).schema  # noqa: B018
    except AnalysisException:
        return False
    return True
