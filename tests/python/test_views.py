"""Views and changes in place: who may be changed, what is checked before anything is written, and whose history follows."""

import pytest

import rustgrad as torch


def leaf(*sizes):
    return torch.ones(*sizes).requires_grad_()


def name(t):
    return type(t.grad_fn).__name__


@pytest.mark.row("A11.view_of_non_leaf")
def test_a_change_through_a_view_of_a_view_reaches_the_base():
    x = leaf(2, 2)
    base = x * 1
    row = base[0]
    element = row[0]
    element.mul_(5)
    assert element._base is base and row._base is base
    assert [name(t) for t in (base, row, element)] == ["CopySlices", "AsStridedBackward0", "AsStridedBackward0"]
    assert [t._version for t in (base, row, element)] == [1, 1, 1]
    base.sum().backward()
    assert x.grad.tolist() == [[5.0, 1.0], [1.0, 1.0]]


@pytest.mark.row("A11.view_of_non_leaf")
def test_a_base_without_gradient_gets_the_history_of_what_was_written_into_its_view():
    x, base = leaf(2), torch.zeros(3)
    part = base[1:]
    part.add_(x)
    assert base.requires_grad and name(base) == "CopySlices"
    base.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.row("A11.view_of_non_leaf")
def test_an_operand_that_views_the_target_is_read_as_it_was():
    base = leaf(2, 2) * 2
    view = base.permute(1, 0)
    view += view
    assert [node and type(node).__name__ for node, _ in base.grad_fn.next_functions] == [
        "MulBackward0",
        "PermuteBackward0",
    ]


@pytest.mark.row("A11.change_of_base")
def test_views_follow_a_change_of_their_base():
    x = leaf(4)
    base = x * 1
    view = base.view(2, 2)
    view.retain_grad()
    base.mul_(3)
    assert name(view) == "AsStridedBackward0"
    (view * view).sum().backward()
    assert x.grad.tolist() == [18.0] * 4 and view.grad.tolist() == [[6.0, 6.0], [6.0, 6.0]]


@pytest.mark.row("A11.change_of_base")
def test_a_view_of_a_leaf_follows_a_change_that_is_not_recorded():
    x = leaf(3)
    view = x[:2]
    with torch.no_grad():
        x.mul_(2)
    assert name(view) == "AsStridedBackward0"
    view.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.row("A11.change_of_base", "A4.views_under_no_grad")
@pytest.mark.parametrize(
    ("view", "text"),
    [
        (
            lambda t: t.unbind()[0],
            "Output 0 of Unbind is a view and its base or another view of its base has been modified",
        ),
        (lambda t: without_grad(lambda: t[0]), "A view was created in no_grad mode and its base or another view"),
        (lambda t: in_inference(lambda: t[0]), "A view was created in inference mode and its base or another view"),
    ],
)
def test_some_views_cannot_follow_their_base(view, text):
    base = leaf(2) * 1
    part = view(base)
    base.mul_(2)
    assert (part.requires_grad and not part.is_leaf) or part.grad is None
    for use in (lambda: part.grad_fn, lambda: part * 2, lambda: part.view(1), part.sum):
        with pytest.raises(RuntimeError, match=text):
            use()
    with torch.no_grad():
        assert (part * 2).item() == 4.0


def without_grad(make):
    with torch.no_grad():
        return make()


def in_inference(make):
    with torch.inference_mode():
        return make()


@pytest.mark.row("A11.leaf")
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.copy_(torch.ones(2)),
        lambda x: x.zero_(),
        lambda x: x.t_(),
        lambda x: x.set_(torch.ones(2)),
        lambda x: x.__setitem__(x > 0, 1.0),
        lambda x: x.normal_(),
    ],
)
def test_a_leaf_may_not_be_changed(change):
    x = leaf(2)
    with pytest.raises(
        RuntimeError, match="^a leaf Variable that requires grad is being used in an in-place operation"
    ):
        change(x)
    assert x._version == 0 and x.tolist() == [1.0, 1.0]


@pytest.mark.row("A11.leaf")
def test_a_view_of_a_leaf_may_not_be_changed():
    x = leaf(2)
    for change in (lambda: x[0].add_(1), lambda: x.view(2).zero_(), lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="^a view of a leaf Variable that requires grad is being used"):
            change()
    x.detach().add_(1)
    with torch.no_grad():
        x[0] = 7.0
    assert x._version == 2 and x.tolist() == [7.0, 2.0] and x.is_leaf


