"""`python -m trainer check`: does this machine, or this image, have all that a run needs?

Each line names what was found. What is missing is a line with the word FAILED and what to do about it, and
the exit code is 1: a job that fails here fails in a minute, not after a night in the queue.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

from trainer.arguments import Parser
from trainer.errors import TrainerError
from trainer.machine.processors import usable_processors

LEAST_SHARED_MEMORY = 64 << 20
"""Bytes of /dev/shm: the environments' shared block takes a fraction of this."""

_REBUILD = "rebuild the image, or without one install the extra `train` of clusterkit-rl for this Python"
_PINNED = {"metaworld": "3.1.1", "mujoco": "3.3.0"}


@dataclass(frozen=True)
class CheckFinding:
    """The result of one check.

    Attributes:
        name: what was looked at.
        works: whether it is as a run needs it.
        text: what was found, or what is wrong; one line.
        hint: what to do if it does not work.
        facts: the numbers behind the text.
    """

    name: str
    works: bool
    text: str
    hint: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Returns the line for a person, with a second one if something is to be done."""
        if self.works:
            return f"[check] {self.name} {self.text}"
        return f"[check] FAILED {self.name}: {self.text}\n[check]        {self.hint}"


def main(argv: Sequence[str]) -> int:
    """Runs all checks and prints a line for each; returns the exit code.

    Raises:
        UsageError: an unknown argument.
    """
    parser = Parser(prog="python -m trainer check", description="Check what a training run needs.")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="cuda: fail without a GPU (auto)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    given = parser.read(argv)
    findings: list[CheckFinding] = []
    for check in checks(given.device):
        findings.append(check())
        if not given.json:
            sys.stdout.write(findings[-1].line() + "\n")
            sys.stdout.flush()
    failed = [finding.name for finding in findings if not finding.works]
    if given.json:
        report = {"works": not failed, "checks": [asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    elif failed:
        sys.stdout.write(f"[check] {len(failed)} of {len(findings)} checks FAILED: {', '.join(failed)}\n")
    else:
        sys.stdout.write(f"[check] all {len(findings)} checks passed\n")
    return 1 if failed else 0


def checks(device: str) -> list[Callable[[], CheckFinding]]:
    """Returns the checks in the order they run; none of them raises."""
    return [
        _guarded("Python", _python),
        _guarded("PyTorch", _torch),
        _guarded("device", lambda: _device(device)),
        _guarded("Meta-World", _metaworld),
        _guarded("MT10 tasks", _tasks),
        _guarded("environment", _environment),
        _guarded("rendering", _rendering),
        _guarded("W&B", _wandb),
        _guarded("shared memory", _shared_memory),
        _guarded("CPUs", _processors),
    ]


def _guarded(name: str, check: Callable[[], CheckFinding]) -> Callable[[], CheckFinding]:
    """Turns whatever a broken installation raises into a finding: the report must go on."""

    def run() -> CheckFinding:
        try:
            return check()
        except Exception as fault:
            if isinstance(fault, TrainerError):
                return CheckFinding(name, False, fault.cause, fault.hint or "")
            return CheckFinding(name, False, " ".join(f"{type(fault).__name__}: {fault}".split()), _REBUILD)

    return run


def _python() -> CheckFinding:
    version = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    facts = {"version": version, "executable": sys.executable}
    return CheckFinding("Python", fits, version, "Python 3.11 to 3.13 is needed: use another image", facts)


def _torch() -> CheckFinding:
    import torch

    facts = {"version": torch.__version__, "cuda": torch.version.cuda}
    return CheckFinding("PyTorch", True, torch.__version__, facts=facts)


def _device(wanted: str) -> CheckFinding:
    import torch

    from trainer.machine import device

    chosen = device.configure(wanted)
    facts = device.describe(chosen)
    ones = torch.ones(256, 256, device=chosen)
    computes = bool((ones @ ones == 256).all())
    hint = "a matrix product came out wrong on this device: report the node to its administrators"
    if chosen.type == "cpu":
        why = "" if wanted == "cpu" else " (no GPU is visible)"
        return CheckFinding("CPU", computes, facts["name"] + why, hint, facts)
    free, total = torch.cuda.mem_get_info(chosen)
    facts["memory_free_bytes"] = free
    text = f"{facts['name']}, compute capability {facts['capability']}"
    text += f", ROCm {facts['hip']}" if facts["hip"] else f", CUDA {facts['cuda']}"
    return CheckFinding(
        "CUDA device", computes, f"{text}, memory {_gib(total)} ({_gib(free)} free)", hint, facts
    )


def _metaworld() -> CheckFinding:
    import metaworld  # noqa: F401

    versions = {name: metadata.version(name) for name in ("metaworld", "mujoco", "gymnasium", "numpy")}
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "metaworld")
    fits = all(versions[name] == version for name, version in _PINNED.items())
    pinned = " and ".join(f"{name} {version}" for name, version in _PINNED.items())
    hint = f"results depend on {pinned}: {_REBUILD}"
    return CheckFinding("Meta-World", fits, f"{versions['metaworld']} ({text})", hint, versions)


def _tasks() -> CheckFinding:
    from metaworld.env_dict import MT10_V3

    from trainer.recipe import task_names

    tasks = tuple(MT10_V3)
    return CheckFinding(
        "MT10 tasks", tasks == task_names("MT10"), str(len(tasks)), _REBUILD, {"tasks": tasks}
    )


def _environment() -> CheckFinding:
    import numpy as np

    from trainer.envs.metaworld import MetaworldFactory

    env = MetaworldFactory(("reach-v3",), goals_per_task=1)(0)
    env.reset(0)
    observation, reward, _ = env.step(np.zeros(4, np.float32))
    env.close()
    fits = observation.shape == (39,) and bool(np.isfinite(observation).all()) and 0 <= reward <= 10
    text = f"reach-v3 takes a step: {observation.size} observations, reward {reward:.2f}"
    return CheckFinding("environment", fits, text, _REBUILD, {"reward": reward})


def _rendering() -> CheckFinding:
    from trainer.camera.rendering import INSTALL_HINT, probe_all

    probes = probe_all()
    last = probes[-1]
    text = f"by {last.backend}, a frame of {last.size[0]}x{last.size[1]}"
    if not last.works:
        text = "; ".join(f"{probe.backend}: {probe.fault or 'the frame is empty'}" for probe in probes)
    facts = {"probes": [asdict(probe) for probe in probes]}
    return CheckFinding("rendering", last.works, text, INSTALL_HINT, facts)


def _wandb() -> CheckFinding:
    import wandb

    return CheckFinding("W&B", True, wandb.__version__, facts={"version": wandb.__version__})


def _shared_memory() -> CheckFinding:
    if sys.platform == "darwin":  # whose shared memory is no file system with a size of its own
        return CheckFinding("shared memory", True, "has no limit of its own on macOS")
    usage = shutil.disk_usage("/dev/shm")  # noqa: S108 - the file system itself, not a file in it
    text = f"of {_gib(usage.total)} ({_gib(usage.free)} free)"
    hint = "give the container more of it, e.g. docker's --shm-size=1g; apptainer uses the node's"
    facts = {"free_bytes": usage.free, "total_bytes": usage.total}
    return CheckFinding("shared memory", usage.free >= LEAST_SHARED_MEMORY, text, hint, facts)


def _processors() -> CheckFinding:
    count = os.cpu_count() or 1
    usable = usable_processors()
    return CheckFinding("CPUs", True, f"{usable} usable of {count}", facts={"usable": usable, "all": count})


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
