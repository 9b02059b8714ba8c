import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionizer.jobs.ingest import files
from sessionizer.jobs.ingest.files import Mark, copy_part, line_at, survey
from sessionizer.lib.errors import SourceError


def mark(content: bytes) -> Mark:
    return Mark(len(content), hashlib.sha256(content).hexdigest())


@given(
    content=st.text("ab\n", max_size=20).map(str.encode),
    sizes=st.sets(st.integers(1, 25)),
    strangers=st.sets(st.integers(1, 25)),
    chunk=st.integers(1, 7),
)
def test_a_survey_finds_every_known_prefix_and_the_end_of_the_last_line(
    tmp_path: Path, content: bytes, sizes: set[int], strangers: set[int], chunk: int
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    known = {mark(content[:n]) for n in sizes if n <= len(content)}
    others = {Mark(n, hashlib.sha256(b"other").hexdigest()) for n in strangers}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "CHUNK", chunk)
        found = survey(file, known | others)
        start = min(sizes, default=0)
        has_rows = copy_part(file, tmp_path / "copy", start, found.whole)
    assert found.known == tuple(sorted(known, key=lambda m: m.size))
    assert found.whole == mark(content)
    assert found.lines == mark(content[: content.rfind(b"\n") + 1])
    assert (tmp_path / "copy").read_bytes() == content[start:]
    assert has_rows == bool(content[start:].strip())


def test_gzip_is_told_by_its_first_bytes_and_offsets_are_those_of_the_content(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfone\ntwo"
    file = tmp_path / "plain.csv"
    file.write_bytes(gzip.compress(content[:5]) + gzip.compress(content[5:]))
    found = survey(file, [])
    assert (found.whole, found.packed, found.bom) == (mark(content), True, 3)
    assert [line_at(file, 3, 10), line_at(file, 7, 10), line_at(file, 7, 9)] == [b"one\n", b"two", b"tw"]


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\n")
    end = survey(file, []).whole
    file.write_bytes(b"one\ntwo\n")
    assert copy_part(file, tmp_path / "copy", 0, end)
    file.write_bytes(b"new\n")
    with pytest.raises(SourceError, match="must not change while it is read"):
        copy_part(file, tmp_path / "copy", 0, end)
