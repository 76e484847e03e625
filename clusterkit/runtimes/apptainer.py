"""Apptainer and Singularity, by their command `exec`. Pure, but for an image's architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from clusterkit.runtimes import ImageBuilder, ImageFormat

# Its own `buildcfg` would say whether it is setuid, and leave a folder in the home.
_SURVEY = r"""
tell_runtime='printf "\n%s\n%s\n" "$1" "$2"
"$1" --version </dev/null 2>/dev/null | tail -n 1
bin=$(dirname "$(readlink -f "$(command -v "$1")")")
mode=
for folder in "$bin/../libexec" /usr/libexec /usr/lib/*-linux-gnu /usr/local/libexec; do
    for starter in "$folder"/apptainer/bin/starter* "$folder"/singularity*/bin/starter*; do
        [ ! -u "$starter" ] || { echo setuid; exit; }
        [ ! -e "$starter" ] || mode=namespaces
    done
done
echo $mode'
for name in apptainer singularity; do
    if has $name; then
        ck_begin runtime
        $ck_limit sh -c "$tell_runtime" sh $name '' </dev/null 2>/dev/null
        ck_end 0
    fi
done
if has unshare; then ck_run userns unshare -U -r true; fi
if has bash && ! has apptainer && ! has singularity; then
    ck_begin loaded
    $ck_limit bash -lc 'command -v module >/dev/null || exit
        for name in apptainer singularity singularityce singularity-ce; do
            module load $name >/dev/null 2>&1
            for one in apptainer singularity; do
                command -v $one >/dev/null || continue
                sh -c "$0" sh $one $name
                exit
            done
        done' "$tell_runtime" </dev/null 2>/dev/null
    ck_end $?
fi
"""


# github.com/apptainer/sif, pkg/sif/arch.go; the code is behind the magic and the version (sif.go).
_ARCHITECTURES = {"02": "x86_64", "04": "aarch64", "06": "ppc64le", "11": "s390x", "12": "riscv64"}
_ARCHITECTURE_AT = 45


def _architecture(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(_ARCHITECTURE_AT)
        return _ARCHITECTURES.get(file.read(2).decode("ascii", "replace"), "")


class Apptainer(ImageBuilder):
    """Starts programs by `apptainer exec`."""

    name, title = "apptainer", "Apptainer"

    # A SIF starts with a run script line and has its magic at byte 32 (github.com/apptainer/sif, header.go).
    image: ImageFormat = ImageFormat(
        name="SIF",
        offset=32,
        magic=b"SIF_MAGIC",
        file="clusterkit-trainer.sif",
        maker="clusterkit build",
        convert="convert it: `clusterkit build --from docker-archive:FILE`",
        architecture=_architecture,
    )
    commands = ("apptainer", "singularity")
    gpu_options: ClassVar[Mapping[str, str]] = {"nvidia": "--nv", "amd": "--rocm"}
    architecture_at = _ARCHITECTURE_AT
    find = "command -v apptainer && apptainer --version"
    survey = _SURVEY
    enter = (
        'environment+=("APPTAINERENV_TERM=$terminal" "SINGULARITYENV_TERM=$terminal")\n'
        '[ "${command[1]}" != exec ] || command=("${command[0]}" --quiet "${command[@]:1}")\n'
    )
    on_nodes = '"$runtime" exec --cleanenv --contain --bind "$folder" "$image" '
    install = 'load Apptainer in the cluster\'s `prelude`, e.g. "module load apptainer"'
    says: ClassVar[Mapping[str, str]] = {
        "image-missing": r"could not open image .*no such file",
        "image-architecture": r"architecture \(\w+\) could not run on the host's",
        "image-damaged": r"image format not recognized|could not open image .*(EOF|descriptors|invalid)"
        r"|[Ff]ailed to mount.*squashfs|[Ss]quashfs.*(error|corrupt)",
        "bind-missing": r"mount source (.*) doesn't exist|unable to add .* to mount list.*no such file"
        r"|source path does not exist: (\S*)",
        "runtime-missing": r"is not on PATH on .*: add what provides it",
        "image-without-python": r'"?[\w./-]*python[\w.]*"?: executable file not found'
        r"|stat .*python[\w.]*: no such file",
        "container-failed": r"^FATAL:|ERROR\s*:",
    }

    @property
    def template(self) -> Path:
        """As `Runtime`; both names have one."""
        return super().template.with_name("apptainer.sh.j2")

    def architecture_of(self, digits: str) -> str:
        """As `ImageBuilder`."""
        return _ARCHITECTURES.get(digits, "")

    def add(self, mount: str) -> str:
        """As `Runtime`."""
        return f'command+=(--bind "{mount}")'


class Singularity(Apptainer):
    """Starts programs by `singularity exec`, to which Apptainer answers, too."""

    name, title = "singularity", "Singularity"
    find = "command -v singularity && singularity --version"


BUILDER, SINGULARITY = Apptainer(), Singularity()
"""The one whose images `clusterkit build` makes; the one by the older name."""
