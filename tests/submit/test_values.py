"""The grammar of listed values: of `--sweep`, of `--space` and of a space's file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.errors import ConfigError
from clusterkit.runs.program import variable_of
from clusterkit.search.space import Between, parse, read_space
from clusterkit.submit.sweep import axes, split_values, write_values

TEXTS = st.lists(st.text(st.one_of(st.sampled_from("'\"\\,()[]{}= a1"), st.characters())), min_size=1)


@given(TEXTS)
def test_any_values_are_read_as_they_were_written(values: list[str]) -> None:
    assert list(split_values(write_values(values), "")) == values


@given(st.text(st.sampled_from("'\"\\,()[]{} a")))
def test_any_text_is_values_that_hold_its_commas_or_refused(text: str) -> None:
    try:
        values = split_values(text, "--sweep x")
    except ConfigError:
        return
    assert split_values(write_values(values), "") == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(0.9,0.999),(0.5,0.9)", ["(0.9,0.999)", "(0.5,0.9)"]),
        ("[[64,64],[32]],[[8,8],[4]]", ["[[64,64],[32]]", "[[8,8],[4]]"]),
        ("{a:1,b:2},{a:3,b:4}", ["{a:1,b:2}", "{a:3,b:4}"]),
        ("'a,b',c", ["a,b", "c"]),
        ('"a,\\"b",c', ['a,"b', "c"]),
        ("{'k': 'a],b'},2", ["{'k': 'a],b'}", "2"]),
        ("x='a,b',c", ["x='a,b'", "c"]),
        (" 1 , '' ,C:\\dir", ["1", "", "C:\\dir"]),
    ],
)
def test_commas_in_brackets_and_quotes_belong_to_the_value(text: str, values: list[str]) -> None:
    assert list(axes(None, [f"x={text}"])[0].values) == values


@pytest.mark.parametrize(
    ("text", "mark", "hint"),
    [
        ("[0,1),[1,2)", "bracket )", "'VALUE'"),
        ("(1,2", "bracket (", "'VALUE'"),
        ("1],2", "bracket ]", "'VALUE'"),
        ("it's,2", "quote '", '"VALUE"'),
    ],
)
def test_a_bracket_or_quote_without_its_counterpart_is_refused(text: str, mark: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        axes(None, [f"x={text}"])
    assert f"--sweep x={text}: the {mark} has no counterpart" in raised.value.cause
    assert hint in str(raised.value.hint)


def test_a_name_may_have_dots_and_hyphens() -> None:
    assert axes(None, ["model.lr=1,2"])[0].name == "model.lr"
    assert variable_of("opt.weight-decay") == "CLUSTERKIT_SWEEP_OPT_WEIGHT_DECAY"


@pytest.mark.parametrize("names", [("lr", "LR"), ("a-b", "a_b"), ("a.b", "A_B"), ("SEED", "seed")])
def test_names_that_share_a_variable_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="share the environment variable CLUSTERKIT_SWEEP_"):
        axes(None, [f"{name}=1,2" for name in names])
    (tmp_path / "space.toml").write_text(f'"{names[0]}" = "1:2"')
    with pytest.raises(ConfigError, match="share the environment variable"):
        read_space([str(tmp_path / "space.toml"), f"{names[1]}=1:2"])


@pytest.mark.parametrize(
    ("toml", "choices"),
    [
        ("x = [[64, 64], [256]]", ("[64, 64]", "[256]")),
        ('x = ["a,b", "c"]', ("a,b", "c")),
        ('x = ["cuda:0", "cpu"]', ("cuda:0", "cpu")),
        ('x = "cuda:0,cpu"', ("cuda:0", "cpu")),
        ("x = [true, false]", ("true", "false")),
        ("x = [1, 2.5]", ("1", "2.5")),
        ('x = [{a = 1, b = "c"}, {a = 2}]', ('{"a": 1, "b": "c"}', '{"a": 2}')),
        ('x = [["a"], ["b,c"]]', ('["a"]', '["b,c"]')),
    ],
)
def test_a_file_of_a_space_keeps_its_values(toml: str, choices: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(toml)
    assert parse("x", read_space([str(file)])["x"]) == choices


def test_a_table_in_a_file_of_a_space_holds_parameters(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[model]\nlr = "log:1e-5:1e-2"\n')
    space = read_space([str(file)])
    assert parse("model.lr", space["model.lr"]) == Between(1e-5, 1e-2, log=True, whole=False)


@pytest.mark.parametrize("toml", ["lr = {low = 1e-5, high = 1e-2}", "lr = 3", "lr = [1]", 'lr = ["1:2"]'])
def test_a_single_value_in_a_file_of_a_space_is_refused(toml: str, tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError, match="is not several values") as raised:
        read_space([str(file)])
    assert 'lr = "1e-5:1e-2"' in str(raised.value.hint)


def test_a_logarithmic_interval_with_a_comma_is_refused() -> None:
    with pytest.raises(ConfigError, match="one pair of bounds"):
        read_space(["lr=log:1e-5,1e-2"])
