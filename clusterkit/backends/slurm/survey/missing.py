"""Requirements that the survey did not find, with a remedy for each. Pure."""

from __future__ import annotations

from clusterkit.backends.slurm.survey.gpus import Offer
from clusterkit.backends.slurm.survey.parse import SlurmSurvey
from clusterkit.backends.survey import FoundRuntime, Missing, Root
from clusterkit.ownership import trust_line
from clusterkit.runtimes import all_runtimes, runtime_of

_AGAIN = "into ~/.bash_profile there, and run this command again"


def missing(
    survey: SlurmSurvey, types: tuple[Offer, ...], runtime: FoundRuntime | None, container: str | None
) -> tuple[Missing, ...]:
    """Returns all missing requirements.

    Args:
        survey: the site's survey.
        types: GPU types that the user may request.
        runtime: the container runtime found, if any.
        container: the runtime to use, or `none`.
    """
    faults = [_slurm(survey), _gpus(survey, types), _runtime(survey, runtime, container), _folder(survey)]
    return tuple(filter(None, [*faults, *map(_others, survey.roots)]))


def no_slurm(survey: SlurmSurvey) -> Missing:
    """Returns what is missing at a site without Slurm."""
    modules = [name for name in survey.modules if "slurm" in name.lower()]
    line = f"module load {modules[0]}" if modules else "export PATH=/where/slurm/is/bin:$PATH"
    return Missing(
        "Slurm was not found: sbatch is neither on PATH nor in a usual place",
        f"is this the login node? If so, put `{line}` {_AGAIN}",
    )


def _slurm(survey: SlurmSurvey) -> Missing | None:
    if survey.slurm is None:
        return no_slurm(survey)
    if survey.slurm_path is not None:
        return Missing(
            f"Slurm is in {survey.slurm_path}, which is not on PATH, not even in a login shell",
            f"put `export PATH={survey.slurm_path}:$PATH` {_AGAIN}",
        )
    if not survey.slurm.partitions:
        return Missing(
            "Slurm was found but shows no partition", "check `sinfo` there, then run this command again"
        )
    return None


def _gpus(survey: SlurmSurvey, types: tuple[Offer, ...]) -> Missing | None:
    if types or survey.slurm is None or not survey.slurm.partitions:
        return None
    theirs = [row.name for row in survey.slurm.partitions if row.has_gpus]
    if theirs:
        return Missing(
            f"there are GPUs in {', '.join(theirs[:6])}, but you cannot submit there now",
            "those partitions are down, or closed to your groups and accounts: ask the site, then run "
            "this command again",
        )
    return Missing(
        "no partition shows a GPU (`sinfo -o '%P %G'`)",
        "profiles without a GPU work; if the site has GPUs anyway, add [clusters.NAME.gpus.TYPE]",
    )


def _runtime(survey: SlurmSurvey, runtime: FoundRuntime | None, container: str | None) -> Missing | None:
    if container is not None and not runtime_of(container).survey:
        return None
    if runtime is None:
        modules = [name for name in survey.modules if "slurm" not in name.lower()]
        if modules:
            return Missing(
                f"no container runtime is on PATH; modules that may have one: {', '.join(modules[:6])}",
                'set `prelude = ["module load NAME"]`, preceded by the modules it needs, and `container`',
            )
        unseen = [each.unseen for each in all_runtimes() if each.unseen]
        known = [each.title for each in all_runtimes() if each.survey]
        return Missing(
            f"no {container or ' and no '.join(known)} was found on the login node",
            "; ".join(["ask the site: on some, only compute nodes have it and all is well", *unseen]),
        )
    if runtime.setuid is False and survey.user_namespaces is False:
        return Missing(
            f"{runtime.name} is not setuid, and the login node does not allow user namespaces",
            "compute nodes may allow it: submit one of the profiles that begin with `check` to find out",
        )
    return None


def _folder(survey: SlurmSurvey) -> Missing | None:
    if any(root.writable for root in survey.roots):
        return None
    return Missing("no writable folder was found", "set `root` to one that login and compute nodes share")


def _others(root: Root) -> Missing | None:
    if not root.faults or not root.writable:
        return None
    line = trust_line(root.faults)
    return Missing(
        f"{root.path} is left out because others could run code as you there: {root.faults[0].text}",
        f"if you trust them with your account, set `root` to a folder in it and {line}"
        if line
        else "ask its owner to remove other users' write permission",
    )
