"""What a deploy finds on a cluster and what it will send: what `--plan` shows, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clusterkit.images.image import Image
from clusterkit.images.planning import UploadPlan
from clusterkit.images.upload import Sent
from clusterkit.probes.space import Space
from clusterkit.snapshots import Snapshot, Standing


@dataclass(frozen=True)
class TransferRate:
    """How fast an upload to a cluster is."""

    bytes_per_second: float
    measured: str | None
    """Day of the upload it is remembered from; None was measured just now."""


@dataclass(frozen=True)
class DeploymentPlan:
    """What a deploy finds on a cluster, and what it will send."""

    cluster: str
    root: str
    image: Image | None
    image_path: Path | None
    image_plan: UploadPlan
    standing: Standing
    image_sent: Sent | None = None
    """What the upload of the image took; None before it, or without one."""
    spaces: tuple[Space, ...] = ()
    rate: TransferRate | None = None
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""

    @property
    def snapshot(self) -> Snapshot:
        """The working tree."""
        return self.standing.snapshot

    @property
    def bytes_to_send(self) -> int:
        """Of image and code together."""
        return self.image_plan.bytes_to_send + self.standing.bytes_to_send

    @property
    def seconds(self) -> float | None:
        """About how long the transfer takes."""
        return self.bytes_to_send / self.rate.bytes_per_second if self.rate else None

    @property
    def shortage(self) -> str | None:
        """Why it does not fit, if it does not; roots on one file system share its room."""
        needs = {"images": self.image_plan.disk_bytes, "work root": self.standing.bytes_to_send}
        for space in self.spaces:
            needed = sum(
                needs.get(other.role, 0)
                for other in self.spaces
                if other.role == space.role or (space.file_system and other.file_system == space.file_system)
            )
            if needs.get(space.role) and space.left is not None and space.left < needed:
                limit = "allowed by the quota" if space.left == space.quota_left else "free"
                left, need = space.left / 2**20, needed / 2**20
                return f"{space.path} has {left:,.0f} MiB {limit}, {need:,.0f} MiB are needed"
        return None
