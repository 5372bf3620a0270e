//! Models of the board: a backward whose nodes are numbers, with helpers.

use super::*;
use crate::sync::model::{Claimed, check, check_crowd, spawn};
use crate::sync::{AtomicUsize, yield_now};
use std::sync::Arc;

/// Branches of two nodes each, 0 and 1, 2 and 3, ...; the second goes on with what the first gives; or a tree. A node adds 1
/// to the hundredfold of what comes in.
struct Branches {
    /// For each node those that need nothing but what it gives.
    heirs: Vec<Vec<u32>>,
    /// A node that is a run of its own where another leads to it.
    apart: Option<u32>,
    board: Board<Branches>,
    /// How often each node was computed.
    computed: Vec<AtomicUsize>,
    /// What a node touches, to see that nobody is at work any more.
    touched: Vec<Claimed>,
    /// Which nodes somebody must look at before they are computed.
    watched: Vec<AtomicBool>,
    /// A node that takes until the gate opens.
    slow: Option<u32>,
    gate: (Mutex<bool>, Condvar),
}

impl Course for Branches {
    type Given = usize;
    type Made = usize;
    type Run = ();

    fn start(&self, _: u32) {}

    fn compute(&self, (): &mut (), number: u32, given: usize, _: bool, stop: &AtomicBool) -> Step<usize, usize> {
        let mut open = self.gate.0.lock();
        while self.slow == Some(number) && !*open {
            open = self.gate.1.wait(open);
        }
        drop(open);
        self.touched[number as usize].add(1);
        self.computed[number as usize].fetch_add(1, Ordering::Relaxed);
        let out = given * 100 + 1;
        let mut step = Step::end(out);
        for &heir in &self.heirs[number as usize] {
            if !self.watched[heir as usize].load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                if self.apart == Some(heir) {
                    step.apart.push(offer(heir, out))
                } else {
                    step.next.push(offer(heir, out))
                }
            }
        }
        let gone = step.next.len() + step.apart.len();
        if gone > 0 && gone == self.heirs[number as usize].len() {
            step.made = None;
        }
        step
    }

    fn offered(&self) {}

    fn given_bytes(_: &usize) -> usize {
        1
    }

    fn made_bytes(_: &usize) -> usize {
        1
    }
}

impl Branches {
    fn new(branches: u32, window: usize) -> Arc<Branches> {
        Branches::with(branches, window, false, None)
    }

    fn with(branches: u32, window: usize, may_err: bool, slow: Option<u32>) -> Arc<Branches> {
        let heirs = (0..2 * branches).map(|number| if number % 2 == 0 { vec![number + 1] } else { Vec::new() });
        Branches::of(heirs.collect(), window, may_err, slow)
    }

    fn of(heirs: Vec<Vec<u32>>, window: usize, may_err: bool, slow: Option<u32>) -> Arc<Branches> {
        let nodes = 0..heirs.len();
        Arc::new(Branches {
            heirs,
            apart: None,
            slow,
            gate: (Mutex::new(false), Condvar::new()),
            board: Board::new(nodes.len(), window, 2, may_err),
            computed: nodes.clone().map(|_| AtomicUsize::new(0)).collect(),
            touched: nodes.clone().map(|_| Claimed::default()).collect(),
            watched: nodes.map(|_| AtomicBool::new(false)).collect(),
        })
    }

    /// A tree: 0 leads to 1 and to 2, a run of its own, and that to others.
    fn tree(others: std::ops::Range<u32>, may_err: bool) -> Arc<Branches> {
        let mut heirs = vec![vec![1, 2], Vec::new(), others.clone().collect()];
        heirs.extend(others.map(|_| Vec::new()));
        let mut all = Branches::of(heirs, 100, may_err, None);
        Arc::get_mut(&mut all).expect("nobody else has it").apart = Some(2);
        all
    }

