//! Reductions: a Program's values are combined while they are stored. A reduction over memory is the Program that only
//! reads, so fused and unfused results have the same bits.
//!
//! The order of combination depends on the logical shape alone. Dimensions are ordered as `[outer kept, reduced, inner
//! kept]`, where the inner kept ones are those after the last reduced one. Without inner kept dimensions, each run of 1,024
//! values is combined in 32 lanes, lanes in a tree; with them, 64 rows are combined one after another. Partial results are
//! combined pairwise in index order.

use super::element;
use super::elementwise::{Walk, coalesce, element_ptr};
use super::shared::Shared;
use super::vm::{BLOCK, Compiled, Machine};
use crate::backend::{Operand, Reduce};
use crate::dtype::Compute;
use crate::scalar::Scalar;
use crate::shape::{Dims, Strides};
use crate::sync::lock::Mutex;
use crate::threads;
use smallvec::SmallVec;
use std::ops::Range;

/// Independent accumulators of a run.
const LANES: usize = 32;
/// Rows combined one after another before the pairwise tree.
const ROWS: usize = 64;

/// A type that can be reduced.
pub(super) trait Number: Copy {
    /// What changes nothing when combined.
    fn identity(how: Reduce) -> Self;
    /// Two values made one.
    fn combine(how: Reduce, a: Self, b: Self) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            fn identity(how: Reduce) -> $t {
                match how {
                    Reduce::Sum => 0.0,
                    Reduce::Prod => 1.0,
                    Reduce::Max => <$t>::NEG_INFINITY,
                    Reduce::Min => <$t>::INFINITY,
                }
            }
            #[inline(always)]
            fn combine(how: Reduce, a: $t, b: $t) -> $t {
                match how {
                    Reduce::Sum => a + b,
                    Reduce::Prod => a * b,
                    Reduce::Max => {
                        if a > b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                    Reduce::Min => {
                        if a < b || a.is_nan() {
                            a
                        } else {
                            b
                        }
                    }
                }
            }
        }
    };
}
float!(f32);
float!(f64);

impl Number for i64 {
    fn identity(how: Reduce) -> i64 {
        match how {
            Reduce::Sum => 0,
            Reduce::Prod => 1,
            Reduce::Max => i64::MIN,
            Reduce::Min => i64::MAX,
        }
    }
    #[inline(always)]
    fn combine(how: Reduce, a: i64, b: i64) -> i64 {
        match how {
            Reduce::Sum => a.wrapping_add(b),
            Reduce::Prod => a.wrapping_mul(b),
            Reduce::Max => a.max(b),
            Reduce::Min => a.min(b),
        }
    }
}

/// Truth values: sum and max are "any", product and min are "all".
impl Number for u8 {
    fn identity(how: Reduce) -> u8 {
        matches!(how, Reduce::Prod | Reduce::Min) as u8
    }
    #[inline(always)]
    fn combine(how: Reduce, a: u8, b: u8) -> u8 {
        match how {
            Reduce::Sum | Reduce::Max => a | b,
            Reduce::Prod | Reduce::Min => a & b,
        }
    }
}

/// Runs `$body` with `$T` standing for the register type.
macro_rules! with_number {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            Compute::F32 => {
                type $T = f32;
                $body
            }
            Compute::F64 => {
                type $T = f64;
                $body
            }
            Compute::I64 => {
                type $T = i64;
                $body
            }
            Compute::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}

pub(super) use with_number;

