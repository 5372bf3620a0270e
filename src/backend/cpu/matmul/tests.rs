//! Products against plain loops. Operands hold small integers wherever that makes every sum exact, so results are compared
//! for equality; the order of summation and the error with fractions have tests of their own.

use std::cell::Cell;
use std::fmt::Debug;

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

/// An element type as the tests see it.
trait Sample: Copy + PartialEq + Debug + 'static {
    const DTYPE: DType;
    /// The element type of the kernels, of the same bytes.
    type Element: Element;
    fn small(value: i64) -> Self;
    /// `old + sum of a * b`, by the rules of the type.
    fn expect(old: Option<Self>, products: impl Iterator<Item = (Self, Self)>) -> Self;
}

macro_rules! sample_float {
    ($($type:ty, $dtype:ident, $from:expr, $to:expr);*) => { $(
        impl Sample for $type {
            const DTYPE: DType = DType::$dtype;
            type Element = $type;
            fn small(value: i64) -> Self {
                #[allow(clippy::redundant_closure_call)]
                $from((value % 4) as f64)
            }
            #[allow(clippy::redundant_closure_call)]
            fn expect(old: Option<Self>, products: impl Iterator<Item = (Self, Self)>) -> Self {
                $from(products.map(|(a, b)| $to(a) * $to(b)).sum::<f64>() + old.map_or(0.0, $to))
            }
        }
    )* };
}
sample_float!(f32, F32, |v| v as f32, f64::from; f64, F64, |v| v, |v: f64| v; f16, F16, f16::from_f64, f64::from; bf16, BF16, bf16::from_f64, f64::from);

macro_rules! sample_int {
    ($($type:ty, $dtype:ident);*) => { $(
        impl Sample for $type {
            const DTYPE: DType = DType::$dtype;
            type Element = $type;
            // Spread over the whole type, so that sums wrap.
            fn small(value: i64) -> Self {
                value.wrapping_mul(0x1234_5678_9abc_def1) as $type
            }
            fn expect(old: Option<Self>, products: impl Iterator<Item = (Self, Self)>) -> Self {
                products.fold(old.unwrap_or(0), |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(b)))
            }
        }
    )* };
}
sample_int!(u8, U8; i8, I8; i16, I16; i32, I32; i64, I64);

/// A bool as memory that foreign code may have written: any byte but 0 is true.
#[derive(Clone, Copy, Debug)]
struct Flag(u8);

impl PartialEq for Flag {
    fn eq(&self, other: &Flag) -> bool {
        self.0 == other.0
    }
}

impl Sample for Flag {
    const DTYPE: DType = DType::Bool;
    type Element = BoolByte;
    fn small(value: i64) -> Self {
        Flag(if value % 5 == 0 { 1 + (value % 7).unsigned_abs() as u8 } else { 0 })
    }
    fn expect(old: Option<Self>, products: impl Iterator<Item = (Self, Self)>) -> Self {
        let any = products.fold(false, |any, (a, b)| any | (a.0 != 0 && b.0 != 0));
        Flag(u8::from(any || old.is_some_and(|old| old.0 != 0)))
    }
}

#[allow(clippy::eq_op)]
fn is_nan<T: PartialEq>(value: &T) -> bool {
    value != value
}

/// How a matrix lies in its buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Layout {
    Rows,
    Columns,
    Gaps,
    ColumnGaps,
    NegativeRows,
    NegativeColumns,
    RepeatedRow,
    RepeatedColumn,
}

use Layout::*;

const LAYOUTS: [Layout; 8] =
    [Rows, Columns, Gaps, ColumnGaps, NegativeRows, NegativeColumns, RepeatedRow, RepeatedColumn];
/// The layouts whose elements are all different memory.
const DISJOINT: [Layout; 6] = [Rows, Columns, Gaps, ColumnGaps, NegativeRows, NegativeColumns];

/// A buffer and a matrix in it.
#[derive(Clone)]
struct Matrix<T> {
    data: Vec<T>,
    start: isize,
    row_stride: isize,
    col_stride: isize,
}

