//! HOW: the rooms that own kernels. Each family of operations has one door here, which takes storages and layouts (never
//! tensors) and sends the work to the device that owns the memory.

pub mod cpu;

pub use cpu::{Sink, Source};

use crate::dtype::DType;
use crate::error::Result;
use crate::program::Program;
use crate::scalar::Scalar;
use crate::shape::Layout;
use crate::storage::Storage;

/// A tensor's memory as a kernel sees it.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// The bytes.
    pub storage: &'a Storage,
    /// Where the elements lie.
    pub layout: &'a Layout,
    /// Their type.
    pub dtype: DType,
}

/// How the elements that fall on one place of a smaller result are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// Added, pairwise over chunks.
    Sum,
    /// Multiplied.
    Prod,
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

/// A Program made ready to run on any device, its compiled forms cached.
pub struct Executable(cpu::Executable);

impl Executable {
    /// Plans and compiles nothing yet; the first run does.
    pub fn new(program: Program) -> Executable {
        Executable(cpu::Executable::new(program))
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.0.program()
    }

    /// About how many nanoseconds the program takes for an element.
    pub fn cost(&self) -> f64 {
        self.0.cost()
    }

    /// Runs the program over the index space `sizes`. Inputs broadcast to it. An output either has its shape, or a shape
    /// that broadcasts to it, contiguous, into which `reduce` combines the elements that fall together.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::error::Error::OutOfMemory) if temporaries cannot be had.
    pub fn run(
        &self,
        op: &'static str,
        sizes: &[usize],
        inputs: &[Operand<'_>],
        scalars: &[Scalar],
        outputs: &[Operand<'_>],
        reduce: Reduce,
    ) -> Result<()> {
        self.0.run(op, sizes, inputs, scalars, outputs, reduce)
    }

    /// [`run`](Self::run) for a few small operands in host memory, past all preparation: true if it ran, false if it has to
    /// take the ordinary road (the first run always does, and any for which an operand could not be had).
    #[inline]
    pub fn run_small(
        &self,
        n: usize,
        inputs: &[Option<Source<'_>>],
        scalars: &[Scalar],
        outputs: &mut [Option<Sink<'_>>],
    ) -> bool {
        self.0.run_small(n, inputs, scalars, outputs)
    }
}
