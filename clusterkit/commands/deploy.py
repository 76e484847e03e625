"""deploy: upload the image and the working tree to a cluster, sending only what is new.

`deploy` carries out the same plan that `--dry-run` shows.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit import snapshots
from clusterkit.backends.base import architectures, backend_of
from clusterkit.errors import ConfigError, ImageError, last_words
from clusterkit.images.architecture import fitting, must_suit
from clusterkit.images.image import Image
from clusterkit.images.image import present as image_present
from clusterkit.images.planning import UploadPlan, Way
from clusterkit.images.planning import inquiry as image_inquiry
from clusterkit.images.planning import plan as plan_image
from clusterkit.images.upload import upload as upload_image
from clusterkit.probes import ask
from clusterkit.probes.space import Space, space
from clusterkit.resources import page
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import needs_trainer
from clusterkit.runs.secret_values import values_at_hand
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Allow
from clusterkit.submit.handover import hand_over_job
from clusterkit.submit.materials import (
    RATE_FROM,
    DeploymentPlan,
    TransferRate,
    chunk_cache,
    environment_of,
    hash_image,
    images_of,
    publish_snapshot,
    send_environment,
    take_snapshot,
)
from clusterkit.transport.base import Bar
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.transport.ahead import LoginAhead

_PROBE_BYTES = 1 << 20
_BUILD_SECONDS = 3600
_BUILDS = 'cat "$(ls -dt "$1"/environment-"$2"-*/submissions/0/answer 2>/dev/null | head -n 1)" 2>/dev/null'
"""$1 the folder of builds, $2 the environment: what was answered to the newest submission of its job."""


@contextmanager
def planning(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    profile: Profile,
    options: Sequence[str],
    login: LoginAhead,
    bar: Bar,
    cache: Path,
    allow_large: Allow | None = None,
) -> Iterator[tuple[Site, DeploymentPlan]]:
    """Plans a deployment for a run, by its profile and its job's options, and keeps the connection open.

    Chunk lists of images are stored in the folder `cache` instead of the project's.
    """
    with _looked(
        settings,
        cluster,
        ledger,
        login,
        bar,
        profile,
        use=False,
        requests=[options],
        allow_large=allow_large,
        cache=cache,
    ) as (site, found):
        yield site, _weighed(site, found, ledger)


def _weighed(site: Site, found: DeploymentPlan, ledger: Ledger) -> DeploymentPlan:
    """Returns the plan with the cluster's free space and the upload speed."""
    remembered = ledger.rate(site.cluster.name)
    rate = TransferRate(*remembered) if remembered else None
    if rate is None and found.bytes_to_send:
        rate = _measured(site)
    return replace(found, spaces=_room(site), rate=rate)


