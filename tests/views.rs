//! Views: that they share memory with their base, that changes through either reach the history of both, and the operations
//! that make the tensor itself another view.

use rustgrad::autograd::no_grad;
use rustgrad::ops::apply::call_in_place;
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::{copy, elementwise, memory, movement, slicing};
use rustgrad::{Result, Tensor};
use smallvec::smallvec;

fn counted(sizes: &[usize]) -> Tensor {
    let n: usize = sizes.iter().product();
    Tensor::from_slice(&(0..n).map(|i| i as f64).collect::<Vec<_>>(), sizes).unwrap()
}

fn leaf(sizes: &[usize]) -> Tensor {
    counted(sizes).requires_grad_(true).unwrap()
}

fn node(t: &Tensor) -> String {
    t.grad_fn().unwrap().node().map_or("none".into(), |n| n.name().into_owned())
}

fn write(to: &Tensor, value: f64) -> Result<Tensor> {
    call_in_place(&copy::COPY, &smallvec![Arg::Tensor(to.clone()), Arg::Tensor(Tensor::from(value)), Arg::Bool(false)])
}

type Made = (&'static str, fn(&Tensor) -> Result<Tensor>, &'static str);

/// Operations of which PyTorch says that they return views, with the nodes it gives them.
const VIEWS: &[Made] = &[
    ("view", |t| t.view([6, 4]), "ViewBackward0"),
    ("reshape", |t| t.reshape([6, 4]), "ViewBackward0"),
    ("flatten", |t| t.flatten(0, 1), "ViewBackward0"),
    ("unflatten", |t| t.unflatten(2, [2, 2]), "ViewBackward0"),
    ("ravel", |t| t.ravel(), "ViewBackward0"),
    ("permute", |t| t.permute([2, 0, 1]), "PermuteBackward0"),
    ("movedim", |t| t.movedim([0], [2]), "PermuteBackward0"),
    ("transpose", |t| t.transpose(0, -1), "TransposeBackward0"),
    ("squeeze", |t| t.squeeze(), "SqueezeBackward0"),
    ("squeeze_dim", |t| t.squeeze_dim(0), "SqueezeBackward1"),
    ("squeeze_dims", |t| t.squeeze_dims([0, 1]), "SqueezeBackward2"),
    ("unsqueeze", |t| t.unsqueeze(-1), "UnsqueezeBackward0"),
    ("expand", |t| t.expand([5, 2, 3, 4]), "ExpandBackward0"),
    ("broadcast_to", |t| t.broadcast_to([5, 2, 3, 4]), "ExpandBackward0"),
    ("select", |t| t.select(1, -1), "SelectBackward0"),
    ("slice", |t| t.slice(1, 1, None, 2), "SliceBackward0"),
    ("narrow", |t| t.narrow(1, 1i64, 2), "SliceBackward0"),
    ("unbind", |t| t.unbind(0).map(|v| v[1].clone()), "UnbindBackward0"),
    ("split", |t| t.split(2, 1).map(|v| v[1].clone()), "SplitBackward0"),
    ("split_with_sizes", |t| t.split_with_sizes([1, 2], 1).map(|v| v[0].clone()), "SplitWithSizesBackward0"),
    ("chunk", |t| t.chunk(2, 1).map(|v| v[1].clone()), "SplitBackward0"),
    ("tensor_split", |t| t.tensor_split(2, 1).map(|v| v[1].clone()), "SliceBackward0"),
    ("diagonal", |t| t.diagonal(0, 1, 2), "DiagonalBackward0"),
    ("unfold", |t| t.unfold(2, 2, 1), "UnfoldBackward0"),
];

#[test]
fn views_share_memory_and_versions_and_carry_their_nodes() -> Result<()> {
    for (name, make, wanted) in VIEWS {
        let x = leaf(&[2, 3, 4]);
        let base = &x * 1.0;
        let view = make(&base)?;
        assert_eq!(node(&view), *wanted, "{name}");
        assert!(view.is_view() && view.base().is_some_and(|b| b.is(&base)), "{name}");
        let before = view.version();
        write(&base, 7.0)?;
        assert!(view.to_vec::<f64>()?.iter().all(|&v| v == 7.0), "{name} does not see what is written to its base");
        assert_eq!(view.version(), before + 1, "{name}");
    }
    Ok(())
}

#[test]
fn a_change_through_a_view_reaches_the_gradient_of_the_base() -> Result<()> {
    for (name, make, _) in VIEWS {
        if matches!(*name, "expand" | "broadcast_to" | "unfold" | "unbind" | "split" | "split_with_sizes" | "chunk") {
            continue; // Their elements share memory, or several of them come back together.
        }
        let x = leaf(&[2, 3, 4]);
        let base = &x * 1.0;
        let view = make(&base)?;
        let tripled: Args = smallvec![Arg::Tensor(view.clone()), Arg::Number(3.0.into())];
        call_in_place(&elementwise::MUL, &tripled)?;
        base.sum((), false)?.backward()?;
        // Three where the view looks, one elsewhere.
        let wanted = Tensor::from_slice(&[1.0f64; 24], &[2, 3, 4])?;
        write(&make(&wanted)?, 3.0)?;
        assert_eq!(x.grad().unwrap().to_vec::<f64>()?, wanted.to_vec::<f64>()?, "{name}");
    }
    Ok(())
}

