"""What an image holds, and what changed from one build to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ = (
    "cat /opt/trainer/packages.txt 2>/dev/null || python3 -m pip list --format=freeze 2>/dev/null || "
    "python -m pip list --format=freeze 2>/dev/null"
)
"""Shell code that prints the packages of the image it runs in, `name==version` a line."""


@dataclass(frozen=True)
class PackageChanges:
    """How two lists of packages differ."""

    added: Mapping[str, str]
    removed: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]
    """Version before and after, by name."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def parse(text: str) -> dict[str, str]:
    """Versions by name; a line that is no `name==version` (one from a folder or URL) is left out."""
    pairs = (line.strip().partition("==") for line in text.splitlines())
    return {name: version for name, equals, version in pairs if equals and name and " " not in name}


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> PackageChanges:
    """What is new, gone or of another version."""
    return PackageChanges(
        added={name: version for name, version in after.items() if name not in before},
        removed={name: version for name, version in before.items() if name not in after},
        changed={
            name: (before[name], version)
            for name, version in after.items()
            if name in before and before[name] != version
        },
    )
