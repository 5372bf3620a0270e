//! Values at zeros, infinities, NaN, poles and borders of domains, with the signs of zeros; and that an element's bits
//! depend on that element alone.

use super::{Binary, Unary, Variants, cases32, cases64, double, single, variants};
use std::f64::consts::{FRAC_PI_2, PI};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// A function and its edges: arguments, then the value.
type Edges<F, Row> = (Variants<F>, &'static [Row]);
/// A function of f32, of f64, and in C.
type InC = (Variants<Binary<f32>>, Variants<Binary<f64>>, fn(f64, f64) -> f64);

/// What f32 and f64 functions share at the edges: `(argument, value)`, exact or rounded to the type.
macro_rules! edge_rows {
    ($module:ident, $t:ty) => {
        vec![
            (variants!($module::exp(x: $t)), &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)][..]),
            (variants!($module::exp2(x: $t)), &[(0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0), (10.0, 1024.0)]),
            (variants!($module::expm1(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0), (1e-30, 1e-30)]),
            (variants!($module::log(x: $t)), &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (-1e-40, NAN)]),
            (variants!($module::log2(x: $t)), &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (4.0, 2.0)]),
            (variants!($module::log10(x: $t)), &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (100.0, 2.0)]),
            (variants!($module::log1p(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-INF, NAN), (-2.0, NAN), (1e-30, 1e-30)]),
            (variants!($module::sin(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e-30, 1e-30), (-1e-40, -1e-40)]),
            (variants!($module::cos(x: $t)), &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (1e-30, 1.0)]),
            (variants!($module::tan(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e-30, 1e-30)]),
            (variants!($module::asin(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (1.0, FRAC_PI_2), (-1.0, -FRAC_PI_2), (1.5, NAN), (-1.5, NAN), (INF, NAN)]),
            (variants!($module::acos(x: $t)), &[(0.0, FRAC_PI_2), (1.0, 0.0), (-1.0, PI), (1.5, NAN), (-1.5, NAN), (INF, NAN)]),
            (variants!($module::atan(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, FRAC_PI_2), (-INF, -FRAC_PI_2), (1e-40, 1e-40)]),
            (variants!($module::sinh(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF), (-1e4, -INF)]),
            (variants!($module::cosh(x: $t)), &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e4, INF)]),
            (variants!($module::tanh(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e4, 1.0), (1e-40, 1e-40)]),
            (variants!($module::asinh(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e-40, 1e-40)]),
            (variants!($module::acosh(x: $t)), &[(1.0, 0.0), (INF, INF), (-INF, NAN), (0.5, NAN), (-6767.0, NAN)]),
            (variants!($module::atanh(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN)]),
            (variants!($module::erf(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (10.0, 1.0)]),
            (variants!($module::erfc(x: $t)), &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (-10.0, 2.0), (40.0, 0.0)]),
            (variants!($module::erfcx(x: $t)), &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, INF), (-40.0, INF)]),
            (variants!($module::sigmoid(x: $t)), &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0)]),
            (variants!($module::erfinv(x: $t)), &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (-INF, NAN)]),
            (variants!($module::ndtri(x: $t)), &[(0.0, -INF), (-0.0, -INF), (0.5, 0.0), (1.0, INF), (1.5, NAN), (-0.5, NAN), (INF, NAN)]),
            (variants!($module::lgamma(x: $t)), &[(0.0, INF), (-0.0, INF), (-3.0, INF), (1.0, 0.0), (2.0, 0.0), (INF, INF), (-INF, INF)]),
            (variants!($module::digamma(x: $t)), &[(0.0, -INF), (-0.0, INF), (-3.0, NAN), (INF, INF), (-INF, NAN)]),
        ]
    };
}

