"""A few keys of one table change, and nothing else of a person's file."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.config.edit import with_keys
from clusterkit.errors import ConfigError

TABLE = ("profiles", "a40-2m")
MARK = "clusterkit tune, "
FILE = """# my project
[project]
name = "demo"      # said twice

[profiles.a40-2m]  # the short one
# slow before
time   = "6h"   # "#" is in here
num_envs = 32 # as the guide has it
env = { A = "[profiles.a40-2m]" }
program = [
  "python",
  "[x]",
]

# what comes now is another
[profiles.mine]
extends = "a40-2m"
cpus = 4
"""


def edited(text: str, **values: str | int) -> str:
    return with_keys(text, TABLE, values, "today: quick", MARK)


def test_keys_change_where_they_are_and_new_ones_come_behind() -> None:
    assert edited(FILE, num_envs=16, workers=3, memory="8G") == FILE.replace(
        "num_envs = 32 #", "num_envs = 16 #"
    ).replace('  "[x]",\n]\n', '  "[x]",\n]\n# clusterkit tune, today: quick\nworkers = 3\nmemory = "8G"\n')


def test_a_second_time_the_remark_is_replaced() -> None:
    once = edited(FILE, num_envs=16, workers=3)
    assert edited(once, num_envs=16, workers=3) == once
    twice = with_keys(once, TABLE, {"workers": 2}, "tomorrow", MARK)
    assert twice.count(MARK) == 1
    assert "# clusterkit tune, tomorrow\n" in twice
    assert tomllib.loads(twice)["profiles"]["a40-2m"]["workers"] == 2


def test_a_table_that_is_not_there_is_made() -> None:
    wanted = "[profiles.a40-2m]\n# clusterkit tune, today: quick\ncpus = 3\n"
    assert edited("", cpus=3) == wanted
    assert edited("x = 1", cpus=3) == f"x = 1\n\n{wanted}"
    assert edited("[profiles.b]\ncpus = 1\n", cpus=3) == f"[profiles.b]\ncpus = 1\n\n{wanted}"


def test_line_ends_stay() -> None:
    changed = edited("[profiles.a40-2m]\r\ncpus = 1\r\n", cpus=3)
    assert changed.count("\r\n") == changed.count("\n") == 3


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "profiles.a40-2m.cpus = 1\n",
            'profiles.a40-2m.cpus = 3\n# clusterkit tune, today: quick\nprofiles.a40-2m.memory = "8G"\n',
        ),
        (
            "[profiles]\na40-2m.cpus = 1\n",
            '[profiles]\na40-2m.cpus = 3\n# clusterkit tune, today: quick\na40-2m.memory = "8G"\n',
        ),
        (
            "[profiles.a40-2m]\r\ncpus = 1\nnum_envs = 3\r\n",
            '[profiles.a40-2m]\r\ncpus = 3\nnum_envs = 3\r\n# clusterkit tune, today: quick\nmemory = "8G"\n',
        ),
    ],
    ids=["dotted", "dotted below a header", "two kinds of line ends"],
)
def test_every_way_to_write_a_table_stays(text: str, wanted: str) -> None:
    assert edited(text, cpus=3, memory="8G") == wanted


def test_an_inline_table_stays_one() -> None:
    changed = edited("profiles = { a40-2m = { cpus = 1 } } # mine\n", cpus=3, memory="8G")
    assert changed.startswith("profiles = { a40-2m = { cpus = 3")
    assert changed.endswith(" # mine\n")
    assert tomllib.loads(changed)["profiles"]["a40-2m"] == {"cpus": 3, "memory": "8G"}


@pytest.mark.parametrize(
    "text",
    [
        "[[profiles.a40-2m]]\ncpus = 1\n",
        "[[profiles]]\n",
        "profiles = 3\n",
        "[[several]]\n[profiles.a40-2m]\n[[several]]\n",
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_lines(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edited(text, cpus=3, memory="8G")
    assert 'cpus = 3, memory = "8G"' in str(caught.value.hint)


KEYS = ["cpus", "num_envs", "workers"]
PIECES = st.sampled_from(
    [
        "",
        "# cpus = 9",
        "[profiles.a40-2m]",
        "[profiles.a40-2m.env]",
        '[ profiles . "a40-2m" ]',
        "[other]",
        "[[several]]",
        "cpus = 1",
        "num_envs = 2  # two",
        'text = """\n[profiles.a40-2m]\ncpus = 4\n"""',
        "list = [\n  [1],\n]",
        "'workers' = 0",
        "a.b = 3",
    ]
)


@pytest.mark.slow
@given(st.lists(PIECES, max_size=9), st.dictionaries(st.sampled_from(KEYS), st.integers(0, 99), min_size=1))
def test_any_file_means_the_same_but_for_the_keys(pieces: list[str], values: dict[str, int]) -> None:
    text = "\n".join(pieces) + "\n"
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    try:
        after = tomllib.loads(edited(text, **values))
    except ConfigError:
        return
    before.setdefault("profiles", {}).setdefault("a40-2m", {}).update(values)
    assert after == before
    kept = [line for line in text.splitlines() if not any(key in line for key in KEYS)]
    lines = edited(text, **values).splitlines()
    assert [line for line in lines if line in kept and not any(key in line for key in KEYS)][
        : len(kept)
    ] == kept


def test_a_line_ends_where_toml_ends_it() -> None:
    text = "# dear\u2028[profiles.a40-2m]\x85\n[profiles.a40-2m]\ncpus = 4\n"
    assert edited(text, cpus=3).startswith("# dear\u2028[profiles.a40-2m]\x85\n[profiles.a40-2m]\n")
