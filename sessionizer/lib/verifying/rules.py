"""What `verify` holds the tables to beside recomputing them: each rule by its name, and which of them it looks at."""

from sessionizer.lib.config import DynamicGap
from sessionizer.lib.rule import Rule

# Of every sessions table, by its rows alone.
ONCE = "each session_id is there once"
IN_ORDER = "session_start <= session_end < expires_at"
BY_TIMES = "duration_seconds and session_date are those of the session's times"
EXPIRES = "a session expires a gap behind its end"
NOT_LONGER = "no session lasts longer than max_duration"
APART = "sessions of a key lie further apart than the gap"
NO_OVERLAP = "sessions of a key do not overlap"
BY_KEY = "live sessions are as the watermark of their key has it"
NO_STATE = "final rows hold no state, and every session an event"
# Of every windows table.
WINDOW_ONCE = "each window is there once"
AS_LONG = "a window lasts time_difference"
LAST_WITHIN = "the last event of a window lies in it"
NO_WINDOW_STATE = "final rows hold no state, and every window an event"
# Of the ledger, and of rejected events.
ADDS_UP = "the counts of every run add up"
IS_LATE = "late events are older than the horizon of their run"
IS_AHEAD = "events of the future were ahead of their run"
MAY_WAIT = "corrections that were not made were not to be made by their run"
HAS_CAUSE = "events are rejected for no reason that the config does not give"
IN_SOURCE = "what is rejected is in the source"
IS_INVALID = "invalid events break a rule"
IS_KEPT = "what is invalid is in rejected_events"
IS_COPY = "duplicates are copies of accepted events"
NO_COPY = "no accepted event is a copy of another"
IN_ONE = "each accepted event is in one session"
EMPTIED = "what is written since an aggregate was dropped holds nothing of it"


def is_recomputed(rule: Rule) -> bool:
    """Whether sessions follow from the accepted events; those of late events apart always do."""
    return not rule.freezes


def of_sessions(rule: Rule) -> list[str]:
    """What holds for every sessions table of this rule."""
    told = {
        EXPIRES: not isinstance(rule.gap, DynamicGap),
        NOT_LONGER: rule.max_duration is not None,
        NO_OVERLAP: rule.by_content,
        APART: is_recomputed(rule) and not rule.by_content,
        BY_KEY: rule.watermark_per == "key",
    }
    return [ONCE, IN_ORDER, BY_TIMES, *(name for name, is_asked in told.items() if is_asked), NO_STATE]


def of_windows() -> list[str]:
    """What holds for every windows table."""
    return [WINDOW_ONCE, AS_LONG, LAST_WITHIN, NO_WINDOW_STATE]


def of_rejects(rule: Rule, *, whole: bool) -> list[str]:
    """What rejected events must be, where there are any; whole: of all of the source."""
    found = [IS_LATE, IS_AHEAD, MAY_WAIT, HAS_CAUSE]
    return [*found, IN_SOURCE, IS_INVALID, *([IS_COPY] if rule.dedupe is not None else [])] if whole else found


def of_the_source(rule: Rule) -> list[str]:
    """What holds whether any are rejected or not, where all of the source is read."""
    return [IS_KEPT, *([NO_COPY] if rule.dedupe is not None else [])]


def of_trace(name: str, rule: Rule, *, whole: bool) -> list[str]:
    """What an optional table must tell; whole: it has had the events of all sessions."""
    found = [places(name), *([numbers(name)] if whole else [])]
    found += [members(name)] if whole and is_recomputed(rule) else []
    return [*found, results(name)] if name == "session_updates" else found


def places(name: str) -> str:
    """Of `wrong_places`."""
    return f"{name} names the session that its events lie in"


def numbers(name: str) -> str:
    """Of `wrong_numbers`."""
    return f"{name} has each event of a session once"


def members(name: str) -> str:
    """Of `wrong_members`."""
    return f"{name} has the accepted events, and no others"


def results(name: str) -> str:
    """Of `wrong_results`."""
    return f"{name} ends with what its session came to"
