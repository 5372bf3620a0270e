//! Kernels along one dimension (softmax, scans, arg reductions, order statistics): this file hands them every slice of
//! their operands as plain Rust slices of the compute type, whatever the dtype and wherever the dimension lies. A slice's
//! bits depend on its values alone: a kernel sees the same numbers along rows and along columns. No arithmetic here.

use super::element::{self, Element};
use super::elementwise::element_ptr;
use super::math;
use super::reduce::Number;
use crate::backend::Operand;
use crate::dtype::DType;
use crate::threads;
use std::ops::{Add, Div, Mul, Range, Sub};

/// Floating point compute types.
pub(super) trait Float:
    Number + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const ZERO: Self;
    fn to_f64(self) -> f64;
    fn of_f64(x: f64) -> Self;
    fn exp<const FMA: bool>(x: &[Self], out: &mut [Self]);
    fn log<const FMA: bool>(x: &[Self], out: &mut [Self]);
}

macro_rules! float {
    ($t:ty, $math:ident) => {
        impl Float for $t {
            const ZERO: $t = 0.0;
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn of_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn exp<const FMA: bool>(x: &[$t], out: &mut [$t]) {
                math::$math::exp::<FMA>(x, out)
            }
            #[inline(always)]
            fn log<const FMA: bool>(x: &[$t], out: &mut [$t]) {
                math::$math::log::<FMA>(x, out)
            }
        }
    };
}
float!(f32, single);
float!(f64, double);

/// Defines a function over slices compiled twice, for the baseline CPU and for AVX2 with FMA, which picks by itself.
/// `FMA` is a constant in its body.
macro_rules! row_kernel {
    ($(#[$meta:meta])* fn $name:ident<$T:ident: $bound:ident, $FMA:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$meta])*
        fn $name<$T: $bound>($($arg: $ty),*) $(-> $out)? {
            #[inline(always)]
            #[allow(clippy::extra_unused_type_parameters, reason = "FMA concerns kernels that call the maths functions")]
            fn body<$T: $bound, const $FMA: bool>($($arg: $ty),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2<$T: $bound>($($arg: $ty),*) $(-> $out)? {
                    body::<$T, true>($($arg),*)
                }
                if $crate::backend::cpu::has_fma() {
                    // SAFETY: the CPU has AVX2 and FMA.
                    return unsafe { avx2::<$T>($($arg),*) };
                }
            }
            body::<$T, false>($($arg),*)
        }
    };
}
pub(super) use row_kernel;

/// Runs `$body` with `$T` standing for the float compute type of a dtype.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        if $dtype.compute() == $crate::dtype::Compute::F64 {
            type $T = f64;
            $body
        } else {
            type $T = f32;
            $body
        }
    };
}
pub(super) use with_float;

