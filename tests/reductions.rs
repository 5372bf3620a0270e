//! Reductions, scans, softmax, norms and losses at their edges: subgradients, special values, names of nodes, words of
//! errors, and that neither strides nor the place of the dimension change a bit. Numbers are PyTorch 2.13's answers.

use rustgrad::autograd::{GradOptions, grad};
use rustgrad::{DType, Result, Scalar, Tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap().requires_grad_(true).unwrap()
}

fn constant(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

/// The gradient of the sum of `f` at a vector.
fn slope(values: &[f64], f: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<f64> {
    let x = leaf(values);
    let y = f(&x).unwrap().sum((), false).unwrap();
    grad(&[y], &[x], &[], &GradOptions::default()).unwrap().remove(0).unwrap().to_vec().unwrap()
}

#[track_caller]
fn same(got: Vec<f64>, want: &[f64]) {
    let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * b.abs();
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(|(&a, &b)| close(a, b)),
        "{got:?}, PyTorch says {want:?}"
    );
}

#[test]
fn subgradients_are_those_of_pytorch() {
    let z = [0.0, 0.0];
    same(slope(&z, |x| x.norm(2.0, (), false, None)), &[0.0, 0.0]);
    same(slope(&[0.0, 2.0], |x| x.norm(1.0, (), false, None)), &[0.0, 1.0]);
    same(slope(&z, |x| x.norm(3.0, (), false, None)), &[0.0, 0.0]);
    same(slope(&[3.0, -3.0, 1.0], |x| x.norm(INF, (), false, None)), &[0.5, -0.5, 0.0]);
    same(slope(&[2.0, 0.0, 3.0], |x| x.prod_all()), &[0.0, 6.0, 0.0]);
    same(slope(&[0.0, 0.0, 3.0], |x| x.prod(0, false)), &[0.0, 0.0, 0.0]);
    same(slope(&[2.0, 0.0, 3.0, 0.0, 5.0], |x| x.cumprod(0)), &[1.0, 8.0, 0.0, 0.0, 0.0]);
    let ties = [1.0, 3.0, 3.0];
    same(slope(&ties, |x| x.max_all()), &[0.0, 0.5, 0.5]);
    same(slope(&ties, |x| x.amax(0, false)), &[0.0, 0.5, 0.5]);
    same(slope(&ties, |x| Ok(x.max_dim(0, false)?.0)), &[0.0, 1.0, 0.0]);
    same(slope(&[1.0, NAN, NAN], |x| x.max_all()), &[0.0, 0.5, 0.5]);
    same(slope(&[1.0, NAN, NAN], |x| x.amax((), false)), &[NAN, NAN, NAN]);
    same(slope(&[2.0, 2.0, 1.0, 5.0], |x| x.median_all()), &[0.5, 0.5, 0.0, 0.0]);
    same(slope(&[1.0, 3.0, 3.0, 2.0], |x| Ok(x.cummax(0)?.0)), &[1.0, 1.0, 2.0, 0.0]);
    same(slope(&[2.0, 2.0, 2.0], |x| x.std(())), &[0.0, 0.0, 0.0]);
    same(slope(&[2.0], |x| x.var(())), &[NAN]);
    same(slope(&[-INF, -INF], |x| x.logsumexp(0, false)), &[NAN, NAN]);
    same(slope(&[-INF, 1.0], |x| x.softmax(0, None)?.select(0, 0)), &[0.0, 0.0]);
}

#[test]
fn losses_bend_as_pytorchs_do() {
    let zeros = constant(&[0.0, 0.0]);
    let sum = || "sum".to_string();
    same(slope(&[1.0, 2.0], |x| x.l1_loss(constant(&[1.0, 3.0]), "mean".to_string(), None)), &[0.0, -0.5]);
    same(slope(&[1.0, -1.0], |x| x.smooth_l1_loss(&zeros, sum(), 1.0)), &[1.0, -1.0]);
    same(slope(&[1.0, -1.0], |x| x.huber_loss(&zeros, sum(), None, 1.0)), &[1.0, -1.0]);
    same(slope(&[1.0, 2.0], |x| x.hinge_embedding_loss(constant(&[-1.0, -1.0]), 1.0, sum())), &[-1.0, 0.0]);
    let far = [1000.0, -1000.0];
    let targets = constant(&[0.0, 1.0]);
    same(slope(&far, |x| x.binary_cross_entropy_with_logits(&targets, None, None, sum())), &[1.0, -1.0]);
    let loss = constant(&far).binary_cross_entropy_with_logits(&targets, None, None, sum()).unwrap();
    assert_eq!(loss.item().unwrap().to_f64(), 2000.0);
}

#[test]
fn targets_that_are_all_ignored_have_a_nan_mean_and_no_gradient() {
    let x = Tensor::from_slice(&[1.0, 2.0], &[1, 2]).unwrap().requires_grad_(true).unwrap();
    let ignored = Tensor::from_slice(&[-100i64], &[1]).unwrap();
    let loss = x.nll_loss(&ignored, None, -100, "mean".to_string()).unwrap();
    assert!(loss.item().unwrap().to_f64().is_nan());
    let g = grad(&[loss], &[x], &[], &GradOptions::default()).unwrap().remove(0).unwrap();
    assert_eq!(g.to_vec::<f64>().unwrap(), [0.0, 0.0]);
}

#[test]
fn a_masked_row_is_nan_alone() {
    let x = Tensor::from_slice(&[-INF, -INF, 0.0, -INF], &[2, 2]).unwrap();
    same(x.softmax(1, None).unwrap().to_vec().unwrap(), &[NAN, NAN, 1.0, 0.0]);
    same(x.log_softmax(1, None).unwrap().to_vec().unwrap(), &[NAN, NAN, 0.0, -INF]);
}

#[test]
fn accuracy_far_from_zero_and_in_half_precision() {
    let x = Tensor::from_slice(&[5000.0f32, 5000.5], &[2]).unwrap();
    assert_eq!(x.var(()).unwrap().item().unwrap().to_f64(), 0.125);
    let x = Tensor::from_slice(&[1e8f32, 1e8 + 8.0, 1e8 + 16.0, 1e8 + 24.0], &[1, 4]).unwrap();
    let y = x.layer_norm(4, None, None, 0.0).unwrap().to_vec::<f32>().unwrap();
    let want = [-1.3416407, -0.4472136, 0.4472136, 1.3416407f32];
    assert!(y.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
    let thousands = rustgrad::ops::full(&[100], Scalar::Int(1000), DType::F16).unwrap();
    assert_eq!(thousands.mean_all().unwrap().item().unwrap().to_f64(), 1000.0);
    assert_eq!(thousands.sum_all().unwrap().item().unwrap().to_f64(), INF);
    let loss = thousands.mse_loss(thousands.neg().unwrap(), "mean".to_string(), None).unwrap();
    assert_eq!(loss.item().unwrap().to_f64(), INF);
    // Squares that leave the range of float32 do not take the norm with them.
    let x = Tensor::from_slice(&[3e30f32, 4e30], &[2]).unwrap();
    assert_eq!(x.norm(2, (), false, None).unwrap().item().unwrap().to_f64(), 5e30f32 as f64);
}

#[test]
fn nodes_bear_pytorchs_names() {
    let x = Tensor::from_slice(&[0.1, 0.9, 0.4, 0.6], &[2, 2]).unwrap().requires_grad_(true).unwrap();
    let y = Tensor::from_slice(&[0.2, 0.3, 0.4, 0.5], &[2, 2]).unwrap();
    let classes = Tensor::from_slice(&[0i64, 1], &[2]).unwrap();
    let mean = || "mean".to_string();
    let results = [
        (x.sum_all(), "SumBackward0"),
        (x.sum(0, false), "SumBackward1"),
        (x.mean_all(), "MeanBackward0"),
        (x.mean(0, false), "MeanBackward1"),
        (x.prod_all(), "ProdBackward0"),
        (x.prod(0, false), "ProdBackward1"),
        (x.max_all(), "MaxBackward1"),
        (x.max_dim(0, false).map(|r| r.0), "MaxBackward0"),
        (x.max_other(&y), "MaximumBackward0"),
        (x.amax(0, false), "AmaxBackward0"),
        (x.var(0), "VarBackward0"),
        (x.var_unbiased(false), "VarBackward0"),
        (x.norm(2, (), false, None), "LinalgVectorNormBackward0"),
        (x.logsumexp(0, false), "LogsumexpBackward0"),
        (x.nansum((), false), "NansumBackward0"),
        (x.cumsum(0), "CumsumBackward0"),
        (x.softmax(1, None), "SoftmaxBackward0"),
        (x.median_all(), "MedianBackward0"),
        (x.median(0, false).map(|r| r.0), "MedianBackward1"),
        (x.dist(&y, 2), "DistBackward0"),
        (x.mse_loss(&y, mean(), None), "MseLossBackward0"),
        (x.binary_cross_entropy(&y, None, mean()), "BinaryCrossEntropyBackward0"),
        (x.cross_entropy(&classes, None, -100, mean(), 0.0), "NllLossBackward0"),
        (x.layer_norm(2, None, None, 1e-5), "NativeLayerNormBackward0"),
        (x.group_norm(1, None, None, 1e-5), "NativeGroupNormBackward0"),
    ];
    for (result, want) in results {
        assert_eq!(result.unwrap().grad_fn().unwrap().node().unwrap().name(), want);
    }
}

#[test]
fn errors_say_what_pytorch_says() {
    let x = Tensor::from_slice(&[1.0, 2.0], &[1, 2]).unwrap();
    let ints = Tensor::from_slice(&[1i64, 2], &[2]).unwrap();
    let empty = Tensor::from_slice::<f64>(&[], &[0, 3]).unwrap();
    let words = [
        (
            ints.mean_all().map(drop),
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
        ),
        (x.sum(5, false).map(drop), "Dimension out of range (expected to be in range of [-2, 1], but got 5)"),
        (x.sum([0, -2], false).map(drop), "dim 0 appears multiple times in the list of dims"),
        (
            empty.max_all().map(drop),
            "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
        ),
        (empty.argmax(Some(0), false).map(drop), "argmax(): Expected reduction dim 0 to have non-zero size."),
        (ints.var(()).map(drop), "std and var only support floating point and complex dtypes"),
        (ints.softmax(0, None).map(drop), "\"softmax_lastdim_kernel_impl\" not implemented for 'Long'"),
        (
            x.layer_norm(3, None, None, 1e-5).map(drop),
            "Given normalized_shape=[3], expected input with shape [*, 3], but got input of size[1, 2]",
        ),
        (
            x.nll_loss(Tensor::from_slice(&[7i64], &[1]).unwrap(), None, -100, "mean".to_string()).map(drop),
            "Target 7 is out of bounds.",
        ),
        (x.mse_loss(&x, "bad".to_string(), None).map(drop), "bad is not a valid value for reduction"),
    ];
    for (result, want) in words {
        let text = result.unwrap_err().to_string();
        assert_eq!(text.lines().next(), Some(want));
    }
}

/// Numbers of a fixed pseudo-random sequence, some of them equal.
fn numbers(n: usize, dtype: DType) -> Tensor {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) % 4096) as f64 / 1024.0 - 2.0
    };
    let values: Vec<f64> = (0..n).map(|_| next()).collect();
    rustgrad::ops::to_dtype(&Tensor::from_slice(&values, &[n]).unwrap(), dtype).unwrap()
}

