"""A deployment's plan, which `--dry-run` shows: what the cluster has, what will be sent, and if it fits."""

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
    """The speed of uploads to a cluster."""

    bytes_per_second: float
    measured: str | None
    """Day of the upload that it was measured on; None if measured just now."""


@dataclass(frozen=True)
class DeploymentPlan:
    """The files already on a cluster and those that a deployment will send."""

    cluster: str
    root: str
    image: Image | None
    image_path: Path | None
    image_plan: UploadPlan
    standing: Standing
    image_sent: Sent | None = None
    """The finished image upload; None before it or without one."""
    spaces: tuple[Space, ...] = ()
    rate: TransferRate | None = None
    trusted: tuple[str, ...] = ()
    """A line for each folder on the cluster that a trusted other user could change."""

    @property
    def snapshot(self) -> Snapshot:
        """The working tree."""
        return self.standing.snapshot

    @property
    def bytes_to_send(self) -> int:
        """Bytes of the image and the code."""
        return self.image_plan.bytes_to_send + self.standing.bytes_to_send

    @property
    def seconds(self) -> float | None:
        """Estimated transfer time in seconds; None without a rate."""
        return self.bytes_to_send / self.rate.bytes_per_second if self.rate else None

    @property
    def shortage(self) -> str | None:
        """Why the files do not fit, or None; roots on one file system share its free space."""
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
                return f"{space.path} has {left:,.0f} MiB {limit}, and {need:,.0f} MiB are needed"
        return None
