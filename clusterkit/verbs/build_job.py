"""build --on: an image is built on a cluster, as a job, and put into its image store there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit import images
from clusterkit.building import job
from clusterkit.building.advice import advice, cause
from clusterkit.building.apptainer import save, workshop
from clusterkit.building.packages import parse
from clusterkit.building.work import Request, Work, daemon_image, prepare
from clusterkit.errors import ConfigError, ImageError, SchedulerError, TransportError
from clusterkit.images import Image
from clusterkit.ledger import Ledger
from clusterkit.scheduler import Job
from clusterkit.site import Site, open_site, scheduler_of
from clusterkit.transport.base import MissingFileError, SyncOptions
from clusterkit.units import format_duration
from clusterkit.verbs.deploy import Bar, hash_image

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_SECONDS, _CPUS, _MEMORY = 2 * 3600, 4, "16G"
"""What the job asks for; mksquashfs takes a quarter of the memory it sees."""
_PAUSES = (1.0, 5.0)
"""Seconds between two looks at the log: while it grows, and at most."""
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
    sbatch: tuple[str, ...],
    say: Callable[[str], None],
    bar: Bar,
) -> BuiltThere:
    """Build an image on a cluster; it becomes the image this project uses there.

    A build of the same that is under way is watched, not started again. Interrupted with Ctrl-C, the job is
    cancelled; when the connection breaks, it goes on.

    Args:
        cluster: where.
        request: the image.
        ledger: remembers digests and what is deployed.
        sbatch: more sbatch options for the job, e.g. `--partition=cpu`.
        say: given each line of the job's log.
        bar: opens progress bars.

    Raises:
        ConfigError: the request, or an sbatch option, is wrong.
        ImageError: a file is missing, or the build failed; says why.
        SchedulerError: the scheduler refused the job.
        TransportError: the cluster cannot be reached.
    """
    if cluster.container == "none":
        raise ConfigError(
            f"cluster {cluster.name} runs no containers",
            hint='set container = "apptainer" of the cluster, if it has Apptainer',
        )
    options = _job_options(cluster, sbatch)
    with _portable(request) as work, open_site(cluster) as site:
        work = _base_from_store(site, work, ledger, bar)
        one = _Build(site, work, options, say)
        if not one.find():
            one.send(bar)
            one.submit()
        result = one.watch()
        built = BuiltThere(
            Image(result.digest, result.bytes),
            f"{site.layout.images}/sha256-{result.digest}.sif",
            one.packages(),
        )
        one.remove()
    ledger.set_deployment(cluster.name, built.image.digest, built.image.bytes)
    return built


def _job_options(cluster: Cluster, sbatch: tuple[str, ...]) -> tuple[str, ...]:
    from clusterkit.config.models import Profile
    from clusterkit.config.placement import sbatch_options

    seconds = min(_SECONDS, cluster.max_time or _SECONDS)
    asked = {"name": "build", "time": format_duration(seconds), "cpus": _CPUS, "memory": _MEMORY}
    profile = Profile.model_validate(asked)
    return sbatch_options(cluster, profile, extra=sbatch)


@contextlib.contextmanager
def _portable(request: Request) -> Iterator[Work]:
    """The build for another machine; an image of this machine's Docker is taken out of it first."""
    name = daemon_image(request)
    if name is None:
        yield prepare(request, here=False)
        return
    with workshop() as folder:
        archive = folder / "image.tar"
        save(name, archive)
        yield Work("docker-archive:image.tar", files={archive.name: archive}, defined=False)


def _base_from_store(site: Site, work: Work, ledger: Ledger, bar: Bar) -> Work:
    """A base that is one of the cluster's own images is taken from there and does not travel."""
    text = work.texts.get(work.target, "")
    files = dict(work.files)
    for name, path in work.files.items():
        if path.suffix == ".sif" and path.is_file() and f"From: {name}\n" in text:
            base = hash_image(path, ledger, bar)
            if images.present(site, base):
                text = text.replace(f"From: {name}\n", f"From: {base.path(site.layout.images)}\n")
                del files[name]
    return replace(work, files=files, texts={**work.texts, work.target: text}) if text else work


