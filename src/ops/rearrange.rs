//! Operations that write a tensor's elements to other places: repeated, reversed, rolled, turned, padded, or with a triangle
//! of them replaced by zeros.

use super::args::{Arg, Args, Read};
use super::combine::fresh;
use super::copy;
use super::op::Rule::{Composite as C, Structured as S};
use super::op::{FUNCTION, INPLACE, METHOD, NN, OUT, Outputs, op};
use super::structured::{Context, Structured};
use crate::autograd::node::Grads;
use crate::backend::cpu;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, Strides, wrap_dim, wrap_dims};
use crate::storage::affordable;
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// The tensor repeated `repeats[d]` times along each dimension; repeats beyond its rank make new dimensions in front.
    ///
    /// # Errors
    /// `RuntimeError` for fewer repeats than dimensions, or negative ones.
    REPEAT repeat(self, repeats: Ints) -> Tensor = "RepeatBackward0", METHOD,
        S(Structured { forward: repeat_forward, backward: Some(repeat_backward), saves: &[] }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([2, 1, 3][..].into())],
            smallvec![Arg::Tensor(s.t(&[2])), Arg::Ints([0][..].into())],
        ];
    /// [`repeat`](Self::repeat) with ones put in front of `dims` where the tensor has more dimensions.
    ///
    /// # Errors
    /// `RuntimeError` for negative numbers.
    TILE tile(self, dims: Ints) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let (t, dims) = (a.tensor(0)?, a.ints(1)?);
            let missing = t.rank().saturating_sub(dims.len());
            let repeats: Dims<i64> = std::iter::repeat_n(1, missing).chain(dims.iter().copied()).collect();
            Ok(smallvec![t.repeat(&repeats[..])?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([2][..].into())]];
    /// Element `i` of a dimension `repeats[i]` times; all elements as one dimension without `dim`.
    ///
    /// # Errors
    /// `RuntimeError` for negative repeats or a number of them that fits neither 1 nor the dimension, `IndexError` for a
    /// dimension that is not there.
    REPEAT_INTERLEAVE_EACH repeat_interleave_each as "repeat_interleave"(self, repeats: Tensor, dim: OptInt = None; output_size: OptInt = None) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let repeats = a.tensor(1)?;
            let (t, dim) = flat_unless(a.tensor(0)?, a.opt_int(2))?;
            let dim = wrap_dim("repeat_interleave", dim, t.rank())?;
            let n = t.sizes().get(dim).copied().unwrap_or(1);
            if repeats.rank() > 1 {
                bail!(runtime "repeat_interleave", "repeats must be 0-dim or 1-dim tensor");
            }
            let repeats = if repeats.numel() == 1 { repeats.reshape([1])?.expand([n])? } else { repeats.clone() };
            if repeats.numel() != n {
                bail!(runtime "repeat_interleave", "repeats must have the same size as input along dim, but got repeats.size(0) = {} and input.size({dim}) = {n}", repeats.numel());
            }
            let index = repeated_positions(&repeats)?;
            check_output_size(a.opt_int(3), index.numel() as i64)?;
            Ok(smallvec![t.index_select(dim as i64, index)?])
        });
    /// Each element of a dimension `repeats` times, one beside the other; all elements as one dimension without `dim`.
    ///
    /// # Errors
    /// `RuntimeError` for negative repeats, `IndexError` for a dimension that is not there.
    REPEAT_INTERLEAVE repeat_interleave(self, repeats: Int, dim: OptInt = None; output_size: OptInt = None) -> Tensor = "", METHOD | FUNCTION,
        C(|a| {
            let repeats = a.int(1)?;
            if repeats < 0 {
                bail!(runtime "repeat_interleave", "Repeats must be non-negative");
            }
            let (t, dim) = flat_unless(a.tensor(0)?, a.opt_int(2))?;
            let dim = wrap_dim("repeat_interleave", dim, t.rank())?;
            check_output_size(a.opt_int(3), t.sizes().get(dim).copied().unwrap_or(1) as i64 * repeats)?;
            let mut wide: Dims<i64> = Dims::filled(-1, t.rank() + 1);
            wide[dim + 1] = repeats;
            let copied = t.unsqueeze(dim as i64 + 1)?.expand(&wide[..])?.copy_contiguous()?;
            Ok(smallvec![copied.flatten(dim as i64, dim as i64 + 1)?])
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(2), Arg::Int(-1), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 2])), Arg::Int(2), Arg::None, Arg::None],
        ];
    /// Position `i`, `repeats[i]` times.
    ///
    /// # Errors
    /// `RuntimeError` for negative repeats.
    REPEATED_POSITIONS repeated_positions as "repeat_interleave"(repeats: Tensor; output_size: OptInt = None) -> Tensor = "", FUNCTION,
        C(|a| {
            let repeats = a.tensor(0)?;
            if repeats.rank() != 1 {
                bail!(runtime "repeat_interleave", "repeat_interleave only accept 1D vector as repeat");
            }
            let index = repeated_positions(repeats)?;
            check_output_size(a.opt_int(1), index.numel() as i64)?;
            Ok(smallvec![index])
        });
    /// The elements of the given dimensions in reverse order, in new memory.
    ///
    /// # Errors
    /// `IndexError` for a dimension that is not there, `RuntimeError` for one named twice.
    FLIP flip(self, dims: Ints) -> Tensor = "FlipBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let (from, dims) = (a.tensor(0)?.body(), a.ints(1)?);
                let mut layout = from.layout.clone();
                let wrapped = if dims.is_empty() { Dims::new() } else { wrap_dims("flip", dims, layout.rank())? };
                for &d in &wrapped {
                    let last = layout.sizes[d].saturating_sub(1) as isize;
                    layout.offset = (layout.offset as isize + last * layout.strides[d]) as usize;
                    layout.strides[d] = -layout.strides[d];
                }
                let out = fresh("flip", layout.sizes.clone(), from.dtype)?;
                copy::convert("flip", &from.with_layout(layout), &out)?;
                Ok(smallvec![Tensor::from_body(out)])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.flip(c.ints(1)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Ints([0, -1][..].into())]];
    /// The columns in reverse order.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions.
    FLIPLR fliplr(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| match a.tensor(0)?.rank() {
            0 | 1 => bail!(runtime "fliplr", "Input must be >= 2-d."),
            _ => Ok(smallvec![a.tensor(0)?.flip([1])?]),
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// The rows in reverse order.
    ///
    /// # Errors
    /// `RuntimeError` for a 0-d tensor.
    FLIPUD flipud(self) -> Tensor = "", METHOD | FUNCTION,
        C(|a| match a.tensor(0)?.rank() {
            0 => bail!(runtime "flipud", "Input must be >= 1-d."),
            _ => Ok(smallvec![a.tensor(0)?.flip([0])?]),
        }),
        |s| vec![s.tensors(&[&[2, 3]])];
    /// The elements moved by `shifts` along `dims`, those that leave at the end coming back at the beginning; without dims,
    /// all elements as one row.
    ///
    /// # Errors
    /// `RuntimeError` for lists of different lengths, `IndexError` for a dimension that is not there.
    ROLL roll(self, shifts: Ints, dims: Ints = ()) -> Tensor = "RollBackward0", METHOD | FUNCTION,
        S(Structured {
            forward: roll_forward,
            backward: Some(|c| {
                let back: Dims<i64> = c.ints(1)?.iter().map(|&s| s.wrapping_neg()).collect();
                Ok(smallvec![c.when(0, |g| g.roll(&back[..], c.ints(2)?))?])
            }),
            saves: &[],
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([1, -2][..].into()), Arg::Ints([0, 1][..].into())],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([2][..].into()), Arg::Ints(Default::default())],
        ];
    /// The tensor turned `k` times by 90 degrees in the plane of `dims`, from the first towards the second.
    ///
    /// # Errors
    /// `RuntimeError` unless two different dimensions are named, `IndexError` for one that is not there.
    ROT90 rot90(self, k: Int = 1, dims: Ints = [0, 1]) -> Tensor = "Rot90Backward0", METHOD | FUNCTION,
        S(Structured {
            forward: |a| {
                let (t, dims) = (a.tensor(0)?, a.ints(2)?);
                let &[x, y] = dims else { bail!(runtime "rot90", "expected total rotation dims == 2, but got dims = {}", dims.len()) };
                if t.rank() < 2 {
                    bail!(runtime "rot90", "expected total dims >= 2, but got total dims = {}", t.rank());
                }
                if wrap_dim("rot90", x, t.rank())? == wrap_dim("rot90", y, t.rank())? {
                    bail!(runtime "rot90", "expected rotation dims to be different, but got dim0 = {x} and dim1 = {y}");
                }
                let turned = match a.int(1)?.rem_euclid(4) {
                    0 => t.copy_contiguous()?,
                    1 => t.flip([y])?.transpose(x, y)?,
                    2 => t.flip([x, y])?,
                    _ => t.flip([x])?.transpose(x, y)?,
                };
                Ok(smallvec![Tensor::from_shared(turned.body())])
            },
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.rot90(c.int(1)?.wrapping_neg(), c.ints(2)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(1), Arg::Ints([0, 1][..].into())], smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Int(-5), Arg::Ints([1, 0][..].into())]];
    /// The lower triangle of matrices, up to `diagonal` places above the main diagonal; zeros elsewhere.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions.
    TRIL tril(self, diagonal: Int = 0) -> Tensor = "TrilBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| triangle("tril", a, false),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.tril(c.int(1)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Int(-1)]];
    /// The upper triangle of matrices, from `diagonal` places above the main diagonal on; zeros elsewhere.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than two dimensions.
    TRIU triu(self, diagonal: Int = 0) -> Tensor = "TriuBackward0", METHOD | FUNCTION | INPLACE | OUT,
        S(Structured {
            forward: |a| triangle("triu", a, true),
            backward: Some(|c| Ok(smallvec![c.when(0, |g| g.triu(c.int(1)?))?])),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 2])), Arg::Int(1)]];
    /// The tensor with `value` around it: `pad` holds the numbers of elements before and behind the last dimension, then those
    /// of the one before it, and so on. Negative numbers cut off.
    ///
    /// # Errors
    /// `RuntimeError` for an odd number of numbers, too many of them, or a cut of more than there is.
    CONSTANT_PAD constant_pad_nd(self, pad: Ints, value: Number = 0) -> Tensor = "ConstantPadNdBackward0", FUNCTION,
        S(Structured {
            forward: constant_pad,
            backward: Some(|c| {
                let back: Dims<i64> = c.ints(1)?.iter().map(|&p| -p).collect();
                Ok(smallvec![c.when(0, |g| g.constant_pad_nd(&back[..], 0i64))?])
            }),
            saves: &[],
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 3, 4])), Arg::Ints([1, -2, 0, 3][..].into()), Arg::Number(Scalar::Float(0.5))]];
    /// The tensor with elements around it, as [`constant_pad_nd`](Self::constant_pad_nd) counts them: `value` (`mode`
    /// `"constant"`), those inside mirrored at the border elements (`"reflect"`), the border elements (`"replicate"`), or
    /// those of the other end (`"circular"`). The last three pad the last one, two or three dimensions of one more or two more.
    ///
    /// # Errors
    /// `RuntimeError` for padding that the sizes do not allow, `NotImplementedError` for another mode or combination.
    PAD pad(self, pad: Ints, mode: Str = "constant", value: OptNumber = None) -> Tensor = "", NN,
        C(|a| {
            let (t, pad, mode) = (a.tensor(0)?, a.ints(1)?, a.str(2));
            check_pad(t, pad)?;
            if mode == "constant" {
                return Ok(smallvec![t.constant_pad_nd(pad, a.opt_number(3).unwrap_or(Scalar::Int(0)))?]);
            }
            if a.opt_number(3).is_some_and(|v| v.to_f64() != 0.0) {
                bail!(runtime "pad", "Padding mode \"{mode}\" doesn't take in value argument");
            }
            let along = match mode {
                "reflect" => reflect,
                "replicate" => replicate,
                "circular" => circular,
                _ => bail!(not_implemented "pad", "Unrecognised padding mode {mode}"),
            };
            let dims = pad.len() / 2;
            if dims == 0 || dims > 3 || !(dims + 1..=dims + 2).contains(&t.rank()) {
                bail!(not_implemented "pad", "Padding size {} is not supported for {}D input tensor.\nSupported combinations for non-constant padding:\n  - 2D or 3D input: padding size = 2 (pads last dimension)\n  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)", pad.len(), t.rank());
            }
            let mut out = t.clone();
            for (k, sides) in pad.chunks_exact(2).enumerate() {
                out = along(&out, t.rank() - 1 - k, sides[0], sides[1])?;
            }
            // Without any padding the result is still a tensor of its own.
            Ok(smallvec![if out.is(t) { t.copy()? } else { out }])
        }),
        |s| vec![
            smallvec![Arg::Tensor(s.t(&[1, 3, 4])), Arg::Ints([2, 1, 1, 0][..].into()), Arg::Str("reflect".into()), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([2, -1][..].into()), Arg::Str("replicate".into()), Arg::None],
            smallvec![Arg::Tensor(s.t(&[2, 3])), Arg::Ints([2, 3][..].into()), Arg::Str("circular".into()), Arg::None],
        ];
    /// Blocks of `upscale_factor` squared channels as pixels: `(*, C r^2, H, W)` becomes `(*, C, H r, W r)` (Shi et al. 2016).
    ///
    /// # Errors
    /// `RuntimeError` for fewer than three dimensions or channels that do not divide.
    PIXEL_SHUFFLE pixel_shuffle(self, upscale_factor: Int) -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let (t, r) = (a.tensor(0)?, a.int(1)?);
            let (lead, [c, h, w]) = image("pixel_shuffle", t)?;
            if r <= 0 {
                bail!(runtime "pixel_shuffle", "pixel_shuffle expects a positive upscale_factor, but got {r}");
            }
            if c % (r * r) != 0 {
                bail!(runtime "pixel_shuffle", "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input.size(-3)={c} is not divisible by {}", r * r);
            }
            let n = lead.len() as i64;
            let apart = t.reshape(&[&lead[..], &[c / (r * r), r, r, h, w]].concat()[..])?;
            let order: Vec<i64> = (0..n).chain([n, n + 3, n + 1, n + 4, n + 2]).collect();
            Ok(smallvec![apart.permute(&order[..])?.reshape(&[&lead[..], &[c / (r * r), h * r, w * r]].concat()[..])?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4, 2, 3])), Arg::Int(2)]];
    /// The inverse of [`pixel_shuffle`](Self::pixel_shuffle): `(*, C, H r, W r)` becomes `(*, C r^2, H, W)`.
    ///
    /// # Errors
    /// `RuntimeError` for fewer than three dimensions or a height or width that does not divide.
    PIXEL_UNSHUFFLE pixel_unshuffle(self, downscale_factor: Int) -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let (t, r) = (a.tensor(0)?, a.int(1)?);
            let (lead, [c, h, w]) = image("pixel_unshuffle", t)?;
            if r <= 0 {
                bail!(runtime "pixel_unshuffle", "pixel_unshuffle expects a positive downscale_factor, but got {r}");
            }
            for (name, dim, n) in [("height", -2, h), ("width", -1, w)] {
                if n % r != 0 {
                    bail!(runtime "pixel_unshuffle", "pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({dim})={n} is not divisible by {r}");
                }
            }
            let n = lead.len() as i64;
            let apart = t.reshape(&[&lead[..], &[c, h / r, r, w / r, r]].concat()[..])?;
            let order: Vec<i64> = (0..n).chain([n, n + 2, n + 4, n + 1, n + 3]).collect();
            Ok(smallvec![apart.permute(&order[..])?.reshape(&[&lead[..], &[c * r * r, h / r, w / r]].concat()[..])?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 1, 4, 2])), Arg::Int(2)]];
    /// Channels in `groups` rows and read by columns: `(N, C, *)` keeps its shape (Zhang et al. 2018).
    ///
    /// # Errors
    /// `RuntimeError` for fewer than three dimensions or channels that do not divide.
    CHANNEL_SHUFFLE channel_shuffle(self, groups: Int) -> Tensor = "", NN | FUNCTION,
        C(|a| {
            let (t, groups) = (a.tensor(0)?, a.int(1)?);
            let sizes: Vec<i64> = t.sizes().iter().map(|&s| s as i64).collect();
            if sizes.len() < 3 {
                bail!(runtime "channel_shuffle", "channel_shuffle expects input with > 2 dims, but got input with sizes {sizes:?}");
            }
            if groups <= 0 {
                bail!(runtime "channel_shuffle", "Number of groups to divide channels in must be positive. Value of groups:{groups}");
            }
            if sizes[1] % groups != 0 {
                bail!(runtime "channel_shuffle", "Number of channels must be divisible by groups. Got {} channels and {groups} groups.", sizes[1]);
            }
            let apart = t.reshape(&[&[sizes[0], groups, sizes[1] / groups], &sizes[2..]].concat()[..])?;
            Ok(smallvec![apart.transpose(1, 2)?.reshape(&sizes[..])?])
        }),
        |s| vec![smallvec![Arg::Tensor(s.t(&[2, 4, 3])), Arg::Int(2)]];
}

