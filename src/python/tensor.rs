//! The `Tensor` class: Python's protocol for it. Methods that are operations are not here; they are installed from the
//! catalogue.

use super::bind::{self, number};
use super::collector::{self, detached};
use super::dispatch::call_named;
use super::error::{ClassName, guarded, name_of};
use super::identity::{self, Slot, wrap, wrap_new};
use super::interrupt::interruptible;
use super::{copying, data, dtype, engine, graph, index, numpy, private};
use crate::dtype::DType;
use crate::ops::apply;
use crate::ops::elementwise as e;
use crate::ops::op::Op;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyTuple, PyType};

/// An n-dimensional array with autograd.
#[pyclass(subclass, dict, weakref, frozen, name = "Tensor", module = "rustgrad")]
pub(super) struct PyTensor {
    pub tensor: Tensor,
    pub slot: Slot,
}

impl PyTensor {
    #[inline]
    pub(super) fn new(tensor: Tensor) -> PyTensor {
        PyTensor { tensor, slot: Slot::default() }
    }
}

impl Drop for PyTensor {
    fn drop(&mut self) {
        self.slot.clear(&self.tensor.0.python);
    }
}

/// Carries a Rust tensor into `Tensor.__new__`.
#[pyclass(frozen, module = "rustgrad")]
pub(super) struct Carrier(pub Tensor);

static SIZE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Tells which class `shape` returns; the package sets it once.
#[pyfunction]
pub(super) fn _set_size_type(py: Python<'_>, class: Py<PyAny>) {
    let _ = SIZE.set(py, class);
}

/// Sizes as Python sees them.
pub(super) fn size<'py>(py: Python<'py>, sizes: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let tuple = PyTuple::new(py, sizes)?;
    let Some(class) = SIZE.get(py) else { return Ok(tuple.into_any()) };
    let args = PyTuple::new(py, [tuple])?;
    // SAFETY: the class is a subclass of tuple without fields; what its own `__new__` adds, a check that all are integers,
    // is not needed here and takes longer than everything else.
    unsafe {
        match ffi::PyTuple_Type.tp_new {
            Some(new) => {
                Bound::from_owned_ptr_or_err(py, new(class.as_ptr().cast(), args.as_ptr(), std::ptr::null_mut()))
            }
            None => class.bind(py).call1(args),
        }
    }
}

/// A binary operator: tensors and numbers go straight to the operation.
#[inline]
fn operator<'py>(
    op: &'static Op,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let a = &slf.get().tensor;
    if let Ok(b) = other.cast::<PyTensor>() {
        let b = &b.get().tensor;
        let result = guarded(|| {
            if let Some(out) = apply::small_binary(op, a, b)? {
                return Ok(out);
            }
            let large = a.numel() >= 1 << 16 || b.numel() >= 1 << 16;
            let run = || apply::binary(op, a, b);
            interruptible(|| Ok(if large { detached(py, run)? } else { run()? }))
        })?;
        return Ok(wrap_new(py, result)?.into_any());
    }
    match number(other)? {
        Some(n) => {
            let result = guarded(|| {
                if let Some(out) = apply::small_binary_number(op, a, n)? {
                    return Ok(out);
                }
                let run = || apply::binary_number(op, a, n);
                interruptible(|| Ok(if a.numel() >= 1 << 16 { detached(py, run)? } else { run()? }))
            })?;
            Ok(wrap_new(py, result)?.into_any())
        }
        None => operator_foreign(op.name, slf, other),
    }
}

/// An operator with something that is neither tensor nor number: a numpy array becomes a tensor, for the rest Python may
/// look elsewhere.
#[cold]
fn operator_foreign<'py>(
    name: &str,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    match numpy::as_operand(other)? {
        Some(t) => call_named(slf.py(), name, &[slf.clone().into_any(), wrap(slf.py(), &t)?.into_any()]),
        None => Ok(slf.py().NotImplemented().into_bound(slf.py())),
    }
}

