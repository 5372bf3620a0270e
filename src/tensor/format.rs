//! How a tensor prints: the text of `repr`, character for character that of PyTorch 2.13, and the options that shape it.
//! This file sees a tensor only through [`Elements`]; where values live, which options are in force and what is said about
//! gradients are its caller's business.
//!
//! Printing takes three steps. Reading visits the elements that will be shown, and no other one, so a tensor of any size
//! costs what its text costs. Then every element becomes text in one [`Style`] chosen from all of them, and the widest text
//! of an ordinary number sets the width of the column. Last, the texts are laid out in brackets, rows and lines.

use crate::dtype::{Category, DType};
use crate::scalar::Scalar;
use std::fmt::Write;

/// What the printer needs to know of a tensor.
pub trait Elements {
    /// The size of each dimension.
    fn sizes(&self) -> &[usize];

    /// The dtype, which decides how elements are written.
    fn dtype(&self) -> DType;

    /// The element at a logical index, one entry per dimension. Narrow floats come widened to f64, as they compare.
    fn get(&self, index: &[usize]) -> Scalar;
}

/// How tensors print; `torch.set_printoptions` changes them by [`PrintOptions::updated`].
///
/// ```
/// use rustgrad::dtype::DType;
/// use rustgrad::scalar::Scalar;
/// use rustgrad::tensor::{Elements, PrintChange, PrintOptions, repr};
///
/// struct Counting;
/// impl Elements for Counting {
///     fn sizes(&self) -> &[usize] { &[2, 4000] }
///     fn dtype(&self) -> DType { DType::F64 }
///     fn get(&self, index: &[usize]) -> Scalar { Scalar::Float((index[0] * 4000 + index[1]) as f64 / 2.0) }
/// }
///
/// let options = PrintOptions::default()
///     .updated(&PrintChange { profile: Some("short"), edgeitems: Some(1), ..PrintChange::default() });
/// assert_eq!(
///     repr(&Counting, &options, DType::F32, "tensor(", None, &["requires_grad=True".into()]),
///     "tensor([[   0.00,  ..., 1999.50],\n        [2000.00,  ..., 3999.50]], dtype=torch.float64, requires_grad=True)"
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrintOptions {
    /// Digits after the decimal point. More than 1,074 count as 1,074: no float has more, the rest would be zeros.
    pub precision: usize,
    /// A tensor with more elements than this prints only its edges; [`PrintOptions::UNLIMITED`] prints all.
    pub threshold: usize,
    /// How many items each end of a dimension keeps when only edges print. With 0 the size is printed instead.
    pub edgeitems: usize,
    /// Characters in a line, past which rows wrap.
    pub linewidth: usize,
    /// Whether floats are in scientific notation; `None` decides by the values.
    pub sci_mode: Option<bool>,
}

impl Default for PrintOptions {
    fn default() -> Self {
        PrintOptions { precision: 4, threshold: 1000, edgeitems: 3, linewidth: 80, sci_mode: None }
    }
}

/// The arguments of `torch.set_printoptions`; what is `None` is not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrintChange<'a> {
    /// Digits after the decimal point.
    pub precision: Option<usize>,
    /// Elements past which only edges print.
    pub threshold: Option<usize>,
    /// Items that each edge keeps.
    pub edgeitems: Option<usize>,
    /// Characters in a line.
    pub linewidth: Option<usize>,
    /// A set of values to start from: `default`, `short` or `full`.
    pub profile: Option<&'a str>,
    /// Scientific notation always, never, or (not given) decided by the values.
    pub sci_mode: Option<bool>,
}

impl PrintOptions {
    /// The threshold of the profile `full`: no tensor has more elements. Python sees it as `inf`.
    pub const UNLIMITED: usize = usize::MAX;

