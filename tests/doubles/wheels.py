"""Packages made by hand, in a folder that pip takes for its index."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

_BACKEND = """
import os, sys, time, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with open(os.environ["BUILDS"], "a") as log:
        log.write("%d\\n" % os.getppid())
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    if "refuse" in open(os.environ["GO"]).read():
        raise SystemExit(3)
    with zipfile.ZipFile(os.path.join(folder, "slow-1.0-py3-none-any.whl"), "w") as wheel:
        for name in os.listdir("wheel"):
            wheel.writestr(name.replace("+", "/"), open(os.path.join("wheel", name)).read())
    return "slow-1.0-py3-none-any.whl"
"""


def wheel(folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = ()) -> Path:
    """Writes a wheel with one module that knows its version."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in _contents(name, version, requires).items():
            archive.writestr(inside, text)
    return path


def slow_source(folder: Path) -> Path:
    """Writes a source package that writes a line to $BUILDS, and is built once the file $GO is there."""
    folder.mkdir(exist_ok=True)
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n",
        "backend.py": _BACKEND,
    }
    files |= {f"wheel/{name.replace('/', '+')}": text for name, text in _contents("slow", "1.0", ()).items()}
    path = folder / "slow-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"slow-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def digest(path: Path) -> str:
    """The digest of a file as pip writes it."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def index(folder: Path) -> dict[str, str]:
    """Environment variables that let pip use this folder alone, whatever this machine's configuration is."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def _contents(name: str, version: str, requires: Sequence[str]) -> dict[str, str]:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    sums = {inside: hashlib.sha256(text.encode()).digest() for inside, text in files.items()}
    lines = [
        f"{inside},sha256={base64.urlsafe_b64encode(sums[inside]).rstrip(b'=').decode()}," for inside in files
    ]
    return {**files, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,", ""])}
