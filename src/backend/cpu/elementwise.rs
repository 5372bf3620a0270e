//! Running Programs over index spaces: broadcasting and strides are handled where values are loaded and stored, so that
//! kernels see plain blocks. Results that are smaller than the index space go on to `reduce`.

use super::element;
use super::plain;
use super::reduce;
use super::single;
use super::vm::{self, BLOCK, Compiled, Machine};
use crate::backend::{Operand, Reduce};
use crate::dtype::DType;
use crate::error::Result;
use crate::program::{Limits, Place, Program, Segment, Target, plan};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, Strides, numel};
use crate::storage::{Guards, Storage};
use crate::sync::lock::Mutex;
use crate::threads;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What one CPU kernel may hold: as many registers as stay in the second-level cache.
const LIMITS: Limits = Limits { instructions: 256, bindings: 32 };

/// Limits forced by a test, to drive everything through the planner's cuts.
static FORCED: OnceLock<Limits> = OnceLock::new();

/// Makes every Program that is compiled from now on keep these limits. For tests; the first call wins.
pub fn force_limits(limits: Limits) {
    let _ = FORCED.set(limits);
}

/// A Program with its kernels, compiled on first use.
pub struct Executable {
    program: Program,
    parts: OnceLock<Vec<(Segment, Compiled)>>,
    /// Programs of some of the outputs, for results that are reduced in different ways.
    projections: Mutex<Vec<(u64, Arc<Executable>)>>,
    cost: f64,
}

impl Executable {
    pub(crate) fn new(program: Program) -> Executable {
        Executable { cost: vm::cost(&program), program, parts: OnceLock::new(), projections: Mutex::default() }
    }