    /// The options after `torch.set_printoptions(change)`: first the profile (an unknown name is no profile, as in PyTorch),
    /// then what is given by itself. `sci_mode` is not kept: a change that doesn't give it returns to "decided by the
    /// values".
    pub fn updated(self, change: &PrintChange<'_>) -> PrintOptions {
        let standard = PrintOptions::default();
        let base = match change.profile {
            Some("default") => standard,
            Some("short") => PrintOptions { precision: 2, edgeitems: 2, ..standard },
            Some("full") => PrintOptions { threshold: Self::UNLIMITED, ..standard },
            _ => self,
        };
        PrintOptions {
            precision: change.precision.unwrap_or(base.precision),
            threshold: change.threshold.unwrap_or(base.threshold),
            edgeitems: change.edgeitems.unwrap_or(base.edgeitems),
            linewidth: change.linewidth.unwrap_or(base.linewidth),
            sci_mode: change.sci_mode,
        }
    }
}

/// The text of a tensor: `prefix` (normally `tensor(`), the elements, then in this order the device if given (callers give
/// it where it is not the default one), the size and the dtype where the elements don't tell them, and `suffixes` such as
/// `grad_fn=<AddBackward0>`, closed by a parenthesis. Lines are indented below the end of `prefix`.
///
/// The dtype is shown unless it is `default_dtype`, int64 or bool; of an empty tensor, unless it is `default_dtype`.
pub fn repr(
    elements: &dyn Elements,
    options: &PrintOptions,
    default_dtype: DType,
    prefix: &str,
    device: Option<&str>,
    suffixes: &[String],
) -> String {
    let (sizes, dtype) = (elements.sizes(), elements.dtype());
    let indent = prefix.chars().count();
    let mut text = prefix.to_owned();
    let mut tail: Vec<String> = device.map(|d| format!("device='{d}'")).into_iter().collect();
    let (show_size, dtype_is_plain) = if sizes.contains(&0) {
        text.push_str("[]");
        (sizes.len() != 1, dtype == default_dtype)
    } else {
        write_elements(&mut text, elements, options, indent);
        (options.edgeitems == 0, dtype == default_dtype || matches!(dtype, DType::I64 | DType::Bool))
    };
    if show_size {
        tail.push(format!("size={}", tuple(sizes)));
    }
    if !dtype_is_plain {
        tail.push(format!("dtype={dtype}"));
    }
    write_suffixes(&mut text, tail.iter().chain(suffixes), indent, options.linewidth);
    text
}

/// The text of a `Size`: `torch.Size([2, 3])`.
pub fn size_repr(sizes: &[usize]) -> String {
    // A list of integers is written the same way in both languages.
    format!("torch.Size({sizes:?})")
}

/// Sizes as Python writes a tuple: `()`, `(3,)`, `(2, 3)`.
fn tuple(sizes: &[usize]) -> String {
    match sizes {
        [one] => format!("({one},)"),
        _ => format!("({})", format!("{sizes:?}").trim_matches(['[', ']'])),
    }
}

/// Adds the suffixes and the closing parenthesis; a suffix that would pass the line's end starts a line of its own.
fn write_suffixes<'a>(text: &mut String, suffixes: impl Iterator<Item = &'a String>, indent: usize, linewidth: usize) {
    // PyTorch counts two characters more than the last line has, and never counts the closing parenthesis.
    let mut column = text.chars().rev().take_while(|&c| c != '\n').count() + 2;
    for suffix in suffixes {
        let length = suffix.chars().count();
        if column + length + 2 > linewidth {
            text.push_str(",\n");
            push_spaces(text, indent);
            column = indent + length;
        } else {
            text.push_str(", ");
            column += length + 2;
        }
        text.push_str(suffix);
    }
    text.push(')');
}

fn push_spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

/// Adds the elements of a tensor that has some.
fn write_elements(text: &mut String, elements: &dyn Elements, options: &PrintOptions, indent: usize) {
    let sizes = elements.sizes();
    let count = sizes.iter().fold(1usize, |product, &size| product.saturating_mul(size));
    let edge = (count > options.threshold).then_some(options.edgeitems);
    if edge == Some(0) && !sizes.is_empty() {
        text.push_str("[...]");
        return;
    }
    let axes: Vec<Axis> = sizes.iter().map(|&size| Axis::new(size, edge)).collect();
    let cells = Cells::new(&read(elements, &axes), elements.dtype(), options);
    Layout { axes: &axes, cells: &cells, linewidth: options.linewidth, next: 0 }.write(text, 0, indent);
}

