//! Nanoseconds an element, to read rather than to assert.

use super::{Binary, Unary, Variants, double, single, variants};
use crate::backend::cpu::math::half;
use std::hint::black_box;
use std::time::Instant;

const BLOCK: usize = 1024;

/// The best of several runs of `call`, in nanoseconds an element.
fn time(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..20 {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (20 * BLOCK) as f64);
    }
    best
}

fn unary<T: Copy + Default>(all: &[(Variants<Unary<T>>, [f64; 2])], from: fn(f64) -> T) {
    for (function, [low, high]) in all {
        let x: Vec<T> = (0..BLOCK).map(|i| from(low + (high - low) * i as f64 / BLOCK as f64)).collect();
        let mut out = vec![T::default(); BLOCK];
        print!("{:12}", function.name);
        for (variant, f) in function.each() {
            print!(" {variant} {:6.2}", time(|| f(black_box(&x), black_box(&mut out))));
        }
        println!(" ns");
    }
}

fn binary<T: Copy + Default>(all: &[(Variants<Binary<T>>, [f64; 4])], from: fn(f64) -> T) {
    for (function, [low, high, other_low, other_high]) in all {
        let at = |i: usize, low: f64, high: f64| from(low + (high - low) * i as f64 / BLOCK as f64);
        let x: Vec<T> = (0..BLOCK).map(|i| at(i, *low, *high)).collect();
        let y: Vec<T> = (0..BLOCK).map(|i| at(i * 37 % BLOCK, *other_low, *other_high)).collect();
        let mut out = vec![T::default(); BLOCK];
        print!("{:12}", function.name);
        for (variant, f) in function.each() {
            print!(" {variant} {:6.2}", time(|| f(black_box(&x), black_box(&y), black_box(&mut out))));
        }
        println!(" ns");
    }
}

macro_rules! measure {
    ($module:ident, $t:ty, $from:expr) => {
        unary::<$t>(
            &[
                (variants!($module::exp(x: $t)), [-20.0, 20.0]),
                (variants!($module::exp2(x: $t)), [-20.0, 20.0]),
                (variants!($module::expm1(x: $t)), [-5.0, 5.0]),
                (variants!($module::log(x: $t)), [0.0, 20.0]),
                (variants!($module::log2(x: $t)), [0.0, 20.0]),
                (variants!($module::log10(x: $t)), [0.0, 20.0]),
                (variants!($module::log1p(x: $t)), [0.0, 20.0]),
                (variants!($module::sin(x: $t)), [-20.0, 20.0]),
                (variants!($module::cos(x: $t)), [-20.0, 20.0]),
                (variants!($module::tan(x: $t)), [-20.0, 20.0]),
                (variants!($module::asin(x: $t)), [-1.0, 1.0]),
                (variants!($module::acos(x: $t)), [-1.0, 1.0]),
                (variants!($module::atan(x: $t)), [-5.0, 5.0]),
                (variants!($module::sinh(x: $t)), [-5.0, 5.0]),
                (variants!($module::cosh(x: $t)), [-5.0, 5.0]),
                (variants!($module::tanh(x: $t)), [-5.0, 5.0]),
                (variants!($module::asinh(x: $t)), [-5.0, 5.0]),
                (variants!($module::acosh(x: $t)), [1.0, 5.0]),
                (variants!($module::atanh(x: $t)), [-1.0, 1.0]),
                (variants!($module::erf(x: $t)), [-3.0, 3.0]),
                (variants!($module::erfc(x: $t)), [-3.0, 3.0]),
                (variants!($module::erfcx(x: $t)), [-3.0, 3.0]),
                (variants!($module::erfinv(x: $t)), [-1.0, 1.0]),
                (variants!($module::ndtri(x: $t)), [0.0, 1.0]),
                (variants!($module::sigmoid(x: $t)), [-8.0, 8.0]),
                (variants!($module::lgamma(x: $t)), [0.1, 20.0]),
                (variants!($module::digamma(x: $t)), [0.1, 20.0]),
            ],
            $from,
        );
        binary::<$t>(
            &[
                (variants!($module::pow(x, y: $t)), [0.1, 20.0, -3.0, 3.0]),
                (variants!($module::atan2(x, y: $t)), [-5.0, 5.0, -3.0, 3.0]),
                (variants!($module::hypot(x, y: $t)), [-5.0, 5.0, -3.0, 3.0]),
                (variants!($module::fmod(x, y: $t)), [-50.0, 50.0, -3.1, 3.0]),
                (variants!($module::polygamma(x, y: $t)), [2.0, 2.0, 0.1, 12.0]),
                (variants!($module::zeta(x, y: $t)), [1.5, 8.0, 0.1, 12.0]),
            ],
            $from,
        );
    };
}

#[test]
#[ignore = "prints timings: cargo test --release nanoseconds -- --ignored --nocapture"]
fn nanoseconds_an_element() {
    println!("f32");
    measure!(single, f32, |x| x as f32);
    let x: Vec<f32> = (0..BLOCK).map(|i| i as f32).collect();
    let (mut wide, mut narrow) = (vec![0.0_f32; BLOCK], vec![0_u16; BLOCK]);
    println!("f32_to_f16   portable {:6.2} ns", time(|| half::f32_to_f16(black_box(&x), black_box(&mut narrow))));
    println!("f16_to_f32   portable {:6.2} ns", time(|| half::f16_to_f32(black_box(&narrow), black_box(&mut wide))));
    println!("f32_to_bf16  portable {:6.2} ns", time(|| half::f32_to_bf16(black_box(&x), black_box(&mut narrow))));
    println!("bf16_to_f32  portable {:6.2} ns", time(|| half::bf16_to_f32(black_box(&narrow), black_box(&mut wide))));
    println!("f64");
    measure!(double, f64, |x| x);
}
