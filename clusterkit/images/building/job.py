"""A build as a job on a cluster: its script, and the commands to watch it. Text only.

The job works in a folder of its own below the work root, which holds the build's files and

    job.sh        the script         submissions/  what the scheduler answered (backends/submission.py)
    log           Apptainer's words  result        written last: `code N`, `digest SHA256`, `bytes N`, `arch`
    slurm.log     the scheduler's    packages.txt  what the image holds
    chunks        the image's chunk list, where a Python can make it: the next image may then come as a delta
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit import ownership
from clusterkit.backends.job_script import prelude
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.errors import TransportError
from clusterkit.images.building.local import EPOCH, PACKED
from clusterkit.images.building.packages import READ
from clusterkit.images.building.work import Work
from clusterkit.runtimes import BUILDER
from clusterkit.untrusted import ordinal

LOG_BYTES = 200_000
"""Most bytes of the log in one answer."""

_SCRIPT = r"""
set -u
umask 077
cd "$folder" || exit 1
exec >>log 2>&1
child='' tmp=''
say() { printf '[clusterkit] %s\n' "$*"; }
finish() {
  printf 'code %s\ndigest %s\nbytes %s\narch %s\n' "$1" "${digest:-}" "${bytes:-}" "${arch:-}" >.result &&
    mv -f .result result
  exit "$1"
}
clean() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  rm -f image.sif
  [ -z "$tmp" ] || rm -rf "$tmp"
}
trap clean EXIT
trap 'say "interrupted"; exit 143' HUP INT TERM USR1
say "building on $(uname -n)"
owned() { own_check "$@" || { say "FATAL: $(own_say)"; finish @UNSAFE@; }; }
owned "$folder" "$images" "$cache" "$scratch/"
mkdir -p "$scratch" && own_must=yes && owned "$scratch/" && tmp=$(mktemp -d "$scratch/build-XXXXXXXX") || {
  say "FATAL: the scratch folder $scratch cannot be used"
  finish 1
}
run_prelude "$tmp/prelude" || {
  say "FATAL: $prelude_end"
  finish 1
}
for fault in ${prelude_fails[@]+"${prelude_fails[@]}"}; do
  say "prelude: $(told_fault "$fault")"
  [ -z "$strict" ] || finish 1
done
on_path "$runtime" || {
  say "FATAL: $runtime is not on PATH: add what provides it (module load ...) to the cluster's prelude"
  finish 127
}
for prefix in @PREFIXES@; do
  environment+=("${prefix}_TMPDIR=$tmp" "${prefix}_CACHEDIR=$cache/@BUILDER@")
done
[ -z "$epoch" ] || environment+=("SOURCE_DATE_EPOCH=$epoch")
set -- build --force
[ -z "$fakeroot" ] || set -- "$@" --fakeroot
case $(become "$runtime" build --help 2>/dev/null) in
  *--mksquashfs-args*) set -- "$@" --mksquashfs-args "$packed" ;;
esac
[ -z "$architecture" ] || set -- "$@" --arch "$architecture"
become "$runtime" "$@" image.sif "$target" </dev/null &
child=$!
wait "$child"
code=$?
child=''
[ "$code" -eq 0 ] || finish "$code"
arch=$(dd if=image.sif bs=1 skip=@ARCH@ count=2 2>/dev/null)
digest=$(sha256sum <image.sif) && digest=${digest%% *} && bytes=$(($(wc -c <image.sif))) || finish 1
inside() { (become "$runtime" exec --cleanenv --contain image.sif "$@"); }
inside sh -c "$read" >packages.txt 2>/dev/null </dev/null ||
  rm -f packages.txt
(become python3 -c "$chunker") <image.sif >chunks 2>/dev/null ||
  inside python3 -c "$chunker" <image.sif >chunks 2>/dev/null ||
  rm -f chunks
# A link, so that nothing is ever seen under its name that is not whole; a copy first on another file system.
final=$images/sha256-$digest.sif
chgrp --reference="$images" image.sif 2>/dev/null
chmod "$mode" image.sif
if [ ! -f "$final" ] && ! ln image.sif "$final" 2>/dev/null; then
  part=$images/.upload-$digest.$$
  mkdir "$part" && cp image.sif "$part/image" && chmod "$mode" "$part/image" &&
    [ "$(sha256sum <"$part/image" | cut -d ' ' -f 1)" = "$digest" ] && ln "$part/image" "$final"
  rm -rf "$part"
