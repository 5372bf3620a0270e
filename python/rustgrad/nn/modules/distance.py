"""Similarity of pairs of vectors as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rustgrad.nn import functional as F
from rustgrad.nn.modules.module import Module

if TYPE_CHECKING:
    from rustgrad._core import Tensor

__all__ = ["CosineSimilarity"]


class CosineSimilarity(Module):
    """`x1 . x2 / (|x1| |x2|)` along `dim`, with norms of at least `eps`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The broadcast shape of the inputs without `dim`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
