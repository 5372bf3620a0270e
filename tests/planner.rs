//! The whole catalogue with the planner forced to kernels of 8 instructions and 4 bindings, against the same calls without
//! force: cutting a Program must not change a bit. Limits are set once in a process, so this file is a binary of its own, and
//! the two sides are two processes of it.

mod support;

use rustgrad::backend::cpu::force_limits;
use rustgrad::ops::apply;
use rustgrad::ops::args::Args;
use rustgrad::ops::catalogue::rows;
use rustgrad::ops::formula::Elementwise;
use rustgrad::ops::op::Op;
use rustgrad::ops::samples::Sampler;
use rustgrad::program::Limits;
use rustgrad::{DType, Result, Tensor};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;
use support::{callable, cases, elementwise_call, float_tensors, from_values, gradients, values, with_tensors};

const FORCED: &str = "RUSTGRAD_TEST_FORCED_LIMITS";
const MARK: &str = "bits:";

/// One hash over the bits of the results, the gradients and the second derivatives of a call.
fn bits(op: &'static Op, args: &Args) -> Result<u64> {
    let mut hash = DefaultHasher::new();
    let mut add = |tensors: &[Tensor]| {
        for t in tensors {
            t.sizes().hash(&mut hash);
            values(t).into_iter().for_each(|x| x.to_bits().hash(&mut hash));
        }
    };
    let leaves = float_tensors(args).into_iter().map(|t| rustgrad::ops::copy_like(&t, &t)?.requires_grad_(true));
    let leaves = leaves.collect::<Result<Vec<Tensor>>>()?;
    let mut at: Vec<Tensor> = apply::call(op, &with_tensors(args, &leaves))?.into_vec();
    add(&at);
    for _ in 0..2 {
        at.retain(|t| t.requires_grad());
        if at.is_empty() || op.node == "NotImplemented" {
            break;
        }
        let weights: Vec<Option<Tensor>> = at.iter().map(|t| weight(t).map(Some)).collect::<Result<_>>()?;
        at = gradients(&at, &leaves, &weights)?;
        add(&at);
    }
    Ok(hash.finish())
}

fn weight(t: &Tensor) -> Result<Tensor> {
    let mut s = Sampler::new(17, DType::F64);
    let v: Vec<f64> = (0..t.numel()).map(|_| s.unit() - 0.5).collect();
    rustgrad::ops::to_dtype(&from_values(&v, &t.sizes()), t.dtype())
}

/// More elements than a block, so that constants and temporaries outlive one.
fn large(op: &Op, rule: &Elementwise, s: &mut Sampler) -> Args {
    let small = elementwise_call(op, rule, s, "plain");
    let grown = small.iter().map(|arg| match arg {
        rustgrad::ops::args::Arg::Tensor(t) if t.rank() == 2 => {
            let v: Vec<f64> = values(t);
            let wide: Vec<f64> = (0..2700).map(|k| v[k % v.len()] * (1.0 + 1e-4 * (k % 97) as f64)).collect();
            let wide = rustgrad::ops::to_dtype(&from_values(&wide, &[2700]), t.dtype());
            rustgrad::ops::args::Arg::Tensor(wide.expect("every dtype converts"))
        }
        other => other.clone(),
    });
    grown.collect()
}

/// The lines that the two processes compare.
fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    for op in rows() {
        let mut calls: Vec<(String, Args)> = cases(op).into_iter().map(|c| (c.label, c.args)).collect();
        if let Some(rule) = callable(op) {
            let mut s = Sampler::new(23, DType::F32);
            calls.push(("large float64".into(), large(op, rule, &mut Sampler::new(29, DType::F64))));
            calls.push(("large float32".into(), large(op, rule, &mut s)));
        }
        for (label, args) in calls {
            let found = bits(op, &args).map_or_else(|e| e.to_string().replace('\n', " "), |b| format!("{b:016x}"));
            lines.push(format!("{MARK} {} ({label}) {found}", op.rust));
        }
    }
    lines
}

/// Run by the test below in processes of its own.
#[test]
#[ignore = "prints what the other test compares"]
fn print_bits() {
    if std::env::var_os(FORCED).is_some() {
        force_limits(Limits { instructions: 8, bindings: 4 });
    }
    // In one piece: the harness writes to the same stream.
    println!("\n{}", lines().join("\n"));
}

#[test]
fn cutting_programs_changes_no_bit() {
    let run = |forced: bool| {
        let mut command = Command::new(std::env::current_exe().expect("the test knows its binary"));
        command.args(["--exact", "print_bits", "--ignored", "--nocapture"]);
        if forced {
            command.env(FORCED, "1");
        }
        let output = command.output().expect("the test can start itself");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|l| l.starts_with(MARK)).map(String::from).collect::<Vec<String>>()
    };
    let (free, forced) = (run(false), run(true));
    assert!(free.len() > 500, "only {} calls", free.len());
    let differing: Vec<String> =
        free.iter().zip(&forced).filter(|(a, b)| a != b).map(|(a, b)| format!("{a}\n  forced {b}")).collect();
    assert!(
        free.len() == forced.len() && differing.is_empty(),
        "{} differ:\n{}",
        differing.len(),
        differing.join("\n")
    );
}
