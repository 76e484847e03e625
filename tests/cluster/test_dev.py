"""forward, ssh and dev on a real cluster: what reaches inside a job, for nobody else, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.allowing import state
from tests.cluster import small_image
from tests.cluster.laptop import User
from tests.doubles.person import type_at_terminal
from tests.waiting import until

PORT, BOBS, FREE = 8765, 8766, 8767
PROFILES = """
[profiles.web]
gpu = "a40"
cpus = 1
memory = "1G"
time = "30m"
program = ["python", "web.py"]

"""
WEB = f"""
import os, socket, threading
def serve(peer):
    file = peer.makefile("rb")
    while file.readline():
        size = 0
        while (line := file.readline()) not in (b"\\r\\n", b""):
            if line.lower().startswith(b"content-length:"): size = int(line.split(b":")[1])
        body = file.read(size) or b"hello from " + os.uname().nodename.encode()
        peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
server = socket.create_server(("127.0.0.1", {PORT}))
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
NODE = "a40n1"
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def web(user: User) -> User:
    """With a program that is an HTTP server, deployed."""
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(PROFILES)
    (user.folder / "web.py").write_text(WEB)
    user.types("deploy")
    return user


@pytest.fixture(scope="module")
def running(web: User) -> Iterator[str]:
    """A run of it that answers, until it is cancelled."""
    run_id = begins(web)
    yield run_id
    web.types("cancel", run_id)


def begins(web: User) -> str:
    run_id = web.submits("--profile", "web")
    until(lambda: PORT in listening(web, NODE))
    return run_id


def listening(web: User, node: str) -> list[int]:
    """The TCP ports on which anyone but root listens on a node."""
    rows = web.cluster.run(node, ["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6"]).stdout.splitlines()
    words = [row.split() for row in rows if " 0A " in row]
    return [int(each[1].rpartition(":")[2], 16) for each in words if each[7] != "0"]


def unix_listeners(web: User, node: str) -> list[str]:
    """The paths of Unix sockets on which a process of the node listens, but for Slurm's own of each step."""
    rows = web.cluster.run(node, ["cat", "/proc/net/unix"]).stdout.splitlines()[1:]
    paths = [row.split()[-1] for row in rows if row.split()[3] == "00010000"]
    return sorted(path for path in paths if not path.startswith("/var/spool/slurmd/"))


def processes(web: User, node: str) -> str:
    done = web.cluster.run(node, ["ps", "-u", web.cluster.user, "-o", "args="], check=False)
    return done.stdout


def steps(web: User) -> list[str]:
    listed = web.cluster.run(
        "login", ["squeue", "-h", "-s", "-o", "%i"], user=web.cluster.user
    ).stdout.split()
    return [step for step in listed if not step.endswith(".batch")]


def environment(web: User) -> dict[str, str]:
    home = str(web.folder.parent)
    return {"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home} | state()


@contextmanager
def forwarding(web: User, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """`clusterkit forward`, once it is ready: its process, and the ports here."""
    process = web.starts("forward", *words)
    assert process.stdout is not None
    ports = []
    for _ in words[1:]:
        line = process.stdout.readline()
        assert line, process.communicate()
        ports.append(int(line.split()[0].rpartition(":")[2]))
    try:
        yield process, ports
    finally:
        process.terminate()
        process.communicate()


def fetch(port: int, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data, timeout=60) as answer:
        body: bytes = answer.read()
        return body


def test_a_port_of_the_node_answers_on_the_laptop(web: User, running: str) -> None:
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {BOBS})); time.sleep(600)"
    run = ["sh", "-c", f'python3 -c "{listen}" >/dev/null 2>&1 & echo $!']
    bob = web.cluster.run(NODE, run, user="bob").stdout.strip()
    with web.logging_in(times=1), forwarding(web, running, f":{PORT}", f":{BOBS}", f"0:{FREE}") as started:
        process, (here, bobs, nobodys) = started
        assert fetch(here) == f"hello from {NODE}".encode()
        body = os.urandom(4 << 20)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: fetch(here, body), range(8))) == {body}
        for port in (bobs, nobodys):
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                fetch(port)
        taken = web.tries("forward", running, f"{here}:{PORT}")
        assert taken.returncode == 3
        assert f"port {here} of this machine cannot be opened: Address already in use" in taken.stderr
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((own_address(), here), 5)
        assert len(steps(web)) == 1
        process.terminate()
        _, said = process.communicate()
    assert f"a connection was refused: port {BOBS} is another user's" in said
    assert f"a connection was refused: nothing listens on port {FREE}" in said
    until(lambda: not steps(web))
    web.cluster.run(NODE, ["kill", bob])


