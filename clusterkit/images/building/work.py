"""Prepares a build: its files and Apptainer's arguments. Renders and reads; runs nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from clusterkit.errors import ConfigError, ImageError
from clusterkit.resources import CONTAINERS
from clusterkit.untrusted import can_be_shown

BOOTSTRAPS = ("docker", "debootstrap", "localimage")
TORCH = ("cuda", "cpu")
TRANSPORTS = ("docker-daemon", "docker-archive", "oci", "oci-archive", "docker")
"""Apptainer's names of the sources of a finished Docker image."""

_DEBIAN_MIRROR = "https://deb.debian.org/debian"
_DEFINITION = "image.def"
_TRANSPORT = re.compile(rf"({'|'.join(TRANSPORTS)}):(?://)?(?P<name>.+)")
_FILE_BASES = ("localimage", "docker-archive", "oci-archive")
_SECTION = re.compile(r"^%(\w+)(.*)$")


@dataclass(frozen=True)
class Request:
    """The image that the user requests."""

    bootstrap: str | None = None
    """How the trainer image starts; None is `docker`."""
    source: str | None = None
    """Its base (a Docker image, a Debian suite, a .sif file), or `TRANSPORT:NAME` for an image to convert."""
    torch: str = "cuda"
    """Which build of torch the trainer image holds."""
    definition: Path | None = None
    """The user's own Apptainer definition, instead of the trainer's."""
    arch: str | None = None
    """Of the images that a registry has under one name, the one for this architecture."""

    @property
    def converted(self) -> tuple[str, str] | None:
        """Transport and name of the finished image to convert."""
        match = _TRANSPORT.fullmatch(self.source or "")
        return (match[1], match["name"]) if match else None


@dataclass(frozen=True)
class Work:
    """One build, to be run in a folder with its files."""

    target: str
    """The argument of `apptainer build IMAGE`: a definition's name, or `docker-archive:FILE`."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Small files by name."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files and folders of this machine, by their name in the folder."""
    folder: Path | None = None
    """Run it in this folder of the user, which has the files already."""
    ours: bool = False
    """Whether it is the trainer's definition, whose result is reproducible."""
    defined: bool = True
    """Whether a definition is used, which needs root inside; a conversion does not."""
    arch: str = ""
    """The architecture to take from a registry, as registries name it; empty for that of the machine."""


def prepare(request: Request, *, here: bool) -> Work:
    """The build of a request.

    Args:
        request: the image.
        here: for this machine, with paths unchanged; otherwise for another, to which files must be sent.

    Raises:
        ConfigError: the request contradicts itself or a definition cannot be used.
        ImageError: a file it names is missing.
    """
    if request.arch and (request.converted or ("",))[0] != "docker":
        raise ConfigError(
            "--arch chooses among the images of a registry, and this one is built",
            hint="use it with --from docker://NAME; or build on such a node: --cluster NAME --partition NAME",
        )
    given = {"--from": request.source, "--bootstrap": request.bootstrap}
    if request.definition is not None:
        for option, value in given.items():
            if value:
                raise ConfigError(
                    f"{option} and --definition exclude each other", hint="leave one of them out"
                )
        return _own_definition(request.definition, here=here)
    if request.converted:
        if request.bootstrap:
            raise ConfigError(
                f"--from {request.source} is a finished image: --bootstrap does not apply to it",
                hint="leave --bootstrap out, or name a base without `transport:`",
            )
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(request.arch or "", request.arch or "")
        return replace(_conversion(*request.converted, here=here), arch=arch)
    texts = {_DEFINITION: _trainer_definition(request, here=here)}
    for name in ("install.sh", "locked.txt", f"locked-{request.torch}.txt"):
        texts[name] = (CONTAINERS / name).read_text()
    base = _base(request)
    files = {base.name: base} if base and not here else {}
    return Work(_DEFINITION, texts, files, ours=True)


def definition_text(request: Request) -> str:
    """The Apptainer definition of a request.

    Raises:
        ConfigError, ImageError: as `prepare`; or the image is only converted and has no definition.
    """
    work = prepare(request, here=True)
    if not work.defined:
        raise ConfigError(f"--from {request.source} is a finished image: no definition is needed for it")
    return work.texts.get(work.target) or Path(work.target).read_text()


