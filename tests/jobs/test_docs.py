"""What the documentation says exists: pages, headings, commands with their options, messages of errors."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from sessionizer.jobs.cli import app
from tests.doc_blocks import PAGES, ROOT, Block, blocks

COMMANDS = typer.main.get_command(app)
SOURCES = " ".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "sessionizer").rglob("*.py")))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in (one for one in links if "://" not in one):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("block", [pytest.param(b, id=b.name) for b in blocks("bash") if b.commands])
def test_every_command_has_the_options_that_it_is_shown_with(block: Block) -> None:
    assert isinstance(COMMANDS, TyperGroup)
    for words in block.commands:
        if words[0].startswith("--"):
            assert words[0] in ("--help", "--install-completion", "--show-completion")
            continue
        redirected = next((i for i, word in enumerate(words) if re.fullmatch(r"\d?>>?", word)), len(words))
        command = COMMANDS.commands[words[0]]
        command.make_context(words[0], words[1:redirected])


def test_the_messages_of_the_faq_are_those_of_the_product() -> None:
    faq = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    quoted = re.findall(r"`([^`]+)`", " ".join(re.findall(r"\*\*(`.*?`.*?)\*\*", faq, re.DOTALL)))
    messages = [" ".join(text.split()) for text in quoted if " " in text]
    assert len(messages) > 30
    foreign = {"No space left on device", "Spark failed:"}
    one_line = re.sub(r'"\s*\n\s*f?"', "", SOURCES)
    assert [m for m in messages if m not in foreign and m not in one_line] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tests_that_a_page_names_are_there(page: Path) -> None:
    for file, _, test in re.findall(r"`(tests/[\w/]+\.py)(::(\w+))?", page.read_text(encoding="utf-8")):
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_the_tests_that_make_names_are_there() -> None:
    named = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
