"""`rustgrad.nn`: modules, parameters, layers, losses, initialisation and utilities, under PyTorch's names."""

from rustgrad.nn import functional, init, modules, parameter, utils
from rustgrad.nn.modules import *
from rustgrad.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "parameter", "utils"]
__all__ += modules.__all__
