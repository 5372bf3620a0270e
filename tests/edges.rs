//! Every elementwise row at zeros, tiny, large, largest, infinite and undefined arguments, through the second derivative,
//! against PyTorch's recorded answers. Where PyTorch's own derivative is undefined and ours is not, or where ours is held to be
//! better, `edge_differences.txt` says so with the reason, and a line there that is no longer true fails. Beside it the table of
//! what may be changed in place between forward and backward, which is the table of what is saved.

mod support;

use rustgrad::autograd::{GradOptions, grad, no_grad};
use rustgrad::ops::apply::{self, with_defaults};
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::catalogue::find;
use rustgrad::ops::formula::Promote;
use rustgrad::ops::op::Rule;
use rustgrad::ops::{activation, elementwise, selection, special, transcendental};
use rustgrad::{DType, Result, Scalar, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use support::{gradients, values};

/// Relative errors allowed of the result, its derivatives and its second derivatives.
fn tolerance(dtype: DType, key: &str) -> f64 {
    let order = match &key[..1] {
        "y" => 0,
        "g" => 1,
        _ => 2,
    };
    match dtype {
        // The record has eleven digits; PyTorch's special functions are good to about nine.
        DType::F64 => [1e-9, 1e-9, 1e-8][order],
        _ => [1e-6, 1e-5, 1e-4][order],
    }
}

/// Below this a float32 is denormal, and PyTorch may flush it.
fn smallest(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-300 } else { 1e-37 }
}

struct Block {
    row: String,
    dtype: DType,
    arguments: Vec<String>,
    lines: Vec<(String, Vec<f64>)>,
}

impl Block {
    fn operands(&self) -> usize {
        self.arguments.iter().filter(|a| a.starts_with('$')).count()
    }

    fn label(&self) -> String {
        format!("{} {}", self.row, self.arguments.join(" "))
    }
}

/// The recorded blocks, and the points by number of operands.
fn recorded() -> (Vec<Block>, BTreeMap<usize, Vec<String>>) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/edge_cases.txt"))
        .expect("the record is there");
    let (mut blocks, mut points) = (Vec::new(), BTreeMap::new());
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ').map(String::from);
        let head = words.next().unwrap_or_default();
        match head.as_str() {
            "points" => {
                let n = words.next().and_then(|w| w.parse().ok()).expect("a count");
                points.insert(n, words.collect());
            }
            "row" => {
                let row = words.next().expect("a name");
                let dtype = DType::parse(&words.next().expect("a dtype")).expect("a dtype");
                blocks.push(Block { row, dtype, arguments: words.collect(), lines: Vec::new() });
            }
            _ => {
                let numbers = words.map(|w| w.parse().expect("a number")).collect();
                blocks.last_mut().expect("a row comes first").lines.push((head, numbers));
            }
        }
    }
    (blocks, points)
}

/// The operands, running over the grid of points.
fn operands(n: usize, points: &[String], dtype: DType) -> Result<Vec<Tensor>> {
    let largest = if dtype == DType::F64 { f64::MAX } else { f32::MAX as f64 };
    let axis: Vec<f64> = points
        .iter()
        .map(|p| match p.as_str() {
            "max" => largest,
            "-max" => -largest,
            p => p.parse().expect("a number"),
        })
        .collect();
    let total = axis.len().pow(n as u32);
    (0..n)
        .map(|k| {
            let step = axis.len().pow((n - 1 - k) as u32);
            let v: Vec<f64> = (0..total).map(|at| axis[at / step % axis.len()]).collect();
            rustgrad::ops::to_dtype(&support::from_values(&v, &[total]), dtype)?.requires_grad_(true)
        })
        .collect()
}

/// The arguments that the words of the record stand for.
fn arguments(words: &[String], operands: &[Tensor]) -> Result<Args> {
    let n = operands[0].numel();
    let mask = || {
        let v: Vec<i64> = (0..n as i64).map(|i| i % 2).collect();
        rustgrad::ops::to_dtype(&Tensor::from_slice(&v, &[n])?, DType::Bool)
    };
    let mut args = Args::new();
    for word in words {
        args.push(match word.split_at(word.len().min(2)) {
            ("-", _) => Arg::None,
            ("m", _) => Arg::Tensor(mask()?),
            ("n:", x) => Arg::Number(Scalar::Float(x.parse().expect("a number"))),
            ("i:", x) => Arg::Int(x.parse().expect("an integer")),
            ("s:", x) => Arg::Str(x.into()),
            (operand, _) => Arg::Tensor(operands[operand[1..].parse::<usize>().expect("an operand")].clone()),
        });
    }
    Ok(args)
}

