"""What is behind a result: the walk over `next_functions`, and what is known of each node that it meets.

Everything is iterative, so that graphs of any depth are walked on any stack. No hook runs, no saved value is brought
back and no element is read. Drawing and writing are other files' business.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from rustgrad import _core
from rustgrad._core import Tensor

if TYPE_CHECKING:
    from rustgrad.graph._modules import ModuleRecord

__all__ = [
    "LIMIT",
    "Edge",
    "Graph",
    "Hooks",
    "Kind",
    "Line",
    "Named",
    "Node",
    "Output",
    "Saved",
    "functions",
    "inputs_first",
    "line_of",
    "named",
    "saved_by",
    "tensors_in",
    "trace",
]

Kind = Literal["result", "op", "parameter", "leaf", "cut"]
Named: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str, Any]] | Any | None"
"""Names for leaves: a mapping of names to tensors, or such pairs, or a module with `named_parameters`."""

LIMIT = 400
"""Nodes drawn unless the caller asks for more: a picture of thousands shows nothing."""


class Output(NamedTuple):
    """What a node computes in forward: one value."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{_times(self.shape)} {self.dtype}"


class Saved(NamedTuple):
    """A value that a node keeps for backward.

    `origin` is `"leaf"`, `"value"` or `"constant"` for an input that is a leaf, has history, or requires no gradient;
    `"result"` for what the node itself computed; `"packed"` for what `saved_tensors_hooks` keep in a value's place, and
    `"context"` for attributes of a custom function's context. `storage` is the number of the memory and `bytes` its
    size, all of it; where hooks keep something that is no tensor, both are unknown: `None` and 0. `owned` says that the
    memory is a leaf's or a named tensor's, which is there with or without the graph.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    origin: str
    storage: int | None
    bytes: int
    owned: bool = False


class Hooks(NamedTuple):
    """How many hooks see what passes a node."""

    tensor: int = 0
    """On the gradients of its outputs: `Tensor.register_hook`."""
    pre: int = 0
    post: int = 0
    accumulate: int = 0
    """After a leaf's accumulation: `register_post_accumulate_grad_hook`."""

    @property
    def total(self) -> int:
        return sum(self)


class Line(NamedTuple):
    """Where in the user's program a node was made."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} in {self.function}"


class Edge(NamedTuple):
    """The value that `target` reads: output number `output` of `source`. Both are positions in `Graph.nodes`."""

    source: int
    target: int
    output: int


@dataclass(slots=True)
class Node:
    """One box: an operation, a leaf tensor, a result, or the mark `...` where the walk stopped."""

    kind: Kind
    label: str
    shape: str = ""
    detail: str = ""
    inputs: list[int] = field(default_factory=list)
    """Positions in `Graph.nodes` of the nodes whose values this one reads, in argument order."""
    numbers: list[int] = field(default_factory=list)
    """For each of `inputs`, which of that node's outputs is read."""
    name: str = ""
    """PyTorch's name of the node, `MulBackward0`."""
    outputs: list[Output] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    freed: bool = False
    """Whether a backward has let go of what was saved."""
    hooks: Hooks = field(default_factory=Hooks)
    retained: list[int] = field(default_factory=list)
    """Numbers of the outputs whose gradients are kept by `retain_grad`."""
    sequence: int | None = None
    """`_sequence_nr()`; none for leaves and results."""
    line: Line | None = None
    module: str | None = None
    """Path of the module in whose `forward` the node was made, if that was recorded."""

    @property
    def saved_bytes(self) -> int:
        """Bytes of the memory that the node keeps and no leaf owns, each piece once. Other nodes may keep the same."""
        return sum({entry.storage: entry.bytes for entry in self.saved if not entry.owned}.values())


