"""Records of several lines, and torn quotes that must not swallow good lines."""

from pathlib import Path

import pytest

from sessionizer.jobs.ingest.files import join_records


def test_a_separator_may_be_any_character(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes('£5¦"b\nB"\n'.encode())
    join_records(file, 2, "¦", '"')
    assert file.read_bytes().decode() == '£5¦"b\x1eB"\n\n'


@pytest.mark.parametrize(
    ("content", "records"),
    [
        ("a,b\nc,d\n", ["a,b", "c,d"]),
        ('a,"b\nB"\nc,d\n', ['a,"b\x1eB"', "c,d"]),
        ('a,"b\n\n""x""\n"\r\nc,d', ['a,"b\x1e\x1e""x""\x1e"\r', "c,d"]),
        ('"a\nA","b\nB"\n', ['"a\x1eA","b\x1eB"']),
        ('a,"torn\nc,d\ne,f\n', ['a,"torn', "c,d", "e,f"]),
        ('a,"torn\nc,"d"\ne,f\n', ['a,"torn', 'c,"d"', "e,f"]),
        ('a,"torn\nc,"d\nD"\n', ['a,"torn', 'c,"d\x1eD"']),
        ('a,5" disk\nc,d\n', ['a,5" disk', "c,d"]),
        ('a,"b\nB",too many\n', ['a,"b', 'B",too many']),
        ('a\u2028\x0c\x85a,"b\nB"\n', ['a\u2028\x0c\x85a,"b\x1eB"']),
        (f'a,"b\n{"b" * 200_000}"\n', [f'a,"b\x1e{"b" * 200_000}"']),
    ],
)
def test_a_record_is_joined_only_where_it_is_whole(tmp_path: Path, content: str, records: list[str]) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content.encode())

    joined = join_records(file, 2, ",", '"')

    lines = file.read_bytes().decode().rstrip("\n").split("\n")
    assert [line for line in lines if line] == records
    assert joined == ("\x1e" if any("\x1e" in record for record in records) else None)
