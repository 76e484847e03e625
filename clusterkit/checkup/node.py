"""Judges a compute node. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clusterkit import ownership
from clusterkit.backends.base import backend_of
from clusterkit.backends.checks import (
    Answer,
    Check,
    CheckPlace,
    Checks,
    Scope,
    Verdict,
    failed,
    passed,
    shortlist,
    skipped,
    warned,
)
from clusterkit.checkup.login import skew
from clusterkit.diagnosis.rules.gpu import GPU_REFUSED
from clusterkit.images.architecture import foreign
from clusterkit.images.image import Image
from clusterkit.units import format_bytes, plural
from clusterkit.untrusted import decimal, ordinal, parse_object

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile

SHARED_MEMORY = 64 << 20
"""Bytes that the environments' shared block needs; `trainer check` requires as much."""
_PER_WORKER = 16 << 20
_NOT_FOUND = 127
"""Exit status of a shell that cannot find a program."""
_LATE = 60.0
"""Seconds."""
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""By major version of CUDA: docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility."""
_PRELUDE_CURE = "remove `exit`, and commands that wait, from `prelude` of {table}"
_IMAGE_CURE = "set `image_store` of {table} to a folder that the nodes can see"
_STEPS = ("scratch", "shm", "prelude", "binds", "nvidia-smi", "internet", "runtime", "image", "inside")
"""The parts of the answer that checks need, in the job's order."""


@dataclass(frozen=True)
class Node:
    """A node's answer, including its container."""

    cluster: Cluster
    profile: Profile
    answer: Answer
    image: Image | None
    seen: float
    """The login node's clock when it saw the answer, Unix seconds."""
    trains: bool
    """Whether the bundled trainer runs."""
    online: bool
    """Whether the node must reach W&B."""
    server: str
    """The host that the node tried to reach."""
    environment: str = ""
    """Name of the file of the project's Python environment; empty without one."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.answer["about"].value("host")

    @property
    def started(self) -> Image:
        """The image for its architecture, or another one if there is none."""
        assert self.image is not None
        machine = self.answer["about"].value("machine")
        return next((each for each in self.image.all if each.arch == machine), self.image)

    @property
    def table(self) -> str:
        """The settings' table, for cures."""
        return f"[clusters.{self.cluster.name}]"

    @property
    def ended_in(self) -> str:
        """The first part that the job did not answer; empty if it answered all."""
        if "prelude" in self.answer and self.answer["prelude"].status != 0:
            return "prelude"
        given = {"prelude": bool(self.cluster.prelude), "nvidia-smi": "devices" in self.answer}
        return next((part for part in _STEPS if part not in self.answer and given.get(part, True)), "")

    @cached_property
    def inside(self) -> dict[str, Any]:
        """The answer from inside the container; empty if it did not run."""
        last = next((line for line in reversed(self.answer["inside"].lines) if line.startswith("{")), "")
        return parse_object(last) or {}


def as_far_as_it_came(checks: Sequence[Check[Node]]) -> tuple[Check[Node], ...]:
    """Returns the same checks for a job that may have been killed: what it did not reach is skipped."""
    names = {check.part: check.name for check in checks}

    def careful(check: Check[Node]) -> Check[Node]:
        def judge(node: Node) -> Verdict:
            if node.answer.whole or not check.part or check.part in node.answer:
                return check.judge(node)
            if check.part != node.ended_in:
                return skipped(f"the job ended earlier, in {names[node.ended_in]}")
            return failed("the job did not finish it", check.cure.format(table=node.table))

        return replace(check, judge=judge)

    return tuple(map(careful, checks))


CHECKS = Checks[Node](CheckPlace.NODE, "root-shared", of_profile=True)


@CHECKS.declare(
    applies=lambda scope: bool(scope.cluster.prelude),
    part="prelude",
    cure=_PRELUDE_CURE,
)
def prelude(node: Node) -> Verdict:
    """Judges whether every line of the prelude works."""
    fails = node.answer["prelude"].lines
    if not fails:
        return passed(f"{plural(len(node.cluster.prelude), 'line')} ran")
    said = node.answer["prelude-said"].lines
    if node.answer["prelude"].status != 0:
        ended = fails[-1] + (f": {said[-1].strip()}" if said else "")
        return failed(ended, _PRELUDE_CURE.format(table=node.table))
    text = fails[0] + (f": {said[-1].strip()}" if said else "")
    cure = f"correct `prelude` of {node.table}"
    found = not node.cluster.contained or node.answer["runtime"].status == 0
    if node.cluster.strict_prelude or not found or fails[0].endswith("status 127"):
        return failed(text, cure)
    return warned(text, cure)