@pytest.mark.row("A11.multi_output_views", "A12.inplace_texts")
@pytest.mark.parametrize(
    ("split", "node"),
    [
        (lambda t: t.unbind(), "Unbind"),
        (lambda t: t.split(2), "Split"),
        (lambda t: t.split([1, 3]), "SplitWithSizes"),
        (lambda t: t.chunk(2), "Split"),
        (lambda t: [*t], "Unbind"),
        (lambda t: [t.unbind()[0].view(1)], "View"),
    ],
)
def test_views_that_came_together_may_not_be_changed(split, node):
    y = leaf(4) * 1
    with pytest.raises(
        RuntimeError, match=f"^Output 0 of {node} is a view and is being modified inplace. This view is"
    ):
        split(y)[0].add_(1)
    assert y._version == 0


@pytest.mark.row("A11.multi_output_views")
def test_pieces_that_are_no_views_may_be_changed():
    x = leaf(4)
    first, second = (x * 1).unsafe_split(2)
    assert not first._is_view() and first.grad_fn is second.grad_fn and second.output_nr == 1
    first.mul_(5)
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [5.0, 5.0, 1.0, 1.0] and second._version == 0
    assert [len(leaf(5).unsafe_chunk(2)), len(leaf(5).unsafe_split_with_sizes([1, 4]))] == [2, 2]


@pytest.mark.row("A11.multi_output_views", "A4.views_under_no_grad")
def test_pieces_made_without_recording_require_a_gradient_and_may_not_be_changed():
    y = leaf(2) * 1
    with torch.no_grad():
        part = y.unbind()[0]
    assert part.requires_grad and part.is_leaf
    with pytest.raises(RuntimeError, match="^A view was created in no_grad mode and is being modified inplace"):
        part.add_(1)
    with pytest.raises(RuntimeError, match="^Output 0 of Select is a view of a view which was created in no_grad mode"):
        part.view(1)[0].add_(1)
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        part.backward()


@pytest.mark.row("A11.checks_before_change")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda y: y.add_(torch.ones(3, 2)), "output with shape"),
        (lambda y: y.add_(torch.ones(3)), "must match the size of tensor b"),
        (lambda y: y.copy_(torch.ones(3)), "size"),
        (lambda y: y.__setitem__(0, torch.ones(3)), "shape|size"),
        (lambda y: y.unbind()[0].mul_(2), "is a view"),
        (lambda y: y.index_add_(0, torch.tensor([0]), torch.ones(2)), "index_add"),
    ],
)
def test_nothing_is_changed_where_an_error_is_raised(change, error):
    y = leaf(2) * 1
    node = y.grad_fn
    with pytest.raises((RuntimeError, IndexError), match=error):
        change(y)
    assert y._version == 0 and y.grad_fn is node and y.tolist() == [1.0, 1.0]


@pytest.mark.row("A11.out_resize_set")
def test_out_takes_no_part_in_graphs():
    x, out = leaf(2), torch.zeros(2)
    text = r"add\(\): functions with out=... arguments don't support automatic differentiation"
    with pytest.raises(RuntimeError, match=text):
        torch.add(x, 1, out=out)
    with pytest.raises(RuntimeError, match=text):
        torch.add(out, 1, out=x)
    with torch.no_grad():
        torch.add(out, 1, out=x)
    assert x._version == 1 and x.is_leaf and x.requires_grad


@pytest.mark.row("A11.out_resize_set")
def test_resize_counts_when_the_shape_changes():
    for t in (leaf(2), leaf(2) * 1):
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            t.resize_(4)
    t = torch.ones(3)
    assert [t.resize_(n)._version for n in (3, 2, 5)] == [0, 1, 2]


@pytest.mark.row("A11.out_resize_set")
def test_set_shares_memory_and_cannot_be_differentiated():
    t, source = torch.ones(2), torch.zeros(3)
    assert t.set_(source) is t and t.data_ptr() == source.data_ptr() and t.shape == (3,) and t._version == 1
    assert t.set_().numel() == 0
    with pytest.raises(RuntimeError, match="Could not set tensor of type"):
        t.set_(torch.ones(2, dtype=torch.int64))
    y = leaf(2) * 1
    y.set_(torch.ones(2))
    assert name(y) == "NotImplemented"
    with pytest.raises(RuntimeError, match="set_ is not implemented"):
        y.sum().backward()


