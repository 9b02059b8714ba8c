"""The mean of decimals with all its digits: Spark's division has a type of its own, which cuts or rounds them first."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

LIMB, LIMBS, DIGITS = 13, 3, 38  # a decimal has at most 38 digits, and 39 are three times 13
SURE = 12  # up to so many digits of a value the quotient has twelve more than the mean, and its rounding is no other


def mean_type(of: T.DecimalType) -> T.DecimalType:
    """What Spark's `avg` gives for decimals of this type: four digits more."""
    return T.DecimalType(min(of.precision + 4, DIGITS), min(of.scale + 4, DIGITS))


def mean(total: Column, count: Column, of: T.DecimalType) -> Column:
    """A sum of so many decimals divided by their number, rounded once, half up; null where there are none.

    Long division by limbs of thirteen digits, each step of which is exact.
    """
    kind = mean_type(of)
    if of.precision <= SURE:
        return F.try_divide(total, count).try_cast(kind)
    plain = F.regexp_replace(F.format_number(total, of.scale), "[-.,]", "")  # `abs` would keep 34 digits
    padded = F.lpad(plain, LIMB * LIMBS, "0")
    limbs = [(padded.substr(1 + LIMB * i, LIMB).cast("decimal(13,0)"), LIMB) for i in range(LIMBS)]
    if more := kind.scale - of.scale:
        limbs.append((F.lit(0).cast("decimal(13,0)"), more))
    number = F.when(count > 0, count.cast("decimal(19,0)"))
    rest, found = F.lit(0).cast("decimal(19,0)"), []
    for limb, width in limbs:
        part = rest * F.lit(10**width).cast("decimal(14,0)") + limb
        rest = (part % number).cast("decimal(19,0)")
        found.append(F.lpad(((part - rest) / number).cast("bigint").cast("string"), width, "0"))
    rounded = F.concat(*found).try_cast("decimal(38,0)") + F.when(rest * 2 >= number, 1).otherwise(0)
    digits = F.lpad(rounded.cast("decimal(38,0)").cast("string"), DIGITS + 1, "0")
    point = DIGITS + 1 - kind.scale
    whole = F.concat(digits.substr(1, point), F.lit("."), digits.substr(point + 1, kind.scale))
    return F.concat(F.when(total < 0, "-").otherwise(""), whole).try_cast(kind)
