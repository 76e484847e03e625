"""Locks the image's packages by content: `python containers/lock.py`, after changing what is wanted.

Reads requirements.txt (what is wanted) and ../constraints.txt (which versions), asks pip what that comes to
on Linux for each Python, and writes

    locked.txt         everything but torch
    locked-cuda.txt    torch from PyPI and the CUDA libraries it needs
    locked-cpu.txt     torch without CUDA, from PyTorch's own index

with the SHA-256 of every wheel that fits, as the package indexes state it (pip's "hash-checking mode"). The
standard library and pip are all it needs; of a wheel only its metadata is fetched.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
PYPI = "https://pypi.org/simple"
PYTORCH_CPU = "https://download.pytorch.org/whl/cpu"
NEWEST_GLIBC = 36
"""2.36, of Debian bookworm, the oldest base."""

_CUDA_ONLY = re.compile(r"nvidia-(?!ml-py$).*|cuda-.*|triton")
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<tags>[^-]+-[^-]+-[^-]+)\.whl")
_HEADER = "# Made by `python containers/lock.py` from requirements.txt and constraints.txt. Do not edit.\n"


def resolve(python: str) -> dict[str, str]:
    """The version of each package, by normalised name, that pip takes for a Python on Linux.

    Raises:
        SystemExit: pip finds no solution; its own words are on standard error.
    """
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(NEWEST_GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        argv += ["--no-cache-dir", "--report", str(report), "--target", folder, "--only-binary=:all:"]
        argv += [f"--python-version={python}", *(f"--platform={name}" for name in platforms)]
        argv += ["-r", str(HERE / "requirements.txt"), "-c", str(HERE.parent / "constraints.txt")]
        if subprocess.run(argv, check=False).returncode:
            raise SystemExit(f"pip cannot resolve the image's packages for Python {python}")
        found = json.loads(report.read_text())["install"]
    return {
        normalised(item["metadata"]["name"]): item["metadata"]["version"].partition("+")[0] for item in found
    }


def merge(resolved: dict[str, dict[str, str]]) -> dict[str, str]:
    """One version per package for all Pythons.

    Raises:
        SystemExit: they differ.
    """
    versions: dict[str, str] = {}
    for python, packages in resolved.items():
        for name, version in packages.items():
            if versions.setdefault(name, version) != version:
                raise SystemExit(f"{name} is {versions[name]} or, for Python {python}, {version}: pin it")
    return dict(sorted(versions.items()))


def hashes(index: str, name: str, version: str) -> list[str]:
    """SHA-256 of every wheel of a version for Linux and our Pythons, as a package index states it (PEP 503).

    Raises:
        SystemExit: the index has none.
    """
    with urllib.request.urlopen(f"{index}/{name}/") as page:  # noqa: S310 - a constant or the user's own
        links = _Links()
        links.feed(page.read().decode())
    digests = set()
    for link in links.found:
        path, _, fragment = link.partition("#")
        wheel = _WHEEL.fullmatch(urllib.parse.unquote(path).rsplit("/", 1)[-1])
        if wheel and wheel["version"] == version and fits(wheel["tags"]) and fragment.startswith("sha256="):
            digests.add(fragment.removeprefix("sha256="))
    if not digests:
        raise SystemExit(f"{index} has no wheel of {name} {version} with a SHA-256")
    return sorted(digests)


def fits(tags: str) -> bool:
    """Whether a wheel's tags, `python-abi-platform`, are those of a Python of ours on Linux."""
    python, abi, platform = tags.split("-")
    ours = {f"cp{version.replace('.', '')}" for version in PYTHONS}
    right_python = "py3" in python.split(".") or abi == "abi3" or (python in ours and abi in ours)
    # A `t` in the ABI is a build without the global interpreter lock, and musl is not Debian's C library.
    linux = any("linux" in part and part.endswith(MACHINES) for part in platform.split("."))
    return right_python and (platform == "any" or (linux and "musl" not in platform))


def normalised(name: str) -> str:
    """A package's name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write(path: Path, packages: dict[str, str], indexes: dict[str, str]) -> None:
    """Write one lock file; `indexes` names those packages' index that do not come from PyPI."""
    lines = [_HEADER]
    for name, version in packages.items():
        digests = hashes(indexes.get(name, PYPI), name, version)
        lines.append(
            " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in digests)]) + "\n"
        )
    path.write_text("".join(lines))
    print(f"{path}: {len(packages)} packages")  # noqa: T201 - what the command did


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def main() -> None:
    """Resolve, look the hashes up, write the three files."""
    parser = argparse.ArgumentParser(description="Lock the image's packages with hashes.")
    parser.add_argument("--cpu-index", default=PYTORCH_CPU, help="index with torch's CPU builds")
    cpu_index = parser.parse_args().cpu_index.rstrip("/")
    versions = merge({python: resolve(python) for python in PYTHONS})
    torch = versions.pop("torch")
    cuda = {name: versions.pop(name) for name in list(versions) if _CUDA_ONLY.fullmatch(name)}
    write(HERE / "locked.txt", versions, {})
    write(HERE / "locked-cuda.txt", {"torch": torch, **cuda}, {})
    write(HERE / "locked-cpu.txt", {"torch": f"{torch}+cpu"}, {"torch": cpu_index})


if __name__ == "__main__":
    main()
