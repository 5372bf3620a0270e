//! Indexing: the cost of a view, and of moving, adding and ordering elements.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustgrad::ops::getitem::IndexItem as I;
use rustgrad::{DType, Tensor};
use std::hint::black_box;

fn floats(sizes: &[usize]) -> Tensor {
    let n: usize = sizes.iter().product();
    let mut state = 1u32;
    let mut draw = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    Tensor::from_slice(&(0..n).map(|_| draw()).collect::<Vec<f32>>(), sizes).unwrap()
}

fn indices(n: usize, below: usize, sizes: &[usize]) -> Tensor {
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize % below) as i64
    };
    Tensor::from_slice(&(0..n).map(|_| draw()).collect::<Vec<i64>>(), sizes).unwrap()
}

fn views(c: &mut Criterion) {
    let t = floats(&[4, 5]);
    let leaf = t.copy().unwrap().requires_grad_(true).unwrap();
    let range = [I::Slice { start: Some(1), stop: None, step: None }];
    let pair = [I::Int(1), I::Int(2)];
    let mut group = c.benchmark_group("views");
    group.bench_function("x[1]", |b| b.iter(|| black_box(t.at(&[I::Int(1)]).unwrap())));
    group.bench_function("x[1:]", |b| b.iter(|| black_box(t.at(&range).unwrap())));
    group.bench_function("x[1,2]", |b| b.iter(|| black_box(t.at(&pair).unwrap())));
    group.bench_function("x[1] with grad", |b| b.iter(|| black_box(leaf.at(&[I::Int(1)]).unwrap())));
    group.bench_function("x[1] = 3", |b| b.iter(|| t.set_at(&[I::Int(1)], 3.0).unwrap()));
    let row = floats(&[5]);
    group.bench_function("x[1] = row", |b| b.iter(|| t.set_at(&[I::Int(1)], &row).unwrap()));
    group.finish();
}

fn elements(c: &mut Criterion) {
    const N: usize = 1 << 20;
    let (table, rows) = (floats(&[20_000, 64]), indices(16_384, 20_000, &[16_384]));
    let (flat, places) = (floats(&[N]), indices(N, N, &[N]));
    let square = floats(&[1024, 1024]);
    let wide = indices(N, 1024, &[1024, 1024]);
    let mut group = c.benchmark_group("elements");
    group.throughput(Throughput::Elements(N as u64));
    group.bench_function("embedding 16384 x 64", |b| {
        b.iter(|| black_box(Tensor::embedding(&table, &rows, -1, false, false).unwrap()))
    });
    let grad = floats(&[16_384, 64]);
    group.bench_function("embedding backward", |b| {
        b.iter(|| black_box(grad.embedding_dense_backward(&rows, 20_000, -1, false).unwrap()))
    });
    group.bench_function("x[rows]", |b| b.iter(|| black_box(table.at(&[I::Tensor(rows.clone())]).unwrap())));
    group.bench_function("gather 1d", |b| b.iter(|| black_box(flat.gather(0, &places).unwrap())));
    group.bench_function("gather dim 1", |b| b.iter(|| black_box(square.gather(1, &wide).unwrap())));
    group.bench_function("gather dim 0", |b| b.iter(|| black_box(square.gather(0, &wide).unwrap())));
    group.bench_function("scatter_add dim 1", |b| b.iter(|| black_box(square.scatter_add(1, &wide, &square).unwrap())));
    group.bench_function("scatter_add dim 0", |b| b.iter(|| black_box(square.scatter_add(0, &wide, &square).unwrap())));
    let mask = rustgrad::ops::to_dtype(&indices(N, 2, &[N]), DType::Bool).unwrap();
    group.bench_function("masked_select", |b| b.iter(|| black_box(flat.masked_select(&mask).unwrap())));
    group.bench_function("x[mask]", |b| b.iter(|| black_box(flat.at(&[I::Tensor(mask.clone())]).unwrap())));
    group.bench_function("nonzero", |b| b.iter(|| black_box(mask.argwhere().unwrap())));
    group.finish();
}

fn order(c: &mut Criterion) {
    const N: usize = 1 << 20;
    let (flat, lines, wide) =
        (floats(&[N]), floats(&[1 << 14, 64]), rustgrad::ops::to_dtype(&floats(&[N]), DType::F64).unwrap());
    let square = floats(&[1024, 1024]);
    let ints = indices(N, 1000, &[N]);
    let mut group = c.benchmark_group("order");
    group.throughput(Throughput::Elements(N as u64)).sample_size(20);
    group.bench_function("sort f32", |b| b.iter(|| black_box(flat.sort(0, false).unwrap())));
    group.bench_function("sort f64", |b| b.iter(|| black_box(wide.sort(0, false).unwrap())));
    group.bench_function("sort lines of 64", |b| b.iter(|| black_box(lines.sort(1, false).unwrap())));
    group.bench_function("sort dim 0", |b| b.iter(|| black_box(square.sort(0, false).unwrap())));
    group.bench_function("topk 10", |b| b.iter(|| black_box(flat.topk(10, 0, true, true).unwrap())));
    group.bench_function("topk 10 of 1024", |b| b.iter(|| black_box(square.topk(10, 1, true, true).unwrap())));
    group.bench_function("unique", |b| b.iter(|| black_box(ints.unique(true, false, false, None).unwrap())));
    group.finish();
}

criterion_group!(benches, views, elements, order);
criterion_main!(benches);
