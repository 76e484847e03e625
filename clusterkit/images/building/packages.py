"""The packages of an image, and the changes between two builds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ = (
    "cat /opt/trainer/packages.txt 2>/dev/null || python3 -m pip list --format=freeze 2>/dev/null || "
    "python -m pip list --format=freeze 2>/dev/null"
)
"""Shell code that prints an image's packages, one `name==version` per line."""


@dataclass(frozen=True)
class PackageChanges:
    """The differences between two package lists."""

    added: Mapping[str, str]
    removed: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]
    """Version before and after, by name."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def parse(text: str) -> dict[str, str]:
    """Parse versions by name; other lines (packages from folders or URLs) are ignored."""
    pairs = (line.strip().partition("==") for line in text.splitlines())
    return {name: version for name, equals, version in pairs if equals and name and " " not in name}


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> PackageChanges:
    """Compare two package lists."""
    return PackageChanges(
        added={name: version for name, version in after.items() if name not in before},
        removed={name: version for name, version in before.items() if name not in after},
        changed={
            name: (before[name], version)
            for name, version in after.items()
            if name in before and before[name] != version
        },
    )
