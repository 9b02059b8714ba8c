"""Records of several lines, and torn quotes that must not swallow good lines."""

from pathlib import Path

import pytest

from jobs.ingest.files import join_records


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
    ],
)
def test_a_record_is_joined_only_where_it_is_whole(tmp_path: Path, content: str, records: list[str]) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content.encode())

    joined = join_records(file, 2, ",", '"')

    assert file.read_bytes().decode().rstrip("\n").split("\n") == records
    assert joined == ("\x1e" if any("\x1e" in record for record in records) else None)
