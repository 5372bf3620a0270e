"""Where the boxes of a picture go: layers by longest path, order within a layer by barycentre, places by least squares."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rustgrad.graph._walk import Graph

__all__ = ["Layout", "crossings", "layered", "nondecreasing", "places"]


@dataclass
class Layout:
    """Layer 0 is at the bottom. Items are node positions, or, past the last node, bends of edges that cross layers."""

    layers: list[list[int]]
    paths: list[list[int]]
    """One list of items an edge, from its source to its target."""
    above: dict[int, list[int]]
    below: dict[int, list[int]]


def _ranks(graph: Graph) -> list[int]:
    """Longest path to a result, so that a parameter stands just above what reads it."""
    readers = [0] * len(graph.nodes)
    for node in graph.nodes:
        for i in node.inputs:
            readers[i] += 1
    ranks = [0] * len(graph.nodes)
    ready = [i for i, count in enumerate(readers) if count == 0]
    while ready:
        i = ready.pop()
        for source in graph.nodes[i].inputs:
            ranks[source] = max(ranks[source], ranks[i] + 1)
            readers[source] -= 1
            if readers[source] == 0:
                ready.append(source)
    return ranks


def layered(graph: Graph) -> Layout:
    ranks = _ranks(graph)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=0) + 1)]
    for i, rank in enumerate(ranks):
        layers[rank].append(i)
    count = len(graph.nodes)
    paths = []
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in graph.edges:
        path = [source]
        for rank in range(ranks[source] - 1, ranks[target], -1):
            layers[rank].append(count)
            path.append(count)
            count += 1
        path.append(target)
        for upper, lower in pairwise(path):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
        paths.append(path)
    layout = Layout(layers, paths, above, below)
    _untangle(layout)
    return layout


def _untangle(layout: Layout, sweeps: int = 16) -> None:
    """Sorts every layer by the mean position of its neighbours, up and down; the order with fewest crossings stays."""
    layers = layout.layers
    best = [list(layer) for layer in layers]
    fewest = crossings(layout)
    for sweep in range(sweeps):
        if fewest == 0:
            break
        upwards = sweep % 2 == 0
        order = range(1, len(layers)) if upwards else range(len(layers) - 2, -1, -1)
        neighbours = layout.below if upwards else layout.above
        for rank in order:
            place = {item: i for i, item in enumerate(layers[rank - 1 if upwards else rank + 1])}
            here = {item: float(i) for i, item in enumerate(layers[rank])}
            for item in layers[rank]:
                there = [place[n] for n in neighbours.get(item, ())]
                if there:
                    here[item] = sum(there) / len(there)
            layers[rank].sort(key=here.__getitem__)
        count = crossings(layout)
        if count < fewest:
            fewest, best = count, [list(layer) for layer in layers]
    layers[:] = best


def crossings(layout: Layout) -> int:
    total = 0
    for lower, upper in pairwise(layout.layers):
        place = {item: i for i, item in enumerate(lower)}
        passed: list[int] = []
        for item in upper:
            ends = sorted(place[n] for n in layout.below.get(item, ()))
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total


def places(
    layout: Layout, bends: set[int], widths: Mapping[int, float], gap: float, rounds: int = 80
) -> dict[int, float]:
    """Horizontal centres: each layer in turn moves as near to its neighbours' centres as its order and widths allow.

    Bends of one edge pull at each other harder than boxes do, so that long edges run straight.
    """
    x: dict[int, float] = {}
    offsets: list[list[float]] = []
    for layer in layout.layers:
        at, row = 0.0, []
        for left, item in zip([None, *layer], layer, strict=False):
            at += 0.0 if left is None else (widths[left] + widths[item]) / 2 + gap
            row.append(at)
        offsets.append(row)
        x.update({item: place - at / 2 for item, place in zip(layer, row, strict=True)})
    for step in range(rounds):
        down = step % 2 == 1
        ranks = range(len(layout.layers) - 1, -1, -1) if down else range(len(layout.layers))
        for rank in ranks:
            layer = layout.layers[rank]
            wanted = []
            for item, offset in zip(layer, offsets[rank], strict=True):
                near = (*layout.above.get(item, ()), *layout.below.get(item, ()))
                pull = [8.0 if item in bends and n in bends else 1.0 for n in near]
                total = sum(p * x[n] for p, n in zip(pull, near, strict=True))
                wanted.append((total / sum(pull) if near else x[item]) - offset)
            for item, offset, place in zip(layer, offsets[rank], nondecreasing(wanted), strict=True):
                x[item] = place + offset
    return x


def nondecreasing(values: Sequence[float]) -> list[float]:
    """The nearest nondecreasing sequence in least squares (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]
