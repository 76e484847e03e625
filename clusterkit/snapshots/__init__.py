"""Snapshots: content-addressed, read-only copies of the working tree on a cluster.

A queued job runs the code it was submitted with, whatever is edited or deployed later. Two trees are stored,
each in its own folder with the `manifest.gz` whose hash names the folder: `project/`, the user's working
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