impl<T: Copy> Matrix<T> {
    /// A matrix of that layout; `fill` stands wherever no element lies.
    fn new(
        rows: usize,
        columns: usize,
        layout: Layout,
        fill: T,
        mut value: impl FnMut(usize, usize) -> T,
    ) -> Matrix<T> {
        let (r, c) = (rows as isize, columns as isize);
        let (start, row_stride, col_stride) = match layout {
            Rows => (0, c, 1),
            Columns => (0, 1, r),
            Gaps => (3, 2 * c + 5, 2),
            ColumnGaps => (1, 1, r + 3),
            NegativeRows => ((r - 1).max(0) * c, -c, 1),
            NegativeColumns => ((c - 1).max(0), c, -1),
            RepeatedRow => (0, 0, 1),
            RepeatedColumn => (0, 1, 0),
        };
        let span = |stride: isize, len: isize| stride.max(0) * (len - 1).max(0);
        let len = start + span(row_stride, r) + span(col_stride, c) + 1;
        let mut matrix = Matrix { data: vec![fill; len as usize], start, row_stride, col_stride };
        for i in 0..rows {
            for j in 0..columns {
                let at = matrix.index(i, j);
                matrix.data[at] = value(i, j);
            }
        }
        matrix
    }

    fn index(&self, i: usize, j: usize) -> usize {
        (self.start + i as isize * self.row_stride + j as isize * self.col_stride) as usize
    }

    fn get(&self, i: usize, j: usize) -> T {
        self.data[self.index(i, j)]
    }

    fn as_ref(&self) -> MatRef {
        let ptr = self.data.as_ptr().wrapping_offset(self.start).cast();
        MatRef { ptr, row_stride: self.row_stride, col_stride: self.col_stride }
    }

    fn as_mut(&mut self) -> MatMut {
        let ptr = self.data.as_mut_ptr().wrapping_offset(self.start).cast();
        MatMut { ptr, row_stride: self.row_stride, col_stride: self.col_stride }
    }
}

fn never() -> bool {
    false
}

/// A stream of numbers with no pattern.
fn numbers(seed: u64) -> impl FnMut() -> i64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64
    }
}

/// The kernels for processors without fused multiply-add, on whatever processor this is.
fn multiply_portably<T: Sample>(
    shape: (usize, usize, usize),
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &mut Matrix<T>,
    add: bool,
) {
    let order = Order::of(shape.0, shape.1, shape.2);
    let (a, b, c) = (a.as_ref().typed::<T::Element>(), b.as_ref().typed(), c.as_mut().typed());
    // SAFETY: the matrices are built for these shapes.
    assert!(unsafe { drive::product::<T::Element, false>(order, shape, a, b, c, add, &never) });
}

fn multiply<T: Sample>(
    (m, k, n): (usize, usize, usize),
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &mut Matrix<T>,
    beta_one: bool,
) {
    // SAFETY: the matrices are built for these shapes.
    assert!(unsafe { gemm(T::DTYPE, m, k, n, a.as_ref(), b.as_ref(), c.as_mut(), beta_one, &never) });
}

fn check<T: Sample>((m, k, n): (usize, usize, usize), layouts: (Layout, Layout, Layout), beta_one: bool, fill: T) {
    let mut next = numbers((m * 1_000_003 + k * 1009 + n) as u64);
    let a = Matrix::new(m, k, layouts.0, fill, |_, _| T::small(next()));
    let b = Matrix::new(k, n, layouts.1, fill, |_, _| T::small(next()));
    let before = Matrix::new(m, n, layouts.2, fill, |_, _| T::small(next()));
    let mut c = before.clone();
    multiply((m, k, n), &a, &b, &mut c, beta_one);
    let mut portable = before.clone();
    multiply_portably((m, k, n), &a, &b, &mut portable, beta_one);
    let mut expected = before.clone();
    for i in 0..m {
        for j in 0..n {
            let old = beta_one.then(|| before.get(i, j));
            let products = (0..k).map(|p| (a.get(i, p), b.get(p, j)));
            let at = expected.index(i, j);
            expected.data[at] = if k == 0 && beta_one { before.get(i, j) } else { T::expect(old, products) };
        }
    }
    // The whole buffers: what lies between the elements must not change either. Compared by value, NaN being equal to NaN.
    for (kernels, c) in [("native", &c), ("portable", &portable)] {
        for (at, (got, want)) in c.data.iter().zip(&expected.data).enumerate() {
            let same = got == want || (is_nan(got) && is_nan(want));
            let place = format_args!("{} {m}x{k}x{n} {layouts:?} beta_one {beta_one}, {kernels}, at {at}", T::DTYPE);
            assert!(same, "{place}: {got:?}, expected {want:?}");
        }
    }
}

