"""`save` and `load`: files to and from PyTorch, sharing, devices, and files that mean harm."""

import io
import os
import pathlib
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import pytest

import rustgrad as torch
from rustgrad import nn, optim, serialization
from rustgrad._rebuild import rebuild_tensor, reduce_tensor

RECORDED = pathlib.Path(__file__).parents[1] / "data" / "pytorch_2_13.pt"


def objects():
    """The objects of tests/data/pytorch_2_13.md, made here."""
    lin = nn.Linear(3, 2)
    with torch.no_grad():
        lin.weight.copy_(torch.arange(6.0).reshape(2, 3) / 4)
        lin.bias.copy_(torch.tensor([0.5, -1.0]))
    opt = optim.Adam(lin.parameters(), lr=0.1)
    lin(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    opt.step()
    base = torch.arange(6, dtype=torch.float64)
    return {
        "model": lin.state_dict(),
        "optimizer": opt.state_dict(),
        "parameter": nn.Parameter(torch.tensor([1.5])),
        "view": base[1::2],
        "matrix": base.reshape(2, 3).t(),
        "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "long": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "size": torch.Size([2, 3]),
        "dtype": torch.int64,
        "device": torch.device("cpu"),
        "plain": [1, 2.5, None, True, "text", (1, 2), {3}, b"bytes", 1 << 40],
    }


def written(obj, **kwargs):
    file = io.BytesIO()
    torch.save(obj, file, **kwargs)
    file.seek(0)
    return file


def round_trip(obj, **kwargs):
    return torch.load(written(obj, **kwargs))


def records(file):
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def archive_of(entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"archive/{name}", data)
    file.seek(0)
    return file


def check(got):
    want = objects()
    assert list(got) == list(want)
    assert type(got["model"]) is OrderedDict and got["model"]._metadata == OrderedDict({"": {"version": 1}})
    for key in ("weight", "bias"):
        assert torch.equal(got["model"][key], want["model"][key])
    nn.Linear(3, 2).load_state_dict(got["model"])
    optim.Adam(nn.Linear(3, 2).parameters()).load_state_dict(got["optimizer"])
    for key in ("exp_avg", "exp_avg_sq", "step"):
        assert torch.allclose(got["optimizer"]["state"][0][key], want["optimizer"]["state"][0][key])
    for key in ("parameter", "view", "matrix", "half", "flags", "long", "empty"):
        assert torch.equal(got[key], want[key]) and got[key].dtype == want[key].dtype
        assert got[key].stride() == want[key].stride() and got[key].is_leaf
    assert type(got["parameter"]) is nn.Parameter and got["parameter"].requires_grad
    assert not got["view"].requires_grad
    for key in ("size", "dtype", "device", "plain"):
        assert got[key] == want[key] and type(got[key]) is type(want[key])
    got["view"][0] = 100.0  # both were views of one storage: element 1
    assert got["matrix"][1, 0].item() == 100.0


def test_reads_a_file_of_pytorch():
    check(torch.load(RECORDED))
    with open(RECORDED, "rb") as file:
        check(torch.load(file, map_location="cpu", weights_only=True))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_reads_its_own_files(protocol):
    check(round_trip(objects(), pickle_protocol=protocol))


def test_writes_the_very_pickle_that_pytorch_writes():
    ours, theirs = records(written(objects())), records(RECORDED)
    assert ours["data.pkl"] == theirs["data.pkl"]
    assert set(theirs) - set(ours) == {".data/serialization_id"}  # a hash that nobody needs
    for name in ("version", "byteorder", ".format_version", ".storage_alignment", "data/0", "data/10"):
        assert ours[name] == theirs[name], name


def test_data_are_aligned():
    with zipfile.ZipFile(written(objects())) as archive:
        for entry in archive.infolist():
            start = entry.header_offset + 30 + len(entry.filename) + len(entry.extra)
            assert start % 64 == 0 and entry.compress_type == zipfile.ZIP_STORED


def test_paths(tmp_path):
    torch.save(torch.ones(2), tmp_path / "a.pt")
    torch.save(torch.ones(2), os.fspath(tmp_path / "b.pt"))
    assert torch.load(tmp_path / "a.pt").tolist() == torch.load(str(tmp_path / "b.pt")).tolist() == [1.0, 1.0]
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "c.pt")


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_every_dtype(dtype):
    kind = getattr(torch, dtype)
    want = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(kind)
    got = round_trip(want)
    assert got.dtype == kind and torch.equal(got, want)


