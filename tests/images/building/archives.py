"""Images as `docker save` writes them, by the standard library, with just enough in them for a shell."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = ("dash", "cat", "chown", "sleep")
LIBRARIES = ("libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")


def docker_archive(path: Path, node_root: Path, files: Mapping[str, str]) -> None:
    """Write an image with a shell and these files, and GREETING in its environment.

    Args:
        path: the archive.
        node_root: a Debian root file system to take the shell from.
        files: text by absolute path.
    """
    layer = _layer(node_root, files)
    layer_id = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "2024-01-01T00:00:00Z",
            "config": {"Env": ["PATH=/usr/bin:/bin", "GREETING=hello from Docker"], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_id}"]},
            "history": [{"created": "2024-01-01T00:00:00Z"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": ["tiny:latest"], "Layers": [f"{layer_id}/layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, f"{layer_id}/layer.tar", layer)
        _add(archive, config_name, config)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _layer(node_root: Path, files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in (
            "usr",
            "usr/bin",
            "usr/lib",
            "tmp",
            "etc",
            "root",
            "dev",
            "proc",
            "sys",
            "var",
            "var/tmp",
        ):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(folder)
        for name, target in (
            ("bin", "usr/bin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib"),
            ("usr/bin/sh", "dash"),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname, link.mode = tarfile.SYMTYPE, target, 0o777
            layer.addfile(link)
        for program in PROGRAMS:
            _add(layer, f"usr/bin/{program}", (node_root / "usr/bin" / program).read_bytes(), 0o755)
        for library in LIBRARIES:
            for found in node_root.glob(f"usr/lib/*/{library}"):
                _add(layer, f"usr/lib/{library}", found.resolve().read_bytes(), 0o755)
        for name, text in files.items():
            _add(layer, name.lstrip("/"), text.encode())
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
