//! The block VM: a compiled Program, and the machine that runs it on blocks of up to [`BLOCK`] elements. Registers are
//! reused by liveness and live in thread-local scratch, never on the stack; a run allocates and clears nothing.

use super::element::is_direct;
use super::kernels::{self, Kernel};
use crate::dtype::{Compute, DType};
use crate::program::{Inst, Program};
use crate::scalar::Scalar;
use smallvec::SmallVec;
use std::cell::Cell;

/// Elements that one step of the machine handles.
pub(super) const BLOCK: usize = 1024;
/// Bytes of a register: a block of the widest type.
const REGISTER: usize = BLOCK * 8;

/// Index into a machine's table of pointers: inputs first, then registers.
type Slot = u16;

struct Step {
    kernel: Kernel,
    args: [Slot; 3],
    out: Slot,
}

/// A Program compiled to kernels and slots.
pub(super) struct Compiled {
    steps: Vec<Step>,
    /// Slots that hold one value for the whole run, where it comes from, and whether a whole block of it is needed.
    constants: Vec<(Slot, Fill, bool)>,
    /// Types of the inputs; slot k belongs to input k.
    pub inputs: Vec<Compute>,
    /// Slot and type of each output.
    pub outputs: Vec<(Slot, Compute)>,
    registers: usize,
    /// Whether the program is nothing but its one input.
    pub only_reads: bool,
    /// The dtype of all inputs and outputs, if they have one and its memory is its register format.
    pub uniform: Option<DType>,
    /// About how many nanoseconds an element takes.
    pub cost: f64,
    /// The kernel, its operands and, where there is one, the constant among them, if the program is one instruction.
    pub single: Option<Single>,
}

/// A program of one instruction: the kernel can be called on memory directly.
pub(super) struct Single {
    pub kernel: Kernel,
    pub args: SmallVec<[Place; 3]>,
}

/// Where an operand of a single instruction comes from.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Input(u16),
    /// One value for all elements.
    Constant(Fill),
}

/// One value for the whole run.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    Scalar(u16, Compute),
    Bits(u64, Compute),
}

impl Fill {
    /// The value's bits.
    #[inline]
    pub(super) fn bits(self, scalars: &[Scalar]) -> u64 {
        match self {
            Fill::Bits(bits, _) => bits,
            Fill::Scalar(k, ty) => scalar_bits(scalars[k as usize], ty),
        }
    }

    fn ty(self) -> Compute {
        match self {
            Fill::Bits(_, ty) | Fill::Scalar(_, ty) => ty,
        }
    }
}

