"""Which releases of Spark and Delta the product works with, and which of them go together.

`make test-versions` runs it by the oldest and the newest pair; what they do differently: `with_flag`
(`sessionizer/lib/engine.py`) and `arrow_schema` (`sessionizer/tables/delta/settings.py`).
"""

import re
from importlib import metadata

from sessionizer.lib.errors import VersionMismatch

Numbers = tuple[int, ...]
FIRST_SPARK: Numbers = (4, 0, 1)
# Each Delta is made for some lines of Spark: the first Delta for each, and the last that is known.
FIRST_DELTA: dict[Numbers, Numbers] = {(4, 0): (4, 0, 1), (4, 1): (4, 1, 0), (4, 2): (4, 4, 0)}
LAST_DELTA: Numbers = (4, 4)
NEWEST = "pip install pyspark==4.2.0 delta-spark==4.4.0"


def check_installed() -> None:
    """Raise a VersionMismatch unless the Spark and the Delta of this environment are known to work together."""
    import pyspark  # noqa: PLC0415  (that of spark-submit is no package)

    check_pair(pyspark.__version__, _version("delta-spark"))


def check_pair(spark: str, delta: str | None) -> None:
    """The same of these releases; delta: None where a platform has its own, which tells none."""
    line, made = _numbers(spark)[:2], _numbers(delta or "")
    if line not in FIRST_DELTA or _numbers(spark) < FIRST_SPARK:
        lines = " to ".join(_text(known) for known in (FIRST_SPARK, max(FIRST_DELTA)))
        raise VersionMismatch(f"PySpark must be {lines}", value=spark, remedy=NEWEST)
    if made and not (FIRST_DELTA[line] <= made and made[:2] <= LAST_DELTA):
        raise VersionMismatch(
            "this Delta does not go with this Spark",
            value=f"delta-spark {delta} with pyspark {spark}",
            remedy=f"Spark {_text(line)} needs Delta {_text(FIRST_DELTA[line])} to {_text(LAST_DELTA)}; or take the "
            f"newest of both: {NEWEST}",
        )


def delta_package(spark: str, delta: str) -> str:
    """Delta's jar as Maven names it; from Delta 4.1 on there is one for each line of Spark."""
    line = "" if _numbers(delta) < (4, 1) else f"_{_text(_numbers(spark)[:2])}"
    return f"io.delta:delta-spark{line}_2.13:{delta}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(release: str) -> Numbers:
    """The first three of `4.2.0.dev1`."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


def _text(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))
