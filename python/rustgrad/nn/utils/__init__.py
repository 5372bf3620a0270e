"""`rustgrad.nn.utils`: clipping gradients, parameters as one vector, parametrizations."""

from rustgrad.nn.utils import parametrizations, parametrize
from rustgrad.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from rustgrad.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from rustgrad.nn.utils.init import skip_init

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "skip_init",
    "vector_to_parameters",
]
