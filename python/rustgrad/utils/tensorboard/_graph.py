"""A model's computation as a list of named nodes, read off the autograd graph of one forward run.

`trace` runs the model and walks from its outputs back to parameters and inputs; modules become scopes of the names.
Writing the list in TensorBoard's format is the writer's business.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import enable_grad
from rustgrad.graph._walk import inputs_first, tensors_in
from rustgrad.nn.modules.module import Module
from rustgrad.random import fork_rng

__all__ = ["GraphNode", "trace"]

Shape = tuple[int, ...]


@dataclass
class GraphNode:
    """One node: its scoped name, what it does, the names of the nodes it reads, and the shapes of its outputs."""

    name: str
    op: str
    inputs: list[str] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)


def _replace_tensors(value: Any, fresh: dict[int, Tensor]) -> Any:
    """The same nest with every tensor replaced by `fresh[id(tensor)]`."""
    if isinstance(value, Tensor):
        return fresh[id(value)]
    if isinstance(value, Mapping):
        return {key: _replace_tensors(item, fresh) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_replace_tensors(item, fresh) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _leaf(tensor: Tensor) -> Tensor:
    """The tensor as an input of the run: a leaf of its own that requires grad if its dtype can."""
    fresh = tensor.detach()
    return fresh.requires_grad_(True) if fresh.is_floating_point() else fresh


def _scopes(model: Module) -> dict[int, str]:
    """For each module, by identity, its scope: `Net/Linear[fc]` for the child `fc` of a `Net`."""
    root = type(model).__name__
    scopes: dict[int, str] = {}
    kinds = {path: type(module).__name__ for path, module in model.named_modules(remove_duplicate=False)}
    for path, module in model.named_modules():
        parts = path.split(".") if path else []
        steps = [f"{kinds['.'.join(parts[: depth + 1])]}[{name}]" for depth, name in enumerate(parts)]
        scopes[id(module)] = "/".join([root, *steps])
    return scopes


@dataclass
class _Call:
    """One run of a module: what went in, what came out, and the runs of other modules inside it."""

    module: Module
    inputs: list[Tensor]
    outputs: list[Tensor]
    inner: list[_Call]

    def sources(self) -> list[Tensor]:
        """What the module's own last step read, as far as can be seen: what no run inside it took, else its inputs."""
        loose: dict[int, Tensor] = {}
        for call in self.inner:
            for tensor in call.inputs:
                loose.pop(id(tensor), None)
            loose.update((id(tensor), tensor) for tensor in call.outputs)
        return list(loose.values()) or self.inputs


class _Recorder:
    """Watches the modules run, and notes which autograd nodes were made inside which."""

    def __init__(self, scopes: dict[int, str]) -> None:
        self.calls: list[_Call] = []
        self.scope_of: dict[int, str] = {}
        self._scopes = scopes
        self._alive: list[Any] = []  # nodes are told apart by id, so none may be freed
        self._started: list[int] = []  # for each module that is running, how many runs had ended when it began

    def before_forward(self, module: Module, args: Any) -> None:
        self._started.append(len(self.calls))

    def after_forward(self, module: Module, args: Any, kwargs: Any, output: Any) -> None:
        inputs, outputs = list(tensors_in([args, kwargs])), list(tensors_in(output))
        self.calls.append(_Call(module, inputs, outputs, self.calls[self._started.pop() :]))
        # Children come first, so what is new between here and the inputs is the module's own.
        border = [tensor.grad_fn for tensor in inputs if tensor.grad_fn is not None]
        self._alive += border
        known = {id(node) for node in border}
        waiting = [tensor.grad_fn for tensor in outputs]
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in known or id(node) in self.scope_of or hasattr(node, "variable"):
                continue
            self._alive.append(node)
            self.scope_of[id(node)] = self._scopes[id(module)]
            waiting += [after for after, _ in node.next_functions]


