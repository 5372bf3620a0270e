//! Every elementwise row at zeros, tiny, large, largest, infinite and undefined arguments, through the second derivative,
//! against PyTorch's recorded answers. Where PyTorch's own derivative is undefined and ours is not, or where ours is held to be
//! better, `edge_differences.txt` says so with the reason, and a line there that is no longer true fails.

mod support;

use rustgrad::ops::apply::{self, with_defaults};
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::catalogue::{find, rows};
use rustgrad::ops::op::Rule;
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
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/edge_cases.txt")).expect("the record is there");
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

fn arguments(block: &Block, operands: &[Tensor]) -> Result<Args> {
    let n = operands[0].numel();
    let mask = || {
        let v: Vec<i64> = (0..n as i64).map(|i| i % 2).collect();
        rustgrad::ops::to_dtype(&Tensor::from_slice(&v, &[n])?, DType::Bool)
    };
    let mut args = Args::new();
    for word in &block.arguments {
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
    let y = apply::call(op, &with_defaults(op, arguments(block, &inputs)?))?.remove(0);
    let ones = |t: &Tensor| rustgrad::ops::ones(&t.sizes(), t.dtype()).map(Some);
    let mut found = BTreeMap::from([("y".to_string(), values(&y))]);
    for (i, g) in gradients(&[y.clone()], &inputs, &[ones(&y)?])?.iter().enumerate() {
        found.insert(format!("g{i}"), values(g));
        for (j, h) in gradients(&[g.clone()], &inputs, &[ones(g)?])?.iter().enumerate() {
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

/// The listed differences: row with arguments, key, point, and dtype if it is one only.
fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/edge_differences.txt")).expect("the list is there");
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or_default().trim().to_string());
    lines.filter(|l| !l.is_empty()).collect()
}

#[test]
fn edge_points_agree_with_pytorch_through_the_second_derivative() {
    let (blocks, points) = recorded();
    assert!(blocks.len() > 200, "only {} blocks", blocks.len());
    let mut differing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in &blocks {
        let axis = &points[&block.operands()];
        let found = answers(block, axis).unwrap_or_else(|e| panic!("{}: {e}", block.label()));
        for (key, want) in &block.lines {
            let got = &found[key];
            for (at, (&want, &got)) in want.iter().zip(got).enumerate() {
                if agree(want, got, tolerance(block.dtype, key), smallest(block.dtype)) {
                    continue;
                }
                let step = |k: usize| axis.len().pow((block.operands() - 1 - k) as u32);
                let point: Vec<&str> = (0..block.operands()).map(|k| axis[at / step(k) % axis.len()].as_str()).collect();
                let name = format!("{} : {key} : {}", block.label(), point.join(" "));
                differing.entry(name).or_default().push(format!("{}: PyTorch {want:e}, here {got:e}", block.dtype));
            }
        }
    }
    let listed = listed();
    let new: Vec<String> = differing.iter().filter(|(name, _)| !listed.contains(*name)).map(|(name, how)| format!("{name}   # {}", how.join("; "))).collect();
    let gone: Vec<&String> = listed.iter().filter(|name| !differing.contains_key(*name)).collect();
    assert!(new.is_empty(), "{} unlisted differences:\n{}", new.len(), new.join("\n"));
    assert!(gone.is_empty(), "{} listed differences are no more:\n{gone:?}", gone.len());
}

#[test]
fn every_differentiable_elementwise_row_is_recorded() {
    let (blocks, _) = recorded();
    let recorded: BTreeSet<&str> = blocks.iter().map(|b| b.row.as_str()).collect();
    // What another recorded row computes under another signature, and what has no numbers to compare.
    let same = ["fill", "fill_tensor", "filled", "filled_with", "zeroed", "masked_fill_tensor", "round_scaled"];
    let missing = rows().filter(|op| {
        let float = matches!(&op.rule, Rule::Elementwise(rule) if rule.accept.float && !matches!(rule.promote, rustgrad::ops::formula::Promote::Bool | rustgrad::ops::formula::Promote::Logical));
        float && op.node != "NotImplemented" && !recorded.contains(op.rust) && !same.contains(&op.rust)
    });
    assert_eq!(missing.map(|op| op.rust).collect::<Vec<_>>(), [""; 0]);
}