#[test]
fn pieces_that_come_together_may_not_be_changed() -> Result<()> {
    let base = leaf(&[4, 2]) * 1.0;
    for pieces in [base.unbind(0)?, base.split(2, 0)?, base.chunk(2, 0)?] {
        let e = write(&pieces[1], 0.0).unwrap_err().to_string();
        assert!(e.contains("is a view and is being modified inplace. This view is the output of a function that returns multiple views"), "{e}");
    }
    write(&base.tensor_split(2, 0)?[1], 0.0).map(drop)
}

#[test]
fn the_tensor_itself_becomes_a_view() -> Result<()> {
    let x = leaf(&[2, 3]);
    let y = &x * 2.0;
    call_in_place(&movement::T, &smallvec![Arg::Tensor(y.clone())])?;
    assert_eq!((&y.sizes()[..], node(&y).as_str(), y.version()), (&[3, 2][..], "TBackward1", 1));
    call_in_place(&movement::UNSQUEEZE, &smallvec![Arg::Tensor(y.clone()), Arg::Int(0)])?;
    assert_eq!((&y.sizes()[..], node(&y).as_str()), (&[1, 3, 2][..], "UnsqueezeBackward1"));
    (&y * &counted(&[3, 2])).sum((), false)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [0.0, 4.0, 8.0, 2.0, 6.0, 10.0]);

    let e = call_in_place(&movement::T, &smallvec![Arg::Tensor(x.clone())]).unwrap_err().to_string();
    assert!(e.starts_with("a leaf Variable that requires grad is being used in an in-place operation."), "{e}");
    no_grad(|| call_in_place(&movement::T, &smallvec![Arg::Tensor(x.clone())]))?;
    assert_eq!(x.sizes()[..], [3, 2]);
    Ok(())
}

#[test]
fn a_view_that_becomes_another_view_still_belongs_to_its_base() -> Result<()> {
    let x = leaf(&[2, 3]);
    let base = &x * 1.0;
    let row = base.select(0, 1)?;
    call_in_place(&movement::UNSQUEEZE, &smallvec![Arg::Tensor(row.clone()), Arg::Int(0)])?;
    assert_eq!(node(&row), "UnsqueezeBackward1");
    call_in_place(&elementwise::MUL, &smallvec![Arg::Tensor(row.clone()), Arg::Number(5.0.into())])?;
    assert_eq!(node(&base), "CopySlices");
    base.sum((), false)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [1.0, 1.0, 1.0, 5.0, 5.0, 5.0]);
    Ok(())
}

#[test]
fn gradients_of_some_pieces_only() -> Result<()> {
    let x = leaf(&[3, 2]);
    let pieces = x.split(1, 0)?;
    (&pieces[2] * 4.0).sum((), false)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [0.0, 0.0, 0.0, 0.0, 4.0, 4.0]);
    Ok(())
}

#[test]
fn resizing_keeps_memory_that_is_large_enough() -> Result<()> {
    let resize = |t: &Tensor, sizes: &[i64]| {
        call_in_place(&memory::RESIZE_, &smallvec![Arg::Tensor(t.clone()), Arg::Ints(sizes.into())])
    };
    let t = counted(&[2, 3]);
    let view = t.view([6])?;
    resize(&t, &[2, 2])?;
    write(&view, 9.0)?;
    assert_eq!(t.to_vec::<f64>()?, [9.0; 4]);
    resize(&t, &[8])?;
    assert_eq!(t.to_vec::<f64>()?[..6], [9.0; 6]);
    assert!(
        resize(&leaf(&[2]), &[1]).unwrap_err().to_string().starts_with("cannot resize variables that require grad")
    );
    Ok(())
}

#[test]
fn windows_may_overlap_in_the_gradient() -> Result<()> {
    for (size, step) in [(3, 1), (3, 2), (2, 3), (5, 4), (7, 1), (1, 1)] {
        let x = leaf(&[7]);
        x.unfold(0, size, step)?.sum((), false)?.backward()?;
        let mut counts = [0.0; 7];
        for start in (0..=7 - size as usize).step_by(step as usize) {
            (start..start + size as usize).for_each(|i| counts[i] += 1.0);
        }
        assert_eq!(x.grad().unwrap().to_vec::<f64>()?, counts, "windows of {size}, {step} apart");
    }
    assert_eq!(slicing::UNFOLD.node, "UnfoldBackward0");
    Ok(())
}