/// Shapes on both sides of every border: register tiles and their halves, blocks, the paths for rows, dots and skinny matrices.
const SHAPES: [(usize, usize, usize); 37] = [
    (0, 3, 4),
    (3, 0, 4),
    (3, 4, 0),
    (0, 0, 0),
    (1, 1, 1),
    (2, 2, 2),
    (3, 5, 7),
    (4, 4, 4),
    (8, 8, 8),
    (5, 9, 17),
    (6, 16, 16),
    (7, 3, 33),
    (16, 16, 16),
    (13, 31, 24),
    (1, 64, 1),
    (1, 1000, 1),
    (2, 500, 2),
    (4, 2100, 1),
    (1, 4200, 3),
    (1, 20, 40),
    (1, 300, 70),
    (1, 9, 2500),
    (1, 2100, 40),
    (1, 50, 600),
    (33, 4200, 1),
    (40, 20, 1),
    (300, 270, 1),
    (70, 1, 90),
    (100, 257, 2),
    (100, 30, 4),
    (3, 300, 100),
    (50, 40, 9),
    (97, 64, 50),
    (99, 520, 35),
    (30, 20, 530),
    (390, 12, 40),
    (200, 300, 2),
];

fn all_layouts<T: Sample>(fill: T) {
    for (index, &shape) in SHAPES.iter().enumerate() {
        for &a in &LAYOUTS {
            for &b in &LAYOUTS {
                // The layout of the result and of the addition vary along with the others: all pairs occur over the shapes.
                let turn = index + a as usize + 3 * b as usize;
                check::<T>(shape, (a, b, DISJOINT[turn % 6]), turn.is_multiple_of(4), fill);
            }
        }
    }
}

macro_rules! per_dtype {
    ($($name:ident: $type:ty, $fill:expr;)*) => { $(
        #[test]
        fn $name() {
            all_layouts::<$type>($fill);
        }
    )* };
}
per_dtype! {
    float32_of_all_layouts_is_exact: f32, f32::NAN;
    float64_of_all_layouts_is_exact: f64, f64::NAN;
    float16_of_all_layouts_is_rounded_once: f16, f16::NAN;
    bfloat16_of_all_layouts_is_rounded_once: bf16, bf16::NAN;
    int64_of_all_layouts_wraps: i64, -7;
    int32_of_all_layouts_wraps: i32, -7;
    int16_of_all_layouts_wraps: i16, -7;
    int8_of_all_layouts_wraps: i8, -7;
    uint8_of_all_layouts_wraps: u8, 7;
    bool_of_all_layouts_is_or_of_ands: Flag, Flag(1);
}

/// The order of summation that the module promises, spelled out.
fn chain<T: number::Number>(old: Option<T>, products: &[(T, T)], order: Order) -> T {
    fn interleaved<T: number::Number, const L: usize>(products: &[(T, T)]) -> T {
        let mut lanes = [T::ZERO; L];
        for (i, &(a, b)) in products.iter().enumerate() {
            let lane = &mut lanes[i % L];
            *lane = if kernel::has_fma() { lane.mul_add::<true>(a, b) } else { lane.mul_add::<false>(a, b) };
        }
        kernel::fold(lanes)
    }
    let in_order = |links: Vec<T>| old.into_iter().chain(links).reduce(T::add).unwrap_or(T::ZERO);
    match order {
        Order::Chains => in_order(products.chunks(256).map(interleaved::<T, 1>).collect()),
        Order::Vector => in_order(products.chunks(8 * 256).map(interleaved::<T, 8>).collect()),
        Order::Dot => in_order(vec![interleaved::<T, 32>(products)]),
    }
}

fn fraction(next: &mut impl FnMut() -> i64) -> f64 {
    next() as f64 / f64::from(1 << 30) - 1.0
}