    /// A backward that begins with node 0, which is offered. Returns what came out of each node that leads nowhere. `before`
    /// is asked before each node.
    fn walk(&self, before: impl Fn(u32)) -> Vec<usize> {
        self.board.offer(offer(0, 0));
        let (mut ready, mut out) = (BTreeMap::from([(0, None)]), Vec::new());
        while let Some((number, given)) = ready.pop_first() {
            before(number);
            let made = self.step(number, given);
            let heirs = &self.heirs[number as usize];
            ready.extend(heirs.iter().map(|heir| (*heir, made)));
            out.extend(made.filter(|_| heirs.is_empty()));
        }
        out
    }

    /// What the caller of a backward does at a node, given what came in for it if it was not offered. A watched node's
    /// own is replaced by 7. Returns what goes out, if that did not go on already.
    fn step(&self, number: u32, given: Option<usize>) -> Option<usize> {
        let watched = || self.watched[number as usize].load(Ordering::Relaxed);
        let taken = if self.board.is_touched(number) {
            self.board.take(self, (number, place(number)), watched, || Ok::<(), ()>(())).unwrap_or(Taken::Not)
        } else {
            Taken::Not
        };
        let given = match taken {
            Taken::Done(made) => return made,
            Taken::Back(given) => given,
            Taken::Not => given.expect("what was computed in vain has come in again"),
        };
        let given = if watched() { 7 } else { given };
        self.touched[number as usize].add(1);
        self.computed[number as usize].fetch_add(1, Ordering::Relaxed);
        Some(given * 100 + 1)
    }

    /// A backward in which all branches are ready at first: the caller offers all but the first, and does them one by
    /// one. Returns what came out of each.
    fn backward(&self) -> Vec<usize> {
        let nodes = self.touched.len() as u32;
        self.offer(2..nodes);
        (0..nodes).step_by(2).map(|head| self.branch(head)).collect()
    }

    /// Offers the branches of some nodes.
    fn offer(&self, nodes: std::ops::Range<u32>) {
        nodes.step_by(2).for_each(|head| self.board.offer(offer(head, head as usize)));
    }

    fn branch(&self, head: u32) -> usize {
        let given = (head == 0).then_some(0);
        let middle = self.step(head, given);
        self.step(head + 1, middle).expect("the last node of a branch goes nowhere")
    }

    fn open_the_gate(&self) {
        *self.gate.0.lock() = true;
        self.gate.1.notify_all();
    }

    fn helper(self: &Arc<Branches>) -> crate::sync::JoinHandle<()> {
        let all = self.clone();
        spawn(move || all.board.help(&all))
    }

    /// How often each node was computed. Nobody computes any more.
    fn counts(&self) -> Vec<usize> {
        let counts = self.computed.iter().zip(&self.touched).map(|(computed, touched)| {
            let computed = computed.load(Ordering::Relaxed);
            assert_eq!(touched.get(), computed);
            computed
        });
        counts.collect()
    }
}

/// The first nodes of a backward have the largest numbers in its order.
fn place(number: u32) -> u64 {
    100 - number as u64
}

fn offer(number: u32, given: usize) -> Offer<usize> {
    Offer { number, place: place(number), size: 1, given }
}

/// A backward with helpers, in which each node is computed once.
fn all_is_computed_once(all: &Arc<Branches>, helpers: usize) {
    let helpers: Vec<_> = (0..helpers).map(|_| all.helper()).collect();
    let nodes = all.computed.len();
    let out: Vec<usize> = (0..nodes).step_by(2).map(|head| head * 10_000 + 101).collect();
    assert_eq!(all.backward(), out);
    all.board.end();
    assert_eq!(all.counts(), vec![1; nodes]);
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
}

#[test]
fn a_node_is_computed_once_whoever_does_it() {
    check(|| all_is_computed_once(&Branches::new(2, 100), 1));
}

#[test]
fn also_where_the_caller_may_find_that_it_was_in_vain() {
    check(|| all_is_computed_once(&Branches::with(2, 100, true, None), 1));
}

#[test]
fn with_two_helpers_too() {
    check_crowd(|| all_is_computed_once(&Branches::new(3, 100), 2));
}

