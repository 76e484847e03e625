"""Snapshots: content-addressed, read-only copies of the working tree on a cluster.

A queued job runs the code it was submitted with, whatever is edited or deployed later. Two trees are kept,
each in a folder of its own with the `manifest.gz` that gives it its name: `project/`, the user's working
tree with uncommitted changes, and `bundle/`, the trainer package of this clusterkit.
"""

from __future__ import annotations

from clusterkit.snapshots.git import Git
from clusterkit.snapshots.snapshot import Allow, Large, Snapshot, Tree, take
from clusterkit.snapshots.store import Standing, inquiry, look, publish, transplant

__all__ = [
    "Allow",
    "Git",
    "Large",
    "Snapshot",
    "Standing",
    "Tree",
    "inquiry",
    "look",
    "publish",
    "take",
    "transplant",
]
