//! The conversions against the `half` crate: all values, all ties, and a sample of everything else.

use crate::backend::cpu::math::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use half::{bf16, f16};

/// All `u16` patterns through `convert`, compared bit for bit with `reference`.
fn check_widening(convert: fn(&[u16], &mut [f32]), reference: fn(u16) -> f32) {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let mut out = vec![0.0; all.len()];
    convert(&all, &mut out);
    for (&x, got) in all.iter().zip(out) {
        assert_eq!(got.to_bits(), reference(x).to_bits(), "{x:#06x}");
    }
}

#[test]
fn widening_is_exact_for_every_pattern() {
    check_widening(f16_to_f32, |x| f16::from_bits(x).to_f32());
    check_widening(bf16_to_f32, |x| bf16::from_bits(x).to_f32());
}

/// Every representable value, every point halfway to the next, the f32 on either side of each, and every 4,099th float.
fn check_narrowing(convert: fn(&[f32], &mut [u16]), reference: fn(f32) -> u16, widen: fn(u16) -> f32) {
    let near = |x: f32| [-1, 0, 1].map(|step| f32::from_bits(x.to_bits().wrapping_add_signed(step)));
    let values = (0..=u16::MAX).flat_map(|x| {
        let (this, next) = (widen(x), widen(x.wrapping_add(1)));
        // In f64, as the largest values add up to more than f32 holds.
        near(this).into_iter().chain(near(((f64::from(this) + f64::from(next)) / 2.0) as f32))
    });
    let sample = (0..=u32::MAX).step_by(4099).map(f32::from_bits);
    // From the largest finite value to infinity there is no halfway point to compute.
    let overflow = [65519.99, 65520.0, 65520.01, f32::MAX, f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000)];
    let x: Vec<f32> = values.chain(sample).chain(overflow).collect();
    let mut out = vec![0; x.len()];
    convert(&x, &mut out);
    for (x, got) in x.into_iter().zip(out) {
        assert_eq!(got, reference(x), "{x:e} ({:#010x})", x.to_bits());
    }
}

#[test]
fn narrowing_rounds_to_nearest_even() {
    check_narrowing(f32_to_f16, |x| f16::from_f32(x).to_bits(), |x| f16::from_bits(x).to_f32());
    check_narrowing(f32_to_bf16, |x| bf16::from_f32(x).to_bits(), |x| bf16::from_bits(x).to_f32());
}
