//! Nested sequences of Python become a tensor: lists, tuples and whatever has a length and items, of numbers and of tensors. Which
//! shape they have, which dtype they ask for, and what does not fit.

use super::bind::{self, sequence};
use super::data::VALUES_PER_POLL;
use super::error::ClassName;
use super::numpy;
use crate::dtype::{Category, DType};
use crate::scalar::Scalar;
use crate::shape::{Layout, checked_numel};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor, default_dtype};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

/// More levels than this are taken for a mistake (a list that contains itself), before the stack ends.
const MAX_DEPTH: usize = 128;

/// A tensor of what nested sequences hold, of the dtype that they ask for if none is given.
pub(super) fn from_sequences(obj: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    let mut gathered = Gathered::default();
    gather(obj, 0, &mut gathered)?;
    let dtype = dtype.unwrap_or_else(|| gathered.result());
    build(&gathered, dtype)
}

/// What nested sequences hold.
#[derive(Default)]
struct Gathered {
    sizes: Vec<usize>,
    values: Vec<Scalar>,
    /// The dtype that the values ask for; numbers of Python ask by category only.
    dtype: Option<DType>,
    category: Option<Category>,
    /// Whether there are integers that do not fit int64. They stand among the values as floats.
    has_too_long: bool,
}

impl Gathered {
    fn push(&mut self, s: Scalar, dtype: Option<DType>) {
        self.values.push(s);
        match dtype {
            Some(d) => self.dtype = Some(self.dtype.map_or(d, |e| e.promote(d))),
            None => self.category = Some(self.category.map_or(s.category(), |c| c.max(s.category()))),
        }
    }

    /// The dtype of the whole.
    fn result(&self) -> DType {
        let number = self.category.map(|c| match c {
            Category::Bool => DType::Bool,
            Category::Int => DType::I64,
            Category::Float => default_dtype(),
        });
        match (self.dtype, number) {
            (Some(a), Some(b)) => a.promote(b),
            (Some(a), None) => a,
            (None, Some(b)) => b,
            (None, None) => default_dtype(),
        }
    }
}

fn gather(obj: &Bound<'_, PyAny>, depth: usize, out: &mut Gathered) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "too many dimensions '{}': data is nested more than {MAX_DEPTH} deep",
            obj.class_name()
        )));
    }
    // Most data is numbers of Python's own, which need no more questions.
    let plain = obj.is_exact_instance_of::<PyFloat>()
        || obj.is_exact_instance_of::<PyInt>()
        || obj.is_exact_instance_of::<PyBool>();
    if !plain && let Some(t) = bind::tensor(obj) {
        return gather_tensor(&t, depth, out);
    }
    if !plain && let Some(items) = items(obj)? {
        if out.sizes.len() == depth {
            if !out.values.is_empty() {
                return Err(PyTypeError::new_err(format!(
                    "not a sequence: expected a number at dim {depth}, got {}",
                    obj.class_name()
                )));
            }
            out.sizes.push(items.len());
        } else if out.sizes[depth] != items.len() {
            return Err(PyValueError::new_err(format!(
                "expected sequence of length {} at dim {depth} (got {})",
                out.sizes[depth],
                items.len()
            )));
        }
        for item in &items {
            gather(item, depth + 1, out)?;
        }
        return Ok(());
    }
    if depth < out.sizes.len() {
        return Err(PyTypeError::new_err(format!(
            "expected a sequence of length {} at dim {depth}, got {}",
            out.sizes[depth],
            obj.class_name()
        )));
    }
    let numpy_dtype = if !plain && bind::is_numpy_scalar(obj)? {
        Some(numpy::copy_of(&obj.py().import("numpy")?.call_method1("asarray", (obj,))?)?.dtype())
    } else {
        None
    };
    let number = match bind::number(obj) {
        // It does not fit int64, and may fit a float.
        Err(_) if obj.is_exact_instance_of::<PyInt>() => {
            out.values.push(Scalar::Float(obj.extract()?));
            out.category = out.category.max(Some(Category::Int));
            out.has_too_long = true;
            return Ok(());
        }
        number => number?,
    };
    match number {
        Some(s) => {
            out.push(s, numpy_dtype);
            if out.values.len().is_multiple_of(VALUES_PER_POLL) {
                obj.py().check_signals()?;
            }
            Ok(())
        }
        None if obj.cast::<PyString>().is_ok() => {
            Err(PyTypeError::new_err(format!("new(): invalid data type '{}'", obj.class_name())))
        }
        None => Err(PyRuntimeError::new_err(format!("Could not infer dtype of {}", obj.class_name()))),
    }
}

