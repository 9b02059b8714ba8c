import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from sessionizer.jobs.fetch import below
from sessionizer.jobs.ingest import files
from sessionizer.jobs.ingest.files import Mark, check_files, copy_part, line_at, survey
from sessionizer.jobs.ingest.names import csv_header
from sessionizer.lib.errors import SourceError, UsageError


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


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_text_in_utf_16_is_refused_with_what_to_do(tmp_path: Path, encoding: str) -> None:
    plain, packed, known = tmp_path / "a.csv", tmp_path / "a.csv.gz", tmp_path / "b.csv"
    content = "\ufeffuser,event_time\n".encode(encoding)
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    known.write_bytes("\ufeffuser,event_time\n".encode())
    check_files([known])
    for file in (plain, packed):
        with pytest.raises(UsageError, match=r"must be UTF-8, and this is UTF-16.*iconv"):
            check_files([known, file])


def test_a_header_that_is_not_utf_8_names_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("user,größe\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"first line of a csv file must be UTF-8.*iconv"):
        csv_header(tmp_path / "a.csv", 0, 100, ",", '"')


def test_files_of_a_folder_in_a_store_are_those_that_spark_would_read(tmp_path: Path) -> None:
    here = ["a.csv", "day=1/b.csv", "_day=2/c.csv"]
    for name in [*here, "_SUCCESS", "_temporary/0/d.csv", "_delta_log/0.json", "day=1/.e.csv", ".x=1/f.csv"]:
        (tmp_path / "_inbox" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_inbox" / name).write_text("")
    folder = str(tmp_path / "_inbox")
    assert below(folder, LocalFileSystem()) == sorted(f"{folder}/{name}" for name in here)
    assert below(f"{folder}/_temporary/0/d.csv", LocalFileSystem()) == [f"{folder}/_temporary/0/d.csv"]
