"""`rustgrad.utils.data`: data sets, samplers, collation and the loader."""

import collections

import numpy as np
import pytest

import rustgrad as torch
from rustgrad.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def ten():
    return TensorDataset(torch.arange(10.0), torch.arange(10) * 2)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def test_tensor_dataset(ten):
    assert len(ten) == 10 and [t.item() for t in ten[3]] == [3.0, 6]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        TensorDataset(torch.ones(2), torch.ones(3))


def test_batches_in_order(ten):
    batches = list(DataLoader(ten, batch_size=4))
    assert [b[0].tolist() for b in batches] == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0]]
    assert batches[0][1].dtype == torch.int64
    assert len(DataLoader(ten, 4)) == 3 and len(DataLoader(ten, 4, drop_last=True)) == 2
    assert len(list(DataLoader(ten, 4, drop_last=True))) == 2


def test_shuffling_visits_everything_in_a_new_order(ten):
    loader = DataLoader(ten, 10, shuffle=True)
    first, second = (next(iter(loader))[0].tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10)) and first != second != list(range(10))


def test_a_generator_makes_the_order_repeatable(ten):
    def order():
        return [b[0].item() for b in DataLoader(ten, shuffle=True, generator=torch.Generator().manual_seed(3))]

    assert order() == order()


def test_no_batches(ten):
    assert [x.item() for x, _ in DataLoader(ten, batch_size=None)] == list(range(10))
    assert list(DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]


def test_streams():
    assert [b.tolist() for b in DataLoader(Stream(), 2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Stream(), 2, drop_last=True)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="expected unspecified shuffle option, but got shuffle=True"):
        DataLoader(Stream(), shuffle=True)
    with pytest.raises(TypeError):
        len(DataLoader(Stream(), 2))


def test_samplers_of_the_users_own(ten):
    assert [b[0].tolist() for b in DataLoader(ten, 2, sampler=[9, 0, 4])] == [[9.0, 0.0], [4.0]]
    loader = DataLoader(ten, batch_sampler=[[1, 2], [3]])
    assert [b[0].tolist() for b in loader] == [[1.0, 2.0], [3.0]] and len(loader) == 2
    assert list(DataLoader(ten, 5, collate_fn=len)) == [5, 5]


def test_options_that_exclude_each_other(ten):
    for options, text in (
        ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching"),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"batch_size": 0}, "batch_size should be a positive integer value"),
    ):
        with pytest.raises(ValueError, match=text):
            DataLoader(ten, **options)
    with pytest.warns(UserWarning, match="num_workers has no effect"):
        assert len(list(DataLoader(ten, 5, num_workers=2))) == 2


def test_concatenation_and_subsets(ten):
    both = ten + ten
    assert isinstance(both, ConcatDataset) and len(both) == 20 and both[13][0].item() == both[-7][0].item() == 3.0
    with pytest.raises(IndexError):
        both[20]
    part = Subset(ten, [5, 7])
    assert len(part) == 2 and part[1][0].item() == 7.0


def test_random_split(ten):
    parts = random_split(ten, [3, 7])
    assert [len(p) for p in parts] == [3, 7] and sorted(i for p in parts for i in p.indices) == list(range(10))
    assert [len(p) for p in random_split(ten, [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="Sum of input lengths does not equal"):
        random_split(ten, [1, 2])


def test_samplers():
    assert list(SequentialSampler(range(3))) == [0, 1, 2]
    assert sorted(RandomSampler(range(5))) == [0, 1, 2, 3, 4]
    drawn = list(RandomSampler(range(3), num_samples=7))
    assert len(drawn) == 7 and sorted(drawn[:3]) == sorted(drawn[3:6]) == [0, 1, 2]
    assert set(RandomSampler(range(2), replacement=True, num_samples=50)) == {0, 1}
    assert list(RandomSampler([], num_samples=3)) == []
    assert sorted(SubsetRandomSampler([4, 8])) == [4, 8]
    assert set(WeightedRandomSampler([0.0, 1.0, 0.0], 5)) == {1}
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]] and len(BatchSampler(range(5), 2, True)) == 2
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        RandomSampler([], num_samples=0)
    with pytest.raises(ValueError, match="weights should be a 1d sequence"):
        WeightedRandomSampler([[1.0]], 1)


def test_collation():
    assert default_collate([torch.ones(2), torch.zeros(2)]).shape == (2, 2)
    assert default_collate([1, 2]).dtype == torch.int64 and default_collate([1.0, 2.0]).dtype == torch.float64
    assert default_collate([True, False]).dtype == torch.bool and default_collate(["a", "b"]) == ["a", "b"]
    got = default_collate([{"a": 1, "b": (1.0, "x")}, {"a": 2, "b": (2.0, "y")}])
    assert got["a"].tolist() == [1, 2] and got["b"][0].tolist() == [1.0, 2.0] and got["b"][1] == ["x", "y"]
    pair = collections.namedtuple("pair", "x y")
    got = default_collate([pair(1, 2), pair(3, 4)])
    assert type(got) is pair and got.y.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        default_collate([object()])


def test_collation_of_arrays():
    assert default_collate([np.ones(2, dtype=np.float32), np.zeros(2, dtype=np.float32)]).tolist() == [[1, 1], [0, 0]]
    assert default_collate([np.float32(1), np.float32(2)]).dtype == torch.float32
    got = default_convert({"a": np.ones(2), "b": ["x", np.int64(3)]})
    assert got["a"].dtype == torch.float64 and got["b"][0] == "x" and got["b"][1].item() == 3
