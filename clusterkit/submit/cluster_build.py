"""Builds an image in a job on a cluster and puts it into the cluster's image store."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ConfigError, ImageError, TransportError
from clusterkit.images import chunks
from clusterkit.images.building import job
from clusterkit.images.building.advice import advice, cause
from clusterkit.images.building.local import save, workshop
from clusterkit.images.building.packages import parse
from clusterkit.images.building.work import Request, Work, daemon_image, prepare
from clusterkit.images.image import Image, must_be_writable
from clusterkit.images.image import present as image_present
from clusterkit.interruption import InterruptedChange, held_back, tell
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.observe import ask_job
from clusterkit.runtimes import BUILDER
from clusterkit.site import Site, open_site
from clusterkit.submit.handover import SubmissionRefusedError, hand_over_job
from clusterkit.submit.materials import hash_image
from clusterkit.transport.base import Bar, MissingFileError, SyncOptions
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_SECONDS, _CPUS, _MEMORY = 2 * 3600, 4, "16G"
"""The job's request; mksquashfs takes a quarter of the memory it sees."""
_PAUSES = (1.0, 5.0)
"""Seconds between reads of the log: while it grows, and the maximum."""
_ASK_SCHEDULER = 15.0


@dataclass(frozen=True)
class BuiltThere:
    """An image in a cluster's store."""

    image: Image
    path: str
    packages: dict[str, str]


def build_on(
    cluster: Cluster,
    request: Request,
    ledger: Ledger,
    *,
    native: tuple[str, ...],
    say: Callable[[str], None],
    bar: Bar,
) -> BuiltThere:
    """Builds an image on a cluster and makes it this project's image on that cluster.

    If the same build is already running, it is watched instead of started again. Ctrl-C cancels the job; a
    lost connection does not.

    Args:
        cluster: the target.
        request: the image.
        ledger: caches digests and records the deployed image.
        native: additional scheduler options for the job, e.g. `--partition=cpu`.
        say: called with each line of the job's log.
        bar: opens progress bars.

    Raises:
        ConfigError: the request, or an sbatch option, is wrong.
        ImageError: a file is missing, or the build failed; the message gives the reason.
        SchedulerError: the scheduler refused the job.
        TransportError: the cluster cannot be reached.
    """
    if not cluster.runtime.builds:
        raise ConfigError(
            f"cluster {cluster.name} starts containers with {cluster.runtime.title}, which builds no images"
            if cluster.contained
            else f"cluster {cluster.name} does not use containers",
            hint=f'set container = "{BUILDER.name}" of the cluster, if {BUILDER.title} is installed there',
        )
    options = _job_options(cluster, native)
    with _portable(request) as work, open_site(cluster) as site:
        must_be_writable(site)
        work = _base_from_store(site, work, ledger, bar)
        one = RemoteBuild(site, work, options, say, chunker=chunks.program())
        if not one.find():
            one.send(bar)
            one.submit()
        result = one.watch()
        built = BuiltThere(
            Image(result.digest, result.bytes, result.arch),
            f"{site.layout.images}/sha256-{result.digest}.sif",
            one.packages(),
        )
        one.remove()
    ledger.set_deployed(cluster.name, built.image)
    return built


def _job_options(cluster: Cluster, native: tuple[str, ...]) -> tuple[str, ...]:
    from clusterkit.config.models import Profile

    seconds = min(_SECONDS, cluster.max_time or _SECONDS)
    asked = {"name": "build", "time": format_duration(seconds), "cpus": _CPUS, "memory": _MEMORY}
    profile = Profile.model_validate(asked)
    return backend_of(cluster).options(cluster, profile, signal=None, extra=native)


@contextlib.contextmanager
def _portable(request: Request) -> Iterator[Work]:
    """Prepares the build for another machine; a local Docker image is exported first."""
    name = daemon_image(request)
    if name is None:
        yield prepare(request, here=False)
        return
    with workshop() as folder:
        archive = folder / "image.tar"
        save(name, archive)
        yield Work("docker-archive:image.tar", files={archive.name: archive}, defined=False)


