import pytest
import torch

from trainer import checkpoint, recipe
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC
from trainer.checkpoint.model import about, load_model, save_final
from trainer.envs.spaces import unit_box
from trainer.errors import CheckpointError

TASKS = ("reach-v3", "push-v3", "door-open-v3")


@pytest.fixture
def agent() -> SAC:
    torch.manual_seed(0)
    return SAC(SACConfig.from_values(recipe.load("local-demo").values), 39, 4, len(TASKS))


def store(agent: SAC, run_dir, step: int) -> None:
    description = about(recipe.load("local-demo").as_json(), TASKS, 39, 4, step, unit_box(4))
    parts = {"model": {"about": description, "learner": agent.state_dict()}, "state": {}}
    checkpoint.CheckpointStore(run_dir, run_id="r", recipe="local-demo", keep=3).save(step, parts, None)


def finish(agent: SAC, run_dir, step: int):
    return save_final(
        run_dir,
        about(recipe.load("local-demo").as_json(), TASKS, 39, 4, step, unit_box(4)),
        agent.state_dict(),
    )


def test_a_policy_comes_back_whole_from_wherever_it_lies(agent, tmp_path):
    agent.policy.encoder.fit(torch.randn(20, 39), std_floor=0.1)
    store(agent, tmp_path, 700)
    rows, task = torch.randn(6, 39), torch.tensor([0, 1, 2, 2, 1, 0])
    expected = agent.policy.mode(rows, task)
    places = [tmp_path, tmp_path / "checkpoints", tmp_path / "checkpoints" / "step-000000000700"]
    for place in places:
        model = load_model(place)
        assert torch.equal(model.policy.mode(rows, task), expected)
        assert (model.tasks, model.step, model.recipe["name"]) == (TASKS, 700, "local-demo")
    final = finish(agent, tmp_path, 900)
    for place in (final, tmp_path):  # a run that is finished means its final model
        assert load_model(place).step == 900
        assert torch.equal(load_model(place).policy.mode(rows, task), expected)


def test_the_newest_good_checkpoint_of_a_run_is_taken(agent, tmp_path):
    store(agent, tmp_path, 700)
    store(agent, tmp_path, 800)
    (tmp_path / "checkpoints" / "step-000000000800" / "model.pt").write_bytes(b"torn")
    assert load_model(tmp_path).step == 700


def test_a_final_model_holds_no_optimisers(agent, tmp_path):
    stored = checkpoint.load_file(finish(agent, tmp_path, 1))
    assert stored["learner"].keys() == {"policy", "critics", "targets", "log_alpha"}


def test_what_is_no_model_is_refused(agent, tmp_path):
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        load_model(tmp_path)
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        load_model(tmp_path / "absent.pt")
    (tmp_path / "notes.pt").write_text("hello")
    with pytest.raises(CheckpointError, match="is no file of tensors"):
        load_model(tmp_path / "notes.pt")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match="is not a model of this trainer"):
        load_model(tmp_path / "foreign.pt")


def test_an_unknown_algorithm_of_a_model_is_said_to_be_so(agent, tmp_path):
    final = finish(agent, tmp_path, 1)
    stored = checkpoint.load_file(final)
    stored["about"]["recipe"]["algorithm"] = "sax"
    torch.save(stored, final)
    with pytest.raises(CheckpointError, match="unknown algorithm 'sax'; did you mean sac"):
        load_model(final)
