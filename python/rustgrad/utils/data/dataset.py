"""Data sets: things with `__getitem__`, or with `__iter__`, and ways to put them together and take them apart."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rustgrad import _core

if TYPE_CHECKING:
    from rustgrad._core import Generator, Tensor

__all__ = ["ConcatDataset", "Dataset", "IterableDataset", "Subset", "TensorDataset", "random_split"]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index. A subclass defines `__getitem__`, and `__len__` if samplers should know how many there are."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples in the order in which they come. A subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset["tuple[Tensor, ...]"]):
    """Tuples of the rows of several tensors.

    Args:
        tensors: tensors of the same size in the first dimension.

    Raises:
        AssertionError: the sizes differ.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class ConcatDataset(Dataset[Any]):
    """Several data sets, one after the other.

    Raises:
        AssertionError: there are none, or one has no length.
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        sized: list[Any] = self.datasets
        self.cumulative_sizes = list(itertools.accumulate(map(len, sized)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        if which == len(self.datasets):
            raise IndexError("index out of range")
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class Subset(Dataset[T_co]):
    """The samples of a data set at some indices.

    Args:
        dataset: the data set.
        indices: which samples, in this order.
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[place] for place in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Divide a data set at random.

    Args:
        dataset: a data set with a length.
        lengths: how many samples each part gets; or fractions that sum to 1, where what rounding leaves goes to the
            first parts, one each.
        generator: where to draw from. Default: the default generator.

    Raises:
        ValueError: the lengths do not sum to the length of the data set, or a fraction is not between 0 and 1.
    """
    total = len(dataset)  # type: ignore[arg-type]
    counts = [int(length) for length in lengths]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for place, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {place} is not between 0 and 1")
        counts = [math.floor(total * fraction) for fraction in lengths]
        for place in range(total - sum(counts)):
            counts[place % len(counts)] += 1
    if sum(counts) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = _core.randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(counts)
    return [Subset(dataset, order[end - count : end]) for count, end in zip(counts, ends, strict=True)]
