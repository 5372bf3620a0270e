//! Properties that every row of the catalogue has, one test for each: whoever adds a row gets all of them.

mod support;

use rustgrad::ops::apply;
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::catalogue::rows;
use rustgrad::ops::formula::Elementwise;
use rustgrad::ops::op::{INPLACE, Kind, Op, Param, Returns, Rule, Surface};
use rustgrad::ops::samples::Sampler;
use rustgrad::{DType, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{Case, Chain, callable, cases, elementwise_call, may_refuse};

/// Relative error that finite differences of order 1 to 4 may show: each order is the difference of one that has rounding
/// errors itself.
const TOLERANCE: [f64; 5] = [0.0, 1e-8, 1e-8, 1e-7, 1e-6];

/// Parameters without gradient by PyTorch's definition: row, names, and why.
const CONSTANT: &[(&str, &[&str], &str)] = &[
    ("nll_loss", &["weight"], "PyTorch refuses to differentiate with respect to class weights"),
    ("nll_loss_raw", &["weight"], "PyTorch refuses to differentiate with respect to class weights"),
    ("nll_loss_2d_raw", &["weight"], "PyTorch refuses to differentiate with respect to class weights"),
    ("class_put", &["weight"], "PyTorch refuses to differentiate with respect to class weights"),
    ("cross_entropy", &["weight"], "PyTorch refuses to differentiate with respect to class weights"),
    ("native_batch_norm", &["running_mean", "running_var"], "running statistics are buffers"),
];

/// The float tensors of a call that are not differentiated.
fn constant(op: &Op, args: &Args) -> Vec<usize> {
    support::positions(op, args, CONSTANT.iter().find(|c| c.0 == op.rust).map_or(&[], |c| c.1))
}

/// Whether two runs of a call give the same bits; what draws random numbers cannot be compared with finite differences.
fn is_deterministic(op: &'static Op, args: &Args) -> bool {
    let run = || -> Vec<Vec<u64>> {
        let outputs = apply::call(op, args).unwrap_or_default();
        outputs.iter().map(|t| support::values(t).into_iter().map(f64::to_bits).collect()).collect()
    };
    run() == run()
}

/// Derivatives of order 1 and 2 of a row against finite differences, over all its calls; what is wrong.
fn wrong_derivatives(op: &'static Op) -> Vec<String> {
    let mut wrong = Vec::new();
    for Case { label, args } in cases(op) {
        let mut complain = |text: String| wrong.push(format!("{} ({label}): {text}", op.rust));
        if let Err(e) = apply::call(op, &args) {
            if may_refuse(op, &label) {
                continue;
            }
            complain(format!("refused: {e}"));
            continue;
        }
        if op.node == "NotImplemented" || !is_deterministic(op, &args) {
            continue;
        }
        let chain = Chain::new(op, &args, 11, &constant(op, &args));
        match chain.is_differentiable() {
            Ok(true) => {}
            Ok(false) => continue,
            Err(e) => {
                complain(e.to_string());
                continue;
            }
        }
        for order in [1, 2] {
            if let Err(text) = chain.check(order, TOLERANCE[order]) {
                complain(text);
            }
        }
    }
    wrong
}

fn assert_nothing_wrong(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn first_and_second_derivatives_agree_with_finite_differences() {
    assert_nothing_wrong(rows().flat_map(wrong_derivatives).collect());
}

#[test]
fn third_and_fourth_derivatives_of_elementwise_rows_agree_with_finite_differences() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for op in rows() {
        let Some(rule) = callable(op) else { continue };
        let mut sampler = Sampler::new(5, DType::F64);
        let chain = Chain::new(op, &elementwise_call(op, rule, &mut sampler, "0-d"), 3, &[]);
        if op.node == "NotImplemented" || !matches!(chain.is_differentiable(), Ok(true)) {
            continue;
        }
        checked += 1;
        for order in [3, 4] {
            if let Err(text) = chain.check(order, TOLERANCE[order]) {
                wrong.push(format!("{}: {text}", op.rust));
            }
        }
    }
    assert!(checked > 90, "only {checked} rows were differentiated");
    assert_nothing_wrong(wrong);
}

static WRONG_FIRST: Op = test_row("wrong_first", |_, _, g| vec![Some(g * 3.0)]);
// The value of 2 x, through a primitive that is locally constant: right at order 1, wrong at order 2.
static WRONG_SECOND: Op = test_row("wrong_second", |f, _, g| vec![Some(g * f.x(0).nextafter(f.x(0)) * 2.0)]);
static RIGHT: Op = test_row("right", |f, _, g| vec![Some(g * f.x(0) * 2.0)]);

const fn test_row(rust: &'static str, vjp: rustgrad::ops::formula::Derivative) -> Op {
    Op {
        rust,
        name: rust,
        surface: Surface(0),
        params: &[Param { name: "input", kind: Kind::Tensor, default: None, keyword_only: false }],
        returns: Returns::Tensor,
        node: "SquareBackward0",
        rule: Rule::Elementwise(Elementwise::float_only(|f| f.x(0) * f.x(0)).vjp(vjp)),
        doc: "",
        samples: |_| Vec::new(),
    }
}

#[test]
fn a_wrong_derivative_is_found_at_the_order_at_which_it_is_wrong() {
    assert_eq!(wrong_derivatives(&RIGHT), [""; 0]);
    let orders = |op| {
        let texts = wrong_derivatives(op);
        [1, 2].map(|order| texts.iter().any(|t| t.contains(&format!("order {order}"))))
    };
    assert!(orders(&WRONG_FIRST)[0]);
    assert_eq!(orders(&WRONG_SECOND), [false, true]);
}

/// The call with its float tensors in another dtype; numbers stay.
fn in_dtype(args: &Args, dtype: DType) -> Args {
    let convert = |t: &Tensor| {
        if t.dtype() == DType::F64 {
            rustgrad::ops::to_dtype(t, dtype).expect("every dtype converts")
        } else {
            t.clone()
        }
    };
    let converted = args.iter().map(|arg| match arg {
        Arg::Tensor(t) => Arg::Tensor(convert(t)),
        Arg::Tensors(list) => Arg::Tensors(list.iter().map(convert).collect()),
        other => other.clone(),
    });
    converted.collect()
}

#[test]
fn every_dtype_is_computed_or_refused() {
    let mut wrong = Vec::new();
    for op in rows() {
        for Case { label, args } in cases(op) {
            for dtype in DType::ALL {
                let args = in_dtype(&args, dtype);
                let call = || -> rustgrad::Result<()> {
                    let outputs = apply::call(op, &args)?;
                    if op.node == "NotImplemented" || !dtype.is_float() {
                        return Ok(());
                    }
                    // Backward in every float dtype, in which the gradients come.
                    let fixed = constant(op, &args);
                    let leaves = support::float_tensors(&args).into_iter().enumerate();
                    let leaves =
                        leaves.map(|(k, t)| rustgrad::ops::copy_like(&t, &t)?.requires_grad_(!fixed.contains(&k)));
                    let leaves = leaves.collect::<rustgrad::Result<Vec<Tensor>>>()?;
                    drop(outputs);
                    let outputs = apply::call(op, &support::with_tensors(&args, &leaves))?;
                    let ones: Vec<Option<Tensor>> = outputs
                        .iter()
                        .map(|t| rustgrad::ops::ones(&t.sizes(), t.dtype()).map(Some))
                        .collect::<Result<_, _>>()?;
                    let leaves: Vec<Tensor> = leaves.into_iter().filter(Tensor::requires_grad).collect();
                    if leaves.is_empty() {
                        return Ok(());
                    }
                    for (grad, leaf) in support::gradients(&outputs, &leaves, &ones)?.iter().zip(&leaves) {
                        assert_eq!(
                            (grad.dtype(), grad.sizes()),
                            (leaf.dtype(), leaf.sizes()),
                            "the gradient of {leaf}"
                        );
                    }
                    Ok(())
                };
                match catch_unwind(AssertUnwindSafe(call)) {
                    Ok(Ok(())) => {}
                    // Floats are what every differentiable row is made for.
                    Ok(Err(e)) if dtype == DType::F64 && !may_refuse(op, &label) => {
                        wrong.push(format!("{} ({label}): {e}", op.rust))
                    }
                    Ok(Err(_)) => {}
                    Err(_) => wrong.push(format!("{} ({label}) panics with {dtype}", op.rust)),
                }
            }
        }
    }
    assert_nothing_wrong(wrong);
}

/// Values and gradients of a call, made by `form` on operands that are no leaves.
fn values_and_gradients(
    op: &'static Op,
    args: &Args,
    form: fn(&'static Op, &Args) -> rustgrad::Result<Tensor>,
) -> rustgrad::Result<Vec<Vec<f64>>> {
    let fixed = constant(op, args);
    let leaves = support::float_tensors(args).into_iter().enumerate();
    let leaves = leaves.map(|(k, t)| rustgrad::ops::copy_like(&t, &t)?.requires_grad_(!fixed.contains(&k)));
    let leaves = leaves.collect::<rustgrad::Result<Vec<Tensor>>>()?;
    let operands = leaves.iter().map(|x| x.mul(1.0)).collect::<rustgrad::Result<Vec<Tensor>>>()?;
    let y = form(op, &support::with_tensors(args, &operands))?;
    let mut found = vec![support::values(&y)];
    let leaves: Vec<Tensor> = leaves.into_iter().filter(Tensor::requires_grad).collect();
    if y.requires_grad() && op.node != "NotImplemented" && !leaves.is_empty() {
        let weights = support::weights(&y, &mut Sampler::new(9, DType::F64));
        let grads = support::gradients(std::slice::from_ref(&y), &leaves, &[Some(weights)])?;
        found.extend(grads.iter().map(support::values));
    }
    Ok(found)
}

#[test]
fn in_place_forms_agree_with_the_plain_ones() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for op in rows().filter(|op| op.surface.has(INPLACE)) {
        for Case { label, args } in cases(op).into_iter().filter(|c| is_deterministic(op, &c.args)) {
            let plain = values_and_gradients(op, &args, |op, args| Ok(apply::call(op, args)?.remove(0)));
            let in_place = values_and_gradients(op, &args, apply::call_in_place);
            match (plain, in_place) {
                // Truth values over numbers are the same numbers; their gradient is zero instead of absent.
                (Ok(plain), Ok(in_place)) if plain.iter().zip(&in_place).all(|(a, b)| a == b) => compared += 1,
                // A result of another shape or dtype than the operand cannot lie in its memory.
                (Ok(_), Err(e)) if e.to_string().contains("doesn't match the broadcast shape") => {}
                (Ok(_), Err(e)) if e.to_string().contains("can't be cast to the desired output type") => {}
                (a, b) => wrong.push(format!("{} ({label}): plain {a:?}, in place {b:?}", op.rust)),
            }
        }
    }
    assert!(compared > 300, "only {compared} calls");
    assert_nothing_wrong(wrong);
}