def _trainer_definition(request: Request, *, here: bool) -> str:
    import jinja2

    bootstrap = request.bootstrap or "docker"
    for option, value, known in (("bootstrap", bootstrap, BOOTSTRAPS), ("torch", request.torch, TORCH)):
        if value not in known:
            raise ConfigError(f"--{option} {value}: unknown", hint=f"use one of {', '.join(known)}")
    base = _base(request)
    source = request.source
    if base:
        source = str(base) if here else base.name
    if source and not can_be_shown(source):
        raise ConfigError(f"--from {source!r} contains characters that cannot be shown")
    environment = jinja2.Environment(  # noqa: S701 - an Apptainer definition, not HTML
        loader=jinja2.FileSystemLoader(CONTAINERS),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    template = environment.get_template("trainer.def.j2")
    given = {"from": source} if source else {}
    return template.render(bootstrap=bootstrap, mirror=_DEBIAN_MIRROR, torch=request.torch, **given)


def _base(request: Request) -> Path | None:
    """The .sif a trainer image is built on."""
    if request.bootstrap != "localimage":
        return None
    if not request.source:
        raise ConfigError("--bootstrap localimage needs --from IMAGE.sif")
    return _existing(Path(request.source).absolute())


def _conversion(transport: str, name: str, *, here: bool) -> Work:
    if transport == "docker":
        return Work(f"docker://{name}", defined=False)
    if transport == "docker-daemon":  # for another machine it becomes an archive: see `daemon_image`
        return Work(f"docker-daemon:{tagged(name)}", defined=False)
    path, tag = Path(name), ""
    if not path.exists() and ":" in name:
        text, _, tag = name.rpartition(":")
        path = Path(text)
    path = _existing(path.absolute())
    suffix = f":{tag}" if tag else ""
    if here:
        return Work(f"{transport}:{path}{suffix}", defined=False)
    return Work(f"{transport}:{path.name}{suffix}", files={path.name: path}, defined=False)


def daemon_image(request: Request) -> str | None:
    """The name of the image that must be exported from this machine's Docker."""
    converted = request.converted
    return tagged(converted[1]) if converted and converted[0] == "docker-daemon" else None


def tagged(name: str) -> str:
    """A Docker image's name with its tag.

    >>> tagged("registry:5000/trainer"), tagged("trainer:1")
    ('registry:5000/trainer:latest', 'trainer:1')
    """
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def _own_definition(path: Path, *, here: bool) -> Work:
    path = path.absolute()
    _existing(path)
    if here:
        return Work(str(path), folder=path.parent)
    text = path.read_text()
    return Work(_DEFINITION, {_DEFINITION: text}, dict(_needed(text, path.parent)))


def _needed(text: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The files a definition copies, and its base if that is a file, by their names beside it.

    Raises:
        ConfigError: a file is outside the definition's folder and so has no place on another machine.
        ImageError: one is missing.
    """
    section, header = "", {}
    for line in text.splitlines():
        if match := _SECTION.match(line):
            # `%files from STAGE` copies inside the build.
            section = match[1] if match[2].split()[:1] != ["from"] else ""
        elif not section and ":" in line and not line.lstrip().startswith("#"):
            key, _, value = line.partition(":")
            header[key.strip().lower()] = value.strip()
        elif section == "files" and (words := shlex.split(line, comments=True)):
            for found in _matching(words[0], folder):
                yield found.relative_to(folder).as_posix(), found
    if header.get("bootstrap") in _FILE_BASES and (base := header.get("from")):
        for found in _matching(base, folder):
            yield found.relative_to(folder).as_posix(), found


def _matching(name: str, folder: Path) -> list[Path]:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ConfigError(
            f"the definition copies {name}, which is outside the definition's folder {folder}",
            hint="other machines do not have that file: put it beside the definition and use a relative path",
        )
    return sorted(folder.glob(name)) or [_existing(folder / name)]


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ImageError(f"{path}: no such file", hint="create it, or name another file")
    return path
