//! Products against sums written out: matrix products of all ranks, Einstein's convention, linear algebra; and that neither
//! strides nor batches change a bit.

use rustgrad::autograd::{GradOptions, grad};
use rustgrad::ops::samples::Sampler;
use rustgrad::{DType, Result, Tensor};

fn sample(seed: u64, sizes: &[usize]) -> Tensor {
    Sampler::new(seed, DType::F64).t(sizes)
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn assert_close(got: &Tensor, want: &Tensor, what: &str) {
    assert_eq!(got.sizes(), want.sizes(), "{what}");
    let worst = values(got).iter().zip(values(want)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-12, "{what}: differs by {worst}");
}

/// The sum that an equation without ellipses describes, written out: over all values of all letters.
fn summed(equation: &str, operands: &[Tensor]) -> Tensor {
    let (inputs, output) = equation.split_once("->").unwrap();
    let terms: Vec<Vec<char>> = inputs.split(',').map(|t| t.chars().collect()).collect();
    let mut letters: Vec<(char, usize)> = Vec::new();
    for (term, t) in terms.iter().zip(operands) {
        for (&c, &n) in term.iter().zip(&t.sizes()) {
            if !letters.iter().any(|l| l.0 == c) {
                letters.push((c, n));
            }
        }
    }
    let size = |c: char| letters.iter().find(|l| l.0 == c).unwrap().1;
    let sizes: Vec<usize> = output.chars().map(size).collect();
    let mut out = vec![0.0; sizes.iter().product()];
    let numbers: Vec<Vec<f64>> = operands.iter().map(values).collect();
    for count in 0..letters.iter().map(|l| l.1).product::<usize>() {
        let mut rest = count;
        let index: Vec<(char, usize)> = letters
            .iter()
            .map(|&(c, n)| {
                let i = rest % n;
                rest /= n;
                (c, i)
            })
            .collect();
        let flat =
            |term: &[char]| term.iter().fold(0, |at, &c| at * size(c) + index.iter().find(|l| l.0 == c).unwrap().1);
        let product: f64 = terms.iter().zip(&numbers).map(|(term, v)| v[flat(term)]).product();
        out[flat(&output.chars().collect::<Vec<_>>())] += product;
    }
    Tensor::from_slice(&out, &sizes).unwrap()
}

#[test]
fn matmul_of_all_ranks() -> Result<()> {
    let cases: &[(&[usize], &[usize], &str)] = &[
        (&[3], &[3], "k,k->"),
        (&[2, 3], &[3], "mk,k->m"),
        (&[3], &[3, 4], "k,kn->n"),
        (&[2, 3], &[3, 4], "mk,kn->mn"),
        (&[5, 2, 3], &[3], "amk,k->am"),
        (&[5, 2, 3], &[3, 4], "amk,kn->amn"),
        (&[3], &[5, 3, 4], "k,akn->an"),
        (&[2, 3], &[5, 3, 4], "mk,akn->amn"),
        (&[5, 2, 3], &[5, 3, 4], "amk,akn->amn"),
        (&[6, 5, 2, 3], &[5, 3, 4], "bamk,akn->bamn"),
        (&[5, 2, 3], &[6, 5, 3, 4], "amk,bakn->bamn"),
        (&[6, 1, 2, 3], &[5, 3, 4], "bmk,akn->bamn"),
    ];
    for (p, q, equation) in cases {
        for requires in [false, true] {
            let (x, y) = (sample(1, p).requires_grad_(requires)?, sample(2, q).requires_grad_(requires)?);
            // A dimension of size 1 that broadcasts has no letter of its own.
            let squeezed = if p.len() == 4 && p[1] == 1 { x.detach().squeeze_dim(1)? } else { x.detach() };
            let want = summed(equation, &[squeezed, y.detach()]);
            assert_close(&x.matmul(&y)?.detach(), &want, equation);
            // The same numbers lying otherwise.
            let turned =
                if p.len() > 1 { x.transpose(-1, -2)?.contiguous(None)?.transpose(-1, -2)? } else { x.clone() };
            assert_eq!(values(&turned.matmul(&y)?), values(&x.matmul(&y)?), "{equation}: strides change bits");
        }
    }
    Ok(())
}

#[test]
fn einsum_is_the_sum_that_it_says() -> Result<()> {
    let cases: &[(&str, &[&[usize]])] = &[
        ("ij->ji", &[&[2, 3]]),
        ("ii->i", &[&[3, 3]]),
        ("ii->", &[&[3, 3]]),
        ("iij->j", &[&[2, 2, 3]]),
        ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("ij,jk->ki", &[&[2, 3], &[3, 4]]),
        ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 4]]),
        ("i,j->ij", &[&[2], &[3]]),
        ("ij,ij->", &[&[2, 3], &[2, 3]]),
        ("ij,kl->", &[&[2, 3], &[2, 2]]),
        ("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 2]]),
        ("ab,ac,ad->bcd", &[&[2, 3], &[2, 4], &[2, 2]]),
        ("aab,bc->ac", &[&[2, 2, 3], &[3, 4]]),
        ("ij,k->ij", &[&[2, 3], &[4]]),
    ];
    for (equation, shapes) in cases {
        let operands: Vec<Tensor> = shapes.iter().enumerate().map(|(k, s)| sample(k as u64 + 3, s)).collect();
        assert_close(&Tensor::einsum(equation.to_string(), &operands[..])?, &summed(equation, &operands), equation);
    }
    let (x, y) = (sample(8, &[2, 1, 3, 4]), sample(9, &[5, 4, 3]));
    let got = Tensor::einsum("...ij,...ji".to_string(), vec![x.clone(), y.clone()])?;
    assert_close(&got, &summed("bij,aji->ba", &[x.squeeze_dim(1)?, y]), "...ij,...ji");
    Ok(())
}