def own_address() -> str:
    """An address of this machine that is not the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("192.0.2.1", 9))  # sends nothing
        address: str = asking.getsockname()[0]
        return address


def test_a_killed_forward_leaves_no_step(web: User, running: str) -> None:
    with forwarding(web, running, f":{PORT}") as (process, _):
        process.send_signal(signal.SIGKILL)
    until(lambda: not steps(web))
    until(lambda: "srun" not in processes(web, "login"))


def test_forward_outlives_a_dropped_link(web: User, running: str) -> None:
    with forwarding(web, running, f":{PORT}") as (process, (here,)):
        before = web.cluster.logins()
        web.cluster.run("login", ["pkill", "-KILL", "-u", web.cluster.user, "sshd"])
        until(lambda: web.cluster.logins() > before)
        assert fetch(here) == f"hello from {NODE}".encode()
        process.terminate()
        _, said = process.communicate()
    assert "the connection was lost; logged in again" in said
    until(lambda: not steps(web))


def test_stock_ssh_rsync_and_sftp_reach_inside(web: User, running: str, tmp_path: Path) -> None:
    web.types("login", "site")
    entry = tmp_path / "entry"
    with web.logging_in(times=0):
        entry.write_text(web.types("ssh-config", running))
        ssh = ["ssh", "-F", str(entry)]
        tell = "echo $CLUSTERKIT_RUN_ID; . /etc/os-release; echo $ID; exit 5"
        done = stock(web, [*ssh, running, tell])
        assert (done.returncode, done.stdout) == (5, f"{running}\n{small_image.NAME}\n"), done.stderr
        assert stock(web, [*ssh, "-T", running], stdin="echo $((6 * 7))\n").stdout == "42\n"
        big = tmp_path / "big"
        big.write_bytes(os.urandom(3 << 20))
        rsync = ["rsync", "-a", "-e", f"ssh -F {entry}"]
        assert stock(web, [*rsync, str(big), f"{running}:up/"]).returncode == 0
        assert stock(web, [*rsync, f"{running}:up/big", str(tmp_path / "again")]).returncode == 0
        assert (tmp_path / "again").read_bytes() == big.read_bytes()
        assert (web.root / "runs" / running / "up/big").read_bytes() == big.read_bytes()
        batch = f"get run.json {tmp_path}/run.json\nput {entry} entry\n"
        done = stock(web, ["sftp", "-b", "-", "-F", str(entry), running], stdin=batch)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "run.json").read_bytes() == (web.root / "runs" / running / "run.json").read_bytes()
        assert (
            web.types("ssh", running, "--", "printf", "'%s|'", "'a  b'", "$ID", "x;", "echo y")
            == "a  b|x|y\n"
        )
    web.types("logout", "site")
    with web.logging_in(times=1):
        assert stock(web, [*ssh, running, "true"]).returncode == 0
    until(lambda: not steps(web))


def stock(web: User, argv: list[str], *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of this machine as the person at the laptop."""
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, env=environment(web), timeout=60)


def test_without_sshd_it_says_what_works(web: User, running: str) -> None:
    web.cluster.run(NODE, ["chmod", "700", "/usr/sbin/sshd"])
    done = web.tries("ssh", "--stdio", running)
    web.cluster.run(NODE, ["chmod", "755", "/usr/sbin/sshd"])
    assert done.returncode == 8
    assert f"ssh cannot enter {running}: {NODE} has no sshd" in done.stderr
    assert f"`clusterkit shell {running}` needs neither" in done.stderr


@pytest.fixture(scope="module", autouse=True)
def before(web: User) -> dict[str, str]:
    """What was on the nodes before the first of these tests."""
    return {node: left_over(web, node) for node in (NODE, "login")}


