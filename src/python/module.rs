//! What the extension module holds.

use super::{
    callsite, collector, data, dispatch, dtype, engine, function, generator, graph, interrupt, numpy, observe, report,
    saved, tensor,
};
use crate::autograd::mode;
use crate::dtype::{DType, Promotion};
use crate::storage;
use crate::tensor::{default_dtype, set_default_dtype};
use crate::threads;
use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::CString;

/// Whether recording is switched on for this thread.
#[pyfunction]
fn is_grad_enabled() -> bool {
    mode::is_grad_switched_on()
}

#[pyfunction]
fn _set_grad_enabled(mode: bool) {
    self::mode::set_grad_enabled(mode);
}

/// Whether this thread is in inference mode.
#[pyfunction]
fn is_inference_mode_enabled() -> bool {
    mode::is_inference_mode()
}

#[pyfunction]
fn _set_inference_mode(mode: bool) -> bool {
    self::mode::set_inference_mode(mode)
}

/// Whether backwards that this thread starts may run on several threads.
#[pyfunction]
fn _is_multithreading_enabled() -> bool {
    mode::is_multithreading_enabled()
}

#[pyfunction]
fn _set_multithreading_enabled(enabled: bool) -> bool {
    mode::set_multithreading_enabled(enabled)
}

#[pyfunction]
fn _set_grad_layout_policy(enforced: bool) -> bool {
    mode::set_enforces_grad_layout(enforced)
}

/// The dtype of floats that do not say theirs.
#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Bound<'_, dtype::PyDType>> {
    dtype::object(py, default_dtype())
}

/// Sets the dtype of floats that do not say theirs.
#[pyfunction(name = "set_default_dtype")]
fn set_default(d: &Bound<'_, PyAny>) -> PyResult<()> {
    match dtype::extract(d) {
        Some(d) => Ok(set_default_dtype(d)?),
        None => Err(PyTypeError::new_err(
            "invalid dtype object: only floating-point types are supported as the default type",
        )),
    }
}

fn want_dtype(obj: &Bound<'_, PyAny>) -> PyResult<DType> {
    dtype::extract(obj).ok_or_else(|| PyTypeError::new_err(format!("expected a torch.dtype, got {}", obj.get_type())))
}

/// The dtype that holds the values of both.
#[pyfunction]
fn promote_types<'py>(type1: &Bound<'py, PyAny>, type2: &Bound<'py, PyAny>) -> PyResult<Bound<'py, dtype::PyDType>> {
    dtype::object(type1.py(), want_dtype(type1)?.promote(want_dtype(type2)?))
}

/// Whether a value of one dtype may be written to another.
#[pyfunction]
fn can_cast(from_: &Bound<'_, PyAny>, to: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(want_dtype(from_)?.can_cast(want_dtype(to)?))
}

/// The dtype of an operation on two operands.
#[pyfunction]
fn result_type<'py>(tensor1: &Bound<'py, PyAny>, tensor2: &Bound<'py, PyAny>) -> PyResult<Bound<'py, dtype::PyDType>> {
    let mut p = Promotion::default();
    for obj in [tensor1, tensor2] {
        match (super::bind::tensor(obj), super::bind::number(obj)?) {
            (Some(t), _) => p.tensor(t.dtype(), t.rank()),
            (None, Some(s)) => p.number(s.category(), default_dtype()),
            (None, None) => {
                return Err(PyTypeError::new_err(format!(
                    "result_type(): expected a tensor or a number, got {}",
                    obj.get_type()
                )));
            }
        }
    }
    dtype::object(tensor1.py(), p.result(default_dtype()))
}

/// How the extension was built: profile, LTO, CPU features in use.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("profile", env!("RUSTGRAD_PROFILE"))?;
    info.set_item("debug_assertions", cfg!(debug_assertions))?;
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    let features: Vec<&str> = if crate::backend::cpu::has_fma() { vec!["avx2", "fma"] } else { vec![] };
    info.set_item("cpu_features", PyTuple::new(py, features)?)?;
    Ok(info)
}

/// The type stubs of the extension, by file name.
#[pyfunction]
fn _stubs(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let files = PyDict::new(py);
    for (name, text) in super::stubs::files() {
        files.set_item(name, text)?;
    }
    Ok(files)
}

/// How many threads may work at once, the calling one included.
#[pyfunction]
fn get_num_threads() -> usize {
    threads::num_threads()
}

/// Sets how many threads may work at once, the calling one included; at once, and for all threads of the program.
#[pyfunction]
fn _set_num_threads(threads: usize) -> PyResult<()> {
    Ok(self::threads::set_num_threads(threads)?)
}

/// Ends the pool's threads, before the interpreter does.
#[pyfunction]
fn _end_threads(py: Python<'_>) {
    collector::detached(py, threads::shutdown);
}

/// Begins to note who does what when in backwards and shared kernels. False if that is under way.
#[pyfunction]
fn _trace_begin() -> bool {
    crate::threads::trace::begin()
}

