"""The fenced blocks of the documentation, as they stand there."""

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block. name: its page, its language and its place among those of it on the page; language: '' where none is."""

    name: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines of shell, those that go on put together."""
        return self.text.replace("\\\n", " ").splitlines()

    @property
    def commands(self) -> list[list[str]]:
        """Of its lines of shell those of sessionizer, as words behind it."""
        return [shlex.split(line, comments=True)[1:] for line in self.lines if line.startswith("sessionizer ")]


def blocks_of(page: Path) -> Iterator[Block]:
    """In the order of the page."""
    seen: Counter[str] = Counter()
    for _, language, text in _FENCED.findall(page.read_text(encoding="utf-8")):
        seen[language] += 1
        name = f"{page.relative_to(ROOT)} {language or 'plain'} {seen[language]}"
        yield Block(name, language, textwrap.dedent(text))


def blocks(language: str, page: str = "") -> list[Block]:
    """All of a language; or those of a page."""
    return [
        block for p in PAGES for block in blocks_of(p) if block.language == language and block.name.startswith(page)
    ]
