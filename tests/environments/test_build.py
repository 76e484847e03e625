"""An environment is built once, whatever is killed, and never seen half made: real processes, real pip."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clusterkit.resources import TEMPLATES
from tests.doubles.wheels import digest, index, slow_source, wheel
from tests.programs import write_program
from tests.waiting import until

PROGRAM = TEMPLATES / "environment.sh"
SHOW = "import sys, os, slow; print('in', slow.version, sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix)"
FAILED = "the environment of lock.txt could not be built"


class Store:
    """One environment's folder, and jobs that want it."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.log, self.go = root, root / "an env", root / "builds", root / "go"
        self.folder.mkdir(mode=0o700)
        self.index = root / "index"
        slow_source(self.index)
        self.asks("slow\n")

    def asks(self, requirements: str, *, python: str = "", on_image: str = "no", options: str = "") -> None:
        about = f"on_image {on_image}\npython {python}\noptions {options}\nfile lock.txt\n"
        (self.folder / "about").write_text(about)
        (self.folder / "requirements.txt").write_text(requirements)

    def start(self, number: int = 0, code: str = SHOW, **env: str) -> subprocess.Popen[str]:
        """Starts what a job does before its program; all of it is one session."""
        run = self.root / f"run-{number}"
        (run / "scratch").mkdir(parents=True)
        more = {"BUILDS": str(self.log), "GO": str(self.go), "CLUSTERKIT_SCRATCH": str(run / "scratch")}
        argv = ["sh", str(PROGRAM), str(self.folder), str(run), sys.executable, "python", "-c", code]
        return subprocess.Popen(
            argv,
            env={**os.environ, **index(self.index), **more, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def builds(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def has_built(self, number: int) -> None:
        until(lambda: self.builds() == number, seconds=60)

    @property
    def place(self) -> Path:
        (place,) = (path for path in self.folder.iterdir() if path.is_dir())
        return place

    @property
    def current(self) -> Path:
        return self.place / (self.place / "current").readlink()

    def builder(self) -> list[str]:
        """Who took the last turn: name, machine, process, its start."""
        turn = max(self.place.glob("turn-*"), key=lambda path: int(path.name[5:]))
        return (self.place / f"{turn.readlink()}.builder").read_text().splitlines()

    def trees(self) -> list[Path]:
        return [path for path in self.place.iterdir() if path.is_dir() and not path.is_symlink()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_twenty_jobs_build_it_once_though_its_builder_is_killed_twice(store: Store) -> None:
    jobs = {job.pid: job for job in map(store.start, range(20))}
    killed = []
    for number, kill in ((1, os.kill), (2, os.killpg)):  # the builder alone, then all that it has started
        store.has_built(number)
        assert not (store.place / "current").is_symlink()
        killed.append(int(store.builder()[2]))
        kill(killed[-1], signal.SIGKILL)
    store.has_built(3)
    store.go.touch()
    said = {pid: job.communicate(timeout=120)[0] for pid, job in jobs.items()}
    assert [jobs.pop(pid).returncode for pid in killed] == [-signal.SIGKILL] * 2
    assert {job.returncode for job in jobs.values()} == {0}, said
    assert {said[pid].splitlines()[-1] for pid in jobs} == {f"in 1.0 True {store.current}"}
    assert sum("the environment is built" in text for text in said.values()) == 1
    assert store.builds() == 3
    assert store.trees() == [store.current]
    assert {path.read_text() for path in store.root.glob("run-*/environment.txt")} == {"slow==1.0\n"}


def test_what_is_built_is_read_only_and_not_built_again(store: Store) -> None:
    store.go.touch()
    assert store.start().wait(60) == 0
    assert [
        path for path in store.current.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o277
    ] == []
    assert int(store.place.with_name(f"{store.place.name}.bytes").read_text()) > 10_000
    again = store.start(1)
    assert "[clusterkit] its environment has 1 packages" in again.communicate(timeout=60)[0]
    assert store.builds() == 1


def test_those_who_waited_for_a_build_that_fails_have_its_reason_and_a_later_one_tries_again(
    store: Store,
) -> None:
    first = store.start(0)
    store.has_built(1)
    second = store.start(1)
    assert second.stdout is not None
    assert "it waits for the environment, which " in second.stdout.readline()
    store.go.write_text("refuse")
    assert (first.wait(60), second.wait(60)) == (1, 1)
    for number in (0, 1):
        assert (
            (store.root / f"run-{number}/scratch/environment").read_text().startswith(f"{FAILED} (compile): ")
        )
    assert store.builds() == 1
    assert store.trees() == []
    store.go.write_text("")
    assert store.start(2).wait(60) == 0
    assert store.builds() == 2


def test_a_signal_ends_the_build_and_another_takes_it_up_at_once(store: Store) -> None:
    first = store.start(0)
    store.has_built(1)
    second = store.start(1)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(60) == 128 + signal.SIGTERM
    store.has_built(2)
    store.go.touch()
    assert second.wait(60) == 0


@pytest.mark.parametrize(("beats", "builds"), [(False, 2), (True, 1)], ids=["silent", "alive"])
def test_a_builder_on_another_node_is_dead_when_it_is_silent_for_long(
    store: Store, beats: bool, builds: int
) -> None:
    first = store.start(0)
    store.has_built(1)
    turn = (store.place / "turn-1").readlink()
    (store.place / f"{turn}.builder").write_text("\n".join(["vm", "another", *store.builder()[2:], ""]))
    first.send_signal(signal.SIGSTOP)
    over = threading.Event()

    def beat() -> None:
        for number in range(100):
            (store.place / f"{turn}.beat").write_text(f"{number}\n")
            if over.wait(0.5):
                break

    if beats:
        threading.Thread(target=beat, daemon=True).start()
    second = store.start(1, CLUSTERKIT_PATIENCE="2")
    if beats:
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(5)
    else:
        store.has_built(2)
    assert store.builds() == builds
    over.set()
    first.send_signal(signal.SIGCONT)
    store.go.touch()
    assert second.wait(60) == 0
    assert first.wait(60) == (0 if beats else 1)  # it lives again, and has lost its place
    assert store.start(2).wait(60) == 0
    assert store.trees() == [store.current]
    assert store.builds() == builds


REFUSED = {
    "network": "slow @ https://no-such-host.invalid/slow-1.0.tar.gz\n",
    "packages": "no-such-package\n",
    "hash": "alpha==1.0 --hash=sha256:" + "0" * 64 + "\n",
    "python": "alpha\n",
}


@pytest.mark.parametrize("cause", REFUSED)
def test_a_build_that_cannot_be_says_why(store: Store, cause: str) -> None:
    wheel(store.index, "alpha")
    store.asks(REFUSED[cause], python=">=3.8, <3.9" if cause == "python" else ">=3.8")
    job = store.start(PIP_RETRIES="0")
    output = job.communicate(timeout=120)[0]
    assert job.returncode == 1
    assert output.splitlines()[-1].startswith(f"[clusterkit] {FAILED} ({cause}): "), output


def test_a_python_that_does_not_start_is_the_reason(store: Store) -> None:
    argv = ["sh", str(PROGRAM), str(store.folder), str(store.root), "no-such-python", "python"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == f"[clusterkit] {FAILED} (venv): no-such-python does not start\n"


def test_packages_that_were_fetched_are_all_that_is_used(store: Store) -> None:
    path = wheel(store.index, "slow")
    store.asks(f"--extra-index-url https://no-such-host.invalid/simple\nslow==1.0 --hash={digest(path)}\n")
    argv = ["sh", str(PROGRAM), str(store.folder), "--download", sys.executable]
    for _ in range(2):
        environment = {**os.environ, **index(store.index)}
        subprocess.run(argv, check=True, capture_output=True, env=environment)
    assert [file.name for file in (store.folder / "wheels").glob("[!.]*")] == [path.name]
    assert {file.name for file in store.folder.iterdir() if file.is_dir()} == {"wheels"}
    path.unlink()
    assert store.start().wait(60) == 0
    assert store.builds() == 0


def test_what_is_fetched_as_sources_is_built_where_it_is_fetched(store: Store) -> None:
    pin = f"slow==1.0 --hash={digest(store.index / 'slow-1.0.tar.gz')}\n"
    store.asks(pin, options="--no-deps --require-hashes")
    store.go.touch()
    argv = ["sh", str(PROGRAM), str(store.folder), "--download", sys.executable]
    more = {"BUILDS": str(store.log), "GO": str(store.go)}
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, **index(store.index), **more})
    assert [file.name for file in (store.folder / "wheels").glob("[!.]*")] == ["slow-1.0-py3-none-any.whl"]
    assert store.start().wait(60) == 0
    assert store.builds() == 1


def test_what_has_no_hash_is_installed_apart_from_what_has_one(store: Store) -> None:
    path = wheel(store.index, "slow")
    wheel(store.index, "alpha", requires=["not-there"])
    store.asks(f"slow==1.0 --hash={digest(path)}\n", options="--no-deps --require-hashes")
    (store.folder / "unhashed.txt").write_text("alpha==1.0\n")
    assert store.start().wait(60) == 0
    assert (store.root / "run-0/environment.txt").read_text() == "alpha==1.0\nslow==1.0\n"


def test_a_project_that_names_no_package_has_an_empty_environment(store: Store) -> None:
    (store.folder / "requirements.txt").unlink()
    output = store.start(code="import sys; print(sys.prefix)").communicate(timeout=60)[0]
    assert output.splitlines()[-1] == str(store.current), output


def test_a_pip_that_installs_elsewhere_leaves_no_empty_environment(store: Store) -> None:
    output = store.start(PIP_TARGET=str(store.root / "target")).communicate(timeout=60)[0]
    assert f"{FAILED} (other): pip is configured to install elsewhere: :env:.target" in output
    assert not store.trees()


def test_where_no_link_can_be_made_nobody_waits_for_ever(store: Store) -> None:
    tools = store.root / "tools"
    tools.mkdir()
    (tools / "ln").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ln").chmod(0o700)
    output = store.start(PATH=f"{tools}:{os.environ['PATH']}").communicate(timeout=60)[0]
    assert f"{FAILED} (disk): cannot make a symbolic link in " in output


def test_of_an_environment_that_was_removed_nothing_is_made(store: Store) -> None:
    (store.folder / "about").unlink()
    assert "an env is gone: submit again" in store.start().communicate(timeout=60)[0]
    assert [path.name for path in store.folder.iterdir()] == ["requirements.txt"]


def test_a_builder_removes_nothing_of_a_later_turn(store: Store) -> None:
    store.go.write_text("refuse")
    assert store.start().wait(60) == 1
    later = store.place / "t-later"
    later.mkdir()
    store.go.write_text("")
    assert store.start(1).wait(60) == 0
    assert sorted(store.trees()) == sorted([later, store.current])


def test_an_environment_on_an_image_has_what_its_own_environment_has(store: Store) -> None:
    wheel(store.index, "alpha")
    wheel(store.index, "slow")
    image = store.root / "image"
    subprocess.run([sys.executable, "-m", "venv", str(image)], check=True)
    install = [str(image / "bin/python"), "-m", "pip", "install", "-q", "alpha"]
    subprocess.run(install, check=True, env={**os.environ, **index(store.index)})
    store.asks("slow\n", on_image="yes")
    argv = ["sh", str(PROGRAM), str(store.folder), str(store.root), str(image / "bin/python"), "python", "-c"]
    environment = {**os.environ, **index(store.index)}
    done = subprocess.run([*argv, f"import alpha; {SHOW}"], check=False, env=environment, capture_output=True)
    assert b"in 1.0 True" in done.stdout, done.stdout + done.stderr
    (image / f"lib/python3.{sys.version_info[1]}/site-packages/beta-1.dist-info").mkdir()  # a newer image
    subprocess.run([*argv, SHOW], check=True, env=environment, capture_output=True)
    assert len([path for path in store.folder.iterdir() if path.is_dir()]) == 2


def test_conda_makes_what_environment_yml_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of its name stands for conda: it makes the folder that it is told to make."""
    (store.folder / "environment.yml").write_text("dependencies:\n- alpha=1.0\n")
    tools = store.root / "tools"
    tools.mkdir()
    text = '#!/bin/sh\nmkdir -p "$4/bin" "$4/conda-meta" && : >"$4/conda-meta/alpha-1.0-py_0.json"\n'
    for name in ("micromamba", "conda"):
        (tools / name).write_text(text)
        (tools / name).chmod(0o700)
    show = ["sh", "-c", 'echo "$CONDA_PREFIX"']
    argv = ["sh", str(PROGRAM), str(store.folder), str(store.root), sys.executable, *show]
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == str(store.current), done
    assert (store.root / "environment.txt").read_text() == "alpha==1.0\n"
    (store.place / "current").unlink()
    (tools / "micromamba").write_text('#!/bin/sh\nmkdir "$4"\n')
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.endswith("(other): what was built has no Python that starts\n")


def test_packages_that_were_fetched_for_other_processors_are_refused(store: Store, tmp_path: Path) -> None:
    store.asks("fast\n")
    (store.folder / "wheels").mkdir()
    (store.folder / "wheels" / "fast-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl").touch()
    script = '[ "$*" != -m ] || exec echo aarch64\nexec /bin/uname "$@"'
    node = write_program(tmp_path / "node", "uname", script)
    said, _ = store.start(PATH=f"{node}:{os.environ['PATH']}").communicate()
    assert "x86_64.whl was fetched for others than this aarch64" in said
    assert any(platform.machine() in path.name for path in store.folder.iterdir())


def test_packages_for_all_processors_may_be_named_after_linux(store: Store) -> None:
    wheel(store.folder / "wheels", "linux_metrics")
    store.asks("linux_metrics\n")
    said, _ = store.start(code="import linux_metrics").communicate()
    assert "[clusterkit] its environment has 1 packages" in said
    assert "was fetched for others" not in said
