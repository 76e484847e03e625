import mujoco
import numpy as np
import pytest

from trainer.envs.physics import DataView, Physics

MODEL = """
<mujoco>
  <option timestep=".0025" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="1 1 .1"/>
    <body name="mocap" mocap="true" pos="0 0 .3" quat="1 0 1 0">
      <geom type="sphere" size=".05" contype="{collides}" conaffinity="{collides}"/>{child}
    </body>
    <body name="hand" pos="0 0 .3" quat="1 0 1 0">
      <freejoint/>
      <geom type="box" size=".04 .04 .04"/>
      <body pos=".1 0 0"><joint name="finger" type="slide" range="-.02 .02" limited="true" damping="1"/>
        <geom type="box" size=".02 .02 .02"/></body>
    </body>
    <body pos=".02 0 .05"><freejoint/><geom type="box" size=".05 .05 .05"/></body>
  </worldbody>
  <equality><weld body1="mocap" body2="hand" solref=".02 1"/></equality>
  <actuator><position joint="finger" kp="50"/></actuator>
  {sensor}
</mujoco>
"""
STATE = mujoco.mjtState.mjSTATE_INTEGRATION


def simulation(collides=0, child="", sensor=""):
    model = mujoco.MjModel.from_xml_string(MODEL.format(collides=collides, child=child, sensor=sensor))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def everything(model, data) -> bytes:
    """The state and what a step's observation and reward are made of."""
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    parts = (
        state,
        data.xpos,
        data.xmat,
        data.geom_xpos,
        data.site_xpos,
        data.efc_force,
        data.contact.geom,
        data.qacc,
    )
    return b"".join(part.tobytes() for part in parts)


def told(steps: int):
    """Where the hand is drawn to: down on the box and about, so that it presses and slides."""
    rng = np.random.default_rng(0)
    place = np.array([0, 0, 0.3])
    for step in range(steps):
        place = place + rng.uniform(-0.01, 0.01, 3) - [0, 0, 0.006 if step < 40 else -0.001]
        yield place, rng.uniform(-1, 1)


def both(steps: int, **options) -> tuple[list[bytes], list[bytes], int]:
    """What our steps and MuJoCo's give, and the most contacts there were."""
    ours, theirs = simulation(**options), simulation(**options)
    physics = Physics(*ours)
    found, expected, contacts = [], [], 0
    for place, control in told(steps):
        for _, data in (ours, theirs):
            data.mocap_pos[0], data.ctrl[0] = place, control
        physics.advance(5)
        mujoco.mj_step(*theirs, 5)
        mujoco.mj_forward(*theirs)
        found.append(everything(*ours))
        expected.append(everything(*theirs))
        contacts = max(contacts, theirs[1].ncon)
    return found, expected, contacts


OPTIONS = {
    "only draws": {},
    "collides": {"collides": 1},
    "carries": {"child": '<body><geom size=".01"/></body>'},
    "is sensed": {"sensor": '<sensor><framepos objtype="body" objname="mocap"/></sensor>'},
}


@pytest.mark.parametrize("what", list(OPTIONS))
def test_steps_are_mujocos_to_the_bit(what):
    found, expected, contacts = both(200, **OPTIONS[what])
    assert contacts > 4
    assert found == expected


@pytest.mark.parametrize(("what", "reused"), [(what, what == "only draws") for what in OPTIONS])
def test_a_first_half_is_reused_only_where_that_is_safe(what, reused, monkeypatch):
    calls = []
    sound = mujoco.mj_forwardSkip
    monkeypatch.setattr(mujoco, "mj_forwardSkip", lambda *args: calls.append(args) or sound(*args))
    both(3, **OPTIONS[what])
    assert len(calls) == (2 if reused else 0)


def test_what_others_changed_is_seen_after_forget():
    ours, theirs = simulation(), simulation()
    physics = Physics(*ours)
    physics.advance(5)
    mujoco.mj_step(*theirs, 5)
    for _, data in (ours, theirs):
        data.qpos[2] += 0.1
    physics.forget()
    physics.advance(5)
    mujoco.mj_step(*theirs, 5)
    mujoco.mj_forward(*theirs)
    assert everything(*ours) == everything(*theirs)


@pytest.mark.parametrize("broken", ["qpos", "qvel", "qacc"])
def test_a_simulation_that_blows_up_starts_again_as_mujocos_does(broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log of its warnings there
    ours, theirs = simulation(), simulation()
    physics = Physics(*ours)
    physics.advance(5)
    mujoco.mj_step(*theirs, 5)
    mujoco.mj_forward(*theirs)
    for _, data in (ours, theirs):
        if broken == "qacc":
            data.qfrc_applied[3] = 1e14
        else:
            getattr(data, broken)[1] = np.nan
    physics.advance(5)
    mujoco.mj_step(*theirs, 5)
    mujoco.mj_forward(*theirs)
    assert theirs[1].warning.number.sum() > 0
    assert everything(*ours) == everything(*theirs)


BLOCK = """
<mujoco>
  <worldbody>
    <body name="block" pos="1 2 3">
      <joint name="slide" type="slide" axis="0 0 1"/>
      <geom name="box" type="box" size=".1 .2 .3" pos="0 0 1"/>
      <site name="top" pos="0 0 2"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture
def block():
    model = mujoco.MjModel.from_xml_string(BLOCK)
    return model, mujoco.MjData(model)


def test_named_parts_read_like_mujocos_and_stay_live(block):
    model, data = block
    view = DataView(data)
    held = view.body("block"), view.geom("box"), view.site("top"), view.joint("slide")
    data.qvel[:] = 1
    mujoco.mj_step(model, data, 10)
    body, geom, site, joint = held
    assert np.array_equal(body.xpos, data.body("block").xpos)
    assert np.array_equal(body.xquat, data.body("block").xquat)
    assert np.array_equal(geom.xpos, data.geom("box").xpos)
    assert np.array_equal(geom.xmat, data.geom("box").xmat)
    assert np.array_equal(site.xpos, data.site("top").xpos)
    assert joint.qpos == data.joint("slide").qpos != 0
    assert (body.id, geom.id, site.id) == (data.body("block").id, data.geom("box").id, data.site("top").id)


def test_a_name_is_looked_up_once(block):
    view = DataView(block[1])
    assert view.geom("box") is view.geom("box")


def test_the_rest_is_asked_of_the_data(block):
    _, data = block
    view = DataView(data)
    data.time = 4.5
    assert view.time == 4.5
    with pytest.raises(KeyError):
        view.body("nobody")
