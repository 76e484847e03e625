"""What a run wrote is read without surprises, whatever it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.untrusted import decimal, number, one_line, ordinal, parse_json, parse_object, shaped, whole

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(VALUES)
def test_ordinary_json_is_read_as_json_reads_it(value: object) -> None:
    said = json.dumps(value)
    read = parse_json(said)
    if "NaN" not in said and "Infinity" not in said and "\\ud" not in said:
        assert json.dumps(read) == said
    json.dumps(read, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("NaN", None),
        ("[Infinity, -Infinity, 1e999]", [None, None, None]),
        ("9" * 400, None),
        ("9" * 4299, None),
        ("-5", -5),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_what_no_number_or_text_can_be(said: str, value: object) -> None:
    assert parse_json(said) == value


@pytest.mark.parametrize(
    "said", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100 + "1" + "}" * 100]
)
def test_nesting_is_bounded(said: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        parse_json(said)
    assert parse_object(said) is None


def test_an_object_keeps_what_has_its_type() -> None:
    shape = {"step": number, "pack": whole}
    document = {"step": 5, "pack": "two", "other": object}
    assert shaped(document, shape) == ({"step": 5, "other": object}, ["pack"])
    assert shaped({"pack": None}, shape) == ({"pack": None}, [])


@pytest.mark.parametrize("value", ["5", True, float("nan"), float("inf"), 10**400, 2e18, None, [1]])
def test_no_number_of_a_run(value: object) -> None:
    assert number(value) is None
    assert whole(value) is None


def test_numbers_of_a_run() -> None:
    assert (number(2.5), whole(2.5), whole(3.0), whole(7)) == (2.5, None, 3, 7)


@pytest.mark.parametrize(
    ("name", "value"), [("7", 7), ("007", 7), ("²", None), ("\u0663", None), ("-1", None), ("9" * 19, None)]
)
def test_the_number_that_a_folder_is_called(name: str, value: int | None) -> None:
    assert ordinal(name) == value


def test_one_line_is_bounded() -> None:
    assert one_line("a\n b") == "a b"
    assert len(one_line("x" * 10**6)) < 1100


@pytest.mark.parametrize(
    "said", ["", "nan", "inf", "-inf", "1e400", "1_000", "9" * 400, "9" * 5000, "²", "٣", " 1", "."]
)
def test_a_text_that_is_no_plausible_number_is_none(said: str) -> None:
    assert decimal(said) is None
    assert ordinal(said) is None


def test_numbers_in_texts() -> None:
    assert [decimal(said) for said in ("7", "-0.5", "1e-05", ".5", "5.", "+3")] == [7, -0.5, 1e-5, 0.5, 5, 3]
    assert [ordinal(said) for said in ("7", "007", "-1", "1.0")] == [7, 7, None, None]
