"""Wrong input: one line for the cause, one for the next step, a documented exit code, nothing changed."""

from pathlib import Path

import pytest

from tests.commands.conftest import Project


def lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.strip()]


def test_an_image_for_a_cluster_without_containers(project: Project, tmp_path: Path) -> None:
    for more in ([], ["--dry-run"]):
        shown = project.run("deploy", "--image", str(tmp_path / "nosuch.sif"), *more, code=6).stderr
        assert "cluster local runs programs without a container" in shown
        assert len(lines(shown)) == 2
    assert not (project.folder / ".clusterkit" / "local").exists()


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


def test_a_demo_in_a_project_with_a_program_of_its_own_is_refused(project: Project) -> None:
    refused = project.run("demo", code=3)
    assert "the profile local-demo runs a program of this project" in refused.stderr
    assert project.rows() == []
