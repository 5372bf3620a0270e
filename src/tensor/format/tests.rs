//! The printer against recorded PyTorch texts (`tests/data/print_cases.txt`, whose generator describes the format), and its
//! own promises: it reads what it shows and nothing else, and no input makes it panic.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

/// A tensor whose elements are `values` over and over, and which counts the reads.
struct Pattern {
    sizes: Vec<usize>,
    dtype: DType,
    values: Vec<Scalar>,
    reads: Cell<usize>,
}

impl Pattern {
    fn new(dtype: DType, sizes: &[usize], values: &[Scalar]) -> Pattern {
        Pattern { sizes: sizes.to_vec(), dtype, values: values.to_vec(), reads: Cell::new(0) }
    }
}

impl Elements for Pattern {
    fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn get(&self, index: &[usize]) -> Scalar {
        self.reads.set(self.reads.get() + 1);
        assert_eq!(index.len(), self.sizes.len());
        assert!(index.iter().zip(&self.sizes).all(|(i, size)| i < size));
        // Modulo 2^64, which a pattern of one value is indifferent to.
        let flat =
            index.iter().zip(&self.sizes).fold(0usize, |flat, (i, size)| flat.wrapping_mul(*size).wrapping_add(*i));
        self.values[flat % self.values.len()]
    }
}

fn print(elements: &Pattern, options: &PrintOptions) -> String {
    repr(elements, options, DType::F32, "tensor(", None, &[])
}

/// Reads one recorded case (a block of lines), prints it, and answers with what was recorded and what was printed.
fn replay(block: &str) -> Option<(String, String)> {
    let (mut tensor, mut default_dtype) = (Pattern::new(DType::F32, &[], &[]), DType::F32);
    let (mut options, mut prefix, mut device, mut suffixes) = (PrintOptions::default(), "tensor(", None, Vec::new());
    let mut recorded = Vec::new();
    for line in block.lines() {
        if let Some(text) = line.strip_prefix('|') {
            recorded.push(text);
            continue;
        }
        let (keyword, rest) = line.split_once(' ')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        match keyword {
            "tensor" => {
                tensor.dtype = DType::parse(words[0])?;
                let sizes = words[1].split(',').filter(|&size| size != "-");
                tensor.sizes = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
                default_dtype = words.get(2).map_or(Some(DType::F32), |word| DType::parse(word))?;
            }
            "options" => {
                let number = |i: usize| words[i].parse::<usize>().ok();
                let sci_mode = match words[4] {
                    "auto" => None,
                    word => Some(word == "always"),
                };
                options = PrintOptions {
                    precision: number(0)?,
                    threshold: number(1)?,
                    edgeitems: number(2)?,
                    linewidth: number(3)?,
                    sci_mode,
                };
            }
            "prefix" => prefix = rest,
            "device" => device = Some(rest),
            "suffix" => suffixes.push(rest.replace("\\n", "\n")),
            "values" => {
                let value = |word: &&str| match (tensor.dtype, tensor.dtype.category()) {
                    (DType::F64, _) => word.parse().ok().map(Scalar::Float),
                    (_, Category::Float) => word.parse::<f32>().ok().map(Scalar::from),
                    (_, Category::Int) => word.parse().ok().map(Scalar::Int),
                    (_, Category::Bool) => Some(Scalar::Bool(*word == "1")),
                };
                tensor.values = words.iter().map(value).collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some((recorded.join("\n"), repr(&tensor, &options, default_dtype, prefix, device, &suffixes)))
}

#[test]
fn prints_as_pytorch_does() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/print_cases.txt").to_owned();
    let (mut cases, mut differing) = (0, Vec::new());
    for path in [Some(recorded), std::env::var("PRINT_CASES").ok()].into_iter().flatten() {
        let text = std::fs::read_to_string(&path).unwrap();
        for block in text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with('#')) {
            let (expected, got) = replay(block).unwrap_or_else(|| panic!("not a case:\n{block}"));
            cases += 1;
            if expected != got {
                differing.push(format!("{block}\ngot:\n{got}\n"));
            }
        }
    }
    println!("{cases} cases");
    assert!(cases > 500, "only {cases} cases were found");
    let shown = differing[..differing.len().min(5)].join("\n");
    assert!(differing.is_empty(), "{} of {cases} cases differ from PyTorch, such as\n{shown}", differing.len());
}

#[test]
fn a_huge_tensor_costs_what_it_shows() {
    let options = PrintOptions::default();
    for (sizes, shown) in [
        (vec![usize::MAX], 6),
        (vec![1 << 20, 1 << 20], 36),
        (vec![usize::MAX, usize::MAX, usize::MAX], 216),
        (vec![3, usize::MAX, 5], 90),
    ] {
        let tensor = Pattern::new(DType::F64, &sizes, &[Scalar::Float(0.5)]);
        print(&tensor, &options);
        assert_eq!(tensor.reads.get(), shown, "{sizes:?}");
        tensor.reads.set(0);
        print(&tensor, &PrintOptions { edgeitems: 0, ..options });
        assert_eq!(tensor.reads.get(), 0, "{sizes:?} without items");
    }
}

#[test]
fn sizes_print_as_pytorch_prints_them() {
    assert_eq!(size_repr(&[]), "torch.Size([])");
    assert_eq!(size_repr(&[5]), "torch.Size([5])");
    assert_eq!(size_repr(&[2, 3]), "torch.Size([2, 3])");
}

#[test]
fn options_change_as_set_printoptions_changes_them() {
    // What PyTorch's options are after each of these calls in turn.
    let none = PrintChange::default();
    let mut options = PrintOptions::default();
    let mut check = |change: PrintChange<'_>, precision, threshold, edgeitems, linewidth, sci_mode| {
        options = options.updated(&change);
        assert_eq!(options, PrintOptions { precision, threshold, edgeitems, linewidth, sci_mode }, "after {change:?}");
    };
    check(PrintChange { precision: Some(7), sci_mode: Some(true), ..none }, 7, 1000, 3, 80, Some(true));
    check(PrintChange { linewidth: Some(100), ..none }, 7, 1000, 3, 100, None);
    check(PrintChange { profile: Some("short"), edgeitems: Some(9), ..none }, 2, 1000, 9, 80, None);
    check(
        PrintChange { threshold: Some(0), linewidth: Some(60), sci_mode: Some(false), ..none },
        2,
        0,
        9,
        60,
        Some(false),
    );
    check(PrintChange { profile: Some("no such profile"), ..none }, 2, 0, 9, 60, None);
    check(PrintChange { profile: Some("full"), ..none }, 4, PrintOptions::UNLIMITED, 3, 80, None);
    check(PrintChange { profile: Some("full"), threshold: Some(5), ..none }, 4, 5, 3, 80, None);
    check(PrintChange { profile: Some("default"), precision: Some(1), ..none }, 1, 1000, 3, 80, None);
}

