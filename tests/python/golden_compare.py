"""How one golden sample is replayed on a torch-like module and compared: results, gradients, gradients of gradients.

The words `path`, `vjp` and so on are those of the format, described in tests/data/golden/golden_reader.py. Nothing here
knows pytest: `failures` returns sentences, and the test decides what to do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import golden_reader

Make = Callable[[np.ndarray, bool], Any]
Forward = Callable[[], tuple[Any, list[Any], list[Any]]]

# By dtype: the recorder's own suggestion. Second gradients are given ten times the room.
TOLERANCE = {"float64": 1e-7, "float32": 1e-5, "float16": 1e-3}
SECOND_ORDER = 10.0

# Operators that return positions: where the positions point into, the argument holding the dimension, and whether the
# pointed-at values may repeat (a sorting must name every position once, a maximum may name any of its equals).
POSITIONS = {
    "argmax": (0, 1),
    "argmin": (0, 1),
    "argsort": (0, 1),
    "sort": (1, 1),
    "topk": (1, 2),
    "max": (1, 1),
    "min": (1, 1),
    "cummax": (1, 1),
    "cummin": (1, 1),
    "median": (1, 1),
    "nanmedian": (1, 1),
    "mode": (1, 1),
    "kthvalue": (1, 2),
}
PERMUTATIONS = {"argsort", "sort", "topk"}
POOLS = {"max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2}


def resolves(module: Any, op: dict[str, Any]) -> bool:
    """Whether the module has the operator: its path leads somewhere, from the module for `fn`, else from Tensor."""
    for call, path in {(s.get("call", op["call"]), s.get("path", op["path"])) for s in op["samples"]}:
        there: Any = module if call == "fn" else module.Tensor
        for part in path.split("."):
            if not hasattr(there, part):
                return False
            there = getattr(there, part)
    return True


def failures(module: Any, golden: golden_reader.Golden, op: dict[str, Any], sample: dict[str, Any]) -> list[str]:
    """What is wrong with one sample, a sentence each; empty where everything agrees."""
    try:
        return list(_replay(module, golden, op, sample))
    except Exception as error:  # whatever it raises, it is this sample that fails and the others still run
        return [f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]


def _replay(module: Any, golden: golden_reader.Golden, op: dict[str, Any], sample: dict[str, Any]) -> Iterator[str]:
    def make(array: np.ndarray, requires_grad: bool) -> Any:
        tensor = module.from_numpy(array)
        return tensor.requires_grad_(True) if requires_grad else tensor

    def forward() -> tuple[Any, list[Any], list[Any]]:
        args, kwargs, tensors = golden.build(sample, make, module)
        result = golden_reader.call(module, op, sample, args, kwargs)
        return result, golden_reader.flatten(result), tensors

    result, outputs, tensors = forward()
    for field in sample.get("fields", []):
        if not hasattr(result, field):
            yield f"the result has no field {field!r}"
    wanted = golden.outputs(sample)
    if len(outputs) != len(wanted):
        yield f"{len(outputs)} results, expected {len(wanted)}"
        return
    if "note" in sample:
        yield from _factors(op["name"], sample, [_numpy(t) for t in outputs], wanted, tensors)
    else:
        for i, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
            wrong = _compare(got, want)
            if wrong and _is_position(op["name"], sample, i):
                wrong = _compare_positions(op["name"], sample, tensors, _numpy(got), want)
            if wrong:
                yield f"result {i}: {wrong}"
    if "vjp" in sample:
        yield from _gradients(module, golden, sample, forward, make)


def _gradients(
    module: Any, golden: golden_reader.Golden, sample: dict[str, Any], forward: Forward, make: Make
) -> Iterator[str]:
    vjp = sample["vjp"]

    def first(create_graph: bool) -> tuple[list[Any], list[Any], list[Any]]:
        _, outputs, tensors = forward()
        inputs = [tensors[i] for i in vjp["inputs"]]
        cotangents = [make(golden.array(c), create_graph) for c in vjp["cotangents"]]
        heads = [outputs[i] for i in vjp["outputs"]]
        options = {"allow_unused": True, "create_graph": create_graph}
        return list(module.autograd.grad(heads, inputs, cotangents, **options)), inputs, cotangents

    grads, inputs, _ = first(create_graph=False)
    for k, (got, want) in enumerate(zip(grads, map(golden.array, vjp["grads"]), strict=True)):
        wrong = _compare_gradient(got, want, inputs[k], 1.0)
        if wrong:
            yield f"gradient of tensor {vjp['inputs'][k]}: {wrong}"

    if "vjp2" not in sample:
        return
    again = sample["vjp2"]
    grads, inputs, cotangents = first(create_graph=True)
    total = None
    for k, c in zip(again["grads"], again["cotangents"], strict=True):
        if grads[k] is None:
            yield f"gradient of tensor {vjp['inputs'][k]} is None under create_graph"
            return
        term = (grads[k] * make(golden.array(c), False)).sum()
        total = term if total is None else total + term
    variables = inputs + cotangents
    wanted = [golden.array(r) for r in again["inputs"] + again["first_cotangents"]]
    names = [f"tensor {i}" for i in vjp["inputs"]] + [f"cotangent {i}" for i in range(len(cotangents))]
    if total is None or not total.requires_grad:  # a constant gradient: every second gradient is zero
        seconds: list[Any] = [None] * len(variables)
    else:
        seconds = list(module.autograd.grad(total, variables, allow_unused=True))
    for name, got, want, variable in zip(names, seconds, wanted, variables, strict=True):
        wrong = _compare_gradient(got, want, variable, SECOND_ORDER)
        if wrong:
            yield f"second gradient of {name}: {wrong}"


def _numpy(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().numpy())


def _compare(got: Any, want: Any) -> str | None:
    """`want` is an array for a tensor, else a plain Python value."""
    if not isinstance(want, np.ndarray):
        if type(got) is not type(want):
            return f"{got!r} is a {type(got).__name__}, expected {want!r}"
        same = np.isclose(got, want, 1e-7, 1e-7, equal_nan=True) if isinstance(want, float) else got == want
        return None if same else f"{got!r}, expected {want!r}"
    if not hasattr(got, "detach"):
        return f"a {type(got).__name__}, expected a tensor"
    return _compare_arrays(_numpy(got), want, 1.0)


def _compare_gradient(got: Any, want: np.ndarray | None, variable: Any, slack: float) -> str | None:
    # A gradient that is None and one that is all zeros are equal answers.
    if got is None:
        return None if want is None or not want.any() else "None, expected numbers that are not all zero"
    array = _numpy(got)
    return _compare_arrays(array, np.zeros(tuple(variable.shape), array.dtype) if want is None else want, slack)


def _compare_arrays(got: np.ndarray, want: np.ndarray, slack: float) -> str | None:
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    tolerance = TOLERANCE.get(str(want.dtype))
    if tolerance is None:
        bad = got != want
    else:
        with np.errstate(invalid="ignore"):
            bad = ~np.isclose(got, want, tolerance * slack, tolerance * slack, equal_nan=True)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    where = f" at {list(at)}" if at else ""
    return f"{got[at]!r}{where}, expected {want[at]!r} ({int(bad.sum())} of {bad.size} differ)"


def _is_position(name: str, sample: dict[str, Any], output: int) -> bool:
    if sample["kwargs"].get("stable") is True:
        return False
    if name.removeprefix("nn.functional.") in POOLS:
        return output == 1
    return name in POSITIONS and POSITIONS[name][0] == output


def _compare_positions(
    name: str, sample: dict[str, Any], tensors: list[Any], got: np.ndarray, want: np.ndarray
) -> str | None:
    """Positions are equal answers where they point at equal values."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    values = _numpy(tensors[sample["args"][0]["tensor"]])
    pool = POOLS.get(name.removeprefix("nn.functional."))
    if pool is not None:  # a pool counts positions in the flattened window dimensions
        lead = values.shape[: values.ndim - pool]
        values = values.reshape(*lead, -1)
        got, want = got.reshape(*lead, -1), want.reshape(*lead, -1)
        axis = -1
    else:
        dim = _dim(sample, POSITIONS[name][1], default=-1 if name in {"sort", "argsort", "topk"} else None)
        if dim is None or values.ndim == 0:
            values, got, want = (a.reshape(-1) for a in (values, got, want))
        elif want.ndim < values.ndim:
            got, want = np.expand_dims(got, dim), np.expand_dims(want, dim)
        axis = 0 if dim is None or values.ndim == 1 else dim
    if ((got < 0) | (got >= values.shape[axis])).any():
        return f"a position outside [0, {values.shape[axis]})"
    if not np.array_equal(
        np.take_along_axis(values, got, axis),
        np.take_along_axis(values, want, axis),
        equal_nan=values.dtype.kind == "f",
    ):
        return "positions that point at other values than expected"
    ordered = np.sort(got, axis=axis)
    if name in PERMUTATIONS and (np.diff(ordered, axis=axis) == 0).any():
        return "a position named twice"
    return None


