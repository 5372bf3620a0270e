//! Programs: elementwise computation as data. A [`Program`] is a list of primitive instructions on typed registers in
//! single-assignment order. It is traced from an ordinary Rust formula, simplified by rewrites that keep every bit,
//! differentiated into another Program, and cut by the planner into kernels that a device can run. This room knows
//! neither tensors nor devices.

mod build;
mod gradient;
mod planner;
mod primitives;

pub use build::{Sym, trace};
pub use gradient::{Gradient, Source, Vjp};
pub use planner::{Limits, Place, Segment, Target, plan};
pub(crate) use primitives::for_each_primitive;
pub use primitives::{Binary, Result_, Unary};

use crate::dtype::Compute;

/// A register: the index of the instruction that writes it.
pub type Reg = u32;

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Inst {
    /// The k-th input, an element of a tensor.
    Input(u16),
    /// The k-th scalar, a run-time argument that is the same for all elements.
    Scalar(u16),
    /// A literal of the formula, as the bits of its type.
    Const(u64),
    /// A primitive of one operand.
    Unary(Unary, Reg),
    /// A primitive of two operands of one type.
    Binary(Binary, Reg, Reg),
    /// The second operand where the first (a bool) holds, else the third.
    Select(Reg, Reg, Reg),
    /// Conversion to this instruction's type.
    Cast(Reg),
}

impl Inst {
    /// The registers it reads.
    pub fn operands(&self) -> impl Iterator<Item = Reg> + use<> {
        let (list, n) = match *self {
            Inst::Input(_) | Inst::Scalar(_) | Inst::Const(_) => ([0; 3], 0),
            Inst::Unary(_, a) | Inst::Cast(a) => ([a, 0, 0], 1),
            Inst::Binary(_, a, b) => ([a, b, 0], 2),
            Inst::Select(c, a, b) => ([c, a, b], 3),
        };
        list.into_iter().take(n)
    }

    /// The same instruction on other registers.
    pub fn map(self, f: impl Fn(Reg) -> Reg) -> Inst {
        match self {
            Inst::Unary(u, a) => Inst::Unary(u, f(a)),
            Inst::Cast(a) => Inst::Cast(f(a)),
            Inst::Binary(b, l, r) => Inst::Binary(b, f(l), f(r)),
            Inst::Select(c, a, b) => Inst::Select(f(c), f(a), f(b)),
            leaf => leaf,
        }
    }

    /// Whether it computes (inputs, scalars and literals do not).
    pub fn computes(&self) -> bool {
        !matches!(self, Inst::Input(_) | Inst::Scalar(_) | Inst::Const(_))
    }
}

/// A typed, single-assignment list of instructions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Types of the inputs, in order. An input that no instruction reads keeps its place.
    pub inputs: Vec<Compute>,
    /// Types of the scalars, in order.
    pub scalars: Vec<Compute>,
    /// The instructions, each after those it reads.
    pub insts: Vec<Inst>,
    /// The type of each instruction's result.
    pub types: Vec<Compute>,
    /// The registers that are the results.
    pub outputs: Vec<Reg>,
}

impl Program {
    /// Removes instructions that no output needs.
    pub fn without_dead_code(mut self) -> Program {
        let mut live = vec![false; self.insts.len()];
        for &o in &self.outputs {
            live[o as usize] = true;
        }
        for at in (0..self.insts.len()).rev() {
            if live[at] {
                self.insts[at].operands().for_each(|r| live[r as usize] = true);
            }
        }
        let mut renumbered = vec![0; live.len()];
        let mut next = 0;
        for at in 0..live.len() {
            if live[at] {
                renumbered[at] = next;
                self.insts[next as usize] = self.insts[at].map(|r| renumbered[r as usize]);
                self.types[next as usize] = self.types[at];
                next += 1;
            }
        }
        self.insts.truncate(next as usize);
        self.types.truncate(next as usize);
        self.outputs.iter_mut().for_each(|o| *o = renumbered[*o as usize]);
        self
    }

    /// Which inputs some instruction reads.
    pub fn inputs_read(&self) -> Vec<bool> {
        let mut read = vec![false; self.inputs.len()];
        for i in &self.insts {
            if let Inst::Input(k) = i {
                read[*k as usize] = true;
            }
        }
        read
    }

    /// The number of instructions that compute.
    pub fn len(&self) -> usize {
        self.insts.iter().filter(|i| i.computes()).count()
    }

    /// Whether no instruction computes: every output is an input, a scalar or a literal.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program of the given outputs alone, with the same inputs and scalars.
    pub fn project(&self, outputs: &[usize]) -> Program {
        let mut p = self.clone();
        p.outputs = outputs.iter().map(|&o| self.outputs[o]).collect();
        p.without_dead_code()
    }
}