fn scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        any::<u64>().prop_map(|bits| Scalar::Float(f64::from_bits(bits))),
        any::<i32>().prop_map(|i| Scalar::Float(f64::from(i) / 16.0)),
        any::<i64>().prop_map(Scalar::Int),
        any::<bool>().prop_map(Scalar::Bool),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![8 => 0usize..5, 1 => 5usize..40];
    prop::collection::vec(size, 0..5)
        .prop_filter("at most some thousand elements", |sizes| sizes.iter().product::<usize>() <= 4000)
}

/// A number of any magnitude: small ones as often as absurd ones.
fn count() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..8, 0usize..200, any::<usize>(), Just(usize::MAX)]
}

proptest! {
    #[test]
    fn nothing_panics_and_brackets_balance(
        sizes in sizes(),
        values in prop::collection::vec(scalar(), 1..9),
        dtype in prop::sample::select(DType::ALL.to_vec()),
        precision in prop_oneof![0usize..30, Just(400)],
        (threshold, edgeitems, linewidth) in (count(), count(), count()),
        sci_mode in any::<Option<bool>>(),
        prefix in "[a-zü]{0,90}\\(",
        suffixes in prop::collection::vec("[a-zü\n]{0,90}", 0..3),
        device in prop::option::of("[a-z]{1,9}"),
    ) {
        let tensor = Pattern::new(dtype, &sizes, &values);
        let options = PrintOptions { precision, threshold, edgeitems, linewidth, sci_mode };
        let text = repr(&tensor, &options, DType::F32, &prefix, device.as_deref(), &suffixes);
        prop_assert!(text.starts_with(&prefix) && text.ends_with(')'));
        prop_assert_eq!(text.matches('[').count(), text.matches(']').count());
        prop_assert!(tensor.reads.get() <= sizes.iter().product());
    }

    #[test]
    fn numbers_read_back(
        // Above, rounding to few digits may pass the largest float.
        value in any::<f64>().prop_filter("room to round up", |x| x.abs() < 1e308),
        precision in 0usize..20,
        sci_mode in any::<bool>(),
    ) {
        let options = PrintOptions { precision, sci_mode: Some(sci_mode), ..PrintOptions::default() };
        let text = print(&Pattern::new(DType::F32, &[], &[Scalar::Float(value)]), &options);
        let digits = text.trim_start_matches("tensor(").trim_end_matches(')');
        let read: f64 = digits.parse().unwrap();
        // Half a unit of the last digit, and what reading back rounds.
        let unit = 10f64.powi(-(precision as i32)) * if sci_mode { value.abs() } else { 1.0 };
        let bound = 0.5 * unit + value.abs() * f64::EPSILON + f64::from_bits(1);
        prop_assert!((read - value).abs() <= bound, "{value} printed as {digits}");
    }
}

#[test]
fn an_absurd_precision_is_bounded() {
    let options = PrintOptions { precision: usize::MAX, linewidth: usize::MAX, ..PrintOptions::default() };
    for value in [0.1, 1e-300, f64::MAX, 5e-324] {
        for sci_mode in [None, Some(true), Some(false)] {
            let tensor = Pattern::new(DType::F32, &[2], &[Scalar::Float(value), Scalar::Float(0.5)]);
            print(&tensor, &PrintOptions { sci_mode, ..options });
        }
    }
}
