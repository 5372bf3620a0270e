//! Result dtypes, integer arithmetic and refusals of the elementwise rows against PyTorch's recorded answers. The differences
//! that are meant are listed with their reasons; a line of the list that matches nothing fails.

use rustgrad::ops::apply::{self, with_defaults};
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::catalogue::find;
use rustgrad::{DType, Error, Result, Scalar, Tensor};
use std::collections::HashMap;

/// Row, part of the arguments, and why the answer is another.
const DIFFERENCES: &[(&str, &str, &str)] =
    &[("erfcx", "float16", "half types are computed in float32 like everywhere else; PyTorch has no kernel")];

fn operand(values: &[i64], dtype: DType) -> Result<Tensor> {
    let values: Vec<i64> = match dtype {
        DType::Bool => values.iter().map(|v| v.rem_euclid(2)).collect(),
        DType::U8 => values.iter().map(|v| v.abs()).collect(),
        _ => values.to_vec(),
    };
    rustgrad::ops::to_dtype(&Tensor::from_slice(&values, &[values.len()])?, dtype)
}

fn number(text: &str) -> Scalar {
    match text {
        "True" => Scalar::Bool(true),
        _ => text.parse().map_or_else(|_| Scalar::Float(text.parse().expect("a number")), Scalar::Int),
    }
}

fn arguments(words: &str, values: &HashMap<&str, Vec<i64>>) -> Result<Args> {
    let mut args = Args::new();
    for word in words.split(' ') {
        let (kind, what) = word.split_once(':').unwrap_or((word, ""));
        let dtype = || DType::parse(what).expect("a dtype");
        args.push(match kind {
            "a" | "b" => Arg::Tensor(operand(&values[kind], dtype())?),
            "z" => Arg::Tensor(Tensor::scalar(Scalar::Int(3), dtype())?),
            "n" => Arg::Number(number(what)),
            "s" => Arg::Str(what.into()),
            _ => {
                let mask: Vec<i64> = (0..values["a"].len() as i64).map(|i| i % 2).collect();
                Arg::Tensor(operand(&mask, DType::Bool)?)
            }
        });
    }
    Ok(args)
}

/// Python's class for an error, and the first line.
fn refusal(e: &Error) -> (&'static str, String) {
    let class = match e {
        Error::Index { .. } => "IndexError",
        Error::Type { .. } => "TypeError",
        Error::Value { .. } => "ValueError",
        Error::NotImplemented { .. } => "NotImplementedError",
        _ => "RuntimeError",
    };
    (class, e.to_string().lines().next().unwrap_or_default().to_string())
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        DType::F32 => 3e-6,
        DType::F64 => 2e-9,
        _ => 0.0,
    }
}

/// What is wrong with our answer, if anything.
fn mismatch(answer: Result<Tensor>, want: &str) -> Option<String> {
    match (answer, want.split_once(' ').expect("a kind and an answer")) {
        (Ok(t), ("=", rest)) => {
            let (dtype, numbers) = rest.split_once(' ').expect("a dtype and numbers");
            if t.dtype().name() != dtype {
                return Some(format!("is {}, not {dtype}", t.dtype().name()));
            }
            let numbers = numbers.split(' ').map(|n| n.parse::<f64>().expect("a number"));
            let got: Vec<f64> = t.to_scalars().expect("readable").into_iter().map(Scalar::to_f64).collect();
            let near = |a: f64, b: f64| {
                a == b
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() <= tolerance(t.dtype()) * a.abs().max(b.abs()).max(1.0)
            };
            let numbers: Vec<f64> = numbers.collect();
            (!got.iter().zip(&numbers).all(|(a, b)| near(*a, *b))).then(|| format!("is {got:?}, not {numbers:?}"))
        }
        (Err(e), ("!", rest)) => {
            let (class, message) = rest.split_once(' ').expect("a class and a message");
            let (our_class, ours) = refusal(&e);
            // The names of kernels in PyTorch's messages are its own; what follows them is what people see.
            let tail = |m: &str| {
                m.find("not implemented for").map_or(m.chars().take(60).collect::<String>(), |at| m[at..].to_string())
            };
            (our_class != class || tail(&ours) != tail(message))
                .then(|| format!("refuses with {our_class}: {ours}\n    PyTorch with {class}: {message}"))
        }
        (Ok(t), _) => Some(format!("is {:?} {}; PyTorch refuses: {want}", t.to_scalars(), t.dtype())),
        (Err(e), _) => Some(format!("refuses: {e}; PyTorch answers {want}")),
    }
}

#[test]
fn dtypes_integers_and_refusals_are_those_of_pytorch() {
    let text = include_str!("data/dtype_cases.txt");
    let mut lines = text.lines().filter(|l| !l.starts_with('#'));
    let mut values: HashMap<&str, Vec<i64>> = HashMap::new();
    let (mut wrong, mut cases, mut used) = (Vec::new(), 0, vec![false; DIFFERENCES.len()]);
    while let Some(line) = lines.next() {
        if let Some((name, numbers)) = line.strip_prefix("values ").and_then(|l| l.split_once(' ')) {
            values.insert(name, numbers.split(' ').map(|n| n.parse().expect("an integer")).collect());
            continue;
        }
        let (row, words) = line.strip_prefix("row ").and_then(|l| l.split_once(' ')).expect("a row");
        let want = lines.next().expect("an answer");
        let op = find(row).unwrap_or_else(|| panic!("{row} is no row"));
        cases += 1;
        let answer =
            arguments(words, &values).and_then(|a| apply::call(op, &with_defaults(op, a))).map(|mut o| o.remove(0));
        if let Some(how) = mismatch(answer, want) {
            match DIFFERENCES.iter().position(|d| d.0 == row && words.contains(d.1)) {
                Some(at) => used[at] = true,
                None => wrong.push(format!("{row} {words} {how}")),
            }
        }
    }
    assert!(cases > 900, "only {cases} cases");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    for (difference, used) in DIFFERENCES.iter().zip(used) {
        assert!(used, "{difference:?} is no difference any more");
    }
}
