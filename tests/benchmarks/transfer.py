"""Moving files through clusterkit's one connection against `rsync -e ssh`, over a real sshd on loopback.

`ratio_upload`: random bytes onto an empty target; both sides pay their login, every time.
`ratio_noop`: nothing has changed; ours goes over the connection that is open already, as the second
and every later transfer of a command does, while `rsync -e ssh` logs in anew, as it always does.
`ratio_noop_with_login`: the same with our login inside the clock.
Interleaved runs, medians; above 1 we are faster. Uploads are compared byte by byte afterwards.
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
from tests.benchmarks._report import arguments, report
from tests.doubles.loopback_sshd import LoopbackSshd

NOOP_FILES = 300


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
        peer_argv = ["rsync", "-rlpt", "-e", f"ssh -F {server.ssh_config}", f"{source}/", f"node:{peers}/"]

        def upload_with_login() -> None:
            with closing(connect(server.alias, ssh_config=server.ssh_config)) as transport:
                transport.push(source, str(ours))

        def upload_by_peer() -> None:
            subprocess.run(peer_argv, check=True)

        with closing(connect(server.alias, ssh_config=server.ssh_config)) as transport:
            for _ in range(repetitions):
                for target in (ours, peers):
                    shutil.rmtree(target, ignore_errors=True)
                os.sync()  # the disk work of one side must not fall into the other's time
                clock("upload", upload_with_login)
                os.sync()
                clock("rsync_upload", upload_by_peer)
                if not filecmp.cmp(ours / "image.sif", peers / "image.sif", shallow=False):
                    raise AssertionError("the two uploads differ")
            for _ in range(3 * repetitions):
                clock("noop", lambda: transport.push(source, str(ours)))
                clock("rsync_noop", upload_by_peer)
                clock("noop_with_login", upload_with_login)
    return times


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    megabytes = 300 if quick else 400
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        times = measure(Path(folder), megabytes, repetitions=3 if quick else 7)
    median = {what: statistics.median(values) for what, values in times.items()}
    peer = "rsync -e ssh (new login)"
    files = NOOP_FILES + 1
    report(
        "transfer",
        [
            (f"upload {megabytes} MB", "new login", median["upload"], peer, median["rsync_upload"], "s"),
            (
                f"nothing to do, {files} files",
                "open connection",
                median["noop"],
                peer,
                median["rsync_noop"],
                "s",
            ),
            (
                f"nothing to do, {files} files",
                "new login",
                median["noop_with_login"],
                peer,
                median["rsync_noop"],
                "s",
            ),
        ],
        {
            "upload_s": median["upload"],
            "rsync_upload_s": median["rsync_upload"],
            "noop_s": median["noop"],
            "rsync_noop_s": median["rsync_noop"],
            "noop_with_login_s": median["noop_with_login"],
            "ratio_upload": median["rsync_upload"] / median["upload"],
            "ratio_noop": median["rsync_noop"] / median["noop"],
            "ratio_noop_with_login": median["rsync_noop"] / median["noop_with_login"],
        },
    )


if __name__ == "__main__":
    main()
