"""`rustgrad.linalg`: linear algebra under PyTorch's names. The operations are the extension's."""

from rustgrad._core._linalg import *