#[test]
fn sums_are_chains_of_256_whatever_the_strides() {
    for &(m, k, n) in &SHAPES {
        let mut next = numbers(7);
        let values: Vec<f32> = (0..m * k + k * n).map(|_| fraction(&mut next) as f32).collect();
        let (av, bv) = values.split_at(m * k);
        let order = Order::of(m, k, n);
        let expected: Vec<u32> = (0..m * n)
            .map(|at| {
                let (i, j) = (at / n, at % n);
                let products: Vec<(f32, f32)> = (0..k).map(|p| (av[i * k + p], bv[p * n + j])).collect();
                chain(None, &products, order).to_bits()
            })
            .collect();
        for (turn, &layout_a) in DISJOINT.iter().enumerate() {
            for (other, &layout_b) in DISJOINT.iter().enumerate() {
                let a = Matrix::new(m, k, layout_a, 0.0, |i, p| av[i * k + p]);
                let b = Matrix::new(k, n, layout_b, 0.0, |p, j| bv[p * n + j]);
                let mut c = Matrix::new(m, n, DISJOINT[(turn + other) % 6], 0.0, |_, _| 0.0f32);
                multiply((m, k, n), &a, &b, &mut c, false);
                let got: Vec<u32> = (0..m * n).map(|at| c.get(at / n, at % n).to_bits()).collect();
                assert_eq!(got, expected, "{m}x{k}x{n} {layout_a:?} {layout_b:?}");
            }
        }
    }
}

#[test]
fn half_types_are_the_float32_sums_rounded() {
    for &(m, k, n) in &[(7, 600, 40), (1, 700, 60), (1, 3000, 2), (200, 90, 3)] {
        for &layout in &DISJOINT {
            let mut next = numbers(11);
            let a = Matrix::new(m, k, layout, f16::ZERO, |_, _| f16::from_f64(fraction(&mut next)));
            let b = Matrix::new(k, n, layout, f16::ZERO, |_, _| f16::from_f64(fraction(&mut next)));
            let old = Matrix::new(m, n, Rows, f16::ZERO, |_, _| f16::from_f64(fraction(&mut next)));
            let mut c = old.clone();
            multiply((m, k, n), &a, &b, &mut c, true);
            for at in 0..m * n {
                let (i, j) = (at / n, at % n);
                let products: Vec<(f32, f32)> = (0..k).map(|p| (a.get(i, p).to_f32(), b.get(p, j).to_f32())).collect();
                let sum = chain(Some(old.get(i, j).to_f32()), &products, Order::of(m, k, n));
                assert_eq!(c.get(i, j).to_bits(), f16::from_f32(sum).to_bits(), "{m}x{k}x{n} {layout:?} at {i}, {j}");
            }
        }
    }
}

#[test]
fn errors_stay_below_the_bound_of_blocked_summation() {
    // Higham, Accuracy and Stability of Numerical Algorithms, 3.1: a chain of c products and a sum of k / c chains err by at
    // most (c + k / c) u |a| |b|.
    for &(m, k, n) in &[(5, 3000, 20), (1, 5000, 1), (1, 2000, 50)] {
        let mut next = numbers(5);
        let a = Matrix::new(m, k, Rows, 0.0, |_, _| fraction(&mut next) as f32);
        let b = Matrix::new(k, n, Rows, 0.0, |_, _| fraction(&mut next) as f32);
        let mut c = Matrix::new(m, n, Rows, 0.0, |_, _| 0.0f32);
        multiply((m, k, n), &a, &b, &mut c, false);
        for at in 0..m * n {
            let (i, j) = (at / n, at % n);
            let products = || (0..k).map(|p| f64::from(a.get(i, p)) * f64::from(b.get(p, j)));
            let exact: f64 = products().sum();
            let bound =
                (256.0 + k as f64 / 256.0) * f64::from(f32::EPSILON) / 2.0 * products().map(f64::abs).sum::<f64>();
            assert!((f64::from(c.get(i, j)) - exact).abs() <= bound);
        }
    }
}

