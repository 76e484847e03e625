"""Causes: missing modules, libraries, a display, or the internet."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs
from clusterkit.diagnosis.rules.said import by_message, last_words, said

IMPORT_ERROR = Cause(
    "import-error",
    "a Python module is missing where the program runs, or is of another version",
    "add it, in the version that the program needs, to the image (`clusterkit build`), or to the project if "
    "it is your own code",
)
LIBRARY_MISSING = Cause(
    "library-missing",
    "a shared library is missing where the program runs",
    "add the package that contains it to the image",
)
LIBRARY_TOO_OLD = Cause(
    "library-too-old",
    "the program was built for a newer system than the one it runs on",
    "GLIBC: use an image with a newer base, or a build for the older system; GLIBCXX or CXXABI: install "
    "conda-forge's `libstdcxx-ng` and put its folder first in `LD_LIBRARY_PATH`",
)
NO_DISPLAY = Cause(
    "no-display",
    "the node cannot render",
    'set the profile\'s `mujoco_gl`: "egl" needs a GPU, "osmesa" needs its library in the image',
)
NO_INTERNET = Cause(
    "no-internet",
    "the program needed the internet, which the node cannot reach",
    "download it in advance, into the image, the project, or a folder in `binds`",
)
PROCESS_LIMIT = Cause(
    "process-limit",
    "the program reached the node's limit on open files or processes",
    'start fewer processes or threads, or raise the limit in the cluster\'s `prelude`, e.g. "ulimit -n 8192"',
    of_recipe="fewer `workers` need less",
)


def no_internet(evidence: Evidence) -> Finding | None:
    """Names that cannot be resolved, and failed connections."""
    pattern = (
        r"[Tt]emporary failure in name resolution|Name or service not known|Could not resolve host"
        r"|Network is unreachable|Max retries exceeded with url|Failed to establish a new connection"
    )
    found = evidence.line(pattern)
    if found is None or "wandb" in found.text:
        return None
    return said(evidence, NO_INTERNET, pattern, command=logs(evidence))


def import_error(evidence: Evidence) -> Finding | None:
    """Python found no such module, or not what the program wanted of it."""
    found = last_words(evidence, r"ModuleNotFoundError: |ImportError: (?!.*\.so)|No module named ")
    if found is None:
        return None
    line, sure = found
    module, cure = _module(line.text), ""
    python = evidence.line(r"^python=", "script")
    if python and not evidence.about.get("image"):
        install = f"{python.text.partition('=')[2]} -m pip install {module.partition('.')[0] or 'NAME'}"
        cure = (
            "install its package, which may have another name, for the Python that runs the program, "
            f"`{install}`, or name it in the file that `environment` of [project] names; or add it to the "
            "project if it is your own code"
        )
    return IMPORT_ERROR.found(line, command=logs(evidence), detail=module, cure=cure, sure=sure)


def _module(text: str) -> str:
    name = re.search(r"No module named '?([\w.]+)", text)
    return name[1] if name else ""


def _version(text: str) -> str:
    version = re.search(r"version [`'](\S+)' not found(?: \(required by (.+?)\))?", text)
    return " for ".join(filter(None, version.groups())) if version else ""


RULES = (
    by_message(
        NO_DISPLAY,
        r"gladLoadGL error|Cannot initialize a EGL|eglInitialize"
        r"|an OpenGL platform library has not been loaded"
        r"|OSMesa library|has no attribute 'glGetError'"
        r"|X11: The DISPLAY environment variable is missing|GLFWError|nothing can be rendered here",
        command=logs,
    ),
    import_error,
    by_message(
        LIBRARY_MISSING,
        r"cannot open shared object file|error while loading shared libraries",
        command=logs,
    ),
    by_message(
        LIBRARY_TOO_OLD,
        r"version [`']\S+' not found",
        detail=_version,
        command=logs,
    ),
    by_message(
        PROCESS_LIMIT,
        r"Too many open files|can't start new thread|fork: .*[Rr]esource temporarily unavailable",
        command=logs,
    ),
    no_internet,
)
