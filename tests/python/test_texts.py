"""Texts that users search for: PyTorch 2.13 raises these classes, and its messages begin with these words."""

import copy
import re
import warnings

import pytest

import rustgrad as torch
from rustgrad import nn, optim
from rustgrad.nn import functional as F

grad = torch.autograd.grad


def leaf(*values):
    return torch.tensor(list(values or (1.0, 2.0)), requires_grad=True)


def twice():
    y = leaf().exp().sum()
    y.backward()
    y.backward()


def frozen():
    with torch.inference_mode():
        return torch.ones(2)


class Few(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, g):
        return g


class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 1

    @staticmethod
    def backward(ctx, g):
        return torch.ones(3)


class SavesNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(1)
        return a * 1


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a

    @staticmethod
    def backward(ctx, g):
        return g


class NoInit(nn.Module):
    def __init__(self):
        self.weight = nn.Parameter(torch.ones(1))


def hooked(hook):
    x = leaf()
    x.register_hook(hook)
    x.sum().backward()


def shorter(g):
    return g[:1]


def unpacked_as_number():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 1):
        y = leaf().exp()
    y.sum().backward()


def modifying_pack():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        (leaf() * 1).exp()


# Row: what raises, the class, the first words.
TEXTS = {
    "A12.backward_texts": [
        (lambda: (leaf() * 2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
        (
            lambda: torch.ones(1).backward(),
            RuntimeError,
            "element 0 of tensors does not require grad and does not have a grad_fn",
        ),
        (
            twice,
            RuntimeError,
            "Trying to backward through the graph a second time (or directly access saved tensors after",
        ),
        (
            lambda: grad(leaf().sum(), torch.ones(1)),
            RuntimeError,
            "One of the differentiated Tensors does not require grad",
        ),
        (
            lambda: grad(leaf() * 2, leaf(), torch.ones(3)),
            RuntimeError,
            "Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).",
        ),
        (lambda: leaf().sum().backward(inputs=[]), RuntimeError, "`inputs` argument to `backward()` cannot be empty."),
    ],
    "A12.conversion_texts": [
        (
            lambda: leaf().numpy(),
            RuntimeError,
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ),
        (
            lambda: copy.deepcopy(leaf() * 2),
            RuntimeError,
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.",
        ),
        (lambda: torch.ones(2).item(), RuntimeError, "a Tensor with 2 elements cannot be converted to Scalar"),
        (lambda: float(torch.ones(2)), ValueError, "only one element tensors can be converted to Python scalars"),
        (lambda: int(torch.ones(0)), ValueError, "only one element tensors can be converted to Python scalars"),
        (lambda: bool(torch.ones(2)), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
        (lambda: bool(torch.ones(0)), RuntimeError, "Boolean value of Tensor with no values is ambiguous"),
        (lambda: len(torch.tensor(1)), TypeError, "len() of a 0-d tensor"),
        (lambda: torch.ones(2, 3).sum(dim=0, axis=1), TypeError, "sum() received an invalid combination of arguments"),
        (lambda: torch.tensor(2.5).sum((0, -1)), RuntimeError, "dim 0 appears multiple times in the list of dims"),
        (lambda: iter(torch.tensor(1)), TypeError, "iteration over a 0-d tensor"),
        (
            lambda: [0, 1][torch.ones(1)],
            TypeError,
            "only integer tensors of a single element can be converted to an index",
        ),
    ],
    "A12.hook_texts": [
        (
            lambda: torch.ones(2).register_hook(print),
            RuntimeError,
            "cannot register a hook on a tensor that doesn't require gradient",
        ),
        (lambda: torch.ones(2).retain_grad(), RuntimeError, "can't retain_grad on Tensor that has requires_grad=False"),
        (
            lambda: (leaf() * 2).register_post_accumulate_grad_hook(print),
            RuntimeError,
            "post accumulate grad hooks cannot be registered on non-leaf tensors",
        ),
        (lambda: hooked(shorter), RuntimeError, "hook 'shorter' has changed the size of value"),
        (lambda: hooked(lambda g: 3), TypeError, "expected Variable, but hook returned 'int'"),
    ],
    "A12.inference_texts": [
        (lambda: leaf() * frozen(), RuntimeError, "Inference tensors cannot be saved for backward."),
        (
            lambda: frozen().add_(1),
            RuntimeError,
            "Inplace update to inference tensor outside InferenceMode is not allowed.",
        ),
        (
            lambda: frozen().requires_grad_(),
            RuntimeError,
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
        ),
        (lambda: frozen()._version, RuntimeError, "Inference tensors do not track version counter."),
    ],
    "A12.function_texts": [
        (
            lambda: Few.apply(leaf(), leaf()).sum().backward(),
            RuntimeError,
            "function FewBackward returned an incorrect number of gradients (expected 2, got 1)",
        ),
        (
            lambda: Bad.apply(leaf()).sum().backward(),
            RuntimeError,
            "Function BadBackward returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]",
        ),
        (
            lambda: SavesNumber.apply(leaf()),
            TypeError,
            "save_for_backward can only save variables, but argument 0 is of type int",
        ),
    ],
    "A12.inplace_texts": [
        (
            lambda: leaf().add_(1),
            RuntimeError,
            "a leaf Variable that requires grad is being used in an in-place operation.",
        ),
        (
            lambda: leaf()[0].add_(1),
            RuntimeError,
            "a view of a leaf Variable that requires grad is being used in an in-place operation.",
        ),
        (
            lambda: Same.apply(leaf() * 1).add_(1),
            RuntimeError,
            "Output 0 of Same is a view and is being modified inplace. This view was created inside a custom",
        ),
    ],
    "A12.saved_hooks_texts": [
        (
            unpacked_as_number,
            TypeError,
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type int",
        ),
        (modifying_pack, RuntimeError, "A saved tensor pack hook is modifying its input in place."),
    ],
    "A12.shape_texts": [
        (
            lambda: torch.ones(2, 3) @ torch.ones(2, 3),
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
        ),
        (
            lambda: torch.ones(2, 3) + torch.ones(2, 2),
            RuntimeError,
            "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 1",
        ),
        (lambda: torch.ones(2, 3).view(4), RuntimeError, "shape '[4]' is invalid for input of size 6"),
        (
            lambda: torch.ones(2, 3).t().view(6),
            RuntimeError,
            "view size is not compatible with input tensor's size and stride",
        ),
        (
            lambda: torch.ones(2).add_(torch.ones(2, 2)),
            RuntimeError,
            "output with shape [2] doesn't match the broadcast shape [2, 2]",
        ),
        (
            lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 2)]),
            RuntimeError,
            "Sizes of tensors must match except in dimension 0.",
        ),
        (
            lambda: torch.ones(2, 2) @ torch.ones(2, 2).double(),
            RuntimeError,
            "expected m1 and m2 to have the same dtype, but got: float != double",
        ),
        (
            lambda: F.linear(torch.ones(2, 3), torch.ones(2, 2)),
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x2)",
        ),
    ],
    "A12.index_texts": [
        (
            lambda: torch.ones(2, 2).sum(5),
            IndexError,
            "Dimension out of range (expected to be in range of [-2, 1], but got 5)",
        ),
        (lambda: torch.ones(2, 2)[5], IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
        (lambda: torch.ones(2)[0, 0], IndexError, "too many indices for tensor of dimension 1"),
        (lambda: torch.tensor(1)[0], IndexError, "invalid index of a 0-dim tensor."),
        (
            lambda: torch.ones(3)[torch.tensor([True, False])],
            IndexError,
            "The shape of the mask [2] at index 0 does not match",
        ),
        (lambda: torch.ones(3)[::-1], ValueError, "step must be greater than zero"),
    ],
    "A12.cast_texts": [
        (
            lambda: torch.ones(2).long().add_(1.5),
            RuntimeError,
            "result type Float can't be cast to the desired output type Long",
        ),
    ],
    "A12.module_texts": [
        (
            lambda: nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3)}),
            RuntimeError,
            "Error(s) in loading state_dict for Linear:",
        ),
        (NoInit, AttributeError, "cannot assign parameters before Module.__init__() call"),
        (
            lambda: setattr(nn.Linear(2, 2), "weight", torch.ones(2)),
            TypeError,
            "cannot assign 'torch.FloatTensor' as parameter 'weight' (torch.nn.Parameter or None expected)",
        ),
    ],
    "A12.optimiser_texts": [
        (lambda: optim.SGD([], lr=0.1), ValueError, "optimizer got an empty parameter list"),
        (lambda: optim.SGD([leaf() * 2], lr=0.1), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([leaf()], lr=-0.1), ValueError, "Invalid learning rate: -0.1"),
        (lambda: optim.SGD(leaf(), lr=0.1), TypeError, "params argument given to the optimizer should be an iterable"),
    ],
}
CASES = [pytest.param(*case, id=f"{row}: {case[2][:40]}") for row, cases in TEXTS.items() for case in cases]


