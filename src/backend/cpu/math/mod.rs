//! Elementary and special functions over slices, one body per compute type. What lives here: the numerics of single
//! values and the loops that map them over a block. What must not: tensors, strides, dispatch on dtypes or on CPU
//! features (callers pick `FMA` and carry the `#[target_feature]`).
//!
//! Everything is `#[inline(always)]`, so a loop takes the features of the function it is inlined into:
//!
//! ```
//! use rustgrad::backend::cpu::math::single;
//!
//! let mut out = [0.0; 2];
//! single::exp::<false>(&[0.0, 1.0], &mut out);
//! assert_eq!(out, [1.0, std::f32::consts::E]);
//! ```
//!
//! `FMA = true` is for callers whose target fuses `a * b + c` in one instruction (`avx2,fma`; any aarch64); elsewhere
//! it would call into the C library once an element. The two variants may differ in the last bit.
//!
//! **An element's bits depend on that element alone**, not on its neighbours, its position, or the length of the
//! block: the vector loop computes every element, and only those it cannot serve are then overwritten one by one.

pub mod double;
pub mod half;
mod kernel32;
mod kernel64;
mod power;
mod rounding;
pub mod single;
mod special;
#[cfg(test)]
mod tests;

use std::ops::{Add, Mul};

/// What the shared helpers ask of `f32` and `f64`.
trait Real: Copy + PartialOrd + Add<Output = Self> + Mul<Output = Self> {
    fn mul_add(self, factor: Self, addend: Self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        f32::mul_add(self, factor, addend)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        f64::mul_add(self, factor, addend)
    }
}

/// `a * b + c`, rounded once where the target can, twice where it cannot.
#[inline(always)]
fn fma<const FMA: bool, T: Real>(a: T, b: T, c: T) -> T {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The smaller of `x` and a finite `limit`; NaN stays NaN. One instruction, where `f32::min` takes three.
#[inline(always)]
fn at_most<T: Real>(x: T, limit: T) -> T {
    if limit < x { limit } else { x }
}

/// The larger of `x` and a finite `limit`; NaN stays NaN.
#[inline(always)]
fn at_least<T: Real>(x: T, limit: T) -> T {
    if x < limit { limit } else { x }
}

/// Horner's rule: `horner!(FMA, x; c0, c1, c2)` is `c0 + x * (c1 + x * c2)`. The fewest operations, the least error.
macro_rules! horner {
    ($fused:ident, $x:expr; $last:expr $(,)?) => { $last };
    ($fused:ident, $x:expr; $first:expr, $($rest:expr),+ $(,)?) => {
        fma::<$fused, _>($x, horner!($fused, $x; $($rest),+), $first)
    };
}
use horner;

/// Estrin's scheme, `estrin!(FMA, x; c0, c1, c2, c3)` is `(c0 + x c1) + x^2 (c2 + x c3)`: for long polynomials in loops
/// that would otherwise wait for one product after the other.
macro_rules! estrin {
    (@pairs $fused:ident, $x:ident; [$($done:expr),*] $even:expr, $odd:expr $(, $rest:expr)* $(,)?) => {
        estrin!(@pairs $fused, $x; [$($done,)* fma::<$fused, _>($x, $odd, $even)] $($rest),*)
    };
    (@pairs $fused:ident, $x:ident; [$($done:expr),*] $last:expr) => {
        estrin!($fused, $x * $x; $($done,)* $last)
    };
    (@pairs $fused:ident, $x:ident; [$($done:expr),*]) => {
        estrin!($fused, $x * $x; $($done),*)
    };
    ($fused:ident, $x:expr; $last:expr $(,)?) => { $last };
    ($fused:ident, $x:expr; $($c:expr),+ $(,)?) => {{
        let x = $x;
        estrin!(@pairs $fused, x; [] $($c),+)
    }};
}
use estrin;
