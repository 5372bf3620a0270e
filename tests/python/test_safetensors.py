"""`rustgrad.safetensors`: the format byte by byte, round trips, the reference implementation, bad files."""

import json

import pytest

import rustgrad as torch
from rustgrad import safetensors


def tensors():
    return {
        "a": torch.arange(6.0).reshape(2, 3).t(),
        "b": torch.tensor([True, False, True]),
        "c": torch.ones(3, dtype=torch.bfloat16),
        "d": torch.zeros(0, 4),
        "e": torch.tensor(3),
        "ü": torch.arange(2.0, dtype=torch.float64)[1:],
    }


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def same(got, want):
    assert set(got) == set(want)
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape and torch.equal(got[name], tensor)


def test_the_bytes_of_a_file():
    data = safetensors.save({"w": torch.tensor([1, 2], dtype=torch.uint8)}, {"k": "v"})
    text = b'{"__metadata__":{"k":"v"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    padded = text + b" " * (-len(text) % 8)
    assert data == len(padded).to_bytes(8, "little") + padded + b"\x01\x02"


def test_round_trips(tmp_path):
    same(safetensors.load(safetensors.save(tensors())), tensors())
    safetensors.save_file(tensors(), tmp_path / "t.safetensors", {"made": "here"})
    same(safetensors.load_file(tmp_path / "t.safetensors", device="cpu"), tensors())
    assert safetensors.load(safetensors.save({})) == {}


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_every_dtype(dtype):
    want = {"t": torch.tensor([[0, 1], [1, 1]]).to(getattr(torch, dtype))}
    same(safetensors.load(safetensors.save(want)), want)


def test_results_need_no_grad_and_keep_no_history():
    x = torch.ones(2, requires_grad=True)
    got = safetensors.load(safetensors.save({"y": x * 2}))["y"]
    assert not got.requires_grad and got.tolist() == [2.0, 2.0]


def test_agrees_with_the_reference_implementation():
    reference = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    plain = {name: t for name, t in tensors().items() if t.dtype != torch.bfloat16}  # numpy has no bfloat16
    arrays = reference.load(safetensors.save(plain))
    for name, tensor in plain.items():
        assert arrays[name].shape == tuple(tensor.shape) and arrays[name].tolist() == tensor.tolist()
    import numpy as np

    same(safetensors.load(reference.save({name: np.array(t.numpy(), order="C") for name, t in plain.items()})), plain)


def test_what_cannot_be_written():
    t = torch.ones(2)
    with pytest.raises(ValueError, match="'a' and 'b' share memory"):
        safetensors.save({"a": t, "b": t[:1]})
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        safetensors.save({"a": 3})
    with pytest.raises(TypeError, match="metadata must be strings"):
        safetensors.save({"a": t}, {"k": 3})
    with pytest.raises(ValueError, match="of this name"):
        safetensors.save({"__metadata__": t})


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def test_the_file_that_the_next_test_bends():
    assert safetensors.load(file_of({"w": GOOD}, bytes(8)))["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"1234567", (1 << 40).to_bytes(8, "little") + b"{}", file_of(b"[]"), file_of(b"{"), file_of(b"\xff{}"),
        file_of(b'{"a":1,"a":1}'), file_of({"w": 3}), file_of({"w": {}}), file_of(b"{" * 100_000),
        file_of({"w": GOOD}), file_of({"w": GOOD}, bytes(9)), file_of({"w": GOOD, "v": GOOD}, bytes(8)),
        file_of({"w": {**GOOD, "dtype": "F31"}}, bytes(8)), file_of({"w": {**GOOD, "dtype": 3}}, bytes(8)),
        file_of({"w": {**GOOD, "shape": [3]}}, bytes(8)), file_of({"w": {**GOOD, "shape": [-2]}}, bytes(8)),
        file_of({"w": {**GOOD, "shape": [1 << 63]}}, bytes(8)), file_of({"w": {**GOOD, "shape": [True, 2]}}, bytes(8)),
        file_of({"w": {**GOOD, "shape": [2.0]}}, bytes(8)), file_of({"w": {**GOOD, "shape": None}}, bytes(8)),
        file_of({"w": {**GOOD, "data_offsets": [8, 0]}}, bytes(8)),
        file_of({"w": {**GOOD, "data_offsets": [8, 16]}}, bytes(16)),
        file_of({"w": {**GOOD, "data_offsets": [0]}}, bytes(8)),
        file_of({"w": {**GOOD, "data_offsets": [-8, 0]}}, bytes(8)),
        file_of({"w": {**GOOD, "more": 1}}, bytes(8)), file_of({"__metadata__": {"a": 1}}),
        file_of({"__metadata__": 1}),
    ],
)  # fmt: skip
def test_bad_files_are_value_errors(data):
    with pytest.raises(ValueError, match="safetensors"):
        safetensors.load(data)
