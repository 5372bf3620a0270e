//! A call as messages show it: the operation's name and its arguments, tensors by dtype and shape.

use super::args::Arg;
use super::op::Op;
use crate::tensor::Tensor;

/// So many tensors of a list are shown.
const SHOWN: usize = 8;

/// `linear(input: float32 [2, 3], weight: float32 [4, 5])`; arguments that are as their defaults are left out.
pub(crate) fn call(op: &'static Op, args: &[Arg]) -> String {
    let mut parts = Vec::new();
    for (i, (param, arg)) in op.params.iter().zip(args).enumerate() {
        let is_default = param.default.is_some() && format!("{arg:?}") == format!("{:?}", op.default(i));
        if !is_default {
            parts.push(format!("{}: {}", param.name, argument(arg)));
        }
    }
    format!("{}({})", op.name, parts.join(", "))
}

fn argument(arg: &Arg) -> String {
    match arg {
        Arg::None => "None".into(),
        Arg::Tensor(t) => tensor(t),
        Arg::Number(n) => number(n.to_f64()),
        Arg::Float(x) => number(*x),
        Arg::Int(n) => n.to_string(),
        Arg::Bool(true) => "True".into(),
        Arg::Bool(false) => "False".into(),
        Arg::Ints(list) => format!("{list:?}"),
        Arg::IntLists(lists) => format!("{lists:?}"),
        Arg::Str(text) => format!("'{text}'"),
        Arg::DType(dtype) => dtype.to_string(),
        Arg::Tensors(list) => tensors(list.len(), list.iter().map(Some)),
        Arg::OptTensors(list) => tensors(list.len(), list.iter().map(Option::as_ref)),
        Arg::Generator(_) => "Generator".into(),
    }
}

fn number(x: f64) -> String {
    if x.is_finite() && x.fract() == 0.0 && x.abs() < 1e15 { format!("{x:.0}") } else { x.to_string() }
}

/// `float32 [2, 3]`.
pub(crate) fn tensor(t: &Tensor) -> String {
    format!("{} {:?}", t.dtype(), t.sizes())
}

fn tensors<'a>(n: usize, list: impl Iterator<Item = Option<&'a Tensor>>) -> String {
    let mut parts: Vec<String> = list.take(SHOWN).map(|t| t.map_or_else(|| "None".into(), tensor)).collect();
    if n > SHOWN {
        parts.push(format!("and {} more", n - SHOWN));
    }
    format!("[{}]", parts.join(", "))
}
