//! Places in the user's Python program: which line runs now, at the cost of a few loads, and how to print it later. Code of
//! this package is stepped over: users want to know their own line.

use crate::callsite::{CallSite, Language, Line, set_language};
use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Code objects that were seen, each kept alive, so that an address stands for one piece of code for ever.
#[derive(Default)]
struct Units {
    codes: Vec<Py<PyAny>>,
    by_address: HashMap<usize, u32>,
}

/// As many code objects are remembered; places in later ones are not known. A program that goes on making code must not be
/// kept from freeing it.
const MOST_UNITS: usize = 1 << 16;

/// Marks code of this package.
const INTERNAL: u32 = 1 << 31;

static UNITS: Mutex<Option<Units>> = Mutex::new(None);

/// The folder of this package, with a separator behind it.
static PACKAGE: OnceLock<String> = OnceLock::new();

struct Entry {
    code: AtomicPtr<ffi::PyCodeObject>,
    unit: AtomicU32,
}

/// The units of code that ran lately, by address. Read and written attached.
static LATELY: [Entry; 256] =
    [const { Entry { code: AtomicPtr::new(std::ptr::null_mut()), unit: AtomicU32::new(0) } }; 256];

thread_local! {
    /// The place of a call that runs while other Python threads do, when no frame may be looked at.
    static HELD: Cell<Option<CallSite>> = const { Cell::new(None) };
}

/// Runs `f` while other Python threads run; what it records is said to be from the present line.
pub(super) fn detached<R: Send>(py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
    struct Restore(Option<CallSite>);
    impl Drop for Restore {
        fn drop(&mut self) {
            HELD.set(self.0);
        }
    }
    let _restore = Restore(HELD.replace(Some(here())));
    py.detach(f)
}

/// The user's line that runs on this thread now.
fn here() -> CallSite {
    if let Some(held) = HELD.get() {
        return held;
    }
    // SAFETY: threads come into the extension attached, and leave the interpreter through `detached` alone
    // (tests/architecture.rs holds that), where the place is held. Asking each time would cost more than all the rest here.
    unsafe {
        debug_assert_eq!(ffi::PyGILState_Check(), 1);
        innermost()
    }
}

/// # Safety
/// The calling thread is attached.
#[inline]
unsafe fn innermost() -> CallSite {
    // SAFETY: attached. The frame that runs is alive while we are in it.
    unsafe {
        let frame = ffi::PyEval_GetFrame();
        if frame.is_null() {
            return CallSite::default();
        }
        let unit = unit_of(frame);
        if unit & INTERNAL == 0 { at(frame, unit) } else { outside(frame) }
    }
}

/// # Safety
/// A living frame; attached.
#[inline]
unsafe fn at(frame: *mut ffi::PyFrameObject, unit: u32) -> CallSite {
    // SAFETY: the caller's promise.
    let offset = unsafe { ffi::PyFrame_GetLasti(frame) };
    if unit == 0 || offset < 0 { CallSite::default() } else { CallSite { unit, offset: offset as u32 } }
}

/// The nearest frame below this one that is not of this package.
///
/// # Safety
/// A living frame; attached.
#[cold]
unsafe fn outside(frame: *mut ffi::PyFrameObject) -> CallSite {
    // SAFETY: a frame holds the one below it, and each is released once.
    unsafe {
        let mut frame = ffi::PyFrame_GetBack(frame);
        while !frame.is_null() {
            let unit = unit_of(frame);
            let site = at(frame, unit);
            let back = if unit & INTERNAL == 0 { std::ptr::null_mut() } else { ffi::PyFrame_GetBack(frame) };
            ffi::Py_DECREF(frame.cast());
            if unit & INTERNAL == 0 {
                return site;
            }
            frame = back;
        }
    }
    CallSite::default()
}

/// The number of the code that a frame runs; 0 if there are too many.
///
/// # Safety
/// A living frame; attached.
#[inline]
unsafe fn unit_of(frame: *mut ffi::PyFrameObject) -> u32 {
    // SAFETY: the frame holds its code, and what is remembered is alive for ever.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame);
        let entry = &LATELY[(code as usize >> 5) % LATELY.len()];
        let unit = if entry.code.load(Ordering::Relaxed) == code {
            entry.unit.load(Ordering::Relaxed)
        } else {
            let code = Bound::from_borrowed_ptr(Python::assume_attached(), code.cast());
            let unit = remember(&code);
            if unit != 0 {
                entry.code.store(code.as_ptr().cast(), Ordering::Relaxed);
                entry.unit.store(unit, Ordering::Relaxed);
            }
            unit
        };
        ffi::Py_DECREF(code.cast());
        unit
    }
}

#[cold]
fn remember(code: &Bound<'_, PyAny>) -> u32 {
    let address = code.as_ptr() as usize;
    let known = |units: &Units| units.by_address.get(&address).copied();
    if let Some(unit) = UNITS.lock().as_ref().and_then(known) {
        return unit;
    }
    // Asked without the lock, as Python may run.
    let internal = is_internal(code).unwrap_or(false);
    let mut units = UNITS.lock();
    let units = units.get_or_insert_default();
    if let Some(unit) = known(units) {
        return unit;
    }
    if units.codes.len() >= MOST_UNITS {
        return 0;
    }
    units.codes.push(code.clone().unbind());
    let unit = units.codes.len() as u32 | if internal { INTERNAL } else { 0 };
    units.by_address.insert(address, unit);
    unit
}

/// Whether code belongs to this package, or to no file that a user could open.
fn is_internal(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let file: String = code.getattr("co_filename")?.extract()?;
    Ok(file.starts_with("<frozen") || PACKAGE.get().is_some_and(|folder| file.starts_with(folder)))
}

fn describe(site: CallSite) -> Option<Line> {
    Python::attach(|py| {
        let code = UNITS.lock().as_ref()?.codes.get(site.unit as usize - 1)?.clone_ref(py);
        // SAFETY: a code object.
        let number = unsafe { ffi::PyCode_Addr2Line(code.as_ptr().cast(), site.offset as i32) };
        let code = code.bind(py);
        let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
        let function = code.getattr("co_qualname").ok()?.extract().ok()?;
        let text = py.import("linecache").and_then(|m| m.call_method1("getline", (&file, number)));
        let text = text.and_then(|t| t.extract::<String>()).ok();
        let text = text.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        Some(Line { file, number: number.max(0) as u32, function, text })
    })
}

/// Lets the crate know the lines of Python programs.
pub(super) fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The extension lies in the package's folder.
    if let Ok(file) = module.filename()
        && let Some(end) = file.to_str()?.rfind(std::path::MAIN_SEPARATOR)
    {
        let _ = PACKAGE.set(file.to_str()?[..=end].to_owned());
    }
    set_language(Language { here, describe });
    Ok(())
}
