//! Threads of the user's, and the pool's beside them, on tensors and graphs that they share: nothing is lost, and what each
//! computes has the bits of one thread alone. `make tsan` runs these under ThreadSanitizer.

use rustgrad::autograd::{BackwardOptions, GradOptions, backward, grad, no_grad};
use rustgrad::threads::set_num_threads;
use rustgrad::{Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(debug_assertions) { 4 } else { 20 };

fn leaf(count: usize, first: f32) -> Tensor {
    let values: Vec<f32> = (0..count).map(|k| first + (k % 97) as f32 * 0.01).collect();
    Tensor::from_slice(&values, &[count]).unwrap().requires_grad_(true).unwrap()
}

fn keeping() -> GradOptions {
    GradOptions { retain_graph: Some(true), ..GradOptions::default() }
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.detach().to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Branches from shared leaves to one sum, wide and dear enough to be shared with the pool.
fn branches(leaves: &[Tensor]) -> Result<Tensor> {
    let mut total = Tensor::from(0.0f32);
    for k in 0..8 {
        let mut x = leaves[k % leaves.len()].clone();
        for _ in 0..3 {
            x = (&x * (0.5 + k as f64 * 0.1)).tanh()?;
        }
        total = total + x.sum((), false)?;
    }
    Ok(total)
}

/// Runs something on several threads at once, on each `rounds` times, and waits for them.
fn on_threads(rounds: usize, run: impl Fn(usize) + Sync) {
    scope(|scope| {
        let run = &run;
        let spawn = |k| scope.spawn(move || (0..rounds).for_each(|_| run(k)));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The same, beside workers of the pool.
fn at_once(run: impl Fn(usize) -> Result<()> + Sync) {
    set_num_threads(3).unwrap();
    on_threads(ROUNDS, |k| run(k).unwrap());
}

#[test]
fn gradients_of_one_graph_may_be_taken_by_many_threads() -> Result<()> {
    let leaves = [leaf(20_000, 0.1), leaf(20_000, -0.4)];
    let loss = branches(&leaves)?;
    let alone = grad(std::slice::from_ref(&loss), &leaves, &[], &keeping())?;
    let alone: Vec<_> = alone.iter().map(|grad| bits(grad.as_ref().unwrap())).collect();
    at_once(|_| {
        let grads = grad(std::slice::from_ref(&loss), &leaves, &[], &keeping())?;
        assert!(grads.iter().zip(&alone).all(|(grad, alone)| bits(grad.as_ref().unwrap()) == *alone));
        Ok(())
    });
    assert!(leaves.iter().all(|leaf| leaf.grad().is_none()));
    Ok(())
}

#[test]
fn graphs_that_share_a_part_are_walked_at_once_and_accumulate_all() -> Result<()> {
    let w = leaf(5_000, 0.0);
    let calls = Arc::new(AtomicUsize::new(0));
    let shared = &w * 2.0;
    let counted = calls.clone();
    shared.register_hook(move |_: &Tensor| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    })?;
    // Whole numbers, so that sums do not depend on the order.
    at_once(|k| {
        let head = (&shared * (k + 1) as f64).sum((), false)?;
        backward(&[head], &[], &BackwardOptions { retain_graph: Some(true), ..BackwardOptions::default() })
    });
    let all = (2 * ROUNDS * (1..=THREADS).sum::<usize>()) as f32;
    assert!(w.grad().unwrap().to_vec::<f32>()?.iter().all(|x| *x == all));
    assert_eq!(calls.load(Ordering::Relaxed), ROUNDS * THREADS);
    Ok(())
}

#[test]
fn weights_are_shared_by_forwards_and_backwards_at_once() -> Result<()> {
    let weights = [leaf(64 * 48, 0.01).reshape([64i64, 48])?, leaf(48 * 8, 0.02).reshape([48i64, 8])?];
    let weights: Vec<Tensor> = weights.iter().map(|w| w.detach().requires_grad_(true).unwrap()).collect();
    let run = |k: usize| -> Result<Vec<Vec<u32>>> {
        let x = leaf(300 * 64, k as f32 * 0.1).detach().reshape([300i64, 64])?;
        let y = x.matmul(&weights[0])?.tanh()?.matmul(&weights[1])?;
        let grads = grad(&[(&y * &y).mean((), false)?], &weights, &[], &GradOptions::default())?;
        Ok(grads.iter().map(|grad| bits(grad.as_ref().unwrap())).collect())
    };
    let alone: Vec<_> = (0..THREADS).map(|k| run(k).unwrap()).collect();
    at_once(|k| {
        assert_eq!(run(k)?, alone[k]);
        Ok(())
    });
    Ok(())
}

#[test]
fn a_graph_is_freed_by_one_backward_and_refused_to_the_others() -> Result<()> {
    for _ in 0..ROUNDS {
        let leaves = [leaf(5_000, 0.1), leaf(5_000, -0.4)];
        let loss = branches(&leaves)?;
        let ran = AtomicUsize::new(0);
        on_threads(1, |_| match loss.backward() {
            Ok(()) => _ = ran.fetch_add(1, Ordering::Relaxed),
            Err(error) => assert!(error.to_string().contains("a second time"), "{error}"),
        });
        assert!(ran.load(Ordering::Relaxed) <= 1);
    }
    Ok(())
}

#[test]
fn changes_in_place_from_many_threads_are_all_made_and_never_seen_in_part() -> Result<()> {
    let shared = Tensor::from_slice(&vec![0.0f32; 40_000], &[40_000])?;
    let one = Tensor::from_slice(&vec![1.0f32; 40_000], &[40_000])?;
    at_once(|k| {
        if k % 2 == 0 {
            no_grad(|| rustgrad::ops::add_assign(&shared, &one))
        } else {
            let seen = shared.to_vec::<f32>()?;
            assert!(seen.iter().all(|x| *x == seen[0]));
            Ok(())
        }
    });
    assert_eq!(shared.to_vec::<f32>()?[17], (ROUNDS * THREADS.div_ceil(2)) as f32);
    Ok(())
}

#[test]
fn leaves_and_graphs_end_on_any_thread() -> Result<()> {
    let w = leaf(2_000, 0.3);
    at_once(|_| {
        let loss = branches(std::slice::from_ref(&w))?;
        let (kept, sent) = (loss.clone(), loss);
        let other = std::thread::spawn(move || drop(sent));
        let result = grad(&[kept], std::slice::from_ref(&w), &[], &GradOptions::default());
        other.join().unwrap();
        result.map(drop)
    });
    assert!(w.grad().is_none());
    Ok(())
}

#[test]
fn the_pool_ends_and_grows_under_work() -> Result<()> {
    let leaves = [leaf(20_000, 0.1), leaf(20_000, -0.4)];
    let loss = branches(&leaves)?;
    let alone = grad(std::slice::from_ref(&loss), &leaves[..1], &[], &keeping())?;
    let alone = bits(alone[0].as_ref().unwrap());
    at_once(|k| {
        if k == 0 {
            [1, 4, 2].into_iter().try_for_each(set_num_threads)?;
            rustgrad::threads::shutdown();
            return Ok(());
        }
        let grads = grad(std::slice::from_ref(&loss), &leaves[..1], &[], &keeping())?;
        assert_eq!(bits(grads[0].as_ref().unwrap()), alone);
        Ok(())
    });
    Ok(())
}
