//! The largest error of every elementary function: over a dense sample of all bit patterns, or over all of them.

use super::{Case, cases32, cases64, ulps32, ulps64};

const BLOCK: usize = 1024;

/// The largest error among the floats of every `step`-th bit pattern from `start` to `end`, in each variant.
fn worst32(case: &Case<f32>, start: u64, end: u64, step: usize) -> Vec<(&'static str, f64, f32)> {
    let mut worst: Vec<_> = case.block.each().map(|(variant, _)| (variant, 0.0, 0.0)).collect();
    let mut patterns = (start..end).step_by(step);
    let mut out = [0.0; BLOCK];
    loop {
        let x: Vec<f32> = patterns.by_ref().take(BLOCK).map(|bits| f32::from_bits(bits as u32)).collect();
        if x.is_empty() {
            return worst;
        }
        let want: Vec<f64> = x.iter().map(|&x| (case.reference)(f64::from(x))).collect();
        for ((_, function), worst) in case.block.each().zip(&mut worst) {
            let out = &mut out[..x.len()];
            function(&x, out);
            for ((&x, &got), &want) in x.iter().zip(&*out).zip(&want) {
                let error = ulps32(got, want);
                if error > worst.1 {
                    (worst.1, worst.2) = (error, x);
                }
            }
        }
    }
}

#[test]
fn single_precision_functions_are_within_their_bounds() {
    let mut failures = Vec::new();
    for case in cases32() {
        for (variant, error, at) in worst32(&case, 0, 1 << 32, 7919) {
            println!("{:8} {variant:8} {error:.3} ulp at {at:e}", case.block.name);
            if error > case.ulps {
                failures.push(format!("{} ({variant}): {error} ulp at {at:e}", case.block.name));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The functions in f32 arithmetic. The others go by way of f64 and err by little more than their last rounding, so the
/// sample tells enough.
const IN_F32: [&str; 13] =
    ["exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "asin", "acos", "atan", "tanh", "erf", "sigmoid"];

#[test]
#[ignore = "exhaustive, minutes: make ci-slow"]
fn functions_in_f32_arithmetic_are_within_their_bounds_everywhere() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut failures = Vec::new();
    for case in cases32().into_iter().filter(|case| IN_F32.contains(&case.block.name)) {
        let part = (1_u64 << 32).div_ceil(threads);
        let work = &|i: u64| worst32(&case, i * part, ((i + 1) * part).min(1 << 32), 1);
        let slices: Vec<_> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i))).collect();
            handles.into_iter().flat_map(|handle| handle.join().expect("no panic while measuring")).collect()
        });
        for (variant, _) in case.block.each() {
            let of_variant = slices.iter().filter(|slice| slice.0 == variant);
            let &(_, error, at) = of_variant.max_by(|a, b| a.1.total_cmp(&b.1)).expect("at least one thread");
            println!("{:8} {variant:8} {error:.3} ulp at {at:e}", case.block.name);
            if error > case.ulps {
                failures.push(format!("{} ({variant}): {error} ulp at {at:e}", case.block.name));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Positive and negative f64 of every size: `count` magnitudes from `low` to `high`, spread evenly over the exponents.
fn spread64(low: f64, high: f64, count: u64) -> Vec<f64> {
    let (low, high) = (low.to_bits(), high.to_bits());
    let step = ((high - low) / count) | 1;
    (0..count).map(|i| f64::from_bits(low + i * step)).flat_map(|x| [x, -x]).collect()
}

#[test]
fn double_precision_functions_are_within_their_bounds_of_libm() {
    let mut points = spread64(5e-324, f64::MAX, 10_007);
    points.extend(spread64(1e-9, 1e3, 100_003));
    let mut out = vec![0.0; points.len()];
    let mut failures = Vec::new();
    for case in cases64() {
        let want: Vec<f64> = points.iter().map(|&x| (case.reference)(x)).collect();
        for (variant, function) in case.block.each() {
            function(&points, &mut out);
            let errors = out.iter().zip(&want).zip(&points).map(|((&got, &want), &x)| (ulps64(got, want), x));
            let (error, at) = errors.fold((0.0, 0.0), |worst, new| if new.0 > worst.0 { new } else { worst });
            println!("{:8} {variant:8} {error:.1} ulp at {at:e}", case.block.name);
            if error > case.ulps + 1.0 {
                failures.push(format!("{} ({variant}): {error} ulp at {at:e}", case.block.name));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
