//! Installing the catalogue: one generic trampoline per row and form (method, in-place method), made when the type is
//! made; functions carry their row in the capsule they are bound to.

use super::bind::{self, Given};
use super::collector::detached;
use super::error::guarded;
use super::identity::{wrap, wrap_outputs};
use super::interrupt::interruptible;
use super::tensor::PyTensor;
use crate::ops::aliases::ALIASES;
use crate::ops::apply;
use crate::ops::args::{Arg, Args};
use crate::ops::catalogue;
use crate::ops::op::{
    FUNCTION, INPLACE, INPLACE_FUNCTION, Kind, LINALG, METHOD, NN, NN_INPLACE, OUT, Op, PROPERTY, SPECIAL,
};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// How a row is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    Plain,
    InPlace,
}

/// A Python name of an operation: its overloads and the form.
pub(super) struct Entry {
    pub name: CString,
    pub overloads: Vec<&'static Op>,
    pub form: Form,
    /// Whether it is a method.
    method: bool,
}

/// From this many elements on, other Python threads run while the operation does.
const DETACH_FROM: usize = 1 << 16;

static METHODS: OnceLock<Vec<Entry>> = OnceLock::new();

/// Groups the rows that one surface shows under one name.
pub(super) fn group(surface: u16, form: Form) -> Vec<Entry> {
    let mut names: BTreeMap<String, Vec<&'static Op>> = BTreeMap::new();
    for op in catalogue::rows().filter(|op| op.surface.has(surface)) {
        let name = if form == Form::InPlace { format!("{}_", op.name) } else { op.name.to_string() };
        names.entry(name).or_default().push(op);
    }
    for alias in ALIASES.iter().filter(|a| a.surface.has(surface)) {
        let name = if form == Form::InPlace { format!("{}_", alias.name) } else { alias.name.to_string() };
        names.entry(name).or_default().extend(catalogue::rows().filter(|op| op.name == alias.of));
    }
    let entry = |(name, overloads): (String, Vec<&'static Op>)| {
        Some(Entry {
            name: CString::new(name).ok()?,
            overloads,
            form,
            method: surface & (METHOD | INPLACE | PROPERTY) != 0,
        })
    };
    names.into_iter().filter_map(entry).collect()
}

fn methods() -> &'static [Entry] {
    METHODS.get_or_init(|| {
        let mut all = group(METHOD, Form::Plain);
        all.extend(group(INPLACE, Form::InPlace));
        all.extend(group(PROPERTY, Form::Plain));
        all
    })
}

/// The row that implements an operator or another hand-written door.
pub(super) fn entry_of(name: &str) -> Option<&'static Entry> {
    methods().iter().find(|e| e.name.to_bytes() == name.as_bytes())
}

static NUMBER_FIRST: OnceLock<Vec<Entry>> = OnceLock::new();

/// The overloads of a function whose first operand may be a number, for reflected operators.
pub(super) fn number_first(name: &str) -> Option<&'static Entry> {
    let all = NUMBER_FIRST.get_or_init(|| {
        let mut entries = group(FUNCTION, Form::Plain);
        for entry in &mut entries {
            entry
                .overloads
                .retain(|op| op.params.first().is_some_and(|p| matches!(p.kind, Kind::Number | Kind::Operand)));
        }
        entries.retain(|e| !e.overloads.is_empty());
        entries
    });
    all.iter().find(|e| e.name.to_bytes() == name.as_bytes())
}

/// Runs a call that Python made.
pub(super) fn call<'py>(entry: &Entry, given: &Given<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py;
    let mut args = Args::new();
    let bind::Call { op, out } = bind::bind(&entry.overloads, given, &mut args)?;
    let args = &args;
    if entry.form == Form::InPlace {
        return guarded(|| {
            let target = apart(py, args, || apply::call_in_place(op, args))?;
            // The object itself, subclass and all, where the method was called on one.
            match given.positional.first() {
                Some(first) if bind::tensor(first).is_some_and(|t| t.is(&target)) => Ok(first.clone()),
                _ => Ok(wrap(py, &target)?.into_any()),
            }
        });
    }
    interruptible(|| {
        if let Some(out) = &out {
            if !op.surface.has(OUT) {
                return Err(PyTypeError::new_err(format!("{}() got an unexpected keyword argument 'out'", op.name)));
            }
            let result = apart(py, args, || apply::call_out(op, args, out))?;
            return Ok(wrap(py, &result)?.into_any());
        }
        let outputs = apart(py, args, || apply::call(op, args))?;
        wrap_outputs(py, op, args, outputs)
    })
}

