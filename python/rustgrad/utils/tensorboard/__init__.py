"""`rustgrad.utils.tensorboard`: a `SummaryWriter` that takes rustgrad's tensors and modules.

Event files are written by `tensorboardX`, which the extra `rustgrad[tensorboard]` installs; only `add_graph` and the
conversion of tensors are ours.
"""

from rustgrad.utils.tensorboard.writer import SummaryWriter

__all__ = ["SummaryWriter"]
