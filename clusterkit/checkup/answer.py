"""The answer of doctor's scripts, in parts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterkit.probes.framing import MARK, Section, sections

END = 'printf "\\n%s end\\n" "$ck_mark"\n'


@dataclass(frozen=True)
class Answer:
    """All that came back."""

    parts: Mapping[str, Section]
    whole: bool
    """Whether it came to its end."""

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Section:
        return self.parts.get(name, Section(name))


def parse(text: str) -> Answer:
    """The parts of an answer; what stands outside of them is passed over. One that was cut off timed out."""
    parts = {section.name: section for section in sections(text, cut=True)}
    return Answer(parts, f"{MARK} end" in text)