type Row = fn(&Tensor, i64) -> Result<Tensor>;

/// Kernels along a dimension.
const ALONG: &[(&str, Row)] = &[
    ("softmax", |x, d| x.softmax(d, None)),
    ("log_softmax", |x, d| x.log_softmax(d, None)),
    ("cumsum", |x, d| x.cumsum(d)),
    ("cumprod", |x, d| x.cumprod(d)),
    ("logcumsumexp", |x, d| x.logcumsumexp(d)),
    ("cummax", |x, d| x.cummax(d).map(|r| r.1)),
    ("max", |x, d| x.max_dim(d, true).map(|r| r.0)),
    ("argmin", |x, d| x.argmin(Some(d), true)),
    ("median", |x, d| x.median(d, true).map(|r| r.0)),
    ("mode", |x, d| x.mode(d, true).map(|r| r.0)),
];

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_scalars().unwrap().into_iter().map(|s| s.to_f64().to_bits()).collect()
}

#[test]
fn slices_are_treated_alike_wherever_they_lie() {
    // More columns than a tile has, and rows longer than a block.
    for (rows, columns) in [(3, 70), (1100, 5), (2, 1), (1, 33)] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let x = numbers(rows * columns, dtype).reshape(&[rows, columns][..]).unwrap();
            let turned = x.permute([1, 0]).unwrap();
            let moved = turned.contiguous("contiguous_format".to_string()).unwrap();
            for (name, f) in ALONG {
                let along_columns = bits(&f(&x, 0).unwrap().permute([1, 0]).unwrap());
                assert_eq!(along_columns, bits(&f(&moved, 1).unwrap()), "{name} {rows}x{columns} {dtype}");
                assert_eq!(along_columns, bits(&f(&turned, 1).unwrap()), "{name} {rows}x{columns} {dtype}, transposed");
            }
        }
    }
}