impl Compiled {
    pub(super) fn new(program: &Program) -> Compiled {
        let fma = super::has_fma();
        let last_use = last_uses(program);
        let mut free: Vec<Slot> = Vec::new();
        let mut next = program.inputs.len() as Slot;
        let mut take = |free: &mut Vec<Slot>| {
            free.pop().unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        };
        // A constant is written once, before the first step: it may not lie where a step before its first use writes.
        let none = &mut Vec::new();
        let mut slot = vec![0 as Slot; program.insts.len()];
        let (mut steps, mut constants) = (Vec::new(), Vec::new());
        for (at, inst) in program.insts.iter().enumerate() {
            let ty = program.types[at];
            match *inst {
                Inst::Input(k) => slot[at] = k,
                // Constants are written before the first step runs, so they never share a register with a step's result.
                Inst::Scalar(k) => {
                    slot[at] = take(none);
                    constants.push((slot[at], Fill::Scalar(k, ty), false));
                }
                Inst::Const(bits) => {
                    slot[at] = take(none);
                    constants.push((slot[at], Fill::Bits(bits, ty), false));
                }
                _ => {
                    let operand_type = inst.operands().last().map_or(ty, |r| program.types[r as usize]);
                    let constant = |r: u32| matches!(program.insts[r as usize], Inst::Scalar(_) | Inst::Const(_));
                    let scalar = match *inst {
                        Inst::Binary(op, l, r) if constant(l) != constant(r) => {
                            kernels::with_scalar(op, operand_type, fma)
                                .map(|(right, left)| if constant(r) { right } else { left })
                        }
                        _ => None,
                    };
                    let kernel = scalar.or_else(|| match *inst {
                        Inst::Unary(op, _) => kernels::unary(op, operand_type, fma),
                        Inst::Binary(op, ..) => kernels::binary(op, operand_type, fma),
                        Inst::Select(..) => Some(kernels::select(ty, fma)),
                        _ => Some(kernels::cast(operand_type, ty, fma)),
                    });
                    if scalar.is_none() {
                        // These kernels read a block of every operand.
                        for (s, _, whole) in &mut constants {
                            *whole |= inst.operands().any(|r| constant(r) && slot[r as usize] == *s);
                        }
                    }
                    let kernel = kernel.unwrap_or_else(|| {
                        panic!("{inst:?} of {operand_type:?}: the row accepts a dtype its formula lacks")
                    });
                    let mut args = [0; 3];
                    inst.operands().zip(&mut args).for_each(|(r, arg)| *arg = slot[r as usize]);
                    // The result's slot is taken before the operands' are freed: kernels may not write what they read. That of
                    // an output may become the output's memory, where nothing else, perhaps wider, may be written before.
                    slot[at] = take(if last_use[at] == usize::MAX { &mut *none } else { &mut free });
                    steps.push(Step { kernel, args, out: slot[at] });
                    for r in inst.operands() {
                        let dead = last_use[r as usize] == at && program.insts[r as usize].computes();
                        if dead && !free.contains(&slot[r as usize]) {
                            free.push(slot[r as usize]);
                        }
                    }
                }
            }
        }
        let mut outputs = Vec::new();
        for &o in &program.outputs {
            let ty = program.types[o as usize];
            // Each output has a register of its own, which may lie in memory: inputs, constants and second uses are copied.
            let mut at = slot[o as usize];
            if !program.insts[o as usize].computes() || outputs.iter().any(|&(s, _)| s == at) {
                let copy = {
                    next += 1;
                    next - 1
                };
                steps.push(Step { kernel: kernels::cast(ty, ty, fma), args: [at, 0, 0], out: copy });
                constants.iter_mut().for_each(|(s, _, whole)| *whole |= *s == at);
                at = copy;
            }
            outputs.push((at, ty));
        }
        let single = match &steps[..] {
            [step] if program.outputs.len() == 1 => {
                let inputs = program.inputs.len() as Slot;
                let n = program.insts[program.outputs[0] as usize].operands().count().max(1);
                let place = |slot: &Slot| match constants.iter().find(|c| c.0 == *slot) {
                    // A kernel that wants a whole block of a constant cannot be called directly.
                    Some((_, fill, whole)) => (!whole).then_some(Place::Constant(*fill)),
                    None if *slot < inputs => Some(Place::Input(*slot)),
                    None => None,
                };
                let args: Option<SmallVec<[Place; 3]>> = step.args[..n].iter().map(place).collect();
                args.map(|args| Single { kernel: step.kernel, args })
            }
            _ => None,
        };
        let registers = next as usize - program.inputs.len();
        let only_reads = program.inputs.len() == 1 && matches!(program.insts[..], [Inst::Input(0)]);
        let mut types = program.inputs.iter().copied().chain(outputs.iter().map(|(_, ty)| *ty));
        let first = types.next();
        let uniform = first.filter(|ty| types.all(|other| other == *ty)).map(Compute::dtype).filter(|d| is_direct(*d));
        let inputs = program.inputs.clone();
        let cost = cost(program);
        Compiled { steps, constants, inputs, outputs, registers, only_reads, uniform, cost, single }
    }
}

/// About how many nanoseconds a program takes for an element. It decides who works, never what comes out.
pub(super) fn cost(program: &Program) -> f64 {
    let cost = |inst: &Inst| match inst {
        Inst::Input(_) | Inst::Scalar(_) | Inst::Const(_) => 0.0,
        Inst::Unary(..) => 1.0,
        Inst::Binary(..) | Inst::Select(..) | Inst::Cast(_) => 0.2,
    };
    program.insts.iter().map(cost).sum::<f64>() + 0.2 * (program.inputs.len() + program.outputs.len()) as f64
}

/// For each register the last instruction that reads it; outputs live to the end.
fn last_uses(program: &Program) -> Vec<usize> {
    let mut last = vec![0; program.insts.len()];
    for (at, inst) in program.insts.iter().enumerate() {
        inst.operands().for_each(|r| last[r as usize] = at);
    }
    program.outputs.iter().for_each(|&o| last[o as usize] = usize::MAX);
    last
}

thread_local!(static SCRATCH: Cell<Vec<u64>> = const { Cell::new(Vec::new()) });

/// A compiled program with its registers, ready to run blocks.
pub(super) struct Machine<'c> {
    compiled: &'c Compiled,
    /// Where each slot lies now.
    table: SmallVec<[*mut u8; 24]>,
    scratch: Vec<u64>,
    first_register: *mut u8,
}