/// Calls a generic loop compiled for the CPU's vector unit, with the kind of reduction as a constant.
macro_rules! vectorised {
    ($fma:expr, $how:expr, $f:ident::<$T:ty>($($arg:expr),*)) => {
        match $how {
            Reduce::Sum => vectorised!(@ $fma, $f::<$T, 0>($($arg),*)),
            Reduce::Prod => vectorised!(@ $fma, $f::<$T, 1>($($arg),*)),
            Reduce::Max => vectorised!(@ $fma, $f::<$T, 2>($($arg),*)),
            Reduce::Min => vectorised!(@ $fma, $f::<$T, 3>($($arg),*)),
        }
    };
    (@ $fma:expr, $f:ident::<$T:ty, $H:literal>($($arg:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if $fma {
            // SAFETY: the CPU has AVX2 and FMA; slices are valid as such.
            unsafe { avx2::$f::<$T, $H>($($arg),*) }
        } else {
            $f::<$T, $H>($($arg),*)
        }
        #[cfg(not(target_arch = "x86_64"))]
        $f::<$T, $H>($($arg),*)
    }};
}

const fn how<const H: u8>() -> Reduce {
    match H {
        0 => Reduce::Sum,
        1 => Reduce::Prod,
        2 => Reduce::Max,
        _ => Reduce::Min,
    }
}

/// Combines up to a block of values: lane `j` takes the values `j, j + 32, ...`, then lanes are halved.
#[inline(always)]
fn lanes<T: Number, const H: u8>(x: &[T]) -> T {
    lanes_of::<T, H>(x, &|v| v)
}

/// The same for a function of the values.
#[inline(always)]
fn lanes_of<T: Number, const H: u8>(x: &[T], f: &impl Fn(T) -> T) -> T {
    let mut acc = [T::identity(how::<H>()); LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for j in 0..LANES {
            acc[j] = T::combine(how::<H>(), acc[j], f(chunk[j]));
        }
    }
    for (a, &v) in acc.iter_mut().zip(chunks.remainder()) {
        *a = T::combine(how::<H>(), *a, f(v));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for j in 0..width {
            acc[j] = T::combine(how::<H>(), acc[j], acc[j + width]);
        }
        width /= 2;
    }
    acc[0]
}

/// Combines a row into an accumulator of the same length.
#[inline(always)]
fn accumulate<T: Number, const H: u8>(acc: &mut [T], row: &[T]) {
    for (a, &v) in acc.iter_mut().zip(row) {
        *a = T::combine(how::<H>(), *a, v);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Number;

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn lanes<T: Number, const H: u8>(x: &[T]) -> T {
        super::lanes::<T, H>(x)
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn accumulate<T: Number, const H: u8>(acc: &mut [T], row: &[T]) {
        super::accumulate::<T, H>(acc, row)
    }
}

/// Up to a block of values combined as a row of them is.
pub(super) fn row<T: Number>(how: Reduce, x: &[T]) -> T {
    let fma = super::has_fma();
    vectorised!(fma, how, lanes::<T>(x))
}

/// The sum of a slice, in the order in which a reduction over memory adds.
#[inline(always)]
pub(super) fn sum<T: Number>(x: &[T]) -> T {
    sum_of(x, |v| v)
}

/// The sum of a function of a slice's values, in that same order.
#[inline(always)]
pub(super) fn sum_of<T: Number>(x: &[T], f: impl Fn(T) -> T) -> T {
    if x.len() <= BLOCK {
        return lanes_of::<T, SUM>(x, &f);
    }
    let mut tree = Tree::new(1);
    x.chunks(BLOCK).for_each(|run| tree.push(&[lanes_of::<T, SUM>(run, &f)], Reduce::Sum));
    tree.finish(Reduce::Sum)[0]
}

const SUM: u8 = 0;

/// Partial results in index order, combined pairwise like the carries of a binary counter.
struct Tree<T> {
    stack: Vec<T>,
    width: usize,
    pushed: usize,
    spare: Vec<T>,
}

impl<T: Number> Tree<T> {
    fn new(width: usize) -> Tree<T> {
        Tree { stack: Vec::new(), width, pushed: 0, spare: Vec::new() }
    }

    fn push(&mut self, part: &[T], how: Reduce) {
        self.stack.extend_from_slice(part);
        self.pushed += 1;
        let mut carries = self.pushed;
        while carries.is_multiple_of(2) {
            self.fold_top(how);
            carries /= 2;
        }
    }

    /// Takes in what another tree holds, whose parts come next. All trees but the last hold the same power of two of parts.
    fn append(&mut self, other: &Tree<T>, how: Reduce) {
        self.stack.extend_from_slice(&other.stack);
        self.pushed += other.pushed;
        if other.stack.len() == self.width {
            let mut carries = self.pushed / other.pushed;
            while carries.is_multiple_of(2) {
                self.fold_top(how);
                carries /= 2;
            }
        }
    }

    fn fold_top(&mut self, how: Reduce) {
        let top = self.stack.len() - self.width;
        self.spare.clear();
        self.spare.extend_from_slice(&self.stack[top..]);
        self.stack.truncate(top);
        let below = &mut self.stack[top - self.width..];
        for (a, &b) in below.iter_mut().zip(&self.spare) {
            *a = T::combine(how, *a, b);
        }
    }

    /// The whole, leaving the tree empty.
    fn finish(&mut self, how: Reduce) -> &[T] {
        while self.stack.len() > self.width {
            self.fold_top(how);
        }
        if self.stack.is_empty() {
            self.stack.resize(self.width, T::identity(how));
        }
        self.pushed = 0;
        self.spare.clear();
        std::mem::swap(&mut self.stack, &mut self.spare);
        &self.spare
    }
}

/// The index space with its dimensions in the order `[outer kept, reduced, inner kept]`, and the three products.
struct Space {
    sizes: Dims,
    outer: usize,
    reduced: usize,
    inner: usize,
}

/// Runs a program whose outputs keep only some dimensions of the index space; they are contiguous.
pub(super) fn run(
    compiled: &Compiled,
    sizes: &[usize],
    inputs: &[Operand<'_>],
    scalars: &[Scalar],
    outputs: &[Operand<'_>],
    kept: &[bool],
    how: Reduce,
) {
    let last_reduced = (0..sizes.len()).rev().find(|&d| !kept[d]).unwrap_or(0);
    let outer_dims = (0..last_reduced).filter(|&d| kept[d]);
    let reduced_dims = (0..=last_reduced).filter(|&d| !kept[d]);
    let order: Dims = outer_dims.clone().chain(reduced_dims.clone()).chain(last_reduced + 1..sizes.len()).collect();
    let product = |dims: &mut dyn Iterator<Item = usize>| dims.fold(1, |n, d| n * sizes[d]);
    let (outer, reduced) = (product(&mut outer_dims.clone()), product(&mut reduced_dims.clone()));
    let inner = product(&mut (last_reduced + 1..sizes.len()));

    let permuted: Dims = order.iter().map(|&d| sizes[d]).collect();
    let mut strides: SmallVec<[Strides; 8]> = inputs
        .iter()
        .map(|o| {
            let s = o.layout.broadcast_strides(sizes);
            order.iter().map(|&d| s[d]).collect()
        })
        .collect();
    let space = Space { sizes: coalesce(&permuted, &mut strides), outer, reduced, inner };
    if outer * inner == 0 {
        return;
    }
    let walks: SmallVec<[Walk; 4]> = inputs.iter().zip(strides).map(|(o, s)| Walk::new(o, &space.sizes, s)).collect();
    for (k, out) in outputs.iter().enumerate() {
        let ty = compiled.outputs[k].1;
        let run = Run { compiled, scalars, walks: &walks, space: &space, k, how };
        with_number!(ty, T => run.one::<T>(out));
    }
}

/// The reduction of one output of a program.
struct Run<'a> {
    compiled: &'a Compiled,
    scalars: &'a [Scalar],
    walks: &'a [Walk],
    space: &'a Space,
    /// Which output.
    k: usize,
    how: Reduce,
}

/// So many results, or more, are shared among threads whole.
const FEW: usize = 16;
/// Parts that a branch holds at most.
const BRANCH: usize = 64;
/// Branches that there should be at least, so that several threads find work.
const BRANCHES: usize = 32;

/// How many parts one slice takes if there are so many: a power of two, so that slices are whole branches of a tree.
fn branch(parts: usize) -> usize {
    1 << (parts / BRANCHES).clamp(1, BRANCH).ilog2()
}

impl Run<'_> {
    /// A machine of the calling thread's.
    fn machine(&self) -> Machine<'_> {
        let n = (self.space.outer * self.space.reduced * self.space.inner).min(BLOCK);
        let mut machine = Machine::new(self.compiled, self.scalars, n.max(1));
        for (k, w) in self.walks.iter().enumerate() {
            let register = machine.input_register(k);
            if n > 0 {
                // SAFETY: the operand is guarded by the caller, the register holds a block.
                unsafe { w.prepare(n, register) };
            }
            machine.set_input(k, register);
        }
        machine
    }

    fn one<T: Number + Send + Sync>(&self, out: &Operand<'_>) {
        let (base, dtype) = (Shared(element_ptr(out)), out.dtype);
        let write = |at: usize, values: &[T]| {
            let to = base.get().wrapping_add(at * dtype.size());
            // SAFETY: outputs are contiguous with one element for each kept index, each written once; guarded by the caller.
            unsafe { element::store(dtype, values.as_ptr().cast(), values.len(), to, 1) };
        };
        if self.space.inner == 1 { self.along_rows(&write) } else { self.along_columns(&write) }
    }

    /// About how many nanoseconds a value takes.
    fn cost(&self) -> f64 {
        self.compiled.cost + 0.2
    }

    /// The reduced dimensions are the innermost: each result combines runs of consecutive values.
    fn along_rows<T: Number + Send + Sync>(&self, write: &(dyn Fn(usize, &[T]) + Sync)) {
        let (fma, how) = (super::has_fma(), self.how);
        let (outer, reduced) = (self.space.outer, self.space.reduced);
        if reduced == 0 {
            return (0..outer).for_each(|o| write(o, &[T::identity(how)]));
        }
        if reduced <= BLOCK {
            // Several short rows share a block; each is still combined on its own.
            let rows = BLOCK / reduced;
            return threads::ranges(outer, rows, self.cost() * reduced as f64, |range| {
                let mut machine = self.machine();
                for first in range.clone().step_by(rows) {
                    let m = rows.min(range.end - first);
                    // SAFETY: whole rows inside the space, at most a block.
                    let values = unsafe { self.evaluate::<T>(&mut machine, first * reduced, m * reduced) };
                    for (j, row) in values.chunks_exact(reduced).enumerate() {
                        write(first + j, &[vectorised!(fma, how, lanes::<T>(row))]);
                    }
                }
            });
        }
        let parts = reduced.div_ceil(BLOCK);
        self.trees(
            outer,
            parts,
            &|_| 1,
            BLOCK,
            &|machine, o, range, tree| {
                for part in range {
                    let r = part * BLOCK;
                    // SAFETY: a part of one row, at most a block.
                    let values = unsafe { self.evaluate::<T>(machine, o * reduced + r, BLOCK.min(reduced - r)) };
                    tree.push(&[vectorised!(fma, how, lanes::<T>(values))], how);
                }
            },
            write,
        );
    }

    /// Kept dimensions are the innermost: rows of consecutive results are combined one after another.
    fn along_columns<T: Number + Send + Sync>(&self, write: &(dyn Fn(usize, &[T]) + Sync)) {
        let (fma, how) = (super::has_fma(), self.how);
        let (reduced, inner) = (self.space.reduced, self.space.inner);
        let width = inner.min(BLOCK);
        // Narrow rows share a block; wide ones are cut into columns of a block.
        let rows_per_block = if inner <= BLOCK { BLOCK / inner } else { 1 };
        let columns = inner.div_ceil(width);
        let width_of = |at: usize| width.min(inner - at % columns * width);
        let part = |machine: &mut Machine<'_>, at: usize, range: Range<usize>, tree: &mut Tree<T>| {
            let (o, column, w) = (at / columns, at % columns * width, tree.width);
            let mut acc: Vec<T> = Vec::with_capacity(w);
            for chunk in range.map(|part| part * ROWS) {
                let end = reduced.min(chunk + ROWS);
                acc.clear();
                acc.resize(w, T::identity(how));
                let mut r = chunk;
                while r < end {
                    let m = rows_per_block.min(end - r);
                    // SAFETY: whole rows (or one part of a row) inside the space, at most a block.
                    let values = unsafe { self.evaluate::<T>(machine, (o * reduced + r) * inner + column, m * w) };
                    for row in values.chunks_exact(w) {
                        vectorised!(fma, how, accumulate::<T>(&mut acc, row));
                    }
                    r += m;
                }
                tree.push(&acc, how);
            }
        };
        self.trees(
            self.space.outer * columns,
            reduced.div_ceil(ROWS),
            &width_of,
            ROWS * width,
            &part,
            &|at, values| {
                write(at / columns * inner + at % columns * width, values);
            },
        );
    }

    /// For each of `count` results, `width` wide, the tree over `parts` parts of `size` values. Whole trees are shared among
    /// threads, or where those are few, branches of them: the same sums in the same order.
    fn trees<T: Number + Send + Sync>(
        &self,
        count: usize,
        parts: usize,
        width: &(dyn Fn(usize) -> usize + Sync),
        size: usize,
        push: &(dyn Fn(&mut Machine<'_>, usize, Range<usize>, &mut Tree<T>) + Sync),
        write: &(dyn Fn(usize, &[T]) + Sync),
    ) {
        let cost = self.cost() * size as f64;
        if count >= FEW || parts < 2 || !threads::is_cut(cost * (count * parts) as f64) {
            return threads::ranges(count, 1, cost * parts as f64, |range| {
                let mut machine = self.machine();
                let mut tree = Tree::new(width(range.start));
                for o in range {
                    if tree.width != width(o) {
                        tree = Tree::new(width(o));
                    }
                    push(&mut machine, o, 0..parts, &mut tree);
                    write(o, tree.finish(self.how));
                }
            });
        }
        let branch = branch(count * parts);
        let branches = parts.div_ceil(branch);
        let done: Vec<Mutex<Option<Tree<T>>>> = (0..count * branches).map(|_| Mutex::new(None)).collect();
        threads::ranges(done.len(), 1, cost * branch as f64, |range| {
            let mut machine = self.machine();
            for at in range {
                let (o, first) = (at / branches, at % branches * branch);
                let mut tree = Tree::new(width(o));
                push(&mut machine, o, first..parts.min(first + branch), &mut tree);
                *done[at].lock() = Some(tree);
            }
        });
        for (o, slots) in done.chunks(branches).enumerate() {
            let mut whole = Tree::new(width(o));
            slots.iter().filter_map(|slot| slot.lock().take()).for_each(|tree| whole.append(&tree, self.how));
            write(o, whole.finish(self.how));
        }
    }

    /// Evaluates the program on `[start, start + n)` of the space and returns the output's values.
    ///
    /// # Safety
    /// The range must lie in the space, `n` may not pass a block, and `T` must be the output's type.
    unsafe fn evaluate<'m, T>(&self, machine: &'m mut Machine<'_>, start: usize, n: usize) -> &'m [T] {
        let (walks, sizes) = (self.walks, &self.space.sizes);
        // SAFETY: the caller's promise; operands are guarded for the whole run.
        unsafe {
            if machine.only_reads() {
                // A reduction over memory: the values are where they are.
                let values = walks[0].block(sizes, start, n, machine.input_register(0));
                return std::slice::from_raw_parts(values.cast::<T>(), n);
            }
            for (i, w) in walks.iter().enumerate() {
                let ptr = w.block(sizes, start, n, machine.input_register(i));
                machine.set_input(i, ptr);
            }
            machine.run(n);
            std::slice::from_raw_parts(machine.output_register(self.k).cast::<T>(), n)
        }
    }
}