def deploy(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    login: LoginAhead,
    image: Path | None,
    bar: Bar,
    allow_large: Allow | None = None,
    verify_image: bool = False,
    only_plan: bool = False,
) -> DeploymentPlan:
    """Sends the image, a snapshot of the working tree and its environment to a cluster, over one login.

    If nothing is missing, this takes one remote command and writes nothing.

    Args:
        settings: of the project.
        cluster: the target.
        ledger: stores digests and what was deployed.
        login: to the cluster; it proceeds while local files are read.
        image: a .sif to use instead of the configured one.
        bar: opens progress bars.
        allow_large: called with files over the size limit, returns whether to upload them; None refuses.
        verify_image: have the cluster read its existing image, and repair it if damaged.
        only_plan: change nothing on the cluster.

    Returns:
        The plan, which was carried out unless `only_plan` is set.

    Raises:
        ImageError: no image is configured, the image is damaged, or something does not fit.
        TransportError: the cluster cannot be reached, or a transfer was interrupted; repeat to continue.
    """
    with _looked(
        settings,
        cluster,
        ledger,
        login,
        bar,
        settings.profile(),
        use=not only_plan,
        image=image,
        allow_large=allow_large,
        verify_image=verify_image,
    ) as (site, found):
        if only_plan:
            return _weighed(site, found, ledger)
        wanted, path = found.image, found.image_path
        if found.bytes_to_send:
            found = replace(found, spaces=_room(site))
            if found.shortage:
                raise ImageError(
                    f"{site.transport.where}: no space left: {found.shortage}",
                    hint="free some space there (`clusterkit storage prune` removes what no run uses), "
                    "or set `root` or `image_store` of the cluster to a larger file system",
                )
        if wanted and not path and not found.image_plan.present:
            raise ImageError(
                f"{site.transport.where}: the image this project uses there is gone, and none is here",
                hint=f"`clusterkit build --cluster {cluster.name}` builds it again",
            )
        if wanted and path:
            if not found.image_plan.present:
                sent = upload_image(
                    site, path, wanted, found.image_plan, cache=chunk_cache(settings), bar=bar
                )
                if sent.seconds and sent.bytes >= RATE_FROM:
                    today = datetime.now(UTC).date().isoformat()
                    ledger.set_rate(cluster.name, sent.bytes / sent.seconds, today)
                found = replace(found, image_sent=sent)
            if (wanted, wanted.arch) not in [(each, each.arch) for each in ledger.deployed(cluster.name)]:
                ledger.set_deployed(cluster.name, wanted)
        publish_snapshot(site, found.standing, ledger, bar)
        send_environment(site, found.environment, wanted, bar)
        if found.environment and not found.built:
            found = build_environment(site, found, bar)
        return found


def build_environment(site: Site, plan: DeploymentPlan, bar: Bar) -> DeploymentPlan:
    """Builds the environment: at once on a machine without a queue, else in a short job that goes on alone.

    Where that job's nodes cannot start the image, it is left to the first run.

    Raises:
        ConfigError: it cannot be built; the message has the reason.
        SchedulerError: the scheduler refused the job.
        TransportError: the cluster cannot be reached.
    """
    from clusterkit.config.models import Profile
    from clusterkit.environments.job import build_script
    from clusterkit.environments.store import look

    environment, cluster, layout = plan.environment, site.cluster, site.layout
    assert environment is not None
    brief = environment.digest[:12]
    image = plan.image.path(layout.images) if plan.image else cluster.registry_image
    if not backend_of(cluster).can.queue:
        script = build_script(cluster, layout, environment, image)
        with bar(f"building the environment of {environment.file}", None):
            done = site.transport.run(["bash", "-p", "-c", script], check=False, timeout=None)
        if done.returncode != 0:
            cause = last_words(done.text.rpartition("[clusterkit] ")[2] + done.error_text, 400)
            raise ConfigError(f"{site.transport.where}: {cause}", hint=f"see `{page('environments.md')}`")
        return replace(plan, built=look(site, environment).built)
    if job_id := _building(site, brief):
        return replace(plan, build_job=job_id)
    backend, name = backend_of(cluster), f"environment-{brief}-{secrets.token_hex(2)}"
    seconds, owner = min(_BUILD_SECONDS, cluster.max_time or _BUILD_SECONDS), f"builds/{name}"
    asked = {"name": "environment", "time": format_duration(seconds), "cpus": 2, "memory": "8G"}
    options = backend.options(cluster, Profile.model_validate(asked), signal=None, extra=())
    nodes = architectures(cluster, options)
    if plan.image and plan.image.arch and nodes and plan.image.arch not in nodes:
        return plan
    folder = f"{layout.root}/{owner}"
    script = build_script(cluster, layout, environment, image, name=name, folder=folder, options=options)
    files = {f"{owner}/job.sh": script.encode()}
    job_id = hand_over_job(site, owner, files, job_name=name, options=options, new=True)
    return replace(plan, build_job=job_id)


def _building(site: Site, brief: str) -> str | None:
    """Returns the job that builds an environment, by the start of its digest; None without one."""
    from clusterkit.runs.observe import ask_job

    argv = ["sh", "-c", _BUILDS, "sh", f"{site.layout.root}/builds", brief]
    job_id = backend_of(site.cluster).accepted(site.transport.run(argv, check=False).text)
    job = ask_job(site, job_id) if job_id else None
    return job_id if job and job.state.active else None


