"""Python environments on a cluster: `environments/<digest>/`, named by what they are made of.

    environment = read_environment(project, file, image)     what the project's lock asks for
    publish(site, environment)                               the place on the cluster, with all that it needs
                                                             (templates/environment.sh builds it there, once)

The first job that needs an environment builds it. docs/environments.md explains how.
"""
