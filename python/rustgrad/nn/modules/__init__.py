"""The layers of `rustgrad.nn`, one file per family."""

from rustgrad.nn.modules import (
    activation,
    container,
    distance,
    dropout,
    flatten,
    linear,
    loss,
    normalization,
    sparse,
)
from rustgrad.nn.modules.activation import *
from rustgrad.nn.modules.container import *
from rustgrad.nn.modules.distance import *
from rustgrad.nn.modules.dropout import *
from rustgrad.nn.modules.flatten import *
from rustgrad.nn.modules.linear import *
from rustgrad.nn.modules.loss import *
from rustgrad.nn.modules.module import Module
from rustgrad.nn.modules.normalization import *
from rustgrad.nn.modules.sparse import *

__all__ = ["Module"]
__all__ += activation.__all__
__all__ += container.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += sparse.__all__
