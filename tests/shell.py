"""The command line in a folder, within this process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sessionizer.jobs.cli import main


class Shell:
    """Commands in a folder with a config; what each printed and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.capsys, self.monkeypatch, self.folder = capsys, monkeypatch, folder
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["sessionizer", *arguments])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = self.capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)
