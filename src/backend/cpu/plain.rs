//! The commonest case of an elementwise run: operands that are the whole index space, one element after another, in the
//! format in which kernels compute. Kernels run on memory as it is. Small calls come here directly, with operands whose
//! types say that they may be read ([`Source`]) or written ([`Sink`]) without waiting for anybody.

use super::element;
use super::elementwise::{Executable, element_ptr};
use super::vm::{self, BLOCK, Compiled, Machine};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::shape::numel;
use crate::storage::{Guards, Reading, Storage};
use std::marker::PhantomData;

/// Values that nobody writes while this lives.
pub struct Source<'a> {
    ptr: *const u8,
    /// How many bytes may be read.
    bytes: usize,
    dtype: DType,
    _guard: Option<Reading<'a>>,
    _life: PhantomData<&'a u8>,
}

impl<'a> Source<'a> {
    /// The contents from element `offset` on, guarded; nothing if somebody is writing them now, or may without asking.
    #[inline]
    pub fn guarded(storage: &'a Storage, offset: usize, dtype: DType) -> Option<Source<'a>> {
        let (ptr, bytes) = window(storage, offset, dtype)?;
        let guard = Some(Reading::try_take(storage)?);
        Some(Source { ptr, bytes, dtype, _guard: guard, _life: PhantomData })
    }

    /// The same of memory that only the caller can reach, which needs no guard; nothing if others can.
    #[inline]
    pub fn alone(storage: &'a mut Storage, offset: usize, dtype: DType) -> Option<Source<'a>> {
        if !storage.is_alone() {
            return None;
        }
        let (ptr, bytes) = window(storage, offset, dtype)?;
        Some(Source { ptr, bytes, dtype, _guard: None, _life: PhantomData })
    }

    /// Values in a buffer of the caller's.
    #[inline]
    pub fn buffer(buffer: &'a [u64], dtype: DType) -> Source<'a> {
        Source { ptr: buffer.as_ptr().cast(), bytes: size_of_val(buffer), dtype, _guard: None, _life: PhantomData }
    }
}

/// Memory that only its holder can reach, to be filled from its start.
pub struct Sink<'a> {
    ptr: *mut u8,
    bytes: usize,
    dtype: DType,
    _life: PhantomData<&'a mut u8>,
}

impl<'a> Sink<'a> {
    /// The memory; nothing if others can reach it.
    #[inline]
    pub fn new(storage: &'a mut Storage, dtype: DType) -> Option<Sink<'a>> {
        if !storage.is_alone() {
            return None;
        }
        let (ptr, bytes) = window(storage, 0, dtype)?;
        Some(Sink { ptr, bytes, dtype, _life: PhantomData })
    }
}

/// Address and length in bytes of what lies from element `offset` on in memory of our own.
#[inline]
fn window(storage: &Storage, offset: usize, dtype: DType) -> Option<(*mut u8, usize)> {
    if storage.is_foreign() {
        return None;
    }
    let start = offset.checked_mul(dtype.size())?;
    let bytes = storage.bytes().checked_sub(start)?;
    Some((storage.ptr().wrapping_add(start), bytes))
}

impl Executable {
    /// Runs the program over `n` elements; false, and nothing done, if it is not compiled yet (the first run of any kind
    /// does that), is cut into parts, or takes or gives other types.
    #[inline]
    pub(crate) fn run_small(
        &self,
        n: usize,
        inputs: &[Source<'_>],
        scalars: &[Scalar],
        outputs: &mut [Sink<'_>],
    ) -> bool {
        let Some(compiled) = self.whole() else { return false };
        let room = |dtype: DType, ty: DType, bytes: usize| dtype == ty && n * dtype.size() <= bytes;
        let reads = compiled.inputs.iter().zip(inputs).all(|(ty, i)| room(i.dtype, ty.dtype(), i.bytes));
        let writes = compiled.outputs.iter().zip(&*outputs).all(|((_, ty), o)| room(o.dtype, ty.dtype(), o.bytes));
        let direct = inputs.iter().map(|i| i.dtype).chain(outputs.iter().map(|o| o.dtype)).all(element::is_direct);
        let complete = inputs.len() == compiled.inputs.len() && outputs.len() == compiled.outputs.len();
        if !(reads && writes && direct && complete) {
            return false;
        }
        // SAFETY: the types say that the memory may be read and written, and that outputs are apart from everything else;
        // there is room for `n` values of the program's types.
        unsafe { over_memory(compiled, n, |k| inputs[k].ptr, scalars, |k| outputs[k].ptr) };
        true
    }
}

/// Whether an operand is the whole index space, one element after another in register format, in our own memory.
#[inline]
fn is_plain(o: &Operand<'_>, sizes: &[usize]) -> bool {
    element::is_direct(o.dtype) && o.layout.sizes[..] == *sizes && o.layout.is_contiguous() && !o.storage.is_foreign()
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

/// Runs a program on memory as it is; one of a single instruction runs once over all of it.
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
    if let Some(single) = &compiled.single {
        let mut constants = [0u64; 3];
        let mut args = [std::ptr::null(); 3];
        for ((arg, constant), place) in args.iter_mut().zip(&mut constants).zip(&single.args) {
            *arg = match *place {
                vm::Place::Input(k) => input(k as usize),
                vm::Place::Constant(fill) => {
                    *constant = fill.bits(scalars);
                    std::ptr::from_ref(constant).cast()
                }
            };
        }
        // SAFETY: the caller's contract. A constant is one value, its low bytes first, as the kernels with a scalar operand
        // read it.
        unsafe { (single.kernel)(total, args, output(0)) };
        return;
    }
    if total == 0 {
        return;
    }
    let mut machine = Machine::new(compiled, scalars, total);
    for start in (0..total).step_by(BLOCK) {
        for (k, ty) in compiled.inputs.iter().enumerate() {
            machine.set_input(k, input(k).wrapping_add(start * ty.dtype().size()));
        }
        for (k, (_, ty)) in compiled.outputs.iter().enumerate() {
            machine.set_output(k, output(k).wrapping_add(start * ty.dtype().size()));
        }
        // SAFETY: a block inside the operands; the rest is the caller's contract.
        unsafe { machine.run(BLOCK.min(total - start)) };
    }
}