/// The leading sizes of a stack of images, and those of an image: channels, height, width.
fn image(op: &'static str, t: &Tensor) -> Result<(Vec<i64>, [i64; 3])> {
    let sizes: Vec<i64> = t.sizes().iter().map(|&s| s as i64).collect();
    match sizes[..] {
        [ref lead @ .., c, h, w] => Ok((lead.to_vec(), [c, h, w])),
        _ => {
            bail!(runtime op, "{op} expects input to have at least 3 dimensions, but got input with {} dimension(s)", sizes.len())
        }
    }
}

/// For each dimension of a repeated tensor, how often it is repeated and its size before.
fn repeated_sizes(sizes: &[usize], repeats: &[i64]) -> Vec<(usize, usize)> {
    let new = repeats.len() - sizes.len();
    let size = |d: usize| if d < new { 1 } else { sizes[d - new] };
    repeats.iter().enumerate().map(|(d, &r)| (r as usize, size(d))).collect()
}

fn repeat_forward(a: &Args) -> Result<Outputs> {
    let (from, repeats) = (a.tensor(0)?.body(), a.ints(1)?);
    let sizes = &from.layout.sizes;
    if repeats.len() < sizes.len() {
        bail!(runtime "repeat", "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor\nrepeat: repeats {repeats:?} of shape {sizes:?}");
    }
    let new = repeats.len() - sizes.len();
    if repeats.iter().any(|&r| r < 0) {
        let shown: Vec<i64> =
            repeats.iter().enumerate().map(|(d, &r)| if d < new { r } else { r * sizes[d - new] as i64 }).collect();
        let bad = shown.iter().find(|s| **s < 0).copied().unwrap_or(-1);
        bail!(runtime "repeat", "Trying to create tensor with negative dimension {bad}: {shown:?}");
    }
    let parts = repeated_sizes(sizes, repeats);
    let out = fresh("repeat", parts.iter().map(|&(r, s)| r.saturating_mul(s)).collect(), from.dtype)?;
    // Both sides seen with a dimension for the repetition before each dimension of the tensor.
    let apart: Dims = parts.iter().flat_map(|&(r, s)| [r, s]).collect();
    let strides: Strides =
        (0..parts.len()).flat_map(|d| [0, if d < new { 0 } else { from.layout.strides[d - new] }]).collect();
    let source = from.with_layout(Layout { sizes: apart.clone(), strides, offset: from.layout.offset });
    let target = out.with_layout(Layout::contiguous(apart));
    copy::convert("repeat", &source, &target)?;
    Ok(smallvec![Tensor::from_body(out)])
}