#[test]
fn strides_change_no_bit_of_a_reduction() {
    let all: &[(&str, fn(&Tensor) -> Result<Tensor>)] = &[
        ("sum", |x| x.sum(1, false)),
        ("mean", |x| x.mean(0, false)),
        ("var", |x| x.var(1)),
        ("logsumexp", |x| x.logsumexp([0, 1], false)),
        ("norm", |x| x.norm(2.5, 0, false, None)),
        ("mse_loss", |x| x.mse_loss(x.mul(2.0)?, "mean".to_string(), None)),
        ("layer_norm", |x| x.layer_norm(x.sizes()[1] as i64, None, None, 1e-5)),
    ];
    let turned = numbers(70 * 1500, DType::F32).reshape(&[1500, 70][..]).unwrap().permute([1, 0]).unwrap();
    let dense = turned.contiguous("contiguous_format".to_string()).unwrap();
    for (name, f) in all {
        assert_eq!(bits(&f(&turned).unwrap()), bits(&f(&dense).unwrap()), "{name}");
    }
}

#[test]
fn weight_multiplies_and_bias_is_added() {
    let x = Tensor::from_slice(&[1.0, 2.0, 4.0], &[1, 3]).unwrap();
    let (w, b) = (constant(&[1.0, 2.0, 3.0]), constant(&[10.0, 20.0, 30.0]));
    let y = x.layer_norm(3, Some(w), Some(b), 1e-5).unwrap();
    same(y.to_vec().unwrap(), &[8.930958468549703, 19.465479234274852, 34.008905742938616]);
}

#[test]
fn running_statistics_move_by_momentum() {
    let x = Tensor::from_slice(&[1.0, 10.0, 3.0, 20.0], &[2, 2]).unwrap();
    let (mean, var) = (constant(&[0.0, 0.0]), constant(&[1.0, 1.0]));
    x.batch_norm(Some(mean.clone()), Some(var.clone()), None, None, true, 0.1, 1e-5).unwrap();
    same(mean.to_vec().unwrap(), &[0.2, 1.5]);
    // 0.9 + 0.1 * the unbiased variances 2 and 50.
    same(var.to_vec().unwrap(), &[1.1, 5.9]);
}