class _Names:
    """Gives every node a name of its own within its scope."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def new(self, name: str) -> str:
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        return f"{name}_{count}" if count else name


def _input_names(model: Module, count: int) -> list[str]:
    """The names of the arguments of `forward`, as far as they say something."""
    try:
        names = [
            name
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    return [names[place] if place < len(names) else f"input.{place}" for place in range(count)]


def _shapes_of(node: Any) -> list[Shape]:
    return [tuple(entry.shape) for entry in getattr(node, "_input_metadata", ())]


class _Builder:
    """Turns autograd nodes into graph nodes, inputs before users."""

    def __init__(self, model: Module, recorder: _Recorder, scopes: dict[int, str], inputs: list[Tensor]) -> None:
        self.nodes: list[GraphNode] = []
        self._names = _Names()
        self._root = type(model).__name__
        self._recorder = recorder
        self._scopes = scopes
        self._name_of: dict[int, str] = {}  # autograd nodes and leaf tensors, by identity
        self._alive: list[Any] = list(inputs)  # what is told apart by id may not be freed
        self._parameters = {
            id(param): f"{scopes[id(module)]}/{name}"
            for module in model.modules()
            for name, param in module._parameters.items()
            if param is not None
        }
        for name, tensor in zip(_input_names(model, len(inputs)), inputs, strict=True):
            self._name_of[id(tensor)] = self._add(f"input/{name}", "IO Node", [], [tuple(tensor.shape)])

    def _add(self, name: str, op: str, inputs: list[str], shapes: list[Shape]) -> str:
        name = self._names.new(name)
        self.nodes.append(GraphNode(name, op, inputs, shapes))
        return name

    def leaf(self, tensor: Tensor) -> str:
        """The node of a tensor that no operation made."""
        if id(tensor) not in self._name_of:
            parameter = self._parameters.get(id(tensor))
            op = "Tensor" if parameter is None else "Parameter"
            name = f"{self._root}/tensor" if parameter is None else parameter
            self._name_of[id(tensor)] = self._add(name, op, [], [tuple(tensor.shape)])
            self._alive.append(tensor)
        return self._name_of[id(tensor)]

    def operation(self, root: Any) -> str:
        """The node of an autograd node, and before it those of all that it reads. Iterative: graphs may be deep."""
        for node in inputs_first(root, lambda node: id(node) in self._name_of):
            self._alive.append(node)
            if hasattr(node, "variable"):
                self._name_of[id(node)] = self.leaf(node.variable)
                continue
            scope = self._recorder.scope_of.get(id(node), self._root)
            inputs = [self._name_of[id(source)] for source, _ in node.next_functions if source is not None]
            op = node.name()
            self._name_of[id(node)] = self._add(f"{scope}/{op}", op, inputs, _shapes_of(node))
        return self._name_of[id(root)]

    def call(self, tensor: Tensor) -> str:
        """The node of a tensor without history: the run of the module that returned it, else a constant."""
        if id(tensor) in self._name_of:
            return self._name_of[id(tensor)]
        # Innermost runs are recorded first: they are the most exact.
        runs = self._recorder.calls
        found = next((run for run in runs if any(tensor is output for output in run.outputs)), None)
        if found is None:
            return self.leaf(tensor)
        scope = self._scopes[id(found.module)]
        self._name_of[id(tensor)] = ""  # stops a module that returns its input from asking for itself
        inputs = [self.source(value) for value in found.sources() if value is not tensor]
        inputs += [self.leaf(param) for param in found.module._parameters.values() if param is not None]
        op = type(found.module).__name__
        self._name_of[id(tensor)] = self._add(
            f"{scope}/{op}", op, [name for name in inputs if name], [tuple(tensor.shape)]
        )
        return self._name_of[id(tensor)]

    def source(self, tensor: Tensor) -> str:
        """The node that a tensor comes from."""
        return self.call(tensor) if tensor.grad_fn is None else self.operation(tensor.grad_fn)

    def connect_inputs(self, inputs: list[Tensor]) -> None:
        """Lead inputs that carry no gradient, such as indices, to the first operation of the module that took them."""
        read = {name for node in self.nodes for name in node.inputs}
        for tensor in inputs:
            name = self._name_of[id(tensor)]
            for run in self._recorder.calls if name not in read else ():
                prefix = self._scopes[id(run.module)] + "/"
                inside = (node for node in self.nodes if node.inputs and node.name.startswith(prefix))
                user = next(inside, None) if any(tensor is value for value in run.inputs) else None
                if user is not None:
                    user.inputs.append(name)
                    break


def trace(model: Module, inputs: Any) -> list[GraphNode]:
    """Run `model` once and describe what it computed.

    Args:
        model: the module; its parameters are left as they were.
        inputs: one input, or a tuple or list of the positional arguments; `None` for no argument.

    Returns:
        The nodes, each after those it reads. Operations have autograd's names ("AddmmBackward0"). Where the model
        computes without recording a graph, a whole module is one node of its class's name.
    """
    args = () if inputs is None else tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    fresh = {id(tensor): _leaf(tensor) for tensor in tensors_in(args)}
    leaves = list(fresh.values())
    scopes = _scopes(model)
    recorder = _Recorder(scopes)
    frozen = [param for param in model.parameters() if not param.requires_grad and param.is_floating_point()]
    with ExitStack() as stack:
        for module in model.modules():
            stack.enter_context(module.register_forward_pre_hook(recorder.before_forward))
            stack.enter_context(module.register_forward_hook(recorder.after_forward, with_kwargs=True))
        # Frozen parameters belong into the picture too.
        for param in frozen:
            param.requires_grad_(True)
            stack.callback(param.requires_grad_, False)
        stack.enter_context(fork_rng())
        stack.enter_context(enable_grad())
        outputs = list(tensors_in(model(*_replace_tensors(args, fresh))))
        builder = _Builder(model, recorder, scopes, leaves)
        sources = [builder.source(tensor) for tensor in outputs]
        builder.connect_inputs(leaves)
        ends = [
            GraphNode(f"output/output.{place + 1}", "IO Node", [source], [tuple(tensor.shape)])
            for place, (tensor, source) in enumerate(zip(outputs, sources, strict=True))
        ]
    return builder.nodes + ends