/// The same for functions of two arguments, as PyTorch gives them, and where it gives NaN for a limit that exists, the
/// limit (`polygamma` and `zeta` at infinity).
macro_rules! binary_edge_rows {
    ($module:ident, $t:ty) => {
        vec![
            (
                variants!($module::polygamma(n, x: $t)),
                &[
                    (0.0, 0.0, -INF),
                    (1.0, 0.0, INF),
                    (1.0, -2.0, INF),
                    (1.0, INF, 0.0),
                    (1.0, -INF, NAN),
                    (2.0, 0.0, -INF),
                    (2.0, -1.0, -INF),
                    (3.0, -1.0, INF),
                    (2.0, INF, -0.0),
                    (0.5, 1.0, NAN),
                    (-1.0, 1.0, NAN),
                    (2.0, NAN, NAN),
                ][..],
            ),
            (
                variants!($module::zeta(s, q: $t)),
                &[
                    (1.0, 2.0, INF),
                    (0.5, 2.0, NAN),
                    (2.0, 0.0, INF),
                    (2.0, -1.0, INF),
                    (2.5, -1.5, NAN),
                    (2.0, INF, 0.0),
                    (INF, 2.0, 0.0),
                    (INF, 1.0, 1.0),
                    (INF, 0.5, INF),
                    (NAN, 1.0, NAN),
                    (2.0, NAN, NAN),
                    (2.0, -INF, INF),
                ],
            ),
        ]
    };
}

