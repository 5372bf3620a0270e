//! Scenarios for counting instructions, which a busy machine does not blur:
//!
//! ```console
//! $ cargo bench --bench instructions --no-run
//! $ valgrind --tool=callgrind target/release/deps/instructions-... add 1000
//! ```
//!
//! The difference between two counts, divided by the difference of the numbers of rounds, is the cost of one round.

use rustgrad::Tensor;
use std::hint::black_box;

fn leaf(n: usize) -> Tensor {
    let values: Vec<f32> = (0..n).map(|i| 1.0 + i as f32 * 1e-3).collect();
    Tensor::from_slice(&values, &[n]).unwrap().requires_grad_(true).unwrap()
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let Some(scenario) = args.next() else { return };
    let rounds: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let (p, q) = (leaf(2), leaf(2));
    let (a, b) = (p.detach(), q.detach());
    match scenario.as_str() {
        "add" => (0..rounds).for_each(|_| drop(black_box(&a + &b))),
        "add_with_grad" => (0..rounds).for_each(|_| drop(black_box(&p + &q))),
        "mul_with_grad" => (0..rounds).for_each(|_| drop(black_box(&p * &q))),
        "sum_backward" => (0..rounds).for_each(|_| p.sum((), false).unwrap().backward().unwrap()),
        // One node a round: the chain is built, walked backward and dropped.
        "chain" => (0..rounds).fold(&p * 1.0, |y, _| &y * 1.0001).sum((), false).unwrap().backward().unwrap(),
        "chain_of_products" => (0..rounds).fold(&p * 1.0, |y, _| &y * &q).sum((), false).unwrap().backward().unwrap(),
        other => eprintln!("no scenario {other}"),
    }
}
