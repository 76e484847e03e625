"""Rendering: what the script holds, and that every value survives the shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.backends.job_script import render
from clusterkit.backends.slurm.options import directive
from clusterkit.config.models import GpuTable
from clusterkit.errors import ConfigError
from tests.backends.runs import job_script
from tests.sampling import sampled

PLAIN: dict[str, Any] = {
    "run_id": "mt10-20260102-k3f9",
    "run_dir": "/data/runs/mt10-20260102-k3f9",
    "snapshot": "/data/snapshots/abc/project",
    "scratch_root": "/data/scratch",
    "cache_root": "/data/cache",
}
CONTAINED: dict[str, Any] = PLAIN | {
    "container": "apptainer",
    "image": "/data/images/ab cd.sif",
    "image_bytes": 1234,
    "image_digest": "sha256:" + "0f" * 32,
    "binds": ("/data:/data:ro", "/scratch/it's here"),
    "prelude": ("module load apptainer/1.4",),
}

PYXIS: dict[str, Any] = CONTAINED | {"container": "pyxis", "binds": ("/data:/data:ro",)}
REGISTRY: dict[str, Any] = {
    "image": "docker://nvcr.io#nvidia/pytorch:24.05-py3",
    "image_bytes": None,
    "image_digest": None,
}


def text(**changes: Any) -> str:
    return render(job_script(**(PLAIN | changes)))


def contained(**changes: Any) -> str:
    return render(job_script(**(CONTAINED | changes)))


MAIL = ("--mail-user=me@example.org", "--mail-type=END,FAIL")
SCRIPTS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "contained": CONTAINED,
    "singularity": CONTAINED | {"nv": True, "container": "singularity"},
    "amd": CONTAINED | {"nv": True, "gpus": {"a40": GpuTable(vendor="amd")}},
    "pyxis": PYXIS
    | {"nv": True, "wandb_login": True, "together": ("/data/runs/ab",)}
    | {"options": ("--mem=1G",), "memory_up_to": 1 << 34},
    "pyxis-registry": PYXIS | REGISTRY,
    **{way: PLAIN | {"until_done": way} for way in ("requeue", "array", "chain")},
    "retry": PLAIN | {"options": ("--mem=1G",), "memory_up_to": 1 << 34, "node_failures": 2},
    **{f"{way}-mail": PLAIN | {"until_done": way, "options": MAIL} for way in ("array", "chain")},
    "retry-mail": PLAIN | {"memory_up_to": 1 << 34, "options": (*MAIL, "--mem=1G")},
    "chain-retry": PLAIN | {"until_done": "chain", "options": ("--mem=1G",), "memory_up_to": 1 << 34},
    "together": CONTAINED
    | {"together": ("/data/runs/a b", PLAIN["run_dir"]), "meeting": "/data/where we 'meet'"},
    "hostile": PLAIN
    | {"run_dir": "/w/é ' \" $HOME `id` \\ #/r", "options": ("--comment=a 'b' \"c\" # \\ $d",)},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_accepts_it(name: str) -> None:
    script = render(job_script(**SCRIPTS[name]))
    checked = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.needs("shellcheck")
@pytest.mark.parametrize("name", sampled(SCRIPTS, 3))
def test_shellcheck_has_no_warnings(name: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(render(job_script(**SCRIPTS[name])))
    checked = subprocess.run(
        ["shellcheck", "-S", "warning", tmp_path / "job.sh"], capture_output=True, text=True
    )
    assert checked.stdout == ""


def test_directives_come_first_and_the_users_win() -> None:
    lines = text(options=("--time=01:00:00", "--job-name=mine")).splitlines()
    assert lines[:6] == [
        "#!/bin/bash -p",
        "#SBATCH --output=/data/runs/mt10-20260102-k3f9/slurm.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --chdir=/data/runs/mt10-20260102-k3f9",
        "#SBATCH --time=01:00:00",
        "#SBATCH --job-name=mine",
    ]
    assert "#SBATCH" not in "\n".join(lines[6:])


@pytest.mark.parametrize("way", ["array", "chain"])
def test_a_job_turns_its_mail_off_only_where_it_has_any(way: str) -> None:
    assert "no_mail" in text(until_done=way, options=MAIL)
    assert "no_mail" not in text(until_done=way)
    assert "no_mail" not in text(options=MAIL)


def test_a_percent_sign_in_the_log_path_is_no_sbatch_field() -> None:
    assert "#SBATCH --output=/w/100%%j/slurm.log" in text(run_dir="/w/100%j")


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--gres=gpu:a40:1", "#SBATCH --gres=gpu:a40:1"),
        ("--exclusive", "#SBATCH --exclusive"),
        ("--comment=a b", r"#SBATCH --comment=a\ b"),
        ("--comment='\"#\\", r"#SBATCH --comment=\'\"\#\\"),
    ],
)
def test_directive_quotes_as_sbatch_reads(option: str, line: str) -> None:
    assert directive(option) == line


@pytest.mark.parametrize(
    "option", ["--a=b\n#SBATCH --time=9", "time=3", "-p gpu", "--a=\x00", "", "--", "rm -rf /"]
)
def test_directive_refuses_what_sbatch_cannot_read(option: str) -> None:
    with pytest.raises(ConfigError):
        directive(option)


@pytest.mark.slow
@settings(deadline=None)  # each is a shell and its start
@given(values=st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)] * 3))
def test_values_reach_the_shell_unchanged(values: tuple[str, str, str]) -> None:
    names = ("snapshot", "scratch_root", "cache_root")
    script = text(**{name: "/" + value for name, value in zip(names, values, strict=True)})
    start = script.index("\nrun_id=")
    shell = (
        script[start : script.index("\n\nset -u", start)]
        + '\nprintf "%s\\0" "$snapshot" "$scratch_root" "$cache_root"'
    )
    answer = subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout
    assert answer.decode().split("\0")[:3] == ["/" + value for value in values]


def test_without_a_container_there_is_no_trace_of_one() -> None:
    assert "--cleanenv" not in text()
    assert "image" not in text()


def test_container_isolates_and_binds() -> None:
    script = contained()
    for part in (
        "--cleanenv --contain\n",
        '--home "$scratch/home"',
        '--bind "$run_dir" --bind "$scratch"\n',
        '--bind "$scratch/tmp:/tmp"',
        "--bind /data:/data:ro\n",
        "--bind '/scratch/it'\"'\"'s here'\n",
        "image='/data/images/ab cd.sif'\n",
        "\nprelude_lines=(\n  'module load apptainer/1.4'\n)\n",
        "prefix=APPTAINER\n",
    ):
        assert part in script
    assert "prefix=SINGULARITY\n" in contained(container="singularity")


def test_pyxis_starts_the_container_by_srun() -> None:
    script = text(**PYXIS | {"binds": ("/a", "/b:/c", "/d:/e:ro,nosuid")})
    assert "command=(srun --quiet" in script
    assert [line for line in script.splitlines() if line.startswith("mounts+=,/")] == [
        "mounts+=,/a:/a",
        "mounts+=,/b:/c",
        "mounts+=,/d:/e:ro+nosuid",
    ]
    assert "--cleanenv" not in script
    assert "pass NVIDIA_VISIBLE_DEVICES void" in script
    assert "pass NVIDIA_VISIBLE_DEVICES all" in text(**PYXIS, nv=True)


def test_an_image_of_a_registry_is_no_file() -> None:
    script = text(**PYXIS | REGISTRY)
    assert "image=docker://nvcr.io#nvidia/pytorch:24.05-py3\n" in script.replace("'", "")
    assert '--container-image="$image"' in script
    assert "image_there" not in script
    assert 'must_be_owned "$image"' not in script
    assert "pass ENROOT_CONFIG_PATH" in script
    assert "ENROOT_CONFIG_PATH" not in text(**PYXIS)


@pytest.mark.parametrize("name", ["run_dir", "scratch_root", "binds"])
@pytest.mark.parametrize("bad", [" ", "$", "`", '"', "\\"])
def test_pyxis_refuses_a_mount_that_bash_would_read(name: str, bad: str) -> None:
    path = f"/w/a{bad}b"
    with pytest.raises(ConfigError, match="a mount of Pyxis cannot contain"):
        job_script(**(PYXIS | {name: (path,) if name == "binds" else path}))


def test_nv_only_when_a_gpu_is_asked_for() -> None:
    assert "--nv" not in contained()
    assert "exec --nv --cleanenv" in contained(nv=True)


AMD: dict[str, Any] = {"nv": True, "gpus": {"a40": GpuTable(vendor="amd")}}


def test_gpus_of_amd_reach_the_container_by_its_own_words() -> None:
    for runtime in ("apptainer", "singularity"):
        script = contained(**AMD, container=runtime)
        assert '"$runtime" exec --rocm --cleanenv --contain\n' in script
        assert "--nv" not in script
        assert "isolation" not in script  # there is no MPS
    assert "pass NVIDIA_VISIBLE_DEVICES void" in text(**PYXIS, **AMD)


@pytest.mark.parametrize("base", [CONTAINED, PYXIS])
def test_gpus_of_amd_are_chosen_by_one_list_of_numbers(base: dict[str, Any]) -> None:
    (names,) = re.findall(r"^names=\((.*)\)$", text(**base, **AMD), re.MULTILINE)
    assert names.split()[:3] == ["GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]
    assert "CUDA_VISIBLE_DEVICES" not in names
    (names,) = re.findall(r"^names=\((.*)\)$", text(**base, nv=True), re.MULTILINE)
    assert "HIP_VISIBLE_DEVICES" not in names


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"run_id": "a b"}, "not a run id"),
        ({"run_dir": "runs/x"}, "absolute"),
        ({"run_dir": "/w/a:b"}, "':'"),
        ({"scratch_root": "/w/a,b"}, "','"),
    ],
)
def test_refuses_what_cannot_be_said(changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        job_script(**(CONTAINED | changes))


def test_the_login_of_the_node_is_shown_only_where_it_is_wanted() -> None:
    assert ".netrc" not in contained()
    assert ".netrc" not in text(wandb_login=True)  # without a container the home folder is there
    script = contained(wandb_login=True)
    assert script.index('--bind "$netrc:') < script.index('command+=("$image"')