/// Which positions of a dimension are shown: all of them, or two ends with a gap between.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    /// How many items each end keeps; `None` shows all.
    edge: Option<usize>,
}

impl Axis {
    fn new(size: usize, edge: Option<usize>) -> Axis {
        Axis { size, edge: edge.filter(|&edge| size > edge.saturating_mul(2)) }
    }

    /// How many positions are shown.
    fn shown(self) -> usize {
        self.edge.map_or(self.size, |edge| 2 * edge)
    }

    /// The index of the `k`-th shown position.
    fn index(self, k: usize) -> usize {
        match self.edge {
            Some(edge) if k >= edge => self.size - 2 * edge + k,
            _ => k,
        }
    }

    /// Whether the gap lies just before the `k`-th shown position.
    fn gap_before(self, k: usize) -> bool {
        self.edge == Some(k)
    }
}

/// The shown elements in row-major order.
fn read(elements: &dyn Elements, axes: &[Axis]) -> Vec<Scalar> {
    let mut position = vec![0; axes.len()];
    let mut index = vec![0; axes.len()];
    let mut values = Vec::new();
    loop {
        values.push(elements.get(&index));
        let Some(axis) = (0..axes.len()).rev().find(|&axis| position[axis] + 1 < axes[axis].shown()) else {
            return values;
        };
        position[axis] += 1;
        position[axis + 1..].fill(0);
        for axis in axis..axes.len() {
            index[axis] = axes[axis].index(position[axis]);
        }
    }
}

/// The shown elements as texts, back to back in one string.
struct Cells {
    texts: String,
    /// Where each text ends.
    ends: Vec<usize>,
    /// What texts are padded to, on the left; NaN and infinities may be longer.
    width: usize,
}

impl Cells {
    fn new(values: &[Scalar], dtype: DType, options: &PrintOptions) -> Cells {
        let style = Style::new(values, dtype, options);
        let mut cells = Cells { texts: String::new(), ends: Vec::with_capacity(values.len()), width: 1 };
        for &value in values {
            let start = cells.texts.len();
            style.write(&mut cells.texts, value);
            cells.ends.push(cells.texts.len());
            // Of floats, only the numbers that chose the style set the width, so "0." and "inf" may stand out of it.
            if !style.is_float() || is_ordinary(value.to_f64()) {
                cells.width = cells.width.max(cells.texts.len() - start);
            }
        }
        cells
    }

    fn write(&self, text: &mut String, cell: usize) {
        let start = if cell == 0 { 0 } else { self.ends[cell - 1] };
        let own = &self.texts[start..self.ends[cell]];
        push_spaces(text, self.width.saturating_sub(own.len()));
        text.push_str(own);
    }
}

/// Whether a float takes part in choosing style and width: finite and not zero.
fn is_ordinary(x: f64) -> bool {
    x.is_finite() && x != 0.0
}

/// How every element of one tensor is written.
#[derive(Clone, Copy)]
enum Style {
    /// `True`
    Bool,
    /// `12`
    Int,
    /// Floats that are all whole: `12.`
    Whole,
    /// `12.3400`
    Fixed(usize),
    /// `1.2340e+01`
    Scientific(usize),
}

impl Style {
    fn new(values: &[Scalar], dtype: DType, options: &PrintOptions) -> Style {
        match dtype.category() {
            Category::Bool => return Style::Bool,
            Category::Int => return Style::Int,
            Category::Float => {}
        }
        let (mut min, mut max, mut whole) = (f64::INFINITY, 0.0f64, true);
        for x in values.iter().map(|value| value.to_f64()).filter(|&x| is_ordinary(x)) {
            (min, max) = (min.min(x.abs()), max.max(x.abs()));
            whole &= x == x.ceil();
        }
        // Without a number to judge by, `sci_mode=True` has no effect either.
        if max == 0.0 {
            return Style::Whole;
        }
        // Beyond the digits of the smallest float64; and the standard library panics at very large precisions.
        let precision = options.precision.min(1074);
        if options.sci_mode.unwrap_or(max / min > 1e3 || max > 1e8 || min < 1e-4) {
            Style::Scientific(precision)
        } else if whole {
            Style::Whole
        } else {
            Style::Fixed(precision)
        }
    }

