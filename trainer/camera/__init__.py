"""Pictures of environments: rendering, filming, and files of video."""
