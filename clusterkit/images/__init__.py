"""The image store on a cluster: `images/sha256-<digest>.sif`, named by content.

    wanted = local_image(path, ledger)
    todo = plan(site, path, wanted, cache=cache)
    upload(site, path, wanted, todo, cache=cache, bar=bar)

An image that is there is never sent again, one that is like another there travels as what is new of it, and
an upload that broke off goes on where it was. docs/images.md explains how.
"""

from clusterkit.images.image import Image, local_image
from clusterkit.images.planning import UploadPlan, Way, inquiry, plan, present
from clusterkit.images.upload import Sent, upload

__all__ = ["Image", "Sent", "UploadPlan", "Way", "inquiry", "local_image", "plan", "present", "upload"]
