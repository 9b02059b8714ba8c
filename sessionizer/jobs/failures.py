"""What stops a command on its way, as a sentence that helps: a disk, a file, a number too large for its type."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sessionizer.jobs.spark import has_ended, log_folder
from sessionizer.lib.errors import RunFailed
from sessionizer.tables.delta import CUT_OFF, told
from sessionizer.tables.places.object_store import refusal

AGAIN = "start the command again: what was committed stays, what was not is written anew"
BACK = (
    "bring it back from a copy of the table. Without one `sessionizer rebuild` makes the tables of sessions anew from "
    "the source, or name new ones in the config, then `sessionizer init` and `sessionizer run`"
)
ZONE = re.compile(r"(?:timezone|time-zone ID): (\S+)")
FILE = re.compile(r"(?:[a-z0-9]+:/|/)[^\s'\"]*/[^\s'\"]*[^\s'\".,:)]")


# What Spark, Java or Python say, any of it; the rule; the remedy.
CAUSES = (
    (("No space left on device", "Disk quota exceeded"), "the disk is full", f"make room and {AGAIN}"),
    (
        ("Permission denied", "Read-only file system", "AccessControlException", "Mkdirs failed to create"),
        "this user may not read or write a file or folder",
        f"allow it, or be the user who owns it, and {AGAIN}",
    ),
    ((*CUT_OFF, "MALFORMED_RECORD_IN_PARSING"), "a file of a table is damaged", BACK),
    (("FILE_NOT_EXIST", "FileNotFoundException", "DELTA_LOG_FILE_NOT_FOUND"), "a table lacks a file", BACK),
    (("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER"), "a file of a table is damaged", BACK),
)
# Those that are of no file.
OTHERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE"),  # in some order of adding up
        "a number, or a sum on its way, is more than its type holds",
        "let the aggregate take a wider one, such as of: CAST(amount AS DECIMAL(28, 2)), or a DOUBLE, and "
        "`sessionizer rebuild`",
    ),
    (
        ("DELTA_MULTIPLE_SOURCE_ROW_MATCHING",),
        "a row of the table is there more than once, which no run makes",
        "`sessionizer verify` names it: delete it by SQL and then `sessionizer backfill` over its time, or "
        "`sessionizer rebuild`",
    ),
    (
        ("INVALID_TIMEZONE", "Unknown time-zone ID", "ZoneRulesException"),
        "the Java that Spark runs by does not know a time zone that the config, its SQL or an event names",
        f"name an older one of the same rules, such as session.time_zone, or take a newer Java, and {AGAIN}",
    ),
)


def known_failure(error: Exception) -> RunFailed | None:
    """The sentence, if it is one of these; nothing of what the command would have written is visible."""
    if has_ended(error):
        return RunFailed(
            "Spark ended amid the command",
            remedy=f"its log in {log_folder()} may say why; where it does not, the system has ended it for want of "
            f"memory: give the machine more, or spark.driver.memory less. Then {AGAIN}",
        )
    if not isinstance(error, OSError | PySparkException | Py4JJavaError):
        return None
    text = told(error)
    if (refused := refusal(text)) is not None:
        return refused
    for signs, rule, remedy in OTHERS:
        if any(sign in text for sign in signs):
            named = ZONE.search(text)
            return RunFailed(rule, value=named and named[1], remedy=remedy)
    for signs, rule, remedy in CAUSES:
        if lines := [line for line in text.splitlines() if any(sign in line for sign in signs)]:
            named = FILE.search(lines[0]) or FILE.search(text)
            return RunFailed(f"{rule}: {named[0] if named else lines[0].strip()}", remedy=remedy)
    return None
