"""Whatever a file holds, the answer is settings or a ConfigError that says where."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.config.layers import Layer, built_in_layer
from clusterkit.config.models import Cluster, GpuTable, Profile, ProjectTable, Wandb
from clusterkit.config.settings import settings_from
from clusterkit.errors import ConfigError

HERE = Path("/project")
BUILT_IN = (built_in_layer(HERE),)

_fields = {name for model in (Cluster, GpuTable, Profile, ProjectTable, Wandb) for name in model.model_fields}
_keys = st.one_of(
    st.sampled_from(sorted(_fields | {"extends", "a40-2m", "local", "a b", "mem"})), st.text(max_size=3)
)
_texts = ["", "4h", "64G", "a40-2m", "none", "~/x", "/x", "~nobody-here/x", "{type}", "a\nb", "cuda", "$A"]
_scalars = st.one_of(
    st.booleans(),
    st.integers(-2, 2**70),
    st.floats(),
    st.sampled_from(_texts),
    st.text(max_size=5),
    st.dates(),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)
_cluster = st.fixed_dictionaries(
    {"root": st.sampled_from(["/x", "~/x", "x"])},
    optional={
        "kind": st.sampled_from(["slurm", "local"]),
        "host": st.just("h"),
        "gpus": st.dictionaries(st.sampled_from(["a40", "1g.10gb"]), st.just({"memory": "4G"})),
        "sbatch": st.dictionaries(
            st.sampled_from(["qos", "J", "mail user"]), st.sampled_from([True, 3, "x"])
        ),
        "binds": st.lists(st.sampled_from(["/a", "/a:/b", ":"]), max_size=2),
    },
)
_profile = st.fixed_dictionaries(
    {"time": st.sampled_from(["4h", "1d", "4"])},
    optional={
        "extends": st.sampled_from(["a40-2m", "p", "q"]),
        "gpu": st.sampled_from(["a40", "none"]),
        "env": st.dictionaries(st.sampled_from(["A", "B_TOKEN", "1"]), st.text(max_size=3)),
    },
)
_odd = st.dictionaries(_keys, _values, max_size=4) | _values
_clusters = st.dictionaries(st.sampled_from(["local", "x y", "x"]), _cluster | _odd, max_size=2)
_profiles = st.dictionaries(st.sampled_from(["a40-2m", "p", "q"]), _profile | _odd, max_size=3)
_notify = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("on", "mail", "webhook", "webhook_command", "command"), _values)
)
_documents = st.fixed_dictionaries(
    {},
    optional={
        "clusters": _clusters | _odd,
        "profiles": _profiles | _odd,
        "project": _odd,
        "notify": _notify | _odd,
    },
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(_documents)
def test_any_document_is_settings_or_a_clear_error(document: dict[str, object]) -> None:
    try:
        found = settings_from((*BUILT_IN, Layer("mine.toml", document)), HERE, ())
    except ConfigError as error:
        fault = error
    else:
        tables = {"project", "secrets", "clusters", "profiles", "notify"}
        assert {value.key[0] for value in found.values()} == tables
        return
    assert all(line.startswith("mine.toml: ") for line in fault.cause.splitlines())
    assert fault.hint