fi
[ -f "$final" ] || { say "FATAL: cannot put the image into $images"; finish 1; }
list=${final%.sif}.chunks part=$images/.chunks-$digest.$$
if [ -f chunks ] && [ ! -f "$list" ]; then
  chgrp --reference="$images" chunks 2>/dev/null
  cp -p chunks "$part" && chmod "$mode" "$part" && mv -f "$part" "$list" || rm -f "$part"
fi
finish 0
"""

PREPARE = f"""
# $1 the folder of all builds, $2 this one's name. What was sent before stays, so that it is not sent again.
umask 077
mkdir -p "$1/$2" && cd "$1" || exit 1
find . -mindepth 1 -maxdepth 1 ! -name "$2" -mmin +1440 -exec rm -rf {{}} + 2>/dev/null
cd "$2" && rm -rf submissions job.sh log {SCHEDULER_LOG} result packages.txt chunks image.sif
"""
RUNNING = 'cat "$1/submissions/0/answer" 2>/dev/null; test ! -e "$1/result" || echo ended'
"""$1 the build's folder: what was answered to its submission, and whether it has come to an end."""
WATCH = f"""
# $1 the build's folder, $2 the byte of the log to begin at
cd "$1" || exit 1
cat result 2>/dev/null
echo log
tail -c "+$2" log 2>/dev/null | head -c {LOG_BYTES}
exit 0
"""


@dataclass(frozen=True)
class BuildResult:
    """The result of the job."""

    code: int
    digest: str
    bytes: int
    arch: str = ""
    """What it is for; empty if unknown."""


def key(work: Work, options: Sequence[str]) -> str:
    """A name for a build, determined by its files and options: an equal request finds the running job."""
    looks = []
    for name, path in sorted(work.files.items()):
        for found in [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]:
            stat = found.lstat()
            looks.append((name, str(found), stat.st_size, stat.st_mtime_ns))
    told = json.dumps([work.target, work.arch, dict(work.texts), looks, options], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def render(
    work: Work,
    *,
    folder: str,
    images: str,
    scratch: str,
    cache: str,
    runtime: str,
    mode: str,
    chunker: str,
    lines: tuple[str, ...] = (),
    strict: bool = False,
    trust: tuple[str, ...] = (),
    group: str | None = None,
) -> str:
    """The job script.

    Args:
        work: the build, whose files are in `folder`.
        folder: the build's folder, absolute.
        images: the cluster's image store.
        scratch: where the unpacked image's folder is created.
        cache: the runtime's download cache.
        runtime: `apptainer` or `singularity`.
        mode: mode of an image in the store, octal.
        chunker: text of a Python program that writes the chunk list of its standard input.
        lines: the cluster's own shell lines, run first.
        strict: whether one of them that fails ends the build.
        trust: users who may own, and groups that may write to, these folders.
        group: one more trusted group.
    """
    values = {
        "folder": folder,
        "images": images,
        "scratch": scratch,
        "cache": cache,
        "runtime": runtime,
        "mode": mode,
        "target": work.target,
        "architecture": work.arch,
        "fakeroot": "yes" if work.defined else "",
        "epoch": EPOCH if work.ours else "",
        "packed": PACKED,
        "read": READ,
        "chunker": chunker,
        "strict": "yes" if strict else "",
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return (
        "#!/bin/bash -p\n# Builds an image; rendered by clusterkit.\n"
        + head
        + ownership.fragment(trust, group)
        + prelude(lines)
        + _SCRIPT.replace("@UNSAFE@", str(ownership.EXIT_CODE))
        .replace("@PREFIXES@", " ".join(BUILDER.commands).upper())
        .replace("@BUILDER@", BUILDER.name)
        .replace("@ARCH@", str(BUILDER.architecture_at))
    )


def parse_watch(answer: bytes) -> tuple[BuildResult | None, bytes]:
    """Parse the result, if there is one yet, and the new part of the log.

    Raises:
        TransportError: the answer is malformed.
    """
    facts: dict[str, str] = {}
    rest = answer
    while rest:
        line, _, rest = rest.partition(b"\n")
        if line == b"log":
            if "code" not in facts:
                return None, rest
            return BuildResult(
                code if (code := ordinal(facts["code"])) is not None else 1,
                facts.get("digest", ""),
                ordinal(facts.get("bytes", "")) or 0,
                BUILDER.architecture_of(facts.get("arch", "")),
            ), rest
        name, _, value = line.decode(errors="replace").partition(" ")
        facts[name] = value
    raise TransportError("the cluster's answer about the build cannot be read")