    fn is_float(self) -> bool {
        !matches!(self, Style::Bool | Style::Int)
    }

    fn write(self, text: &mut String, value: Scalar) {
        let x = value.to_f64();
        if self.is_float() && !x.is_finite() {
            text.push_str(if x.is_nan() {
                "nan"
            } else if x > 0.0 {
                "inf"
            } else {
                "-inf"
            });
            return;
        }
        // Writing to a String cannot fail.
        let _ = match self {
            Style::Bool => write!(text, "{}", Scalar::Bool(value.to_bool())),
            Style::Int => write!(text, "{}", value.to_i64()),
            Style::Whole => write!(text, "{x:.0}."),
            Style::Fixed(precision) => write!(text, "{x:.precision$}"),
            Style::Scientific(precision) => {
                let start = text.len();
                let result = write!(text, "{x:.precision$e}");
                complete_exponent(text, start);
                result
            }
        };
    }
}

/// Turns Rust's exponent (`1.5e-5`, `1.5e5`) at the end of `text`, in the number from `start`, into Python's: always with a
/// sign, and two digits at least (`1.5e-05`, `1.5e+05`).
fn complete_exponent(text: &mut String, start: usize) {
    let Some(e) = text[start..].rfind('e') else { return };
    let mut digits = start + e + 1;
    if !text[digits..].starts_with('-') {
        text.insert(digits, '+');
    }
    digits += 1;
    if text.len() - digits < 2 {
        text.insert(digits, '0');
    }
}

/// Sets cells in brackets, rows and lines.
struct Layout<'a> {
    axes: &'a [Axis],
    cells: &'a Cells,
    linewidth: usize,
    /// The cell to be written next: cells are written in the order they were read.
    next: usize,
}

impl Layout<'_> {
    /// Adds what lies below one position of the first `depth` dimensions; `indent` is the column it starts in.
    fn write(&mut self, text: &mut String, depth: usize, indent: usize) {
        let Some(&axis) = self.axes.get(depth) else {
            return self.write_cell(text);
        };
        let inner = self.axes.len() - depth - 1;
        if inner == 0 {
            return self.write_row(text, axis, indent);
        }
        let separate = |text: &mut String| {
            text.push(',');
            text.extend(std::iter::repeat_n('\n', inner));
            push_spaces(text, indent + 1);
        };
        text.push('[');
        for k in 0..axis.shown() {
            if k > 0 {
                separate(text);
            }
            if axis.gap_before(k) {
                text.push_str("...");
                separate(text);
            }
            self.write(text, depth + 1, indent + 1);
        }
        text.push(']');
    }

    /// Adds a row of the last dimension, wrapped so that lines end within the line width where a single cell allows it.
    fn write_row(&mut self, text: &mut String, axis: Axis, indent: usize) {
        let per_line = (self.linewidth.saturating_sub(indent) / (self.cells.width + 2)).max(1);
        let mut written = 0;
        let mut separate = |text: &mut String| {
            if written > 0 && written % per_line == 0 {
                text.push_str(",\n");
                push_spaces(text, indent + 1);
            } else if written > 0 {
                text.push_str(", ");
            }
            written += 1;
        };
        text.push('[');
        for k in 0..axis.shown() {
            separate(text);
            if axis.gap_before(k) {
                text.push_str(" ...");
                separate(text);
            }
            self.write_cell(text);
        }
        text.push(']');
    }

    fn write_cell(&mut self, text: &mut String) {
        self.cells.write(text, self.next);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
