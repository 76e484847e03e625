"""Makes images with Apptainer: from the trainer's definition, from one's own, or from an image of Docker's.

    work = prepare(request, here=True)
    apptainer.build(work, output, say=print)        # on this machine
    job.render(work, ...)                           # the same as a job script

`packages` says what changed from one build to the next, `advice` what a build's last words mean.
"""