    /// About how many nanoseconds an element takes.
    pub(crate) fn cost(&self) -> f64 {
        self.cost
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The whole program's kernels, if it has been compiled and is not cut into parts.
    #[inline]
    pub(super) fn whole(&self) -> Option<&Compiled> {
        match self.parts.get().map(|p| &p[..]) {
            Some([(_, compiled)]) => Some(compiled),
            _ => None,
        }
    }

    fn parts(&self) -> &[(Segment, Compiled)] {
        self.parts.get_or_init(|| {
            let segments = plan(&self.program, FORCED.get().copied().unwrap_or(LIMITS));
            segments
                .into_iter()
                .map(|s| {
                    let c = Compiled::new(&s.program);
                    (s, c)
                })
                .collect()
        })
    }

    fn projection(&self, outputs: &[usize]) -> Arc<Executable> {
        let mask = outputs.iter().fold(0u64, |m, &o| m | 1 << o);
        let mut known = self.projections.lock();
        if let Some((_, e)) = known.iter().find(|(m, _)| *m == mask) {
            return e.clone();
        }
        let e = Arc::new(Executable::new(self.program.project(outputs)));
        known.push((mask, e.clone()));
        e
    }

    pub(crate) fn run(
        &self,
        op: &'static str,
        sizes: &[usize],
        inputs: &[Operand<'_>],
        scalars: &[Scalar],
        outputs: &[Operand<'_>],
        how: Reduce,
    ) -> Result<()> {
        if let Some(compiled) = self.whole()
            && (plain::run(compiled, sizes, inputs, scalars, outputs)
                || single::run(compiled, sizes, inputs, outputs, how))
        {
            return Ok(());
        }
        // Outputs that are reduced alike run in one pass; most often that is all of them.
        let mut left: SmallVec<[usize; 4]> = (0..outputs.len()).collect();
        while let Some(&first) = left.first() {
            let target = kept(sizes, &outputs[first].layout.sizes);
            let (group, rest): (SmallVec<[usize; 4]>, SmallVec<[usize; 4]>) =
                left.iter().copied().partition(|&k| kept(sizes, &outputs[k].layout.sizes) == target);
            left = rest;
            if group.len() == outputs.len() {
                return self.run_group(op, sizes, inputs, scalars, outputs, &target, how);
            }
            let some: SmallVec<[Operand<'_>; 4]> = group.iter().map(|&k| outputs[k]).collect();
            self.projection(&group).run_group(op, sizes, inputs, scalars, &some, &target, how)?;
        }
        Ok(())
    }

    /// Runs all outputs, which keep the same dimensions.
    #[allow(clippy::too_many_arguments, reason = "a private helper of run, with its arguments")]
    fn run_group(
        &self,
        op: &'static str,
        sizes: &[usize],
        inputs: &[Operand<'_>],
        scalars: &[Scalar],
        outputs: &[Operand<'_>],
        kept: &[bool],
        how: Reduce,
    ) -> Result<()> {
        let reads = inputs.iter().map(|o| o.storage);
        let _guards = Guards::take(reads, outputs.iter().map(|o| o.storage));
        let parts = self.parts();
        if let [(_, compiled)] = parts {
            run_part(compiled, sizes, inputs, scalars, outputs, kept, how);
            return Ok(());
        }
        // Values that pass from part to part live in full-size temporaries.
        let layout = Layout::contiguous(sizes.into());
        let mut temporaries: Vec<Option<(Storage, DType)>> = Vec::new();
        for (segment, compiled) in parts {
            for (target, &(_, ty)) in segment.outputs.iter().zip(&compiled.outputs) {
                if let Target::Temporary(k) = *target {
                    temporaries.resize(temporaries.len().max(k as usize + 1), None);
                    let dtype = ty.dtype();
                    temporaries[k as usize] = Some((Storage::uninit(op, numel(sizes) * dtype.size())?, dtype));
                }
            }
            let temporary = |k: u16| {
                let (storage, dtype) =
                    temporaries[k as usize].as_ref().expect("the planner writes a temporary before it is read");
                Operand { storage, layout: &layout, dtype: *dtype }
            };
            let ins: Vec<Operand<'_>> = segment
                .inputs
                .iter()
                .map(|place| match *place {
                    Place::Input(k) => inputs[k as usize],
                    Place::Temporary(k) => temporary(k),
                })
                .collect();
            let all_kept = vec![true; sizes.len()];
            let outs: Vec<(Operand<'_>, &[bool])> = segment
                .outputs
                .iter()
                .map(|target| match *target {
                    Target::Output(o) => (outputs[o as usize], kept),
                    Target::Temporary(t) => (temporary(t), &all_kept[..]),
                })
                .collect();
            if outs.iter().all(|o| o.1 == outs[0].1) {
                let together: Vec<Operand<'_>> = outs.iter().map(|o| o.0).collect();
                run_part(compiled, sizes, &ins, scalars, &together, outs[0].1, how);
            } else {
                // A segment that mixes full-size temporaries and reduced outputs runs once for each.
                for (k, (out, kept)) in outs.into_iter().enumerate() {
                    let one = Compiled::new(&segment.program.project(&[k]));
                    run_part(&one, sizes, &ins, scalars, &[out], kept, how);
                }
            }
        }
        Ok(())
    }
}

/// For each dimension of the index space whether a target keeps it.
fn kept(sizes: &[usize], target: &[usize]) -> SmallVec<[bool; 6]> {
    let pad = sizes.len() - target.len();
    (0..sizes.len()).map(|d| sizes[d] == 1 || (d >= pad && target[d - pad] == sizes[d])).collect()
}

fn run_part(
    compiled: &Compiled,
    sizes: &[usize],
    inputs: &[Operand<'_>],
    scalars: &[Scalar],
    outputs: &[Operand<'_>],
    kept: &[bool],
    how: Reduce,
) {
    if kept.iter().all(|k| *k) {
        if numel(sizes) > 0 {
            map(compiled, sizes, inputs, scalars, outputs);
        }
    } else {
        reduce::run(compiled, sizes, inputs, scalars, outputs, kept, how);
    }
}

/// An operand's view of the index space, ready to be read block by block.
pub(super) struct Walk {
    ptr: *const u8,
    /// Whose memory it is.
    storage: usize,
    dtype: DType,
    kind: Kind,
    strides: Strides,
}

// SAFETY: an address and how to walk from it; the guards that its maker holds keep others away, and slices of a run write
// elements of their own.
unsafe impl Sync for Walk {}

#[derive(PartialEq)]
enum Kind {
    /// The elements of the index space lie one after another, in register format: no copy.
    Direct,
    /// One after another, in another format or in memory that others may write.
    Dense,
    /// One element for all.
    Uniform,
    /// Anything else.
    Strided,
}

impl Walk {
    /// The operand `o` with the given strides over coalesced dimensions.
    pub(super) fn new(o: &Operand<'_>, sizes: &[usize], strides: Strides) -> Walk {
        let ptr = element_ptr(o);
        let layout = Layout { sizes: sizes.into(), strides, offset: 0 };
        let kind = if layout.is_contiguous() {
            if element::is_direct(o.dtype) && !o.storage.is_foreign() { Kind::Direct } else { Kind::Dense }
        } else if layout.strides.iter().all(|s| *s == 0) {
            Kind::Uniform
        } else {
            Kind::Strided
        };
        Walk { ptr, storage: o.storage.id(), dtype: o.dtype, kind, strides: layout.strides }
    }

    /// Whether the other operand lies in other memory, or sees the same elements in the same order: then blocks of the index
    /// space do not meet.
    fn is_apart(&self, other: &Walk) -> bool {
        self.storage != other.storage
            || (self.ptr == other.ptr && self.dtype == other.dtype && self.strides == other.strides)
    }

    /// Fills the register of a uniform operand, once for the whole run.
    ///
    /// # Safety
    /// The operand must be readable and `register` have room for `n` values.
    pub(super) unsafe fn prepare(&self, n: usize, register: *mut u8) {
        if self.kind == Kind::Uniform {
            // SAFETY: one element, read `n` times with stride 0.
            unsafe { element::load(self.dtype, self.ptr, 0, n, register) };
        }
    }

    /// Where the `n` values from index `start` on lie, loading them into `register` if they must be gathered.
    ///
    /// # Safety
    /// The range must lie in the index space, `register` have room for `n` values, and [`prepare`](Self::prepare) have run.
    #[inline]
    pub(super) unsafe fn block(&self, sizes: &[usize], start: usize, n: usize, register: *mut u8) -> *const u8 {
        let size = self.dtype.size();
        match self.kind {
            Kind::Direct => return self.ptr.wrapping_add(start * size),
            Kind::Uniform => {}
            // SAFETY: a contiguous range of the operand.
            Kind::Dense => unsafe { element::load(self.dtype, self.ptr.wrapping_add(start * size), 1, n, register) },
            Kind::Strided => {
                let width = self.dtype.compute().dtype().size();
                runs(sizes, &self.strides, start, n, |at, offset, stride, len| {
                    let from = self.ptr.wrapping_offset(offset * size as isize);
                    // SAFETY: a run of the operand, to its place in the register.
                    unsafe { element::load(self.dtype, from, stride, len, register.wrapping_add(at * width)) };
                });
            }
        }
        register
    }
}

/// The address of an operand's first element.
#[inline]
pub(super) fn element_ptr(o: &Operand<'_>) -> *mut u8 {
    o.storage.ptr().wrapping_add(o.layout.offset * o.dtype.size())
}

/// Cuts `[start, start + n)` of a row-major index space into runs along its last dimension, and hands each with its
/// position in the block, the offset of its first element and its stride to `f`.
fn runs(sizes: &[usize], strides: &[isize], start: usize, n: usize, mut f: impl FnMut(usize, isize, isize, usize)) {
    let Some((&inner, outer)) = sizes.split_last() else { return f(0, 0, 0, n) };
    let inner_stride = strides[outer.len()];
    let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
    let mut rest = start / inner;
    let mut within = start % inner;
    let mut offset = 0isize;
    for d in (0..outer.len()).rev() {
        index[d] = rest % outer[d];
        rest /= outer[d];
        offset += index[d] as isize * strides[d];
    }
    let mut done = 0;
    loop {
        let len = (inner - within).min(n - done);
        f(done, offset + within as isize * inner_stride, inner_stride, len);
        done += len;
        if done == n {
            return;
        }
        within = 0;
        for d in (0..outer.len()).rev() {
            index[d] += 1;
            offset += strides[d];
            if index[d] < outer[d] {
                break;
            }
            offset -= strides[d] * outer[d] as isize;
            index[d] = 0;
        }
    }
}

/// Merges neighbouring dimensions that every operand walks as one, after dropping those of size 1.
pub(super) fn coalesce(sizes: &[usize], operands: &mut [Strides]) -> Dims {
    let mut out = Dims::new();
    let mut merged: SmallVec<[Strides; 8]> = SmallVec::from_elem(Strides::new(), operands.len());
    for d in 0..sizes.len() {
        if sizes[d] == 1 {
            continue;
        }
        let last = out.len();
        let joins = last > 0 && operands.iter().zip(&merged).all(|(o, m)| m[last - 1] == o[d] * sizes[d] as isize);
        if joins {
            out[last - 1] *= sizes[d];
        } else {
            out.push(sizes[d]);
        }
        for (o, m) in operands.iter().zip(&mut merged) {
            if joins {
                m[last - 1] = o[d];
            } else {
                m.push(o[d]);
            }
        }
    }
    operands.iter_mut().zip(merged).for_each(|(o, m)| *o = m);
    out
}

/// Runs a program whose outputs have the shape of the index space.
fn map(compiled: &Compiled, sizes: &[usize], inputs: &[Operand<'_>], scalars: &[Scalar], outputs: &[Operand<'_>]) {
    let mut strides: SmallVec<[Strides; 8]> =
        outputs.iter().chain(inputs).map(|o| o.layout.broadcast_strides(sizes)).collect();
    // Walk memory in the order in which the first output lies.
    let mut order: Dims = (0..sizes.len()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(strides[0][d].unsigned_abs()));
    let sizes: Dims = order.iter().map(|&d| sizes[d]).collect();
    strides.iter_mut().for_each(|s| *s = order.iter().map(|&d| s[d]).collect());
    let sizes = coalesce(&sizes, &mut strides);
    let total = numel(&sizes);

    let mut strides = strides.into_iter();
    let outs: SmallVec<[Walk; 2]> = outputs.iter().zip(&mut strides).map(|(o, s)| Walk::new(o, &sizes, s)).collect();
    let ins: SmallVec<[Walk; 4]> = inputs.iter().zip(strides).map(|(o, s)| Walk::new(o, &sizes, s)).collect();
    // An output may be written in place of its register unless an input lies in the same memory: kernels promise the
    // compiler that they never write what they read.
    let in_place: SmallVec<[bool; 2]> = (0..outs.len())
        .map(|k| outs[k].kind == Kind::Direct && inputs.iter().all(|i| !i.storage.same(outputs[k].storage)))
        .collect();
    // Elements that have to be gathered take longer.
    let cost = compiled.cost + outs.iter().chain(&ins).filter(|w| w.kind == Kind::Strided).count() as f64;
    // Where a result lies over itself, or over an operand, the order of the elements matters.
    let apart = outputs.iter().all(|o| !o.layout.overlaps_itself());
    let apart = apart && (in_place.iter().all(|k| *k) || outs.iter().all(|o| ins.iter().all(|i| i.is_apart(o))));
    let run = |range: Range<usize>| {
        let mut machine = Machine::new(compiled, scalars, range.len());
        for (k, w) in ins.iter().enumerate() {
            let register = machine.input_register(k);
            // SAFETY: the operand is guarded by the caller, the register holds a block.
            unsafe { w.prepare(range.len().min(BLOCK), register) };
            machine.set_input(k, register);
        }
        for start in range.clone().step_by(BLOCK) {
            let n = BLOCK.min(range.end - start);
            // SAFETY: blocks lie inside the index space; operands are guarded by the caller; registers hold a block.
            unsafe {
                for (k, w) in ins.iter().enumerate() {
                    let ptr = w.block(&sizes, start, n, machine.input_register(k));
                    machine.set_input(k, ptr);
                }
                for (k, w) in outs.iter().enumerate() {
                    if in_place[k] {
                        machine.set_output(k, w.ptr.cast_mut().wrapping_add(start * w.dtype.size()));
                    }
                }
                machine.run(n);
                for (k, w) in outs.iter().enumerate().filter(|(k, _)| !in_place[*k]) {
                    scatter(w, &sizes, start, n, machine.output_register(k));
                }
            }
        }
    };
    if apart { threads::ranges(total, BLOCK, cost, run) } else { run(0..total) }
}

/// Writes a register to an output's elements `[start, start + n)`.
///
/// # Safety
/// The output must be writable there and the register hold `n` values.
unsafe fn scatter(w: &Walk, sizes: &[usize], start: usize, n: usize, register: *const u8) {
    let size = w.dtype.size();
    let width = w.dtype.compute().dtype().size();
    if matches!(w.kind, Kind::Direct | Kind::Dense) {
        // SAFETY: the caller's promise.
        return unsafe { element::store(w.dtype, register, n, w.ptr.cast_mut().wrapping_add(start * size), 1) };
    }
    runs(sizes, &w.strides, start, n, |at, offset, stride, len| {
        let to = w.ptr.cast_mut().wrapping_offset(offset * size as isize);
        // SAFETY: a run of the output, from its place in the register.
        unsafe { element::store(w.dtype, register.wrapping_add(at * width), len, to, stride) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Compute::{F32, F64};
    use crate::program::trace;

    fn tensor(values: &[f32]) -> Storage {
        let s = Storage::uninit("test", values.len() * 4).unwrap();
        // SAFETY: fresh memory of this size.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), s.ptr().cast(), values.len()) };
        s
    }

    fn values(s: &Storage, n: usize) -> Vec<f32> {
        // SAFETY: written by the run.
        unsafe { std::slice::from_raw_parts(s.ptr().cast::<f32>(), n).to_vec() }
    }

    fn run(e: &Executable, sizes: &[usize], ins: &[(&Storage, Layout)], outs: &[(&Storage, Layout)]) {
        let operand = |(storage, layout): &(&Storage, Layout)| (*storage as *const Storage, layout.clone());
        let ins: Vec<_> = ins.iter().map(operand).collect();
        let outs: Vec<_> = outs.iter().map(operand).collect();
        // SAFETY: the storages outlive the call.
        let view = |v: &'_ [(*const Storage, Layout)]| -> Vec<Operand<'static>> {
            v.iter()
                // SAFETY: both outlive the call that uses the operands.
                .map(|(s, l)| unsafe { Operand { storage: &**s, layout: &*(l as *const Layout), dtype: DType::F32 } })
                .collect()
        };
        e.run("test", sizes, &view(&ins), &[Scalar::Float(0.5)], &view(&outs), Reduce::Sum).unwrap();
    }

    #[test]
    fn broadcasting_strides_and_reduction_agree_with_a_naive_loop() {
        let (n, m) = (70, 1500);
        let a: Vec<f32> = (0..n * m).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..m).map(|i| (i as f32 * 0.11).cos()).collect();
        let (sa, sb) = (tensor(&a), tensor(&b));
        let program = trace(&[F32, F32], &[F32], |x, s| vec![x[0] * x[1] + s[0], x[0] - x[1]]);
        let e = Executable::new(program);
        // The first operand is transposed: [m, n] seen with strides [1, m].
        let at = Layout { sizes: [m, n][..].into(), strides: [1, m as isize][..].into(), offset: 0 };
        let bt = Layout { sizes: [m, 1][..].into(), strides: [1, 1][..].into(), offset: 0 };
        let (full, rows) = (tensor(&vec![0.0; n * m]), tensor(&vec![0.0; n]));
        run(
            &e,
            &[m, n],
            &[(&sa, at), (&sb, bt)],
            &[(&full, Layout::contiguous([m, n][..].into())), (&rows, Layout::contiguous([1, n][..].into()))],
        );
        let (full, rows) = (values(&full, n * m), values(&rows, n));
        for j in 0..n {
            let mut sum = 0f64;
            for i in 0..m {
                assert_eq!(full[i * n + j], a[j * m + i] * b[i] + 0.5);
                sum += (a[j * m + i] - b[i]) as f64;
            }
            assert!((rows[j] as f64 - sum).abs() < 1e-3, "{} {sum}", rows[j]);
        }
    }

    #[test]
    fn reductions_of_every_pattern() {
        let sizes = [3, 70, 2, 130];
        let total = numel(&sizes);
        let a: Vec<f32> = (0..total).map(|i| ((i * 7919) % 13) as f32).collect();
        let s = tensor(&a);
        let e = Executable::new(trace(&[F32], &[F32], |x, _| vec![x[0]]));
        for mask in 0..16usize {
            let target: Dims = (0..4).map(|d| if mask >> d & 1 == 1 { 1 } else { sizes[d] }).collect();
            let mut want = vec![0f64; numel(&target)];
            for (i, v) in a.iter().enumerate() {
                let (mut rest, mut at, mut step) = (i, 0, 1);
                for d in (0..4).rev() {
                    let index = rest % sizes[d];
                    rest /= sizes[d];
                    if target[d] != 1 {
                        at += index * step;
                        step *= target[d];
                    }
                }
                want[at] += *v as f64;
            }
            let out = tensor(&vec![0.0; want.len()]);
            run(
                &e,
                &sizes,
                &[(&s, Layout::contiguous(sizes[..].into()))],
                &[(&out, Layout::contiguous(target.clone()))],
            );
            let got = values(&out, want.len());
            assert!(got.iter().zip(&want).all(|(g, w)| (*g as f64) == *w), "{mask:04b}");
        }
    }

    #[test]
    fn casts_between_types() {
        let e = Executable::new(trace(&[F32], &[], |x, _| vec![x[0].cast(F64) * 2.0]));
        let s = tensor(&[1.5, 2.5]);
        let out = Storage::uninit("test", 16).unwrap();
        let layout = Layout::contiguous([2][..].into());
        let ins = [Operand { storage: &s, layout: &layout, dtype: DType::F32 }];
        let outs = [Operand { storage: &out, layout: &layout, dtype: DType::F64 }];
        e.run("test", &[2], &ins, &[], &outs, Reduce::Sum).unwrap();
        // SAFETY: two doubles were written.
        assert_eq!(unsafe { std::slice::from_raw_parts(out.ptr().cast::<f64>(), 2) }, [3.0, 5.0]);
    }

    #[test]
    fn memory_of_an_output_takes_nothing_wider() {
        // Three steps: the third could reuse the register of the first, which holds doubles.
        let e = Executable::new(trace(&[F64], &[], |x, _| vec![(x[0] * x[0] + 1.0).sqrt().cast(F32)]));
        let n = 700;
        let (s, out) = (Storage::uninit("test", n * 8).unwrap(), tensor(&vec![-1.0; 2 * n]));
        // SAFETY: fresh memory of this size.
        (0..n).for_each(|i| unsafe { s.ptr().cast::<f64>().add(i).write(i as f64) });
        let layout = Layout::contiguous([n][..].into());
        let ins = [Operand { storage: &s, layout: &layout, dtype: DType::F64 }];
        let outs = [Operand { storage: &out, layout: &layout, dtype: DType::F32 }];
        e.run("test", &[n], &ins, &[], &outs, Reduce::Sum).unwrap();
        let got = values(&out, 2 * n);
        assert!((0..n).all(|i| got[i] == ((i * i + 1) as f64).sqrt() as f32));
        assert!(got[n..].iter().all(|v| *v == -1.0));
    }

    #[test]
    fn a_constant_first_used_late_keeps_its_value() {
        // The register of the square is free when the literal comes, but is written again in every block.
        let e = Executable::new(trace(&[F32], &[F32], |x, _| vec![(x[0] * x[0] + x[0]) * 2.0]));
        let (s, out) = (tensor(&[3.0, -4.0]), tensor(&[0.0; 2]));
        let layout = || Layout::contiguous([2][..].into());
        run(&e, &[2], &[(&s, layout())], &[(&out, layout())]);
        assert_eq!(values(&out, 2), [24.0, 24.0]);
    }
}
