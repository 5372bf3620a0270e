"""`rustgrad.graph.saved_memory`: what it counts is what the allocator gave out, and what a checkpoint gives back."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rustgrad as torch
from rustgrad import _core, graph, nn
from rustgrad.utils.checkpoint import checkpoint

pytestmark = pytest.mark.row("B2.saved_memory")

# Matrices of 4 MiB: blocks from this size on are counted by the allocator, to the byte if they are whole huge pages.
N = 1024
MATRIX = N * N * 4


def mlp(depth: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(N, N), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(N, N))


def live() -> int:
    gc.collect()
    return _core._memory_large()


def test_the_allocator_counts_large_blocks() -> None:
    before = live()
    x = torch.zeros(N, N)
    assert live() - before == MATRIX
    view, more = x[1:], torch.zeros(2 * N, N)
    del x
    assert live() - before == 3 * MATRIX  # the view keeps the whole
    del view, more
    assert live() == before


def test_the_sum_is_what_the_allocator_gave_out() -> None:
    model, x = mlp(), torch.full((N, N), 0.01)
    before = live()
    with graph.record_modules(model) as modules:
        loss = model(x).pow(2).mean()
    taken = live() - before
    report = graph.saved_memory(loss, modules=modules)
    # Three results of tanh and the last layer's, which pow reads.
    assert taken == report.activations == 4 * MATRIX
    assert report.constants == MATRIX  # the input, which was there before
    assert report.parameters == 3 * MATRIX  # all weights but the first, whose input needs no gradient
    assert report.total == 5 * MATRIX and report.packed == 0
    (whole,) = [m for m in report.modules if m.path == ""]
    assert whole.bytes == 4 * MATRIX  # pow runs outside of the model
    loss.backward()
    model.zero_grad()
    assert live() == before
    assert graph.saved_memory(loss, model).total == 0


def test_each_memory_is_counted_once_whoever_looks_at_it() -> None:
    x = torch.ones(10, requires_grad=True)
    y = x.exp()
    loss = (y * y[:5].sum() + y[2:].sum() * y).sum()
    report = graph.saved_memory(loss)
    keeps = [node for node in report.nodes if y_storage(y) in node.storages]
    assert len(keeps) == 3  # exp itself, and two products
    assert report.activations == 40 + 2 * 4  # y, and two sums
    assert all(node.own == node.bytes - 40 for node in keeps)
    assert report.parameters == 0


def y_storage(y: torch.Tensor) -> int:
    return _core._storage_of(y).id


def test_views_of_parameters_and_buffers_are_not_the_graphs() -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("scale", torch.ones(4))
    loss = (model(torch.ones(2, 4).exp()) * model.scale[1:2]).sum()
    report = graph.saved_memory(model(loss.expand(2, 4)).sum(), model)
    owned = {entry.name for node in report.nodes for entry in node.saved if is_owned(report, entry)}
    assert owned == {"other", "mat2"}  # a view of the buffer, the transposed weight
    assert report.parameters == 16 + 64
    assert graph.saved_memory(loss).parameters == 0  # nobody said that the buffer lasts


def is_owned(report: graph.SavedMemory, entry: graph.Saved) -> bool:
    return entry.storage is not None and report.storages[entry.storage].role == "parameter"


def segment(model: nn.Sequential, path: str, x: torch.Tensor) -> torch.Tensor:
    """The model's result with one module checkpointed."""
    for name, module in model.named_children():
        run: Callable[..., Any] = module
        if name == path:
            x = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)
        else:
            x = run(x)
    return x


