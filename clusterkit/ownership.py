"""Finds out who could change a folder on a cluster, and so run code as its user.

`templates/ownership.sh` holds the one definition; docs/security.md states it. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from clusterkit.errors import OwnershipError
from clusterkit.resources import TEMPLATES

EXIT_CODE = 77
"""Exit status of a job or survey that refuses a folder which others could change."""
_LINE = re.compile(r"^(owner|group|others|links|missing|unknown) (\S+) (\S+) (\S+) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class OwnershipFault:
    """A file, folder or link that another user could change, or whose owner is unknown."""

    kind: str
    """`owner`, `group`, `others`: who could change it; `links`: too many; `missing`: gone; `unknown`."""
    mode: str
    """The mode as shown by `ls -l`."""
    owner: str
    """Name, or number if the name contains blanks."""
    group: str
    path: str

    @property
    def text(self) -> str:
        """One line: what it is and who could change it."""
        if self.kind == "links":
            return f"{self.path} is a dangling link"
        if self.kind == "missing":
            return f"{self.path} was created and no longer exists"
        if self.kind == "unknown":
            return f"the owner of {self.path} is not known here (it shows {self.owner}, {self.mode})"
        who = {
            "owner": f"belongs to {self.owner}",
            "group": f"is writable by the group {self.group}",
            "others": "is writable by everyone",
        }[self.kind]
        return f"{self.path} {who} ({self.mode} {self.owner} {self.group})"

    @property
    def trust(self) -> str:
        """The entry of `trust` that accepts it, if a user owns it or a group may write to it."""
        return self.owner if self.kind == "owner" else self.group


@cache
def functions() -> str:
    """The shell functions, in POSIX sh."""
    return (TEMPLATES / "ownership.sh").read_text(encoding="utf-8")


def fragment(trust: Iterable[str], group: str | None) -> str:
    """The shell functions with their settings; `own_check PATH...` runs the check.

    Args:
        trust: users who may own, and groups that may write to, the folders on a path.
        group: one more trusted group, or None.
    """
    names = "\n".join(trust)
    return f"{functions()}own_trust={shlex.quote(names)} own_group={shlex.quote(group or '')}\n"


def parse(text: str) -> tuple[OwnershipFault, ...]:
    """Parses the findings of `own_faults` or `own_notes`."""
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text)
    return tuple(OwnershipFault(*match) for match in _LINE.findall(shown))


def cure(faults: Sequence[OwnershipFault], user: str, table: str) -> str:
    """What the user can do about it.

    Args:
        faults: the findings; at least one.
        user: the user's name on the cluster.
        table: the settings' table, e.g. `[clusters.uni]`.
    """
    if user and all(fault.kind in ("group", "others") and fault.owner == user for fault in faults):
        return f"chmod go-w {shlex.join(dict.fromkeys(fault.path for fault in faults))}"
    choose = f"set `root`, `scratch` or `image_store` of {table} to a folder that only you can change"
    line = trust_line(faults)
    return f"{choose}; if you trust them with your account: {line}" if line else choose


def trust_line(faults: Sequence[OwnershipFault]) -> str:
    """The setting that accepts the findings; empty if it would have to trust everybody."""
    if any(fault.kind not in ("owner", "group") for fault in faults):
        return ""
    names = ", ".join(f'"{name}"' for name in dict.fromkeys(fault.trust for fault in faults))
    return f"trust = [{names}]"


def refusal(where: str, faults: Sequence[OwnershipFault], user: str, table: str) -> OwnershipError:
    """The error for the findings.

    Args:
        where: the host's name for messages.
        faults: at least one.
        user: the user's name on the cluster.
        table: the settings' table.
    """
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return OwnershipError(
        f"{where}: others could run code as you: {faults[0].text}{more}", hint=cure(faults, user, table)
    )
