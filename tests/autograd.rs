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
    assert_eq!(y.grad_fn().unwrap().node().unwrap().name(), "CopySlices");
    assert_eq!(v.grad_fn().unwrap().node().unwrap().name(), "AsStridedBackward0");
    (&y * &y).sum((), false)?.backward()?;
    // y = [2x0, 20x1, 2x2]: the sum of squares has the gradient [8x0, 800x1, 8x2].
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [8.0, 1600.0, 24.0]);
    Ok(())
}

/// Small plain operands take a road of their own once an operation is warm; what comes out is what the formulas say, run
/// after run, whoever else holds the tensors on the way.
#[test]
fn operators_on_small_tensors() -> Result<()> {
    type Operator = fn(&Tensor, &Tensor) -> Tensor;
    type Derivative = fn(f64, f64) -> f64;
    let table: [(&str, Operator, Derivative, Derivative, Derivative); 4] = [
        ("add", |a, b| a + b, |x, y| x + y, |_, _| 1.0, |_, _| 1.0),
        ("sub", |a, b| a - b, |x, y| x - y, |_, _| 1.0, |_, _| -1.0),
        ("mul", |a, b| a * b, |x, y| x * y, |_, y| y, |x, _| x),
        ("div", |a, b| a / b, |x, y| x / y, |_, y| 1.0 / y, |x, y| -x / (y * y)),
    ];
    // One element, a buffer's worth, one more than that, many.
    for n in [1, 8, 9, 100] {
        let left: Vec<f64> = (0..n).map(|i| 0.5 + i as f64).collect();
        let right: Vec<f64> = (0..n).map(|i| 2.0 - 0.25 * i as f64 / n as f64).collect();
        let each = |f: Derivative| -> Vec<f64> { left.iter().zip(&right).map(|(&x, &y)| f(x, y)).collect() };
        for (name, operator, value, by_left, by_right) in &table {
            for round in 0..3 {
                let at = format!("{name}, {n} elements, round {round}");
                let (a, b) = (leaf(&left), leaf(&right));
                let y = operator(&a, &b);
                assert_close(&y, &each(*value), &at);
                // The cotangent is the caller's, and stays as it is; twice over the same graph gives twice the gradient.
                let ones = Tensor::from_slice(&vec![1.0; n], &[n])?;
                let keep = BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() };
                for _ in 0..2 {
                    backward(std::slice::from_ref(&y), &[Some(ones.clone())], &keep)?;
                }
                assert_close(&ones, &vec![1.0; n], &at);
                let twice = |values: Vec<f64>| values.iter().map(|v| 2.0 * v).collect::<Vec<_>>();
                assert_close(&a.grad().unwrap(), &twice(each(*by_left)), &at);
                assert_close(&b.grad().unwrap(), &twice(each(*by_right)), &at);
                // One operand or both, behind a node whose cotangent nobody else holds.
                for (by_a, by_b) in [(true, false), (false, true), (true, true)] {
                    let (a, b) = (leaf(&left), leaf(&right));
                    let p = if by_a { &a * 2.0 } else { a.detach() };
                    let q = if by_b { &b * 2.0 } else { b.detach() };
                    (operator(&p, &q) * 3.0).sum((), false)?.backward()?;
                    let (x, y): (Vec<f64>, Vec<f64>) = (p.to_vec()?, q.to_vec()?);
                    for (leaf, asked, inner) in [(&a, by_a, by_left), (&b, by_b, by_right)] {
                        let want: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| 6.0 * inner(x, y)).collect();
                        match leaf.grad() {
                            Some(got) => assert_close(&got, &want, &at),
                            None => assert!(!asked, "{at}: no gradient"),
                        }
                    }
                }
                // The same tensor twice.
                let a = leaf(&left);
                operator(&a, &a).sum((), false)?.backward()?;
                let want: Vec<f64> = left.iter().map(|&x| by_left(x, x) + by_right(x, x)).collect();
                assert_close(&a.grad().unwrap(), &want, &at);
            }
        }
    }
    Ok(())
}

fn assert_close(got: &Tensor, want: &[f64], at: &str) {
    let got: Vec<f64> = got.to_vec().unwrap();
    assert_eq!(got.len(), want.len(), "{at}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-12 * w.abs().max(1.0), "{at}: {got:?} instead of {want:?}");
    }
}

/// Gradients on their way from node to node may be overwritten only where nobody else sees them.
#[test]
fn gradients_that_somebody_holds_are_not_overwritten() -> Result<()> {
    for _ in 0..3 {
        let x = leaf(&[1.0, 2.0]);
        let a = &x * 2.0;
        let b = &a * 3.0;
        let c = &b * 5.0;
        a.retain_grad()?;
        b.retain_grad()?;
        let y = &c - &b;
        y.sum((), false)?.backward()?;
        assert_close(&b.grad().unwrap(), &[4.0, 4.0], "b");
        assert_close(&a.grad().unwrap(), &[12.0, 12.0], "a");
        assert_close(&x.grad().unwrap(), &[24.0, 24.0], "x");
        let caught =
            grad(&[(&a * &b).sum((), false)?], &[a.clone(), b.clone(), x.clone()], &[], &GradOptions::default())?;
        assert_close(caught[0].as_ref().unwrap(), &[12.0, 24.0], "a, caught");
        assert_close(caught[1].as_ref().unwrap(), &[2.0, 4.0], "b, caught");
        assert_close(caught[2].as_ref().unwrap(), &[24.0, 48.0], "x, caught");
    }
    Ok(())
}

/// What is older than the inputs is not walked: a gradient by the last step of a long history costs what the step costs.
#[test]
fn gradients_by_recent_tensors_do_not_walk_the_past() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let history = (0..100_000).fold(&x * 1.0, |h, _| &h * 1.0);
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        let y = &history * 2.0;
        let z = (&y * &y + &history).sum((), false)?;
        let options = GradOptions { retain_graph: Some(true), ..GradOptions::default() };
        let grads = grad(&[z], std::slice::from_ref(&y), &[], &options)?;
        assert_close(grads[0].as_ref().unwrap(), &[4.0, 8.0], "y");
    }
    // To walk all of it each time would be 10^8 nodes, tens of seconds.
    assert!(start.elapsed().as_secs_f64() < 3.0, "{:?}", start.elapsed());
    Ok(())
}
