"""Which of an image's files a job starts: the one for the architecture of its node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import architectures, backend_of
from clusterkit.errors import ImageError
from clusterkit.images.image import Image

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


def wanted(cluster: Cluster, requests: Sequence[Sequence[str]]) -> frozenset[str]:
    """Returns the architectures of the nodes that jobs with such options may get; empty if unknown."""
    found = [architectures(cluster, options) for options in requests]
    return frozenset().union(*found) if all(found) else frozenset()


def fitting(image: Image, cluster: Cluster, requests: Sequence[Sequence[str]]) -> Image:
    """Returns the image with only those of its files that jobs may need; all, as far as it is unknown.

    Args:
        image: the image.
        cluster: the jobs' cluster.
        requests: the options of each job.

    Raises:
        ImageError: nodes that a job may get cannot start it.
    """
    nodes = wanted(cluster, requests)
    if not nodes or not image.arch:
        return image
    if missing := nodes.difference(each.arch for each in image.all):
        queues = [queue for options in requests for queue in backend_of(cluster).asked(options).queues]
        raise foreign(image, cluster, min(missing), queues)
    return Image.of(*(each for each in image.all if each.arch in nodes))


def must_suit(image: Image, cluster: Cluster) -> None:
    """Raises ImageError if no node of a cluster can start an image, as far as the settings tell."""
    nodes = {cluster.arch.get("*", "any"), *cluster.arch.values()}
    if cluster.here:
        nodes = {*architectures(cluster, ())}
    if image.arch and not nodes.intersection((image.arch, "any")):
        raise foreign(image, cluster, min(nodes), ())


def foreign(image: Image, cluster: Cluster, nodes: str, queues: Sequence[str]) -> ImageError:
    """Returns the error for an image that a cluster's nodes cannot start.

    Args:
        image: the image.
        cluster: the cluster.
        nodes: the architecture of the nodes.
        queues: those that the jobs name.
    """
    where = [name for name in dict.fromkeys(queues) if cluster.arch.get(name, cluster.arch.get("*")) == nodes]
    which = "this machine is" if cluster.here else f"the nodes of {', '.join(where) or cluster.name} are"
    have = " and ".join(each.arch for each in image.all)
    there = f" --cluster {cluster.name}" + (f" --partition {where[0]}" if where else "")
    return ImageError(
        f"the image {image.digest[:12]} is for {have}, and {which} {nodes}",
        hint=cluster.runtime.make_image
        or f"`clusterkit build{'' if cluster.here else there}` builds one for them",
    )