/// What we answer, by the keys of the record.
fn answers(block: &Block, points: &[String]) -> Result<BTreeMap<String, Vec<f64>>> {
    let n = block.operands();
    let inputs = operands(n, points, block.dtype)?;
    let op = find(&block.row).unwrap_or_else(|| panic!("{} is no row", block.row));
    let y = apply::call(op, &with_defaults(op, arguments(&block.arguments, &inputs)?))?.remove(0);
    let ones = |t: &Tensor| rustgrad::ops::ones(&t.sizes(), t.dtype()).map(Some);
    let mut found = BTreeMap::from([("y".to_string(), values(&y))]);
    for (i, g) in gradients(std::slice::from_ref(&y), &inputs, &[ones(&y)?])?.iter().enumerate() {
        found.insert(format!("g{i}"), values(g));
        for (j, h) in gradients(std::slice::from_ref(g), &inputs, &[ones(g)?])?.iter().enumerate() {
            found.insert(format!("h{i}{j}"), values(h));
        }
    }
    Ok(found)
}

fn agree(want: f64, got: f64, tolerance: f64, smallest: f64) -> bool {
    want == got
        || (want.is_nan() && got.is_nan())
        || (want - got).abs() <= tolerance * want.abs().max(got.abs())
        || (want.abs() < smallest && got.abs() < smallest)
}

/// A line of the list of differences.
struct Listed {
    label: String,
    keys: Vec<String>,
    kind: String,
    points: Option<Vec<String>>,
    /// The keys that have been seen to differ.
    seen: BTreeSet<String>,
}

impl Listed {
    fn covers(&self, label: &str, key: &str, point: &str, want: f64, got: f64) -> bool {
        let kind = match self.kind.as_str() {
            "undefined" => want.is_nan() && !got.is_nan(),
            "digits" => want.is_finite() && got.is_finite(),
            "choice" => true,
            other => panic!("{other} is no kind of difference"),
        };
        let here = self.points.as_ref().is_none_or(|points| points.iter().any(|p| p == point));
        kind && here && self.label == label && self.keys.iter().any(|k| k == key)
    }
}

fn listed() -> Vec<Listed> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/edge_differences.txt"))
        .expect("the list is there");
    let mut listed = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (what, reason) = line.split_once(" # ").unwrap_or_else(|| panic!("no reason: {line}"));
        assert!(reason.len() > 10, "no reason: {line}");
        let parts: Vec<&str> = what.split(" : ").collect();
        let [label, keys, kind, ..] = parts[..] else { panic!("{line}") };
        listed.push(Listed {
            label: label.into(),
            keys: keys.split(' ').map(String::from).collect(),
            kind: kind.trim().into(),
            points: parts.get(3).map(|points| points.split(';').map(|p| p.trim().to_string()).collect()),
            seen: BTreeSet::new(),
        });
    }
    listed
}

