import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.config.lines import join_key, key_lines, split_key, toml_value

TEXT = '''\
# a comment with a = 1 and [a.table]
top = 1

[clusters.datalab]  # the site
host = "a = b"
"quoted key" = 1
gpus.a40 = { partition = "x" }
binds = [
    "a",  # inner = "not a key"
    "[not.a.table]",
]
prelude = """
inside = 1
[also.inside]
"""
last = 'x'
  [ clusters . "other one" ]
root = "/"
[[jobs]]
'''


def test_every_key_is_on_its_line() -> None:
    assert key_lines(TEXT) == {
        ("top",): 2,
        ("clusters",): 4,
        ("clusters", "datalab"): 4,
        ("clusters", "datalab", "host"): 5,
        ("clusters", "datalab", "quoted key"): 6,
        ("clusters", "datalab", "gpus", "a40"): 7,
        ("clusters", "datalab", "binds"): 8,
        ("clusters", "datalab", "prelude"): 12,
        ("clusters", "datalab", "last"): 16,
        ("clusters", "other one"): 17,
        ("clusters", "other one", "root"): 18,
    }


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4))
def test_a_joined_key_means_the_same_to_toml_and_to_us(parts: list[str]) -> None:
    dotted = join_key(tuple(parts))
    node: object = tomllib.loads(f"{dotted} = 0")
    for part in parts:
        assert isinstance(node, dict)
        node = node[part]
    assert split_key(dotted) == tuple(parts)


@pytest.mark.parametrize("text", ["", "a b", "a.", ".a", "a = 1\nb", "a = 1 #", "[a]"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a TOML key"):
        split_key(text)


@pytest.mark.parametrize("value", [0.9, 1e-05, -1e16, 7, True, "0.9", ["a", 0.5], {"a b": 1.5}])
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    assert tomllib.loads(f"value = {toml_value(value)}") == {"value": value}
