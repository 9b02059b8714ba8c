"""What is asked for in a way that means nothing is an error with a remedy; what users need is there."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.exactness.play import Play
from tests.shell import Shell

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]


@pytest.fixture
def shell(
    play: Plays, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Shell, Play]]:
    """The command line beside a play."""

    def shell(events: str, **sections: Any) -> tuple[Shell, Play]:
        done = play(events, **sections)
        (done.folder / "sessionizer.yaml").write_text(json.dumps(done.document()))
        return Shell(capsys, monkeypatch, done.folder), done

    return shell


Shells = Callable[..., tuple[Shell, Play]]
SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00.000003Z")


@pytest.mark.parametrize(
    "chunk",
    ["7", "0s"],
)
def test_a_chunk_that_is_no_length_of_time_is_an_error(shell: Shells, chunk: str) -> None:
    run, _ = shell("a@0")
    code, _, err = run("backfill", *SPAN, "--chunk", "1s")
    assert code == 0, err
    code, _, err = run("backfill", *SPAN, "--chunk", chunk)
    assert (code, "--chunk" in err) == (2, True), err


def test_look_ups_forget_what_ended_further_back_than_the_retention(shell: Shells) -> None:
    run, _ = shell("a@80 a@84.99 b@85 a@95", session={"gap": "1m"})
    assert len(run.json("sessions", "--key-from", "a", "--key-to", "b")) == 4
    # The latest end is 95: what ended at 85 is the last that is found.
    for asked, starts in (
        (("--key", "a"), ["01:35"]),
        (("--key", "b"), ["01:25"]),
        (("--key-from", "a", "--key-to", "b"), ["01:35", "01:25"]),
        (("--key-from", "a", "--key-to", "b", "--backward"), ["01:25", "01:35"]),
    ):
        found = run.json("sessions", *asked, "--retention", "10m")
        assert [row["session_start"][11:16] for row in found] == starts


def test_a_suite_of_ones_own_named_sessions_stands_beside_the_built_in_one(shell: Shells) -> None:
    run, done = shell("a@5")
    own = [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "total"}}]
    (done.folder / "sessions.yaml").write_text(json.dumps({"expectations": own}))
    found = json.dumps(run.json("check", "--suite", "sessions.yaml")["expectations"])
    assert "no session without events" in found


def test_a_sum_that_its_type_cannot_hold_names_the_remedy(shell: Shells) -> None:
    run, played = shell("a@0", aggregates=[{"name": "total", "fn": "sum", "of": f"n * {2**63 - 1}"}])
    played.add("a@1")
    code, _, err = run("run")
    assert (code, "wider one" in err) == (3, True), err