/// An operator that has no fast path.
fn named<'py>(name: &str, slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if other.cast::<PyTensor>().is_ok() || number(other)?.is_some() {
        return call_named(slf.py(), name, &[slf.clone().into_any(), other.clone()]);
    }
    operator_foreign(name, slf, other)
}

/// A reflected operator: `other op self`, `other` being a number or an array.
fn reflected<'py>(name: &str, slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let left = match (number(other)?, numpy::as_operand(other)?) {
        (Some(n), _) => {
            if let Some(entry) = super::dispatch::number_first(name) {
                let given = [other.clone(), slf.clone().into_any()];
                return super::dispatch::call(
                    entry,
                    &bind::Given { py, positional: &given, keywords: &[], method: false },
                );
            }
            // Without an overload for it, the number becomes a 0-d tensor, which ranks below dimensions as numbers do.
            Tensor::scalar(n, n.dtype(scalar_dtype(&slf.get().tensor)))?
        }
        (None, Some(t)) => t,
        (None, None) => return Ok(py.NotImplemented().into_bound(py)),
    };
    call_named(py, name, &[wrap(py, &left)?.into_any(), slf.clone().into_any()])
}

/// The dtype of a float number beside a tensor: the tensor's own if it is a float.
fn scalar_dtype(t: &Tensor) -> DType {
    if t.dtype().is_float() { t.dtype() } else { crate::tensor::default_dtype() }
}

/// An in-place operator.
fn in_place(name: &str, slf: &Bound<'_, PyTensor>, other: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let other = if other.cast::<PyTensor>().is_ok() || number(other)?.is_some() {
        other.clone()
    } else {
        match numpy::as_operand(other)? {
            Some(t) => wrap(py, &t)?.into_any(),
            None => other.clone(),
        }
    };
    call_named(py, name, &[slf.clone().into_any(), other]).map(drop)
}

