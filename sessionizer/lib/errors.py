"""Errors a user can act on: each says the rule, the value given, and what to change."""

import re
import reprlib
from typing import ClassVar

_LONGEST_VALUE = 120
_IN_SHORT = reprlib.Repr()  # no value, however deep or repetitive, takes long to show
_IN_SHORT.maxlevel = 4
_IN_SHORT.maxstring = _IN_SHORT.maxother = 1_000
_IN_SHORT.maxdict = _IN_SHORT.maxlist = _IN_SHORT.maxtuple = 10
# Control characters but newline and tab, halves of characters, and what turns the direction of writing around.
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
_TOKEN = re.compile(r"(\bsc://[^\s;]*;)[^\s'\"]*")  # what a Spark server is told beside its place
MASK = "*****"


def without_passwords(text: str) -> str:
    """The text, and of each URL in it the user and the password hidden, and what follows that of a Spark server."""
    return _TOKEN.sub(rf"\g<1>{MASK}", _PASSWORD.sub(f"{MASK}@", text))


def printable(text: str) -> str:
    r"""The text with what would act on a terminal instead of being seen written out: `\x1b` for an escape."""
    return _NOT_PRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def counted(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`; what: the word for one."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def explain(rule: str, value: object = None, remedy: str = "") -> str:
    """Write a rule, the value that broke it and the remedy as sentences.

    `explain("gap must be above zero", "0s", "Use 30m")` is "gap must be above zero: got '0s'. Use 30m."
    A value of None means that there is none to show; long values are cut.
    """
    text = rule.rstrip(".")
    if value is not None:
        text += f": got {_shown(value)}"
    return printable(without_passwords(f"{text}. {_sentence(remedy)}".rstrip()))


def _shown(value: object) -> str:
    text = without_passwords(_IN_SHORT.repr(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _sentence(text: str) -> str:
    return f"{text}." if text and text[-1] not in ".!?" else text


class SessionizerError(Exception):
    """Base of every error that is reported without a traceback.

    `rule` is what must hold, `value` what was found instead (None: nothing to show), `remedy` what to do.
    `exit_code` is the exit status of the command that it stops.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, rule: str, *, value: object = None, remedy: str = "") -> None:
        super().__init__(rule)
        self.rule = rule
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        return explain(self.rule, self.value, self.remedy)


class ConfigError(SessionizerError):
    """The config file, or a variable that overrides it, breaks a rule."""

    exit_code = 2


class UsageError(SessionizerError):
    """A command was called with arguments that do not fit."""

    exit_code = 2


class VersionMismatch(SessionizerError):
    """Spark or Delta is not of a release that the product works with, or the two do not go together."""

    exit_code = 2


class SourceError(SessionizerError):
    """The source table is missing, was replaced, or lacks something that the run needs."""


class SourceMismatch(SourceError):
    """The config names what the source table does not have, or has of another type: trying again does not help."""

    exit_code = 2


class TableError(SessionizerError):
    """A table of the product is missing or not as the product left it."""


class RunFailed(SessionizerError):
    """A run stopped; nothing that it would have written is visible."""


class Stopped(SessionizerError):
    """Somebody has stopped a command, by Ctrl-C or SIGTERM."""

    exit_code = 130