def _wanted(
    cluster: Cluster, ledger: Ledger, image: Path | None, bar: Bar, requests: Sequence[Sequence[str]]
) -> tuple[Image | None, Path | None]:
    """Returns the image to deploy and its file: a given one, or that for the nodes of some requests."""
    if not cluster.stores_image:
        if image:
            how = f"in {cluster.registry_image}" if cluster.registry_image else "without a container"
            raise ImageError(
                f"cluster {cluster.name} runs programs {how}: no image file is used there",
                hint="leave --image out, or choose another cluster with --cluster",
            )
        return None, None
    if image is None and (found := images_of(cluster, ledger, bar)):
        chosen = fitting(Image.of(*found), cluster, requests) if requests else next(iter(found))
        return next((each, path) for each, path in found.items() if each == chosen)
    path = image or cluster.image
    if path is None:
        raise ImageError(
            f"cluster {cluster.name} runs {cluster.container} and has no image",
            hint=cluster.runtime.make_image
            or f"`clusterkit build --cluster {cluster.name}` builds one there; or build one here and name "
            "it as `image` of the cluster or with --image FILE",
        )
    return hash_image(path, ledger, bar, runtime=cluster.container), path


@contextmanager
def _looked(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    login: LoginAhead,
    bar: Bar,
    profile: Profile,
    *,
    use: bool,
    requests: Sequence[Sequence[str]] = (),
    image: Path | None = None,
    allow_large: Allow | None = None,
    verify_image: bool = False,
    cache: Path | None = None,
) -> Iterator[tuple[Site, DeploymentPlan]]:
    """Opens the cluster, to `use` it or only to plan, and compares it with what a profile's runs need."""
    wanted, path = _wanted(cluster, ledger, image, bar, requests)
    if wanted:
        must_suit(wanted, cluster)
    secrets_at_hand = values_at_hand(settings)
    trainer = needs_trainer(profile, settings.project.program)
    snapshot = take_snapshot(settings, secrets_at_hand, allow_large, ledger, trainer=trainer)
    environment = environment_of(settings, cluster, wanted)
    secrets_at_hand.refuse_shown(environment=environment)
    basis = ledger.snapshot(cluster.name)
    inquiries = [snapshots.inquiry(snapshot, basis=basis, use=use)]
    if wanted and path:
        inquiries.append(image_inquiry(wanted))
    with open_site(cluster, create=use, login=login, inquiries=inquiries) as site:
        image_plan = UploadPlan(Way.PRESENT, 0, 0)
        if wanted and path:
            image_plan = plan_image(
                site, path, wanted, cache=cache or chunk_cache(settings), verify=verify_image
            )
        elif wanted and not image_present(site, wanted):
            raise ImageError(
                f"{site.transport.where}: image {wanted.digest[:12]} is not there any more",
                hint=f"`clusterkit build --cluster {cluster.name}` builds it again; or use --image FILE",
            )
        standing = snapshots.look(site, snapshot, basis=basis, use=use)
        built: tuple[int, ...] = ()
        if environment:
            from clusterkit.environments.store import look

            built = look(site, environment).built
        yield (
            site,
            DeploymentPlan(
                cluster.name,
                site.layout.root,
                wanted,
                path,
                image_plan,
                standing,
                trusted=site.notes,
                environment=environment,
                built=built,
            ),
        )


def _measured(site: Site) -> TransferRate:
    """Measures the upload speed with 1 MiB that the cluster discards."""
    start = time.monotonic()
    site.transport.run(["sh", "-c", "cat > /dev/null"], stdin=os.urandom(_PROBE_BYTES), timeout=None)
    return TransferRate(_PROBE_BYTES / (time.monotonic() - start), None)


def _room(site: Site) -> tuple[Space, ...]:
    """Returns the free space in every root folder of the site."""
    layout = site.layout
    probe = space({"work root": layout.root, "images": layout.images, "scratch": layout.scratch})
    return ask(site.transport, probe, check=False).of(probe)
