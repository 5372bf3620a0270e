//! Tests of the maths room. What lives here: what they share, namely each function in its two variants with its reference,
//! and distances in ulp. What must not: the tests themselves.

mod accuracy;
mod edges;
mod half;
mod special;
mod speed;
// Values near pi and its kin are what these functions give.
#[allow(clippy::approx_constant)]
mod table;

use super::{double, single};

pub(super) type Unary<T> = fn(&[T], &mut [T]);
pub(super) type Binary<T> = fn(&[T], &[T], &mut [T]);

/// The variants of a block function: without FMA, and with it where this machine has it.
pub(super) struct Variants<F> {
    pub(super) name: &'static str,
    portable: F,
    fused: F,
}

impl<F: Copy> Variants<F> {
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, F)> {
        let fused = has_fma().then_some(("fma", self.fused));
        std::iter::once(("portable", self.portable)).chain(fused)
    }

    /// The variant the crate would use here.
    pub(super) fn best(&self) -> F {
        if has_fma() { self.fused } else { self.portable }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_fma() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_fma() -> bool {
    cfg!(target_arch = "aarch64")
}

/// `variants!(single::exp(x: f32))`: the two instances of a block function behind plain function pointers.
macro_rules! variants {
    ($module:ident :: $name:ident ( $($arg:ident),+ : $t:ty )) => {{
        fn portable($($arg: &[$t],)+ out: &mut [$t]) {
            $module::$name::<false>($($arg,)+ out);
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
        #[allow(unused_unsafe)]
        unsafe fn featured($($arg: &[$t],)+ out: &mut [$t]) {
            $module::$name::<true>($($arg,)+ out);
        }
        fn fused($($arg: &[$t],)+ out: &mut [$t]) {
            assert!(crate::backend::cpu::math::tests::has_fma());
            // SAFETY: the features have just been checked.
            unsafe { featured($($arg,)+ out) }
        }
        type Pointer = fn($(crate::backend::cpu::math::tests::slice_for!($arg, $t),)+ &mut [$t]);
        let (portable, fused): (Pointer, Pointer) = (portable, fused);
        crate::backend::cpu::math::tests::Variants { name: stringify!($name), portable, fused }
    }};
}
/// The type of the argument of that name.
macro_rules! slice_for {
    ($arg:ident, $t:ty) => {
        &[$t]
    };
}
pub(super) use slice_for;
pub(super) use variants;

/// A function of one argument, the same in exact arithmetic (nearly: f64 for f32), and the error allowed.
pub(super) struct Case<T> {
    pub(super) block: Variants<Unary<T>>,
    pub(super) reference: fn(f64) -> f64,
    pub(super) ulps: f64,
}

macro_rules! cases {
    ($module:ident, $t:ty; $($name:ident, $reference:expr, $ulps:expr;)+) => {
        vec![$(Case { block: variants!($module::$name(x: $t)), reference: $reference, ulps: $ulps },)+]
    };
}

pub(super) fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { libm::exp(x) / (1.0 + libm::exp(x)) } else { 1.0 / (1.0 + libm::exp(-x)) }
}

/// `libm::acosh` gives finite values for some large negative arguments.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The elementary functions of f32.
pub(super) fn cases32() -> Vec<Case<f32>> {
    cases! { single, f32;
        exp, libm::exp, 2.0;
        exp2, libm::exp2, 2.0;
        expm1, libm::expm1, 2.0;
        log, libm::log, 2.0;
        log2, libm::log2, 2.0;
        log10, libm::log10, 2.0;
        log1p, libm::log1p, 2.0;
        sin, libm::sin, 2.0;
        cos, libm::cos, 2.0;
        tan, libm::tan, 2.0;
        asin, libm::asin, 2.0;
        acos, libm::acos, 2.0;
        atan, libm::atan, 2.0;
        sinh, libm::sinh, 2.0;
        cosh, libm::cosh, 2.0;
        tanh, libm::tanh, 2.0;
        asinh, libm::asinh, 2.0;
        acosh, acosh, 2.0;
        atanh, libm::atanh, 2.0;
        erf, libm::erf, 2.0;
        erfc, libm::erfc, 2.0;
        erfcx, crate::backend::cpu::math::kernel64::erfcx::<false>, 2.0;
        sigmoid, sigmoid, 2.0;
    }
}

/// The elementary functions of f64; the references are themselves off by up to 1 ulp.
pub(super) fn cases64() -> Vec<Case<f64>> {
    cases! { double, f64;
        exp, libm::exp, 2.0;
        exp2, libm::exp2, 2.0;
        expm1, libm::expm1, 2.0;
        log, libm::log, 2.0;
        log2, libm::log2, 2.0;
        log10, libm::log10, 2.0;
        log1p, libm::log1p, 2.0;
        sin, libm::sin, 2.0;
        cos, libm::cos, 2.0;
        tan, libm::tan, 2.0;
        asin, libm::asin, 2.0;
        acos, libm::acos, 2.0;
        atan, libm::atan, 2.0;
        sinh, libm::sinh, 2.0;
        cosh, libm::cosh, 2.0;
        tanh, libm::tanh, 2.0;
        asinh, libm::asinh, 2.0;
        acosh, acosh, 2.0;
        atanh, libm::atanh, 2.0;
        erf, libm::erf, 2.0;
        erfc, libm::erfc, 2.0;
        sigmoid, sigmoid, 2.0;
    }
}

/// The distance of `got` from `want` in units in the last place of an f32 near `want`.
pub(super) fn ulps32(got: f32, want: f64) -> f64 {
    // From halfway between the largest float and 2^128 on, the right answer is infinite.
    let overflow = 340_282_356_779_733_661_637_539_395_458_142_568_448.0;
    if want.is_nan() || want.abs() >= overflow || got.is_nan() || got.is_infinite() {
        let want = if want.abs() >= overflow { f64::INFINITY.copysign(want) } else { want };
        return if f64::from(got) == want || (got.is_nan() && want.is_nan()) { 0.0 } else { f64::INFINITY };
    }
    let exponent = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (f64::from(got) - want).abs() / libm::ldexp(1.0, exponent.max(-126) - 23)
}

/// The same for f64, where `want` is one too.
pub(super) fn ulps64(got: f64, want: f64) -> f64 {
    if !got.is_finite() || !want.is_finite() {
        return if got == want || (got.is_nan() && want.is_nan()) { 0.0 } else { f64::INFINITY };
    }
    let exponent = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    libm::ldexp((got - want).abs(), 52 - exponent.max(-1022))
}
