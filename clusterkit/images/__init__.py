"""The image store on a cluster: `images/sha256-<digest>.sif`, named by content.

    wanted = local_image(path, ledger)
    todo = plan(site, path, wanted, cache=cache)
    upload(site, path, wanted, todo, cache=cache, bar=bar)

An image that is there is never sent again, one that is like another there travels as what is new of it, and
an upload that broke off goes on where it was. docs/images.md explains how.
"""