#[test]
fn the_gradient_of_a_transposed_weight_lies_as_the_weight_does() -> Result<()> {
    let (x, w) = (sample(1, &[4, 3]), sample(2, &[5, 3]).requires_grad_(true)?);
    let out = x.mm(w.t()?)?;
    let g = grad(&[out.sum((), false)?], &[w], &[], &GradOptions::default())?.remove(0).unwrap();
    assert!(g.is_contiguous(), "a gradient that has to be copied before it can be accumulated");
    Ok(())
}

#[test]
fn a_chain_is_bracketed_for_the_fewest_multiplications() -> Result<()> {
    let (x, y, z) = (sample(1, &[2, 30]), sample(2, &[30, 2]), sample(3, &[2, 30]));
    let leaf = x.clone().requires_grad_(true)?;
    let out = Tensor::multi_dot(vec![leaf, y.clone(), z.clone()])?;
    assert_close(&out.detach(), &x.mm(&y)?.mm(&z)?, "multi_dot");
    Ok(())
}

#[test]
fn inverses_solutions_and_powers() -> Result<()> {
    let a = sample(4, &[3, 5, 5]);
    let eye = Tensor::eye(5, None)?;
    let eye = rustgrad::ops::to_dtype(&eye, DType::F64)?.expand([3, 5, 5])?;
    let near = |t: &Tensor, u: &Tensor, what: &str| {
        let worst = values(t).iter().zip(values(u)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-9, "{what}: {worst}");
    };
    near(&a.matmul(a.inverse()?)?, &eye, "inverse");
    near(&a.matrix_power(3)?, &a.matmul(&a)?.matmul(&a)?, "power 3");
    near(&a.matrix_power(-2)?.matmul(a.matrix_power(2)?)?, &eye, "power -2");
    let (b, v) = (sample(5, &[3, 5, 2]), sample(6, &[5]));
    near(&a.matmul(a.linalg_solve(&b)?)?, &b, "solve");
    near(&a.matmul(a.linalg_solve(&v)?.unsqueeze(-1)?)?.squeeze_dim(-1)?, &v.expand([3, 5])?, "solve for a vector");
    let spd = a.matmul(a.transpose(-1, -2)?)?.add(&eye)?;
    let l = spd.cholesky(false)?;
    near(&l.matmul(l.transpose(-1, -2)?)?, &spd, "cholesky");
    assert_eq!(values(&l.triu(1)?), [0.0; 75]);
    let (sign, log) = a.slogdet()?;
    let det: Vec<f64> = values(&sign).iter().zip(values(&log)).map(|(s, l)| s * l.exp()).collect();
    near(&Tensor::from_slice(&det, &[3])?, &a.det()?, "slogdet");
    Ok(())
}

#[test]
fn singular_matrices_are_named_and_their_determinants_have_gradients() -> Result<()> {
    let singular = Tensor::from_slice(&[1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 0.0, 1.0], &[3, 3])?;
    let e = singular.inverse().unwrap_err().to_string();
    assert!(e.starts_with("linalg.inv: The diagonal element 3 is zero, the inversion could not be completed"), "{e}");
    let x = singular.requires_grad_(true)?;
    x.det()?.backward()?;
    // The cofactors, worked out by hand.
    let want = Tensor::from_slice(&[4.0, 4.0, -4.0, -2.0, -2.0, 2.0, 0.0, 0.0, 0.0], &[3, 3])?;
    assert_close(&x.grad().unwrap(), &want, "cofactors");
    let e = Tensor::from_slice(&[1.0, 0.0, 0.0, -1.0], &[2, 2])?.cholesky(false).unwrap_err().to_string();
    assert!(e.contains("the leading minor of order 2 is not positive-definite"), "{e}");
    Ok(())
}
