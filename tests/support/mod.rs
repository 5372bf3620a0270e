//! What the tests over the whole catalogue share: the calls with which each row is exercised, the road from a call to its
//! derivatives of any order, and comparison with finite differences. No test lives here, and no row is named here.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use rustgrad::autograd::{self, GradOptions};
use rustgrad::ops::apply;
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::formula::Elementwise;
use rustgrad::ops::op::{Kind, Op, Outputs, Param, Rule};
use rustgrad::ops::samples::Sampler;
use rustgrad::{DType, Result, Scalar, Tensor};

/// A call of a row.
pub struct Case {
    /// What it is, for messages.
    pub label: String,
    /// The arguments, one per parameter.
    pub args: Args,
}

/// How the tensors of an elementwise call lie to one another.
const PATTERNS: &[&str] = &["plain", "broadcast", "0-d", "empty", "transposed", "sliced", "one is 0-d"];

/// All calls of a row, in float64 where the row does not say otherwise.
pub fn cases(op: &'static Op) -> Vec<Case> {
    let seed = op.rust.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b as u64));
    let mut sampler = Sampler::new(seed, DType::F64);
    let mut said = (op.samples)(&mut sampler);
    // Some draws are unlucky: a mean over targets that are all ignored is no number. Such calls are drawn again.
    for again in 1..8 {
        if said.iter().all(|args| is_finite(op, args)) {
            break;
        }
        sampler = Sampler::new(seed.wrapping_add(again), DType::F64);
        said = (op.samples)(&mut sampler);
    }
    let said = said.into_iter().enumerate();
    let mut cases: Vec<Case> = said.map(|(k, args)| Case { label: format!("sample {k}"), args }).collect();
    if let Some(rule) = callable(op) {
        let several = op.params.iter().filter(|p| p.kind.is_operand()).count() > 1;
        for pattern in PATTERNS {
            if several || !matches!(*pattern, "broadcast" | "one is 0-d") {
                cases
                    .push(Case { label: pattern.to_string(), args: elementwise_call(op, rule, &mut sampler, pattern) });
            }
        }
    }
    cases
}

/// Whether a call has results, all of them numbers.
fn is_finite(op: &'static Op, args: &Args) -> bool {
    apply::call(op, args).is_ok_and(|outputs| outputs.iter().all(|t| values(t).iter().all(|x| x.is_finite())))
}