impl<'c> Machine<'c> {
    /// Takes the thread's scratch, and fills constants for blocks of up to `n`.
    pub(super) fn new(compiled: &'c Compiled, scalars: &[Scalar], n: usize) -> Machine<'c> {
        let mut scratch = SCRATCH.take();
        let inputs = compiled.inputs.len();
        // One register for each input too: whatever cannot be read in place is loaded there.
        let words = (inputs + compiled.registers) * REGISTER / 8 + 8;
        if scratch.len() < words {
            scratch.resize(words, 0);
        }
        let base = scratch.as_mut_ptr().cast::<u8>();
        let base = base.wrapping_add(base.align_offset(64));
        let table = (0..inputs + compiled.registers).map(|k| base.wrapping_add(k * REGISTER)).collect();
        let machine = Machine { compiled, table, scratch, first_register: base };
        for &(slot, fill, whole) in &compiled.constants {
            let n = if whole { n.min(BLOCK) } else { 1 };
            // SAFETY: the slot's register has room for a block.
            unsafe { write_constant(fill, scalars, n, machine.table[slot as usize]) };
        }
        machine
    }

    /// The scratch register in which input `k` may be loaded.
    pub(super) fn input_register(&self, k: usize) -> *mut u8 {
        self.first_register.wrapping_add(k * REGISTER)
    }

    /// The scratch register of output `k`.
    pub(super) fn output_register(&self, k: usize) -> *mut u8 {
        let slot = self.compiled.outputs[k].0 as usize;
        self.first_register.wrapping_add(slot * REGISTER)
    }

    /// Whether the program is nothing but its one input.
    #[inline]
    pub(super) fn only_reads(&self) -> bool {
        self.compiled.only_reads
    }

    /// Says where input `k` of the next block lies.
    #[inline]
    pub(super) fn set_input(&mut self, k: usize, ptr: *const u8) {
        self.table[k] = ptr.cast_mut();
    }

    /// Says where output `k` of the next block goes.
    #[inline]
    pub(super) fn set_output(&mut self, k: usize, ptr: *mut u8) {
        self.table[self.compiled.outputs[k].0 as usize] = ptr;
    }

    /// Runs all steps on a block of `n` elements.
    ///
    /// # Safety
    /// Inputs set must be readable and outputs set writable for `n` values of their types, not overlapping one another, and
    /// `n` may not pass what the constants were filled for.
    #[inline]
    pub(super) unsafe fn run(&mut self, n: usize) {
        for step in &self.compiled.steps {
            let args = step.args.map(|s| self.table[s as usize].cast_const());
            // SAFETY: slots are distinct registers by construction or memory by the caller's promise.
            unsafe { (step.kernel)(n, args, self.table[step.out as usize]) };
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        SCRATCH.set(std::mem::take(&mut self.scratch));
    }
}

/// Fills a register with a scalar or literal.
///
/// # Safety
/// `out` must have room for `n` values of the fill's type.
unsafe fn write_constant(fill: Fill, scalars: &[Scalar], n: usize, out: *mut u8) {
    let (bits, ty) = (fill.bits(scalars), fill.ty());
    // SAFETY: the caller's promise.
    unsafe {
        match ty {
            Compute::F32 => std::slice::from_raw_parts_mut(out.cast::<u32>(), n).fill(bits as u32),
            Compute::F64 | Compute::I64 => std::slice::from_raw_parts_mut(out.cast::<u64>(), n).fill(bits),
            Compute::Bool => std::slice::from_raw_parts_mut(out, n).fill(bits as u8),
        }
    }
}

/// A scalar in a compute type, rounded as a Python number is.
fn scalar_bits(s: Scalar, ty: Compute) -> u64 {
    match ty {
        Compute::F32 => (s.to_f64() as f32).to_bits() as u64,
        Compute::F64 => s.to_f64().to_bits(),
        Compute::I64 => s.to_i64() as u64,
        Compute::Bool => s.to_bool() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::trace;

    #[test]
    fn a_constant_met_late_keeps_its_value_over_all_blocks() {
        // The register of the first sine is free when the literal 3 is met.
        let program = trace(&[Compute::F64], &[], |x, _| vec![x[0].sin().sin().sin() * 3.0]);
        let compiled = Compiled::new(&program);
        let mut machine = Machine::new(&compiled, &[], 2);
        let (x, mut y) = ([0.5f64, 0.25], [0.0f64; 2]);
        for _ in 0..2 {
            machine.set_input(0, x.as_ptr().cast());
            machine.set_output(0, y.as_mut_ptr().cast());
            // SAFETY: two values each, and the constants were filled for two.
            unsafe { machine.run(2) };
            for (x, y) in x.iter().zip(y) {
                assert!((y - x.sin().sin().sin() * 3.0).abs() < 1e-15, "{y}");
            }
        }
    }
}