fn one_element(t: &Tensor, what: &str) -> PyResult<Scalar> {
    if t.numel() != 1 && matches!(what, "float" | "int" | "complex") {
        return Err(PyValueError::new_err("only one element tensors can be converted to Python scalars"));
    }
    if t.requires_grad() && what != "item" && what != "bool" {
        Python::attach(|py| {
            let text = c"Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first.";
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)
        })?;
    }
    Ok(t.item()?)
}

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    #[classmethod]
    fn __new__(
        class: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyTensor> {
        if let Ok(first) = args.get_item(0)
            && let Ok(carrier) = first.cast::<Carrier>()
        {
            return Ok(PyTensor::new(carrier.get().0.clone()));
        }
        let _ = (class, kwargs);
        data::legacy(args).map(PyTensor::new)
    }

    /// An object that Python itself made (`Tensor([1.0])`, a subclass) becomes its tensor's own.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __init__(slf: &Bound<'_, Self>, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) {
        if identity::alive::<PyTensor>(slf.py(), &slf.get().tensor.0.python).is_none() {
            identity::register(slf);
        }
    }

    /// A tensor object of a subclass over the values of `data`.
    #[classmethod]
    #[pyo3(signature = (cls, data, require_grad=false))]
    fn _make_subclass<'py>(
        _class: &Bound<'py, PyType>,
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyTensor>,
        require_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = data.get().tensor.detach();
        if require_grad && !t.dtype().is_float() {
            let text = "Only Tensors of floating point and complex dtype can require gradients";
            return Err(PyRuntimeError::new_err(text));
        }
        t.set_requires_grad(require_grad)?;
        make_instance(cls, t)
    }

    // ---- what it is ------------------------------------------------------------------------------------------------

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size(py, &self.tensor.sizes())
    }
    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let sizes = self.tensor.sizes();
        match dim {
            None => size(py, &sizes),
            Some(_) if sizes.is_empty() => {
                Err(PyIndexError::new_err("Dimension specified as 0 but tensor has no dimensions"))
            }
            Some(d) => Ok(sizes[crate::shape::wrap_dim("size", d, sizes.len())?].into_pyobject(py)?.into_any()),
        }
    }
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let strides = self.tensor.body().layout.strides.clone();
        match dim {
            None => Ok(PyTuple::new(py, &strides[..])?.into_any()),
            Some(d) if strides.is_empty() => {
                Err(PyIndexError::new_err(format!("Dimension specified as {d} but tensor has no dimensions")))
            }
            Some(d) => Ok(strides[crate::shape::wrap_dim("stride", d, strides.len())?].into_pyobject(py)?.into_any()),
        }
    }
    fn storage_offset(&self) -> usize {
        self.tensor.body().layout.offset
    }
    fn dim(&self) -> usize {
        self.tensor.rank()
    }
    fn ndimension(&self) -> usize {
        self.tensor.rank()
    }
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.rank()
    }
    fn numel(&self) -> usize {
        self.tensor.numel()
    }
    fn nelement(&self) -> usize {
        self.tensor.numel()
    }
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, dtype::PyDType>> {
        dtype::object(py, self.tensor.dtype())
    }
    #[getter]
    fn device(&self) -> dtype::PyDevice {
        dtype::cpu()
    }
    #[getter]
    fn layout(&self) -> &'static str {
        "torch.strided"
    }
    #[getter]
    fn itemsize(&self) -> usize {
        self.tensor.dtype().size()
    }
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.numel() * self.tensor.dtype().size()
    }
    fn element_size(&self) -> usize {
        self.tensor.dtype().size()
    }
    #[pyo3(signature = (memory_format=None))]
    fn is_contiguous(&self, memory_format: Option<&str>) -> PyResult<bool> {
        private::is_contiguous(&self.tensor, memory_format.unwrap_or_default())
    }
    fn is_floating_point(&self) -> bool {
        self.tensor.dtype().is_float()
    }
    fn is_complex(&self) -> bool {
        false
    }
    fn is_signed(&self) -> bool {
        !matches!(self.tensor.dtype(), DType::Bool | DType::U8)
    }
    fn is_inference(&self) -> bool {
        self.tensor.is_inference()
    }
    #[getter]
    fn is_cuda(&self) -> bool {
        false
    }
    #[getter]
    fn is_cpu(&self) -> bool {
        true
    }
    #[getter]
    fn is_sparse(&self) -> bool {
        false
    }
    #[getter]
    fn is_meta(&self) -> bool {
        false
    }
    #[getter]
    fn is_quantized(&self) -> bool {
        false
    }
    #[getter]
    fn is_nested(&self) -> bool {
        false
    }
    fn data_ptr(&self) -> usize {
        let body = self.tensor.body();
        if body.layout.numel() == 0 { 0 } else { body.storage.ptr() as usize + body.layout.offset * body.dtype.size() }
    }
    fn _storage_id(&self) -> usize {
        self.tensor.body().storage.ptr() as usize
    }
    fn _storage_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pyo3::types::PyBytes::new(py, &data::storage_bytes(&self.tensor)).into_any())
    }

    // ---- autograd --------------------------------------------------------------------------------------------------

    #[getter]
    fn requires_grad(&self) -> bool {
        self.tensor.requires_grad()
    }
    #[setter]
    fn set_requires_grad(&self, on: &Bound<'_, PyAny>) -> PyResult<()> {
        private::set_requires_grad(&self.tensor, on)
    }
    #[deleter]
    fn delete_requires_grad(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("requires_grad must be a bool"))
    }
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().tensor.set_requires_grad(requires_grad)?;
        Ok(slf.clone())
    }
    #[getter]
    fn is_leaf(&self) -> bool {
        self.tensor.is_leaf()
    }
    #[getter]
    fn grad_fn<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.tensor.grad_fn()?.node().map(|n| graph::wrap_node(py, n)).transpose()
    }
    #[getter]
    fn output_nr(&self) -> u32 {
        self.tensor.grad_fn_as_is().nr
    }
    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        let grad = self.tensor.grad();
        if grad.is_none() && self.tensor.requires_grad() && !self.tensor.is_leaf() && !self.tensor.retains_grad() {
            let text = c"The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead.";
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), text, 1)?;
        }
        grad.map(|g| wrap(py, &g)).transpose()
    }
    #[setter]
    fn set_grad(&self, grad: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let grad = match grad {
            None => None,
            Some(g) => match g.cast::<PyTensor>() {
                Ok(t) => Some(t.get().tensor.clone()),
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "assigned grad expected to be a Tensor or None but got grad of type {}",
                        g.class_name()
                    )));
                }
            },
        };
        Ok(self.tensor.set_grad(grad)?)
    }
    #[deleter]
    fn delete_grad(&self) -> PyResult<()> {
        Ok(self.tensor.set_grad(None)?)
    }
    #[getter]
    fn retains_grad(&self) -> bool {
        self.tensor.retains_grad()
    }
    fn retain_grad(&self) -> PyResult<()> {
        Ok(self.tensor.retain_grad()?)
    }
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap_new(py, self.tensor.data())
    }
    #[setter]
    fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match value.cast::<PyTensor>() {
            Ok(t) => Ok(self.tensor.set_data(&t.get().tensor)?),
            Err(_) => {
                Err(PyTypeError::new_err(format!("Variable data has to be a tensor, but got {}", value.class_name())))
            }
        }
    }
    #[deleter]
    fn delete_data(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("Deleting tensor data is not allowed. Delete tensor instead!"))
    }
    #[getter]
    fn _grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        self.tensor.grad().map(|g| wrap(py, &g)).transpose()
    }
    #[setter]
    #[pyo3(name = "_grad")]
    fn set_private_grad(&self, grad: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.set_grad(grad)
    }
    #[getter]
    fn _backward_hooks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        private::backward_hooks(py, &self.tensor)
    }
    #[getter]
    fn _post_accumulate_grad_hooks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        private::post_accumulate_grad_hooks(py, &self.tensor)
    }
    fn _use_count(&self) -> usize {
        private::use_count(&self.tensor)
    }
    #[getter]
    fn _version(&self) -> PyResult<u32> {
        if self.tensor.is_inference() {
            return Err(PyRuntimeError::new_err("Inference tensors do not track version counter."));
        }
        Ok(self.tensor.version())
    }
    #[getter]
    fn _base<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        self.tensor.base().map(|b| wrap(py, &b)).transpose()
    }
    fn _is_view(&self) -> bool {
        self.tensor.is_view()
    }
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap_new(py, self.tensor.detach())
    }
    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().tensor.detach_()?;
        Ok(slf.clone())
    }
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        slf: &Bound<'_, Self>,
        gradient: Option<&Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        engine::tensor_backward(slf, gradient, retain_graph, create_graph, inputs)
    }
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<graph::PyHandle> {
        graph::register_tensor_hook(&self.tensor, hook)
    }
    fn register_post_accumulate_grad_hook(&self, hook: Py<PyAny>) -> PyResult<graph::PyHandle> {
        graph::register_post_hook(&self.tensor, hook)
    }

    // ---- conversion ------------------------------------------------------------------------------------------------

    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::scalar_object(py, one_element(&self.tensor, "item")?)
    }
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::to_list(py, &self.tensor)
    }
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(&self, py: Python<'py>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        numpy::to_numpy(py, &self.tensor, force)
    }
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        numpy::array(py, &self.tensor, dtype, copy)
    }
    #[classattr]
    fn __array_ufunc__() -> Option<i32> {
        None
    }
    #[classattr]
    fn __array_priority__() -> i32 {
        1000
    }
    #[pyo3(signature = (*args, **kwargs))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        data::to(slf, args, kwargs)
    }
    #[pyo3(signature = (dtype=None, non_blocking=false))]
    fn r#type<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        non_blocking: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = non_blocking;
        data::type_of(slf, dtype)
    }
    #[pyo3(signature = (memory_format=None))]
    fn cpu<'py>(slf: &Bound<'py, Self>, memory_format: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        data::in_format(slf, memory_format.unwrap_or_default())
    }
    #[pyo3(signature = (*_args, **_kwargs))]
    fn cuda(&self, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        Err(pyo3::exceptions::PyAssertionError::new_err("Torch not compiled with CUDA enabled"))
    }

    // ---- Python's protocol -----------------------------------------------------------------------------------------

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let name = name_of(&class);
        let prefix = if name == "Tensor" || name == "Parameter" || name == "Buffer" {
            "tensor(".to_string()
        } else {
            format!("{name}(")
        };
        Ok(slf.get().tensor.to_repr_named(&data::print_options(), &prefix))
    }
    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
        let t = &slf.get().tensor;
        if t.rank() == 0 && !spec.is_empty() {
            return slf.get().item(slf.py())?.call_method1("__format__", (spec,));
        }
        if t.rank() == 0 && !slf.get_type().is_subclass_of::<PyTensor>()? {
            return Ok(slf.str()?.into_any());
        }
        if t.rank() == 0 {
            return slf.get().item(slf.py())?.call_method1("__format__", (spec,));
        }
        slf.str()?.call_method1("__format__", (spec,))
    }
    fn __len__(&self) -> PyResult<usize> {
        self.tensor.sizes().first().copied().ok_or_else(|| PyTypeError::new_err("len() of a 0-d tensor"))
    }
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        data::iterate(py, &self.tensor)
    }
    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().tensor.rank() == 0 {
            return Ok(slf.clone().into_any());
        }
        slf.call_method1("flip", (0,))
    }
    fn __contains__(slf: &Bound<'_, Self>, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        if element.cast::<PyTensor>().is_ok() || number(element)?.is_some() {
            let equal = named("eq", slf, element)?;
            return equal.call_method0("any")?.call_method0("item")?.extract();
        }
        Err(PyRuntimeError::new_err(format!(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a {}.",
            element.get_type()
        )))
    }
    fn __bool__(&self) -> PyResult<bool> {
        match self.tensor.numel() {
            1 => Ok(one_element(&self.tensor, "bool")?.to_bool()),
            0 => Err(PyRuntimeError::new_err("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(PyRuntimeError::new_err("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }
    fn __float__(&self) -> PyResult<f64> {
        Ok(one_element(&self.tensor, "float")?.to_f64())
    }
    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match one_element(&self.tensor, "int")? {
            Scalar::Float(x) => PyFloat::new(py, x).call_method0("__int__"),
            other => Ok(other.to_i64().into_pyobject(py)?.into_any()),
        }
    }
    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let x = one_element(&self.tensor, "complex")?.to_f64();
        Ok(pyo3::types::PyComplex::from_doubles(py, x, 0.0).into_any())
    }
    fn __index__(&self) -> PyResult<i64> {
        if self.tensor.numel() != 1
            || self.tensor.dtype().is_float()
            || self.tensor.dtype() == DType::Bool && self.tensor.rank() > 0
        {
            return Err(PyTypeError::new_err("only integer tensors of a single element can be converted to an index"));
        }
        Ok(self.tensor.item()?.to_i64())
    }
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        (slf.as_ptr() as usize >> 4) as isize
    }
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        index::get(slf, key)
    }
    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        index::set(slf, key, value)
    }
    fn __delitem__(&self, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err("Tensor does not support deleting items"))
    }
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let comparable = other.cast::<PyTensor>().is_ok() || number(other)?.is_some() || numpy::is_array(other)?;
        if !comparable {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let name = match op {
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        };
        named(name, slf, other)
    }
    fn __reduce_ex__<'py>(slf: &Bound<'py, Self>, protocol: i32) -> PyResult<Bound<'py, PyAny>> {
        data::reduce(slf, protocol)
    }
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        copying::deep(slf, memo)
    }
    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        copying::shallow(slf)
    }

    // ---- operators -------------------------------------------------------------------------------------------------

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::ADD, slf, other)
    }
    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::ADD, slf, other)
    }
    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::SUB, slf, other)
    }
    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("rsub", slf, other)
    }
    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::MUL, slf, other)
    }
    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::MUL, slf, other)
    }
    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operator(&e::DIV, slf, other)
    }
    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if number(other)?.is_some() {
            let reciprocal = call_named(slf.py(), "reciprocal", &[slf.clone().into_any()])?;
            return call_named(slf.py(), "mul", &[reciprocal, other.clone()]);
        }
        reflected("div", slf, other)
    }
    fn __floordiv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("floor_divide", slf, other)
    }
    fn __rfloordiv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        reflected("floor_divide", slf, other)
    }
    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("remainder", slf, other)
    }
    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        reflected("remainder", slf, other)
    }
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = modulo;
        named("pow", slf, other)
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = modulo;
        reflected("pow", slf, other)
    }
    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if number(other)?.is_some() {
            return Ok(slf.py().NotImplemented().into_bound(slf.py()));
        }
        named("matmul", slf, other)
    }
    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match (number(other)?, numpy::as_operand(other)?) {
            (None, Some(t)) => {
                call_named(slf.py(), "matmul", &[wrap(slf.py(), &t)?.into_any(), slf.clone().into_any()])
            }
            _ => Ok(slf.py().NotImplemented().into_bound(slf.py())),
        }
    }
    fn __and__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_and", slf, other)
    }
    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_and", slf, other)
    }
    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_or", slf, other)
    }
    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_or", slf, other)
    }
    fn __xor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_xor", slf, other)
    }
    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_xor", slf, other)
    }
    fn __lshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_left_shift", slf, other)
    }
    fn __rlshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        reflected("bitwise_left_shift", slf, other)
    }
    fn __rshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        named("bitwise_right_shift", slf, other)
    }
    fn __rrshift__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        reflected("bitwise_right_shift", slf, other)
    }
    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        call_named(slf.py(), "neg", &[slf.clone().into_any()])
    }
    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        call_named(slf.py(), "positive", &[slf.clone().into_any()])
    }
    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        call_named(slf.py(), "abs", &[slf.clone().into_any()])
    }
    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        call_named(slf.py(), "bitwise_not", &[slf.clone().into_any()])
    }
    fn __iadd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("add_", slf, other)
    }
    fn __isub__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("sub_", slf, other)
    }
    fn __imul__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("mul_", slf, other)
    }
    fn __itruediv__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("div_", slf, other)
    }
    fn __ifloordiv__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("floor_divide_", slf, other)
    }
    fn __imod__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("remainder_", slf, other)
    }
    fn __ipow__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, modulo: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = modulo;
        in_place("pow_", slf, other)
    }
    fn __iand__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("bitwise_and_", slf, other)
    }
    fn __ior__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("bitwise_or_", slf, other)
    }
    fn __ixor__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("bitwise_xor_", slf, other)
    }
    fn __ilshift__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("bitwise_left_shift_", slf, other)
    }
    fn __irshift__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place("bitwise_right_shift_", slf, other)
    }

    #[getter]
    fn real<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    // ---- garbage collection ----------------------------------------------------------------------------------------

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if !self.slot.is_made() {
            return Ok(());
        }
        collector::traverse_tensor(&self.tensor, &visit)
    }
    fn __clear__(&self) {
        collector::clear_tensor(&self.tensor);
    }
}

/// An object of a subclass around a tensor.
pub(super) fn make_instance<'py>(class: &Bound<'py, PyType>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let base = py.get_type::<PyTensor>();
    let carrier = Bound::new(py, Carrier(t))?;
    let object = base.getattr("__new__")?.call1((class, carrier))?;
    identity::register(object.cast::<PyTensor>()?);
    Ok(object)
}

/// Raises if a tensor may not leave the graph, which it may where nothing is recorded.
pub(super) fn refuse_history(t: &Tensor) -> PyResult<()> {
    if t.requires_grad() && crate::autograd::is_grad_enabled() {
        return Err(PyRuntimeError::new_err(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ));
    }
    Ok(())
}