@CHECKS.declare(
    applies=Scope.contained,
    part="runtime",
    cure="correct `prelude` of {table}",
)
def runtime(node: Node) -> Verdict:
    """Judges whether the runtime is on PATH after the prelude."""
    part = node.answer["runtime"]
    if part.status == 0:
        return passed(part.lines[-1] if part.lines else node.cluster.container)
    return failed(*node.cluster.runtime.missing(node.name, node.table))


@CHECKS.declare("root-shared", "image-there", applies=Scope.stores_image)
def architecture(node: Node) -> Verdict:
    """Judges whether the image's programs are for the node's processors."""
    machine, arch = node.answer["about"].value("machine"), node.started.arch
    if arch and machine and arch != machine:
        error = foreign(node.started, node.cluster, machine, ())
        return failed(error.cause, error.hint or "")
    return passed(machine or "it does not tell")


@CHECKS.declare(
    "root-shared",
    "image-there",
    applies=lambda scope: scope.queued() and scope.stores_image(),
    part="image",
    cure=_IMAGE_CURE,
)
def image_visible(node: Node) -> Verdict:
    """Judges whether the node sees the same image as the login node."""
    part = node.answer["image"]
    size = part.text.split()[4:5]
    if part.status == 0 and size == [str(node.started.bytes)]:
        return passed(f"{format_bytes(node.started.bytes)}")
    return failed(
        f"{node.name}: {part.last}"
        if part.status
        else f"{node.name} sees {size[0] if size else 0} bytes of it",
        _IMAGE_CURE.format(table=node.table),
    )


@CHECKS.declare(
    part="scratch",
    cure="set `scratch` of {table} to a folder that responds",
)
def scratch(node: Node) -> Verdict:
    """Judges whether scratch is writable, with enough space by df."""
    part = node.answer["scratch"]
    where = node.answer["about"].value("scratch")
    if faults := ownership.parse(node.answer["owners"].text):
        return failed(f"{node.name}: {faults[0].text}", ownership.cure(faults, "", node.table))
    if part.status != 0:
        return failed(
            f"{node.name}: {part.last}", f"set `scratch` of {node.table} to a folder you can write to there"
        )
    kilobytes = next(map(ordinal, part.text.split()[-3:-2]), None)
    free = None if kilobytes is None else kilobytes << 10
    if free is None:
        return passed(f"{where} can be written to")
    text = f"{format_bytes(free)} free in {where} on {node.name}"
    wanted = node.profile.scratch
    if wanted is not None and free < wanted:
        return failed(
            f"{text}, {format_bytes(wanted)} requested", f"set `scratch` of {node.table} to a larger disk"
        )
    return passed(text)


@CHECKS.declare(
    applies=lambda scope: bool(scope.cluster.binds),
    part="binds",
    cure="correct `binds` of {table}",
)
def binds(node: Node) -> Verdict:
    """Judges whether the sources of all binds exist."""
    missing = node.answer["binds"].lines
    if missing:
        return failed(f"not on {node.name}: {shortlist(missing)}", f"correct `binds` of {node.table}")
    return passed(f"{len(node.cluster.binds)} there")


