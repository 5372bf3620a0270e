//! Running sums, products, extremes and linear recurrences along a dimension. Floats are carried in f64, so that a long
//! scan is as accurate as its result can say.

use super::slices::{Slices, with_compute};
use crate::backend::Operand;
use crate::threads;

/// About how many nanoseconds an element takes.
const STEP: f64 = 4.0;

/// What a scan combines with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scan {
    Sum,
    Prod,
    /// `log(exp(a) + exp(b))`.
    LogSum,
}

/// A type that can be scanned, and the type that it is carried in.
trait Carried: Copy {
    type Carry: Copy;
    fn start(how: Scan) -> Self::Carry;
    fn step(how: Scan, carry: Self::Carry, x: Self) -> Self::Carry;
    fn result(carry: Self::Carry) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Carried for $t {
            type Carry = f64;
            fn start(how: Scan) -> f64 {
                match how {
                    Scan::Sum => 0.0,
                    Scan::Prod => 1.0,
                    Scan::LogSum => f64::NEG_INFINITY,
                }
            }
            #[inline(always)]
            fn step(how: Scan, carry: f64, x: $t) -> f64 {
                match how {
                    Scan::Sum => carry + f64::from(x),
                    Scan::Prod => carry * f64::from(x),
                    Scan::LogSum => log_add(carry, f64::from(x)),
                }
            }
            #[inline(always)]
            fn result(carry: f64) -> $t {
                carry as $t
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ty) => {
        impl Carried for $t {
            type Carry = i64;
            fn start(how: Scan) -> i64 {
                (how == Scan::Prod) as i64
            }
            #[inline(always)]
            fn step(how: Scan, carry: i64, x: $t) -> i64 {
                if how == Scan::Prod { carry.wrapping_mul(x as i64) } else { carry.wrapping_add(x as i64) }
            }
            #[inline(always)]
            fn result(carry: i64) -> $t {
                carry as $t
            }
        }
    };
}
integer!(i64);
integer!(u8);

fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    // Equal infinities have no difference; NaN is neither smaller nor infinite and comes through.
    if high.is_infinite() && (low == high || high > 0.0) && !low.is_nan() {
        high
    } else {
        high + libm::log1p(libm::exp(low - high))
    }
}

/// The scan of `x` along `dim` into `y`, from the end if `reverse`. Both contiguous and of one dtype, guarded by the caller.
pub(crate) fn running(x: &Operand<'_>, y: &Operand<'_>, dim: usize, how: Scan, reverse: bool) {
    with_compute!(x.dtype, T => Slices::along(dim, [x], [y]).each(|p| {
        // SAFETY: T is the compute type of both.
        let (x, y) = unsafe { (p.input::<T>(0), p.output::<T>(0)) };
        match how {
            Scan::Sum => scan(x, y, reverse, <T as Carried>::start(Scan::Sum), |c, x| T::step(Scan::Sum, c, x)),
            Scan::Prod => scan(x, y, reverse, <T as Carried>::start(Scan::Prod), |c, x| T::step(Scan::Prod, c, x)),
            Scan::LogSum => scan(x, y, reverse, <T as Carried>::start(Scan::LogSum), |c, x| T::step(Scan::LogSum, c, x)),
        }
    }));
}

#[inline(always)]
fn scan<T: Carried>(x: &[T], y: &mut [T], reverse: bool, start: T::Carry, step: impl Fn(T::Carry, T) -> T::Carry) {
    let mut carry = start;
    let mut each = |(y, &x): (&mut T, &T)| {
        carry = step(carry, x);
        *y = T::result(carry);
    };
    let turns = threads::turns(x.len(), STEP);
    if reverse {
        turns.rev().for_each(|range| y[range.clone()].iter_mut().zip(&x[range]).rev().for_each(&mut each));
    } else {
        turns.for_each(|range| y[range.clone()].iter_mut().zip(&x[range]).for_each(&mut each));
    }
}

/// The linear recurrence `y[k] = b[k] + a[k] * y[k - 1]` along `dim`, with nothing before the first; from the end
/// (`k + 1` for `k - 1`) if `reverse`, and with `a` of the place before instead of `a[k]` if `shifted`. Operands contiguous
/// and of one float dtype, guarded by the caller.
pub(crate) fn recurrence(a: &Operand<'_>, b: &Operand<'_>, y: &Operand<'_>, dim: usize, reverse: bool, shifted: bool) {
    super::slices::with_float!(a.dtype, T => Slices::along(dim, [a, b], [y]).each(|p| {
        // SAFETY: T is the compute type of all.
        let (a, b, y) = unsafe { (p.input::<T>(0), p.input::<T>(1), p.output::<T>(0)) };
        let n = y.len();
        let (mut carry, mut before) = (0.0f64, 0.0f64);
        for i in threads::turns(n, STEP).flatten() {
            let k = if reverse { n - 1 - i } else { i };
            #[allow(clippy::useless_conversion, reason = "the macro also stands for f32")]
            let here = f64::from(a[k]);
            let factor = if shifted { std::mem::replace(&mut before, here) } else { here };
            #[allow(clippy::useless_conversion, reason = "the macro also stands for f32")]
            let add = f64::from(b[k]);
            carry = if i == 0 { add } else { add + factor * carry };
            y[k] = carry as T;
        }
    }));
}

/// Running extreme of `x` along `dim` and where it is, the last of equal ones; NaN stays once met. Operands contiguous,
/// `places` int64, guarded by the caller.
pub(crate) fn extremes(x: &Operand<'_>, values: &Operand<'_>, places: &Operand<'_>, dim: usize, largest: bool) {
    with_compute!(x.dtype, T => Slices::along(dim, [x], [values, places]).each(|p| {
        // SAFETY: T is the compute type of input and values, i64 that of places.
        let (x, values, places) = unsafe { (p.input::<T>(0), p.output::<T>(0), p.output::<i64>(1)) };
        let Some(&first) = x.first() else { return };
        let (mut best, mut at) = (first, 0);
        for k in threads::turns(x.len(), STEP).flatten() {
            let v = x[k];
            #[allow(clippy::eq_op, reason = "NaN is what differs from itself")]
            let better = v != v || (best == best && if largest { v >= best } else { v <= best });
            if better {
                (best, at) = (v, k as i64);
            }
            (values[k], places[k]) = (best, at);
        }
    }));
}
