"""Wrong input: one line for the cause, one for the next step, a documented exit code, nothing changed."""

from pathlib import Path

import pytest

from tests.allowing import allow
from tests.commands.conftest import Project

SLURM = """
[clusters.uni]
host = "{host}"
root = "{root}"
image = "{image}"
ssh_config = "{ssh_config}"

[clusters.uni.gpus.a40]
partition = "gpu-a40"
"""


def with_cluster(project: Project, tmp_path: Path, *, host: str = "nowhere.invalid") -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(b"\0" * 32 + b"SIF_MAGIC" + b"\0" * 100)
    ssh_config = tmp_path / "ssh_config"
    ssh_config.write_text("Host closed\n  HostName 127.0.0.1\n  Port 1\n")
    text = SLURM.format(host=host, root=tmp_path / "root", image=image, ssh_config=ssh_config)
    toml = project.folder / "clusterkit.toml"
    toml.write_text(toml.read_text() + text)
    allow(project.folder)


def lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.strip()]


def test_an_image_for_a_cluster_without_containers(project: Project, tmp_path: Path) -> None:
    for more in ([], ["--dry-run"]):
        shown = project.run("deploy", "--image", str(tmp_path / "nosuch.sif"), *more, code=6).stderr
        assert "cluster local runs programs without a container" in shown
        assert len(lines(shown)) == 2
    assert not (project.folder / ".clusterkit" / "local").exists()


def test_an_unknown_profile_names_the_nearest(project: Project) -> None:
    shown = project.run("submit", "-p", "a40-2M", code=3).stderr
    assert "a40-2m" in shown
    assert len(lines(shown)) == 2


@pytest.mark.parametrize("words", [("a40-2m",), ("mine", "--dry-run"), ("mine", "--", "--width", "3")])
def test_a_word_before_the_dashes_is_no_argument_of_the_program(
    project: Project, words: tuple[str, ...]
) -> None:
    shown = project.run("submit", *words, code=3).stderr
    assert f"'{words[0]}'" in shown
    assert "--profile" in shown
    assert len(lines(shown)) == 2


def test_arguments_behind_the_dashes_reach_the_program(project: Project) -> None:
    shown = project.run("submit", "--dry-run", "--", "a", "--", "--dry-run", "").stdout
    assert "program     python train.py a -- --dry-run ''\n" in shown


@pytest.mark.parametrize(("time", "said"), [("30s", "use at least 1m"), ("soon", "'soon'")])
def test_a_drill_needs_time_to_be_signalled(project: Project, time: str, said: str) -> None:
    shown = project.run("rehearse", "--time", time, code=3).stderr
    assert shown.startswith("error: --time: ")
    assert said in shown


@pytest.mark.slow
def test_an_unknown_cluster_names_the_nearest(project: Project) -> None:
    assert "local" in project.run("submit", "-c", "lokal", code=3).stderr


def test_an_unknown_key_names_file_key_and_nearest(project: Project) -> None:
    (project.folder / "clusterkit.toml").write_text('[profiles.mine]\ntime = "1h"\nnum_env = 3\n')
    shown = project.run("submit", code=3).stderr
    for text in ("clusterkit.toml", "num_env", "num_envs"):
        assert text in shown


def test_a_gpu_the_cluster_lacks(project: Project, tmp_path: Path) -> None:
    with_cluster(project, tmp_path)
    shown = project.run("submit", "-c", "uni", "-p", "a100-20m", code=3).stderr
    assert "a100" in shown
    assert "a40" in shown
    assert not (tmp_path / "root").exists()


def test_a_host_that_does_not_exist(project: Project, tmp_path: Path) -> None:
    with_cluster(project, tmp_path)
    shown = project.run("deploy", "-c", "uni", code=4).stderr
    assert "nowhere.invalid" in shown


def test_a_host_that_refuses(project: Project, tmp_path: Path) -> None:
    with_cluster(project, tmp_path, host="closed")
    shown = project.run("deploy", "-c", "uni", code=4).stderr
    assert "127.0.0.1" in shown or "closed" in shown


@pytest.mark.parametrize("verb", ["deploy", "submit"])
def test_a_missing_image(project: Project, tmp_path: Path, verb: str) -> None:
    with_cluster(project, tmp_path)
    (tmp_path / "image.sif").unlink()
    shown = project.run(verb, "-c", "uni", code=6).stderr
    assert "image" in shown
    assert lines(shown)[-1].startswith("next:")


def test_an_image_that_is_none(project: Project, tmp_path: Path) -> None:
    with_cluster(project, tmp_path)
    (tmp_path / "image.sif").write_text("<html>not found</html>")
    assert "not a SIF image" in project.run("deploy", "-c", "uni", code=6).stderr


def test_a_wrong_duration_on_the_command_line(project: Project) -> None:
    shown = project.run("submit", "--time", "4 parsecs", code=3).stderr
    assert "4 parsecs" in shown
    assert "4h" in shown


@pytest.mark.slow
def test_a_rollout_that_its_batches_do_not_divide(project: Project) -> None:
    toml = project.folder / "clusterkit.toml"
    text = toml.read_text().replace('program = ["python", "train.py"]\n', "")
    toml.write_text(text + '\n[profiles.odd]\nextends = "fast"\nnum_envs = 10\n')
    assert "take 1025 or 2050" in project.run("submit", "-p", "odd", code=3).stderr


@pytest.mark.slow
def test_a_root_that_is_not_writable(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    toml = project.folder / "clusterkit.toml"
    toml.write_text(toml.read_text() + f'\n[clusters.local]\nroot = "{tmp_path}/file/root"\n')
    shown = project.run("submit", code=4).stderr
    assert "work root" in shown


@pytest.mark.slow
def test_a_damaged_ledger(project: Project) -> None:
    folder = project.folder / ".clusterkit"
    folder.mkdir()
    (folder / "ledger.sqlite3").write_bytes(b"garbage" * 1000)
    shown = project.run("status", code=1).stderr
    assert "ledger" in shown
    assert "move it away: `clusterkit status` then fills a new one" in shown
