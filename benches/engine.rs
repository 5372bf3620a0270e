//! The engine: cost per node of building a graph, walking it backward and dropping it.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustgrad::Tensor;
use std::hint::black_box;

fn leaf(n: usize) -> Tensor {
    let values: Vec<f32> = (0..n).map(|i| 1.0 + i as f32 * 1e-3).collect();
    Tensor::from_slice(&values, &[n]).unwrap().requires_grad_(true).unwrap()
}

fn small_ops(c: &mut Criterion) {
    let (a, b) = (leaf(2).detach(), leaf(2).detach());
    let (p, q) = (leaf(2), leaf(2));
    let mut group = c.benchmark_group("two_elements");
    group.bench_function("add", |bench| bench.iter(|| black_box(&a + &b)));
    group.bench_function("add_with_grad", |bench| bench.iter(|| black_box(&p + &q)));
    group.bench_function("mul_with_grad", |bench| bench.iter(|| black_box(&p * &q)));
    group.bench_function("sum_backward", |bench| bench.iter(|| p.sum((), false).unwrap().backward().unwrap()));
    group.finish();
}

/// A chain: every node has one consumer.
fn chain(c: &mut Criterion) {
    const N: u64 = 1000;
    let x = leaf(1);
    let build = || (0..N).fold(&x * 1.0, |y, _| &y * 1.0001);
    let mut group = c.benchmark_group("chain");
    group.throughput(Throughput::Elements(N));
    group.bench_function("build_and_drop", |bench| bench.iter(|| black_box(build())));
    group.bench_function("build_backward_drop", |bench| {
        bench.iter(|| build().sum((), false).unwrap().backward().unwrap())
    });
    group.finish();
}

/// A wide graph: one leaf, many branches of a few operations, one sum.
fn wide(c: &mut Criterion) {
    const BRANCHES: u64 = 64;
    const DEPTH: u64 = 20;
    let mut group = c.benchmark_group("wide");
    group.throughput(Throughput::Elements(BRANCHES * DEPTH));
    for n in [2usize, 4096] {
        let x = leaf(n);
        group.bench_function(format!("{n}_elements"), |bench| {
            bench.iter(|| {
                let branch = |k: u64| (0..DEPTH).fold(&x * (k as f64), |y, _| &y * &x);
                let total = (1..BRANCHES).fold(branch(0), |sum, k| sum + branch(k));
                total.sum((), false).unwrap().backward().unwrap();
            })
        });
    }
    group.finish();
}

criterion_group!(benches, small_ops, chain, wide);
criterion_main!(benches);