fn repeat_backward(c: &Context<'_>) -> Result<Grads> {
    let parts = repeated_sizes(c.sizes(0), c.ints(1)?);
    Ok(smallvec![c.when(0, |g| {
        let apart: Dims = parts.iter().flat_map(|&(r, s)| [r, s]).collect();
        let repeated: Dims<i64> = (0..parts.len()).filter(|&d| parts[d].0 != 1).map(|d| 2 * d as i64).collect();
        let apart = g.reshape(&apart)?;
        let summed = if repeated.is_empty() { apart } else { apart.sum(&repeated[..], false)? };
        summed.reshape(c.sizes(0))
    })?])
}

/// The tensor and a dimension of it; all its elements as one dimension if none is given.
fn flat_unless(t: &Tensor, dim: Option<i64>) -> Result<(Tensor, i64)> {
    match dim {
        Some(d) if t.rank() > 0 => Ok((t.clone(), d)),
        _ => Ok((t.reshape([-1])?, 0)),
    }
}

fn check_output_size(asked: Option<i64>, found: i64) -> Result<()> {
    match asked {
        Some(n) if n != found => {
            bail!(runtime "repeat_interleave", "repeat_interleave: Invalid output_size, expected {found} but got {n}")
        }
        _ => Ok(()),
    }
}