#[test]
fn zero_times_infinity_is_nan_everywhere() {
    for &(m, k, n) in SHAPES.iter().filter(|&&(m, k, n)| m * k * n > 0) {
        // Row 0 of `a` is zeros and meets an infinity in every column of `b`; the other rows are ones.
        let a = Matrix::new(m, k, Rows, 0.0f32, |i, _| if i == 0 { 0.0 } else { 1.0 });
        let b = Matrix::new(k, n, Columns, 0.0f32, |p, _| if p == k - 1 { f32::INFINITY } else { 1.0 });
        let mut c = Matrix::new(m, n, Rows, 0.0, |_, _| 0.0f32);
        multiply((m, k, n), &a, &b, &mut c, false);
        for at in 0..m * n {
            let (i, j) = (at / n, at % n);
            let got = c.get(i, j);
            assert!(if i == 0 { got.is_nan() } else { got == f32::INFINITY }, "{m}x{k}x{n} at {i}, {j}: {got}");
        }
        // A NaN in the result is overwritten, or stays if it is added to.
        let ones = Matrix::new(k, n, Columns, 0.0f32, |_, _| 1.0);
        for beta_one in [false, true] {
            let mut c = Matrix::new(m, n, Rows, 0.0, |_, _| f32::NAN);
            multiply((m, k, n), &a, &ones, &mut c, beta_one);
            assert!(c.data.iter().all(|v| v.is_nan() == beta_one || m * n != c.data.len()));
        }
    }
}

#[test]
fn a_cancelled_product_stops() {
    let (m, k, n) = (300, 600, 600);
    let a = Matrix::new(m, k, Rows, 0.0f32, |_, _| 1.0);
    let b = Matrix::new(k, n, Rows, 0.0f32, |_, _| 1.0);
    let mut c = Matrix::new(m, n, Rows, 0.0, |_, _| -1.0f32);
    let asked = Cell::new(0);
    let cancel = || {
        asked.set(asked.get() + 1);
        asked.get() == 2
    };
    // SAFETY: the matrices are built for this shape.
    assert!(!unsafe { gemm(DType::F32, m, k, n, a.as_ref(), b.as_ref(), c.as_mut(), false, &cancel) });
    assert_eq!(asked.get(), 2);
    assert_eq!(c.get(m - 1, n - 1), -1.0);
    // A batch stops between its products.
    let asked = Cell::new(0);
    let cancel = || {
        asked.set(asked.get() + 1);
        true
    };
    let shape = (128, 128, 64);
    let done = |c: &mut Matrix<f32>| {
        // SAFETY: each product's matrices fit the buffers; the results are 64 rows of `c` apart.
        unsafe { gemm_batched(DType::F32, 2, shape, a.as_ref(), 1, b.as_ref(), 1, c.as_mut(), 64, false, &cancel) }
    };
    assert!(!done(&mut c));
    assert_eq!(asked.get(), 1);
}

#[test]
fn the_cancel_check_may_multiply() {
    let (m, k, n) = (300, 300, 40);
    let a = Matrix::new(m, k, Columns, 0.0f64, |i, p| ((i + p) % 7) as f64);
    let b = Matrix::new(k, n, Columns, 0.0f64, |p, j| ((p * j) % 5) as f64);
    let mut alone = Matrix::new(m, n, Rows, 0.0, |_, _| 0.0f64);
    multiply((m, k, n), &a, &b, &mut alone, false);
    let mut c = Matrix::new(m, n, Rows, 0.0, |_, _| 0.0f64);
    let cancel = || {
        let mut inner = Matrix::new(k, k, Rows, 0.0, |_, _| 0.0f64);
        multiply((k, n, k), &b, &Matrix::new(n, k, Columns, 0.0, |_, _| -1.0), &mut inner, false);
        false
    };
    // SAFETY: the matrices are built for this shape.
    assert!(unsafe { gemm(DType::F64, m, k, n, a.as_ref(), b.as_ref(), c.as_mut(), false, &cancel) });
    assert_eq!(c.data, alone.data);
}

#[test]
fn parts_cover_at_least_a_million_products() {
    for (m, k, n) in [(1, 1, 1), (1, 100, 100_000), (5000, 10, 3), (1000, 1000, 1000), (100_000, 64, 1), (3, 0, 4)] {
        let (rows, columns) = Plan::new(DType::F32, m, k, n).part_shape();
        assert!(rows >= 1 && columns >= 1 && rows <= m && columns <= n);
        assert!(rows * columns * k >= 1 << 20 || (rows, columns) == (m, n));
    }
}

