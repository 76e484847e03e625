"""The image store on a cluster: `images/sha256-<digest>.sif`, named by content.

    wanted = local_image(path, ledger)
    todo = plan(site, path, wanted, cache=cache)
    upload(site, path, wanted, todo, cache=cache, bar=bar)

An image that exists on the cluster is never sent again, a similar one is sent as a delta, and an interrupted
upload resumes. docs/images.md explains how.
"""
