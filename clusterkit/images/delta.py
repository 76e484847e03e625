"""Computes from chunk lists how to build a new image from an old one. Pure, except `write_pack`.

The recipe is text, one step per line: `copy OFFSET LENGTH` from the old image, `data OFFSET LENGTH` from the
pack, which holds the new parts in order; `end`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clusterkit.images.chunks import ChunkList

MAX_STEPS = 20_000
"""Each costs the login node two small processes."""
_BLOCK = 4 << 20


@dataclass
class _Step:
    kind: str
    offset: int
    length: int


@dataclass(frozen=True)
class Delta:
    """The difference from the old image to the new one."""

    recipe: str
    stretches: tuple[tuple[int, int], ...]
    """Offset and length in the new image of the pack's parts, in order."""

    @property
    def pack_bytes(self) -> int:
        """Size of the pack."""
        return sum(length for _, length in self.stretches)

    @property
    def steps(self) -> int:
        """Steps of the recipe."""
        return self.recipe.count("\n") - 1


def compare(old: ChunkList, new: ChunkList) -> Delta:
    """The shortest recipe of whole chunks; a repeated new chunk is packed once."""
    known = _offsets(old)
    packed: dict[bytes, int] = {}
    steps: list[_Step] = []
    stretches: list[tuple[int, int]] = []
    position = pack = 0
    for chunk in new.chunks:
        last = steps[-1] if steps else None
        if places := known.get((chunk.digest, chunk.length)):
            follows = last.offset + last.length if last and last.kind == "copy" else -1
            _add(steps, "copy", follows if follows in places else min(places), chunk.length)
        elif chunk.digest in packed:
            _add(steps, "data", packed[chunk.digest], chunk.length)
        else:
            packed[chunk.digest] = pack
            _add(steps, "data", pack, chunk.length)
            pack += chunk.length
            if stretches and sum(stretches[-1]) == position:
                stretches[-1] = (stretches[-1][0], stretches[-1][1] + chunk.length)
            else:
                stretches.append((position, chunk.length))
        position += chunk.length
    lines = [f"{step.kind} {step.offset} {step.length}\n" for step in steps]
    return Delta("".join([*lines, "end\n"]), tuple(stretches))


def write_pack(image: Path, delta: Delta, pack: Path) -> None:
    """Write the new parts of an image in order."""
    with image.open("rb") as source, pack.open("wb") as file:
        for offset, length in delta.stretches:
            source.seek(offset)
            while length and (data := source.read(min(length, _BLOCK))):
                file.write(data)
                length -= len(data)


def _offsets(chunks: ChunkList) -> dict[tuple[bytes, int], set[int]]:
    offsets: dict[tuple[bytes, int], set[int]] = {}
    position = 0
    for chunk in chunks.chunks:
        offsets.setdefault((chunk.digest, chunk.length), set()).add(position)
        position += chunk.length
    return offsets


def _add(steps: list[_Step], kind: str, offset: int, length: int) -> None:
    last = steps[-1] if steps else None
    if last and last.kind == kind and last.offset + last.length == offset:
        last.length += length
    else:
        steps.append(_Step(kind, offset, length))
