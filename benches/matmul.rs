//! Matrix products of the CPU backend alone: `cargo bench --bench matmul`. Throughput is in multiply-adds a second.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::{bf16, f16};
use rustgrad::backend::cpu::matmul::{MatMut, MatRef, gemm, gemm_batched};
use rustgrad::dtype::DType;

/// Whether an operand lies in memory by rows or by columns.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Rows,
    Columns,
}
use By::{Columns, Rows};

/// Name, shape, products, and how the operands lie.
type Case<'a> = (&'a str, (usize, usize, usize), usize, By, By);

struct Operands<T> {
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
}

impl<T: Copy> Operands<T> {
    fn new((m, k, n): (usize, usize, usize), batch: usize, value: impl Fn(usize) -> T) -> Operands<T> {
        let make = |len: usize| (0..len).map(|i| value(i % 13)).collect();
        Operands { a: make(batch * m * k), b: make(batch * k * n), c: make(batch * m * n) }
    }

    fn multiply(&mut self, dtype: DType, (m, k, n): (usize, usize, usize), batch: usize, a: By, b: By) {
        let strides = |by: By, rows: usize, columns: usize| {
            if by == Rows { (columns as isize, 1) } else { (1, rows as isize) }
        };
        let ((a_row, a_col), (b_row, b_col)) = (strides(a, m, k), strides(b, k, n));
        let a = MatRef { ptr: self.a.as_ptr().cast(), row_stride: a_row, col_stride: a_col };
        let b = MatRef { ptr: self.b.as_ptr().cast(), row_stride: b_row, col_stride: b_col };
        let c = MatMut { ptr: self.c.as_mut_ptr().cast(), row_stride: n as isize, col_stride: 1 };
        let never = || false;
        // SAFETY: the vectors hold `batch` matrices of these shapes.
        let done = unsafe {
            if batch == 1 {
                gemm(dtype, m, k, n, a, b, c, false, &never)
            } else {
                let (a_next, b_next, c_next) = ((m * k) as isize, (k * n) as isize, (m * n) as isize);
                gemm_batched(dtype, batch, (m, k, n), a, a_next, b, b_next, c, c_next, false, &never)
            }
        };
        assert!(black_box(done));
    }
}

fn group<T: Copy>(criterion: &mut Criterion, name: &str, dtype: DType, value: impl Fn(usize) -> T, cases: &[Case<'_>]) {
    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400)).sample_size(20);
    for &(kind, (m, k, n), batch, a, b) in cases {
        let mut operands = Operands::new((m, k, n), batch, &value);
        group.throughput(Throughput::Elements((batch * m * k * n) as u64));
        let times = if batch == 1 { String::new() } else { format!("{batch}x") };
        group.bench_function(BenchmarkId::new(kind, format!("{times}{m}x{k}x{n}")), |bencher| {
            bencher.iter(|| operands.multiply(dtype, (m, k, n), batch, a, b));
        });
    }
    group.finish();
}

fn matmul(criterion: &mut Criterion) {
    let mut cases = Vec::new();
    for n in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100, 128, 256, 512] {
        cases.push(("square", (n, n, n), 1, Rows, Rows));
    }
    for n in [8, 32, 128, 512] {
        cases.push(("square_nt", (n, n, n), 1, Rows, Columns));
        cases.push(("square_tn", (n, n, n), 1, Columns, Rows));
    }
    for n in [64, 256, 1024] {
        cases.push(("matrix_vector", (n, n, 1), 1, Rows, Rows));
        cases.push(("vector_matrix", (1, n, n), 1, Rows, Rows));
        cases.push(("outer", (n, 1, n), 1, Rows, Rows));
    }
    for k in [16, 256, 4096, 1 << 20] {
        cases.push(("dot", (1, k, 1), 1, Rows, Rows));
    }
    for shape in [(1000, 1000, 4), (4, 1000, 1000), (32, 784, 128), (128, 784, 10), (10_000, 10, 10)] {
        cases.push(("skinny", shape, 1, Rows, Rows));
        cases.push(("skinny_nt", shape, 1, Rows, Columns));
    }
    for (batch, n) in [(1000, 2), (1000, 4), (1000, 8), (100, 16), (100, 32)] {
        cases.push(("batch", (n, n, n), batch, Rows, Rows));
    }
    group(criterion, "float32", DType::F32, |i| i as f32, &cases);
    let squares: Vec<_> = [8, 64, 256].map(|n| ("square", (n, n, n), 1, Rows, Rows)).into();
    group(criterion, "float64", DType::F64, |i| i as f64, &squares);
    group(criterion, "float16", DType::F16, |i| f16::from_f32(i as f32), &squares);
    group(criterion, "bfloat16", DType::BF16, |i| bf16::from_f32(i as f32), &squares);
    group(criterion, "int64", DType::I64, |i| i as i64, &squares);
    group(criterion, "int32", DType::I32, |i| i as i32, &squares);
    group(criterion, "int8", DType::I8, |i| i as i8, &squares);
    group(criterion, "bool", DType::Bool, |i| i as u8 % 2, &squares);
}

criterion_group!(benches, matmul);
criterion_main!(benches);
