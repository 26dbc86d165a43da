"""JSON of others: read where it can be worked on, refused with the reason where not."""

import pytest

from fairflows import DataError
from fairflows.table.json_text import parse_json, read_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 101 + "]" * 101, "nested more than 100 levels deep"),
        ('{"a":' * 500 + "0" + "}" * 500, "nested more than 100 levels deep"),
        ("[" * 1_000_000, "nested more than 100 levels deep"),
        ('{"a":' * 1_000_000, "nested more than 100 levels deep"),
        ("1" * 5000, "not JSON"),
        ("{" + "".join(f'"{i}": 0, ' for i in range(200_000)) + '"199999": 1}', "the name '199999' stands twice"),
    ],
)
def test_what_is_refused(text, message):
    """The last of 200,000 names twice took minutes, because all of them were counted for each."""
    with pytest.raises(DataError, match=message):
        parse_json(text)


def test_what_is_read(tmp_path):
    assert parse_json("[" * 99 + "]" * 99)
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no such file"), (b"\xff", "not UTF-8 text"), (b"[", r"damaged or cut off: not JSON")],
)
def test_files_are_named(content, message, tmp_path):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"file\.json: .*{message}"):
        read_json(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_json(tmp_path)