fn shape() -> impl Strategy<Value = (usize, usize, usize)> {
    let side = prop_oneof![4 => 0..20usize, 2 => 20..140usize, 1 => 250..600usize];
    (side.clone(), side.clone(), side)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 96 }))]

    #[test]
    fn any_shape_and_layout(shape in shape(), a in 0..8usize, b in 0..8usize, c in 0..6usize, beta_one: bool, dtype in 0..10usize) {
        let layouts = (LAYOUTS[a], LAYOUTS[b], DISJOINT[c]);
        match DType::ALL[dtype] {
            DType::Bool => check(shape, layouts, beta_one, Flag(1)),
            DType::U8 => check(shape, layouts, beta_one, 9u8),
            DType::I8 => check(shape, layouts, beta_one, -9i8),
            DType::I16 => check(shape, layouts, beta_one, -9i16),
            DType::I32 => check(shape, layouts, beta_one, -9i32),
            DType::I64 => check(shape, layouts, beta_one, -9i64),
            DType::F16 => check(shape, layouts, beta_one, f16::NAN),
            DType::BF16 => check(shape, layouts, beta_one, bf16::NAN),
            DType::F32 => check(shape, layouts, beta_one, f32::NAN),
            DType::F64 => check(shape, layouts, beta_one, f64::NAN),
        }
    }

    #[test]
    fn any_cut_into_parts_has_the_bits_of_the_whole((m, k, n) in shape(), at in (0.0..1.0f64, 0.0..1.0f64), beta_one: bool, columns: bool) {
        let mut next = numbers(3);
        let layout = if columns { Columns } else { Rows };
        let a = Matrix::new(m, k, layout, 0.0, |_, _| fraction(&mut next) as f32);
        let b = Matrix::new(k, n, layout, 0.0, |_, _| fraction(&mut next) as f32);
        let before = Matrix::new(m, n, layout, 0.0, |_, _| fraction(&mut next) as f32);
        let mut whole = before.clone();
        multiply((m, k, n), &a, &b, &mut whole, beta_one);
        let mut parts = before.clone();
        let plan = Plan::new(DType::F32, m, k, n);
        let (row, column) = ((at.0 * m as f64) as usize, (at.1 * n as f64) as usize);
        for rows in [0..row, row..m] {
            for columns in [0..column, column..n] {
                // SAFETY: the matrices are built for the plan's shape.
                let done = unsafe { plan.run(rows.clone(), columns, a.as_ref(), b.as_ref(), parts.as_mut(), beta_one, &never) };
                prop_assert!(done);
            }
        }
        prop_assert_eq!(
            whole.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            parts.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_batch_has_the_bits_of_its_products(batch in 0..5usize, m in 0..9usize, k in 0..80usize, n in 0..20usize, shared: bool, beta_one: bool) {
        let mut next = numbers(13);
        let a = Matrix::new(batch * m, k, Rows, 0.0, |_, _| fraction(&mut next) as f32);
        let b = Matrix::new(if shared { k } else { batch * k }, n, Rows, 0.0, |_, _| fraction(&mut next) as f32);
        let before = Matrix::new(batch * m, n, Rows, 0.0, |_, _| fraction(&mut next) as f32);
        let (a_stride, b_stride, c_stride) = ((m * k) as isize, if shared { 0 } else { (k * n) as isize }, (m * n) as isize);
        let mut together = before.clone();
        // SAFETY: the strides are those of the stacked matrices.
        let done = unsafe {
            let c = together.as_mut();
            gemm_batched(DType::F32, batch, (m, k, n), a.as_ref(), a_stride, b.as_ref(), b_stride, c, c_stride, beta_one, &never)
        };
        prop_assert!(done);
        let mut single = before.clone();
        for i in 0..batch as isize {
            let part = |matrix: MatRef, stride: isize| MatRef { ptr: matrix.ptr.wrapping_offset(4 * i * stride), ..matrix };
            let c = single.as_mut();
            let c = MatMut { ptr: c.ptr.wrapping_offset(4 * i * c_stride), ..c };
            // SAFETY: as above.
            let done = unsafe {
                let (a, b) = (part(a.as_ref(), a_stride), part(b.as_ref(), b_stride));
                gemm(DType::F32, m, k, n, a, b, c, beta_one, &never)
            };
            prop_assert!(done);
        }
        prop_assert_eq!(
            together.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            single.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
    }
}