@dataclass
class Graph:
    """What was found, results first; every node comes before those it reads along some path.

    A notebook shows it as a picture.
    """

    nodes: list[Node]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """(from, to), in the direction in which values flow; gradients flow against it."""
        return [(source, target) for target, node in enumerate(self.nodes) for source in node.inputs]

    @property
    def numbered_edges(self) -> list[Edge]:
        """The edges, each with the number of the output that is read."""
        return [
            Edge(source, target, number)
            for target, node in enumerate(self.nodes)
            for source, number in zip(node.inputs, node.numbers or [0] * len(node.inputs), strict=True)
        ]

    def _repr_html_(self) -> str:
        from rustgrad.graph._page import embedded

        return embedded(self, title="Computation graph")


# ---- the walk ------------------------------------------------------------------------------------------------------


def functions(roots: Iterable[Any]) -> Iterator[Any]:
    """Every node behind `roots` (nodes), each once, nearest first."""
    seen = dict.fromkeys(roots)
    queue = deque(seen)
    while queue:
        function = queue.popleft()
        yield function
        for source, _ in function.next_functions:
            if source is not None and source not in seen:
                seen[source] = None
                queue.append(source)


def inputs_first(root: Any, known: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes behind `root` and it itself, each after those it reads, but none that are `known` when they are met."""
    waiting = [root]
    placed: set[Any] = set()
    while waiting:
        function = waiting[-1]
        sources = [source for source, _ in function.next_functions if source is not None]
        missing = [source for source in sources if source not in placed and not known(source)]
        if function in placed or known(function):
            waiting.pop()
        elif missing:
            waiting += reversed(missing)
        else:
            waiting.pop()
            placed.add(function)
            yield function


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a nest of lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            yield from tensors_in(item)


def roots_of(loss: Any) -> list[tuple[Any, Any]]:
    """(tensor, its `grad_fn`) for a result or a list of them.

    Raises:
        ValueError: a tensor has no history.
    """
    results = list(loss) if isinstance(loss, (list, tuple)) else [loss]
    pairs = [(result, getattr(result, "grad_fn", None)) for result in results]
    if not pairs or any(function is None for _, function in pairs):
        raise ValueError("the tensor has no grad_fn: nothing that requires a gradient went into it")
    return pairs


def trace(loss: Any, params: Named = None, *, limit: int | None = LIMIT, modules: ModuleRecord | None = None) -> Graph:
    """The graph behind `loss`.

    Args:
        loss: a tensor, or a sequence of tensors.
        params: names for leaves: a mapping of names to tensors, such pairs, or a module.
        limit: how many operations and leaves to take, nearest first; a node `...` stands for the rest. `None`: all.
        modules: what `record_modules` recorded, for `Node.module`; its model names the leaves if `params` does not.

    Raises:
        ValueError: a tensor that has no history, or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be positive, got {limit}")
    tensors = named(modules.model if params is None and modules is not None else params)
    names = {id(tensor): name for name, tensor in tensors}
    owned = {_core._storage_of(tensor).id for _, tensor in tensors}
    ends = roots_of(loss)
    nodes: list[Node] = []
    # Keyed by the node object itself: holding it keeps its identity from being given to another object.
    seen: dict[Any, int] = {}
    queue: deque[Any] = deque()

    def visit(function: Any) -> int:
        if function not in seen:
            variable = getattr(function, "variable", None)
            if variable is not None:
                owned.add(_core._storage_of(variable).id)
            seen[function] = len(nodes)
            nodes.append(_operation(function, modules) if variable is None else _leaf(function, variable, names))
            queue.append(function)
        return seen[function]

    for i, (result, function) in enumerate(ends):
        label = "result" if len(ends) == 1 else f"result {i}"
        end = Node("result", label, _shape(result), label, outputs=[_output(result)])
        nodes.append(end)
        end.inputs.append(visit(function))
        end.numbers.append(getattr(result, "output_nr", 0))

    while queue:
        function = queue.popleft()
        node = nodes[seen[function]]
        for previous, number in function.next_functions:
            if previous is None:
                continue
            node.numbers.append(number)
            if previous in seen or limit is None or len(seen) < limit:
                node.inputs.append(visit(previous))
            else:
                node.inputs.append(len(nodes))
                nodes.append(Node("cut", "...", detail=f"more than {limit} nodes: not drawn"))
                break
    for node in nodes:
        node.saved = [entry._replace(owned=entry.origin == "leaf" or entry.storage in owned) for entry in node.saved]
    return Graph(nodes)


def named(params: Named) -> list[tuple[str, Any]]:
    """(name, tensor): of a module its parameters and its buffers, which last as long."""
    if params is None:
        return []
    if hasattr(params, "named_parameters"):
        buffers = params.named_buffers() if hasattr(params, "named_buffers") else ()
        return [*params.named_parameters(), *buffers]
    return list(params.items() if isinstance(params, Mapping) else params)


# ---- one node ------------------------------------------------------------------------------------------------------


def _leaf(function: Any, variable: Any, names: Mapping[int, str]) -> Node:
    full = type(function).__name__
    name = names.get(id(variable))
    *counts, _ = _core._node_hooks(function)
    return Node(
        "leaf" if name is None else "parameter",
        name or "leaf",
        _shape(variable),
        f"{full} of {name or 'an unnamed leaf'}",
        name=full,
        outputs=[_output(variable)],
        hooks=Hooks(*counts),
    )


def _operation(function: Any, modules: ModuleRecord | None) -> Node:
    full = type(function).__name__
    metadata = function._input_metadata
    saved = saved_by(function)
    sequence = function._sequence_nr()
    *counts, retained = _core._node_hooks(function)
    return Node(
        "op",
        re.sub(r"Backward\d*$", "", full) or full,
        ", ".join(map(_shape, metadata)),
        full,
        name=full,
        outputs=[_output(entry) for entry in metadata],
        saved=saved or [],
        freed=saved is None,
        hooks=Hooks(*counts),
        retained=retained,
        sequence=sequence,
        line=line_of(function),
        module=None if modules is None else modules.path_of(sequence),
    )


def saved_by(function: Any) -> list[Saved] | None:
    """What a node keeps for backward; `None` once a backward has let go of it."""
    kept = _core._node_saved(function)
    attributes = list(_context_tensors(function))
    if kept is None:
        return attributes or None
    entries: list[Saved] = []
    for name, shape, dtype, origin, memory, packed in kept:
        if memory is not None:
            entries.append(Saved(name, tuple(shape), _dtype(dtype), origin, *memory))
            continue
        tensors = list(tensors_in(packed))
        entries += (_entry(name, tensor, origin) for tensor in tensors)
        if not tensors:
            entries.append(Saved(name, tuple(shape), _dtype(dtype), origin, None, 0))
    return entries + attributes


def _context_tensors(function: Any) -> Iterator[Saved]:
    """The attributes of a custom function's context that are tensors or hold some."""
    if not hasattr(type(function), "_forward_cls"):
        return
    for name, value in vars(function).items():
        for tensor in tensors_in(value):
            yield _entry(f"ctx.{name}", tensor, "context")


def _entry(name: str, tensor: Tensor, origin: str) -> Saved:
    memory = _core._storage_of(tensor)
    return Saved(name, tuple(tensor.shape), _dtype(tensor.dtype), origin, memory.id, memory.bytes)


def line_of(function: Any) -> Line | None:
    """Where the user made a node, if that is known."""
    found = _core._node_location(function)
    return None if found is None else Line(*found[:3])


def _output(value: Any) -> Output:
    return Output(tuple(int(n) for n in value.shape), _dtype(value.dtype))


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(tensor: Any) -> str:
    return _times(tuple(tensor.shape))


def _times(shape: Sequence[int]) -> str:
    return "\N{MULTIPLICATION SIGN}".join(str(int(n)) for n in shape) or "scalar"
