//! Kernels: for every primitive and compute type a loop over a block, compiled for the baseline CPU and for AVX2 with
//! FMA, chosen at run time. They are expanded from the table of primitives; nothing here is written per operation.

use super::{integer, math};
use crate::dtype::Compute;
use crate::program::{Binary, Unary, for_each_primitive};

/// A loop over `n` values: operands, then the result. Operands that the primitive does not have are ignored.
///
/// # Safety
/// Every pointer of an operand it has must be readable for `n` values of the operand's type, `out` writable for `n` values
/// of the result's, and `out` may not overlap an operand.
pub(super) type Kernel = unsafe fn(n: usize, args: [*const u8; 3], out: *mut u8);

/// Compiles `$body::<FMA>(slices ..)` for both feature sets and picks one.
macro_rules! compiled {
    ($fma:expr, $body:ident, [$($arg:ident: $t:ty = $k:literal),*], $out:ty) => {{
        unsafe fn baseline(n: usize, args: [*const u8; 3], out: *mut u8) {
            // SAFETY: `Kernel`'s contract.
            unsafe {
                $(let $arg = std::slice::from_raw_parts(args[$k].cast::<$t>(), n);)*
                $body::<false>($($arg,)* std::slice::from_raw_parts_mut(out.cast::<$out>(), n));
            }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(n: usize, args: [*const u8; 3], out: *mut u8) {
            // SAFETY: `Kernel`'s contract.
            unsafe {
                $(let $arg = std::slice::from_raw_parts(args[$k].cast::<$t>(), n);)*
                $body::<true>($($arg,)* std::slice::from_raw_parts_mut(out.cast::<$out>(), n));
            }
        }
        #[cfg(target_arch = "x86_64")]
        let kernel = if $fma { avx2 as Kernel } else { baseline as Kernel };
        #[cfg(not(target_arch = "x86_64"))]
        let kernel = baseline as Kernel;
        Some(kernel)
    }};
    (@scalar $fma:expr, $body:ident, $t:ty, $na:tt, $nb:tt, $out:ty) => {{
        unsafe fn baseline(n: usize, args: [*const u8; 3], out: *mut u8) {
            // SAFETY: `Kernel`'s contract; the scalar operand is one value.
            unsafe {
                let a = std::slice::from_raw_parts(args[0].cast::<$t>(), compiled!(@len $na n));
                let b = std::slice::from_raw_parts(args[1].cast::<$t>(), compiled!(@len $nb n));
                $body::<false>(a, b, std::slice::from_raw_parts_mut(out.cast::<$out>(), n));
            }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(n: usize, args: [*const u8; 3], out: *mut u8) {
            // SAFETY: `Kernel`'s contract; the scalar operand is one value.
            unsafe {
                let a = std::slice::from_raw_parts(args[0].cast::<$t>(), compiled!(@len $na n));
                let b = std::slice::from_raw_parts(args[1].cast::<$t>(), compiled!(@len $nb n));
                $body::<true>(a, b, std::slice::from_raw_parts_mut(out.cast::<$out>(), n));
            }
        }
        #[cfg(target_arch = "x86_64")]
        let kernel = if $fma { avx2 as Kernel } else { baseline as Kernel };
        #[cfg(not(target_arch = "x86_64"))]
        let kernel = baseline as Kernel;
        Some(kernel)
    }};
    (@len n $n:ident) => { $n };
    (@len 1 $n:ident) => { 1 };
}

/// The type of a result of class `same` or `bool`.
macro_rules! out_type {
    (same, $t:ty) => {
        $t
    };
    (bool, $t:ty) => {
        u8
    };
}

macro_rules! unary_kernel {
    ($fma:expr, $t:ty, $math:ident, $r:ident, (-)) => { None };
    ($fma:expr, $t:ty, $math:ident, $r:ident, (each $x:ident => $e:expr)) => {{
        #[inline(always)]
        fn body<const FMA: bool>(a: &[$t], out: &mut [out_type!($r, $t)]) {
            for (o, &$x) in out.iter_mut().zip(a) {
                *o = $e as out_type!($r, $t);
            }
        }
        compiled!($fma, body, [a: $t = 0], out_type!($r, $t))
    }};
    ($fma:expr, $t:ty, $math:ident, $r:ident, (block $f:ident)) => {{
        use math::$math::$f;
        compiled!($fma, $f, [a: $t = 0], $t)
    }};
}

macro_rules! binary_kernel {
    ($fma:expr, $t:ty, $math:ident, $r:ident, (-)) => { None };
    ($fma:expr, $t:ty, $math:ident, $r:ident, (each $x:ident, $y:ident => $e:expr)) => {{
        #[inline(always)]
        fn body<const FMA: bool>(a: &[$t], b: &[$t], out: &mut [out_type!($r, $t)]) {
            for ((o, &$x), &$y) in out.iter_mut().zip(a).zip(b) {
                *o = ($e) as out_type!($r, $t);
            }
        }
        compiled!($fma, body, [a: $t = 0, b: $t = 1], out_type!($r, $t))
    }};
    ($fma:expr, $t:ty, $math:ident, $r:ident, (block $f:ident)) => {{
        use math::$math::$f;
        compiled!($fma, $f, [a: $t = 0, b: $t = 1], $t)
    }};
}

/// Two loops for a primitive of two operands of which one is the same for all: its pointer leads to one value.
macro_rules! scalar_kernels {
    ($fma:expr, $t:ty, $r:ident, (each $x:ident, $y:ident => $e:expr)) => {{
        #[inline(always)]
        fn right<const FMA: bool>(a: &[$t], b: &[$t], out: &mut [out_type!($r, $t)]) {
            let $y = b[0];
            for (o, &$x) in out.iter_mut().zip(a) {
                *o = ($e) as out_type!($r, $t);
            }
        }
        #[inline(always)]
        fn left<const FMA: bool>(a: &[$t], b: &[$t], out: &mut [out_type!($r, $t)]) {
            let $x = a[0];
            for (o, &$y) in out.iter_mut().zip(b) {
                *o = ($e) as out_type!($r, $t);
            }
        }
        let right: Option<Kernel> = compiled!(@scalar $fma, right, $t, n, 1, out_type!($r, $t));
        let left: Option<Kernel> = compiled!(@scalar $fma, left, $t, 1, n, out_type!($r, $t));
        right.zip(left)
    }};
    ($fma:expr, $t:ty, $r:ident, $other:tt) => { None };
}

macro_rules! tables {
    (unary { $($u:ident $um:ident { float: $uf:tt, int: $ui:tt, bool: $ub:tt } -> $ur:ident, $uv:tt, $ud:literal;)* }
     binary { $($b:ident $bm:ident { float: $bf:tt, int: $bi:tt, bool: $bb:tt } -> $br:ident, $bv:tt, $bd:literal;)* }) => {
        /// The kernel of a primitive of one operand; `None` if the type does not have it.
        #[allow(clippy::unnecessary_cast, clippy::redundant_closure_call, reason = "the table's expressions are typed by their use")]
        pub(super) fn unary(op: Unary, ty: Compute, fma: bool) -> Option<Kernel> {
            match op { $(Unary::$u => match ty {
                Compute::F32 => unary_kernel!(fma, f32, single, $ur, $uf),
                Compute::F64 => unary_kernel!(fma, f64, double, $ur, $uf),
                Compute::I64 => unary_kernel!(fma, i64, double, $ur, $ui),
                Compute::Bool => unary_kernel!(fma, u8, double, $ur, $ub),
            }),* }
        }
        /// The kernel of a primitive of two operands; `None` if the type does not have it.
        #[allow(clippy::unnecessary_cast, clippy::redundant_closure_call, reason = "the table's expressions are typed by their use")]
        pub(super) fn binary(op: Binary, ty: Compute, fma: bool) -> Option<Kernel> {
            match op { $(Binary::$b => match ty {
                Compute::F32 => binary_kernel!(fma, f32, single, $br, $bf),
                Compute::F64 => binary_kernel!(fma, f64, double, $br, $bf),
                Compute::I64 => binary_kernel!(fma, i64, double, $br, $bi),
                Compute::Bool => binary_kernel!(fma, u8, double, $br, $bb),
            }),* }
        }
        /// The kernels `x op s` and `s op x` of a primitive with a scalar; `None` if it has no such loops.
        #[allow(clippy::unnecessary_cast, clippy::redundant_closure_call, reason = "the table's expressions are typed by their use")]
        pub(super) fn with_scalar(op: Binary, ty: Compute, fma: bool) -> Option<(Kernel, Kernel)> {
            match op { $(Binary::$b => match ty {
                Compute::F32 => scalar_kernels!(fma, f32, $br, $bf),
                Compute::F64 => scalar_kernels!(fma, f64, $br, $bf),
                Compute::I64 => scalar_kernels!(fma, i64, $br, $bi),
                Compute::Bool => None,
            }),* }
        }
    };
}
for_each_primitive!(tables);

/// The kernel of a select.
pub(super) fn select(ty: Compute, fma: bool) -> Kernel {
    macro_rules! select {
        ($t:ty) => {{
            #[inline(always)]
            fn body<const FMA: bool>(c: &[u8], a: &[$t], b: &[$t], out: &mut [$t]) {
                for (((o, &c), &a), &b) in out.iter_mut().zip(c).zip(a).zip(b) {
                    *o = if c != 0 { a } else { b };
                }
            }
            let kernel: Option<Kernel> = compiled!(fma, body, [c: u8 = 0, a: $t = 1, b: $t = 2], $t);
            kernel
        }};
    }
    let kernel = match ty {
        Compute::F32 => select!(f32),
        Compute::F64 => select!(f64),
        Compute::I64 => select!(i64),
        Compute::Bool => select!(u8),
    };
    kernel.expect("every compute type has a select")
}

/// Floats to integers truncate; out of range and NaN give the smallest integer, as x86 and PyTorch do.
#[inline(always)]
fn float_to_int(x: f64) -> i64 {
    if x.abs() < 9_223_372_036_854_775_808.0 { x as i64 } else { i64::MIN }
}

/// The kernel of a cast (a copy where both types are one).
pub(super) fn cast(from: Compute, to: Compute, fma: bool) -> Kernel {
    macro_rules! cast {
        ($f:ty, $t:ty, $x:ident => $e:expr) => {{
            #[inline(always)]
            fn body<const FMA: bool>(a: &[$f], out: &mut [$t]) {
                for (o, &$x) in out.iter_mut().zip(a) {
                    *o = $e;
                }
            }
            let kernel: Option<Kernel> = compiled!(fma, body, [a: $f = 0], $t);
            kernel
        }};
    }
    use Compute::*;
    let kernel = match (from, to) {
        (Bool, Bool) => cast!(u8, u8, x => x),
        (I64, I64) => cast!(i64, i64, x => x),
        (F32, F32) => cast!(f32, f32, x => x),
        (F64, F64) => cast!(f64, f64, x => x),
        (Bool, I64) => cast!(u8, i64, x => x as i64),
        (Bool, F32) => cast!(u8, f32, x => x as f32),
        (Bool, F64) => cast!(u8, f64, x => x as f64),
        (I64, Bool) => cast!(i64, u8, x => (x != 0) as u8),
        (I64, F32) => cast!(i64, f32, x => x as f32),
        (I64, F64) => cast!(i64, f64, x => x as f64),
        (F32, Bool) => cast!(f32, u8, x => (x != 0.0) as u8),
        (F32, I64) => cast!(f32, i64, x => float_to_int(x as f64)),
        (F32, F64) => cast!(f32, f64, x => x as f64),
        (F64, Bool) => cast!(f64, u8, x => (x != 0.0) as u8),
        (F64, I64) => cast!(f64, i64, x => float_to_int(x)),
        (F64, F32) => cast!(f64, f32, x => x as f32),
    };
    kernel.expect("every pair of compute types has a cast")
}
