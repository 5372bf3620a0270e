//! Copies: within and between dtypes, with and without history; and the few sums that the engine needs.

use super::apply;
use super::args::{Arg, Args, Read};
use super::op::Rule::{Composite as C, Structured as S, Update as U};
use super::op::{FUNCTION, METHOD, Outputs, op};
use super::structured::Structured;
use super::update::Update;
use crate::autograd::{mode, no_grad};
use crate::backend::{Executable, Reduce, cpu};
use crate::dtype::{Compute, DType};
use crate::error::{Result, bail};
use crate::program::{Sym, trace};
use crate::shape::{Layout, expandable};
use crate::storage::Storage;
use crate::tensor::{Body, Tensor};
use crate::threads::Stoppable;
use smallvec::smallvec;
use std::sync::{Arc, OnceLock};

op! {
    /// A copy of the tensor, through which gradients flow. The copy lies in memory as the original does if that is dense,
    /// else row-major; `memory_format` asks for row-major (`contiguous_format`) or for channels last.
    ///
    /// # Errors
    /// `RuntimeError` if the tensor has not the rank that the memory format is for.
    CLONE copy as "clone" (self; memory_format: OptStr = None) -> Tensor = "CloneBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                let layout = formatted("clone", &body.layout, a.str(1))?;
                Ok(smallvec![Tensor::from_body(copy_into_layout("clone", &body, layout)?)])
            },
            backward: Some(|c| Ok(smallvec![c.grad(0)])),
            saves: &[],
        });
    /// The tensor converted to a dtype, through which gradients flow (converted back).
    TO_COPY to_copy (self, dtype: Dtype) -> Tensor = "ToCopyBackward0", 0,
        S(Structured {
            forward: |a| {
                let body = a.tensor(0)?.body();
                let dtype = a.opt_dtype(1).unwrap_or(body.dtype);
                let out = Body::new(Storage::uninit("to", body.layout.numel() * dtype.size())?, dense_like(&body.layout), dtype);
                convert("to", &body, &out)?;
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| Ok(smallvec![c.grad(0).map(|g| to_dtype(&g, c.dtype(0))).transpose()?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::DType(DType::F32)]];
    /// The tensor in float32; itself if it is that already.
    TO_F32 to_float32 as "float" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::F32)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in float64; itself if it is that already.
    TO_F64 to_float64 as "double" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::F64)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in float16; itself if it is that already.
    TO_F16 to_float16 as "half" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::F16)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in bfloat16; itself if it is that already.
    TO_BF16 to_bfloat16 as "bfloat16" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::BF16)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in int64, truncating floats; itself if it is that already.
    TO_I64 to_int64 as "long" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::I64)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in int32, truncating floats; itself if it is that already.
    TO_I32 to_int32 as "int" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::I32)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in int16, truncating floats; itself if it is that already.
    TO_I16 to_int16 as "short" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::I16)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in int8, truncating floats; itself if it is that already.
    TO_I8 to_int8 as "char" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::I8)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in uint8, truncating floats; itself if it is that already.
    TO_U8 to_uint8 as "byte" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::U8)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in bool: whether each element is not zero; itself if it is that already.
    TO_BOOL to_bool as "bool" (self; memory_format: OptStr = None) -> Tensor = "", METHOD,
        C(|a| converted(a, DType::Bool)),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::None]];
    /// The tensor in the dtype of another; itself if it has that already.
    TYPE_AS type_as (self, other: Tensor) -> Tensor = "", METHOD,
        C(|a| Ok(smallvec![to_dtype(a.tensor(0)?, a.tensor(1)?.dtype())?])),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[1]))]];
    /// The elements of `src`, broadcast and converted to this tensor's shape and dtype: what `copy_` writes.
    COPY copy_from as "copy" (self, src: Tensor, non_blocking: Bool = false) -> Tensor = "CopyBackwards", super::op::INPLACE,
        U(Update {
            write: |to, a| {
                let from = a.tensor(1)?.body();
                if !expandable(&from.layout.sizes, &to.layout.sizes) {
                    bail!(runtime "copy_", "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension 0\ncopy_: shapes {:?} and {:?}", to.layout.sizes.first().unwrap_or(&1), from.layout.sizes.first().unwrap_or(&1), to.layout.sizes, from.layout.sizes);
                }
                convert("copy_", &from, to)
            },
            backward: |c| {
                let from = match (c.needs(1), c.grad(0)) {
                    (true, Some(g)) => Some(to_dtype(&sum_to_size(&g, c.sizes(1))?, c.dtype(1))?),
                    _ => None,
                };
                let to = match (c.needs(0), c.grad(0)) {
                    (true, Some(g)) => Some(super::zeros_like(&g)?),
                    _ => None,
                };
                Ok(smallvec![to, from])
            },
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Tensor(s.t(&[3])), Arg::Bool(false)]];
}

