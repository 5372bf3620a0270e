//! Integer arithmetic as PyTorch defines it: wrapping, division by zero kept from trapping (the operation that may meet
//! one checks first and raises), shifts past the width empty.

/// `x` to the power of `y`, wrapping; negative exponents give 0 except for bases 1 and -1.
#[inline]
pub(crate) fn pow(x: i64, y: i64) -> i64 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 => {
                if y % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut result) = (x, y, 1i64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

/// Remainder with the sign of the dividend.
#[inline]
pub(crate) fn fmod(x: i64, y: i64) -> i64 {
    if y == 0 { 0 } else { x.wrapping_rem(y) }
}

/// Remainder with the sign of the divisor.
#[inline]
pub(crate) fn remainder(x: i64, y: i64) -> i64 {
    let r = fmod(x, y);
    if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
}

/// Quotient rounded down.
#[inline]
pub(crate) fn floor_div(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let q = x.wrapping_div(y);
    if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
}

/// Quotient rounded towards zero.
#[inline]
pub(crate) fn trunc_div(x: i64, y: i64) -> i64 {
    if y == 0 { 0 } else { x.wrapping_div(y) }
}

/// Bits shifted up; all gone past the width.
#[inline]
pub(crate) fn shl(x: i64, y: i64) -> i64 {
    if (0..64).contains(&y) { x << y } else { 0 }
}

/// Bits shifted down, the sign kept.
#[inline]
pub(crate) fn shr(x: i64, y: i64) -> i64 {
    if (0..64).contains(&y) { x >> y } else { x >> 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_the_rules_of_python() {
        for (x, y, q, r) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (i64::MIN, -1, i64::MIN, 0)]
        {
            assert_eq!((floor_div(x, y), remainder(x, y)), (q, r), "{x} // {y}");
        }
        assert_eq!((trunc_div(-7, 2), fmod(-7, 2)), (-3, -1));
        assert_eq!((pow(3, 4), pow(2, -1), pow(-1, -3), pow(2, 64)), (81, 0, -1, 0));
        assert_eq!((shl(1, 64), shr(-8, 1), shr(-1, 100)), (0, -4, -1));
    }
}
