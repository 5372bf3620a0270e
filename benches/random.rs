//! Fills of the CPU backend's random generator: `cargo bench --bench random`. Throughput is in elements a second.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustgrad::backend::cpu::random::Philox;

const N: usize = 1 << 14;

fn random(criterion: &mut Criterion) {
    let philox = Philox::new(1);
    let mut group = criterion.benchmark_group("random");
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500)).sample_size(20);
    group.throughput(Throughput::Elements(N as u64));
    let (mut f32s, mut f64s, mut i64s, mut u8s) = (vec![0f32; N], vec![0f64; N], vec![0i64; N], vec![0u8; N]);
    group.bench_function("uniform_f32", |b| b.iter(|| philox.uniform_f32(&mut f32s, 0)));
    group.bench_function("uniform_f64", |b| b.iter(|| philox.uniform_f64(&mut f64s, 0)));
    group.bench_function("normal_f32", |b| b.iter(|| philox.normal_f32(&mut f32s, 0)));
    group.bench_function("normal_f64", |b| b.iter(|| philox.normal_f64(&mut f64s, 0)));
    group.bench_function("exponential_f32", |b| b.iter(|| philox.exponential_f32(&mut f32s, 0, 1.0)));
    group.bench_function("exponential_f64", |b| b.iter(|| philox.exponential_f64(&mut f64s, 0, 1.0)));
    group.bench_function("randint", |b| b.iter(|| philox.randint(&mut i64s, 0, 0, 1000)));
    group.bench_function("randint_wide", |b| b.iter(|| philox.randint(&mut i64s, 0, 0, i64::MAX)));
    group.bench_function("bernoulli", |b| b.iter(|| philox.bernoulli(&mut u8s, 0, 0.3)));
    group.bench_function("randperm", |b| b.iter(|| philox.randperm(&mut i64s, 0)));
    group.throughput(Throughput::Elements(1));
    group.bench_function("one_uniform_f32", |b| b.iter(|| philox.uniform_f32(&mut f32s[..1], 0)));
    group.finish();
}

criterion_group!(benches, random);
criterion_main!(benches);
