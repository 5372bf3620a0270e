//! Division with a rounded quotient, and the neighbours of a number: functions that are exact by construction.

macro_rules! rounding {
    ($module:ident, $t:ty, $fmod:path, $nextafter:path) => {
        pub mod $module {
            /// Remainder with the sign of the divisor, as Python's `%`.
            #[inline(always)]
            pub fn remainder<const FMA: bool>(x: &[$t], y: &[$t], out: &mut [$t]) {
                for ((o, &x), &y) in out.iter_mut().zip(x).zip(y) {
                    let r = $fmod(x, y);
                    *o = if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r };
                }
            }

            /// Quotient rounded down, as Python's `//`: from the exact remainder, so that `(x // y) * y + x % y == x`.
            #[inline(always)]
            pub fn floor_div<const FMA: bool>(x: &[$t], y: &[$t], out: &mut [$t]) {
                for ((o, &x), &y) in out.iter_mut().zip(x).zip(y) {
                    *o = if y == 0.0 {
                        x / y
                    } else {
                        let r = $fmod(x, y);
                        let mut q = (x - r) / y;
                        if r != 0.0 && (r < 0.0) != (y < 0.0) {
                            q -= 1.0;
                        }
                        if q == 0.0 {
                            (0.0 as $t).copysign(x / y)
                        } else {
                            let floor = q.floor();
                            if q - floor > 0.5 { floor + 1.0 } else { floor }
                        }
                    };
                }
            }

            /// The next representable number from `x` towards `y`.
            #[inline(always)]
            pub fn nextafter<const FMA: bool>(x: &[$t], y: &[$t], out: &mut [$t]) {
                for ((o, &x), &y) in out.iter_mut().zip(x).zip(y) {
                    *o = $nextafter(x, y);
                }
            }
        }
    };
}
rounding!(single, f32, libm::fmodf, libm::nextafterf);
rounding!(double, f64, libm::fmod, libm::nextafter);
