"""Moving files through clusterkit's one connection against `rsync -e ssh`, over a real sshd on loopback.

`ratio_upload`, `ratio_download`: random bytes onto an empty target; both sides pay their login, every
time; the fastest of all repetitions counts, as neighbours and disks only ever slow a run down.
`ratio_upload_shaped`: the same upload, a tenth of it, through a relay that lets 200 Mbit/s pass.
`ratio_noop`: nothing has changed; ours goes over the connection that is open already, as the second
and every later transfer of a command does, while `rsync -e ssh` logs in anew, as it always does.
`ratio_noop_with_login`: the same with our login inside the clock.
`ratio_noop_deploy`: a whole deploy that finds image and code there (the tree, git, login, one command),
without the start of Python; `ratio_noop_deploy_command` with it, all modules compiled before, as pip does.
`snapshot_disk_factor`: space of 50 snapshots of a 20 MB project, one module changed in each, over one's.
What is called noop is a median. Runs are interleaved; above 1 we are faster; what was moved is compared
byte by byte.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from clusterkit.transport.factory import connect
from tests.benchmarks._deploys import disk_factor, noop_deploys
from tests.benchmarks._report import arguments, report
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay

NOOP_FILES = 300
SHAPED_RATE = 200e6 / 8
"""Bytes a second."""


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path, megabytes: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of every repetition, by what was measured."""
    source, ours, peers = folder / "source", folder / "ours", folder / "peers"
    (source / "code").mkdir(parents=True)
    with (source / "image.sif").open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    for number in range(NOOP_FILES):
        (source / "code" / f"file{number}.py").write_bytes(os.urandom(2_000))
    times: dict[str, list[float]] = {}

    def clock(what: str, work: Callable[[], object]) -> None:
        times.setdefault(what, []).append(seconds(work))

    with closing(LoopbackSshd(folder / "sshd")) as server:
        peer = ["rsync", "-rlpt", "-e", f"ssh -F {server.ssh_config}"]

        def upload_with_login() -> None:
            with closing(connect(server.alias, ssh_config=server.ssh_config)) as transport:
                transport.push(source, str(ours))

        def download_with_login() -> None:
            with closing(connect(server.alias, ssh_config=server.ssh_config)) as transport:
                transport.pull(f"{source}/", ours)

        def upload_by_peer() -> None:
            subprocess.run([*peer, f"{source}/", f"node:{peers}/"], check=True)

        def download_by_peer() -> None:
            subprocess.run([*peer, f"node:{source}/", f"{peers}/"], check=True)

        def race(what: str, ours_first: Callable[[], None], peers_then: Callable[[], None]) -> None:
            for target in (ours, peers):
                shutil.rmtree(target, ignore_errors=True)
            os.sync()  # the disk work of one side must not fall into the other's time
            clock(what, ours_first)
            os.sync()
            clock(f"rsync_{what}", peers_then)
            if not filecmp.cmp(ours / "image.sif", peers / "image.sif", shallow=False):
                raise AssertionError("the two copies differ")

        with closing(connect(server.alias, ssh_config=server.ssh_config)) as transport:
            for _ in range(repetitions):
                race("download", download_with_login, download_by_peer)
                race("upload", upload_with_login, upload_by_peer)
            for _ in range(2 * repetitions):
                clock("noop", lambda: transport.push(source, str(ours)))
                clock("rsync_noop", upload_by_peer)
                clock("noop_with_login", upload_with_login)
    return times


def measure_shaped(folder: Path, megabytes: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of uploads of one file through the slow link, both sides logging in each time."""
    folder.mkdir()
    source = folder / "image.sif"
    source.write_bytes(os.urandom(megabytes * 1_000_000))
    times: dict[str, list[float]] = {"shaped": [], "rsync_shaped": []}
    with closing(LoopbackSshd(folder / "sshd")) as server, closing(Relay(server.port)) as relay:
        relay.rate = SHAPED_RATE
        config = folder / "ssh_config"
        config.write_text(relay.host_block(server))
        peer = ["rsync", "-t", "-e", f"ssh -F {config}", str(source)]

        def upload(target: Path) -> None:
            with closing(connect(server.alias, ssh_config=config)) as transport:
                transport.push(source, str(target))

        for number in range(repetitions):
            ours, peers = folder / f"ours{number}", folder / f"peers{number}"
            times["shaped"].append(seconds(lambda target=ours: upload(target)))
            command = [*peer, f"{server.alias}:{peers}"]
            times["rsync_shaped"].append(seconds(lambda argv=command: subprocess.run(argv, check=True)))
            if not filecmp.cmp(ours, peers, shallow=False):
                raise AssertionError("the two copies differ")
    return times


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    megabytes = 200 if quick else 400
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        times = measure(Path(folder) / "transfer", megabytes, repetitions=3 if quick else 7)
        times |= measure_shaped(Path(folder) / "shaped", megabytes // 10, repetitions=3)
        times |= noop_deploys(Path(folder) / "deploy", repetitions=5 if quick else 15)
        factor = disk_factor(Path(folder) / "disk")
    took = {what: (statistics.median if "noop" in what else min)(values) for what, values in times.items()}
    peer, files = "rsync -e ssh (new login)", NOOP_FILES + 1
    idle = f"nothing to do, {files} files"
    report(
        "transfer",
        [
            (f"upload {megabytes} MB", "new login", took["upload"], peer, took["rsync_upload"], "s"),
            (
                f"upload {megabytes // 10} MB at 200 Mbit/s",
                "new login",
                took["shaped"],
                peer,
                took["rsync_shaped"],
                "s",
            ),
            (f"download {megabytes} MB", "new login", took["download"], peer, took["rsync_download"], "s"),
            (idle, "open connection", took["noop"], peer, took["rsync_noop"], "s"),
            (idle, "new login", took["noop_with_login"], peer, took["rsync_noop"], "s"),
            ("nothing to deploy", "new login", took["deploy_noop"], peer, took["rsync_deploy_noop"], "s"),
            (
                "  as a command",
                "new login",
                took["deploy_noop_command"],
                peer,
                took["rsync_deploy_noop"],
                "s",
            ),
            ("50 snapshots, 20 MB", "on disk", factor, "one copy", 1.0, "x"),
        ],
        {
            **{f"{what}_s": value for what, value in took.items()},
            "ratio_upload": took["rsync_upload"] / took["upload"],
            "ratio_upload_shaped": took["rsync_shaped"] / took["shaped"],
            "ratio_download": took["rsync_download"] / took["download"],
            "ratio_noop": took["rsync_noop"] / took["noop"],
            "ratio_noop_with_login": took["rsync_noop"] / took["noop_with_login"],
            "ratio_noop_deploy": took["rsync_deploy_noop"] / took["deploy_noop"],
            "ratio_noop_deploy_command": took["rsync_deploy_noop"] / took["deploy_noop_command"],
            "snapshot_disk_factor": factor,
        },
    )


if __name__ == "__main__":
    main()