#[test]
fn a_full_window_delays_and_stops_nobody() {
    check(|| all_is_computed_once(&Branches::new(3, 0), 1));
}

#[test]
fn the_caller_has_a_result_while_the_run_goes_on() {
    check(|| {
        let all = Branches::with(2, 100, true, Some(3));
        let helper = all.helper();
        all.offer(2..4);
        let middle = all.step(2, None);
        all.open_the_gate();
        assert_eq!(all.step(3, middle), Some(20101));
        all.board.end();
        assert_eq!(all.counts()[2..], [1, 1]);
        helper.join().unwrap();
    });
}

#[test]
fn what_a_hook_replaces_is_computed_from_what_it_gives() {
    check(|| {
        let all = Branches::with(3, 100, true, None);
        let helper = all.helper();
        all.offer(2..6);
        assert_eq!(all.branch(0), 101);
        // A hook of the first branch watches the second.
        all.watched[2].store(true, Ordering::Relaxed);
        assert_eq!(all.branch(2), 70101);
        // And one of the second watches the end of the third.
        all.watched[5].store(true, Ordering::Relaxed);
        assert_eq!(all.branch(4), 701);
        all.board.end();
        let counts = all.counts();
        assert!(counts[..2] == [1, 1] && counts[4] == 1 && counts.iter().all(|n| (1..=2).contains(n)), "{counts:?}");
        helper.join().unwrap();
    });
}

#[test]
fn a_run_that_comes_to_several_nodes_goes_on_with_some_and_offers_others() {
    check_crowd(|| {
        let all = Branches::tree(3..5, false);
        let helper = all.helper();
        assert_eq!(all.walk(|_| ()), [101, 10101, 10101]);
        all.board.end();
        assert_eq!(all.counts(), [1; 5]);
        helper.join().unwrap();
    });
}

#[test]
fn what_it_offers_others_take() {
    check_crowd(|| {
        let all = Branches::tree(3..3, false);
        let helpers = [all.helper(), all.helper()];
        assert_eq!(all.walk(|_| ()), [101, 101]);
        all.board.end();
        assert_eq!(all.counts(), [1; 3]);
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
    });
}

#[test]
fn and_what_a_hook_replaces_is_computed_again_there_too() {
    for watched in 0..5 {
        check_crowd(move || {
            let all = Branches::tree(3..5, true);
            let helper = all.helper();
            let watch = |number| {
                // A hook of the node before, or at the beginning.
                if number == watched {
                    all.watched[number as usize].store(true, Ordering::Relaxed);
                }
            };
            let expected = match watched {
                0 => [70101, 7010101, 7010101],
                1 => [701, 10101, 10101],
                2 => [101, 70101, 70101],
                3 => [101, 701, 10101],
                _ => [101, 10101, 701],
            };
            assert_eq!(all.walk(watch), expected);
            all.board.end();
            assert!(all.counts().iter().all(|n| (1..=2).contains(n)));
            helper.join().unwrap();
        });
    }
}

#[test]
fn nobody_is_at_work_after_the_end() {
    check(|| {
        let all = Branches::new(3, 100);
        let helpers = [all.helper(), all.helper()];
        all.offer(2..6);
        // An error in the first branch.
        all.board.end();
        let counts = all.counts();
        assert!(counts[..2] == [0, 0] && counts[2..].iter().all(|n| *n <= 1), "{counts:?}");
        assert!(all.board.state.lock().offers.is_empty());
        assert!(all.board.done.lock().is_empty());
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
    });
}

#[test]
fn a_run_does_not_go_on_after_the_end() {
    check(|| {
        let all = Branches::with(2, 100, false, Some(2));
        let helper = all.helper();
        all.offer(2..4);
        let opener = all.clone();
        let opener = spawn(move || {
            while !opener.board.stop.load(Ordering::Relaxed) {
                yield_now();
            }
            opener.open_the_gate();
        });
        all.board.end();
        assert_eq!(all.counts()[3], 0);
        helper.join().unwrap();
        opener.join().unwrap();
    });
}
