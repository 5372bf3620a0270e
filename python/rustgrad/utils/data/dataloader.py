"""`DataLoader`: batches of a data set, one after the other, in the process that asks for them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rustgrad.utils.data.collate import default_collate, default_convert
from rustgrad.utils.data.dataset import Dataset, IterableDataset
from rustgrad.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

if TYPE_CHECKING:
    from rustgrad._core import Generator

__all__ = ["DataLoader"]


class DataLoader:
    """Iterates over a data set in batches.

    Args:
        dataset: the data set, by index or iterable.
        batch_size: how many samples go into a batch; `None` gives the samples themselves.
        shuffle: visit the samples in a new random order in each pass.
        sampler: gives the indices, instead of `shuffle`.
        batch_sampler: gives lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: accepted with a warning: samples are loaded in this process.
        collate_fn: makes a batch of a list of samples. Default: `default_collate`.
        pin_memory: accepted.
        drop_last: leave out the last batch if it is not full.
        timeout: accepted.
        worker_init_fn: accepted; there are no workers.
        multiprocessing_context: accepted; there are no workers.
        generator: where `shuffle` draws from. Default: the default generator.
        prefetch_factor: accepted.
        persistent_workers: accepted.
        pin_memory_device: accepted.
        in_order: accepted; batches always come in order.

    Raises:
        ValueError: arguments that exclude each other, or are out of range.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers > 0:
            warnings.warn("DataLoader loads in this process: num_workers has no effect.", stacklevel=2)
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not iterable:
            sized: Any = dataset  # samplers ask for its length when they run
            sampler = RandomSampler(sized, generator=generator) if shuffle else SequentialSampler(sized)
        if batch_sampler is None and batch_size is not None and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        batched = batch_sampler is not None or batch_size is not None
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            yield from self._batches_of(iter(self.dataset))
        elif self.batch_sampler is not None:
            for indices in self.batch_sampler:
                yield self.collate_fn([self.dataset[index] for index in indices])
        elif self.sampler is not None:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])

    def _batches_of(self, samples: Iterator[Any]) -> Iterator[Any]:
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        """The number of batches.

        Raises:
            TypeError: the data set or the sampler does not know its length.
        """
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]