/// The rule of an elementwise row whose signature implies calls: operands, numbers, and whatever has a default.
pub fn callable(op: &'static Op) -> Option<&'static Elementwise> {
    let Rule::Elementwise(rule) = &op.rule else { return None };
    let implied = |p: &Param| {
        p.kind.is_operand()
            || p.default.is_some()
            || matches!(p.kind, Kind::Number | Kind::Int | Kind::Float | Kind::Bool)
    };
    op.params.iter().all(implied).then_some(rule)
}

/// Whether a row may refuse operands of several shapes: some losses want one shape, and say so.
pub fn may_refuse(op: &Op, label: &str) -> bool {
    matches!(&op.rule, Rule::Elementwise(rule) if rule.reduce.is_some()) && matches!(label, "broadcast" | "one is 0-d")
}

/// A call of an elementwise row, as its signature and domain imply.
pub fn elementwise_call(op: &Op, rule: &Elementwise, s: &mut Sampler, pattern: &str) -> Args {
    let (mut operand, mut number) = (0, 0);
    let mut call = Args::new();
    for (at, p) in op.params.iter().enumerate() {
        call.push(if p.kind.is_operand() {
            operand += 1;
            Arg::Tensor(operand_of(p, rule, s, operand - 1, pattern))
        } else {
            let free = p.default.is_none_or(|d| d == "None")
                && matches!(p.kind, Kind::Number | Kind::OptNumber | Kind::Float | Kind::Int);
            if free && number < rule.numbers.len() {
                number += 1;
                let x = rule.numbers[number - 1];
                if p.kind == Kind::Int { Arg::Int(x as i64) } else { Arg::Number(Scalar::Float(x)) }
            } else if p.name == "reduction" && pattern == "empty" {
                // The mean of nothing is NaN.
                Arg::Str("sum".into())
            } else if p.default.is_some() {
                op.default(at)
            } else if p.kind == Kind::Bool {
                Arg::Bool(false)
            } else {
                Arg::Number(Scalar::Int(2))
            }
        });
    }
    call
}

fn operand_of(p: &Param, rule: &Elementwise, s: &mut Sampler, k: usize, pattern: &str) -> Tensor {
    let draw = |s: &mut Sampler, sizes: &[usize]| {
        if rule.mask == Some(k) {
            return s.mask(sizes);
        }
        if !rule.accept.float {
            return s.ints(sizes, 1, 6);
        }
        match rule.domain.get(k) {
            Some(&(low, high)) => s.between(sizes, low, high),
            None => s.t(sizes),
        }
    };
    // A `value` is 0-d by PyTorch's rules.
    if p.name == "value" {
        return draw(s, &[]);
    }
    match (pattern, k) {
        ("broadcast", 0) => draw(s, &[2, 1]),
        ("broadcast", 1) => draw(s, &[3]),
        ("broadcast", _) => draw(s, &[2, 1, 1]),
        ("one is 0-d", 1) => draw(s, &[]),
        ("0-d", _) => draw(s, &[]),
        ("empty", _) => draw(s, &[0, 3]),
        ("transposed", 0) => draw(s, &[3, 2]).permute([1, 0]).expect("a matrix can be transposed"),
        ("sliced", 0) => draw(s, &[2, 3, 2]).select(2, 1).expect("the dimension is there"),
        _ => draw(s, &[2, 3]),
    }
}

/// The float tensors among the arguments, lists included.
pub fn float_tensors(args: &Args) -> Vec<Tensor> {
    let mut found = Vec::new();
    for arg in args {
        match arg {
            Arg::Tensor(t) if t.dtype().is_float() => found.push(t.clone()),
            Arg::Tensors(list) => found.extend(list.iter().filter(|t| t.dtype().is_float()).cloned()),
            _ => {}
        }
    }
    found
}

/// Which of the float tensors of a call are arguments of the parameters named.
pub fn positions(op: &Op, args: &Args, names: &[&str]) -> Vec<usize> {
    let parameters = op.params.iter().zip(args).flat_map(|(p, arg)| {
        let tensors = float_tensors(&Args::from_elem(arg.clone(), 1)).len();
        std::iter::repeat_n(p.name, tensors)
    });
    parameters.enumerate().filter(|(_, name)| names.contains(name)).map(|(k, _)| k).collect()
}

/// The call with its float tensors replaced, in order.
pub fn with_tensors(args: &Args, tensors: &[Tensor]) -> Args {
    let mut next = tensors.iter();
    let mut take = |t: &Tensor| if t.dtype().is_float() { next.next().unwrap_or(t).clone() } else { t.clone() };
    let replaced = args.iter().map(|arg| match arg {
        Arg::Tensor(t) => Arg::Tensor(take(t)),
        Arg::Tensors(list) => Arg::Tensors(list.iter().map(&mut take).collect()),
        other => other.clone(),
    });
    replaced.collect()
}

/// Fresh leaves that require a gradient, with the values and, unless `dense`, the strides of `tensors`.
pub fn leaves(tensors: &[Tensor], dense: bool) -> Vec<Tensor> {
    let leaf = |t: &Tensor| {
        let copy = if dense || t.is_contiguous() { from_values(&values(t), &t.sizes()) } else { like_strides(t) };
        copy.requires_grad_(true).expect("floats can require a gradient")
    };
    tensors.iter().map(leaf).collect()
}

fn like_strides(t: &Tensor) -> Tensor {
    let sizes = t.sizes();
    if let [a, b] = sizes[..] {
        // Every second column of a transposed copy: neither contiguous nor dense.
        let v = values(t);
        let mut wide = vec![0.0; 2 * a * b];
        for i in 0..a {
            for j in 0..b {
                wide[(j * a + i) * 2] = v[i * b + j];
            }
        }
        let base = from_values(&wide, &[b, a, 2]);
        return base.select(2, 0).and_then(|s| s.permute([1, 0])).expect("a matrix can be transposed");
    }
    from_values(&values(t), &sizes)
}

/// The elements as f64.
pub fn values(t: &Tensor) -> Vec<f64> {
    t.to_scalars().expect("elements can be read").into_iter().map(Scalar::to_f64).collect()
}

/// A float64 tensor.
pub fn from_values(v: &[f64], sizes: &[usize]) -> Tensor {
    Tensor::from_slice(v, sizes).expect("the count matches")
}

/// Random weights in `(-1, 1)` of the shape of `t`, none near 0.
pub fn weights(t: &Tensor, s: &mut Sampler) -> Tensor {
    let v: Vec<f64> =
        (0..t.numel()).map(|_| (0.3 + 0.7 * s.unit()) * if s.unit() < 0.5 { -1.0 } else { 1.0 }).collect();
    from_values(&v, &t.sizes())
}

/// Derivatives of a call, order by order. Order 0 is the float results; order k the gradients of the sum of those of order
/// k - 1, weighted by random cotangents, with respect to the inputs and (from order 2 on) to the first cotangents.
pub struct Chain {
    op: &'static Op,
    args: Args,
    seed: u64,
    /// The float tensors of the call that are not differentiated.
    fixed: Vec<usize>,
}

impl Chain {
    /// The chain of a call.
    pub fn new(op: &'static Op, args: &Args, seed: u64, fixed: &[usize]) -> Chain {
        Chain { op, args: args.clone(), seed, fixed: fixed.to_vec() }
    }

    /// The point at which the call is: the float tensors that are differentiated.
    pub fn point(&self) -> Vec<Tensor> {
        let all = float_tensors(&self.args).into_iter().enumerate();
        all.filter(|(k, _)| !self.fixed.contains(k)).map(|(_, t)| t).collect()
    }

    /// The call at another point.
    fn call_at(&self, inputs: &[Tensor]) -> Args {
        let mut next = inputs.iter();
        let all: Vec<Tensor> = float_tensors(&self.args)
            .into_iter()
            .enumerate()
            .map(|(k, t)| if self.fixed.contains(&k) { t } else { next.next().cloned().unwrap_or(t) })
            .collect();
        with_tensors(&self.args, &all)
    }

    /// The float results at a point that can be differentiated.
    fn results(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let outputs: Outputs = apply::call(self.op, &self.call_at(inputs))?;
        // Finite differences of anything narrower than float64 are noise.
        Ok(outputs.into_iter().filter(|t| t.dtype() == DType::F64 && t.requires_grad()).collect())
    }

    /// The first cotangents, one per result.
    pub fn cotangents(&self) -> Result<Vec<Tensor>> {
        let mut s = Sampler::new(self.seed, DType::F64);
        Ok(self.results(&leaves(&self.point(), true))?.iter().map(|t| weights(t, &mut s)).collect())
    }

    /// All tensors of order `order` at the point: `inputs` are leaves, `cotangents` leaves too.
    pub fn order(&self, order: usize, inputs: &[Tensor], cotangents: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut s = Sampler::new(self.seed + 1, DType::F64);
        let mut at = self.results(inputs)?;
        for k in 1..=order {
            let mut variables = inputs.to_vec();
            let weights: Vec<Option<Tensor>> = if k == 1 {
                cotangents.iter().cloned().map(Some).collect()
            } else {
                variables.extend(cotangents.iter().cloned());
                at.iter().map(|t| Some(weights(t, &mut s))).collect()
            };
            at = gradients(&at, &variables, &weights)?;
        }
        Ok(at)
    }

    /// The sum of order `order` weighted as the next order weights it.
    fn weighted(&self, order: usize, inputs: &[Tensor], cotangents: &[Tensor]) -> Result<f64> {
        let at = self.order(order, inputs, cotangents)?;
        if order == 0 {
            return Ok(at.iter().zip(cotangents).map(|(t, w)| dot(&values(t), &values(w))).sum());
        }
        let mut s = Sampler::new(self.seed + 1, DType::F64);
        // The weights of lower orders were drawn first.
        for k in 1..order {
            self.order(k, inputs, cotangents)?.iter().for_each(|t| drop(weights(t, &mut s)));
        }
        Ok(at.iter().map(|t| dot(&values(t), &values(&weights(t, &mut s)))).sum())
    }

    /// Compares order `order` with central differences of the order before, along a random direction for each input.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self, order: usize, tolerance: f64) -> std::result::Result<(), String> {
        let words = |e: rustgrad::Error| e.to_string();
        let point = self.point();
        let u = self.cotangents().map_err(words)?;
        let strided = leaves(&point, false);
        let found = self.order(order, &strided, &leaves(&u, true)).map_err(words)?;
        let moved = if order == 1 { point.len() } else { point.len() + u.len() };
        let mut s = Sampler::new(self.seed + 2, DType::F64);
        for k in 0..moved {
            let (base, of) = if k < point.len() { (&point[k], "input") } else { (&u[k - point.len()], "cotangent") };
            if base.numel() == 0 {
                continue;
            }
            let direction = weights(base, &mut s);
            let along = |h: f64| -> Result<f64> {
                let shifted: Vec<f64> = values(base).iter().zip(values(&direction)).map(|(x, d)| x + h * d).collect();
                let shifted = from_values(&shifted, &base.sizes());
                let (mut p, mut c) = (point.clone(), u.clone());
                if k < point.len() {
                    p[k] = shifted
                } else {
                    c[k - point.len()] = shifted
                }
                self.weighted(order - 1, &leaves(&p, true), &leaves(&c, true))
            };
            // The error of central differences falls with h^2; two steps extrapolate it away (Richardson).
            let h = 2e-4;
            let slope = |h: f64| -> Result<f64> { Ok((along(h)? - along(-h)?) / (2.0 * h)) };
            let (wide, narrow) = (slope(h).map_err(words)?, slope(h / 2.0).map_err(words)?);
            let want = (4.0 * narrow - wide) / 3.0;
            let got = dot(&values(&found[k]), &values(&direction));
            let scale = 1.0 + want.abs() + found[k].numel() as f64 * 0.1;
            if (got - want).abs() > tolerance * scale || (got - want).is_nan() {
                return Err(format!("order {order}, {of} {k}: derivative {got:e}, finite differences {want:e}"));
            }
        }
        Ok(())
    }

    /// Whether any result can be differentiated.
    pub fn is_differentiable(&self) -> Result<bool> {
        Ok(!self.point().is_empty() && !self.results(&leaves(&self.point(), true))?.is_empty())
    }
}

/// Gradients that can be differentiated again; zeros where nothing depends.
pub fn gradients(of: &[Tensor], with: &[Tensor], weights: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
    let (of, weights): (Vec<Tensor>, Vec<Option<Tensor>>) =
        of.iter().cloned().zip(weights.iter().cloned()).filter(|(t, _)| t.requires_grad()).unzip();
    if of.is_empty() {
        return with.iter().map(rustgrad::ops::zeros_like).collect();
    }
    let options =
        GradOptions { create_graph: true, allow_unused: true, materialize_grads: true, ..GradOptions::default() };
    let grads = autograd::grad(&of, with, &weights, &options)?;
    grads.into_iter().zip(with).map(|(g, x)| g.map_or_else(|| rustgrad::ops::zeros_like(x), Ok)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}
