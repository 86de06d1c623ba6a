"""The patch of MindSpore in real trainings: graph and PyNative mode, steps counted, losses as without mstxkit.

Each also has the guide's own callback around `mindspore.Profiler`, as it stands there, and a `Model` that believes in a
dataset sink, which a CPU has not: the host's loop is the real one, the queue and its network are stand-ins.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import mindspore_programs, soak

from mstxkit.config.configuring import configure

pytestmark = [pytest.mark.days("odd"), pytest.mark.mindspore, pytest.mark.timeout(300)]

EPOCHS, BATCHES, CELL_CALLS = 2, 3, 2
STEPS = EPOCHS * BATCHES
GUIDES = Path(__file__).parents[1] / "config" / "guides"
LOOP = f"""
import json, sys
import numpy
import mstxkit
import mindspore as ms
from mindspore import dataset, nn
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

def data():
    numbers = numpy.random.RandomState(0)
    columns = numbers.rand({BATCHES * 4}, 4).astype(numpy.float32), numbers.rand({BATCHES * 4}, 2).astype(numpy.float32)
    return dataset.NumpySlicesDataset(columns, column_names=["x", "y"], shuffle=False).batch(4)

class Losses(Callback):
    def __init__(self):
        self.seen = []

    def on_train_step_end(self, run_context):
        loop = run_context.original_args()
        self.seen.append([loop.cur_step_num, float(loop.net_outputs.asnumpy())])

def made(kind=Model):
    ms.set_seed(1)
    net = nn.Dense(4, 2, weight_init=ms.Tensor(numpy.full((2, 4), 0.1, numpy.float32)))
    return kind(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), metrics={{"loss"}})
"""
PATCHED = (
    LOOP
    + f"""
from mstxkit.testing import captured

mode, guide = sys.argv[1:]
exec(open(guide, encoding="utf-8").read())
ms.set_context(mode=dict(graph=ms.GRAPH_MODE, pynative=ms.PYNATIVE_MODE)[mode])

def trained():
    losses, model = Losses(), made()
    saving = ModelCheckpoint("net", "saved", CheckpointConfig(save_checkpoint_steps=2))
    model.fit({EPOCHS}, data(), data(), callbacks=[losses, saving, StopAtStep(2, 3)])
    model.eval(data())
    return losses.seen

def by_hand():
    net = nn.Dense(4, 2)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params())).set_train()
    for x, y in list(data())[:{CELL_CALLS}]:
        cell(x, y)

class Queue:
    def sink_size(self):
        return {BATCHES}

    def __iter__(self):
        return iter([()] * (1 if mode == "graph" else {BATCHES}))

    continue_send = stop_send = release = lambda self: None

class Sinking(Model):
    def _exec_preprocess(self, is_train, *args, **kwargs):
        return Queue(), lambda: None

    def _check_network_mode(self, network, is_train):
        return network

    def _train_process(self, epoch, train_dataset, list_callback, cb_params, initial_epoch, valid_infos):
        given = {BATCHES}, initial_epoch, valid_infos
        self._train_dataset_sink_process(epoch, train_dataset, list_callback, cb_params, *given)

plain = trained()
mstxkit.autopatch("mindspore")
with captured() as seen:
    patched = trained()
    by_hand()
    made(Sinking).train({EPOCHS}, data())
mstxkit.unpatch()
rows = [(one.name, one.stage, one.step, one.error) for one in seen.ranges]
print(json.dumps(dict(plain=plain, patched=patched, again=trained(), rows=rows, open=len(seen.open))))
"""
)


@pytest.fixture(scope="module", params=soak.sample(["graph", "pynative"], 1))
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    ended = mindspore_programs.run(PATCHED, folder, request.param, GUIDES / "mindspore_callback.py")
    return {**ended.said, "mode": request.param, "folder": folder}


def steps_of(told: dict[str, Any], name: str) -> list[int]:
    return [step for found, _, step, _ in told["rows"] if found == name]


def test_losses_are_those_of_a_training_without_mstxkit(told: dict[str, Any]) -> None:
    assert [number for number, _ in told["plain"]] == list(range(1, STEPS + 1))
    assert told["plain"][-1][1] != told["plain"][0][1], "it does not train"
    assert told["plain"] == told["patched"] == told["again"]


def test_each_step_of_each_loop_is_one_step(told: dict[str, Any]) -> None:
    """Six of `fit`; two calls of a cell; six of a sink, of which a graph runs an epoch in one call: its last step."""
    of_loop, of_cell = list(range(1, STEPS + 1)), [STEPS + 1 + call for call in range(CELL_CALLS)]
    of_sink = [of_cell[-1] + 1 + step for step in range(STEPS)]
    of_sink = of_sink[BATCHES - 1 :: BATCHES] if told["mode"] == "graph" else of_sink

    assert steps_of(told, "train_step") == of_loop + of_sink
    assert steps_of(told, "TrainOneStepCell") == of_loop + of_cell
    assert steps_of(told, "on_train_step_begin") == steps_of(told, "on_train_step_end") == of_loop + of_sink


def test_an_optimizer_has_a_range_where_it_is_called_and_not_compiled(told: dict[str, Any]) -> None:
    steps = steps_of(told, "TrainOneStepCell")

    assert steps_of(told, "Optimizer") == (steps if told["mode"] == "pynative" else [])


def test_data_evaluation_and_checkpoints_are_stages(told: dict[str, Any]) -> None:
    stages = Counter(stage for name, stage, _, _ in told["rows"] if name != "train_step" and stage != "train_step")
    names = Counter((name, stage) for name, stage, _, _ in told["rows"])

    assert names["Model.eval", "evaluate"] == 1
    assert names["Model._eval_in_fit", "evaluate"] == EPOCHS
    assert steps_of(told, "save_checkpoint") == [2, 4, 6]
    assert stages["load_batch"] >= STEPS + EPOCHS + BATCHES * (EPOCHS + 1)
    assert not any(error for *_, error in told["rows"])
    assert told["open"] == 0


def test_the_guides_own_callback_records_in_each_training_as_before(told: dict[str, Any]) -> None:
    recorded = list((told["folder"] / "profiler_data").glob("*_ascend_ms"))

    assert len(recorded) == 3


JOB = (
    LOOP
    + f"""
import time

class Slow(Callback):
    def on_train_step_end(self, run_context):
        time.sleep(0.3)

made().train({EPOCHS}, data(), callbacks=[Slow()])
"""
)
# Of the guide's ways the example, how MindSpore would do it, and the steps of ours.
WAYS = {
    "mindspore_callback.py": list(range(1, STEPS + 1)),  # from where to where only its program says
    "mindspore_pynative.py": [1, 2],
    "mindspore_dynamic.json": [2, 3, 4, 5],
    "mindspore_environment.sh": list(range(1, STEPS + 1)),
}


@pytest.mark.parametrize("way", soak.sample(list(WAYS), 1))
def test_the_guides_ways_are_carried_out_in_a_loop_without_any_mark(way: str, tmp_path: Path) -> None:
    wanted = configure(GUIDES / way)
    run = f'exec "$0" -m mstxkit run --config {GUIDES / way} --run run -- "$0" program.py; exit'

    mindspore_programs.run(JOB, tmp_path, before=run)

    (file,) = tmp_path.glob("run/profiles/**/session.json")
    session = json.loads(file.read_text())
    assert (session["state"], session["steps"], session["role"]) == ("recorded", WAYS[way], "trainer")
    assert session["options"]["experimental_config"]["profiler_level"].lower() == wanted.level
    assert session["output"].endswith("_ascend_ms")
