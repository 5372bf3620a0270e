//! Random numbers: that they follow from the seed alone, that distributions are what they say, and what in-place fills and
//! dropout mean for gradients.

use rustgrad::ops::apply::{call_in_place, call_into, with_defaults};
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::op::Op;
use rustgrad::ops::random::{self, Generator};
use rustgrad::ops::random_fill;
use rustgrad::{DType, Result, Tensor};
use smallvec::smallvec;

const N: usize = 20_000;

/// Calls a row with a generator of its own.
fn drawn(op: &'static Op, generator: &Generator, args: Args) -> Tensor {
    let mut args = with_defaults(op, args);
    let at = op.param("generator").expect("it takes a generator");
    args[at] = Arg::Generator(generator.clone());
    call_into(op, args).unwrap()
}

fn sizes(n: usize) -> Args {
    smallvec![Arg::Ints([n as i64][..].into())]
}

fn doubles(t: &Tensor) -> Vec<f64> {
    t.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

fn mean_and_variance(v: &[f64]) -> (f64, f64) {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    (mean, v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64)
}

#[test]
fn the_seed_decides_and_the_state_can_be_kept() -> Result<()> {
    let g = Generator::with_seed(5);
    let first = drawn(&random::RANDN, &g, sizes(100));
    let state = g.get_state()?;
    let second = drawn(&random::RAND, &g, sizes(1000));
    assert_ne!(doubles(&first)[0], doubles(&second)[0]);
    g.set_state(&state)?;
    assert_eq!(doubles(&drawn(&random::RAND, &g, sizes(1000))), doubles(&second));
    g.manual_seed(5);
    assert_eq!(doubles(&drawn(&random::RANDN, &g, sizes(100))), doubles(&first));
    assert_eq!(g.initial_seed(), 5);
    assert!(g.set_state(&first).is_err());
    Ok(())
}

#[test]
fn an_element_depends_on_its_place_alone() {
    for op in [&random::RAND, &random::RANDN] {
        let long = doubles(&drawn(op, &Generator::with_seed(1), sizes(5000)));
        for n in [1, 7, 1024, 1025, 4999] {
            assert_eq!(doubles(&drawn(op, &Generator::with_seed(1), sizes(n))), long[..n], "{} of {n}", op.name);
        }
    }
}

#[test]
fn distributions_have_their_moments() -> Result<()> {
    let target = Tensor::from_slice(&vec![0f64; N], &[N])?;
    let number = |x: f64| Arg::Float(x);
    // Mean and variance from the textbook.
    let cases: &[(&Op, Args, f64, f64)] = &[
        (&random_fill::UNIFORM_, smallvec![number(-1.0), number(3.0)], 1.0, 16.0 / 12.0),
        (&random_fill::NORMAL_, smallvec![number(2.0), number(0.5)], 2.0, 0.25),
        (&random_fill::EXPONENTIAL_, smallvec![number(2.0)], 0.5, 0.25),
        (&random_fill::GEOMETRIC_, smallvec![number(0.25)], 4.0, 12.0),
        (&random_fill::BERNOULLI_, smallvec![number(0.3)], 0.3, 0.21),
        (
            &random_fill::LOG_NORMAL_,
            smallvec![number(0.0), number(0.25)],
            (0.03125f64).exp(),
            (0.0625f64.exp() - 1.0) * 0.0625f64.exp(),
        ),
        (&random_fill::RANDOM_RANGE_, smallvec![Arg::Int(-2), Arg::Int(3)], 0.0, 2.0),
    ];
    for (op, args, mean, variance) in cases {
        for dtype in [DType::F64, DType::F32, DType::F16] {
            let t = rustgrad::ops::to_dtype(&target, dtype)?.copy()?;
            let all: Args = std::iter::once(Arg::Tensor(t.clone())).chain(args.iter().cloned()).collect();
            let mut all = with_defaults(op, all);
            all[op.params.len() - 1] = Arg::Generator(Generator::with_seed(77));
            call_in_place(op, &all)?;
            let (m, v) = mean_and_variance(&doubles(&t));
            // Six standard errors of the mean, and room of the same order for the variance.
            let room = 6.0 * (variance / N as f64).sqrt();
            assert!((m - mean).abs() < room + 1e-3 * mean.abs(), "{} {dtype}: mean {m}, not {mean}", op.rust);
            assert!((v / variance - 1.0).abs() < 0.15, "{} {dtype}: variance {v}, not {variance}", op.rust);
        }
    }
    Ok(())
}

#[test]
fn uniform_numbers_stay_below_the_end_in_every_dtype() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let mut args = with_defaults(&random::RAND, sizes(100_000));
        args[1] = Arg::Generator(Generator::with_seed(3));
        args[2] = Arg::DType(dtype);
        let t: Tensor = call_into(&random::RAND, args)?;
        assert!(doubles(&t).iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
    }
    Ok(())
}

