"""Makes images with Apptainer: from the trainer's definition, from one's own, or from an image of Docker's.

    work = prepare(request, here=True)
    apptainer.build(work, output, say=print)        # on this machine
    RemoteBuild(site, work, options, say=print)     # on a cluster, by the script of `job`

`packages` says what changed from one build to the next, `advice` what a build's last words mean.
"""
