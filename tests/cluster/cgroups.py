"""Control groups of the nodes: Slurm's cgroup/v1 plugin needs them to limit memory and devices of jobs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "devices", "freezer")


def available() -> bool:
    """Whether the controllers are mounted in the old layout, one hierarchy each, and writable."""
    return all((ROOT / name / "cgroup.procs").exists() for name in CONTROLLERS)


def make(cluster: str, node: str) -> list[Path]:
    """One group a controller for a node, below one for the cluster."""
    groups = [ROOT / name / cluster / node for name in CONTROLLERS]
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return groups


def tops(cluster: str) -> list[Path]:
    """The groups under which everything of the cluster lies."""
    return [ROOT / name / cluster for name in CONTROLLERS]
