//! Derivatives of the rows that address elements by index, to second order, against central differences in float64 over
//! the rows' own samples.

use rustgrad::autograd::{GradOptions, grad, no_grad};
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::op::{Op, Rule};
use rustgrad::ops::samples::Sampler;
use rustgrad::ops::{apply, embedding, index, index_view, scatter, scatter_reduce, search, sort};
use rustgrad::{DType, Result, Tensor};

const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-7;

/// The float tensors of a call.
fn floats(args: &Args) -> Vec<usize> {
    (0..args.len()).filter(|&i| matches!(&args[i], Arg::Tensor(t) if t.dtype().is_float())).collect()
}

fn with(args: &Args, at: &[usize], tensors: &[Tensor]) -> Args {
    let mut args = args.clone();
    at.iter().zip(tensors).for_each(|(&i, t)| args[i] = Arg::Tensor(t.clone()));
    args
}

/// `sum(out * weights)` over the float results.
fn weighed(op: &'static Op, args: &Args, weights: &[Tensor]) -> Result<Tensor> {
    let outputs = apply::call(op, args)?;
    let mut sum = Tensor::scalar(0.0, DType::F64)?;
    for (out, w) in outputs.iter().filter(|o| o.dtype().is_float()).zip(weights) {
        sum = &sum + (out * w).sum((), false)?;
    }
    Ok(sum)
}

fn leaves(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.detach().copy().unwrap().requires_grad_(true).unwrap()).collect()
}

/// Compares `f`'s gradient at `inputs` with central differences.
fn compare(label: &str, inputs: &[Tensor], f: &dyn Fn(&[Tensor]) -> Result<Tensor>) {
    let leaves = leaves(inputs);
    let options = GradOptions { allow_unused: true, ..GradOptions::default() };
    let value = f(&leaves).unwrap();
    let got =
        if value.requires_grad() { grad(&[value], &leaves, &[], &options).unwrap() } else { vec![None; leaves.len()] };
    for (k, input) in inputs.iter().enumerate() {
        let analytic = got[k].as_ref().map_or(vec![0.0; input.numel()], |g| {
            assert_eq!(g.sizes(), input.sizes(), "{label}: gradient {k}");
            g.to_vec::<f64>().unwrap()
        });
        let values = input.to_vec::<f64>().unwrap();
        for (i, &have) in analytic.iter().enumerate() {
            let at = |delta: f64| {
                let mut moved = values.clone();
                moved[i] += delta;
                let mut all = inputs.to_vec();
                all[k] = Tensor::from_slice(&moved, &input.sizes()).unwrap();
                f(&all).unwrap().item().unwrap().to_f64()
            };
            let want = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            assert!(
                (have - want).abs() <= TOLERANCE * (1.0 + want.abs()),
                "{label}: input {k}[{i}]: {have}, differences say {want}"
            );
        }
    }
}

fn check(op: &'static Op, args: &Args, s: &mut Sampler) {
    let at = floats(args);
    let inputs: Vec<Tensor> =
        at.iter().map(|&i| if let Arg::Tensor(t) = &args[i] { t.clone() } else { unreachable!() }).collect();
    let outputs = no_grad(|| apply::call(op, args)).unwrap();
    let weights: Vec<Tensor> = outputs.iter().filter(|o| o.dtype().is_float()).map(|o| s.t(&o.sizes())).collect();
    compare(op.rust, &inputs, &|x| weighed(op, &with(args, &at, x), &weights));
    // The gradient, weighed again, as a function of the inputs and of the weights it came from.
    let second: Vec<Tensor> = inputs.iter().map(|t| s.t(&t.sizes())).collect();
    let n = inputs.len();
    let all: Vec<Tensor> = inputs.iter().chain(&weights).cloned().collect();
    compare(&format!("{} twice", op.rust), &all, &|x| {
        let options = GradOptions { create_graph: true, allow_unused: true, ..GradOptions::default() };
        let x = if x[0].requires_grad() { x.to_vec() } else { leaves(x) };
        let grads = grad(&[weighed(op, &with(args, &at, &x[..n]), &x[n..])?], &x[..n], &[], &options)?;
        let mut sum = Tensor::scalar(0.0, DType::F64)?;
        for (g, w) in grads.iter().zip(&second) {
            if let Some(g) = g {
                sum = &sum + (g * w).sum((), false)?;
            }
        }
        Ok(sum)
    });
}

#[test]
fn derivatives_agree_with_differences() {
    let mut checked = 0;
    for op in
        [index::ROWS, index_view::ROWS, scatter::ROWS, scatter_reduce::ROWS, sort::ROWS, search::ROWS, embedding::ROWS]
            .concat()
    {
        if op.node == "NotImplemented" || op.name.contains("unique") || op.name == "argwhere" || !op.is_differentiable()
        {
            continue;
        }
        let mut s = Sampler::new(7, DType::F64);
        let samples = (op.samples)(&mut s);
        assert!(!samples.is_empty() || matches!(op.rule, Rule::Elementwise(_)), "{} has no samples", op.rust);
        for args in samples {
            check(op, &args, &mut s);
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked}");
}

#[test]
#[should_panic(expected = "differences say")]
fn the_check_can_fail() {
    let x = Tensor::from_slice(&[1.0, 2.0], &[2]).unwrap();
    compare("detached", &[x], &|x| (&x[0] * x[0].detach()).sum((), false));
}
