"""What a command costs with and without a kept login, against ssh with and without ControlMaster.

`ratio_kept`: `true` on the far side, from a new process each: a Python that connects as every command of
ours does, against the ssh program over an open ControlMaster; Python's own start is inside the clock.
`ratio_login`: the same with a login each time. `ratio_kept_next`: one more command in a process that is
connected already, over the kept login, against the ssh program over its master.
`ratio_upload_kept`: random bytes through the kept login, against `rsync -e ssh` over the master.
`gain_kept`: a command of ours that logs in, against one that finds a login.
Medians; runs are interleaved; above 1 we are faster. Loopback: a real network adds its round trips to
every login, and saves us more.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from clusterkit.transport.factory import connect
from clusterkit.transport.openssh import master
from clusterkit.transport.openssh.kept import socket_paths
from tests.benchmarks._report import arguments, report
from tests.doubles.loopback_sshd import LoopbackSshd

COMMAND = (
    "import pathlib, sys; from clusterkit.transport.factory import connect\n"
    "connect('node', ssh_config=pathlib.Path(sys.argv[1])).run(['true'])"
)


def measure(folder: Path, repetitions: int, megabytes: int) -> dict[str, list[float]]:
    """Seconds of every repetition, by what was measured."""
    times: dict[str, list[float]] = {}
    source = folder / "source"
    source.mkdir()
    (source / "image.sif").write_bytes(os.urandom(megabytes * 1_000_000))

    def clock(what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        times.setdefault(what, []).append(time.perf_counter() - start)

    def run(*argv: str) -> Callable[[], object]:
        return lambda: subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    def upload(what: str, work: Callable[[], object]) -> None:
        shutil.rmtree(folder / "copy", ignore_errors=True)
        os.sync()
        clock(what, work)

    with closing(LoopbackSshd(folder / "sshd")) as server:
        config, place = server.ssh_config, folder / "runtime"
        place.mkdir(mode=0o700)
        ours = run(sys.executable, "-c", COMMAND, str(config))
        ssh = ("ssh", "-F", str(config))
        over_master = (*ssh, "-o", f"ControlPath={folder}/master")
        subprocess.run([*over_master, "-fNM", server.alias], check=True)
        os.environ["XDG_RUNTIME_DIR"] = str(place)
        with closing(connect(server.alias, ssh_config=config, keep=600)) as kept:
            for _ in range(repetitions):
                clock("kept", ours)
                clock("master", run(*over_master, server.alias, "true"))
                os.environ["XDG_RUNTIME_DIR"] = str(folder)  # where no login is kept
                clock("login", ours)
                clock("ssh", run(*ssh, server.alias, "true"))
                os.environ["XDG_RUNTIME_DIR"] = str(place)
                clock("kept_next", lambda: kept.run(["true"]))
            for _ in range(3):
                upload("upload_kept", lambda: kept.push(source, str(folder / "copy")))
                rsync = ("rsync", "-rlpt", "-e", " ".join(over_master), f"{source}/")
                upload("upload_master", run(*rsync, f"{server.alias}:{folder}/copy/"))
            logins = server.accepted_logins()
            for path in socket_paths():
                master.end(path)
        subprocess.run([*over_master, "-q", "-O", "exit", server.alias], check=True)
        if logins != 2 + 2 * repetitions:
            raise AssertionError(f"{logins} logins: something did not use what it should")
    return times


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    with tempfile.TemporaryDirectory(prefix="ck-", dir="/tmp") as folder:
        times = measure(Path(folder), repetitions=10 if quick else 40, megabytes=100 if quick else 300)
    took = {what: statistics.median(values) for what, values in times.items()}
    master, fresh = "ssh over ControlMaster", "ssh, new login"
    report(
        "login",
        [
            ("true, new process", "kept login", took["kept"], master, took["master"], "s"),
            ("true, new process", "new login", took["login"], fresh, took["ssh"], "s"),
            ("true, next command", "kept login", took["kept_next"], master, took["master"], "s"),
            ("upload", "kept login", took["upload_kept"], "rsync over it", took["upload_master"], "s"),
        ],
        {
            **{f"{what}_s": value for what, value in took.items()},
            "ratio_kept": took["master"] / took["kept"],
            "ratio_login": took["ssh"] / took["login"],
            "ratio_kept_next": took["master"] / took["kept_next"],
            "ratio_upload_kept": took["upload_master"] / took["upload_kept"],
            "gain_kept": took["login"] / took["kept"],
        },
    )


if __name__ == "__main__":
    main()