fn repeated_positions(repeats: &Tensor) -> Result<Tensor> {
    let dtype = repeats.dtype();
    if !matches!(dtype, DType::I64 | DType::I32) {
        bail!(not_implemented "repeat_interleave", "\"repeat_interleave_cpu\" not implemented for '{}'", dtype.legacy());
    }
    let counts = super::to_dtype(repeats, DType::I64)?.to_vec::<i64>()?;
    if counts.iter().any(|&n| n < 0) {
        bail!(runtime "repeat_interleave", "repeats can not be negative");
    }
    let total = counts.iter().fold(0usize, |sum, &n| sum.saturating_add(n as usize));
    affordable("repeat_interleave", total, size_of::<i64>())?;
    let index: Vec<i64> =
        counts.iter().enumerate().flat_map(|(i, &n)| std::iter::repeat_n(i as i64, n as usize)).collect();
    Tensor::from_slice(&index, &[index.len()])
}

fn roll_forward(a: &Args) -> Result<Outputs> {
    let (t, shifts, dims) = (a.tensor(0)?, a.ints(1)?, a.ints(2)?);
    if shifts.is_empty() {
        bail!(runtime "roll", "`shifts` required");
    }
    let from = t.body();
    let out = fresh("roll", from.layout.sizes.clone(), from.dtype)?;
    if dims.is_empty() && shifts.len() == 1 {
        let row = t.reshape([-1])?.body();
        let n = row.layout.numel();
        let flat = out.with_layout(Layout::contiguous([n][..].into()));
        roll_parts(&row, &flat, &[(0, shifts[0])])?;
        return Ok(smallvec![Tensor::from_body(out)]);
    }
    if dims.len() != shifts.len() {
        bail!(runtime "roll", "shifts and dimensions must align. shifts: {}, dims:{}", shifts.len(), dims.len());
    }
    let mut moves: Vec<(usize, i64)> = Vec::new();
    for (&d, &s) in dims.iter().zip(shifts) {
        let d = wrap_dim("roll", d, t.rank())?;
        match moves.iter_mut().find(|m| m.0 == d) {
            // A dimension named twice is rolled by both.
            Some(m) => m.1 = m.1.wrapping_add(s),
            None if t.rank() > 0 => moves.push((d, s)),
            None => {}
        }
    }
    roll_parts(&from, &out, &moves)?;
    Ok(smallvec![Tensor::from_body(out)])
}

