"""`rustgrad.optim`: optimisers under PyTorch's names, with PyTorch's state dictionaries."""

from rustgrad.optim.adam import Adam
from rustgrad.optim.adamw import AdamW
from rustgrad.optim.optimizer import Optimizer
from rustgrad.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
