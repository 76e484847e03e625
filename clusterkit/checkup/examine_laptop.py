"""Examines this laptop: Python, settings, ledger, disk, image, W&B, keys, and the login."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from clusterkit import folders
from clusterkit.backends.checks import failed, passed, warned
from clusterkit.checkup import Result, Verdict, laptop
from clusterkit.checkup.examination import Examination
from clusterkit.errors import ClusterkitError, TransportError, WandbError
from clusterkit.runs.check import another, check_script, hardware_of, lacks
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.materials import image_of, take_snapshot
from clusterkit.runs.pipeline import resolve
from clusterkit.runs.request import SubmitRequest
from clusterkit.site import connected
from clusterkit.units import format_bytes
from clusterkit.wandb import client, credentials

_SERVER_SECONDS = 10.0


def examine_laptop(exam: Examination, stack: ExitStack) -> Iterator[Result]:
    """Make the checks that need no connection to the cluster, and check the W&B server.

    Args:
        exam: the examination; receives the ledger, the image and the planned runs.
        stack: closes the ledger.
    """
    settings, cluster = exam.settings, exam.cluster
    others = [name for name, one in settings.clusters.items() if not one.here]
    yield from exam.note("cluster", lambda: laptop.cluster(others, cluster.name, cluster.host))
    for profile in exam.profiles:
        yield from exam.note("profile", partial(_profile, exam, profile.name), profile.name)
    yield from exam.note("ledger", lambda: _ledger(exam, stack))
    yield from exam.note("code", lambda: _code(exam))
    yield from exam.note("disk-here", lambda: _disk(exam))
    yield from exam.note("image-here", lambda: _image(exam))
    yield from exam.note("wandb-login", lambda: _wandb_login())
    exam.say("asking the W&B server")
    yield from exam.note("wandb-server", lambda: _wandb_server(exam))
    yield from exam.note("rsync-here", _rsync)


def log_in(exam: Examination, stack: ExitStack) -> Iterator[Result]:
    """Check SSH: configuration, keys, kept logins, and one login, whose error tells which step failed.

    The check `login` itself is made by the first command over the connection; see `login_verdict`.
    """
    from clusterkit.transport.faults import UnreachableError
    from clusterkit.transport.kept import client as kept
    from clusterkit.transport.kept.folder import socket_name, socket_paths
    from clusterkit.transport.known_hosts import HostKeyError, read
    from clusterkit.transport.known_hosts import HostKeyVerdict as KnownHosts
    from clusterkit.transport.resolve import HostConfig, resolve

    found: list[HostConfig] = []
    cluster = exam.cluster
    assert cluster.host is not None

    def config() -> Verdict:
        try:
            found.append(host := resolve(cluster.host or "", config=cluster.ssh_config))
        except TransportError as error:
            return laptop.fault(error)
        way = f" through {', '.join(host.proxy_jump)}" if host.proxy_jump else ""
        return passed(f"{cluster.host} is {host.user}@{host.address}{way}")

    yield from exam.note("ssh-config", config)
    yield from exam.note("ssh-key", lambda: _ssh_key(exam, found[0]))
    alive, stale = [], []
    for path in socket_paths():
        link = kept.find(path)
        if link is None:
            stale.append(path)
        else:
            alive.append((path.name, link.kept.host))
            link.close()
    if exam.fix and (left := [path for path in stale if kept.deserted(path)]):
        for path in left:
            path.unlink(missing_ok=True)
        exam.sheet.fixes["kept-login"] = f"removed {len(left)} sockets that nobody serves"
        stale = [path for path in stale if path not in left]
    yield from exam.note(
        "kept-login", lambda: laptop.kept_login([host for _, host in alive], [str(path) for path in stale])
    )
    if not found:
        for name in ("reachable", "host-key", "login"):
            yield from exam.note(name, lambda: passed(""))  # skipped, as ssh-config has failed
        return
    (host,) = found
    error, began = None, time.monotonic()
    exam.say(f"logging in to {cluster.host}")
    try:
        exam.transport = stack.enter_context(connected(cluster, ask=exam.ask))
    except TransportError as fault:
        error = fault
    seconds = time.monotonic() - began

    def step(kind: type[TransportError], text: str) -> Verdict:
        return laptop.fault(error) if isinstance(error, kind) else passed(text)

    yield from exam.note("reachable", lambda: step(UnreachableError, host.address))

    def host_key() -> Verdict:
        try:
            known = KnownHosts(host, read(host.known_hosts)).known
        except TransportError as fault:
            return laptop.fault(fault)
        where = f"known by line {known.line} of {known.path}" if known else "it was accepted just now"
        return step(HostKeyError, where)

    yield from exam.note("host-key", host_key)
    if error is not None:
        yield from exam.note("login", lambda: laptop.fault(error))
        return
    is_kept = socket_name(host) in [name for name, _ in alive]
    trouble = _first_command(exam)
    yield from exam.note(
        "login",
        lambda: laptop.fault(trouble) if trouble else laptop.logged_in(host.user, seconds, kept=is_kept),
    )


def _first_command(exam: Examination) -> TransportError | None:
    """Why no command runs over the login; None when one does."""
    assert exam.transport is not None
    try:
        exam.transport.run(["true"])
    except TransportError as error:
        return error
    return None


def _profile(exam: Examination, name: str) -> Verdict:
    profile = exam.settings.profile(name)
    try:
        (planned,) = resolve(exam.settings, SubmitRequest(exam.cluster, profile)).runs
    except ClusterkitError as error:
        return laptop.fault(error)
    exam.planned[name] = planned
    asks = " ".join(planned.options)
    has = hardware_of(exam.cluster)
    if has is None:
        return passed(asks)
    cure = another(exam.settings, exam.cluster, has)
    return laptop.fit(lacks(exam.cluster, profile, planned.program.argv, has), has, asks, cure)


def _ledger(exam: Examination, stack: ExitStack) -> Verdict:
    path = exam.settings.project_dir / ".clusterkit" / "ledger.sqlite3"
    try:
        ledger = stack.enter_context(Ledger(path))
        (said,) = ledger.connection.execute("PRAGMA integrity_check(1)").fetchone()
        runs = len(ledger.runs())
    except ClusterkitError as error:
        return laptop.fault(error)
    except sqlite3.DatabaseError as error:
        said, runs = str(error), 0
    if said != "ok":
        cure = f"{shlex.join(['mv', str(path), f'{path}.damaged'])} (it is only a cache)"
        return failed(f"{path} is damaged: {said}", cure)
    exam.ledger = ledger
    return passed(f"whole, {runs} run{'' if runs == 1 else 's'}")


def _code(exam: Examination) -> Verdict:
    try:
        snapshot = take_snapshot(exam.settings)
        for planned in exam.planned.values():
            check_script(snapshot.project, planned.program.argv)
    except ClusterkitError as error:
        return laptop.fault(error)
    count = len(snapshot.project.files)
    return passed(f"{count} file{'' if count == 1 else 's'}, {format_bytes(snapshot.bytes)} with the trainer")


def _disk(exam: Examination) -> Verdict:
    folder = exam.settings.project.results
    while not folder.exists():
        folder = folder.parent
    return laptop.disk_here(shutil.disk_usage(folder).free, str(folder))


def _image(exam: Examination) -> Verdict:
    assert exam.ledger is not None
    exam.say("reading the image")
    try:
        exam.image = image_of(exam.cluster, exam.ledger, exam.bar)
    except ClusterkitError as error:
        return laptop.fault(error)
    where = exam.cluster.image if exam.uploads else "only on the cluster"
    return passed(f"{exam.image.digest[:12] if exam.image else ''}, {where}")


def _wandb_login() -> Verdict:
    try:
        url = credentials.base_url(os.environ, folders.home_or_root())
        found = credentials.find(os.environ, folders.home_or_root())
    except WandbError as error:
        return laptop.fault(error)
    trouble, version = None, ""
    try:
        version = client.installed_version()
    except WandbError as error:
        trouble = error
    return laptop.wandb_login(key=found is not None, url=url, client=version, trouble=trouble)


def _wandb_server(exam: Examination) -> Verdict:
    from clusterkit.wandb.server import answers, history_lines

    project = exam.settings.project.wandb
    found = None
    try:
        url = credentials.base_url(os.environ, folders.home_or_root())
        found = credentials.find(os.environ, folders.home_or_root())
        if found is None:
            answers(url, timeout=_SERVER_SECONDS)
            return passed(f"{url} answers")
        known = history_lines(
            found,
            entity=project.entity,
            project=project.project,
            run_id="clusterkit-doctor",
            timeout=_SERVER_SECONDS,
        )
    except WandbError as error:
        return laptop.fault(error) if found else warned(error.cause, error.hint or "")
    if known is None:
        return warned(f"{url} answers, but not as W&B does", "WANDB_BASE_URL, or wandb login --host")
    return passed(f"{url} answers and takes the key")


def _rsync() -> Verdict:
    program = shutil.which("rsync")
    said = ""
    if program:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return laptop.rsync_version(said, "this machine")


def _ssh_key(exam: Examination, host: object) -> Verdict:
    from clusterkit.transport.keys import agent_keys
    from clusterkit.transport.resolve import HostConfig

    assert isinstance(host, HostConfig)
    files = [path for path in host.identity_files if path.is_file()]
    keys = [laptop.Key(str(path), stat.S_IMODE(path.stat().st_mode)) for path in files]
    wide = [key for key in keys if key.open]
    if exam.fix and wide:
        try:
            for key in wide:
                Path(key.path).chmod(key.mode & 0o700)
        except OSError as error:
            return warned(f"{error.filename} cannot be made private: {error.strerror}", "chmod it by hand")
        exam.sheet.fixes["ssh-key"] = f"chmod go= {' '.join(key.path for key in wide)}"
        keys = [laptop.Key(key.path, key.mode & 0o700) for key in keys]
    return laptop.ssh_key(keys, len(agent_keys(host)))