/// Where a copy of a tensor lies: as it does if it is dense, else row-major.
pub(crate) fn dense_like(layout: &Layout) -> Layout {
    if layout.is_dense() {
        Layout { sizes: layout.sizes.clone(), strides: layout.strides.clone(), offset: 0 }
    } else {
        Layout::contiguous(layout.sizes.clone())
    }
}

/// A copy of a body in fresh memory.
pub(crate) fn duplicate(op: &'static str, body: &Body) -> Result<Arc<Body>> {
    copy_into_layout(op, body, dense_like(&body.layout)).map(Arc::new)
}

/// A row-major copy of a body.
pub(crate) fn contiguous(op: &'static str, body: &Body) -> Result<Arc<Body>> {
    copy_into_layout(op, body, Layout::contiguous(body.layout.sizes.clone())).map(Arc::new)
}

fn copy_into_layout(op: &'static str, body: &Body, layout: Layout) -> Result<Body> {
    let out = Body::new(Storage::uninit(op, layout.numel() * body.dtype.size())?, layout, body.dtype);
    let _fresh = Stoppable::fresh_if_long(out.layout.numel());
    if !cpu::single::spread(&body.operand(), &out.operand()) {
        convert(op, body, &out)?;
    }
    Ok(out)
}

/// Writes the elements of one body, broadcast, to another, converting.
pub(crate) fn convert(op: &'static str, from: &Body, to: &Body) -> Result<()> {
    static CASTS: [[OnceLock<Executable>; 4]; 4] = [const { [const { OnceLock::new() }; 4] }; 4];
    static TO_INT32: [OnceLock<Executable>; 2] = [const { OnceLock::new() }; 2];
    let (a, b) = (from.dtype.compute(), to.dtype.compute());
    let cast: &Executable = if a.is_float() && to.dtype == DType::I32 {
        TO_INT32[(a == Compute::F64) as usize]
            .get_or_init(|| Executable::new(trace(&[a], &[], |x, _| vec![to_int32(x[0])])))
    } else {
        CASTS[a as usize][b as usize].get_or_init(|| Executable::new(trace(&[a], &[], |x, _| vec![x[0].cast(b)])))
    };
    let overlaps = from.storage.same(&to.storage) && from.layout != to.layout;
    if overlaps {
        // Reading and writing one memory through two layouts: by way of a copy.
        let copy = Body::new(
            Storage::uninit(op, from.layout.numel() * from.dtype.size())?,
            Layout::contiguous(from.layout.sizes.clone()),
            from.dtype,
        );
        convert(op, from, &copy)?;
        return convert(op, &copy, to);
    }
    cast.run(op, &to.layout.sizes, &[from.operand()], &[], &[to.operand()], Reduce::Sum)
}

/// A float truncated to 32 bits. What does not fit becomes the smallest integer, as x86 and PyTorch have it; wider and
/// narrower integers follow from the 64-bit conversion.
fn to_int32(x: Sym) -> Sym {
    let least = x.literal(-2_147_483_648.0);
    Sym::select(x.abs().lt(x.literal(2_147_483_648.0)), x, least).cast(Compute::I64)
}

/// The tensor in another dtype, lying as argument 1 asks.
fn converted(a: &Args, dtype: DType) -> Result<Outputs> {
    Ok(smallvec![in_format(to_dtype(a.tensor(0)?, dtype)?, a.str(1))?])
}

/// The tensor lying as a memory format asks; itself if it does, or if nothing is asked for.
pub(crate) fn in_format(t: Tensor, format: &str) -> Result<Tensor> {
    if matches!(format, "" | "preserve_format") { Ok(t) } else { t.contiguous(format.to_string()) }
}

