"""From `pip install` to the first RUNNING job on a new cluster: the commands, and their seconds.

A wheel of this tree goes into a fresh virtual environment, with its dependencies from the package index, or
where that gives no answer without them, beside the packages that are here (the first line says which). Then
comes what a newcomer types in an empty folder, against a real Slurm with Apptainer, until `clusterkit status`
says RUNNING; at most six commands. The peer is what is typed without clusterkit, its job script ready made:
folders, scp of the image, rsync of the code, scp of the script, sbatch, squeue. Unlike it, `deploy` has read
the image here and there, to prove that it arrived whole.

The image is there before, as a site or a colleague may hand it out: to build it takes minutes, and nobody's
attention. `clusterkit init` writes the settings, and nobody edits them; thinking and reading are not in the
clock. The test cluster needs root.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clusterkit.runtimes import BUILDER
from tests.benchmarks._report import arguments, report
from tests.cluster.cluster import Cluster
from tests.cluster.image import trainer_image

ROOT = Path(__file__).resolve().parents[2]
MOST_COMMANDS = 6
JOB = """#!/bin/bash
#SBATCH --partition=gpu-a40 --gpus=a40:1 --mem=3G --time=10
apptainer exec --nv --bind /share /share/alice/by-hand/trainer.sif python -c 'import time; time.sleep(600)'
"""
Step = tuple[str, float]
"""What was typed, and its seconds."""


def wheel(folder: Path) -> Path:
    """This tree as a wheel."""
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


class Person:
    """Somebody with an empty home who types commands in a folder, with a watch.

    Args:
        folder: to type in.
        path: PATH.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self.steps: list[Step] = []
        self._folder = folder
        home = folder.with_name(f"{folder.name}-home")
        home.mkdir()
        self._env = {
            "PATH": path,
            "HOME": str(home),
            "COLUMNS": "120",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self._env |= {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_"))}

    def types(self, command: str, *, shown: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command that must succeed."""
        start = time.perf_counter()
        done = subprocess.run(
            shlex.split(command),
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        self.steps.append((shown or command, time.perf_counter() - start))
        if check and done.returncode:
            raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
        return done

    def until(self, command: str, shown: str, holds: Callable[[str], bool]) -> None:
        """Type the same again until its output is the right one; one command, whose time is until then."""
        before, start = len(self.steps), time.perf_counter()
        while not holds(said := self.types(command).stdout):
            if time.perf_counter() - start > 60:
                raise SystemExit(f"{command}: {said}")
            time.sleep(0.2)
        self.steps[before:] = [(shown, time.perf_counter() - start)]


def installs(person: Person, folder: Path, built: Path) -> str:
    """Type `pip install` of a wheel; returns where the dependencies came from."""
    pip = f"python -m pip install --quiet --retries=1 --timeout=10 {shlex.quote(str(built))}"
    if not person.types(pip, shown="pip install WHEEL", check=False).returncode:
        return "index"
    person.steps.pop()
    (site,) = (folder / ".venv").glob("lib/python*/site-packages")
    (site / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    person.types(f"{pip} --no-deps", shown="pip install --no-deps WHEEL")
    return "packages here"


def newcomer(folder: Path, cluster: Cluster, image: Path, built: Path) -> tuple[list[Step], str]:
    """What is typed with clusterkit, and where the dependencies came from."""
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    person = Person(folder, f"{folder}/.venv/bin:{os.environ['PATH']}")
    source = installs(person, folder, built)
    os.link(image, folder / BUILDER.image.file)
    init = f"clusterkit init login --yes --ssh-config {cluster.ssh_config}"
    person.types(init, shown="clusterkit init login --yes")
    person.types("clusterkit deploy")
    run_id = person.types("clusterkit submit").stdout.strip()
    person.until("clusterkit status", "clusterkit status", lambda said: "RUNNING" in said)
    person.types(f"clusterkit cancel {run_id} --yes")
    person.steps.pop()
    return person.steps, source


def by_hand(folder: Path, cluster: Cluster, image: Path) -> list[Step]:
    """What is typed without."""
    folder.mkdir()
    (folder / "job.sh").write_text(JOB)
    os.link(image, folder / "trainer.sif")
    shutil.copytree(ROOT / "trainer", folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    person = Person(folder, os.environ["PATH"])
    ssh, there = f"ssh -F {cluster.ssh_config}", "/share/alice/by-hand"
    person.types(f"{ssh} login mkdir -p {there}", shown="ssh mkdir")
    person.types(f"scp -q -F {cluster.ssh_config} trainer.sif login:{there}/", shown="scp trainer.sif")
    person.types(f"rsync -a -e '{ssh}' code login:{there}/", shown="rsync code")
    person.types(f"scp -q -F {cluster.ssh_config} job.sh login:{there}/", shown="scp job.sh")
    submit = f"{ssh} login sbatch --parsable --output={there}/log {there}/job.sh"
    job = person.types(submit, shown="ssh sbatch").stdout.strip()
    person.until(f"{ssh} login squeue -h -j {job} -o %T", "ssh squeue", lambda said: "RUNNING" in said)
    subprocess.run([*shlex.split(ssh), "login", "scancel", job], check=True)
    return person.steps


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    runs = []
    with tempfile.TemporaryDirectory(prefix="ck-") as home, Cluster() as cluster:
        place = Path(home)
        image = place / "trainer.sif"
        shutil.copyfile(trainer_image(cluster), image)
        built = wheel(place)
        for number in range(1 if quick else 3):
            steps, source = newcomer(place / f"new-{number}", cluster, image, built)
            hands = by_hand(place / f"hand-{number}", cluster, image)
            runs.append((_total(steps), steps, source, hands))
            shutil.rmtree(cluster.share / "alice")
    _, steps, source, hands = min(runs, key=lambda run: run[0])
    pairs = itertools.zip_longest(steps[1:], hands, fillvalue=("", 0.0))
    rows = [(f"dependencies: {source}", *steps[0], "", 0.0, "s")]
    rows += [(f"command {number}", *ours, *theirs, "s") for number, (ours, theirs) in enumerate(pairs, 2)]
    report(
        "newcomer",
        rows,
        {
            "commands": len(steps),
            "seconds": _total(steps),
            "seconds_pip": steps[0][1],
            "commands_by_hand": len(hands),
            "seconds_by_hand": _total(hands),
        },
    )
    if len(steps) > MOST_COMMANDS:
        raise SystemExit(f"{len(steps)} commands, and {MOST_COMMANDS} are the most")


def _total(steps: list[Step]) -> float:
    return sum(seconds for _, seconds in steps)


if __name__ == "__main__":
    main()
