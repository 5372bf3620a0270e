//! Tensors made of sizes, numbers and ranges. Every such row ends with `dtype`, `device` and `requires_grad`.

use super::args::{Args, Read};
use super::combine::fresh;
use super::copy::dense_like;
use super::op::Rule::Composite as C;
use super::op::{FUNCTION, METHOD, NN, OUT, Outputs, op};
use crate::backend::cpu;
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout};
use crate::storage::{Storage, affordable};
use crate::tensor::{Body, Tensor, default_dtype};
use smallvec::smallvec;

op! {
    /// Zeros.
    ///
    /// # Errors
    /// `RuntimeError` for a negative size, an unknown device, or a gradient asked for a dtype that has none.
    ZEROS zeros(size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| filled("zeros", a.ints(0)?, Scalar::Int(0), Options::of(a, 1).or(default_dtype())));
    /// Ones.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    ONES ones(size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| filled("ones", a.ints(0)?, Scalar::Int(1), Options::of(a, 1).or(default_dtype())));
    /// A tensor of one value, whose kind decides the dtype if none is given.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    FULL full(size: Ints, fill_value: Number; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| filled("full", a.ints(0)?, a.number(1)?, Options::of(a, 2).or(a.number(1)?.dtype(default_dtype()))));
    /// A tensor whose values are not specified (zeros, at present).
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    EMPTY empty(size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| filled("empty", a.ints(0)?, Scalar::Int(0), Options::of(a, 1).or(default_dtype())));
    /// A 0-d tensor of a number, in the default dtype if none is given.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    SCALAR_TENSOR scalar_tensor(s: Number; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION,
        C(|a| filled("scalar_tensor", &[], a.number(0)?, Options::of(a, 1).or(default_dtype())));
    /// A matrix with ones on its diagonal and zeros elsewhere, square if `m` is not given.
    ///
    /// # Errors
    /// `RuntimeError` for a negative size; else as [`zeros`](Self::zeros).
    EYE eye(n: Int, m: OptInt = None; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| {
            let (n, m) = (a.int(0)?, a.opt_int(1).unwrap_or(a.int(0)?));
            for (name, size) in [("n", n), ("m", m)] {
                if size < 0 {
                    bail!(runtime "eye", "{name} must be greater or equal to 0, got {size}");
                }
            }
            let options = Options::of(a, 2).or(default_dtype());
            let out = super::zeros(&[n as usize, m as usize], options.dtype)?;
            let body = out.body();
            let layout = Layout { sizes: [n.min(m) as usize][..].into(), strides: [m as isize + 1][..].into(), offset: 0 };
            super::factory::fill(&body.with_layout(layout), Scalar::Int(1))?;
            options.finish("eye", out)
        });
    /// The numbers from 0 up to `end`: `arange(0, end)`.
    ///
    /// # Errors
    /// As [`arange`](Self::arange).
    ARANGE_END arange_end as "arange"(end: Number; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| arange(Scalar::Int(0), a.number(0)?, Scalar::Int(1), Options::of(a, 1)));
    /// The numbers `start`, `start + step`, ... before `end`: int64 if all three are integers, else of the default dtype.
    ///
    /// # Errors
    /// `RuntimeError` for a step of zero or of the wrong sign, or a range that is not finite; `NotImplementedError` for bool.
    ARANGE arange(start: Number, end: Number, step: Number = 1; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| arange(a.number(0)?, a.number(1)?, a.number(2)?, Options::of(a, 3)));
    /// `steps` numbers, evenly from `start` to `end`.
    ///
    /// # Errors
    /// `RuntimeError` for a negative number of steps or ends that are not 0-d; `NotImplementedError` for bool.
    LINSPACE linspace(start: Operand, end: Operand, steps: Int; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| spaced("linspace", a, None, Options::of(a, 3)));
    /// `steps` powers of `base`, the exponents evenly from `start` to `end`.
    ///
    /// # Errors
    /// As [`linspace`](Self::linspace).
    LOGSPACE logspace(start: Operand, end: Operand, steps: Int, base: Float = 10.0; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION | OUT,
        C(|a| spaced("logspace", a, Some(a.float(3)?), Options::of(a, 4)));
    /// Zeros of the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    ZEROS_LIKE zeros_like(self; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION,
        C(|a| filled_like("zeros_like", a, Scalar::Int(0), 1));
    /// Ones of the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    ONES_LIKE ones_like(self; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION,
        C(|a| filled_like("ones_like", a, Scalar::Int(1), 1));
    /// One value in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    FULL_LIKE full_like(self, fill_value: Number; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION,
        C(|a| filled_like("full_like", a, a.number(1)?, 2));
    /// Unspecified values in the shape, and the dtype if none is given, of a tensor.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    EMPTY_LIKE empty_like(self; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", FUNCTION,
        C(|a| filled_like("empty_like", a, Scalar::Int(0), 1));
    /// Zeros of this tensor's dtype.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    NEW_ZEROS new_zeros(self, size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", METHOD,
        C(|a| filled("new_zeros", a.ints(1)?, Scalar::Int(0), Options::of(a, 2).or(a.tensor(0)?.dtype())));
    /// Ones of this tensor's dtype.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    NEW_ONES new_ones(self, size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", METHOD,
        C(|a| filled("new_ones", a.ints(1)?, Scalar::Int(1), Options::of(a, 2).or(a.tensor(0)?.dtype())));
    /// One value in this tensor's dtype.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    NEW_FULL new_full(self, size: Ints, fill_value: Number; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", METHOD,
        C(|a| filled("new_full", a.ints(1)?, a.number(2)?, Options::of(a, 3).or(a.tensor(0)?.dtype())));
    /// Unspecified values of this tensor's dtype.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    NEW_EMPTY new_empty(self, size: Ints; dtype: OptDType = None, device: OptDevice = None, requires_grad: Bool = false) -> Tensor = "", METHOD,
        C(|a| filled("new_empty", a.ints(1)?, Scalar::Int(0), Options::of(a, 2).or(a.tensor(0)?.dtype())));
    /// Rows and columns, as the two rows of the result, of the lower triangle of a `row` by `col` matrix up to `offset` places
    /// above the main diagonal.
    ///
    /// # Errors
    /// `RuntimeError` for a negative size; `NotImplementedError` for a dtype that is no integer type.
    TRIL_INDICES tril_indices(row: Int, col: Int, offset: Int = 0; dtype: OptDType = None, device: OptDevice = None) -> Tensor = "", FUNCTION,
        C(|a| triangle_indices("tril_indices", a, |rows, _, offset| offset.saturating_neg().clamp(0, rows)..rows, |i, columns, offset| 0..i.saturating_add(offset).saturating_add(1).clamp(0, columns)));
    /// Rows and columns, as the two rows of the result, of the upper triangle of a `row` by `col` matrix from `offset` places
    /// above the main diagonal on.
    ///
    /// # Errors
    /// As [`tril_indices`](Self::tril_indices).
    TRIU_INDICES triu_indices(row: Int, col: Int, offset: Int = 0; dtype: OptDType = None, device: OptDevice = None) -> Tensor = "", FUNCTION,
        C(|a| triangle_indices("triu_indices", a, |rows, columns, offset| 0..columns.saturating_sub(offset).clamp(0, rows), |i, columns, offset| i.saturating_add(offset).clamp(0, columns)..columns));
    /// For each class number a row of zeros with a one in its place; as many classes as needed if `num_classes` is -1.
    ///
    /// # Errors
    /// `RuntimeError` for a dtype other than int64, negative class numbers, or ones that are too large.
    ONE_HOT one_hot(self, num_classes: Int = -1) -> Tensor = "", NN,
        C(|a| {
            let (t, classes) = (a.tensor(0)?, a.int(1)?);
            if t.dtype() != DType::I64 {
                bail!(runtime "one_hot", "one_hot is only applicable to index tensor of type LongTensor.");
            }
            let values = t.to_vec::<i64>()?;
            let Some(&largest) = values.iter().max() else {
                if classes <= 0 {
                    bail!(runtime "one_hot", "Can not infer total number of classes from empty tensor.");
                }
                let sizes: Dims = t.sizes().iter().copied().chain([classes as usize]).collect();
                return Ok(smallvec![super::zeros(&sizes, DType::I64)?]);
            };
            if values.iter().any(|&v| v < 0) {
                bail!(runtime "one_hot", "Class values must be non-negative.");
            }
            let classes = if classes == -1 { largest.saturating_add(1) } else { classes };
            if largest >= classes {
                bail!(runtime "one_hot", "Class values must be smaller than num_classes.");
            }
            let sizes: Dims = t.sizes().iter().copied().chain([classes as usize]).collect();
            let out = fresh("one_hot", sizes, DType::I64)?;
            let classes = classes as usize;
            cpu::sequence::sequence(&out.operand(), |i| Scalar::Bool(values[i / classes] == (i % classes) as i64));
            Ok(smallvec![Tensor::from_body(out)])
        }),
        |s| vec![smallvec![super::args::Arg::Tensor(s.ints(&[2, 3], 0, 4)), super::args::Arg::Int(-1)]];
}

/// What the keyword arguments at the end of a factory ask for.
pub(super) struct Options {
    asked: Option<DType>,
    pub dtype: DType,
    device: Option<Box<str>>,
    requires_grad: bool,
}

impl Options {
    /// The options whose `dtype` is argument `at`, followed by `device` and, where the row has it, `requires_grad`.
    pub(super) fn of(a: &Args, at: usize) -> Options {
        let device = Some(a.str(at + 1)).filter(|d| !d.is_empty()).map(Into::into);
        Options {
            asked: a.opt_dtype(at),
            dtype: a.opt_dtype(at).unwrap_or(DType::F32),
            device,
            requires_grad: a.bool(at + 2),
        }
    }

    /// The options with `dtype` if none was asked for.
    pub(super) fn or(mut self, dtype: DType) -> Options {
        self.dtype = self.asked.unwrap_or(dtype);
        self
    }

    /// The finished tensor.
    pub(super) fn finish(self, op: &'static str, t: Tensor) -> Result<Outputs> {
        if let Some(device) = self.device.filter(|d| !matches!(&**d, "cpu" | "cpu:0")) {
            bail!(runtime op, "Expected one of cpu device type at start of device string: {device}");
        }
        let t = t.born();
        if !self.requires_grad {
            return Ok(smallvec![t]);
        }
        if !self.dtype.is_float() {
            bail!(runtime op, "Only Tensors of floating point and complex dtype can require gradients");
        }
        Ok(smallvec![t.requires_grad_(true)?])
    }
}

/// Sizes that must not be negative.
pub(super) fn sizes_of(op: &'static str, sizes: &[i64]) -> Result<Dims> {
    match sizes.iter().find(|s| **s < 0) {
        Some(_) if matches!(op, "zeros" | "new_zeros") => {
            bail!(runtime op, "zeros: Dimension size must be non-negative.\n{op}: got {sizes:?}")
        }
        Some(bad) => bail!(runtime op, "Trying to create tensor with negative dimension {bad}: {sizes:?}"),
        None => Ok(sizes.iter().map(|&s| s as usize).collect()),
    }
}

fn filled(op: &'static str, sizes: &[i64], value: Scalar, options: Options) -> Result<Outputs> {
    let sizes = sizes_of(op, sizes)?;
    let t = if value == Scalar::Int(0) {
        super::zeros(&sizes, options.dtype)?
    } else {
        super::full(&sizes, value, options.dtype)?
    };
    options.finish(op, t)
}

/// A tensor of one value that lies in memory as its model does if that is dense.
fn filled_like(op: &'static str, a: &Args, value: Scalar, at: usize) -> Result<Outputs> {
    let model = a.tensor(0)?.body();
    let options = Options::of(a, at).or(model.dtype);
    let bytes = model.layout.numel().saturating_mul(options.dtype.size());
    let zero = value == Scalar::Int(0);
    let storage = if zero { Storage::zeroed(op, bytes)? } else { Storage::uninit(op, bytes)? };
    let body = Body::new(storage, dense_like(&model.layout), options.dtype);
    if !zero {
        super::factory::fill(&body, value)?;
    }
    options.finish(op, Tensor::from_body(body))
}

fn arange(start: Scalar, end: Scalar, step: Scalar, options: Options) -> Result<Outputs> {
    let op = "arange";
    let floats = [start, end, step].iter().any(|s| s.category() == Category::Float);
    let options = options.or(if floats { default_dtype() } else { DType::I64 });
    if options.dtype == DType::Bool {
        bail!(not_implemented op, "\"arange_cpu\" not implemented for 'Bool'");
    }
    let (x, y, d) = (start.to_f64(), end.to_f64(), step.to_f64());
    if !x.is_finite() || !y.is_finite() {
        let shown = |x: f64| if x.is_nan() { "nan".to_string() } else { x.to_string() };
        bail!(runtime op, "unsupported range: {} -> {}", shown(x), shown(y));
    }
    // An int64 range is counted in integers, even where floats were given.
    let whole = options.dtype == DType::I64;
    if d == 0.0 || (!options.dtype.is_float() && step.to_i64() == 0) {
        bail!(runtime op, "step must be nonzero");
    }
    if !((d > 0.0 && y >= x) || (d < 0.0 && y <= x)) {
        bail!(runtime op, "upper bound and lower bound inconsistent with step sign");
    }
    let length = if whole {
        let (x, y, d) = (start.to_i64() as i128, end.to_i64() as i128, step.to_i64() as i128);
        ((y - x) / d + i128::from((y - x) % d != 0)).max(0) as f64
    } else {
        ((y - x) / d).ceil()
    };
    if !(length >= 0.0 && length <= i64::MAX as f64) {
        bail!(runtime op, "invalid size, possible overflow?");
    }
    let out = fresh(op, [length as usize][..].into(), options.dtype)?;
    if options.dtype.is_float() {
        cpu::sequence::sequence(&out.operand(), |i| Scalar::Float(x + d * i as f64));
    } else {
        let (x, d) = (start.to_i64(), step.to_i64());
        cpu::sequence::sequence(&out.operand(), |i| Scalar::Int(x.wrapping_add(d.wrapping_mul(i as i64))));
    }
    options.finish(op, Tensor::from_body(out))
}

/// An end of a range: a number, or a 0-d tensor.
fn end_of(op: &'static str, name: &str, a: &Args, i: usize) -> Result<Scalar> {
    match a.opt_tensor(i) {
        Some(t) if t.rank() != 0 => {
            bail!(runtime op, "{op} only supports 0-dimensional start and end tensors, but got {name} with {} dimension(s).", t.rank())
        }
        Some(t) => t.item(),
        None => a.number(i),
    }
}

/// `linspace`, or `logspace` if there is a base. The two halves are counted from their own ends, which are then exact.
fn spaced(op: &'static str, a: &Args, base: Option<f64>, options: Options) -> Result<Outputs> {
    let (start, end, steps) = (end_of(op, "start", a, 0)?, end_of(op, "end", a, 1)?, a.int(2)?);
    let options = options.or(default_dtype());
    if steps < 0 {
        bail!(runtime op, "number of steps must be non-negative");
    }
    if options.dtype == DType::Bool {
        bail!(not_implemented op, "\"{op}_cpu\" not implemented for 'Bool'");
    }
    let real = options.dtype.is_float();
    // Integer results are computed between integers.
    let number = |s: Scalar| if real { s.to_f64() } else { s.to_i64() as f64 };
    let (x, y) = (number(start), number(end));
    let base = base.map(|b| if real { b } else { b.trunc() });
    let n = steps as usize;
    let step = (y - x) / (steps - 1).max(1) as f64;
    let out = fresh(op, [n][..].into(), options.dtype)?;
    cpu::sequence::sequence(&out.operand(), |i| {
        let exponent = if i < n / 2 || n == 1 { x + step * i as f64 } else { y - step * (n - 1 - i) as f64 };
        Scalar::Float(base.map_or(exponent, |b| libm::pow(b, exponent)))
    });
    options.finish(op, Tensor::from_body(out))
}

fn triangle_indices(
    op: &'static str,
    a: &Args,
    // The rows that have any columns.
    rows_of: fn(i64, i64, i64) -> std::ops::Range<i64>,
    columns_of: fn(i64, i64, i64) -> std::ops::Range<i64>,
) -> Result<Outputs> {
    let (rows, columns, offset) = (a.int(0)?, a.int(1)?, a.int(2)?);
    let options = Options::of(a, 3).or(DType::I64);
    for (name, size) in [("row", rows), ("col", columns)] {
        if size < 0 {
            bail!(runtime op, "{name} must be non-negative, got{size}");
        }
    }
    if !matches!(options.dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8) {
        bail!(not_implemented op, "\"{op}\" not implemented for '{}'", options.dtype.legacy());
    }
    let filled = if columns == 0 { 0..0 } else { rows_of(rows, columns, offset) };
    let each = 2 * size_of::<i64>();
    affordable(op, (filled.end - filled.start) as usize, each)?;
    let count = filled
        .clone()
        .map(|i| columns_of(i, columns, offset))
        .fold(0usize, |n, c| n.saturating_add((c.end - c.start) as usize));
    affordable(op, count, each)?;
    let pairs = || filled.clone().flat_map(move |i| columns_of(i, columns, offset).map(move |j| (i, j)));
    let values: Vec<i64> = pairs().map(|p| p.0).chain(pairs().map(|p| p.1)).collect();
    let t = super::to_dtype(&Tensor::from_slice(&values, &[2, values.len() / 2])?, options.dtype)?;
    options.finish(op, t)
}
