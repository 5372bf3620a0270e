"""`SummaryWriter`: tensorboardX's, with tensors as values and `add_graph` from the autograd graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.utils.tensorboard._graph import GraphNode, trace

try:
    import tensorboardX
    from tensorboardX.proto import attr_value_pb2, event_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2, versions_pb2
except ImportError as error:
    raise ImportError(
        "rustgrad.utils.tensorboard writes its files with tensorboardX: pip install 'rustgrad[tensorboard]' "
        "(or tensorboardX itself); tensorboard shows them"
    ) from error

if TYPE_CHECKING:
    from rustgrad.nn import Module

__all__ = ["SummaryWriter"]

_PRODUCER = 22  # the version of TensorFlow's graph format that is written


def _plain(value: Any) -> Any:
    """`value` with tensors as numpy arrays, also inside lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
        return (tensor.float() if tensor.dtype == _core.bfloat16 else tensor).numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})

    return call


def _node_def(node: GraphNode) -> Any:
    shapes = [
        tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in shape])
        for shape in node.shapes
    ]
    attributes = {}
    if shapes:
        listed = attr_value_pb2.AttrValue.ListValue(shape=shapes)
        attributes["_output_shapes"] = attr_value_pb2.AttrValue(list=listed)
    return node_def_pb2.NodeDef(name=node.name, op=node.op, input=node.inputs, attr=attributes)


class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]  # tensorboardX has no types
    """Writes event files that TensorBoard shows. Arguments and methods are those of `tensorboardX.SummaryWriter`.

    Every `add_...` method takes rustgrad tensors where it takes numpy arrays.

    Example:
        >>> import rustgrad as torch
        >>> from rustgrad.utils.tensorboard import SummaryWriter    # doctest: +SKIP
        >>> with SummaryWriter("runs/one") as writer:               # doctest: +SKIP
        ...     writer.add_graph(torch.nn.Linear(2, 1), torch.ones(4, 2))
        ...     writer.add_scalar("loss", torch.tensor(0.5), 0)
    """

    add_audio = _taking_tensors(tensorboardX.SummaryWriter.add_audio)
    add_embedding = _taking_tensors(tensorboardX.SummaryWriter.add_embedding)
    add_figure = _taking_tensors(tensorboardX.SummaryWriter.add_figure)
    add_histogram = _taking_tensors(tensorboardX.SummaryWriter.add_histogram)
    add_hparams = _taking_tensors(tensorboardX.SummaryWriter.add_hparams)
    add_image = _taking_tensors(tensorboardX.SummaryWriter.add_image)
    add_image_with_boxes = _taking_tensors(tensorboardX.SummaryWriter.add_image_with_boxes)
    add_images = _taking_tensors(tensorboardX.SummaryWriter.add_images)
    add_mesh = _taking_tensors(tensorboardX.SummaryWriter.add_mesh)
    add_pr_curve = _taking_tensors(tensorboardX.SummaryWriter.add_pr_curve)
    add_scalar = _taking_tensors(tensorboardX.SummaryWriter.add_scalar)
    add_scalars = _taking_tensors(tensorboardX.SummaryWriter.add_scalars)
    add_video = _taking_tensors(tensorboardX.SummaryWriter.add_video)

    def add_graph(
        self, model: Module, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Run the model once and write the graph of what it computed.

        Args:
            model: the module to show. Its parameters and gradients are not changed; buffers change as in any run.
            input_to_model: the input, or a tuple or list of the positional arguments.
            verbose: print the nodes too.
            use_strict_trace: accepted; there is one way to trace.

        Modules are scopes (`Net/Linear[fc]`), operations have autograd's names (`AddmmBackward0`), parameters the op
        `Parameter`, inputs and outputs the op `IO Node`.
        """
        nodes = trace(model, input_to_model)
        if verbose:
            for node in nodes:
                print(f"{node.name} = {node.op}({', '.join(node.inputs)})")
        graph = graph_pb2.GraphDef(node=map(_node_def, nodes), versions=versions_pb2.VersionDef(producer=_PRODUCER))
        self._get_file_writer().add_event(event_pb2.Event(graph_def=graph.SerializeToString()))
