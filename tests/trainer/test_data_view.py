import mujoco
import numpy as np
import pytest

from trainer.envs.physics import DataView

MODEL = """
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
def simulation():
    model = mujoco.MjModel.from_xml_string(MODEL)
    return model, mujoco.MjData(model)


def test_named_parts_read_like_mujocos_and_stay_live(simulation):
    model, data = simulation
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


def test_a_name_is_looked_up_once(simulation):
    view = DataView(simulation[1])
    assert view.geom("box") is view.geom("box")


def test_the_rest_is_asked_of_the_data(simulation):
    _, data = simulation
    view = DataView(data)
    data.time = 4.5
    assert view.time == 4.5
    with pytest.raises(KeyError):
        view.body("nobody")
