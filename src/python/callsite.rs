//! Places in the user's Python program: which line runs now, at the cost of a few loads, and how to print it later. Code of
//! this package is stepped over: users want to know their own line.

use super::error;
use crate::callsite::{CallSite, Language, Line, set_language};
use crate::sync::lock::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, Ordering};

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

/// Runs `f` while other Python threads run; what it records is said to be from the present line.
pub(super) fn detached<R: Send>(py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
    let _held = CallSite::hold(CallSite::here());
    py.detach(f)
}

/// The user's line that runs on this thread now.
fn here() -> CallSite {
    // SAFETY: threads come into the extension attached, and leave the interpreter through `detached` alone
    // (tests/architecture.rs holds that), where the place is held, as it is in the pool's threads. Asking each time would
    // cost more than all the rest here.
    unsafe {
        debug_assert_eq!(ffi::PyGILState_Check(), 1);
        innermost()
    }
}

/// # Safety
/// The calling thread is attached.
#[inline]
unsafe fn innermost() -> CallSite {
    let first = FIRST_INSTRUCTION.load(Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { if first != 0 { in_frames(cpython_3_11::running(), first) } else { in_frame_objects() } }
}

/// Frames of CPython 3.11 as they lie in memory. The public functions make an object of each frame that is looked at, and check
/// what cannot be otherwise here; reading two fields takes a third of the time, and this is done for each node. Other
/// versions, and a 3.11 in which the two ways do not agree, take the public functions.
mod cpython_3_11 {
    use pyo3::ffi;

    /// `PyThreadState.cframe`, `_PyCFrame.current_frame`.
    const CFRAME: usize = 56;
    const CURRENT: usize = 8;
    /// `_PyInterpreterFrame.f_code`, `.previous`, `.prev_instr`.
    const CODE: usize = 32;
    const PREVIOUS: usize = 48;
    const INSTRUCTION: usize = 56;

    unsafe extern "C" {
        fn _PyThreadState_UncheckedGet() -> *mut ffi::PyThreadState;
    }

    /// A frame, or null.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) struct Frame(*const u8);

    /// # Safety
    /// Memory of that type lies there.
    #[inline(always)]
    unsafe fn field<T: Copy>(object: *const u8, offset: usize) -> T {
        // SAFETY: the caller's promise; objects are aligned.
        unsafe { object.add(offset).cast::<T>().read() }
    }

    /// The frame that runs.
    ///
    /// # Safety
    /// CPython 3.11, attached.
    #[inline(always)]
    pub(super) unsafe fn running() -> Frame {
        // SAFETY: an attached thread has a state, and that a current C frame.
        unsafe { Frame(field(field(_PyThreadState_UncheckedGet().cast(), CFRAME), CURRENT)) }
    }

    impl Frame {
        #[inline(always)]
        pub(super) fn is_null(self) -> bool {
            self.0.is_null()
        }

        /// The frame below, the code, and how many bytes behind the code object's start the last instruction lies.
        ///
        /// # Safety
        /// A living frame of CPython 3.11.
        #[inline(always)]
        pub(super) unsafe fn read(self) -> (Frame, *mut ffi::PyCodeObject, isize) {
            // SAFETY: the caller's promise.
            unsafe {
                let code: *mut ffi::PyCodeObject = field(self.0, CODE);
                let instruction: *const u8 = field(self.0, INSTRUCTION);
                (Frame(field(self.0, PREVIOUS)), code, instruction.addr().wrapping_sub(code.addr()) as isize)
            }
        }
    }
}

/// Where instructions begin in a code object of CPython 3.11, in bytes; 0 if frames are not to be read directly.
static FIRST_INSTRUCTION: AtomicIsize = AtomicIsize::new(0);

/// Finds where instructions begin, if this is CPython 3.11 and the frames that run say the same either way.
fn learn_frames(py: Python<'_>) {
    let version = py.version_info();
    if (version.major, version.minor) != (3, 11) || Python::version_str().contains("PyPy") {
        return;
    }
    // SAFETY: attached; this is 3.11, and its frames are alive while we are in them.
    unsafe {
        let mut object = Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast());
        let mut frame = cpython_3_11::running();
        let mut first = 0;
        let mut agreed = 0;
        while let (Some(public), false) = (&object, frame.is_null()) {
            let (below, code, offset) = frame.read();
            let public_code = Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(public.as_ptr().cast()).cast());
            let begins = offset - ffi::PyFrame_GetLasti(public.as_ptr().cast()) as isize;
            if public_code.as_ptr() != code.cast() || begins <= 0 || (agreed > 0 && begins != first) {
                return;
            }
            first = begins;
            agreed += 1;
            let next = Bound::from_owned_ptr_or_opt(py, ffi::PyFrame_GetBack(public.as_ptr().cast()).cast());
            (object, frame) = (next, below);
        }
        // One frame fits any distance.
        if agreed > 1 && object.is_none() && frame.is_null() {
            FIRST_INSTRUCTION.store(first, Ordering::Relaxed);
        }
    }
}