/// Runs `f`, letting other Python threads run meanwhile if the operands are large.
pub(super) fn apart<R: Send>(py: Python<'_>, args: &Args, f: impl FnOnce() -> R + Send) -> R {
    let large = args.iter().any(|a| match a {
        Arg::Tensor(t) => t.numel() >= DETACH_FROM,
        Arg::Tensors(list) => list.iter().any(|t| t.numel() >= DETACH_FROM),
        _ => false,
    });
    if large { detached(py, f) } else { f() }
}

/// Positional arguments, of which most calls have few.
type Positional<'py> = SmallVec<[Bound<'py, PyAny>; 4]>;

/// Reads the arguments of a fastcall.
///
/// # Safety
/// The pointers must be those of a `METH_FASTCALL | METH_KEYWORDS` call.
unsafe fn read<'py>(
    py: Python<'py>,
    slf: Option<*mut ffi::PyObject>,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> PyResult<(Positional<'py>, Vec<(String, Bound<'py, PyAny>)>)> {
    // SAFETY: the interpreter passes `nargs` positional arguments, then one for each keyword name, all alive for the call.
    unsafe {
        let borrow = |p: *mut ffi::PyObject| Bound::from_borrowed_ptr(py, p);
        let n = nargs as usize;
        let mut positional = Positional::with_capacity(n + 1);
        if let Some(slf) = slf {
            positional.push(borrow(slf));
        }
        for i in 0..n {
            positional.push(borrow(*args.add(i)));
        }
        let mut keywords = Vec::new();
        if !kwnames.is_null() {
            let names = borrow(kwnames).cast_into_unchecked::<PyTuple>();
            for (k, name) in names.iter().enumerate() {
                keywords.push((name.extract::<String>()?, borrow(*args.add(n + k))));
            }
        }
        Ok((positional, keywords))
    }
}

/// Hands a result or an exception to the interpreter.
fn finish(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(obj) => obj.into_ptr(),
        Err(err) => {
            err.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// The method of entry `A * 32 + B`.
unsafe extern "C" fn method<const A: usize, const B: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, attached, by the fastcall convention.
    unsafe { run_method(A * 32 + B, slf, args, nargs, kwnames) }
}

/// # Safety
/// By the fastcall convention, attached.
unsafe fn run_method(
    number: usize,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    let entry = &methods()[number];
    // SAFETY: the caller's promise.
    let result = unsafe { read(py, Some(slf), args, nargs, kwnames) }.and_then(|(positional, keywords)| {
        call(entry, &Given { py, positional: &positional, keywords: &keywords, method: true })
    });
    finish(py, result)
}

type Trampoline = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

macro_rules! trampolines {
    ($($a:literal)*) => { [$(trampolines!(@row $a: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)),*] };
    (@row $a:literal: $($b:literal)*) => { [$(method::<$a, $b> as Trampoline),*] };
}

/// One function for each method that there may be.
static TRAMPOLINES: [[Trampoline; 32]; 32] =
    trampolines!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

/// A row's documentation as `help` shows it: rustdoc's links without their targets, its section of errors by Python's name.
fn help_text(doc: &str) -> String {
    let mut text = String::with_capacity(doc.len());
    for line in doc.lines() {
        let line = line.strip_prefix(' ').unwrap_or(line);
        let mut rest = if line == "# Errors" { "Raises:" } else { line };
        while let Some((before, after)) = rest.split_once("](") {
            let link = before.rfind('[').zip(after.split_once(')'));
            // `out[i](...)` is no link: what a link leads to is a name without arguments.
            let Some((start, (_, after))) = link.filter(|(_, (target, _))| target.contains("::")) else { break };
            text.extend([&before[..start], &before[start + 1..]]);
            rest = after;
        }
        text.push_str(rest);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn definition(name: &CString, function: Trampoline, entry: &Entry) -> PyResult<*mut ffi::PyMethodDef> {
    let op = entry.overloads[0];
    let doc = CString::new(format!("{}\n\nSignature: {}{}", help_text(op.doc), op.name, bind::signature(op)))
        .map_err(|_| PyRuntimeError::new_err("documentation with a NUL byte"))?;
    // Lives as long as the process, as the interpreter requires.
    Ok(Box::into_raw(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: Box::leak(doc.into_boxed_c_str()).as_ptr().cast::<c_char>(),
    })))
}

/// Gives the Tensor type its methods.
pub(super) fn install_methods(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PyTensor>();
    let all = methods();
    if all.len() > 1024 {
        return Err(PyRuntimeError::new_err("more methods than trampolines"));
    }
    for (k, entry) in all.iter().enumerate() {
        let def = definition(&entry.name, TRAMPOLINES[k / 32][k % 32], entry)?;
        // SAFETY: a type object and a definition that is never freed.
        let descriptor = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), def))? };
        let property = entry.overloads[0].surface.has(PROPERTY);
        let attribute =
            if property { py.import("builtins")?.getattr("property")?.call1((descriptor,))? } else { descriptor };
        class.setattr(&*entry.name.to_string_lossy(), attribute)?;
    }
    Ok(())
}

