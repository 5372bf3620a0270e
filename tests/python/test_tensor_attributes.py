"""What a tensor knows of autograd: attributes, assignments to them, detached twins, copies, pickles."""

import copy
import pickle
import warnings

import pytest

import rustgrad as torch


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


# ---- flags and history ---------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.requires_grad", "A12.requires_grad_texts")
def test_who_may_require_a_gradient(x):
    assert (x * 2).requires_grad and not (x.detach() * 2).requires_grad
    with torch.no_grad():
        assert not (x * 2).requires_grad
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(RuntimeError, match="^only Tensors of floating point dtype can require gradients"):
            torch.ones(2, dtype=dtype).requires_grad_()
        with pytest.raises(
            RuntimeError, match="^Only Tensors of floating point and complex dtype can require gradients"
        ):
            torch.ones(2, dtype=dtype, requires_grad=True)
    with pytest.raises(RuntimeError, match="^Only Tensors of floating point and complex dtype can require gradients"):
        torch.nn.Parameter(torch.tensor([1, 2]))
    y = x * 2
    with pytest.raises(
        RuntimeError, match="^you can only change requires_grad flags of leaf variables. If you want to use"
    ):
        y.requires_grad = False


@pytest.mark.row("A8.requires_grad")
def test_assignments_to_requires_grad(x):
    for value in (1, "yes", None):
        with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
            x.requires_grad = value
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        del x.requires_grad
    y = x * 2
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables."):
        y.requires_grad = True
    x.requires_grad = False
    assert not x.requires_grad and y.requires_grad


@pytest.mark.row("A8.requires_grad")
def test_a_view_requires_a_gradient_when_its_base_does():
    base = torch.zeros(3)
    view = base[1:]
    base.requires_grad_()
    assert view.requires_grad and view.is_leaf and view.grad_fn is None
    view.sum().backward()
    assert view.grad is None and base.grad is None


@pytest.mark.row("A8.leaf_and_grad_fn")
def test_leaves_and_output_numbers(x):
    y = x * 2
    assert x.requires_grad_() is x and y.requires_grad_() is y
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf and torch.ones(1).is_leaf
    assert [t.output_nr for t in x.unbind()] == [0, 1] and x.output_nr == 0
    for attribute in ("is_leaf", "grad_fn", "output_nr", "_version", "_base"):
        with pytest.raises(AttributeError):
            setattr(x, attribute, 3)


# ---- gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.grad_attribute", "A12.grad_assignment_texts")
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (torch.ones(3), RuntimeError, r"attempting to assign a gradient of size '\[3\]' to a tensor of size '\[2\]'"),
        (
            torch.ones(2).double(),
            RuntimeError,
            "attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype",
        ),
        (torch.ones(2).long(), RuntimeError, "attempting to assign a gradient with dtype 'long int' to a tensor with"),
        (3, TypeError, "assigned grad expected to be a Tensor or None but got grad of type int"),
    ],
)
def test_what_may_be_a_gradient(x, value, error, text):
    with pytest.raises(error, match=text):
        x.grad = value
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        x.grad = x


@pytest.mark.row("A8.grad_attribute")
def test_gradients_are_assigned_and_deleted(x):
    assert x.grad is None
    mine = torch.ones(2)
    x.grad = mine
    assert x.grad is mine and x._grad is mine
    (x * 3).sum().backward()
    assert x.grad is mine and mine.tolist() == [4.0, 4.0]
    del x.grad
    assert x.grad is None
    y = x * 2
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y._grad is None


@pytest.mark.row("A8.tensor_backward")
def test_backward_of_a_leaf_and_of_other_dtypes(x):
    x.backward(torch.ones(2))
    x.backward(torch.tensor([1, 2]))
    x.backward(torch.ones(2, dtype=torch.float64))
    assert x.grad.tolist() == [3.0, 4.0]
    y = x * 2
    y.sum().backward(inputs=y)
    with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle"):
        (x * x).sum().backward(create_graph=True)


@pytest.mark.row("A8.retain_grad")
def test_retained_gradients_follow_changes_in_place_and_come_after_hooks(x):
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 100)
    y.mul_(5)
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    assert y.grad.tolist() == [3.0, 3.0] and x.grad.tolist() == [3000.0, 3000.0] and y.retains_grad
    x.retain_grad()
    assert not x.retains_grad


@pytest.mark.row("A8.register_hook")
def test_hooks_replace_in_order_and_see_the_sum(x):
    seen = []
    y = x * 1
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append((g.tolist(), torch.is_grad_enabled())))
    (y * 3 + y).sum().backward()
    assert seen == [([8.0, 8.0], False)] and x.grad.tolist() == [8.0, 8.0]


@pytest.mark.row("A8.post_accumulate_hook")
def test_post_accumulate_hooks_run_after_the_gradient_is_there(x):
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.tolist())))
    (x * 2).sum().backward()
    torch.autograd.grad((x * 2).sum(), x)
    assert seen == [(True, [2.0, 2.0])]
    handle.remove()
    x.register_post_accumulate_grad_hook(lambda p: 3)
    with pytest.raises(TypeError, match="hook returned 'int'"):
        (x * 2).sum().backward()