/// The place in the nearest frame that is not of this package.
///
/// # Safety
/// A frame of CPython 3.11, or null; attached.
#[inline]
unsafe fn in_frames(mut frame: cpython_3_11::Frame, first: isize) -> CallSite {
    while !frame.is_null() {
        // SAFETY: the frame that runs and those below it are alive.
        let (below, code, offset) = unsafe { frame.read() };
        // SAFETY: a frame holds its code.
        let unit = unsafe { unit_of(code) };
        if unit & INTERNAL == 0 {
            return at(unit, offset - first);
        }
        frame = below;
    }
    CallSite::default()
}

/// The same by Python's public functions.
///
/// # Safety
/// The calling thread is attached.
#[cold]
#[inline(never)]
unsafe fn in_frame_objects() -> CallSite {
    // SAFETY: attached. The frame that runs is alive while we are in it, and holds those below it; each reference that is
    // given to us is released once.
    unsafe {
        let mut frame = ffi::PyEval_GetFrame();
        ffi::Py_XINCREF(frame.cast());
        while !frame.is_null() {
            let code = ffi::PyFrame_GetCode(frame);
            let unit = unit_of(code);
            ffi::Py_DECREF(code.cast());
            let offset = ffi::PyFrame_GetLasti(frame) as isize;
            let below = if unit & INTERNAL == 0 { std::ptr::null_mut() } else { ffi::PyFrame_GetBack(frame) };
            ffi::Py_DECREF(frame.cast());
            if unit & INTERNAL == 0 {
                return at(unit, offset);
            }
            frame = below;
        }
    }
    CallSite::default()
}

#[inline]
fn at(unit: u32, offset: isize) -> CallSite {
    if unit == 0 || offset < 0 { CallSite::default() } else { CallSite { unit, offset: offset as u32 } }
}

/// The number of a piece of code; 0 if there are too many.
///
/// # Safety
/// A living code object; attached.
#[inline(always)]
unsafe fn unit_of(code: *mut ffi::PyCodeObject) -> u32 {
    let entry = &LATELY[(code as usize >> 5) % LATELY.len()];
    if entry.code.load(Ordering::Relaxed) == code {
        entry.unit.load(Ordering::Relaxed)
    } else {
        // SAFETY: the caller's promise.
        unsafe { unit_of_another(code, entry) }
    }
}

/// # Safety
/// As for [`unit_of`].
#[cold]
#[inline(never)]
unsafe fn unit_of_another(code: *mut ffi::PyCodeObject, entry: &Entry) -> u32 {
    // SAFETY: the caller's promise; what is remembered is alive for ever.
    let unit = unsafe { remember(&Bound::from_borrowed_ptr(Python::assume_attached(), code.cast())) };
    if unit != 0 {
        entry.code.store(code, Ordering::Relaxed);
        entry.unit.store(unit, Ordering::Relaxed);
    }
    unit
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
        let text = error::unless_it_fails(py, text.and_then(|t| t.extract::<String>()));
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
    learn_frames(module.py());
    set_language(Language { here, describe });
    Ok(())
}