@pytest.mark.row("A11.promotion_and_overlap")
def test_dtypes_in_place():
    whole, half = torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        whole.add_(1.5)
    assert whole._version == 0
    assert half.add_(torch.ones(2)).dtype == torch.float16
    assert whole.copy_(torch.tensor([1.7, 2.3])).tolist() == [1, 2]


@pytest.mark.row("A11.promotion_and_overlap", "A12.cast_texts")
def test_memory_that_overlaps():
    wide = torch.ones(1).expand(3)
    for change in (
        lambda: wide.add_(1),
        lambda: wide.copy_(torch.ones(3)),
        lambda: torch.add(torch.ones(3), 1, out=wide),
    ):
        with pytest.raises(RuntimeError, match="unsupported operation: more than one element of the written-to tensor"):
            change()
    line = torch.arange(6.0)
    with pytest.raises(
        RuntimeError, match="unsupported operation: some elements of the input tensor and the written-to"
    ):
        line[1:].add_(line[:-1])
    assert line[::2].add_(line[1::2]).tolist() == [1.0, 5.0, 9.0]


@pytest.mark.row("A11.promotion_and_overlap")
def test_fill_diagonal():
    tall = torch.zeros(5, 2)
    assert tall.fill_diagonal_(1).sum().item() == 2.0
    assert tall.fill_diagonal_(1, wrap=True).sum().item() == 4.0
    assert torch.zeros(2, 2, 2).fill_diagonal_(3).sum().item() == 6.0
    x = leaf(2, 2)
    y = x * 1
    y.fill_diagonal_(0)
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0], [1.0, 0.0]] and name(y) == "CopySlices"
    with pytest.raises(RuntimeError, match="dimensions must larger than 1"):
        torch.zeros(3).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match="all dimensions of input must be of equal length"):
        torch.zeros(2, 2, 3).fill_diagonal_(1)


@pytest.mark.row("A11.version_message", "A12.version_text")
def test_the_version_error_names_what_was_changed():
    x = leaf(2)
    y = x.exp()
    y.detach().zero_()
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    assert str(error.value).startswith(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[torch.FloatTensor [2]], which is output 0 of Exp, is at version 1; expected version 0 instead. Hint: "
    )


KEYS = [
    ("0", 1.0), ("...", 2.0), ("slice(1, None)", torch.tensor([5.0])),
    ("torch.tensor([0, 0])", 3.0), ("x > 0", torch.tensor(4.0)),
    ("None", 1.0), ("..., None", 2.0), ("True", 1.0), ("[1]", torch.tensor([2.0])), ("()", 1.5),
]  # fmt: skip


@pytest.mark.row("A11.view_of_non_leaf")
@pytest.mark.parametrize(("key", "value"), KEYS, ids=[k for k, _ in KEYS])
def test_what_is_assigned_replaces_the_gradient_of_what_was_there(key, value):
    x = leaf(2)
    weight = leaf(1)
    y = x * 1
    y[eval(key, {"x": x, "torch": torch})] = (
        value * weight.sum() if isinstance(value, float) else value * weight.squeeze()
    )
    y.sum().backward()
    written = torch.zeros(2)
    written[eval(key, {"x": x, "torch": torch})] = 1.0
    assert x.grad.tolist() == (1 - written).tolist() and weight.grad is not None


@pytest.mark.row("A11.view_of_non_leaf")
@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda y: y.mul_(y), [2.0, 4.0]),
        (lambda y: y.mul_(y.view(2)), [2.0, 4.0]),
        (lambda y: y.mul_(y.detach()), [1.0, 2.0]),
        (lambda y: y.div_(y), [0.0, 0.0]),
        (lambda y: y.addcmul_(y, y), [3.0, 5.0]),
    ],
)
def test_an_operand_that_is_overwritten_is_kept_from_before(change, wanted):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    change(y)
    y.sum().backward()
    assert x.grad.tolist() == wanted