#[test]
fn edge_points_agree_with_pytorch_through_the_second_derivative() {
    let (blocks, points) = recorded();
    assert!(blocks.len() > 200, "only {} blocks", blocks.len());
    let (mut listed, mut wrong) = (listed(), Vec::new());
    for block in &blocks {
        let (label, axis) = (block.label(), &points[&block.operands()]);
        let found = answers(block, axis).unwrap_or_else(|e| panic!("{label}: {e}"));
        for (key, want) in &block.lines {
            let got = &found[key];
            for (at, (&want, &got)) in want.iter().zip(got).enumerate() {
                if agree(want, got, tolerance(block.dtype, key), smallest(block.dtype)) {
                    continue;
                }
                let step = |k: usize| axis.len().pow((block.operands() - 1 - k) as u32);
                let point: Vec<&str> =
                    (0..block.operands()).map(|k| axis[at / step(k) % axis.len()].as_str()).collect();
                let point = point.join(" ");
                match listed.iter_mut().find(|l| l.covers(&label, key, &point, want, got)) {
                    Some(l) => drop(l.seen.insert(key.clone())),
                    None => wrong
                        .push(format!("{label} : {key} : {point} in {}: PyTorch {want:e}, here {got:e}", block.dtype)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} unlisted differences:\n{}", wrong.len(), wrong.join("\n"));
    for l in &listed {
        let gone: Vec<&String> = l.keys.iter().filter(|k| !l.seen.contains(*k)).collect();
        assert!(gone.is_empty(), "{} : {gone:?} : {} is no difference any more", l.label, l.kind);
    }
}

#[test]
fn every_differentiable_elementwise_row_is_recorded() {
    let (blocks, _) = recorded();
    let recorded: BTreeSet<&str> = blocks.iter().map(|b| b.row.as_str()).collect();
    // What another recorded row computes under another signature.
    let same = ["fill", "fill_tensor", "filled", "filled_with", "zeroed", "masked_fill_tensor", "round_scaled"];
    let families = [elementwise::ROWS, selection::ROWS, transcendental::ROWS, special::ROWS, activation::ROWS];
    let missing = families.into_iter().flatten().filter(|op| {
        let float =
            matches!(&op.rule, Rule::Elementwise(rule) if rule.accept.float && !matches!(rule.promote, Promote::Bool));
        float && op.node != "NotImplemented" && !recorded.contains(op.rust) && !same.contains(&op.rust)
    });
    assert_eq!(missing.map(|op| op.rust).collect::<Vec<_>>(), [""; 0]);
}

/// Where we find a change that PyTorch does not see, or the other way round: row, operands that require a gradient (`*` for
/// any), operand or result, and why.
const SAVED_DIFFERENTLY: &[(&str, &str, &str, &str)] = &[
    ("sgn", "*", "0", "PyTorch keeps it for complex numbers"),
    ("sgn", "*", "y", "PyTorch keeps it for complex numbers"),
    ("ndtr", "*", "0", "one row here, which reads its input; PyTorch composes it, and erf reads a copy"),
    ("log_ndtr", "*", "y", "the slope is computed from the input alone"),
    ("ldexp", "0", "y", "only the gradient of the exponent reads the result"),
    ("pow_tensor", "0", "y", "only the gradient of the exponent reads the result"),
    ("copysign_tensor", "1", "y", "that gradient is zero"),
    ("prelu_kernel", "1", "1", "the gradient of the weight does not read the weight"),
    ("lerp_tensor", "2", "2", "the gradient of the weight does not read the weight"),
    ("addcdiv", "0", "2", "that gradient reads nothing"),
    ("pow $0 n:1.0", "*", "0", "the gradient reads nothing"),
    ("pow $0 n:0.0", "*", "0", "the gradient reads nothing"),
    ("div_trunc", "*", "0", "the gradient is zero"),
    ("div_trunc", "*", "1", "the gradient is zero"),
    ("div_floor", "*", "0", "the gradient is zero"),
    ("div_floor", "*", "1", "the gradient is zero"),
];

/// Whether backward fails after the target was changed in place.
fn refuses_change(row: &str, words: &[String], needs: &[bool], target: &str) -> Result<bool> {
    let op = find(row).unwrap_or_else(|| panic!("{row} is no row"));
    let leaves: Vec<Tensor> = needs
        .iter()
        .enumerate()
        .map(|(k, need)| support::from_values(&[0.3 + 0.2 * k as f64; 4], &[4]).requires_grad_(*need))
        .collect::<Result<_>>()?;
    let operands: Vec<Tensor> =
        leaves.iter().map(|x| if x.requires_grad() { x.mul(1.0) } else { Ok(x.clone()) }).collect::<Result<_>>()?;
    let y = apply::call(op, &with_defaults(op, arguments(words, &operands)?))?.remove(0);
    if !y.requires_grad() {
        return Ok(false);
    }
    let changed = if target == "y" { &y } else { &operands[target.parse::<usize>().expect("an operand")] };
    let mul = find("mul").expect("there is a mul");
    no_grad(|| {
        apply::call_in_place(mul, &smallvec::smallvec![Arg::Tensor(changed.clone()), Arg::Number(Scalar::Int(1))])
    })?;
    let inputs: Vec<Tensor> = leaves.iter().filter(|x| x.requires_grad()).cloned().collect();
    let options = GradOptions { allow_unused: true, ..GradOptions::default() };
    match grad(std::slice::from_ref(&y), &inputs, &[Some(rustgrad::ops::ones(&y.sizes(), y.dtype())?)], &options) {
        Ok(_) => Ok(false),
        Err(e) if e.to_string().contains("modified by an inplace operation") => Ok(true),
        Err(e) => Err(e),
    }
}

#[test]
fn changes_in_place_are_found_where_pytorch_finds_them() {
    let text = include_str!("data/inplace_table.txt");
    let (mut wrong, mut used, mut cells) = (Vec::new(), vec![false; SAVED_DIFFERENTLY.len()], 0);
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let [call, required, answers] = line.split(" : ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let words: Vec<String> = call.split(' ').map(String::from).collect();
        let n = words.iter().filter(|w| w.starts_with('$')).count();
        let needs: Vec<bool> = (0..n).map(|k| required.split(' ').any(|r| r == k.to_string())).collect();
        for answer in answers.split(' ') {
            let (target, refused) = answer.split_at(answer.len() - 1);
            cells += 1;
            let ours = refuses_change(&words[0], &words[1..], &needs, target).unwrap_or_else(|e| panic!("{line}: {e}"));
            if ours == (refused == "!") {
                continue;
            }
            let listed = SAVED_DIFFERENTLY
                .iter()
                .position(|d| (d.0 == words[0] || d.0 == call) && (d.1 == "*" || d.1 == required) && d.2 == target);
            match listed {
                Some(at) => used[at] = true,
                None => wrong.push(format!(
                    "{call} : {required} : {target}: PyTorch {}",
                    if ours { "goes on" } else { "refuses" }
                )),
            }
        }
    }
    assert!(cells > 400, "only {cells} cells");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    for (difference, used) in SAVED_DIFFERENTLY.iter().zip(used) {
        assert!(used, "{difference:?} is no difference any more");
    }
}
