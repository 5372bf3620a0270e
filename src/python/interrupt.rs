//! Ctrl-C: what the interpreter knows of a signal that came in while Rust code runs, and the doors behind which long kernels
//! stop for it.

use super::error::{carry, guarded};
use crate::error::Result;
use crate::threads::{self, Forked};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// What is asked in the middle of a kernel, found beforehand.
struct Signals {
    /// Tells which Python function handles a signal. It is written in C: calling it runs no Python code.
    handler_of: Py<PyAny>,
    /// The number of the signal.
    interrupt: Py<PyAny>,
    /// The handler that raises `KeyboardInterrupt`.
    raising: Py<PyAny>,
    /// The thread that Python interrupts, if it is known, and the process in which it is that.
    main: Option<ThreadId>,
    process: Forked,
}

static SIGNALS: OnceLock<Signals> = OnceLock::new();

/// From now on kernels stop when the user interrupts.
pub(super) fn install(py: Python<'_>) -> PyResult<()> {
    let signals = py.import("_signal")?;
    let threading = py.import("threading")?;
    let is_main = threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    let _ = SIGNALS.set(Signals {
        handler_of: signals.getattr("getsignal")?.unbind(),
        interrupt: signals.getattr("SIGINT")?.unbind(),
        raising: signals.getattr("default_int_handler")?.unbind(),
        main: is_main.then(|| thread::current().id()),
        process: Forked::here(),
    });
    crate::autograd::engine::set_interrupt_hook(check);
    threads::set_stop_hook(is_interrupted);
    Ok(())
}

/// Runs the handlers of signals that have come in; what one of them raises stops a backward.
fn check() -> Result<()> {
    call_python(|py| py.check_signals())
}

/// Calls Python code, a hook for one, from Rust. What that calls in turn has doors of its own: a kernel that is stopped there
/// unwinds no further.
pub(super) fn call_python<R>(f: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    threads::asking_nobody(|| Python::attach(f)).map_err(carry)
}

/// Whether a signal has come in that will raise `KeyboardInterrupt` on this thread. It stays where it is: kernels hold guards,
/// so that no handler may run before they have ended, and a handler that raises nothing must not cost a result.
fn is_interrupted() -> bool {
    let Some(signals) = SIGNALS.get() else { return false };
    let elsewhere = signals.main.is_some_and(|main| main != thread::current().id());
    // To ask costs the interpreter's lock, for which others may wait.
    if elsewhere && !signals.process.since() {
        return false;
    }
    // SAFETY: the interpreter is alive while its main thread is in a call. None of these functions runs Python code, nor
    // drops objects, whose finalizers might.
    unsafe {
        let state = ffi::PyGILState_Ensure();
        let answer = signals.is_pending();
        ffi::PyGILState_Release(state);
        answer
    }
}

impl Signals {
    /// # Safety
    /// The thread is attached.
    unsafe fn is_pending(&self) -> bool {
        // SAFETY: the caller's promise, and a function with its argument.
        unsafe {
            let handler = ffi::PyObject_CallOneArg(self.handler_of.as_ptr(), self.interrupt.as_ptr());
            if handler.is_null() {
                ffi::PyErr_Clear();
                return false;
            }
            let raises = handler == self.raising.as_ptr();
            // Whoever handles the signal keeps it.
            ffi::Py_DECREF(handler);
            if !raises || ffi::PyOS_InterruptOccurred() == 0 {
                return false;
            }
            // The question has taken the signal off the list.
            ffi::PyErr_SetInterrupt();
            true
        }
    }
}

/// [`guarded`] for code in which a kernel may take long: if the user interrupts, it stops, and the call raises
/// `KeyboardInterrupt`.
pub(super) fn interruptible<R>(f: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    guarded(|| threads::asking_user(f))
}

/// What a kernel that was stopped is to Python.
#[cold]
pub(super) fn raised() -> PyErr {
    Python::attach(|py| match py.check_signals() {
        Err(raised) => raised,
        // The handler was replaced meanwhile. The result is lost all the same.
        Ok(()) => PyKeyboardInterrupt::new_err(()),
    })
}
