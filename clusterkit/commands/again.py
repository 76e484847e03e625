"""The words behind `submit` that ask for a run once more. Pure."""

from __future__ import annotations

from clusterkit.commands.prepare import Request


def words_of(request: Request) -> list[str]:
    """What a person types behind `clusterkit submit` for the same run; what it waited for is left out."""
    words = ["--cluster", request.cluster.name, "--profile", request.profile.name]
    if request.name is not None:
        words += ["--name", request.name]
    if request.seed is not None:
        words += ["--seed", str(request.seed)]
    words += request.given
    for name, value in request.overrides.items():
        words += ["--set", f"{name}={value}"]
    for name in request.unlock:
        words += ["--unlock", name]
    for option in request.sbatch:
        words += ["--sbatch", option]
    if request.until_done is not None:
        words.append("--until-done" if request.until_done else "--not-until-done")
    if request.verify_image:
        words.append("--verify-image")
    return [*words, "--", *request.arguments] if request.arguments else words