def _dim(sample: dict[str, Any], at: int, default: int | None) -> int | None:
    dim = sample["kwargs"].get("dim", sample["args"][at] if len(sample["args"]) > at else default)
    return None if dim is None else int(dim)


def _factors(
    name: str, sample: dict[str, Any], got: list[np.ndarray], want: list[np.ndarray], tensors: list[Any]
) -> Iterator[str]:
    """Factors are unique up to signs at most, so compare what they must do: be orthonormal, give back the matrix."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.dtype != w.dtype or g.shape != w.shape:
            yield f"result {i}: {g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
            return
    matrix = _numpy(tensors[sample["args"][0]["tensor"]])
    arguments = dict(zip(["mode", "UPLO"], sample["args"][1:] * 2, strict=False)) | sample["kwargs"]

    def transposed(a: np.ndarray) -> np.ndarray:
        return np.swapaxes(a, -1, -2)

    def check(what: str, a: np.ndarray, b: np.ndarray) -> Iterator[str]:
        wrong = _compare_arrays(a, b, 1.0)
        if wrong:
            yield f"{what}: {wrong}"

    def orthonormal(what: str, q: np.ndarray) -> Iterator[str]:
        gram = transposed(q) @ q
        yield from check(f"{what} is not orthonormal", gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape))

    if name == "linalg.eigh":
        values, vectors = got
        lower = np.tril(matrix) if arguments.get("UPLO", "L") == "L" else transposed(np.triu(matrix))
        symmetric = lower + transposed(np.tril(lower, -1))
        yield from check("eigenvalues", values, want[0])
        yield from orthonormal("eigenvectors", vectors)
        yield from check("V diag(w) V^T", (vectors * values[..., None, :]) @ transposed(vectors), symmetric)
    elif name == "linalg.svd":
        u, s, vh = got
        k = s.shape[-1]
        yield from check("singular values", s, want[1])
        yield from orthonormal("U", u)
        yield from orthonormal("V", transposed(vh))
        yield from check("U diag(S) Vh", (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], matrix)
    elif name == "linalg.qr":
        q, r = got
        yield from check("R is not upper triangular", r, np.triu(r))
        if arguments.get("mode", "reduced") == "r":
            yield from check("R^T R", transposed(r) @ r, transposed(matrix) @ matrix)
        else:
            yield from orthonormal("Q", q)
            yield from check("Q R", q @ r, matrix)
    else:
        yield f"no rule for comparing the factors of {name}"
