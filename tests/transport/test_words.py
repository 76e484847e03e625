"""What is kept of a program's standard error: all of it, or the beginning and the end."""

from __future__ import annotations

from clusterkit.transport.base import Words


def test_little_is_kept_whole_and_of_much_the_beginning_and_the_end() -> None:
    words = Words(100)
    for _ in range(30):
        words.add(b"line 1\n")
    assert words.data == b"line 1\n" * 30
    for number in range(10_000):
        words.add(b"line %d\n" % number)
    assert words.text.startswith("line 1\n" * 14)
    assert words.text.endswith("line 9998\nline 9999\n")
    assert all(line.startswith("line ") for line in words.text.splitlines())
    assert len(words.data) <= 300


def test_one_long_line_is_kept_at_both_ends() -> None:
    words = Words(100)
    words.add(b"begin" + b"x" * 10_000 + b"end")
    assert words.text.startswith("beginxxx")
    assert words.text.endswith("xxxend")
