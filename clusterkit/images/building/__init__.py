"""Builds images with Apptainer: from the trainer's definition, the user's own, or a Docker image.

    work = prepare(request, here=True)
    local.build(work, output, say=print)            # on this machine
    RemoteBuild(site, work, options, say=print)     # on a cluster, by the script of `job`

`packages` compares two builds, `advice` explains a failed build's output.
"""
