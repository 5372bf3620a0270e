//! Kernels of losses over classes: the log-probability of each target, the transpose, and what the targets weigh. Scores are
//! `[batch, classes, positions]`, targets `[batch, positions]`.

use super::element::{self, Element};
use super::elementwise::element_ptr;
use super::shared::Shared;
use super::slices::Float;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::threads;
use std::ops::Neg;

/// Runs `$body` with `$E` standing for the storage type of a float dtype.
macro_rules! with_float_element {
    ($dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            DType::F16 => {
                type $E = half::f16;
                $body
            }
            DType::BF16 => {
                type $E = half::bf16;
                $body
            }
            DType::F64 => {
                type $E = f64;
                $body
            }
            _ => {
                type $E = f32;
                $body
            }
        }
    };
}

/// Targets read once and checked, and the weights of classes.
pub(crate) struct Targets {
    /// `None` for a target that does not count.
    classes: Vec<Option<usize>>,
    weights: Option<Vec<f64>>,
    /// Number of classes.
    count: usize,
    /// Positions per member of the batch.
    positions: usize,
}

impl Targets {
    /// Reads contiguous integer `targets` and, if given, contiguous float `weights` of the `count` classes; both guarded by
    /// the caller. `Err` is a target out of range.
    pub(crate) fn read(
        targets: &Operand<'_>,
        weights: Option<&Operand<'_>>,
        count: usize,
        positions: usize,
        ignored: i64,
    ) -> Result<Targets, i64> {
        let mut numbers = vec![0i64; targets.layout.numel()];
        // SAFETY: a contiguous integer operand, whose compute type is i64, into as many places.
        unsafe { element::load(targets.dtype, element_ptr(targets), 1, numbers.len(), numbers.as_mut_ptr().cast()) };
        let class = |&t: &i64| match t {
            t if t == ignored => Ok(None),
            t => usize::try_from(t).ok().filter(|&t| t < count).map(Some).ok_or(t),
        };
        let classes = numbers.iter().map(class).collect::<Result<_, _>>()?;
        let weights = weights.map(|w| {
            with_float_element!(w.dtype, E => (0..count).map(|k| {
                // SAFETY: inside a contiguous operand of this dtype.
                unsafe { element_ptr(w).cast::<E>().add(k).read() }.load().to_f64()
            }).collect())
        });
        Ok(Targets { classes, weights, count, positions })
    }

    fn weight(&self, class: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |w| w[class])
    }

    /// The weights of all targets, summed.
    pub(crate) fn total(&self) -> f64 {
        self.classes.iter().flatten().map(|&t| self.weight(t)).sum()
    }

    /// Calls `f` with every target and its class; each has a place of its own, so several threads may do so.
    fn each(&self, f: impl Fn(usize, Option<usize>) + Sync) {
        threads::ranges(self.classes.len(), 64, 3.0, |range| range.for_each(|i| f(i, self.classes[i])));
    }

    /// Where target `i`'s score is.
    fn place(&self, i: usize, class: usize) -> usize {
        let (n, s) = (i / self.positions, i % self.positions);
        (n * self.count + class) * self.positions + s
    }

    /// Writes to `out` the score of each target, negated and weighted; 0 where it does not count. Both contiguous and of one
    /// float dtype, `scores` guarded by the caller.
    pub(crate) fn pick(&self, scores: &Operand<'_>, out: &Operand<'_>) {
        with_float_element!(scores.dtype, E => {
            self.pick_as::<E>(Shared(element_ptr(scores).cast()), Shared(element_ptr(out).cast()));
        });
    }

    fn pick_as<E: Element<Compute: Float + Neg<Output = E::Compute>>>(&self, scores: Shared<E>, out: Shared<E>) {
        self.each(|i, class| {
            let value = match class {
                Some(t) => {
                    // SAFETY: a checked class of the contiguous scores.
                    let score = unsafe { scores.get().add(self.place(i, t)).read() };
                    -(score.load() * Float::of_f64(self.weight(t)))
                }
                None => Float::ZERO,
            };
            // SAFETY: `out` has a place for each target.
            unsafe { out.get().add(i).write(E::store(value)) };
        });
    }

    /// Writes to zeros `out` at each target's place its gradient, negated and weighted. Both contiguous and of one float
    /// dtype, `grad` guarded by the caller.
    pub(crate) fn put(&self, grad: &Operand<'_>, out: &Operand<'_>) {
        with_float_element!(grad.dtype, E => {
            self.put_as::<E>(Shared(element_ptr(grad).cast()), Shared(element_ptr(out).cast()));
        });
    }

    fn put_as<E: Element<Compute: Float + Neg<Output = E::Compute>>>(&self, grad: Shared<E>, out: Shared<E>) {
        self.each(|i, class| {
            let Some(t) = class else { return };
            // SAFETY: `grad` has a place for each target, and the class is checked.
            unsafe {
                let value = -(grad.get().add(i).read().load() * Float::of_f64(self.weight(t)));
                out.get().add(self.place(i, t)).write(E::store(value));
            }
        });
    }
}
