"""The recipe and the pack, followed here and by real shells, give the new file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterkit.images.chunks import chunk_file
from clusterkit.images.delta import Delta, compare, write_pack

PIECES = [random.Random(number).randbytes(300_000) for number in range(6)] + [bytes(1_200_000), b"small"]


def write(path: Path, numbers: list[int]) -> Path:
    path.write_bytes(b"".join(PIECES[number] for number in numbers))
    return path


def follow(delta: Delta, old: bytes, pack: bytes) -> bytes:
    *steps, end = delta.recipe.splitlines()
    assert end == "end"
    assert delta.steps == len(steps)
    made = b""
    for step in steps:
        kind, offset, length = step.split()
        source = {"copy": old, "data": pack}[kind]
        made += source[int(offset) : int(offset) + int(length)]
    return made


numbers = st.lists(st.integers(0, len(PIECES) - 1), max_size=8)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=numbers, after=numbers)
def test_any_file_is_made_of_any_other(tmp_path: Path, before: list[int], after: list[int]) -> None:
    old, new = write(tmp_path / "old", before), write(tmp_path / "new", after)
    delta = compare(chunk_file(old), chunk_file(new))
    write_pack(new, delta, tmp_path / "pack")
    pack = (tmp_path / "pack").read_bytes()
    assert len(pack) == delta.pack_bytes
    assert follow(delta, old.read_bytes(), pack) == new.read_bytes()


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_few_edits_cost_little(tmp_path: Path, data: st.DataObject) -> None:
    old = write(tmp_path / "old", [0, 1, 2, 3, 4, 5])
    content = bytearray(old.read_bytes())
    edits = data.draw(st.lists(st.tuples(st.sampled_from("icd"), st.integers(0, len(content))), max_size=2))
    for kind, offset in edits:
        if kind == "i":
            content[offset:offset] = b"inserted"
        else:
            content[offset : offset + 20] = b"c" * 20 if kind == "c" else b""
    new = tmp_path / "new"
    new.write_bytes(content)
    delta = compare(chunk_file(old), chunk_file(new))
    write_pack(new, delta, tmp_path / "pack")
    assert follow(delta, old.read_bytes(), (tmp_path / "pack").read_bytes()) == bytes(content)
    longest = max(chunk.length for chunk in chunk_file(old).chunks)
    assert delta.pack_bytes <= len(edits) * 3 * longest


def test_what_has_not_changed_is_one_step_and_no_data(tmp_path: Path) -> None:
    old = write(tmp_path / "old", [0, 6, 1, 6, 0])
    delta = compare(chunk_file(old), chunk_file(old))
    assert delta.pack_bytes == 0
    assert delta.steps <= 4


@pytest.mark.parametrize("after", [[], [7]])
def test_files_of_a_few_bytes(tmp_path: Path, after: list[int]) -> None:
    old, new = write(tmp_path / "old", [1]), write(tmp_path / "new", after)
    delta = compare(chunk_file(old), chunk_file(new))
    assert delta.pack_bytes == new.stat().st_size
