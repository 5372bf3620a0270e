//! The one argument binder: it reads a row's parameters and turns what Python passed into [`Args`]. Names, defaults,
//! keyword-only parameters, `axis` for `dim`, sizes as separate integers, and overloads are handled here for all operations.

use super::dtype;
use super::error::ClassName;
use super::generator;
use super::tensor::PyTensor;
use crate::dtype::DType;
use crate::ops::args::{Arg, Args};
use crate::ops::op::{Kind, Op, Param, Rule};
use crate::scalar::Scalar;
use crate::shape::Dims;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};

/// The arguments of one Python call, borrowed from the interpreter.
pub(super) struct Given<'a, 'py> {
    pub py: Python<'py>,
    /// Positional arguments, `self` first for a method.
    pub positional: &'a [Bound<'py, PyAny>],
    /// Keyword arguments.
    pub keywords: &'a [(String, Bound<'py, PyAny>)],
    /// Whether the first positional argument is the object the method was called on.
    pub method: bool,
}

/// What a call is bound to.
pub(super) struct Call {
    pub op: &'static Op,
    pub out: Option<Tensor>,
}

/// Binds a call to the first overload that takes it, and its arguments into `args`.
pub(super) fn bind(overloads: &[&'static Op], given: &Given<'_, '_>, args: &mut Args) -> PyResult<Call> {
    let mut first_error = None;
    // A number for the first tensor of a formula is the last resort: overloads for numbers come first.
    for lenient in [false, true] {
        for op in overloads.iter().filter(|op| !lenient || takes_numbers(op)) {
            args.clear();
            match bind_one(op, given, lenient, args) {
                Ok(call) => return Ok(call),
                Err(Refusal::Raise(err)) => return Err(err),
                Err(Refusal::Mismatch(text)) => first_error = first_error.or(Some(text)),
            }
        }
    }
    let name = overloads.first().map_or("", |op| op.name);
    let detail = match (overloads, first_error) {
        ([_], Some(text)) => text,
        (_, text) => {
            let got: Vec<String> = given
                .positional
                .iter()
                .skip(given.method as usize)
                .map(|a| a.class_name())
                .chain(given.keywords.iter().map(|(k, v)| format!("{k}={}", v.class_name())))
                .collect();
            let expected: Vec<String> = overloads.iter().map(|op| format!(" * {}", signature(op))).collect();
            format!(
                "{name}() received an invalid combination of arguments - got ({}), but expected one of:\n{}\n{}",
                got.join(", "),
                expected.join("\n"),
                text.unwrap_or_default()
            )
        }
    };
    Err(PyTypeError::new_err(detail))
}

/// A row's signature as text, for messages.
pub(super) fn signature(op: &Op) -> String {
    let mut parts = Vec::new();
    let mut star = false;
    for p in op.params {
        if p.keyword_only && !star {
            parts.push("*".to_string());
            star = true;
        }
        let default = p.default.map(|d| format!(" = {}", python_default(d))).unwrap_or_default();
        parts.push(format!("{} {}{default}", kind_name(p.kind), p.name));
    }
    format!("({})", parts.join(", "))
}

/// A default as Python writes it.
pub(super) fn python_default(text: &str) -> String {
    match text {
        "true" => "True".into(),
        "false" => "False".into(),
        t => t.replace("- ", "-").replace('"', "'"),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Tensor | Kind::OptTensor | Kind::Index => "Tensor",
        Kind::Operand | Kind::OptOperand => "Tensor or Number",
        Kind::Number | Kind::OptNumber => "Number",
        Kind::Int | Kind::OptInt => "int",
        Kind::Float | Kind::OptFloat => "float",
        Kind::Bool | Kind::OptBool => "bool",
        Kind::Str | Kind::OptStr => "str",
        Kind::Ints | Kind::OptInts => "tuple of ints",
        Kind::IntLists => "tuple of tuples of ints",
        Kind::Dtype | Kind::OptDType => "torch.dtype",
        Kind::Tensors | Kind::OptTensors | Kind::VarTensors => "tuple of Tensors",
        Kind::OptDevice => "torch.device",
        Kind::OptGenerator => "torch.Generator",
    }
}

enum Refusal {
    /// Another overload may take the call.
    Mismatch(String),
    /// The call is wrong whatever the overload.
    Raise(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(err: PyErr) -> Self {
        Refusal::Raise(err)
    }
}

/// Keyword arguments that describe memory and do not change a result here.
const IGNORED: [&str; 3] = ["layout", "pin_memory", "sparse_grad"];

fn bind_one(op: &'static Op, given: &Given<'_, '_>, lenient: bool, args: &mut Args) -> Result<Call, Refusal> {
    let mut next = 0;
    let mut used = 0usize;
    let positional = given.positional;
    let last_positional = op.params.iter().rposition(|p| !p.keyword_only);
    for (i, param) in op.params.iter().enumerate() {
        let keyword = given.keywords.iter().position(|(k, _)| names(param, k));
        if let Some(k) = keyword {
            if !param.keyword_only && next < positional.len() {
                return Err(Refusal::Mismatch(format!(
                    "{}() got multiple values for argument '{}'",
                    op.name, param.name
                )));
            }
            used += 1;
            args.push(convert(op, i, &given.keywords[k].1, given.method, lenient)?);
        } else if !param.keyword_only && next < positional.len() {
            let takes_rest = matches!(param.kind, Kind::Ints | Kind::OptInts) && Some(i) == last_positional;
            if param.kind == Kind::VarTensors && tensor(&positional[next]).is_some() {
                let tensors: Option<Vec<Tensor>> = positional[next..].iter().map(tensor).collect();
                let Some(tensors) = tensors else { return Err(wrong_kind(op, i, &positional[next], given.method)) };
                next = positional.len();
                args.push(Arg::Tensors(tensors));
                continue;
            }
            if takes_rest && is_int(&positional[next]) {
                // Sizes or dimensions as separate integers.
                let mut ints = Dims::<i64>::new();
                for obj in &positional[next..] {
                    match int(obj)? {
                        Some(n) => ints.push(n),
                        None => return Err(wrong_kind(op, i, obj, given.method)),
                    }
                }
                next = positional.len();
                args.push(Arg::Ints(ints));
            } else {
                args.push(convert(op, i, &positional[next], given.method, lenient)?);
                next += 1;
            }
        } else if param.kind == Kind::VarTensors {
            args.push(Arg::Tensors(Vec::new()));
        } else if param.default.is_some() {
            args.push(op.default(i));
        } else {
            return Err(Refusal::Mismatch(format!(
                "{}() missing required argument: '{}' (position {})",
                op.name,
                param.name,
                i + !given.method as usize
            )));
        }
    }
    if next < positional.len() {
        // `view()` and its like take an empty list as no argument at all, all others take no more than they declare.
        let n = last_positional.map_or(0, |l| l + 1) - given.method as usize;
        return Err(Refusal::Mismatch(format!(
            "{}() takes {n} positional argument{} but {} were given",
            op.name,
            if n == 1 { "" } else { "s" },
            positional.len() - given.method as usize
        )));
    }
    let mut out = None;
    if used < given.keywords.len() {
        for (k, (name, value)) in given.keywords.iter().enumerate() {
            if let Some(param) = op.params.iter().find(|p| names(p, name)) {
                // By its own name and by numpy's.
                if given.keywords[..k].iter().any(|(before, _)| names(param, before)) {
                    let text = format!("{}() got multiple values for argument '{}'", op.name, param.name);
                    return Err(Refusal::Mismatch(text));
                }
                continue;
            }
            match name.as_str() {
                "out" if value.is_none() => {}
                "out" => match value.cast::<PyTensor>() {
                    Ok(t) => out = Some(t.get().tensor.clone()),
                    Err(_) => {
                        return Err(Refusal::Mismatch(format!(
                            "{}(): argument 'out' must be Tensor, not {}",
                            op.name,
                            value.class_name()
                        )));
                    }
                },
                n if IGNORED.contains(&n) => {}
                n => return Err(Refusal::Mismatch(format!("{}() got an unexpected keyword argument '{n}'", op.name))),
            }
        }
    }
    Ok(Call { op, out })
}

/// Whether a keyword names a parameter: by its own name, or by numpy's.
fn names(param: &Param, keyword: &str) -> bool {
    param.name == keyword
        || match keyword {
            "axis" => param.name == "dim",
            "axes" => param.name == "dims",
            "keepdims" => param.name == "keepdim",
            "self" | "x" | "x1" | "a" => param.name == "input",
            "x2" => param.name == "other",
            _ => false,
        }
}

#[cold]
fn wrong_kind(op: &Op, i: usize, obj: &Bound<'_, PyAny>, method: bool) -> Refusal {
    let param = &op.params[i];
    let position = if param.keyword_only { String::new() } else { format!(" (position {})", i + !method as usize) };
    Refusal::Mismatch(format!(
        "{}(): argument '{}'{position} must be {}, not {}",
        op.name,
        param.name,
        kind_name(param.kind),
        obj.class_name()
    ))
}

fn convert(op: &'static Op, i: usize, obj: &Bound<'_, PyAny>, method: bool, lenient: bool) -> Result<Arg, Refusal> {
    let kind = op.params[i].kind;
    match arg(kind, obj)? {
        Some(arg) => Ok(arg),
        // `torch.mul(2.0, x)`: as a function, an operation of several operands takes a number for the first one too.
        None if i == 0 && !method && lenient => match number(obj)? {
            Some(n) if matches!(op.rule, Rule::Elementwise(_)) => Ok(Arg::Number(n)),
            Some(n) => {
                let t = Tensor::scalar(n, n.dtype(crate::tensor::default_dtype())).map_err(PyErr::from)?;
                Ok(Arg::Tensor(t))
            }
            None => Err(wrong_kind(op, i, obj, method)),
        },
        None => Err(wrong_kind(op, i, obj, method)),
    }
}

/// Whether a row combines two operands of which the second may be a number, so that the first may be one as well.
fn takes_numbers(op: &Op) -> bool {
    let formula = matches!(op.rule, Rule::Elementwise(_));
    op.params.get(1).is_some_and(|p| if formula { p.kind.is_operand() } else { matches!(p.kind, Kind::Operand) })
}

/// A Python object as an argument of a kind; `None` if it is not of that kind.
pub(super) fn arg(kind: Kind, obj: &Bound<'_, PyAny>) -> PyResult<Option<Arg>> {
    Ok(match kind {
        Kind::Tensor | Kind::Index => tensor(obj).map(Arg::Tensor),
        Kind::OptTensor if obj.is_none() => Some(Arg::None),
        Kind::OptTensor => tensor(obj).map(Arg::Tensor),
        Kind::OptOperand if obj.is_none() => Some(Arg::None),
        Kind::Operand | Kind::OptOperand => match tensor(obj) {
            Some(t) => Some(Arg::Tensor(t)),
            None => number(obj)?.map(Arg::Number),
        },
        Kind::OptNumber if obj.is_none() => Some(Arg::None),
        Kind::Number | Kind::OptNumber => match number(obj)? {
            Some(s) => Some(Arg::Number(s)),
            None => scalar_tensor(obj)?.map(Arg::Number),
        },
        Kind::OptInt if obj.is_none() => Some(Arg::None),
        Kind::Int | Kind::OptInt => int(obj)?.map(Arg::Int),
        Kind::OptFloat if obj.is_none() => Some(Arg::None),
        Kind::Float | Kind::OptFloat => match number(obj)? {
            Some(s) => Some(Arg::Float(s.to_f64())),
            None => scalar_tensor(obj)?.map(|s| Arg::Float(s.to_f64())),
        },
        Kind::OptBool if obj.is_none() => Some(Arg::None),
        Kind::Bool | Kind::OptBool => obj.cast::<PyBool>().ok().map(|b| Arg::Bool(b.is_true())),
        Kind::OptStr if obj.is_none() => Some(Arg::None),
        Kind::Str | Kind::OptStr => match obj.cast::<PyString>() {
            Ok(s) => Some(Arg::Str(s.to_cow()?.into())),
            Err(_) => None,
        },
        Kind::OptInts if obj.is_none() => Some(Arg::None),
        Kind::Ints | Kind::OptInts => ints(obj)?.map(Arg::Ints),
        Kind::IntLists => match sequence(obj) {
            Some(items) => items.iter().map(ints).collect::<PyResult<Option<Vec<_>>>>()?.map(Arg::IntLists),
            None => None,
        },
        Kind::OptDType if obj.is_none() => Some(Arg::None),
        Kind::Dtype | Kind::OptDType => dtype::extract(obj).map(Arg::DType),
        Kind::OptDevice | Kind::OptGenerator if obj.is_none() => Some(Arg::None),
        // There is one device; what matters is that the one asked for is it.
        Kind::OptDevice => {
            dtype::available(obj)?;
            Some(Arg::None)
        }
        Kind::OptGenerator => generator::extract(obj).map(Arg::Generator),
        Kind::VarTensors => match (tensor(obj), sequence(obj)) {
            (Some(t), _) => Some(Arg::Tensors(vec![t])),
            (None, Some(items)) => items.iter().map(tensor).collect::<Option<Vec<_>>>().map(Arg::Tensors),
            (None, None) => None,
        },
        Kind::Tensors => match sequence(obj) {
            Some(items) => items.iter().map(tensor).collect::<Option<Vec<_>>>().map(Arg::Tensors),
            None => None,
        },
        Kind::OptTensors => match sequence(obj) {
            Some(items) => items
                .iter()
                .map(|o| if o.is_none() { Some(None) } else { tensor(o).map(Some) })
                .collect::<Option<Vec<_>>>()
                .map(Arg::OptTensors),
            None => None,
        },
    })
}

/// The tensor behind an object.
#[inline]
pub(super) fn tensor(obj: &Bound<'_, PyAny>) -> Option<Tensor> {
    obj.cast::<PyTensor>().ok().map(|t| t.get().tensor.clone())
}

/// A number: Python's own, or numpy's.
#[inline]
pub(super) fn number(obj: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    // SAFETY: type checks on a valid object.
    unsafe {
        let ptr = obj.as_ptr();
        if ffi::PyFloat_CheckExact(ptr) != 0 {
            return Ok(Some(Scalar::Float(ffi::PyFloat_AS_DOUBLE(ptr))));
        }
    }
    if let Ok(b) = obj.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(b.is_true())));
    }
    if obj.cast::<PyInt>().is_ok() {
        return Ok(Some(Scalar::Int(long(obj)?)));
    }
    if let Ok(x) = obj.cast::<PyFloat>() {
        return Ok(Some(Scalar::Float(x.value())));
    }
    foreign_number(obj)
}