class Residual(nn.Module):
    """Keeps results of several operations; its input is not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x + 1).sin() * self.inner(x * 2)).exp()


MODELS: dict[str, Callable[[], nn.Sequential]] = {
    "linear": lambda: nn.Sequential(nn.Sequential(nn.Linear(N, N), nn.Tanh(), nn.Linear(N, N)), nn.Tanh()),
    "residual": lambda: nn.Sequential(nn.Linear(N, N), Residual(), nn.Tanh()),
    # The mask is made again, but the input, which nobody else keeps, is kept for that.
    "dropout": lambda: nn.Sequential(nn.Linear(N, N), nn.Dropout(0.5), nn.Sigmoid()),
    "one each": lambda: nn.Sequential(nn.Linear(N, N), nn.Tanh(), nn.Tanh()),
}


@pytest.mark.parametrize("kind", MODELS)
def test_what_a_checkpoint_would_free_is_what_it_frees(kind: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[kind](), torch.full((N, N), 0.01)
    with graph.record_modules(model) as modules:
        loss = model(x).sum()
    report = graph.saved_memory(loss, modules=modules)
    promised = {name: report.checkpoint(name) for name, _ in model.named_children()}
    full = live()
    del loss, report
    empty = live()
    for name, bytes_ in promised.items():
        loss = segment(model, name, x).sum()
        assert full - live() == bytes_, name
        del loss
        assert live() == empty
    assert any(promised.values()) == (kind != "dropout")


def test_a_shared_module_is_summed_over_its_calls() -> None:
    shared = nn.Tanh()
    model = nn.Sequential(nn.Linear(4, 4), shared, nn.Linear(4, 4), shared)
    with graph.record_modules(model) as modules:
        loss = model(torch.ones(8, 4)).sum()
    report = graph.saved_memory(loss, modules=modules)
    by_path = {module.path: module for module in report.modules}
    assert set(by_path) == {"", "0", "1", "2"}  # the module goes by its first name
    assert (by_path["1"].calls, by_path["1"].nodes, by_path["1"].bytes) == (2, 2, 2 * 8 * 4 * 4)


def test_nested_calls_and_calls_of_the_module_itself() -> None:
    class Halving(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self(x[: len(x) // 2].exp()) if len(x) > 2 else x.sin()

    model = Halving()
    x = torch.ones(8, requires_grad=True)
    with graph.record_modules(model) as modules:
        loss = (model(x) * 2).sum()
    assert [call.parent is None for call in modules.calls] == [True, False, False]
    report = graph.saved_memory(loss, modules=modules)
    (module,) = report.modules
    assert (module.calls, module.nodes) == (3, 3) and module.bytes == (4 + 2) * 4
    assert [node.call for node in report.nodes] == list(reversed(modules.calls))
    # The outermost call is the one that is checkpointed: x is kept anyway, both results of exp are not.
    assert report.checkpoint("") == 24


def test_a_forward_that_raises_leaves_the_record_in_order() -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.numel() > 1:
                raise ValueError("too many")
            return x.exp()

    model = nn.ModuleDict({"picky": Picky(), "tanh": nn.Tanh()})
    x = torch.ones(2, requires_grad=True)
    with graph.record_modules(model) as modules:
        with pytest.raises(ValueError, match="too many"):
            model["picky"](x)
        loss = model["tanh"](x).exp().sum()
    found = graph.trace(loss, modules=modules)
    assert [(n.label, n.module) for n in found.nodes if n.kind == "op"] == [
        ("Sum", None), ("Exp", None), ("Tanh", "tanh")
    ]  # fmt: skip


def test_the_hooks_are_gone_afterwards_also_after_an_error() -> None:
    model = nn.Sequential(nn.Tanh())
    with pytest.raises(KeyError), graph.record_modules(model):
        raise KeyError
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_threads_are_told_apart() -> None:
    model = nn.ModuleList([nn.Sequential(*[nn.Tanh() for _ in range(50)]) for _ in range(4)])
    losses: dict[int, torch.Tensor] = {}
    barrier = threading.Barrier(4)

    def run(place: int) -> None:
        barrier.wait()
        x = torch.ones(2, requires_grad=True)
        for _ in range(20):
            x = model[place](x).sin()  # what is made between the calls is no module's
        losses[place] = x

    with graph.record_modules(model) as modules:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for place, loss in losses.items():
        found = graph.trace(loss, modules=modules, limit=None)
        paths = {(n.label, None if n.module is None else n.module.split(".")[0]) for n in found.nodes if n.kind == "op"}
        assert paths == {("Sin", None), ("Tanh", str(place))}


def test_nodes_made_while_nothing_is_recorded_belong_to_no_module() -> None:
    model = nn.Sequential(nn.Tanh())
    x = torch.ones(2, requires_grad=True)
    early = model(x)
    with graph.record_modules(model) as modules:
        inside = model(early)
    late = model(inside)
    found = graph.trace(late, modules=modules)
    assert [n.module for n in found.nodes if n.kind == "op"] == [None, "0", None]


def test_the_report_can_be_read_shown_and_stored() -> None:
    model = nn.Sequential(nn.Linear(3, 500), nn.Tanh(), nn.Linear(500, 2))
    with graph.record_modules(model) as modules:
        loss = model(torch.ones(64, 3)).sum()
    report = graph.saved_memory(loss, modules=modules)
    text = str(report)
    assert text.startswith(
        "125.8 KiB kept for backward: 125.0 KiB of activations and 768 B of constants; 3.9 KiB in par"
    )
    assert "Tanh" in text and "checkpoint frees" in text and "AddmmBackward0" in text
    assert report.heaviest(1)[0].bytes == 64 * 500 * 4
    data = json.loads(report.to_json())
    assert data["activations"] == report.activations and len(data["nodes"]) == len(report.nodes)
    assert {m["path"] for m in data["modules"]} == {"", "0", "1", "2"}
    page = report._repr_html_()
    assert "<table>" in page and "125.8 KiB" in page
    assert "AddmmBackward0" in str(graph.saved_memory(loss))  # without a record, too


def test_what_cannot_be_answered_is_refused() -> None:
    model = nn.Sequential(nn.Tanh())
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="record_modules"):
        graph.saved_memory(model(x)).checkpoint("0")
    with graph.record_modules(model) as modules:
        loss = model(x)
    with pytest.raises(ValueError, match="no module '7' was called; there are"):
        graph.saved_memory(loss, modules=modules).checkpoint("7")
    with pytest.raises(ValueError, match="no grad_fn"):
        graph.saved_memory(x)