/// Copies a tensor so that each of some dimensions is rolled: two pieces a dimension, exchanged.
fn roll_parts(from: &crate::tensor::Body, to: &crate::tensor::Body, moves: &[(usize, i64)]) -> Result<()> {
    if from.layout.numel() == 0 {
        return Ok(());
    }
    let Some((&(dim, shift), rest)) = moves.split_first() else { return copy::convert("roll", from, to) };
    let n = from.layout.sizes[dim];
    let head = n - shift.rem_euclid(n as i64) as usize;
    let part = |body: &crate::tensor::Body, start: usize, length: usize| {
        let mut layout = body.layout.clone();
        layout.offset = (layout.offset as isize + start as isize * layout.strides[dim]) as usize;
        layout.sizes[dim] = length;
        body.with_layout(layout)
    };
    roll_parts(&part(from, 0, head), &part(to, n - head, head), rest)?;
    roll_parts(&part(from, head, n - head), &part(to, 0, n - head), rest)
}

fn triangle(op: &'static str, a: &Args, upper: bool) -> Result<Outputs> {
    let from = a.tensor(0)?.body();
    if from.layout.rank() < 2 {
        bail!(runtime op, "{op}: input tensor must have at least 2 dimensions");
    }
    let out = fresh(op, from.layout.sizes.clone(), from.dtype)?;
    cpu::triangle::triangle(&from.operand(), &out.operand(), a.int(1)?, upper);
    Ok(smallvec![Tensor::from_body(out)])
}

