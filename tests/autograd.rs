//! The engine and the graph, as a Rust user meets them.

use rustgrad::autograd::{BackwardOptions, GradOptions, backward, grad, no_grad};
use rustgrad::{DType, Result, Tensor};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap().requires_grad_(true).unwrap()
}

#[test]
fn sums_of_products() -> Result<()> {
    let (x, y) = (leaf(&[1.0, 2.0, 3.0]), leaf(&[4.0, 5.0, 6.0]));
    let z = (&x * &y + &x * 2.0).sum((), false)?;
    z.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [6.0, 7.0, 8.0]);
    assert_eq!(y.grad().unwrap().to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn second_and_third_derivatives() -> Result<()> {
    let x = leaf(&[3.0]);
    let y = &x * &x * &x * &x;
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    let mut g = y;
    let want = [108.0, 108.0, 72.0];
    for w in want {
        g = grad(&[g.sum((), false)?], std::slice::from_ref(&x), &[], &options)?.remove(0).unwrap();
        assert_eq!(g.to_vec::<f64>()?, [w]);
    }
    Ok(())
}

#[test]
fn a_freed_graph_and_a_modified_value_are_errors() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = (&x * &x).sum((), false)?;
    y.backward()?;
    let e = y.backward().unwrap_err().to_string();
    assert!(e.starts_with("Trying to backward through the graph a second time"), "{e}");

    let z = &x * 2.0;
    let loss = (&z * &z).sum((), false)?;
    no_grad(|| rustgrad::ops::add_assign(&z, &x))?;
    let e = loss.backward().unwrap_err().to_string();
    assert!(e.contains("modified by an inplace operation") && e.contains("is at version 1; expected version 0"), "{e}");
    Ok(())
}

#[test]
fn deep_graphs_need_no_stack() {
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(|| {
            let x = Tensor::scalar(1.0, DType::F32).unwrap().requires_grad_(true).unwrap();
            let mut y = &x * 1.0;
            for _ in 0..1_000_000 {
                y = y + &x;
            }
            y.backward().unwrap();
            assert_eq!(x.grad().unwrap().item().unwrap().to_f64(), 1_000_001.0);
            drop(y);
            // Again, dropped without a backward.
            let mut y = &x * 1.0;
            for _ in 0..1_000_000 {
                y = &y * 1.0;
            }
            drop(y);
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn inputs_restrict_accumulation() -> Result<()> {
    let (a, b) = (leaf(&[1.0]), leaf(&[1.0]));
    let loss = (&a * 2.0 + &b * 5.0).sum((), false)?;
    let options = BackwardOptions { inputs: Some(vec![b.clone()]), ..BackwardOptions::default() };
    backward(&[loss], &[], &options)?;
    assert!(a.grad().is_none());
    assert_eq!(b.grad().unwrap().to_vec::<f64>()?, [5.0]);
    Ok(())
}

#[test]
fn broadcast_operands_get_reduced_gradients() -> Result<()> {
    let a = Tensor::from_slice(&[1.0, 2.0], &[2, 1])?.requires_grad_(true)?;
    let b = leaf(&[10.0, 20.0, 30.0]);
    (&a * &b).sum((), false)?.backward()?;
    assert_eq!(a.grad().unwrap().to_vec::<f64>()?, [60.0, 60.0]);
    assert_eq!(b.grad().unwrap().to_vec::<f64>()?, [3.0, 3.0, 3.0]);
    Ok(())
}

#[test]
fn an_in_place_change_of_a_view_reaches_the_base() -> Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0]);
    let y = &x * 2.0;
    let v = y.select(0, 1)?;
    rustgrad::ops::apply::call_in_place(
        rustgrad::ops::catalogue::find("mul").unwrap(),
        &smallvec::smallvec![
            rustgrad::ops::args::Arg::Tensor(v.clone()),
            rustgrad::ops::args::Arg::Tensor(Tensor::scalar(10.0, DType::F64)?)
        ],
    )?;
    assert_eq!(y.grad_fn().node().unwrap().name(), "CopySlices");
    assert_eq!(v.grad_fn().node().unwrap().name(), "AsStridedBackward0");
    (&y * &y).sum((), false)?.backward()?;
    // y = [2x0, 20x1, 2x2]: the sum of squares has the gradient [8x0, 800x1, 8x2].
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [8.0, 1600.0, 24.0]);
    Ok(())
}
