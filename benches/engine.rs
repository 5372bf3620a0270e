//! The engine: cost per node of building a graph, walking it backward and dropping it.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustgrad::autograd::{self, BackwardOptions};
use rustgrad::{Tensor, threads};
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

/// Backward alone, in nodes per second, on one thread and on two. Small graphs stay with their caller: there the two are alike.
fn backward(c: &mut Criterion) {
    let chain = |x: &Tensor| (0..1000).fold(x * 1.0, |y, _| &y * 1.0001);
    let diamonds = |x: &Tensor| (0..333).fold(x * 1.0, |y, _| (&y * 0.5) + (&y * 0.5));
    let wide = |x: &Tensor| {
        let branch = |k: u64| (0..20).fold(x * (k as f64), |y, _| y.tanh().unwrap());
        (1..64).fold(branch(0), |sum, k| sum + branch(k))
    };
    let before = threads::num_threads();
    let mut group = c.benchmark_group("backward");
    for (name, elements, nodes, build) in [
        ("chain", 1, 1003, &chain as &dyn Fn(&Tensor) -> Tensor),
        ("diamonds", 1, 1002, &diamonds),
        ("wide", 4096, 64 * 21 + 63 + 2, &wide),
    ] {
        let x = leaf(elements);
        let loss = build(&x).sum((), false).unwrap();
        group.throughput(Throughput::Elements(nodes));
        let options = BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() };
        for n in [1, 2] {
            threads::set_num_threads(n).unwrap();
            group.bench_function(format!("{name}_on_{n}"), |bench| {
                bench.iter(|| {
                    x.set_grad(None).unwrap();
                    autograd::backward(std::slice::from_ref(&loss), &[], &options).unwrap();
                })
            });
        }
    }
    group.finish();
    threads::set_num_threads(before).unwrap();
}

criterion_group!(benches, small_ops, chain, wide, backward);
criterion_main!(benches);
