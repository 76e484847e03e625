"""init as typed: over one login to a real sshd, with questions at a terminal and without."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import forked
from tests.backends.slurm.survey.sites import UNIVERSITY
from tests.backends.slurm.survey.tools import slurm_tools
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.person import type_at_terminal
from tests.needs import needing
from tests.programs import write_program

PAGE = Path(__file__).parents[2] / "docs/first-cluster.md"

pytestmark = pytest.mark.slow  # real servers and processes, a second or more each


class Laptop:
    """A person with an empty project folder and a login on a site with two accounts."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, tools = folder / "me", folder / "me/project", folder / "bin"
        for path in (self.project, tools):
            path.mkdir(parents=True)
        two = UNIVERSITY | {"associations": "proj_a||normal|normal|||||\nproj_b||normal|normal|||||\n"}
        slurm_tools(tools, two)
        write_program(tools, "singularity", "echo singularity-ce version 3.11.4")
        self.server = LoopbackSshd(
            folder / "sshd", lines=[f"SetEnv PATH={tools}:/usr/bin:/bin HOME={folder}"]
        )
        self.environment = forked.of_python() | {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "COLUMNS": "150",
            "TERM": "xterm",
        }
        self.file = self.project / "clusterkit.toml"
        self.ssh = ("--ssh-config", str(self.server.ssh_config))

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Without a terminal."""
        return forked.run(["init", *words], folder=self.project, env=self.environment)

    def talks(self, *words: str, answers: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """At a terminal."""
        typed = {text: (lambda answer=answer: answer) for text, answer in answers.items()}
        return type_at_terminal(["init", *words], typed, folder=self.project, environment=self.environment)


@pytest.fixture(scope="module")
@needing("sshd")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    made = Laptop(tmp_path_factory.mktemp("laptop"))
    with closing(made.server):
        yield made


@pytest.fixture
def fresh(laptop: Laptop) -> Laptop:
    laptop.file.unlink(missing_ok=True)
    return laptop


def next_lines(text: str) -> list[list[str]]:
    """The commands that init names at its end, with what it says of them."""
    first, *others = text.partition("next:")[2].partition("```")[0].splitlines()
    return [line.split() for line in [first, *others]]


def test_a_person_chooses_host_and_account(fresh: Laptop) -> None:
    done = fresh.talks(*fresh.ssh, answers={"Which host?": "1", "to 2 [1]": "2"})
    assert done.returncode == 0, done.stdout
    assert "Which account pays for the jobs?" in done.stdout
    assert "clusterkit submit --profile check-v100" in done.stdout
    written = tomllib.loads(fresh.file.read_text())
    assert written["project"]["default_cluster"] == "node"
    assert written["clusters"]["node"]["account"] == "proj_b"


def test_changes_are_shown_and_asked_about(fresh: Laptop) -> None:
    done = fresh.types("node", *fresh.ssh, "--yes")
    assert done.returncode == 0
    assert next_lines(done.stderr)[0] == [
        "clusterkit",
        "build",
        "clusterkit-trainer.sif",
        "the",
        "image,",
        "once",
    ]
    text = fresh.file.read_text()
    fresh.file.write_text(text.replace('max_time = "2d"', 'max_time = "5d"'))
    refused = fresh.talks("node", answers={"Write": "n"})
    assert '\x1b[31m-max_time = "5d"' in refused.stdout
    assert '"5d"' in fresh.file.read_text()
    assert fresh.talks("node", answers={"Write": "y"}).returncode == 0
    assert fresh.file.read_text() == text


def test_a_program_of_the_users_own_needs_no_image(fresh: Laptop) -> None:
    """As the tutorial shows it."""
    fresh.file.write_text('[project]\ndefault_cluster = "local"\nprogram = ["python", "train.py"]\n')
    done = fresh.types("node", *fresh.ssh, "--yes")
    assert done.returncode == 0, done.stderr
    text = fresh.file.read_text()
    assert "clusterkit-trainer" not in text + done.stderr
    assert re.search('container = "none" +# no image; with one: "singularity"', text)
    page = PAGE.read_text().replace("a40", "v100").replace("--cluster uni", "--cluster node")
    assert next_lines(done.stderr) == next_lines(page)


def test_diff_writes_nothing(fresh: Laptop) -> None:
    done = fresh.types("node", *fresh.ssh, "--yes", "--dry-run")
    assert done.returncode == 0
    assert "+[clusters.node.gpus.v100]" in done.stdout
    assert not fresh.file.exists()


def test_the_users_own_file(fresh: Laptop) -> None:
    assert fresh.types("node", *fresh.ssh, "--yes", "--user").returncode == 0
    own = fresh.home / ".config/clusterkit/config.toml"
    assert "node" in tomllib.loads(own.read_text())["clusters"]
    assert not fresh.file.exists()
    own.unlink()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "your ssh configuration has: node"),
        (["node"], "set it with --account"),
        (["node", "--account", "nobody"], "yours: proj_a, proj_b"),
        (["node", "--partition", "gpus"], "available: small, gpu, gputest"),
        (["node", "--container", "docker"], "must be 'apptainer', 'singularity', 'pyxis' or 'none'"),
        (["node", "--root", "here"], "is not absolute"),
        (["node", "--name", "a b"], "is not a name"),
        (["node", "--name", "local"], "give the new one another name"),
        (["--example", "mars"], "available: csc-roihu"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(fresh: Laptop, words: list[str], says: str) -> None:
    done = fresh.types(*words, *fresh.ssh)
    assert done.returncode == 3
    assert says in done.stderr
    assert not fresh.file.exists()


def test_a_broken_file_is_found_before_the_login(fresh: Laptop) -> None:
    fresh.file.write_text("[clusters.node\n")
    before = fresh.server.log().count("Accepted")
    assert fresh.types("node", *fresh.ssh, "--yes").returncode == 3
    assert fresh.server.log().count("Accepted") == before


@pytest.mark.needs("one-time codes")
def test_a_code_is_asked_for_once_and_a_site_without_slurm_is_refused(fresh: Laptop, tmp_path: Path) -> None:
    with closing(CodeSshd(tmp_path / "sshd")) as server:
        words = ("node", "--ssh-config", str(server.ssh_config), "--root", "~/clusterkit")
        done = type_at_terminal(
            ["init", *words],
            {"password": server.codes.next},
            folder=fresh.project,
            environment=fresh.environment,
        )
        assert done.returncode == 5, done.stdout
        assert (server.codes.used, server.accepted_logins()) == (1, 1)
    assert "no Slurm was found" in done.stdout
    assert "clusterkit deploy" not in done.stdout
    assert "no settings were written" in " ".join(done.stdout.split())
    assert not fresh.file.exists()


def test_the_home_folder_is_no_project(fresh: Laptop) -> None:
    done = forked.run(["init", "node", *fresh.ssh, "--yes"], folder=fresh.home, env=fresh.environment)
    assert done.returncode == 3
    assert "all of it into one project" in done.stderr


def test_examples(fresh: Laptop) -> None:
    listed = fresh.types("--examples").stdout
    assert "tu-wien-datalab" in listed
    assert fresh.types("--example", "tu-wien-datalab").returncode == 0
    assert "datalab" in tomllib.loads(fresh.file.read_text())["clusters"]
    assert fresh.types("--example", "uni-lu-iris", "--yes").returncode == 3


@pytest.mark.needs("root")
def test_a_root_that_another_user_could_change_is_refused(fresh: Laptop, tmp_path: Path) -> None:
    bobs = tmp_path / "bobs"
    bobs.mkdir()
    os.chown(bobs, 41002, 41002)
    asked = ("node", "--name", "uni", "--root", f"{bobs}/ck", "--account", "proj_a", *fresh.ssh)
    refused = fresh.types(*asked)
    assert refused.returncode == 10, refused
    assert f"others could run code as you in {bobs}/ck: {bobs} belongs to 41002" in refused.stderr
    assert 'first add trust = ["41002"] under [clusters.uni]' in refused.stderr
    assert not fresh.file.exists()