/// Runs `$body` with `$T` standing for the compute type of a dtype.
macro_rules! with_compute {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.compute() {
            $crate::dtype::Compute::F32 => {
                type $T = f32;
                $body
            }
            $crate::dtype::Compute::F64 => {
                type $T = f64;
                $body
            }
            $crate::dtype::Compute::I64 => {
                type $T = i64;
                $body
            }
            $crate::dtype::Compute::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(super) use with_compute;

/// Columns that are brought into rows at once when the dimension is not the last: one or two cache lines of floats.
const COLUMNS: usize = 32;
/// Bytes that a tile of columns should not pass.
const TILE: usize = 1 << 18;

/// About how many nanoseconds a kernel along a dimension takes for a value.
const NS: f64 = 1.0;

/// One operand: contiguous, seen as `[outer, len, inner]`.
#[derive(Clone, Copy)]
struct Strip {
    ptr: *mut u8,
    dtype: DType,
    len: usize,
    /// Whether a row can be used where it lies.
    direct: bool,
    /// Where rows lie otherwise, and how far apart they are.
    rows: *mut u8,
    pitch: usize,
}

// SAFETY: addresses; the guards that their maker holds keep others away, and slices of a run write elements of their own.
unsafe impl Sync for Strip {}

/// The slices of operands along a dimension, which may have another length in each.
pub(super) struct Slices<const I: usize, const O: usize> {
    ins: [Strip; I],
    outs: [Strip; O],
    outer: usize,
    inner: usize,
}

/// How slices are handed out: some neighbours at a time.
struct Tiles {
    columns: usize,
    count: usize,
    /// Bytes for rows that cannot be used where they lie.
    scratch: usize,
}

/// The slices at one place of the other dimensions.
pub(super) struct Place<const I: usize, const O: usize> {
    ins: [(*const u8, usize); I],
    outs: [(*mut u8, usize); O],
}

impl<const I: usize, const O: usize> Place<I, O> {
    /// Input `k`'s slice.
    ///
    /// # Safety
    /// `T` must be the compute type of its dtype.
    #[inline(always)]
    pub(super) unsafe fn input<T>(&self, k: usize) -> &[T] {
        let (ptr, n) = self.ins[k];
        // SAFETY: `Slices::each` made it a row of that many values, which nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(ptr.cast(), n) }
    }

    /// Output `k`'s slice, whose old values are unspecified.
    ///
    /// # Safety
    /// `T` must be the compute type of its dtype, and each output be asked for once at a time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "outputs are disjoint, and the caller takes each once")]
    pub(super) unsafe fn output<T>(&self, k: usize) -> &mut [T] {
        let (ptr, n) = self.outs[k];
        // SAFETY: as for `input`; the memory is ours alone.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast(), n) }
    }
}

impl<const I: usize, const O: usize> Slices<I, O> {
    /// The slices along `dim` of contiguous operands of one rank, which agree in all other dimensions. The caller holds
    /// guards; outputs are fresh.
    pub(super) fn along(dim: usize, ins: [&Operand<'_>; I], outs: [&Operand<'_>; O]) -> Slices<I, O> {
        let sizes = ins.first().or(outs.first()).map_or(&[][..], |o| &o.layout.sizes);
        let outer = sizes.iter().take(dim).product();
        let inner = sizes.iter().skip(dim + 1).product();
        let strip = |o: &Operand<'_>| {
            debug_assert!(o.layout.is_contiguous());
            let len = o.layout.sizes.get(dim).copied().unwrap_or(1);
            Strip {
                ptr: element_ptr(o),
                dtype: o.dtype,
                len,
                direct: inner == 1 && element::is_direct(o.dtype) && !o.storage.is_foreign(),
                rows: std::ptr::null_mut(),
                // No power of two, lest all columns of a tile fall into the same cache sets.
                pitch: (len * o.dtype.compute().dtype().size()).next_multiple_of(64) + 64,
            }
        };
        Slices { ins: ins.map(strip), outs: outs.map(strip), outer, inner }
    }

    /// Calls `f` with every slice. Several threads may do so at once, each with slices of its own.
    pub(super) fn each(self, f: impl Fn(&Place<I, O>) + Sync) {
        self.each_with(|| (), |(), p| f(p));
    }

    /// The same, with something that each thread makes for itself.
    pub(super) fn each_with<S>(self, make: impl Fn() -> S + Sync, f: impl Fn(&mut S, &Place<I, O>) + Sync) {
        let tiles = self.tiles();
        let values = self.ins.iter().chain(&self.outs).map(|s| s.len).sum::<usize>() * tiles.columns;
        threads::ranges(tiles.count, 1, NS * values as f64, |range| {
            let mut own = make();
            self.run(&tiles, range, |p| f(&mut own, p));
        });
    }

    /// Calls `f` with every slice, in index order.
    pub(super) fn in_order(self, f: impl FnMut(&Place<I, O>)) {
        let tiles = self.tiles();
        self.run(&tiles, 0..tiles.count, f);
    }

    fn tiles(&self) -> Tiles {
        let strips = || self.ins.iter().chain(&self.outs).filter(|s| !s.direct);
        let columns = match self.inner {
            0 | 1 => 1,
            inner => (TILE / strips().map(|s| s.pitch).sum::<usize>().max(1)).clamp(COLUMNS / 2, COLUMNS).min(inner),
        };
        let bytes = strips().map(|s| s.pitch * columns).sum::<usize>();
        let scratch = if bytes > 0 { bytes + COLUMNS * 8 } else { 0 };
        Tiles { columns, count: self.outer * self.inner.div_ceil(columns), scratch }
    }

    /// Calls `f` with the slices of some tiles, in index order.
    fn run(&self, tiles: &Tiles, range: Range<usize>, mut f: impl FnMut(&Place<I, O>)) {
        let columns = tiles.columns;
        let across = self.inner.div_ceil(columns);
        let mut scratch: Vec<u64> = vec![0; tiles.scratch / 8];
        let line = scratch.as_mut_ptr().cast::<u8>();
        let mut free = line.wrapping_add(COLUMNS * 8);
        let mut placed = |s: &Strip| {
            let mut own = *s;
            if !s.direct {
                own.rows = free;
                free = free.wrapping_add(s.pitch * columns);
            }
            own
        };
        let ins = self.ins.each_ref().map(&mut placed);
        let outs = self.outs.each_ref().map(&mut placed);
        for tile in range {
            let (o, first) = (tile / across, tile % across * columns);
            let n = columns.min(self.inner - first);
            // SAFETY: a tile inside every operand; rows have room for it.
            unsafe {
                ins.iter().for_each(|s| s.bring(o, self.inner, first, n, line));
                for c in 0..n {
                    f(&Place {
                        ins: std::array::from_fn(|k| (ins[k].row(o, c).cast_const(), ins[k].len)),
                        outs: std::array::from_fn(|k| (outs[k].row(o, c), outs[k].len)),
                    });
                }
                outs.iter().for_each(|s| s.put(o, self.inner, first, n, line));
            }
        }
    }
}

impl Strip {
    #[inline(always)]
    fn row(&self, o: usize, c: usize) -> *mut u8 {
        if self.direct { self.at(o * self.len) } else { self.rows.wrapping_add(c * self.pitch) }
    }

    fn at(&self, element: usize) -> *mut u8 {
        self.ptr.wrapping_add(element * self.dtype.size())
    }

    /// Loads columns `first .. first + n` of outer index `o` into rows.
    ///
    /// # Safety
    /// They must lie in the operand; `line` has room for [`COLUMNS`] values.
    unsafe fn bring(&self, o: usize, inner: usize, first: usize, n: usize, line: *mut u8) {
        if self.direct {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if inner == 1 {
                return element::load(self.dtype, self.at(o * self.len), 1, self.len, self.rows);
            }
            for j in 0..self.len {
                element::load(self.dtype, self.at((o * self.len + j) * inner + first), 1, n, line);
                element::with_element!(self.dtype, E => spread::<<E as Element>::Compute>(line, self.rows.wrapping_add(j * size_of::<<E as Element>::Compute>()), self.pitch, n));
            }
        }
    }

    /// Stores rows as columns `first .. first + n` of outer index `o`.
    ///
    /// # Safety
    /// As for [`bring`](Self::bring).
    unsafe fn put(&self, o: usize, inner: usize, first: usize, n: usize, line: *mut u8) {
        if self.direct {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if inner == 1 {
                return element::store(self.dtype, self.rows, self.len, self.at(o * self.len), 1);
            }
            for j in 0..self.len {
                element::with_element!(self.dtype, E => collect::<<E as Element>::Compute>(self.rows.wrapping_add(j * size_of::<<E as Element>::Compute>()), self.pitch, line, n));
                element::store(self.dtype, line, n, self.at((o * self.len + j) * inner + first), 1);
            }
        }
    }
}

/// Copies `n` values from a line to places `pitch` bytes apart.
///
/// # Safety
/// All must be valid for values of `T`.
unsafe fn spread<T: Copy>(line: *const u8, to: *mut u8, pitch: usize, n: usize) {
    // SAFETY: the caller's promise.
    (0..n).for_each(|c| unsafe { to.wrapping_add(c * pitch).cast::<T>().write(line.cast::<T>().add(c).read()) });
}

/// Copies `n` values from places `pitch` bytes apart to a line.
///
/// # Safety
/// As for [`spread`].
unsafe fn collect<T: Copy>(from: *const u8, pitch: usize, line: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    (0..n).for_each(|c| unsafe { line.cast::<T>().add(c).write(from.wrapping_add(c * pitch).cast::<T>().read()) });
}
