"""Causes: the GPU is absent, too old, too small or broken."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.backends.story import Topic
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, resume
from clusterkit.diagnosis.rules.said import by_message, said
from clusterkit.runtimes import BUILDER

GPU_OUT_OF_MEMORY = Cause(
    "gpu-out-of-memory",
    "it ran out of GPU memory",
    "use a smaller batch or network, or a larger GPU",
    of_recipe="fewer `num_envs` or a smaller replay buffer need less",
)
DRIVER_TOO_OLD = Cause(
    "driver-too-old",
    "the node's NVIDIA driver is too old for the image's PyTorch",
    "build the image for an older CUDA, or choose nodes with a newer driver",
)
GPU_UNSUPPORTED = Cause(
    "gpu-unsupported",
    "the image's PyTorch does not support the node's GPU",
    "build the image with a PyTorch for this GPU, or request another GPU",
)
GPU_BROKEN = Cause(
    "gpu-broken",
    "the node's GPU has failed",
    f"`resume` on another node (`{NATIVE_OPTION} exclude=NODE`), and tell the administrators",
)
NO_GPU = Cause(
    "no-gpu",
    "the program sees no GPU",
    f"set `gpu` in the profile, which also passes `{'` or `'.join(BUILDER.gpu_options.values())}`; the image "
    "needs a CUDA build of PyTorch, or one for ROCm",
)
GPU_REFUSED = Cause(
    "gpu-refused",
    "the user may not open the node's GPU",
    "ask the site to add you to the group of `/dev/kfd`, which is `render` or `video`",
)
CUDA_ERROR = Cause(
    "cuda-error",
    "a kernel of the program failed on the GPU",
    "set `CUDA_LAUNCH_BLOCKING=1` in the profile's `env` to see the line at fault",
)

GPU_IDLE = Cause(
    "gpu-idle",
    "it runs, but hardly uses its GPU",
    "give it data faster, with more processes and as many `cpus`; run fewer jobs on one node at a time",
    of_recipe="use more `num_envs` and `workers`",
)

_IDLE = 0.3


def gpu_broken(evidence: Evidence) -> Finding | None:
    """Errors that no program causes."""
    pattern = (
        r"uncorrectable ECC|fallen off the bus|NVRM: Xid|Unable to determine the device handle"
        r"|(CUDA|HIP) error: (unspecified launch failure|hardware|device not ready)"
        r"|system not yet initialized|CUDA-capable devices are busy or unavailable"
    )
    return said(
        evidence,
        GPU_BROKEN,
        pattern,
        detail=evidence.state.node or "",
        command=resume(evidence, *evidence.story.elsewhere),
    )


def no_gpu(evidence: Evidence) -> Finding | None:
    """No GPU: not requested, not available in the container, or PyTorch without CUDA."""
    pattern = (
        r"sees no GPU|No (CUDA|HIP) GPUs are available|no (CUDA|ROCm)-capable device|Found no NVIDIA driver"
        r"|hipErrorNoDevice|open /dev/kfd.*No such file"
        r"|Torch not compiled with CUDA enabled|NVIDIA-SMI has failed|CUDA is not available"
        r"|Attempting to deserialize object on a CUDA device but torch.cuda.is_available\(\) is False"
    )
    without = evidence.line(r"this one has none|not compiled with CUDA|PyTorch \S+\+cpu", "log", "stderr")
    unseen = evidence.line(r"Could not find any nv files", "log", "stderr")
    bare, cure = evidence.line(r"^image=", "script", "image") is None, ""
    if bare:  # no image: what is there is the machine and its Python
        cure = (
            "use a profile without a GPU, such as `local-demo`, or a cluster with GPUs; if this machine has "
            "one, install a PyTorch with CUDA"
        )
    if evidence.story.without_gpu:
        detail = "the job requested none"
    elif without:
        detail = f"the PyTorch of {'this Python' if bare else 'the image'} was built without CUDA"
    else:
        detail = ""
    command = "clusterkit build --help" if without and not bare else "clusterkit profiles"
    return said(
        evidence,
        NO_GPU,
        pattern,
        detail=detail,
        cure=cure,
        also=(without or unseen,) if without or unseen else evidence.story.quote(Topic.GPU),
        command=command,
    )


def gpu_idle(evidence: Evidence) -> Finding | None:
    """The heartbeat's samples show an idle GPU: slow environments or, rarely, a small network."""
    beat = evidence.record.heartbeat or {}
    gpu = beat.get("gpu")
    used = gpu.get("utilization") if isinstance(gpu, dict) else None
    training = evidence.state.state is JobState.RUNNING and beat.get("phase") == "train"
    if not training or not isinstance(used, int | float) or used >= _IDLE:
        return None
    cpus = beat.get("cpu_share")
    share = f", processors {cpus:.0%}" if isinstance(cpus, int | float) else ""
    return GPU_IDLE.found(
        Line("heartbeat.json", f"GPU {used:.0%}{share}"),
        detail=f"{used:.0%}{share}",
        command=f"clusterkit top {evidence.subject.run_id}",
        sure=Sure.SEEN,
    )


def _sizes(text: str) -> str:
    """The sizes in PyTorch's message."""
    size = re.search(r"Tried to allocate ([\d.]+ \w+)", text)
    total = re.search(r"total capac?i?ty of ([\d.]+ \w+)|([\d.]+ \w+) total capacity", text)
    shared = re.search(r"Process \d+ has ([\d.]+ \w+) memory in use", text)
    parts = [
        f"it requested another {size[1]}" if size else "",
        f"of {total[1] or total[2]} in all" if total else "",
        f"another process holds {shared[1]}" if shared else "",
    ]
    return ", ".join(part for part in parts if part)


def _newest_cuda(text: str) -> str:
    """The newest CUDA that the driver supports, in PyTorch's message."""
    version = re.search(r"found version (\d+)", text)
    number = int(version[1]) if version else 0
    return f"it supports CUDA up to {number // 1000}.{number % 1000 // 10}" if number else ""


RULES = (
    by_message(
        GPU_OUT_OF_MEMORY,
        r"(CUDA|HIP) out of memory|torch\.(cuda\.)?OutOfMemoryError|(CUDA|HIP) error: out of memory"
        r"|hipErrorOutOfMemory|(CUBLAS|HIPBLAS|CUDNN)_STATUS_ALLOC_FAILED|the device's memory is too small",
        detail=_sizes,
        command=lambda _: "clusterkit profiles",
    ),
    by_message(
        DRIVER_TOO_OLD,
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
        r"|forward compatibility was attempted on non supported HW|unsupported toolchain"
        r"|unsupported display driver",
        detail=_newest_cuda,
        command=lambda _: "clusterkit build --help",
    ),
    by_message(
        GPU_UNSUPPORTED,
        r"no kernel image is available for execution|is not compatible with the current PyTorch"
        r"|hipErrorNoBinaryForGpu|HIP error: invalid device function",
        command=lambda _: "clusterkit build --help",
    ),
    gpu_broken,
    by_message(
        GPU_REFUSED,
        r"/dev/(kfd|dri/\w+)\b.*(Permission denied|Operation not permitted)",
        command=lambda _: "clusterkit doctor",
    ),
    no_gpu,
    by_message(
        CUDA_ERROR,
        r"(CUDA|HIP) error: (device-side assert|an illegal memory access|invalid)"
        r"|(CU|HIP)BLAS_STATUS_(?!ALLOC)\w+|Memory access fault by GPU node",
        also=lambda evidence: evidence.story.quote(Topic.NODE),
        command=logs,
    ),
    gpu_idle,
)
