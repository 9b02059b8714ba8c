"""Bytes as they should not be: what disks, copies, editors and strangers make of a text."""

import re
from collections.abc import Sequence
from random import Random


def mutated(random: Random, content: bytes, tokens: Sequence[bytes]) -> bytes:
    """The content after one to eight accidents; `tokens` are what may get into it."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        content = random.choice(ACCIDENTS)(random, content or b"a", tokens)
    return content


def _flip_a_bit(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def _lose_some(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + content[at + random.randrange(1, 20) :]


def _cut(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    return content[: random.randrange(len(content))]


def _insert(random: Random, content: bytes, tokens: Sequence[bytes]) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(tokens) + content[at:]


def _repeat_a_line(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return b"\n".join(lines)


def _join_two_lines(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    return b"\n".join([*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]])


def _indent_a_line(random: Random, content: bytes, _: Sequence[bytes]) -> bytes:
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = random.choice((b" ", b"  ", b"\t", b"      ")) + lines[at]
    return b"\n".join(lines)


def _replace_a_word(random: Random, content: bytes, tokens: Sequence[bytes]) -> bytes:
    words = list(re.finditer(rb"[^\s,:{}\[\]\"]+", content))
    if not words:
        return content
    word = random.choice(words)
    return content[: word.start()] + random.choice(tokens) + content[word.end() :]


ACCIDENTS = (
    _flip_a_bit,
    _lose_some,
    _cut,
    _insert,
    _repeat_a_line,
    _join_two_lines,
    _indent_a_line,
    _replace_a_word,
)