/// A numpy scalar.
#[cold]
fn foreign_number(obj: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if obj.cast::<PyTensor>().is_ok() || obj.cast::<PyString>().is_ok() || !is_numpy_scalar(obj)? {
        return Ok(None);
    }
    number(&obj.call_method0("item")?)
}

/// Whether it is an instance of numpy's scalar type. Numpy is not imported for the question.
pub(super) fn is_numpy_scalar(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = obj.py().import("sys")?.getattr("modules")?;
    match modules.get_item("numpy") {
        Ok(numpy) => obj.is_instance(&numpy.getattr("generic")?),
        Err(_) => Ok(false),
    }
}

/// What is said of an integer that does not fit int64.
pub(super) const TOO_LONG: &str = "Overflow when unpacking long long: the integer does not fit 64 bits";

fn long(obj: &Bound<'_, PyAny>) -> PyResult<i64> {
    obj.extract::<i64>().map_err(|_| PyOverflowError::new_err(TOO_LONG))
}

/// A tensor of one element where a number is expected.
fn scalar_tensor(obj: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    match tensor(obj) {
        Some(t) if t.numel() == 1 && !t.requires_grad() => Ok(Some(t.item()?)),
        _ => Ok(None),
    }
}

fn is_int(obj: &Bound<'_, PyAny>) -> bool {
    (obj.cast::<PyInt>().is_ok() && obj.cast::<PyBool>().is_err()) || (!is_plain(obj) && index(obj).is_some())
}

