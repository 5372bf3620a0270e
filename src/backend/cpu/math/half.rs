//! Conversions between f32 and the two half types, as bits. What lives here: branch-free bit tricks that LLVM turns
//! into vector code on any target. What must not: arithmetic on half values; that is done in f32.
//!
//! Narrowing rounds to nearest, ties to even. NaN stays NaN: quiet, its sign and the payload bits that fit are kept.

/// Widens IEEE half floats; exact.
#[inline(always)]
pub fn f16_to_f32(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    for (out, &x) in out.iter_mut().zip(x) {
        *out = widen_f16(x);
    }
}

/// Rounds to IEEE half floats.
#[inline(always)]
pub fn f32_to_f16(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    for (out, &x) in out.iter_mut().zip(x) {
        *out = narrow_f16(x);
    }
}

/// Widens bfloat16; exact.
#[inline(always)]
pub fn bf16_to_f32(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    for (out, &x) in out.iter_mut().zip(x) {
        let quiet = if x & 0x7fff > 0x7f80 { 0x0040_0000 } else { 0 };
        *out = f32::from_bits((u32::from(x) << 16) | quiet);
    }
}

/// Rounds to bfloat16.
#[inline(always)]
pub fn f32_to_bf16(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    for (out, &x) in out.iter_mut().zip(x) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        *out = (if x.is_nan() { bits | 0x0040_0000 } else { rounded } >> 16) as u16;
    }
}

#[inline(always)]
fn widen_f16(x: u16) -> f32 {
    const REBIAS: u32 = (127 - 15) << 23;
    let sign = u32::from(x & 0x8000) << 16;
    let magnitude = u32::from(x & 0x7fff);
    let normal = (magnitude << 13) + REBIAS;
    let special = normal + REBIAS;
    // A subnormal is an integer times 2^-24: no denormal f32 is touched on the way.
    let subnormal = (magnitude.cast_signed() as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
    let bits = if magnitude < 0x0400 { subnormal } else { normal };
    let bits = if magnitude >= 0x7c00 { special | quiet } else { bits };
    f32::from_bits(bits | sign)
}

#[inline(always)]
fn narrow_f16(x: f32) -> u16 {
    const REBIAS: u32 = (127 - 15) << 23;
    const INFINITY: u32 = 0x7f80_0000;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let normal = magnitude.wrapping_sub(REBIAS).wrapping_add(0x0fff + ((magnitude >> 13) & 1)) >> 13;
    // 2^-24, the unit of the subnormals, is the last place of 1/2: the addition rounds for us.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let half = if magnitude < 0x3880_0000 { subnormal } else { normal };
    // 65520, halfway from the largest finite value to the next, is the first to overflow.
    let half = if magnitude >= 0x477f_f000 { 0x7c00 } else { half };
    let nan = 0x7e00 | ((magnitude >> 13) & 0x01ff);
    let half = if magnitude > INFINITY { nan } else { half };
    (half | ((bits >> 16) & 0x8000)) as u16
}
