//! Every function against values of arbitrary-precision arithmetic (`table`), and the binary ones against dense samples.

use super::{Binary, Unary, Variants, double, single, table, ulps32, ulps64, variants};

/// The elementary functions, in ulp; sums of series and inverse functions, whose bound is relative, in the same unit.
const ELEMENTARY: f64 = 2.0;
/// About 1e-14.
const SPECIAL: f64 = 45.0;
/// For f32, special functions are f64 results rounded.
const SPECIAL32: f64 = 1.0;

type Reference = fn(f64, f64) -> f64;
type Table = [(f64, f64)];
type Table2 = [(f64, f64, f64)];

macro_rules! rows {
    ($($name:ident $table:ident $ulps32:expr, $ulps64:expr;)+) => {
        vec![$((variants!(single::$name(x: f32)), variants!(double::$name(x: f64)), table::$table, $ulps32, $ulps64),)+]
    };
}

type Row = (Variants<Unary<f32>>, Variants<Unary<f64>>, &'static Table, f64, f64);

fn rows() -> Vec<Row> {
    rows! {
        exp EXP ELEMENTARY, ELEMENTARY;
        exp2 EXP2 ELEMENTARY, ELEMENTARY;
        expm1 EXPM1 ELEMENTARY, ELEMENTARY;
        log LOG ELEMENTARY, ELEMENTARY;
        log2 LOG2 ELEMENTARY, ELEMENTARY;
        log10 LOG10 ELEMENTARY, ELEMENTARY;
        log1p LOG1P ELEMENTARY, ELEMENTARY;
        sin SIN ELEMENTARY, ELEMENTARY;
        cos COS ELEMENTARY, ELEMENTARY;
        tan TAN ELEMENTARY, ELEMENTARY;
        asin ASIN ELEMENTARY, ELEMENTARY;
        acos ACOS ELEMENTARY, ELEMENTARY;
        atan ATAN ELEMENTARY, ELEMENTARY;
        sinh SINH ELEMENTARY, ELEMENTARY;
        cosh COSH ELEMENTARY, ELEMENTARY;
        tanh TANH ELEMENTARY, ELEMENTARY;
        asinh ASINH ELEMENTARY, ELEMENTARY;
        acosh ACOSH ELEMENTARY, ELEMENTARY;
        atanh ATANH ELEMENTARY, ELEMENTARY;
        erf ERF ELEMENTARY, ELEMENTARY;
        erfc ERFC ELEMENTARY, ELEMENTARY;
        erfcx ERFCX ELEMENTARY, SPECIAL;
        sigmoid SIGMOID ELEMENTARY, ELEMENTARY;
        erfinv ERFINV SPECIAL32, SPECIAL;
        ndtri NDTRI SPECIAL32, SPECIAL;
        lgamma LGAMMA SPECIAL32, SPECIAL;
        digamma DIGAMMA SPECIAL32, SPECIAL;
    }
}

#[test]
fn unary_functions_agree_with_arbitrary_precision() {
    let mut failures = Vec::new();
    for (of32, of64, table, bound32, bound64) in rows() {
        for &(x, want) in table {
            for (variant, function) in of64.each() {
                let mut out = [0.0];
                function(&[x], &mut out);
                let error = ulps64(out[0], want);
                if error > bound64 {
                    failures.push(format!("f64 {} ({variant}) at {x:e}: {:e}, {error} ulp", of64.name, out[0]));
                }
            }
            if f64::from(x as f32) != x {
                continue;
            }
            for (variant, function) in of32.each() {
                let mut out = [0.0];
                function(&[x as f32], &mut out);
                let error = ulps32(out[0], want);
                if error > bound32 {
                    failures.push(format!("f32 {} ({variant}) at {x:e}: {:e}, {error} ulp", of32.name, out[0]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

macro_rules! binary_rows {
    ($($name:ident $table:ident $ulps32:expr, $ulps64:expr;)+) => {
        vec![$((
            variants!(single::$name(x, y: f32)), variants!(double::$name(x, y: f64)), table::$table, $ulps32, $ulps64,
        ),)+]
    };
}

type BinaryRow = (Variants<Binary<f32>>, Variants<Binary<f64>>, &'static Table2, f64, f64);

fn binary_rows() -> Vec<BinaryRow> {
    binary_rows! {
        pow POW 1.0, ELEMENTARY;
        atan2 ATAN2 1.0, ELEMENTARY;
        hypot HYPOT 1.0, ELEMENTARY;
        polygamma POLYGAMMA SPECIAL32, SPECIAL;
        zeta ZETA SPECIAL32, SPECIAL;
    }
}

#[test]
fn binary_functions_agree_with_arbitrary_precision() {
    let mut failures = Vec::new();
    for (of32, of64, table, bound32, bound64) in binary_rows() {
        for &(x, y, want) in table {
            for (variant, function) in of64.each() {
                let mut out = [0.0];
                function(&[x], &[y], &mut out);
                let error = ulps64(out[0], want);
                if error > bound64 {
                    failures.push(format!("f64 {} ({variant}) at {x:e}, {y:e}: {:e}, {error} ulp", of64.name, out[0]));
                }
            }
            for (variant, function) in of32.each() {
                let mut out = [0.0];
                function(&[x as f32], &[y as f32], &mut out);
                let error = ulps32(out[0], want);
                if error > bound32 {
                    failures.push(format!("f32 {} ({variant}) at {x:e}, {y:e}: {:e}, {error} ulp", of32.name, out[0]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Pseudo-random bit patterns: Knuth's 64-bit linear congruential generator, upper half.
pub(super) fn patterns(seed: u64) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed), |x| {
        Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .skip(1)
    .map(|x| (x >> 32) as u32)
}

/// Pairs of f32: half of them any bit patterns, half of moderate size, where results neither overflow nor underflow.
fn pairs(count: usize) -> (Vec<f32>, Vec<f32>) {
    let mut bits = patterns(7);
    let mut any = || bits.next().map_or(0.0, f32::from_bits);
    let wild: Vec<(f32, f32)> = (0..count / 2).map(|_| (any(), any())).collect();
    // The exponent drawn from 2^-8 ..= 2^7.
    let mut moderate = || f32::from_bits(any().to_bits() & 0x87ff_ffff | 0x3800_0000) * 128.0;
    let tame: Vec<(f32, f32)> = (0..count / 2).map(|_| (moderate().abs(), moderate())).collect();
    wild.into_iter().chain(tame).unzip()
}

#[test]
fn binary_functions_of_f32_are_within_an_ulp() {
    let (x, y) = pairs(200_000);
    let mut out = vec![0.0; x.len()];
    let all: [(Variants<Binary<f32>>, Reference); 4] = [
        (variants!(single::pow(x, y: f32)), libm::pow),
        (variants!(single::atan2(x, y: f32)), libm::atan2),
        (variants!(single::hypot(x, y: f32)), libm::hypot),
        (variants!(single::fmod(x, y: f32)), libm::fmod),
    ];
    for (function, reference) in all {
        let want: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| reference(f64::from(x), f64::from(y))).collect();
        for (variant, f) in function.each() {
            f(&x, &y, &mut out);
            for (i, (&got, &want)) in out.iter().zip(&want).enumerate() {
                let error = ulps32(got, want);
                assert!(error <= 1.0, "{} ({variant}) of {:e}, {:e}: {got:e}, {error} ulp", function.name, x[i], y[i]);
            }
        }
    }
}

#[test]
fn power_of_f64_is_within_its_bound_of_libm() {
    // Bases of all sizes; exponents that keep the result in range.
    let (base, share) = pairs(100_000);
    let base: Vec<f64> = base.into_iter().map(|x| f64::from(x.abs()).powi(7)).collect();
    let exponent: Vec<f64> = base.iter().zip(share).map(|(&x, y)| f64::from(y % 1.0) * 700.0 / x.ln()).collect();
    let function = variants!(double::pow(x, y: f64));
    let mut out = vec![0.0; base.len()];
    for (variant, f) in function.each() {
        f(&base, &exponent, &mut out);
        for ((&x, &y), &got) in base.iter().zip(&exponent).zip(&out) {
            // Both are off by about 1 ulp at most.
            let error = ulps64(got, libm::pow(x, y));
            assert!(error <= 2.0, "{variant}: {x:e}^{y:e} is {got:e}, {error} ulp");
        }
    }
}

#[test]
fn fmod_is_exact() {
    let (x, y) = pairs(200_000);
    let function = variants!(single::fmod(x, y: f32));
    let mut out = vec![0.0; x.len()];
    for (variant, f) in function.each() {
        f(&x, &y, &mut out);
        for (i, &got) in out.iter().enumerate() {
            let want = x[i] % y[i];
            assert!(
                got == want || got.is_nan() && want.is_nan(),
                "{variant}: {:e} % {:e} is {want:e}, not {got:e}",
                x[i],
                y[i]
            );
        }
    }
}

#[test]
fn exact_arguments_give_exact_results() {
    // What users check by eye: powers and logarithms of whole numbers.
    let mut out = [0.0; 4];
    (variants!(single::log2(x: f32)).best())(&[8.0, 1024.0, 0.125, 1e-45], &mut out);
    assert_eq!(out, [3.0, 10.0, -3.0, -149.0]);
    (variants!(single::log10(x: f32)).best())(&[10.0, 1000.0, 1e10, 1.0], &mut out);
    assert_eq!(out, [1.0, 3.0, 10.0, 0.0]);
    (variants!(single::exp2(x: f32)).best())(&[3.0, -149.0, 127.0, 0.0], &mut out);
    assert_eq!(out, [8.0, f32::from_bits(1), f32::from_bits(0x7f00_0000), 1.0]);
    (variants!(single::pow(x, y: f32)).best())(&[2.0, 3.0, -3.0, 10.0], &[10.0, 4.0, 3.0, -1.0], &mut out);
    assert_eq!(out, [1024.0, 81.0, -27.0, 0.1]);
}