def _base_from_store(site: Site, work: Work, ledger: Ledger, bar: Bar) -> Work:
    """Replaces a base image that the cluster already has with the cluster's copy, to avoid an upload."""
    text = work.texts.get(work.target, "")
    files = dict(work.files)
    for name, path in work.files.items():
        if path.suffix == ".sif" and path.is_file() and f"From: {name}\n" in text:
            base = hash_image(path, ledger, bar)
            if image_present(site, base):
                text = text.replace(f"From: {name}\n", f"From: {base.path(site.layout.images)}\n")
                del files[name]
    return replace(work, files=files, texts={**work.texts, work.target: text}) if text else work


class RemoteBuild:
    """One build on one cluster."""

    def __init__(
        self, site: Site, work: Work, options: tuple[str, ...], say: Callable[[str], None], *, chunker: str
    ) -> None:
        """Prepares the build.

        Args:
            site: the cluster.
            work: the build.
            options: scheduler options.
            say: called with each line of progress.
            chunker: see `job.render`.
        """
        self.site, self.work, self.options, self.say, self.chunker = site, work, options, say, chunker
        self.backend = backend_of(site.cluster)
        self.all, self.name = f"{site.layout.root}/builds", job.key(work, options)
        self.folder, self.job_name = f"{self.all}/{self.name}", f"build-{self.name}-{secrets.token_hex(2)}"
        self.job_id, self.cancelled = "", False
        self.log, self.shown = b"", 0
        self.waiting: str | None = None
        """Why the job has not started, as last reported."""

    def find(self) -> bool:
        """Returns whether a job for the same build is already waiting or running."""
        answer = self._sh(job.RUNNING, self.folder)
        self.job_id = self.backend.accepted(answer) or ""
        if "ended" in answer.split() or not self.job_id:
            return False
        known = ask_job(self.site, self.job_id)
        if known is None or not known.state.active:
            return False
        self.say(f"job {self.job_id} builds this already")
        return True

    def send(self, bar: Bar) -> None:
        """Uploads the build's files into its folder."""
        self._sh(job.PREPARE, self.all, self.name)
        for name, path in self.work.files.items():
            size = path.stat().st_size if path.is_file() else None
            options = SyncOptions(inplace=path.is_file(), mode="Du=rwx,Dgo=,Fu+rw,Fgo=", delete=path.is_dir())
            with bar(f"sending {name}", size) as progress:
                self.site.transport.push(path, f"{self.folder}/{name}", options=options, progress=progress)
        for name, text in self.work.texts.items():
            self.site.transport.write(f"{self.folder}/{name}", text.encode())

    def submit(self) -> None:
        """Submits the job."""
        layout, cluster = self.site.layout, self.site.cluster
        script = job.render(
            self.work,
            folder=self.folder,
            images=layout.images,
            scratch=layout.scratch,
            cache=layout.cache,
            runtime=cluster.container,
            mode=self.site.sharing.file,
            chunker=self.chunker,
            lines=cluster.prelude,
            strict=cluster.strict_prelude,
            trust=cluster.trust,
            group=cluster.group,
        )
        owner = f"builds/{self.name}"
        directives = self.backend.directives(
            self.options, job_name=self.job_name, folder=self.folder, log=SCHEDULER_LOG
        )
        text = script.replace("\n", "".join(f"\n{line}" for line in directives) + "\n", 1)
        tell(self.what_came)
        try:
            with held_back():
                self.job_id = hand_over_job(
                    self.site,
                    owner,
                    {f"{owner}/job.sh": text.encode()},
                    job_name=self.job_name,
                    options=self.options,
                    new=False,
                )
        except KeyboardInterrupt:
            self._cancel()
            raise
        except SubmissionRefusedError as error:
            hint = (
                error.hint or f"set what it requires with {NATIVE_OPTION}, e.g. {NATIVE_OPTION} partition=cpu"
            )
            raise SubmissionRefusedError(error.cause, hint=hint) from error
        self.say(f"job {self.job_id} on {cluster.name}")

    def watch(self) -> job.BuildResult:
        """Forwards the log to `say` until the job ends.

        Raises:
            ImageError: the build failed, or the scheduler ended the job.
            TransportError: the connection failed; the job continues.
        """
        tell(self.what_came)
        try:
            result, log = self._follow()
        except KeyboardInterrupt:
            self._cancel()
            raise
        except TransportError as error:
            hint = f"job {self.job_id} continues; run the same command to follow it"
            raise TransportError(error.cause, hint=hint) from error
        if result.code != 0:
            raise ImageError(
                f"{self.site.transport.where}: the build failed: {cause(log)}",
                hint=advice(log) or f"complete log: {self.folder}/log",
            )
        return result

    def what_came(self) -> InterruptedChange | None:
        """Returns what is known of the build's job."""
        again = f"`clusterkit build --cluster {self.site.cluster.name}` finds it and follows it"
        if self.cancelled:
            return InterruptedChange(f"job {self.job_id}, which built the image, was cancelled")
        if self.job_id:
            return InterruptedChange(f"job {self.job_id}, which builds the image, may go on", again)
        return InterruptedChange("whether the job that builds the image was submitted is not known", again)

    def _cancel(self) -> None:
        if self.job_id:
            self.say(f"cancelling job {self.job_id}")
            self.site.transport.run(self.backend.cancel_argv([self.job_id]), check=False, timeout=120.0)
            self.cancelled = True

    def packages(self) -> dict[str, str]:
        """Returns the packages in the image; empty if nothing in it could be run."""
        try:
            return parse(self.site.transport.read(f"{self.folder}/packages.txt").decode(errors="replace"))
        except MissingFileError:
            return {}

    def remove(self) -> None:
        """Removes the build's folder."""
        self.site.transport.run(["rm", "-rf", self.folder], check=False)

    def _follow(self) -> tuple[job.BuildResult, str]:
        """Follows the log; returns the result and the whole log."""
        pause, asked, ended = _PAUSES[0], time.monotonic(), ""
        while True:
            result, grown = self._read_on()
            if result:
                return result, self.log.decode(errors="replace")
            if ended:  # the read above has fetched the last log lines
                raise ImageError(f"job {self.job_id} ended without a result: {ended}")
            if not grown and time.monotonic() - asked > _ASK_SCHEDULER:
                ended, asked = self._how_it_ended(), time.monotonic()
                continue
            pause = _PAUSES[0] if grown else min(_PAUSES[1], 1.5 * pause)
            time.sleep(pause)

    def _read_on(self) -> tuple[job.BuildResult | None, bool]:
        """Forwards new log lines; returns the result, if there is one, and whether the log has grown."""
        before, new = len(self.log), b" " * job.LOG_BYTES
        result = None
        while len(new) >= job.LOG_BYTES:
            argv = ["sh", "-c", job.WATCH, "sh", self.folder, str(len(self.log) + 1)]
            result, new = job.parse_watch(self.site.transport.run(argv).stdout)
            self.log += new
        end = len(self.log) if result else self.log.rfind(b"\n") + 1
        for line in self.log[self.shown : end].decode(errors="replace").splitlines():
            self.say(line)
        self.shown = max(self.shown, end)
        return result, len(self.log) > before

    def _how_it_ended(self) -> str:
        """Returns the scheduler's description of an ended job; empty while it waits or runs."""
        known = ask_job(self.site, self.job_id)
        if known and known.state.active:
            if not self.log and known.reason != self.waiting:
                self.waiting = known.reason
                self.say(f"waiting: {known.reason or known.raw_state}")
            return ""
        words = self._sh(
            f'tail -c 4000 "$1/{SCHEDULER_LOG}" 2>/dev/null | tail -n 1 || :', self.folder
        ).strip()
        said = [word for word in (known.raw_state if known else "", words) if word]
        return ", ".join(said) or "the scheduler no longer knows it"

    def _sh(self, script: str, *arguments: str) -> str:
        return self.site.transport.run(["sh", "-c", script, "sh", *arguments]).text