fn check_pad(t: &Tensor, pad: &[i64]) -> Result<()> {
    if !pad.len().is_multiple_of(2) {
        bail!(runtime "pad", "Padding length must be divisible by 2");
    }
    if pad.len() > 2 * t.rank() {
        bail!(runtime "pad", "Padding length should be less than or equal to two times the input dimension but got padding length {} and input of dimension {}", pad.len(), t.rank());
    }
    Ok(())
}

fn constant_pad(a: &Args) -> Result<Outputs> {
    let (t, pad) = (a.tensor(0)?, a.ints(1)?);
    check_pad(t, pad)?;
    let from = t.body();
    let rank = from.layout.rank();
    let mut source = from.layout.clone();
    let (mut sizes, mut starts) = (source.sizes.clone(), Dims::filled(0usize, rank));
    for (k, sides) in pad.chunks_exact(2).enumerate() {
        let d = rank - 1 - k;
        let (n, before, behind) = (source.sizes[d] as i64, sides[0], sides[1]);
        let cut = (-before).max(0) + (-behind).max(0);
        if cut > n {
            bail!(runtime "pad", "narrow(): length must be non-negative.\npad: dimension {d} of shape {:?} is cut by {cut}", from.layout.sizes);
        }
        source.offset = (source.offset as isize + (-before).max(0) as isize * source.strides[d]) as usize;
        source.sizes[d] = (n - cut) as usize;
        starts[d] = before.max(0) as usize;
        sizes[d] = (n + before + behind) as usize;
    }
    let out = super::full(&sizes, a.number(2)?, from.dtype)?;
    if source.numel() > 0 {
        let body = out.body();
        let offset = starts.iter().zip(body.layout.strides.iter()).map(|(&at, &s)| at * s as usize).sum();
        let inside = Layout { sizes: source.sizes.clone(), strides: body.layout.strides.clone(), offset };
        copy::convert("pad", &from.with_layout(source), &body.with_layout(inside))?;
    }
    Ok(smallvec![out])
}