def left_over(user: User, node: str) -> str:
    """Private keys anywhere, and what lies in a node's /tmp: also what other tests have left there."""
    search = "grep -rlI -e 'PRIVATE KEY' /tmp /var/tmp /dev/shm /run /share 2>/dev/null; ls /tmp"
    return user.cluster.run(node, ["sh", "-c", search]).stdout


def test_nobody_else_gets_in_and_nothing_stays(
    web: User, running: str, before: dict[str, str], tmp_path: Path
) -> None:
    run_id, sockets = running, unix_listeners(web, NODE)
    entry = tmp_path / "entry"
    entry.write_text(web.types("ssh-config", run_id))
    keys = web.folder / ".clusterkit/ssh" / run_id
    assert oct(keys.stat().st_mode & 0o777) == "0o700"
    talking = subprocess.Popen(
        ["ssh", "-F", str(entry), run_id, "echo here; exec sleep 6172"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(web),
    )
    assert talking.stdout is not None
    assert talking.stdout.readline() == "here\n"
    with forwarding(web, run_id, f":{PORT}") as (process, (here,)):
        assert fetch(here) == f"hello from {NODE}".encode()
        assert listening(web, NODE) == [PORT]
        assert unix_listeners(web, NODE) == sockets
        scratch = f"/share/alice/{web.folder.parent.name}/scratch"
        find = ["sh", "-c", f"ls {scratch}/*/ssh.*/host_key; ls {scratch}"]
        assert "host_key" in web.cluster.run(NODE, find, user="alice").stdout
        assert web.cluster.run(NODE, find, user="bob", check=False).stdout == ""
        web.types("cancel", run_id)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, said
        assert said.splitlines()[-1].startswith(f"{run_id} ")
        assert said.splitlines()[-1].endswith(": nothing is forwarded any more")
    talking.communicate(timeout=PATIENCE_SECONDS)
    assert talking.returncode != 0
    until(lambda: not processes(web, NODE))
    until(lambda: "srun" not in processes(web, "login"))
    assert listening(web, NODE) == []
    assert unix_listeners(web, NODE) == sockets
    for node, found in before.items():
        assert left_over(web, node) == found
    assert not list((web.root / "scratch").iterdir())
    assert not (web.folder / ".clusterkit/ssh").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", here), 5)
    ended = web.tries("ssh", run_id)
    assert ended.returncode == 8
    assert f"{run_id} has ended as CANCELLED" in ended.stderr


def test_dev_opens_a_shell_and_ends_with_it(web: User) -> None:
    keys = iter(["cat notes.txt; echo $((6 * 7)); hostname", "exit 3"])
    noon = f"NOON{time.gmtime().tm_hour - 12}"  # a zone where the job ends today, whenever this runs
    with web.logging_in(times=1):
        done = type_at_terminal(
            ["dev", "--profile", "web"],
            {") work$": lambda: next(keys)},
            folder=web.folder,
            environment={**environment(web), "TZ": noon, "TERM": "xterm", "COLUMNS": "200"},
        )
    assert done.returncode == 3, done.stdout
    assert "part of the snapshot\r\n42\r\n" in done.stdout
    assert "1 a40 for 30m, at most 0.5 GPU hours" in done.stdout
    assert re.search(r"it runs on a40n1, until \d\d:\d\d at the latest", done.stdout)
    assert "the job has ended with the shell" in done.stdout
    until(lambda: not web.active())


def test_a_session_works_in_its_own_copy_of_the_code_and_what_it_changes_comes_home(web: User) -> None:
    run_id = web.types("dev", "--profile", "web", "--time", "5m", "--keep").strip()
    tell = ". /etc/os-release; echo $ID; cat notes.txt; echo made > made.txt; echo again > notes.txt"
    said = web.types("shell", run_id, "--", "sh", "-c", tell)
    assert said == f"{small_image.NAME}\npart of the snapshot\n"
    web.types("sync-results", run_id)
    home = web.folder / "results" / run_id / "work"
    assert {path.name: path.read_text() for path in home.iterdir()} == {
        "made.txt": "made\n",
        "notes.txt": "again\n",
    }
    web.types("cancel", run_id)
    until(lambda: not web.active())