@CHECKS.declare(
    applies=Scope.of_gpu,
    part="nvidia-smi",
    cure="report the node to its administrators",
)
def gpu(node: Node) -> Verdict:
    """Judges whether nvidia-smi shows the GPUs; of AMD's, whether the user may open their device."""
    devices = re.findall(r"^nvidia\d+$", node.answer["devices"].text, re.MULTILINE)
    part = node.answer["nvidia-smi"]
    if "kfd" in node.answer and "kfd" in node.answer["devices"].lines:
        if node.answer["kfd"].status == 0:
            return passed(f"{node.name} has GPUs of AMD")
        return failed(f"you may not open /dev/kfd on {node.name}", GPU_REFUSED.cure)
    if part.status == 0 and part.lines:
        return passed(f"{len(part.lines)} on {node.name}: {part.lines[0]}")
    if not devices:
        cure = f"check `request` of [clusters.{node.cluster.name}.gpus.{node.profile.gpu}]"
        if node.cluster.here:
            cure = "use a profile without a GPU, such as local-demo, or --cluster NAME for one that has a GPU"
        return failed(f"{node.name} has no GPU", cure)
    why = "is not there" if part.status == _NOT_FOUND else f"does not work: {part.last}"
    text = f"{node.name} has {plural(len(devices), 'GPU')}, and nvidia-smi {why}"
    if (node.inside.get("torch") or {}).get("available"):
        return warned(text, "nothing to do: PyTorch computes on it")
    leave_out = backend_of(node.cluster).without_node("...")
    cure = "report the node to its administrators" + (f", and leave it out: {leave_out}" if leave_out else "")
    return failed(text, cure)


@CHECKS.declare("root-shared", "gpu", applies=Scope.of_nvidia)
def driver(node: Node) -> Verdict:
    """Judges whether the driver supports the CUDA version of the image's PyTorch."""
    match = re.search(r"([0-9]{1,6})(?:\.[0-9]+)+\s*$", node.answer["nvidia-smi"].text)
    if match is None:
        return warned("nvidia-smi reports no driver version", "nvidia-smi")
    version = match[0].strip()
    cuda = (node.inside.get("torch") or {}).get("cuda")
    if not cuda:
        return passed(f"driver {version}; the image names no CUDA")
    oldest = OLDEST_DRIVER.get(int(str(cuda).partition(".")[0]))
    if oldest is not None and int(match[1]) < oldest:
        cure = (
            "use an image with a PyTorch for an older CUDA (clusterkit build), or nodes with a newer driver"
        )
        return failed(
            f"driver {version} on {node.name}, CUDA {cuda} of the image needs {oldest} or newer", cure
        )
    return passed(f"driver {version}, CUDA {cuda} in the image")


@CHECKS.declare(
    "root-shared",
    "gpu",
    applies=lambda scope: scope.of_nvidia() and scope.cluster.mps and scope.arrays,
)
def mps(node: Node) -> Verdict:
    """Judges whether the MPS command of packs exists; only a pack's log tells if the site permits it."""
    part = node.answer["mps"]
    if part.status == 0 and part.lines:
        return passed(part.lines[0])
    text = f"{node.name} has no nvidia-cuda-mps-control on PATH: the runs of a pack take turns on the GPU"
    return warned(text, f"add what provides it to `prelude` of {node.table}, or remove `mps`")


@CHECKS.declare(part="shm", cure="look again")
def shared_memory(node: Node) -> Verdict:
    """Judges whether /dev/shm has space for the environments' shared block and the workers."""
    words = node.answer["shm"].text.split()
    free = size << 10 if len(words) > 3 and (size := ordinal(words[-3])) is not None else None
    if free is None:
        return warned(f"{node.name} does not report it", "df /dev/shm")
    wanted = max(SHARED_MEMORY, _PER_WORKER * (node.profile.workers or 0))
    text = f"{format_bytes(free)} free"
    if free < wanted:
        return failed(
            f"{text} on {node.name}, {format_bytes(wanted)} needed",
            "set workers = 0 in the profile, or ask the site for a larger one",
        )
    return passed(text)


@CHECKS.declare(applies=Scope.queued)
def node_clock(node: Node) -> Verdict:
    """Judges whether its clock agrees with the login node's; a shared file system shows answers late."""
    clock = node.answer["clock"].text or node.answer["about"].value("now")
    when = seen if (seen := decimal(clock)) is not None else node.seen
    return skew(clock, min(max(when, node.seen - _LATE), node.seen), "the login node's")


@CHECKS.declare(part="internet", cure="look again")
def internet(node: Node) -> Verdict:
    """Judges whether the node reaches the internet, which only online W&B needs."""
    if node.answer["internet"].status == 0:
        return passed(f"{node.name} reaches {node.server}")
    if node.online:
        return failed(f"{node.name} cannot reach {node.server}", 'mode = "offline" in [project.wandb]')
    return passed("none, and none is needed: W&B is not online")
