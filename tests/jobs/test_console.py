"""Tables on a terminal, in a pipe and asked for in full."""

import re
import sys
from decimal import Decimal
from typing import Any

import pytest

from sessionizer.jobs import console
from sessionizer.jobs.queries.sql import csv_text

HEADERS = ["user", "session_id", "events", "pages"]
ROWS: list[list[Any]] = [["ann", "a" * 64, 12345, "[/, /cart]"], ["bob\nx", None, 2, None]]


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")


def test_in_a_pipe_each_row_is_a_line_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_rows(HEADERS, ROWS)
    head, ann, bob = told(capsys).splitlines()
    assert head.split() == HEADERS
    assert ann.split() == ["ann", "a" * 64, "12,345", "[/,", "/cart]"]
    assert bob.split() == ["bob\\nx", "-", "2", "-"]


def test_on_a_terminal_long_cells_are_cut_and_what_does_not_fit_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    console.print_rows(HEADERS, ROWS)
    head, ann, _ = told(capsys).splitlines()
    assert head.split() == HEADERS
    assert ann.split() == ["ann", "a" * 31 + "…", "12,345", "[/,", "/cart]"]
    console.print_rows([*HEADERS, *HEADERS], [row * 2 for row in ROWS])
    head, _, _, *note = told(capsys).splitlines()
    assert head.split() == [*HEADERS, "user"]
    said = " ".join(" ".join(note).split())
    assert said == "… and, with --json or a wider terminal: session_id, events, pages"
    console.print_rows([*HEADERS, *HEADERS], [row * 2 for row in ROWS], wide=False)
    assert "with --wide, --json or a wider terminal" in " ".join(told(capsys).split())


def test_a_word_that_a_terminal_has_no_room_for_is_cut_and_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    console.stdout().print(console.table(["", ""], [("path", "in " + "a" * 99), ("text", "word " * 20)]))
    path, cut, *text = [line.strip() for line in told(capsys).splitlines() if line.strip()]
    assert (path, cut[-1], len(cut) < 60) == ("path  in", "…", True)
    assert set(" ".join(text).split()) == {"text", "word"}


def test_wide_shows_all_on_a_terminal_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    console.print_rows(HEADERS, ROWS, wide=True)
    assert "a" * 64 in told(capsys)
    console.print_rows(HEADERS, [])
    assert told(capsys).split() == HEADERS


def test_many_narrow_columns_are_no_trouble(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    console.print_rows([f"column_{n}" for n in range(9)], [["2026-01-01 10:00"] * 9])
    assert "a wider terminal: column_3, column_4" in " ".join(told(capsys).split())


def test_csv_has_decimals_with_all_their_digits() -> None:
    texts = ["0.0000001", "0.0000000000", "-12345678901234567890.10", "5"]
    assert [csv_text(Decimal(text)) for text in texts] == texts