/// Whether an object is one that cannot stand for an integer, so that asking it is not worth the while.
fn is_plain(obj: &Bound<'_, PyAny>) -> bool {
    obj.is_none()
        || obj.cast::<PyTuple>().is_ok()
        || obj.cast::<PyList>().is_ok()
        || obj.cast::<PyString>().is_ok()
        || obj.cast::<PyFloat>().is_ok()
        || obj.cast::<PyBool>().is_ok()
}

/// An integer through `__index__` (numpy's integers, integer tensors of one element).
fn index(obj: &Bound<'_, PyAny>) -> Option<i64> {
    if let Some(t) = tensor(obj) {
        return if t.numel() == 1 && !t.dtype().is_float() && t.dtype() != DType::Bool {
            t.item().ok().map(|s| s.to_i64())
        } else {
            None
        };
    }
    // SAFETY: a valid object; the result is owned or null with an error set, which is cleared.
    let number = unsafe {
        if ffi::PyIndex_Check(obj.as_ptr()) == 0 {
            return None;
        }
        let ptr = ffi::PyNumber_Index(obj.as_ptr());
        if ptr.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Bound::from_owned_ptr(obj.py(), ptr)
    };
    number.extract::<i64>().ok()
}

/// An integer; truth values are not.
#[inline]
pub(super) fn int(obj: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if obj.cast::<PyBool>().is_ok() {
        return Ok(None);
    }
    if obj.cast::<PyInt>().is_ok() {
        return long(obj).map(Some);
    }
    Ok(if is_plain(obj) { None } else { index(obj) })
}

/// A list or tuple of integers, or one integer.
pub(super) fn ints(obj: &Bound<'_, PyAny>) -> PyResult<Option<Dims<i64>>> {
    if let Some(n) = int(obj)? {
        return Ok(Some(Dims::from_slice(&[n])));
    }
    let Some(items) = sequence(obj) else { return Ok(None) };
    let mut out = Dims::new();
    for item in &items {
        match int(item)? {
            Some(n) => out.push(n),
            None => return Ok(None),
        }
    }
    Ok(Some(out))
}

/// The items of a list or tuple.
pub(super) fn sequence<'py>(obj: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(t) = obj.cast::<PyTuple>() {
        return Some(t.iter().collect());
    }
    obj.cast::<PyList>().ok().map(|l| l.iter().collect())
}
