"""The trace of the scheduler: what is in it, and the forms it takes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import rustgrad as torch


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def wide() -> torch.Tensor:
    outs = []
    for _ in range(16):
        w, x = torch.randn(96, 96, requires_grad=True), torch.randn(96, 96)
        for _ in range(6):
            x = (x @ w * 0.1).tanh()
        outs.append(x.sum())
    return torch.stack(outs).sum()


def test_a_trace_shows_each_node_once_and_who_computed_it(two_threads: None) -> None:
    lanes: set[int] = set()
    for _ in range(20):  # Another thread may be kept from working for a while.
        loss = wide()
        with torch.autograd.scheduler_trace() as trace:
            loss.backward()
        computed = [span.what for span in trace.spans if span.kind == "compute"]
        assert len(computed) == len(set(computed))
        assert len(computed) == 16 * (6 * 3 + 2) + 2
        assert all(span.begin <= span.end for span in trace.spans)
        lanes |= {span.lane for span in trace.spans if span.kind == "compute"}
        if lanes == {0, 1}:
            break
    assert lanes == {0, 1}


def test_branches_that_are_added_one_after_the_other_are_shared(two_threads: None) -> None:
    x = torch.randn(4096, requires_grad=True)
    total = torch.zeros(4096)
    for k in range(16):
        branch = x * float(k)
        for _ in range(20):
            branch = branch.tanh()
        total = total + branch
    for _ in range(20):
        with torch.autograd.scheduler_trace() as trace:
            total.sum().backward(retain_graph=True)
        others = [span.what for span in trace.spans if span.kind == "compute" and span.lane != 0]
        if any(what.startswith("Tanh") for what in others) and any(what.startswith("Add") for what in others):
            return
    pytest.fail("no other thread came to an addition and a branch")


def test_spans_of_a_lane_do_not_cross(two_threads: None) -> None:
    loss = wide()
    with torch.autograd.scheduler_trace() as trace:
        loss.backward()
    for lane in {span.lane for span in trace.spans}:
        spans = sorted((s for s in trace.spans if s.lane == lane and s.kind == "compute"), key=lambda s: s.begin)
        assert all(a.end <= b.begin for a, b in pairwise(spans))


def test_a_small_backward_stays_with_its_caller(two_threads: None) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.scheduler_trace() as trace:
        ((x * 2).sum() + (x * 3).sum()).backward()
    assert {span.lane for span in trace.spans} == {0}
    assert {span.kind for span in trace.spans} == {"compute"}


def test_files(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.scheduler_trace() as trace:
        (x * x).sum().backward()
    trace.save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [e["name"].split()[0] for e in events if e["ph"] == "X"] == [
        "SumBackward0",
        "MulBackward0",
        "AccumulateGrad",
    ]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"caller"}
    trace.save(tmp_path / "t.svg")
    root = ET.fromstring((tmp_path / "t.svg").read_text())
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3
    assert titles[0].startswith("compute SumBackward0")
    assert trace._repr_html_() == trace.svg()
    with pytest.raises(ValueError, match=r"ends in \.json or \.svg, got 't\.png'"):
        trace.save(tmp_path / "t.png")


def test_one_trace_at_a_time_and_an_error_ends_it() -> None:
    with (
        torch.autograd.scheduler_trace(),
        pytest.raises(RuntimeError, match="another trace is under way"),
        torch.autograd.scheduler_trace(),
    ):
        pass
    trace = torch.autograd.scheduler_trace()
    with pytest.raises(RuntimeError, match="grad can be implicitly created"), trace:
        torch.ones(2, requires_grad=True).backward()
    assert trace.spans == []
    with trace:
        torch.ones(1, requires_grad=True).sum().backward()
    assert len(trace.spans) == 2


def test_an_empty_trace_is_a_picture_too() -> None:
    with torch.autograd.scheduler_trace() as trace:
        pass
    ET.fromstring(trace.svg())
    assert trace.chrome()["traceEvents"] == []