#[test]
fn strided_memory_gets_the_same_numbers() -> Result<()> {
    let fill = |t: &Tensor| {
        let args = smallvec![
            Arg::Tensor(t.clone()),
            Arg::Float(0.0),
            Arg::Float(1.0),
            Arg::Generator(Generator::with_seed(9))
        ];
        call_in_place(&random_fill::NORMAL_, &args)
    };
    let dense = Tensor::from_slice(&[0f64; 6], &[3, 2])?;
    let base = Tensor::from_slice(&[0f64; 12], &[2, 3, 2])?;
    let strided = base.select(2, 1)?.t()?;
    fill(&dense)?;
    fill(&strided)?;
    assert_eq!(doubles(&strided), doubles(&dense));
    assert_eq!(doubles(&base.select(2, 0)?), [0.0; 6]);
    Ok(())
}

#[test]
fn a_fill_cuts_the_history_and_keeps_the_rules_of_in_place_changes() -> Result<()> {
    let x = Tensor::from_slice(&[1f64, 2.0], &[2])?.requires_grad_(true)?;
    let y = &x * 3.0;
    y.normal_(0.0, 1.0)?;
    assert_eq!(y.grad_fn().unwrap().node().map(|n| n.name().into_owned()).as_deref(), Some("NormalBackward0"));
    assert_eq!(y.version(), 1);
    y.sum((), false)?.backward()?;
    assert_eq!(doubles(&x.grad().unwrap()), [0.0, 0.0]);
    assert!(x.uniform_(0.0, 1.0).unwrap_err().to_string().starts_with("a leaf Variable that requires grad"));
    // A saved value that is overwritten is noticed.
    let z = &x * 1.0;
    let loss = (&z * &z).sum((), false)?;
    z.normal_(0.0, 1.0)?;
    assert!(loss.backward().unwrap_err().to_string().contains("modified by an inplace operation"));
    Ok(())
}

#[test]
fn dropout_uses_one_mask_forward_and_backward() -> Result<()> {
    let x = Tensor::from_slice(&vec![2f64; 1000], &[1000])?.requires_grad_(true)?;
    let y = x.dropout(0.25, true)?;
    y.sum((), false)?.backward()?;
    let (y, g) = (doubles(&y), doubles(&x.grad().unwrap()));
    assert!(y.iter().zip(&g).all(|(y, g)| *y == 2.0 * g && (*g == 0.0 || *g == 1.0 / 0.75)));
    let dropped = g.iter().filter(|g| **g == 0.0).count();
    assert!((150..350).contains(&dropped), "{dropped} of 1000 dropped with probability 0.25");
    assert!(x.dropout(0.0, true)?.is(&x) && x.dropout(0.5, false)?.is(&x));
    assert_eq!(doubles(&x.dropout(1.0, true)?), [0.0; 1000]);
    let e = x.dropout(1.5, true).unwrap_err().to_string();
    assert!(e.starts_with("dropout probability has to be between 0 and 1, but got 1.5"), "{e}");
    Ok(())
}

#[test]
fn permutations_and_draws_without_replacement_name_each_once() -> Result<()> {
    let g = Generator::with_seed(4);
    let mut order = drawn(&random::RANDPERM, &g, smallvec![Arg::Int(1000)]).to_vec::<i64>()?;
    assert_ne!(order, (0..1000).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());

    let weights = Tensor::from_slice(&[0f64, 1.0, 3.0, 0.0], &[4])?;
    let mut counts = [0; 4];
    for _ in 0..4000 {
        let two =
            drawn(&random::MULTINOMIAL, &g, smallvec![Arg::Tensor(weights.clone()), Arg::Int(2)]).to_vec::<i64>()?;
        assert_ne!(two[0], two[1]);
        counts[two[0] as usize] += 1;
    }
    assert_eq!((counts[0], counts[3]), (0, 0));
    assert!((2800..3200).contains(&counts[2]), "{counts:?}");
    let many = drawn(&random::MULTINOMIAL, &g, smallvec![Arg::Tensor(weights), Arg::Int(4000), Arg::Bool(true)])
        .to_vec::<i64>()?;
    let twos = many.iter().filter(|i| **i == 2).count();
    assert!((2800..3200).contains(&twos) && many.iter().all(|i| *i == 1 || *i == 2), "{twos}");
    Ok(())
}

#[test]
fn integers_cover_their_range_and_no_more() -> Result<()> {
    let g = Generator::with_seed(6);
    let t = drawn(&random::RANDINT, &g, smallvec![Arg::Int(-2), Arg::Int(2), Arg::Ints([1000][..].into())])
        .to_vec::<i64>()?;
    for wanted in -2..2 {
        assert!(t.contains(&wanted), "{wanted} never came");
    }
    assert!(t.iter().all(|x| (-2..2).contains(x)));
    assert!(Tensor::randint(3, 3, [1]).is_err());
    Ok(())
}