@pytest.mark.row(
    "A12.backward_texts", "A12.conversion_texts", "A12.hook_texts", "A12.inference_texts", "A12.function_texts",
    "A12.inplace_texts", "A12.saved_hooks_texts", "A12.shape_texts", "A12.index_texts", "A12.cast_texts",
    "A12.module_texts", "A12.optimiser_texts",
)  # fmt: skip
@pytest.mark.parametrize(("call", "error", "words"), CASES)
def test_error(call, error, words):
    with pytest.raises(error, match=re.escape(words)) as raised:
        call()
    assert raised.type is error and str(raised.value).startswith(words)


@pytest.mark.row("A12.backward_texts")
def test_unused_inputs_are_named_in_the_old_words_and_the_new():
    with pytest.raises(RuntimeError) as raised:
        grad(leaf().sum(), leaf())
    text = str(raised.value)
    assert "One of the differentiated Tensors appears to not have been used in the graph" in text
    assert "The differentiated Tensor at index 0 appears to not have been used in the graph." in text


@pytest.mark.row("A12.module_texts")
def test_loading_errors_list_everything():
    with pytest.raises(RuntimeError) as raised:
        nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3), "extra": torch.ones(1)})
    for words in ("Missing key(s)", "Unexpected key(s)", "size mismatch for weight: copying a param with shape"):
        assert words in str(raised.value)


@pytest.mark.row("A12.warnings")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: (leaf() * 2).grad, "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed."),
        (
            lambda: leaf().sum().backward(create_graph=True),
            "Using backward() with create_graph=True will create a reference cycle",
        ),
        (
            lambda: float(leaf(1.0)),
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.",
        ),
    ],
)
def test_warning(call, words):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [(w.category, str(w.message).startswith(words)) for w in caught] == [(UserWarning, True)]