/// Equal, signs of zeros included, all NaN alike.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn edges_of_unary_functions() {
    let mut failures = Vec::new();
    let mut expect = |name: &str, x: f64, got: f64, want: f64| {
        if !same(got, want) {
            failures.push(format!("{name} at {x:e}: {got:e}, not {want:e}"));
        }
    };
    let rows: Vec<Edges<Unary<f32>, (f64, f64)>> = edge_rows!(single, f32);
    for (function, rows) in rows {
        for (variant, f) in function.each() {
            for &(x, want) in rows.iter().chain(&[(NAN, NAN)]) {
                let mut out = [0.0];
                f(&[x as f32], &mut out);
                expect(&format!("f32 {} {variant}", function.name), x, f64::from(out[0]), f64::from(want as f32));
            }
        }
    }
    let rows: Vec<Edges<Unary<f64>, (f64, f64)>> = edge_rows!(double, f64);
    for (function, rows) in rows {
        for (variant, f) in function.each() {
            for &(x, want) in rows.iter().chain(&[(NAN, NAN)]) {
                let mut out = [0.0];
                f(&[x], &mut out);
                expect(&format!("f64 {} {variant}", function.name), x, out[0], want);
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn edges_of_polygamma_and_zeta() {
    let rows: Vec<Edges<Binary<f32>, (f64, f64, f64)>> = binary_edge_rows!(single, f32);
    for (function, rows) in rows {
        for &(x, y, want) in rows {
            let mut out = [0.0];
            (function.best())(&[x as f32], &[y as f32], &mut out);
            assert!(same(f64::from(out[0]), want), "f32 {} of {x}, {y}: {}, not {want}", function.name, out[0]);
        }
    }
    let rows: Vec<Edges<Binary<f64>, (f64, f64, f64)>> = binary_edge_rows!(double, f64);
    for (function, rows) in rows {
        for &(x, y, want) in rows {
            let mut out = [0.0];
            (function.best())(&[x], &[y], &mut out);
            assert!(same(out[0], want), "f64 {} of {x}, {y}: {}, not {want}", function.name, out[0]);
        }
    }
}

/// Every combination of special values, against the C library's functions through std.
#[test]
fn edges_of_functions_that_c_defines() {
    let sides = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        1e-45,
        1e-38,
        1.000_000_1,
        0.999_999_9,
        8_388_607.0,
        8_388_608.5,
        16_777_215.0,
        16_777_216.0,
        1e30,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];
    let values: Vec<f32> = sides.into_iter().flat_map(|x| [x, -x]).collect();
    let (x, y): (Vec<f32>, Vec<f32>) = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).unzip();
    let (wide_x, wide_y): (Vec<f64>, Vec<f64>) =
        (x.iter().copied().map(f64::from).collect(), y.iter().copied().map(f64::from).collect());
    let all: [InC; 4] = [
        (variants!(single::pow(x, y: f32)), variants!(double::pow(x, y: f64)), f64::powf),
        (variants!(single::atan2(x, y: f32)), variants!(double::atan2(x, y: f64)), f64::atan2),
        (variants!(single::hypot(x, y: f32)), variants!(double::hypot(x, y: f64)), f64::hypot),
        (variants!(single::fmod(x, y: f32)), variants!(double::fmod(x, y: f64)), |x, y| x % y),
    ];
    for (of32, of64, reference) in all {
        for (variant, f) in of32.each() {
            let mut out = vec![0.0; x.len()];
            f(&x, &y, &mut out);
            for (i, &got) in out.iter().enumerate() {
                let want = reference(wide_x[i], wide_y[i]) as f32;
                let close = (got - want).abs() <= want.abs() * f32::EPSILON;
                let right =
                    if want == 0.0 || !want.is_finite() { same(f64::from(got), f64::from(want)) } else { close };
                assert!(right, "f32 {} ({variant}) of {:e}, {:e}: {got:e}, not {want:e}", of32.name, x[i], y[i]);
            }
        }
        for (variant, f) in of64.each() {
            let mut out = vec![0.0; x.len()];
            f(&wide_x, &wide_y, &mut out);
            for (i, &got) in out.iter().enumerate() {
                let want = reference(wide_x[i], wide_y[i]);
                let close = (got - want).abs() <= want.abs() * 2.0 * f64::EPSILON;
                let right = if want == 0.0 || !want.is_finite() { same(got, want) } else { close };
                assert!(right, "f64 {} ({variant}) of {:e}, {:e}: {got:e}, not {want:e}", of64.name, x[i], y[i]);
            }
        }
    }
}

/// Arguments for the vector path, for the slow one, and for neither.
const MIXED: [f64; 23] = [
    0.3, -0.7, 1.0, 2.5, -3.75, 17.0, -88.5, 120.0, 8191.5, 8193.0, 99_999.0, -131_072.0, 1e6, -2e6, 1e30, 3e38, 1e-40,
    -1e-44, 0.0, -0.0, INF, -INF, NAN,
];

/// Fails unless each of the arguments gives the same bits alone, at every place of a block, beside any other.
macro_rules! check_alone_and_together {
    ($name:expr, $f:expr, $mixed:expr, $zero:expr) => {
        let mixed = $mixed;
        let alone: Vec<_> = mixed
            .iter()
            .map(|&x| {
                let mut out = [$zero];
                $f(&[x], &mut out);
                out[0]
            })
            .collect();
        for length in [2, 3, 5, 8, 13, 16, 31, 64, 200] {
            for shift in 0..mixed.len() {
                let at = |i: usize| (i + shift) % mixed.len();
                let x: Vec<_> = (0..length).map(|i| mixed[at(i)]).collect();
                let mut out = vec![$zero; length];
                $f(&x, &mut out);
                for (i, got) in out.iter().enumerate() {
                    let want = alone[at(i)];
                    assert!(
                        got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                        "{}: {:e} gives {want:e} alone and {got:e} at {i} of {length}",
                        $name,
                        x[i]
                    );
                }
            }
        }
    };
}

#[test]
fn an_element_does_not_depend_on_its_neighbours_or_place() {
    for case in cases32() {
        for (_, f) in case.block.each() {
            check_alone_and_together!(case.block.name, f, MIXED.map(|x| x as f32), 0.0_f32);
        }
    }
    for case in cases64() {
        for (_, f) in case.block.each() {
            check_alone_and_together!(case.block.name, f, MIXED, 0.0_f64);
        }
    }
    let fmod = variants!(single::fmod(x, y: f32));
    for (_, f) in fmod.each() {
        let by_three = |x: &[f32], out: &mut [f32]| f(x, &vec![3.1; x.len()], out);
        check_alone_and_together!(fmod.name, by_three, MIXED.map(|x| x as f32), 0.0_f32);
    }
    let pow = variants!(single::pow(x, y: f32));
    for (_, f) in pow.each() {
        let cubed = |x: &[f32], out: &mut [f32]| f(x, &vec![3.0; x.len()], out);
        check_alone_and_together!(pow.name, cubed, MIXED.map(|x| x as f32), 0.0_f32);
    }
}