class _Build:
    """One build on one cluster."""

    def __init__(self, site: Site, work: Work, options: tuple[str, ...], say: Callable[[str], None]) -> None:
        self.site, self.work, self.options, self.say = site, work, options, say
        self.scheduler = scheduler_of(site.cluster)
        self.all, self.name = f"{site.layout.root}/builds", job.key(work)
        self.folder = f"{self.all}/{self.name}"
        self.job_id = ""

    def find(self) -> bool:
        """Whether a job for the same build is waiting or running already."""
        answer = self._sh(job.RUNNING, self.folder).split()
        if len(answer) != 1:
            return False
        self.job_id = answer[0]
        known = self._ask()
        if known is None or not known.state.active:
            return False
        self.say(f"job {self.job_id} builds this already")
        return True

    def send(self, bar: Bar) -> None:
        """Bring the build's files into its folder."""
        self._sh(job.PREPARE, self.all, self.name)
        for name, path in self.work.files.items():
            size = path.stat().st_size if path.is_file() else None
            options = SyncOptions(inplace=path.is_file(), mode="Du=rwx,Dgo=,Fu+rw,Fgo=", delete=path.is_dir())
            with bar(f"sending {name}", size) as progress:
                self.site.transport.push(path, f"{self.folder}/{name}", options=options, progress=progress)
        for name, text in self.work.texts.items():
            self.site.transport.write(f"{self.folder}/{name}", text.encode())

    def submit(self) -> None:
        """Hand the job to the scheduler."""
        layout, cluster = self.site.layout, self.site.cluster
        script = job.render(
            self.work,
            folder=self.folder,
            images=layout.images,
            scratch=layout.scratch,
            cache=layout.cache,
            runtime=cluster.container,
            mode=self.site.sharing.file,
            prelude=cluster.prelude,
        )
        path = f"{self.folder}/build.sh"
        self.site.transport.write(path, script.encode(), mode=0o700)
        log = f"{self.folder}/slurm.log".replace("%", "%%")
        options = [f"--output={log}", f"--chdir={self.folder}", *self.options]
        argv = self.scheduler.submit_argv(
            path, run_dir=self.folder, job_name=f"build-{self.name}", options=options
        )
        answer = self.site.transport.run(argv, check=False, timeout=120.0)
        if answer.returncode != 0:
            raise SchedulerError(
                f"{self.site.transport.where}: the scheduler refused the build: {answer.reason}",
                hint="say what it wants with --sbatch, e.g. --sbatch partition=cpu",
            )
        self.job_id = self.scheduler.parse_submit(answer.text)
        self.site.transport.write(f"{self.folder}/job", f"{self.job_id}\n".encode())
        self.say(f"job {self.job_id} on {cluster.name}")

    def watch(self) -> job.Result:
        """Pass the log on until the job has ended.

        Raises:
            ImageError: it failed, or the scheduler ended it.
            TransportError: the connection failed; the job goes on.
        """
        try:
            result, log = self._follow()
        except KeyboardInterrupt:
            self.say(f"cancelling job {self.job_id}")
            self.site.transport.run(self.scheduler.cancel_argv([self.job_id]), check=False, timeout=120.0)
            raise
        except TransportError as error:
            hint = f"job {self.job_id} goes on; the same command watches it"
            raise TransportError(error.cause, hint=hint) from error
        if result.code != 0:
            raise ImageError(
                f"{self.site.transport.where}: the build failed: {cause(log)}",
                hint=advice(log) or f"the whole log: {self.folder}/log",
            )
        return result

    def packages(self) -> dict[str, str]:
        """What the image holds, if anything in it could be run."""
        try:
            return parse(self.site.transport.read(f"{self.folder}/packages.txt").decode(errors="replace"))
        except MissingFileError:
            return {}

    def remove(self) -> None:
        """The build's folder has served."""
        self.site.transport.run(["rm", "-rf", self.folder], check=False)

    def _follow(self) -> tuple[job.Result, str]:
        log, shown, pause, gone = b"", 0, _PAUSES[0], False
        asked = time.monotonic()
        why = None
        while True:
            argv = ["sh", "-c", job.WATCH, "sh", self.folder, str(len(log) + 1)]
            result, new = job.parse_watch(self.site.transport.run(argv).stdout)
            log += new
            end = len(log) if result else log.rfind(b"\n") + 1
            for line in log[shown:end].decode(errors="replace").splitlines():
                self.say(line)
            shown = end
            if result and len(new) < job.LOG_BYTES:
                return result, log.decode(errors="replace")
            if gone:
                raise ImageError(f"job {self.job_id} ended without a result: {self._last_word(why)}")
            if not new and time.monotonic() - asked > _ASK_SCHEDULER:
                known, asked = self._ask(), time.monotonic()
                # Looked at once more: the result may have come between the two questions.
                gone = known is None or not known.state.active
                if known and not gone and not log and known.reason != why:
                    self.say(f"waiting: {known.reason or known.raw_state}")
                why = (known.raw_state if gone else known.reason) if known else why
            pause = _PAUSES[0] if new else min(_PAUSES[1], 1.5 * pause)
            if not gone and (not result or not new):
                time.sleep(pause)

    def _last_word(self, state: str | None) -> str:
        words = self._sh('tail -n 1 "$1/slurm.log" 2>/dev/null || :', self.folder).strip()
        return ", ".join(word for word in (state, words) if word) or "the scheduler does not know it any more"

    def _ask(self) -> Job | None:
        query = self.scheduler.query_script([self.job_id]).encode()
        answer = self.site.transport.run(["sh"], stdin=query, timeout=120.0)
        return self.scheduler.parse_query(answer.text).get(self.job_id)

    def _sh(self, script: str, *arguments: str) -> str:
        return self.site.transport.run(["sh", "-c", script, "sh", *arguments]).text