/// Ends it: events `(lane, kind, what, begin, end)`, times in nanoseconds; and the lane of the calling thread.
#[pyfunction]
fn _trace_end() -> (u32, Vec<(u32, &'static str, String, u64, u64)>) {
    let events = crate::threads::trace::end();
    (crate::threads::trace::lane(), events.into_iter().map(|e| (e.lane, e.kind, e.what, e.begin, e.end)).collect())
}

#[pyfunction]
fn _memory_cached() -> usize {
    storage::cached_bytes()
}

#[pyfunction]
fn _memory_cache_limit() -> usize {
    storage::cache_limit()
}

#[pyfunction]
fn _memory_set_cache_limit(bytes: usize) {
    storage::set_cache_limit(bytes);
}

#[pyfunction]
fn _memory_empty_cache() {
    storage::empty_cache();
}

/// Whether a number fills the whole of a float dtype's range: its limits, for `finfo`.
#[pyfunction]
fn _float_limits(py: Python<'_>, d: &Bound<'_, PyAny>) -> PyResult<Py<PyTuple>> {
    let (bits, eps, max, tiny, smallest, resolution) = match want_dtype(d)? {
        DType::F16 => (16, 2f64.powi(-10), 65504.0, 2f64.powi(-14), 2f64.powi(-24), 1e-3),
        DType::BF16 => (16, 2f64.powi(-7), f64::from(half::bf16::MAX), 2f64.powi(-126), 2f64.powi(-133), 1e-2),
        DType::F32 => {
            (32, f64::from(f32::EPSILON), f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), 2f64.powi(-149), 1e-6)
        }
        DType::F64 => (64, f64::EPSILON, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-15),
        other => {
            return Err(PyTypeError::new_err(format!(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{}'",
                other.name()
            )));
        }
    };
    Ok((bits, eps, max, tiny, smallest, resolution).into_pyobject(py)?.unbind())
}

/// Lets other Python threads run while this one waits for another's kernel to let go of a tensor.
fn wait(probe: &mut dyn FnMut() -> bool) {
    // SAFETY: asks about the calling thread only.
    let attached = unsafe { ffi::Py_IsInitialized() != 0 && ffi::PyGILState_Check() == 1 };
    if !attached {
        while !probe() {
            std::thread::yield_now();
        }
        return;
    }
    while !probe() {
        Python::attach(|py| py.detach(std::thread::yield_now));
    }
}

/// Fills the module.
pub(super) fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    storage::set_wait_hook(wait);
    threads::watch_forks();
    if let Err(text) = threads::environment() {
        let text = CString::new(text).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)?;
    }
    interrupt::install(py)?;
    callsite::install(m)?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<graph::PyNode>()?;
    m.add_class::<graph::PyHandle>()?;
    m.add_class::<report::StorageRef>()?;
    m.add_class::<saved::PySavedTensor>()?;
    collector::init(m)?;
    m.add_class::<dtype::PyDType>()?;
    m.add_class::<dtype::PyDevice>()?;
    m.add_class::<generator::PyGenerator>()?;
    m.add("default_generator", generator::PyGenerator(crate::ops::random::Generator::default()))?;
    for d in DType::ALL {
        m.add(d.name(), dtype::object(py, d)?)?;
    }
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    macro_rules! functions {
        ($($f:path),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    functions![
        is_grad_enabled,
        _set_grad_enabled,
        is_inference_mode_enabled,
        _set_inference_mode,
        _is_multithreading_enabled,
        _set_multithreading_enabled,
        _set_grad_layout_policy,
        get_default_dtype,
        set_default,
        promote_types,
        can_cast,
        result_type,
        build_info,
        _stubs,
        get_num_threads,
        _set_num_threads,
        _end_threads,
        _trace_begin,
        _trace_end,
        _memory_cached,
        _memory_cache_limit,
        _memory_set_cache_limit,
        _memory_empty_cache,
        _float_limits,
        tensor::_set_size_type,
        data::tensor,
        data::as_tensor,
        data::_tensor_from_bytes,
        data::_rebuild_tensor,
        data::set_printoptions,
        numpy::from_numpy,
        numpy::frombuffer,
        generator::manual_seed,
        generator::seed,
        generator::initial_seed,
        generator::get_rng_state,
        generator::set_rng_state,
        function::_function_apply,
        function::_function_saved,
        function::_refuse_second,
        graph::_grad_fn,
        engine::backward,
        engine::grad,
        observe::_push_nonfinite_tracer,
        observe::_push_observer,
        observe::_pop_observer,
        observe::_node_location,
        report::_node_saved,
        report::_node_hooks,
        report::_storage_of,
        report::_upcoming_sequence_nr,
        report::_memory_large,
        saved::_push_saved_tensors_hooks,
        saved::_pop_saved_tensors_hooks,
        saved::_gradient_edge,
        saved::_increment_version,
        saved::_current_graph_task_id,
        saved::_will_engine_execute_node,
        saved::_is_checkpoint_valid,
        saved::_gradient_probe,
        saved::_queue_callback,
        saved::_set_write_watch
    ];
    py.import("atexit")?.call_method1("register", (m.getattr("_end_threads")?,))?;
    dispatch::install_all(m)
}
