"""`rustgrad.utils.tensorboard`: what the writer leaves in the file, read back by TensorBoard's own reader."""

import pytest

import rustgrad as torch
from rustgrad import nn

pytest.importorskip("tensorboardX", reason="the extra rustgrad[tensorboard] is not installed")
reader = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="tensorboard, which reads the files, is not installed",
)

from rustgrad.utils.tensorboard import SummaryWriter  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.act = nn.Sequential(nn.ReLU(), nn.Tanh())
        self.out = nn.Linear(3, 1)
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.out(self.act(self.fc(x))) + self.shift


def graph_of(tmp_path, model, inputs):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(model, inputs)
    assert len(list(tmp_path.glob("events*"))) == 1
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    return {node.name: node for node in events.Graph().node}


def shape(node):
    return [dim.size for dim in node.attr["_output_shapes"].list.shape[0].dim]


def test_a_model_with_scopes(tmp_path):
    nodes = graph_of(tmp_path, Net(), torch.ones(4, 2))
    assert nodes["input/x"].op == "IO Node" and shape(nodes["input/x"]) == [4, 2]
    weight = nodes["Net/Linear[fc]/weight"]
    assert weight.op == "Parameter" and shape(weight) == [3, 2] and nodes["Net/shift"].op == "Parameter"
    product = nodes["Net/Linear[fc]/AddmmBackward0"]
    assert product.op == "AddmmBackward0" and {"input/x", "Net/Linear[fc]/bias"} <= set(product.input)
    relu = nodes["Net/Sequential[act]/ReLU[0]/ReluBackward0"]
    assert list(relu.input) == ["Net/Linear[fc]/AddmmBackward0"]
    assert list(nodes["Net/Sequential[act]/Tanh[1]/TanhBackward0"].input) == [relu.name]
    total = nodes["Net/AddBackward0"]
    assert list(total.input) == ["Net/Linear[out]/AddmmBackward0", "Net/shift"]
    assert list(nodes["output/output.1"].input) == [total.name] and shape(nodes["output/output.1"]) == [4, 1]
    for node in nodes.values():
        assert all(name in nodes for name in node.input), node.name


def test_the_model_is_left_as_it_was(tmp_path):
    net = Net()
    net.out.weight.requires_grad_(False)
    x = torch.ones(4, 2)
    state = torch.get_rng_state()
    nodes = graph_of(tmp_path, nn.Sequential(net, nn.Dropout()), x)
    assert "Sequential/Net[0]/Linear[out]/weight" in nodes  # frozen, and shown
    assert not net.out.weight.requires_grad and net.fc.weight.grad is None and not x.requires_grad
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_repeated_operations_get_names_of_their_own(tmp_path):
    class Thrice(nn.Module):
        def forward(self, a, b):
            return {"sum": a + b + b, "both": [a * b]}

    nodes = graph_of(tmp_path, Thrice(), (torch.ones(2), torch.ones(2)))
    assert {"input/a", "input/b", "Thrice/AddBackward0", "Thrice/AddBackward0_1", "Thrice/MulBackward0"} <= set(nodes)
    assert list(nodes["Thrice/AddBackward0_1"].input) == ["Thrice/AddBackward0", "input/b"]
    assert {"output/output.1", "output/output.2"} <= set(nodes)


def test_indices_lead_to_the_embedding(tmp_path):
    nodes = graph_of(tmp_path, nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2)), torch.tensor([1, 2]))
    name = "Sequential/Embedding[0]/EmbeddingBackward0"
    assert set(nodes[name].input) == {"Sequential/Embedding[0]/weight", "input/input"}


def test_a_model_that_records_no_graph_is_shown_by_its_modules(tmp_path):
    class Quiet(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        @torch.no_grad()
        def forward(self, x):
            return self.fc(x).argmax(1)

    nodes = graph_of(tmp_path, Quiet(), torch.ones(4, 2))
    layer = nodes["Quiet/Linear[fc]/Linear"]
    assert layer.op == "Linear" and {"input/x", "Quiet/Linear[fc]/weight"} <= set(layer.input)
    assert list(nodes["Quiet/Quiet"].input) == [layer.name]
    assert list(nodes["output/output.1"].input) == ["Quiet/Quiet"]


def test_a_model_that_returns_its_input(tmp_path):
    nodes = graph_of(tmp_path, nn.Identity(), torch.ones(3))
    assert list(nodes["output/output.1"].input) == ["input/input"]


def test_a_deep_graph(tmp_path):
    class Deep(nn.Module):
        def forward(self, x):
            for _ in range(3000):
                x = x + 1.0
            return x

    assert len(graph_of(tmp_path, Deep(), torch.ones(1))) == 3002


def test_verbose_prints_the_nodes(tmp_path, capsys):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(nn.ReLU(), torch.ones(1), verbose=True)
    assert "ReLU/ReluBackward0 = ReluBackward0(input/input)" in capsys.readouterr().out


def test_tensors_as_values(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", torch.tensor(0.5, requires_grad=True), 3)
        writer.add_scalars("both", {"a": torch.tensor(1.0)}, 0)
        writer.add_histogram("weights", torch.ones(8, dtype=torch.bfloat16), 0)
        writer.add_image("picture", torch.zeros(3, 4, 4), 0)
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    (scalar,) = events.Scalars("loss")
    assert scalar.value == 0.5 and scalar.step == 3
    assert events.Histograms("weights")[0].histogram_value.num == 8
    assert "picture" in events.Tags()["images"]
