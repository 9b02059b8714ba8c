"""What `status` and `verify` say, by documents made up here."""

from typing import Any

import pytest

from sessionizer.jobs.commands import status
from sessionizer.jobs.reporting import verdict

DAY = 86_400


def source(waits: int | None, keeps: int) -> dict[str, Any]:
    told = {"table": "lake/t", "consumed_version": 3, "latest_version": 4, "versions_behind": 1, "rows_behind": 1}
    return {**told, "latest_event": None, "oldest_waiting_seconds": waits, "source_keeps_seconds": keeps}


def document(rule: dict[str, Any], **sources: dict[str, Any]) -> dict[str, Any]:
    """As of sessions made of several sources, before the first row."""
    counts = {"runs": 0, "late_percent": 0.0, "invalid_percent": 0.0, "events": {"events_read": 0}}
    empty: dict[str, Any] = {
        "rule_differs": [],
        "filled_since": {},
        "oldest_open": None,
        "last_runs": [],
        "sessions": {"open": 0},
    }
    times = {"watermark": None, "horizon": None, "watermark_lag_seconds": None}
    waits = {
        "oldest_waiting_seconds": max(one["oldest_waiting_seconds"] or 0 for one in sources.values()),
        "source_keeps_seconds": min(one["source_keeps_seconds"] for one in sources.values()),
    }
    tables = {"sessions_table": "lake/sessions", "source_table": None, "sources": sources}
    return {"rule": rule, **counts, **empty, **times, **waits, **tables}


@pytest.mark.parametrize(("waits", "warned"), [(5 * DAY, False), (16 * DAY, True)])
def test_a_source_is_warned_of_by_what_it_keeps_itself(
    capsys: pytest.CaptureFixture[str], waits: int, warned: bool
) -> None:
    status.show(document({"gap": "30m"}, clicks=source(waits, 30 * DAY), calls=source(None, 7 * DAY)))
    assert ("warning: events of clicks wait for 16 days" in capsys.readouterr().out) == warned


def test_where_each_key_has_a_watermark_none_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    status.show(document({"gap": "30m", "watermark_per": "key"}, clicks=source(None, DAY)))
    out = capsys.readouterr().out
    assert "of each key its own  (older events are late)" in out
    assert "none yet" not in out


def test_broken_rules_alone_are_no_sessions_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    found = verdict.Verdict(5, 9, True, 0, broken={"a": 2, "b": 0}, examples={"a": ["1", "2"]})
    verdict.show(found)
    assert "1 of 2 rules are broken; 5 sessions of 9 events, recomputed and compared, are right." in (
        capsys.readouterr().out.replace("\n", " ")
    )
