"""`rustgrad.special`: special functions under PyTorch's names. The operations are the extension's."""

from rustgrad._core._special import *
