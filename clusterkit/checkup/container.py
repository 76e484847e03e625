"""Judges the program's environment: the container or, without one, the node's Python. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from clusterkit.backends.checks import CheckPlace, Checks, Scope, Verdict, failed, passed, skipped, warned
from clusterkit.checkup.node import Node
from clusterkit.resources import trainer_packages
from clusterkit.units import format_bytes
from clusterkit.untrusted import parse_object

_OWN = "your own program may not need it"


CHECKS = Checks[Node](CheckPlace.CONTAINER, "container", of_profile=True)


@CHECKS.declare(
    "runtime",
    "architecture",
    "image-visible",
    part="inside",
    cure="run doctor again; starting the container took the job's two minutes",
)
def container(node: Node) -> Verdict:
    """Judges whether the container starts and its interpreter runs."""
    if node.inside:
        what = " in the container" if node.cluster.contained else ""
        return passed(f"Python {node.inside['python']}{what}")
    part = node.answer["inside"]
    python = f"`python` of {node.table}"
    if not node.cluster.contained:
        return failed(f"{node.cluster.interpreter} on {node.name}: {part.last}", f"set {python}")
    return failed(part.last, f"set {python} to the image's, or rebuild the image: clusterkit build")


@CHECKS.declare()
def temporary(node: Node) -> Verdict:
    """Judges whether temporary files can be written in the attempt's scratch."""
    report = _report(node, "temporary")
    if "fault" in report:
        return failed(report["fault"], f"set `scratch` of {node.table} to a folder with free space")
    return passed(str(report.get("folder", "")))


@CHECKS.declare(applies=Scope.with_environment)
def environment(node: Node) -> Verdict:
    """Judges whether Python, or conda, can build an environment, and whether packages can be fetched."""
    report, file = _report(node, "installers"), node.environment
    if missing := report.get("missing"):
        where = f"the image of {node.table}" if node.cluster.contained else node.name
        return failed(f"it is built with {', '.join(missing)}, not there", f"install it in {where}")
    if file.endswith((".yml", ".yaml")):
        if not report.get("conda"):
            return failed(
                f"{file} needs conda, mamba or micromamba", f"load one in `prelude` of {node.table}"
            )
        tool = str(report["conda"])
    elif not report.get("venv") or not (report.get("ensurepip") or report.get("pip")):
        return failed("its Python has no venv, or neither ensurepip nor pip", f"set `python` of {node.table}")
    else:
        tool = "venv and pip"
    if node.cluster.packages == "node" and node.answer["internet"].status != 0:
        cure = f'packages = "login" in {node.table}, or "laptop", unless pip is configured for an index here'
        return warned(f"by {tool}; {node.name} cannot reach {node.server}", cure)
    return passed(f"{file}, by {tool}")


@CHECKS.declare(applies=Scope.with_torch)
def torch(node: Node) -> Verdict:
    """Judges whether PyTorch imports, with its version and CUDA."""
    report = _report(node, "torch")
    if "fault" in report:
        return _missing(node, report["fault"])
    if report.get("hip"):
        return passed(f"{report['version']}, ROCm {report['hip']}")
    return passed(f"{report['version']}, CUDA {report['cuda'] or 'none'}")


@CHECKS.declare("torch", "gpu", applies=Scope.computes_on_gpu)
def cuda(node: Node) -> Verdict:
    """Judges whether a matrix product works on the GPU."""
    report = _report(node, "torch")
    if report.get("available"):
        return passed(f"computes on {report['device']}")
    if not report.get("cuda") and not report.get("hip"):
        text = f"PyTorch {report['version']} is built without CUDA"
        if not node.trains:
            return warned(
                f"{text}; {_OWN}", "use an image with a CUDA build of PyTorch if your program needs it"
            )
        return failed(text, "clusterkit build, with a CUDA build of PyTorch")
    return failed(
        report.get("why") or "no GPU", "see `driver` and `gpu` above; nv needs the node's NVIDIA libraries"
    )


@CHECKS.declare(applies=Scope.with_mujoco)
def rendering(node: Node) -> Verdict:
    """Judges whether a small scene can be rendered."""
    report = _report(node, "rendering")
    backend, faults = report.get("backend"), report.get("faults") or {}
    wanted = node.profile.mujoco_gl
    if not backend:
        why = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        return (
            _missing(node, why)
            if not node.trains
            else warned(why, "videos need libegl1 or libosmesa6 in the image")
        )
    if wanted and backend != wanted:
        cure = f'mujoco_gl = "{backend}" in [profiles.{node.profile.name}]'
        return warned(f"{wanted} does not render ({faults.get(wanted)}); {backend} does", cure)
    return passed(f"by {backend}, MuJoCo {report['version']}")


@CHECKS.declare(applies=Scope.with_wandb)
def wandb(node: Node) -> Verdict:
    """Judges whether the W&B client imports, with its version."""
    report = _report(node, "wandb")
    return _missing(node, report["fault"]) if "fault" in report else passed(str(report["version"]))


def _report(node: Node, name: str) -> dict[str, Any]:
    report = node.inside.get(name)
    return report if isinstance(report, dict) else {"fault": "it was not tested"}


def _missing(node: Node, fault: str) -> Verdict:
    """Returns the verdict for a module that only the bundled trainer needs."""
    if not node.trains:
        return skipped(f"{_OWN}: {fault}")
    if not node.cluster.contained:
        return failed(fault, f"{node.cluster.interpreter} -m pip install {shlex.join(trainer_packages())}")
    return failed(fault, f"clusterkit build, clusterkit deploy --cluster {node.cluster.name}")


@CHECKS.declare(applies=Scope.of_several_nodes)
def nodes(node: Node) -> Verdict:
    """Judges whether the nodes of a run reach each other, by which interface and how fast."""
    part = node.answer["nodes"]
    measured = _measured(part.lines)
    if part.status == 0 and measured:
        speed = f"{format_bytes(int(measured['bytes_per_second']))}/s, {1000 * measured['seconds']:.2f} ms"
        return passed(f"{measured['address']} through {measured['interface']}: {speed}")
    faults = [line.partition("[clusterkit] ")[2] for line in part.lines if "the nodes cannot meet" in line]
    cure = f'interface = "..." in {node.table}: a network that joins all nodes'
    return failed(faults[0] if faults else part.last or "they did not answer in time", cure)


def _measured(lines: Sequence[str]) -> dict[str, Any]:
    """Returns the measurement among lines; empty without one."""
    documents = (parse_object(line) for line in lines if line.startswith('{"seconds": '))
    return next(filter(None, documents), {})
