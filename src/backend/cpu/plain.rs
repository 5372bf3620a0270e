//! The commonest case of an elementwise run: operands that are the whole index space, one element after another, in the
//! format in which kernels compute. Kernels run on memory as it is. Small calls come here directly, with operands whose
//! types say that they may be read ([`Source`]) or written ([`Sink`]) without waiting for anybody.

use super::element;
use super::elementwise::{Executable, element_ptr};
use super::shared::Shared;
use super::vm::{self, BLOCK, Compiled, Machine};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::shape::numel;
use crate::storage::{Guards, Reading, Storage};
use crate::threads;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Range;

/// How many inputs, or outputs, a small run takes.
const SMALL_OPERANDS: usize = 4;

/// Values that nobody writes while this lives, one after another.
pub struct Source<'a> {
    ptr: *const u8,
    /// How many there are.
    n: usize,
    dtype: DType,
    _guard: Option<Reading<'a>>,
    _life: PhantomData<&'a u8>,
}

impl<'a> Source<'a> {
    /// `n` values from element `offset` on, guarded; nothing if somebody is writing them now, or may without asking, or if
    /// there are not as many.
    #[inline(always)]
    pub fn guarded(storage: &'a Storage, offset: usize, n: usize, dtype: DType) -> Option<Source<'a>> {
        let ptr = storage.own_values(offset, n, dtype.size())?;
        let guard = Some(Reading::try_take(storage)?);
        Some(Source { ptr, n, dtype, _guard: guard, _life: PhantomData })
    }

    /// The same of memory that only the caller can reach, which needs no guard; nothing if others can.
    #[inline(always)]
    pub fn alone(storage: &'a mut Storage, offset: usize, n: usize, dtype: DType) -> Option<Source<'a>> {
        let ptr = if storage.is_alone() { storage.own_values(offset, n, dtype.size())? } else { return None };
        Some(Source { ptr, n, dtype, _guard: None, _life: PhantomData })
    }

    /// Values in a buffer of the caller's.
    #[inline(always)]
    pub fn buffer(buffer: &'a [u64], dtype: DType) -> Source<'a> {
        let n = size_of_val(buffer) / dtype.size();
        Source { ptr: buffer.as_ptr().cast(), n, dtype, _guard: None, _life: PhantomData }
    }
}

/// Memory for values that only its holder can reach, to be filled from its start.
pub struct Sink<'a> {
    ptr: *mut u8,
    n: usize,
    dtype: DType,
    _life: PhantomData<&'a mut u8>,
}

impl<'a> Sink<'a> {
    /// Room for `n` values; nothing if others can reach it, or if it is not there.
    #[inline(always)]
    pub fn new(storage: &'a mut Storage, n: usize, dtype: DType) -> Option<Sink<'a>> {
        let ptr = if storage.is_alone() { storage.own_values(0, n, dtype.size())? } else { return None };
        Some(Sink { ptr, n, dtype, _life: PhantomData })
    }
}

impl Executable {
    /// Runs the program over `n` elements; false, and nothing done, if an operand could not be had, or if the program is not
    /// compiled yet (the first run of any kind does that), is cut into parts, or takes or gives other types.
    #[inline]
    pub(crate) fn run_small(
        &self,
        n: usize,
        inputs: &[Option<Source<'_>>],
        scalars: &[Scalar],
        outputs: &mut [Option<Sink<'_>>],
    ) -> bool {
        let Some(compiled) = self.whole() else { return false };
        let Some(dtype) = compiled.uniform else { return false };
        if inputs.len() != compiled.inputs.len() || outputs.len() != compiled.outputs.len() {
            return false;
        }
        let mut sources = [std::ptr::null(); SMALL_OPERANDS];
        let mut sinks = [std::ptr::null_mut(); SMALL_OPERANDS];
        if inputs.len() > SMALL_OPERANDS || outputs.len() > SMALL_OPERANDS {
            return false;
        }
        for (ptr, input) in sources.iter_mut().zip(inputs) {
            match input {
                Some(i) if i.dtype == dtype && i.n >= n => *ptr = i.ptr,
                _ => return false,
            }
        }
        for (ptr, output) in sinks.iter_mut().zip(&*outputs) {
            match output {
                Some(o) if o.dtype == dtype && o.n >= n => *ptr = o.ptr,
                _ => return false,
            }
        }
        // SAFETY: the types say that the memory may be read and written, and that outputs are apart from everything else;
        // there are `n` values of the program's one type.
        unsafe { over_memory(compiled, n, |k| sources[k], scalars, |k| sinks[k]) };
        true
    }
}

/// Whether an operand is the whole index space, one element after another in register format, in our own memory.
#[inline]
fn is_plain(o: &Operand<'_>, sizes: &[usize]) -> bool {
    element::is_direct(o.dtype) && o.layout.is_row_major(sizes) && !o.storage.is_foreign()
}

/// Runs a program if all operands are plain and no result lies in the memory of an operand; otherwise false, and nothing
/// done.
#[inline]
pub(super) fn run(
    compiled: &Compiled,
    sizes: &[usize],
    inputs: &[Operand<'_>],
    scalars: &[Scalar],
    outputs: &[Operand<'_>],
) -> bool {
    let fresh = |o: &Operand<'_>| is_plain(o, sizes) && inputs.iter().all(|i| !i.storage.same(o.storage));
    if !(outputs.iter().all(fresh) && inputs.iter().all(|i| is_plain(i, sizes))) {
        return false;
    }
    // Nobody else can see memory that was just allocated.
    let shared = outputs.iter().map(|o| o.storage).filter(|s| !s.is_unique());
    let _guards = Guards::take(inputs.iter().map(|o| o.storage), shared);
    // SAFETY: guarded, contiguous, of the program's types, and no output's storage is an input's.
    unsafe {
        over_memory(
            compiled,
            numel(sizes),
            |k| element_ptr(&inputs[k]).cast_const(),
            scalars,
            |k| element_ptr(&outputs[k]),
        );
    }
    true
}

/// From this many elements on it is asked whether others should help.
const MANY: usize = 1 << 14;

/// Runs a program on memory as it is.
///
/// # Safety
/// Every pointer leads to `total` values of its operand's type one after another, readable or writable and not written or
/// read by anybody else meanwhile; no output overlaps an input or another output.
#[inline]
unsafe fn over_memory(
    compiled: &Compiled,
    total: usize,
    input: impl Fn(usize) -> *const u8,
    scalars: &[Scalar],
    output: impl Fn(usize) -> *mut u8,
) {
    if total < MANY {
        // SAFETY: the caller's contract.
        return unsafe { over_range(compiled, 0..total, input, scalars, output) };
    }
    let ins: SmallVec<[Shared<u8>; 8]> = (0..compiled.inputs.len()).map(|k| Shared(input(k).cast_mut())).collect();
    let outs: SmallVec<[Shared<u8>; 4]> = (0..compiled.outputs.len()).map(|k| Shared(output(k))).collect();
    threads::ranges(total, BLOCK, compiled.cost, |range| {
        // SAFETY: the caller's contract; ranges are apart.
        unsafe { over_range(compiled, range, |k| ins[k].get().cast_const(), scalars, |k| outs[k].get()) }
    });
}

/// Runs a program on a range of memory as it is; one of a single instruction runs once over all of it.
///
/// # Safety
/// As for [`over_memory`], where `range` ends by `total`.
#[inline]
unsafe fn over_range(
    compiled: &Compiled,
    range: Range<usize>,
    input: impl Fn(usize) -> *const u8,
    scalars: &[Scalar],
    output: impl Fn(usize) -> *mut u8,
) {
    // Small runs begin at 0, and need no size.
    let input = |k: usize, at: usize| match at {
        0 => input(k),
        _ => input(k).wrapping_add(at * compiled.inputs[k].dtype().size()),
    };
    let output = |k: usize, at: usize| match at {
        0 => output(k),
        _ => output(k).wrapping_add(at * compiled.outputs[k].1.dtype().size()),
    };
    if let Some(single) = &compiled.single {
        let mut constants = [0u64; 3];
        let mut args = [std::ptr::null(); 3];
        for ((arg, constant), place) in args.iter_mut().zip(&mut constants).zip(&single.args) {
            *arg = match *place {
                vm::Place::Input(k) => input(k as usize, range.start),
                vm::Place::Constant(fill) => {
                    *constant = fill.bits(scalars);
                    std::ptr::from_ref(constant).cast()
                }
            };
        }
        // SAFETY: the caller's contract. A constant is one value, its low bytes first, as the kernels with a scalar operand
        // read it.
        unsafe { (single.kernel)(range.len(), args, output(0, range.start)) };
        return;
    }
    if range.is_empty() {
        return;
    }
    let mut machine = Machine::new(compiled, scalars, range.len());
    for start in range.clone().step_by(BLOCK) {
        for k in 0..compiled.inputs.len() {
            machine.set_input(k, input(k, start));
        }
        for k in 0..compiled.outputs.len() {
            machine.set_output(k, output(k, start));
        }
        // SAFETY: a block inside the operands; the rest is the caller's contract.
        unsafe { machine.run(BLOCK.min(range.end - start)) };
    }
}
