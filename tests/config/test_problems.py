"""What a user is told about a wrong settings file: a line a fault, with file, key and what is valid."""

from __future__ import annotations

import pytest

from clusterkit.errors import ConfigError
from clusterkit.units import DURATION_EXAMPLES, SIZE_EXAMPLES
from tests.config.conftest import Place

CLUSTER = '[clusters.x]\nroot = "/x"\n'
REQUEST = ' with {type} and {count}; write e.g. "--gres=gpu:{type}:{count}" or "--gpus={type}:{count}"'
PROFILE = '[profiles.x]\ntime = "1h"\n'


def fault(place: Place, toml: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        place.load(toml)
    return caught.value


@pytest.mark.parametrize(
    ("toml", "cause"),
    [
        ("[project]\nresult = 'x'", "2: project.result: unknown key; did you mean results?"),
        ("[cluster.x]\nroot = '/'", "1: cluster: unknown key; did you mean clusters?"),
        ("[profiles.a40-2m]\nnum_env = 3", "2: profiles.a40-2m.num_env: unknown key; did you mean num_envs?"),
        ("[profiles.a40-2m]\nextend = 'x'", "2: profiles.a40-2m.extend: unknown key; did you mean extends?"),
        ("[profiles.a40-2m]\nxyzzy = 3", "2: profiles.a40-2m.xyzzy: unknown key"),
        (
            "[profiles.a40-2m]\nname = 'x'",
            "2: profiles.a40-2m.name: unknown key; the table itself has the name",
        ),
        ("[project.wandb]\nentitty = 'x'", "2: project.wandb.entitty: unknown key; did you mean entity?"),
        (
            CLUSTER + "[clusters.x.gpus.a40]\nrequst = 'x'",
            "4: clusters.x.gpus.a40.requst: unknown key; did you mean request?",
        ),
        (
            CLUSTER + "gpus.a40 = {requst = 'x'}",
            "3: clusters.x.gpus.a40.requst: unknown key; did you mean request?",
        ),
        (
            "[profiles.a40-2m]\npartition = 'gpu'",
            "2: profiles.a40-2m.partition: belongs to the cluster; a profile never determines where it runs",
        ),
        ("[clusters.x]\nhost = 'x'", "1: clusters.x.root: is missing"),
        ("[profiles.x]\ncpus = 1", "1: profiles.x.time: is missing"),
        ("profiles = 3", "1: profiles: must be a table, not 3"),
        ("[profiles]\na40-2m = 3", "2: profiles.a40-2m: must be a table, not 3"),
        ("[project]\nwandb = true", "2: project.wandb: must be a table, not true"),
        (PROFILE + "cpus = '16'", "3: profiles.x.cpus: must be a whole number, not '16'"),
        (PROFILE + "cpus = 1.5", "3: profiles.x.cpus: must be a whole number, not 1.5"),
        (PROFILE + "cpus = true", "3: profiles.x.cpus: must be a whole number, not true"),
        (PROFILE + "cpus = 0", "3: profiles.x.cpus: must be at least 1, not 0"),
        (PROFILE + "gpu = 4", "3: profiles.x.gpu: must be text in quotes, not 4"),
        (PROFILE + "program = 'python'", "3: profiles.x.program: must be a list, not 'python'"),
        (PROFILE + "program = []", "3: profiles.x.program: is empty; leave the key out instead"),
        (PROFILE + "program = ['a', 1]", "3: profiles.x.program: must be text in quotes, not 1"),
        (
            PROFILE + "precision = 'fp16'",
            "3: profiles.x.precision: must be 'fp32', 'tf32' or 'bf16', not 'fp16'",
        ),
        (PROFILE + "recipe = 'r'", "1: profiles.x: has a recipe but no total_steps; set how long to train"),
        (
            PROFILE + "memory = 64",
            "3: profiles.x.memory: 64 is not a size; write text with a unit, e.g. " + SIZE_EXAMPLES,
        ),
        (
            PROFILE + "memory = '64X'",
            "3: profiles.x.memory: '64X' is not a size; write a number and K, M, G or T, e.g. "
            + SIZE_EXAMPLES,
        ),
        (PROFILE + "memory = '0G'", "3: profiles.x.memory: must be more than zero"),
        (
            "[profiles.x]\ntime = 4",
            "2: profiles.x.time: 4 is not a duration; write text with a unit, e.g. " + DURATION_EXAMPLES,
        ),
        (PROFILE + "env.1A = 'x'", "3: profiles.x.env.1A: is not a name of an environment variable"),
        (PROFILE + "env.A = 1", "3: profiles.x.env.A: must be text in quotes, not 1"),
        (
            PROFILE + "description = 'a\\nb'".replace("'", '"'),
            "3: profiles.x.description: 'a\\nb' contains a line break or another control character",
        ),
        (
            PROFILE + "description = 'a\u202eb'",
            "3: profiles.x.description: 'a\\u202eb' contains a line break or another control character",
        ),
        (
            "[notify]\ncommand = ['sh', '\u202e\u2066']",
            "2: notify.command: '\\u202e\\u2066' contains a line break or another control character",
        ),
        (
            PROFILE + "sbatch.qos = 1.5",
            "3: profiles.x.sbatch.qos: must be text, a whole number, true or false, not 1.5",
        ),
        (
            PROFILE + "sbatch.qos = ''",
            "3: profiles.x.sbatch.qos: is empty; "
            "write true for an option without a value, false to remove it",
        ),
        (
            PROFILE + "sbatch.'mail user' = 'x'",
            '3: profiles.x.sbatch."mail user": '
            "'mail user' is not an sbatch option; write its long name, e.g. \"mail-user\"",
        ),
        (
            PROFILE + "sbatch.J = 'x'",
            "3: profiles.x.sbatch.J: --job-name cannot be set: clusterkit names the job after the run",
        ),
        (
            "[profiles.'a b']\ntime = '1h'",
            '1: profiles."a b": is not a name; use letters, digits, dots, dashes and underscores',
        ),
        (
            "[clusters.x]\nroot = 'work'",
            '2: clusters.x.root: \'work\' is not absolute; start it with "/", "~/" or "$HOME/"',
        ),
        (
            "[clusters.x]\nroot = '/w/$GROUP'",
            "2: clusters.x.root: '/w/$GROUP' contains a variable other than $USER and $HOME",
        ),
        (
            CLUSTER + "kind = 'local'\nhost = 'a'",
            '1: clusters.x: kind = "local" runs on this machine; drop host, or write kind = "slurm"',
        ),
        (
            CLUSTER + "kind = 'local'\ncontainer = 'pyxis'",
            '1: clusters.x: container = "pyxis" needs Slurm, and kind = "local" is without it',
        ),
        (
            CLUSTER + "mps = true\ncontainer = 'pyxis'",
            '1: clusters.x: mps = true and container = "pyxis" exclude each other',
        ),
        (
            CLUSTER + "registry_image = 'docker://a'",
            '1: clusters.x: registry_image needs container = "pyxis"',
        ),
        (
            CLUSTER + "container = 'pyxis'\nregistry_image = 'a:b'",
            "1: clusters.x: 'a:b' is not an image of enroot; "
            'write e.g. "docker://nvcr.io#nvidia/pytorch:24.05-py3"',
        ),
        (
            CLUSTER + "container = 'pyxis'\nregistry_image = 'docker://a'\nimage = 'a.sqsh'",
            "1: clusters.x: image and registry_image exclude each other",
        ),
        (
            CLUSTER + "binds = ['a:b:c:d']",
            "3: clusters.x.binds: 'a:b:c:d' is not a bind mount; "
            'write "source", "source:target" or "source:target:ro"',
        ),
        (
            CLUSTER + 'ssh_config = "a\\u0000b"',
            "3: clusters.x.ssh_config: 'a\\x00b' contains a NUL, which no path can",
        ),
        (
            CLUSTER + "image = '$NO_SUCH_FOLDER/a.sif'",
            "3: clusters.x.image: '$NO_SUCH_FOLDER/a.sif' contains $NO_SUCH_FOLDER, which is not set here",
        ),
        (CLUSTER + "image = 3", "3: clusters.x.image: 3 is not a path; write text"),
        (
            CLUSTER + "gpus.a40.request = 'gpu:{type}'",
            "3: clusters.x.gpus.a40.request: 'gpu:{type}' is not one sbatch option" + REQUEST,
        ),
        (
            CLUSTER + "gpus.a40.request = '--gpus={kind}'",
            "3: clusters.x.gpus.a40.request: '--gpus={kind}' is not one sbatch option" + REQUEST,
        ),
    ],
)
def test_one_fault_is_one_line_with_a_next_step(place: Place, toml: str, cause: str) -> None:
    error = fault(place, toml)
    assert error.cause == f"clusterkit.toml:{cause}"
    assert error.hint


def test_an_unknown_key_comes_with_the_valid_ones(place: Place) -> None:
    hint = fault(place, "[project.wandb]\nproj = 'x'").hint
    assert hint == "valid keys: entity, mode, project"
    hint = fault(place, "[project]\nprogram = 'python train.py --x 1'").hint
    assert hint == 'write it as a list of words: program = ["python", "train.py", "--x", "1"]'


def test_several_faults_are_all_shown_in_the_order_of_the_file(place: Place) -> None:
    error = fault(place, CLUSTER + "roots = 1\n" + PROFILE + "num_env = 3\ncpus = 'x'\n")
    assert error.cause.splitlines() == [
        "clusterkit.toml:3: clusters.x.roots: unknown key; did you mean root?",
        "clusterkit.toml:6: profiles.x.num_env: unknown key; did you mean num_envs?",
        "clusterkit.toml:7: profiles.x.cpus: must be a whole number, not 'x'",
    ]


def test_a_fault_in_the_users_file_is_blamed_on_it(place: Place) -> None:
    place.user("[profiles.a40-2m]\ntime = '4x'")
    assert fault(place, "").cause.startswith("~/.config/clusterkit/config.toml:2: profiles.a40-2m.time: ")


def test_a_fault_inherited_from_a_base_is_blamed_on_the_base(place: Place) -> None:
    error = fault(place, "[profiles.a]\ntime = '1x'\n[profiles.b]\nextends = 'a'\n")
    assert [line[:36] for line in error.cause.splitlines()] == [
        "clusterkit.toml:2: profiles.a.time: ",
        "clusterkit.toml:2: profiles.b.time: ",
    ]


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET", "token", "MY_APIKEY"]
)
def test_a_secret_is_refused_and_not_repeated(place: Place, name: str) -> None:
    error = fault(place, PROFILE + f"env.{name} = 'abc123'")
    assert "looks like a secret" in error.cause
    assert "abc123" not in f"{error.cause}{error.hint}"


def test_a_password_in_a_trackers_address_is_refused_and_not_repeated(place: Place) -> None:
    for address in ("https://me:abc123@host", "postgresql://me:abc123@host/mlflow"):
        error = fault(place, f"[project.trackers]\nmlflow = '{address}'")
        assert error.cause.startswith("clusterkit.toml:2: project.trackers.mlflow: th")
        assert "abc123" not in f"{error.cause}{error.hint}"


def test_a_name_that_only_resembles_a_secret_is_fine(place: Place) -> None:
    profile = place.load(PROFILE + "env.TOKENIZERS_PARALLELISM = 'false'").profile("x")
    assert dict(profile.env) == {"TOKENIZERS_PARALLELISM": "false"}