/// A tensor between two others along a dimension, then cut where the padding is negative.
fn between(before: Option<Tensor>, t: &Tensor, behind: Option<Tensor>, dim: usize, cut: (i64, i64)) -> Result<Tensor> {
    let parts: Vec<Tensor> = before.into_iter().chain([t.clone()]).chain(behind).collect();
    let whole = if parts.len() == 1 { t.clone() } else { Tensor::cat(parts, dim as i64)? };
    if cut == (0, 0) {
        return Ok(whole);
    }
    let n = whole.sizes()[dim] as i64;
    whole.slice(dim as i64, cut.0, n - cut.1, 1)
}

fn check_left(t: &Tensor, dim: usize, left: i64, right: i64) -> Result<()> {
    let n = t.sizes()[dim] as i64;
    if n + left + right < 1 {
        bail!(runtime "pad", "input (W: {n}) is too small. Calculated output W: {}\npad: padding ({left}, {right}) at dimension {dim} of shape {:?}", n + left + right, t.sizes());
    }
    Ok(())
}

fn reflect(t: &Tensor, dim: usize, left: i64, right: i64) -> Result<Tensor> {
    let n = t.sizes()[dim] as i64;
    if left >= n || right >= n {
        bail!(runtime "pad", "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({left}, {right}) at dimension {dim} of input {:?}", t.sizes());
    }
    check_left(t, dim, left, right)?;
    let mirrored = |start: i64, end: i64| t.slice(dim as i64, start, end, 1)?.flip([dim]);
    let before = if left > 0 { Some(mirrored(1, left + 1)?) } else { None };
    let behind = if right > 0 { Some(mirrored(n - 1 - right, n - 1)?) } else { None };
    between(before, t, behind, dim, ((-left).max(0), (-right).max(0)))
}