def test_layouts():
    base = torch.arange(24.0).reshape(2, 3, 4)
    for want in (base[1], base.permute(2, 0, 1), base[:, ::2, 1:3], base[0, 0, 0], torch.ones(1).expand(3), base[:0]):
        got = round_trip(want)
        assert torch.equal(got, want) and got.stride() == want.stride() and not got._is_view()


def test_shared_memory_stays_shared_and_distinct_memory_distinct():
    layer = nn.Linear(2, 2)
    got = round_trip({"a": layer.weight, "b": layer.weight, "c": layer.weight.data, "d": layer.weight.detach().clone()})
    assert got["a"] is got["b"] and got["a"].data_ptr() == got["c"].data_ptr() != got["d"].data_ptr()


def test_results_become_leaves():
    x = torch.ones(2, requires_grad=True)
    got = round_trip(x * 2)
    assert got.requires_grad and got.is_leaf and got.tolist() == [2.0, 2.0]


def test_attributes_of_tensors():
    t, p = torch.ones(1), nn.Parameter(torch.ones(1))
    t.note, p.note = [1, "a"], {"b": None}
    got = round_trip([t, p])
    assert got[0].note == [1, "a"] and got[1].note == {"b": None} and type(got[1]) is nn.Parameter


def test_map_location():
    want = torch.ones(2)
    for place in (
        "cpu",
        torch.device("cpu"),
        {"cpu": "cpu"},
        lambda storage, where: storage,
        lambda storage, where: None,
    ):
        assert torch.equal(torch.load(written(want), map_location=place), want)
    with pytest.raises(TypeError, match="map_location may return"):
        torch.load(written(want), map_location=lambda storage, where: 3)


def test_a_file_from_a_gpu_needs_a_map_location():
    entries = records(written(torch.ones(2)))
    entries["data.pkl"] = entries["data.pkl"].replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        torch.load(archive_of(entries))
    assert torch.load(archive_of(entries), map_location="cpu").tolist() == [1.0, 1.0]
    assert torch.load(archive_of(entries), map_location={"cuda:0": "cpu"}).tolist() == [1.0, 1.0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def forward(self, x):
        return self.fc(x)


class Point:
    def __init__(self, x):
        self.x = x


def test_whole_modules_need_trust():
    net = Net()
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global: GLOBAL .*Net was not an allowed global"):
        torch.load(written(net))
    got = torch.load(written(net), weights_only=False)
    assert torch.equal(got(torch.ones(1, 2)), net(torch.ones(1, 2)))


def test_safe_globals():
    file = written(Point([torch.ones(1)]))
    with serialization.safe_globals([Point]):
        assert serialization.get_safe_globals() == [Point]
        assert torch.load(file).x[0].tolist() == [1.0]
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        torch.load(file)
    serialization.add_safe_globals([Point])
    serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []


def test_the_old_format_is_refused():
    with pytest.raises(ValueError, match="only the zip format"):
        torch.save(1, io.BytesIO(), _use_new_zipfile_serialization=False)


# ---- files that mean harm --------------------------------------------------------------------------------------------


def hostile(pickled, **more):
    """A file whose pickle is `pickled`."""
    return archive_of({"data.pkl": pickled, "version": b"3\n", "byteorder": b"little", **more})


def refused(pickled, match=None, **more):
    with pytest.raises(pickle.UnpicklingError, match=match):
        torch.load(hostile(pickled, **more))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(2, 6):
        refused(pickle.dumps(Evil(), protocol=protocol), "Unsupported global: GLOBAL")
        refused(pickle.dumps([1, {"a": Evil()}], protocol=protocol), "Unsupported global: GLOBAL")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval", "builtins getattr", "builtins __import__", "__builtin__ exec", "os system", "posix system",
        "torch load", "torch._utils __builtins__", "rustgrad.serialization os.system", "collections namedtuple",
        "functools partial", "copyreg _reconstructor", "torch.nn Linear",
    ],
)  # fmt: skip
def test_names_outside_the_list_are_not_looked_up(name):
    module, function = name.split()
    refused(f"c{module}\n{function}\n.".encode(), "Unsupported global")