/// The layout that a memory format asks for; if it asks for none, that of a dense original, else row-major.
///
/// # Errors
/// `RuntimeError` if the rank is not that of the format.
pub(crate) fn formatted(op: &'static str, layout: &Layout, format: &str) -> Result<Layout> {
    let rank = match format {
        "contiguous_format" => return Ok(Layout::contiguous(layout.sizes.clone())),
        "channels_last" => 4,
        "channels_last_3d" => 5,
        "" | "preserve_format" => return Ok(dense_like(layout)),
        other => bail!(type_ op, "{op}(): memory_format must be a torch.memory_format, not {other:?}"),
    };
    if layout.rank() != rank {
        bail!(runtime op, "required rank {rank} tensor to use {format} format");
    }
    // Dimension 1 comes last, the others keep their order.
    let mut out = Layout { sizes: layout.sizes.clone(), strides: layout.strides.clone(), offset: 0 };
    let mut step = 1;
    for d in std::iter::once(1).chain((2..rank).rev()).chain([0]) {
        out.strides[d] = step;
        step *= out.sizes[d].max(1) as isize;
    }
    Ok(out)
}

/// Whether a layout is what a memory format asks for; the strides of dimensions of size 1 say nothing.
///
/// # Errors
/// As [`formatted`].
pub(crate) fn is_formatted(op: &'static str, layout: &Layout, format: &str) -> Result<bool> {
    if matches!(format, "" | "contiguous_format") {
        return Ok(layout.is_contiguous());
    }
    let wanted = formatted(op, layout, format)?;
    Ok((0..layout.rank()).all(|d| layout.sizes[d] == 1 || layout.strides[d] == wanted.strides[d]))
}

/// The tensor in another dtype, differentiable; itself if it has it already.
pub fn to_dtype(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype { Ok(t.clone()) } else { t.to_copy(dtype) }
}

/// The tensor summed to a shape that broadcasts to its own, differentiable.
pub fn sum_to_size(t: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let have = t.sizes();
    if have[..] == *sizes {
        return Ok(t.clone());
    }
    if !expandable(sizes, &have) {
        bail!(runtime "sum_to_size", "size {{{sizes:?}}} is not expandable to size {{{have:?}}}.");
    }
    let lead = have.len() - sizes.len();
    let dims: Vec<i64> =
        (0..have.len()).filter(|&d| d < lead || (sizes[d - lead] == 1 && have[d] != 1)).map(|d| d as i64).collect();
    let summed = if dims.is_empty() { t.clone() } else { t.sum(&dims[..], true)? };
    summed.view(sizes)
}

/// A copy of a gradient that lies in memory as `like` does, differentiable if recording is on.
pub fn copy_like(t: &Tensor, like: &Tensor) -> Result<Tensor> {
    if mode::is_grad_enabled() && t.requires_grad() {
        return t.copy();
    }
    let layout = dense_like(&like.body().layout);
    copy_in_layout(t.clone(), layout)
}

/// A copy of a gradient in memory of that layout, without history.
pub(crate) fn copy_in_layout(mut t: Tensor, layout: Layout) -> Result<Tensor> {
    // What nobody else holds becomes its own copy.
    if let Some(body) = t.state_mut().and_then(|state| Arc::get_mut(&mut state.body)) {
        *body = copy_into_layout("clone", body, layout)?;
        return Ok(t);
    }
    Ok(Tensor::from_body(copy_into_layout("clone", &t.body(), layout)?))
}

/// `a + b` as a new tensor.
pub fn sum_of(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    apply::binary(&super::elementwise::ADD, a, b)
}

/// `a += b` without history.
pub fn add_assign(a: &Tensor, b: &Tensor) -> Result<()> {
    let (to, from) = (a.body(), b.body());
    if to.storage.is_writable() && !a.is_inference() && cpu::accumulate::add_assign(&to.operand(), &from.operand()) {
        to.bump_version();
        return Ok(());
    }
    let args =
        apply::with_defaults(&super::elementwise::ADD, smallvec![Arg::Tensor(a.clone()), Arg::Tensor(b.clone())]);
    no_grad(|| apply::call_in_place(&super::elementwise::ADD, &args)).map(drop)
}

/// Whether nobody but the holder of this handle can see the tensor's memory, so that it may be written.
pub fn is_exclusive(t: &Tensor) -> bool {
    let body = t.body();
    Arc::strong_count(&t.0) == 1
        && Arc::strong_count(&body) == 2
        && body.storage.is_unique()
        && !body.layout.overlaps_itself()
        && !t.is_view()
        && !t.requires_grad()
}