fn replicate(t: &Tensor, dim: usize, left: i64, right: i64) -> Result<Tensor> {
    let n = t.sizes()[dim] as i64;
    check_left(t, dim, left, right)?;
    if n == 0 && (left > 0 || right > 0) {
        bail!(runtime "pad", "Expected a non-empty dimension to replicate, but dimension {dim} of shape {:?} has no elements", t.sizes());
    }
    let repeated = |at: i64, times: i64| {
        let mut sizes = Dims::<i64>::filled(-1, t.rank());
        sizes[dim] = times;
        t.slice(dim as i64, at, at + 1, 1)?.expand(&sizes[..])
    };
    let before = if left > 0 { Some(repeated(0, left)?) } else { None };
    let behind = if right > 0 { Some(repeated(n - 1, right)?) } else { None };
    between(before, t, behind, dim, ((-left).max(0), (-right).max(0)))
}

fn circular(t: &Tensor, dim: usize, left: i64, right: i64) -> Result<Tensor> {
    let n = t.sizes()[dim] as i64;
    if left > n || right > n {
        bail!(runtime "pad", "Padding value causes wrapping around more than once.\npad: padding ({left}, {right}) at dimension {dim} of shape {:?}", t.sizes());
    }
    if n + left + right < 0 {
        bail!(runtime "pad", "Negative padding value is resulting in an empty dimension\npad: padding ({left}, {right}) at dimension {dim} of shape {:?}", t.sizes());
    }
    // What is cut off does not come back at the other end.
    let middle = between(None, t, None, dim, ((-left).max(0), (-right).max(0)))?;
    let n = middle.sizes()[dim] as i64;
    if left > n || right > n {
        bail!(runtime "pad", "Padding value causes wrapping around more than once.\npad: padding ({left}, {right}) at dimension {dim} of shape {:?}", t.sizes());
    }
    let before = if left > 0 { Some(middle.slice(dim as i64, n - left, n, 1)?) } else { None };
    let behind = if right > 0 { Some(middle.slice(dim as i64, 0, right, 1)?) } else { None };
    between(before, &middle, behind, dim, (0, 0))
}