fn gather_tensor(t: &Tensor, depth: usize, out: &mut Gathered) -> PyResult<()> {
    // One element is a number, whatever its dimensions.
    if t.numel() == 1 && depth == out.sizes.len() {
        out.push(t.item()?, Some(t.dtype()));
        return Ok(());
    }
    if !out.values.is_empty() && out.sizes.len() == depth {
        return Err(PyValueError::new_err("only one element tensors can be converted to Python scalars"));
    }
    for (d, &n) in t.sizes().iter().enumerate() {
        if out.sizes.len() == depth + d {
            out.sizes.push(n);
        } else if out.sizes[depth + d] != n {
            return Err(PyValueError::new_err(format!(
                "expected sequence of length {} at dim {} (got {n})",
                out.sizes[depth + d],
                depth + d
            )));
        }
    }
    if depth + t.rank() < out.sizes.len() {
        return Err(PyTypeError::new_err("expected a sequence, got a tensor of fewer dimensions"));
    }
    let dtype = t.dtype();
    t.to_scalars()?.into_iter().for_each(|s| out.push(s, Some(dtype)));
    Ok(())
}

/// The items of a sequence: lists and tuples, and whatever has a length and items (arrays, ranges).
fn items<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if let Some(items) = sequence(obj) {
        return Ok(Some(items));
    }
    let plain = obj.cast::<PyFloat>().is_ok()
        || obj.cast::<PyInt>().is_ok()
        || obj.cast::<PyBool>().is_ok()
        || obj.cast::<PyString>().is_ok()
        || obj.cast::<PyDict>().is_ok();
    if plain || !obj.hasattr("__len__")? || !obj.hasattr("__getitem__")? {
        return Ok(None);
    }
    if numpy::is_array(obj)? && obj.getattr("ndim")?.extract::<usize>()? == 0 {
        return Ok(None);
    }
    match obj.len() {
        Ok(n) => (0..n).map(|i| obj.get_item(i)).collect::<PyResult<_>>().map(Some),
        Err(_) => Ok(None),
    }
}

fn build(g: &Gathered, dtype: DType) -> PyResult<Tensor> {
    let n = checked_numel("tensor", &g.sizes)?;
    if n != g.values.len() {
        return Err(PyValueError::new_err(format!(
            "expected {n} values for shape {:?}, got {}",
            g.sizes,
            g.values.len()
        )));
    }
    let whole = dtype.category() == Category::Int;
    if whole && g.has_too_long {
        return Err(PyValueError::new_err(bind::TOO_LONG));
    }
    let storage = Storage::uninit("tensor", n * dtype.size())?;
    for (i, &v) in g.values.iter().enumerate() {
        if whole && !fits(v, dtype) {
            return Err(PyRuntimeError::new_err(format!(
                "value cannot be converted to type {} without overflow",
                dtype.name()
            )));
        }
        crate::backend::cpu::memory::set_element(&storage, i, dtype, v);
    }
    Ok(Tensor::from_body(Body::new(storage, Layout::contiguous(g.sizes[..].into()), dtype)))
}

/// Whether a value can be one of an integer dtype; fractions are cut off, and of uint8 the negatives count from its end.
fn fits(value: Scalar, dtype: DType) -> bool {
    let (low, high) = match dtype {
        DType::U8 => (0, 255),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    match value {
        Scalar::Bool(_) => true,
        Scalar::Int(x) => (if dtype == DType::U8 { -255 } else { low }..=high).contains(&x),
        // The largest int64 is none of the floats; the next is one too many.
        Scalar::Float(x) => x >= low as f64 && if high == i64::MAX { x < high as f64 } else { x <= high as f64 },
    }
}