def test_what_may_be_named_may_still_not_be_called_or_changed():
    ordered = b"ccollections\nOrderedDict\n"
    refused(b"ctorch\nfloat32\n)R.", "may not be called")
    refused(b"ctorch\nFloatStorage\n)R.", "may not be called")
    refused(b"X\x01\x00\x00\x00a)R.", "may not be called")
    refused(ordered + b"}X\x07\x00\x00\x00__doc__X\x01\x00\x00\x00asb.", "may not be given state")
    refused(ordered + b")R}X\x05\x00\x00\x00itemsNsb.", "may not be set")
    refused(ordered + b")R}X\x09\x00\x00\x00__class__Nsb.", "may not be set")
    refused(ordered + b")\x81.", "no instance")
    refused(b"ctorch\nTensor\n)\x81.", "no instance")
    refused(b"(lp0\n.", "not supported")


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK%ctQ"


def tensor_pickle(sizes, strides, offset, elements=4):
    """A tensor over the storage `0` of `elements` floats."""
    numbers = pickle.dumps((offset, sizes, strides), protocol=2)[2:-1]
    # the tuple's elements, without the tuple: made again by the opcodes that follow
    pieces = [pickle.dumps(part, protocol=2)[2:-1] for part in (offset, sizes, strides)]
    assert len(numbers) > 0
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE % bytes([elements]) + b"".join(pieces)
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )  # fmt: skip


FOUR = {"data/0": struct.pack("<4f", 1, 2, 3, 4)}


def test_the_tensor_that_the_next_test_bends():
    assert torch.load(hostile(tensor_pickle((2, 2), (2, 1), 0), **FOUR)).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert torch.load(hostile(tensor_pickle((1 << 40,), (0,), 3), **FOUR)).shape == (1 << 40,)


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "elements"),
    [
        ((5,), (1,), 0, 4), ((2, 2), (3, 1), 0, 4), ((1,), (1,), 4, 4), ((0,), (1,), 5, 4), ((2,), (1 << 40,), 0, 4),
        ((-1,), (1,), 0, 4), ((2,), (-1,), 1, 4), ((2,), (1,), -1, 4), ((1 << 62,), (0,), 0, 4),
        ((1 << 31, 1 << 31, 1 << 31), (0, 0, 0), 0, 4), ((2, 2), (1,), 0, 4), ((2.0,), (1,), 0, 4),
        (("a",), (1,), 0, 4),
        ((True,), (1,), 0, 4), ((((1,),),), (1,), 0, 4), (3, 1, 0, 4), ((4,), (1,), None, 4), ((8,), (1,), 0, 8),
    ],
)  # fmt: skip
def test_layouts_beyond_the_storage(sizes, strides, offset, elements):
    refused(tensor_pickle(sizes, strides, offset, elements), **FOUR)


def test_missing_and_short_storages():
    refused(tensor_pickle((4,), (1,), 0), "no record 'data/0'")
    refused(tensor_pickle((4,), (1,), 0), "only 8 in the file", **{"data/0": b"12345678"})