@pytest.mark.row("A8.private_attributes")
def test_hooks_are_listed(x):
    assert x._backward_hooks is None and x._post_accumulate_grad_hooks is None
    hook = print
    handle = x.register_hook(hook)
    post = x.register_post_accumulate_grad_hook(hook)
    assert dict(x._backward_hooks) == {handle.id: hook} and dict(x._post_accumulate_grad_hooks) == {post.id: hook}
    y = x * 2
    y.register_hook(hook)
    assert len(y._backward_hooks) == 1
    handle.remove()
    assert x._backward_hooks is None


@pytest.mark.row("A8.private_attributes")
def test_bases_of_views(x):
    y = x * 1
    view = y[:1].view(1, 1)
    assert view._base is y and view._is_view() and y._base is None and not y._is_view()
    assert not view.clone()._is_view() and not view.detach()._is_view() and not view.data._is_view()
    assert x._use_count() >= 1


# ---- twins ---------------------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.detach")
def test_detach_shares_values_and_version(x):
    d = x.detach()
    d.add_(1)
    assert x.tolist() == [2.0, 3.0] and x._version == d._version == 1 and not d.requires_grad
    y = x * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (x * 1)[:1].detach_()


@pytest.mark.row("A8.data")
def test_data_shares_values_only(x):
    x.data.mul_(10)
    assert x.tolist() == [10.0, 20.0] and x._version == 0 and not x.data.requires_grad
    x.data = torch.zeros(3, dtype=torch.float64)
    assert x.shape == (3,) and x.dtype == torch.float64 and x.requires_grad and x._version == 0
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        x.data = 3
    with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
        del x.data


@pytest.mark.row("A8.version")
def test_versions_count_changes_of_any_alias():
    t = torch.ones(3)
    view = t[1:]
    for change in (
        lambda: t.add_(1),
        lambda: view.zero_(),
        lambda: t.__setitem__(0, 1.0),
        lambda: torch.add(t, t, out=t),
    ):
        before = t._version
        change()
        assert t._version == view._version == before + 1
    assert t.clone()._version == 0
    with torch.inference_mode():
        frozen = torch.ones(2)
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        _ = frozen._version


@pytest.mark.row("A8.copies")
def test_what_returns_itself_and_what_copies(x):
    assert all(t is x for t in (x.contiguous(), x.to(torch.float32), x.float(), x.cpu(), x.to(x)))
    assert type(x.to(torch.float32, copy=True).grad_fn).__name__ == "ToCopyBackward0"
    assert (
        type(x.double().grad_fn).__name__ == "ToCopyBackward0" and type(x.clone().grad_fn).__name__ == "CloneBackward0"
    )


@pytest.mark.row("A8.copies")
def test_memory_formats():
    image, volume = torch.arange(24.0).view(1, 2, 3, 4), torch.ones(1, 2, 1, 2, 2)
    last = image.contiguous(memory_format=torch.channels_last)
    assert last.stride() == (24, 1, 8, 2) and last.tolist() == image.tolist()
    assert last.is_contiguous(memory_format=torch.channels_last) and not last.is_contiguous()
    assert not image.is_contiguous(memory_format=torch.channels_last)
    for convert in (image.to, image.clone, image.float, image.cpu):
        assert convert(memory_format=torch.channels_last).stride() == last.stride(), convert
    assert image.to(torch.float64, memory_format=torch.channels_last).stride() == last.stride()
    assert volume.contiguous(memory_format=torch.channels_last_3d).stride() == (8, 1, 8, 4, 2)
    assert last.contiguous().stride() == image.stride()
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        torch.ones(2).contiguous(memory_format=torch.channels_last)


@pytest.mark.row("A8.deepcopy")
def test_deep_copies_keep_gradient_attributes_and_sharing(x):
    x.grad, x.tag = torch.ones(2), [1]
    twin = copy.deepcopy(x)
    assert twin.grad.tolist() == [1.0, 1.0] and twin.grad is not x.grad and twin.tag == [1] and twin.tag is not x.tag
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)
    whole = torch.zeros(4)
    a, b, c = copy.deepcopy([whole, whole[1:], whole])
    a.add_(1)
    assert a is c and b.tolist() == [1.0, 1.0, 1.0] and b.storage_offset() == 1 and whole.tolist() == [0.0] * 4


@pytest.mark.row("A8.deepcopy")
def test_shallow_copies_are_leaves_over_the_same_memory(x):
    twin = copy.copy(x * 1)
    assert twin.is_leaf and twin.requires_grad
    x.tag = "kept"
    twin = copy.copy(x)
    assert twin is not x and twin.data_ptr() == x.data_ptr() and twin.tag == "kept"
    assert type(copy.copy(torch.nn.Parameter(torch.ones(1)))) is torch.nn.Parameter


@pytest.mark.row("A8.pickling")
def test_pickles_keep_the_flag_and_leave_gradient_and_hooks(x):
    x.grad = torch.ones(2)
    back = pickle.loads(pickle.dumps(x))
    assert back.requires_grad and back.grad is None and pickle.loads(pickle.dumps(x * 2)).is_leaf
    x.register_hook(print)
    with pytest.warns(UserWarning, match="backward hook <built-in function print> on tensor will not be serialized"):
        assert pickle.loads(pickle.dumps(x))._backward_hooks is None