/// The function that every module-level operation is bound through; `slf` is the capsule with its entry.
unsafe extern "C" fn function(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, attached, by the fastcall convention; the capsule was made by `install_functions`.
    unsafe {
        let py = Python::assume_attached();
        let entry = ffi::PyCapsule_GetPointer(slf, ENTRY.as_ptr()).cast::<Entry>();
        if entry.is_null() {
            return std::ptr::null_mut();
        }
        let result = read(py, None, args, nargs, kwnames).and_then(|(positional, keywords)| {
            call(&*entry, &Given { py, positional: &positional, keywords: &keywords, method: false })
        });
        finish(py, result)
    }
}

const ENTRY: &std::ffi::CStr = c"rustgrad.operation";

/// Gives a module the functions of a surface.
pub(super) fn install_functions(module: &Bound<'_, PyModule>, surface: u16, form: Form) -> PyResult<()> {
    let py = module.py();
    for entry in group(surface, form) {
        debug_assert!(!entry.method);
        let entry: &'static Entry = Box::leak(Box::new(entry));
        let def = definition(&entry.name, function, entry)?;
        let name = module.name()?;
        // SAFETY: the entry lives as long as the process; the capsule only carries its address.
        let object = unsafe {
            let capsule = ffi::PyCapsule_New(std::ptr::from_ref(entry).cast_mut().cast(), ENTRY.as_ptr(), None);
            let capsule = Bound::from_owned_ptr_or_err(py, capsule)?.cast_into_unchecked::<PyCapsule>();
            Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(def, capsule.as_ptr(), name.as_ptr()))?
        };
        module.add(&*entry.name.to_string_lossy(), object)?;
    }
    Ok(())
}

/// Gives the module and its submodules their functions.
pub(super) fn install_all(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    install_methods(py)?;
    install_functions(module, FUNCTION, Form::Plain)?;
    install_functions(module, INPLACE_FUNCTION, Form::InPlace)?;
    for (name, surface, in_place) in [("_nn", NN, NN_INPLACE), ("_special", SPECIAL, 0), ("_linalg", LINALG, 0)] {
        let sub = PyModule::new(py, &format!("rustgrad._core.{name}"))?;
        install_functions(&sub, surface, Form::Plain)?;
        install_functions(&sub, in_place, Form::InPlace)?;
        module.add(name, sub)?;
    }
    Ok(())
}

static FUNCTIONS: OnceLock<Vec<Entry>> = OnceLock::new();

/// Runs a row by name on objects, as the operators do: a method, or a function where PyTorch has only that.
pub(super) fn call_named<'py>(py: Python<'py>, name: &str, args: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let function = || {
        let all = FUNCTIONS.get_or_init(|| group(FUNCTION, Form::Plain));
        all.iter().find(|e| e.name.to_bytes() == name.as_bytes())
    };
    let entry = entry_of(name).or_else(function);
    let entry = entry.ok_or_else(|| PyRuntimeError::new_err(format!("no operation '{name}'")))?;
    call(entry, &Given { py, positional: args, keywords: &[], method: true })
}