def test_nests_that_would_take_for_ever():
    doubling = b"(t" + b"2\x86" * 60  # a tuple of twice itself, sixty times over
    refused(b"}" + doubling + b"Ns.", "may not be a dictionary key")
    refused(b"\x8f(" + doubling + b"\x90.", "may not be a dictionary key")
    refused(tensor_pickle((4,), (1,), 0).replace(b"K\x04\x85", doubling + b"\x85", 1), **FOUR)
    # iterating over this tensor would not end
    endless = tensor_pickle((1 << 60,), (0,), 0)[:-1]
    refused(b"cbuiltins\nset\n" + endless[2:] + b"\x85R.", "must come in a list", **FOUR)


def test_archives_that_are_not_what_they_seem():
    with pytest.raises(pickle.UnpicklingError, match="no zip archive"):
        torch.load(io.BytesIO(b"not a zip file"))
    with pytest.raises(pickle.UnpicklingError, match="it has no data.pkl"):
        torch.load(archive_of({"other": b""}))
    with pytest.raises(pickle.UnpicklingError, match="byte order"):
        torch.load(hostile(b"N.", byteorder=b"big"))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"N." + b"\0" * (1 << 22))
    with pytest.raises(pickle.UnpicklingError, match="records overlap|compressed"):
        torch.load(bomb)


def test_records_that_share_their_bytes():
    file = archive_of({"data.pkl": b"N.", "data/0": b"\0" * 100_000, "data/1": b""})
    data = bytearray(file.getvalue())
    with zipfile.ZipFile(file) as archive:
        first = archive.getinfo("archive/data/0")
    # in the directory, let data/1 claim the bytes of data/0 as well
    entry = data.rindex(b"archive/data/1") - 46
    struct.pack_into("<III", data, entry + 16, first.CRC, first.file_size, first.file_size)
    with pytest.raises(pickle.UnpicklingError, match="records overlap"):
        torch.load(io.BytesIO(bytes(data)))


def test_damaged_files_raise_one_kind_of_error():
    random.seed(0)
    entries = records(written(objects()))
    whole = written(objects()).getvalue()

    def bend(data):
        data = bytearray(data)
        for _ in range(random.randint(1, 3)):
            place, kind = random.randrange(len(data)), random.random()
            if kind < 0.7:
                data[place] = random.randrange(256)
            elif kind < 0.85:
                del data[place]
            else:
                data.insert(place, random.randrange(256))
        return bytes(data)

    outcomes = {"read": 0, "refused": 0}
    for number in range(1500):
        file = (
            io.BytesIO(bend(whole))
            if number % 3 == 0
            else archive_of({**entries, "data.pkl": bend(entries["data.pkl"])})
        )
        try:
            torch.load(file, map_location=lambda storage, where: storage)
            outcomes["read"] += 1
        except pickle.UnpicklingError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 500 and outcomes["read"] > 20


# ---- plain pickles --------------------------------------------------------------------------------------------------


def test_what_a_plain_pickle_of_a_tensor_holds():
    base = torch.arange(12.0).reshape(3, 4)
    for want in (base, base.t(), base[1:, ::2], base[0, 0], torch.ones(1).expand(3), base[:0], base.to(torch.bfloat16)):
        rebuild, args = reduce_tensor(want)
        got = rebuild(*pickle.loads(pickle.dumps(args)))
        assert got.dtype == want.dtype and torch.equal(got, want) and got.is_leaf
    assert len(reduce_tensor(base[1:, ::2])[1][0]) == 4 * 4  # only the elements that the view shows
    assert reduce_tensor(base.t())[0](*reduce_tensor(base.t())[1]).stride() == (1, 4)


def test_a_plain_pickle_keeps_flags_and_attributes():
    x = torch.ones(2, requires_grad=True)
    x.note = "a"
    rebuild, args = reduce_tensor(x)
    got = rebuild(*args)
    assert got.requires_grad and got.note == "a" and not rebuild(*reduce_tensor(x * 2)[1]).grad_fn


def test_a_bad_plain_pickle():
    for args in ((bytes(8), "float32", (3,), (1,)), (bytes(8), "float31", (2,), (1,)), (b"", "Tensor", (), ())):
        with pytest.raises(ValueError, match="reaches beyond|is no dtype"):
            rebuild_tensor(*args, False)
