//! Einstein's summation convention: the equation is parsed, every operand is brought to one order of dimensions, and the
//! operands are contracted from left to right by batched matrix products.

use super::args::{Arg, Args, Read};
use super::op::Rule::Composite as C;
use super::op::{FUNCTION, Outputs, op};
use crate::error::{Result, bail};
use crate::shape::Dims;
use crate::tensor::Tensor;
use smallvec::smallvec;

op! {
    /// Sums of products of the operands' elements, as the equation says: each letter names a dimension, letters that are not
    /// in the output are summed, a letter twice in one operand takes the diagonal, `...` stands for dimensions that broadcast.
    /// Without `->`, the output has the letters that come once, in the order of the alphabet.
    ///
    /// # Errors
    /// `ValueError` for no operands, `RuntimeError` for an equation that is wrong or does not fit the operands.
    EINSUM einsum(equation: Str, operands: VarTensors) -> Tensor = "", FUNCTION,
        C(einsum),
        |s| vec![
            smallvec![Arg::Str("ij,jk->ki".into()), Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[3, 2])])],
            smallvec![Arg::Str("bii,...i->b".into()), Arg::Tensors(vec![s.t(&[2, 3, 3]), s.t(&[2, 3])])],
            smallvec![Arg::Str("i...,...j,jk".into()), Arg::Tensors(vec![s.t(&[2, 3]), s.t(&[3, 2]), s.t(&[2, 2])])],
        ];
}

/// A letter (0 to 51), or a dimension that an ellipsis covers, counted from the last one (`ELLIPSIS + k`).
type Label = usize;

const ELLIPSIS: Label = 52;

/// One side of the equation: labels, with the place of an ellipsis among them.
#[derive(Default)]
struct Term {
    labels: Vec<Label>,
    ellipsis: Option<usize>,
}

fn letter(c: char) -> Option<Label> {
    match c {
        'A'..='Z' => Some(c as usize - 'A' as usize),
        'a'..='z' => Some(26 + c as usize - 'a' as usize),
        _ => None,
    }
}

fn shown(label: Label) -> char {
    if label < 26 { (b'A' + label as u8) as char } else { (b'a' + (label - 26) as u8) as char }
}

/// The operands' terms and that of the output, if it is given.
fn parse(equation: &str) -> Result<(Vec<Term>, Option<Term>)> {
    let op = "einsum";
    let chars: Vec<char> = equation.chars().collect();
    let (mut terms, mut output) = (vec![Term::default()], None);
    let mut at = 0;
    while at < chars.len() {
        let in_output = output.is_some();
        let operand = terms.len() - 1;
        let place = || if in_output { "the output".to_string() } else { format!("operand {operand}") };
        let term: &mut Term = match &mut output {
            Some(t) => t,
            None => &mut terms[operand],
        };
        match chars[at] {
            ' ' => {}
            '.' => {
                if term.ellipsis.is_some() {
                    bail!(runtime op, "einsum(): found '.' for {} for which an ellipsis was already found", place());
                }
                if chars.get(at + 1..at + 3) != Some(&['.', '.']) {
                    bail!(runtime op, "einsum(): found '.' for {} that is not part of any ellipsis", place());
                }
                term.ellipsis = Some(term.labels.len());
                at += 2;
            }
            ',' if !in_output => terms.push(Term::default()),
            '-' if !in_output && chars.get(at + 1) == Some(&'>') => {
                output = Some(Term::default());
                at += 1;
            }
            c => match letter(c) {
                Some(label) => {
                    if in_output && term.labels.contains(&label) {
                        bail!(runtime op, "einsum(): output subscript {c} appears more than once in the output");
                    }
                    term.labels.push(label);
                }
                None => {
                    bail!(runtime op, "einsum(): invalid subscript given at index {at} in the equation string, subscripts must be in [a-zA-Z]")
                }
            },
        }
        at += 1;
    }
    Ok((terms, output))
}

fn einsum(a: &Args) -> Result<Outputs> {
    let op = "einsum";
    let (equation, operands) = (a.str(0), a.tensors(1)?);
    if operands.is_empty() {
        bail!(value op, "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list");
    }
    let (terms, output) = parse(equation)?;
    if terms.len() != operands.len() {
        let which = if terms.len() > operands.len() { "fewer" } else { "more" };
        bail!(runtime op, "einsum(): {which} operands were provided than specified in the equation");
    }
    // The labels of each operand's dimensions, those under an ellipsis counted from the last.
    let mut labels = Vec::with_capacity(terms.len());
    let mut covered = 0;
    for (k, (term, t)) in terms.iter().zip(operands).enumerate() {
        let (n, rank) = (term.labels.len(), t.rank());
        let fits = if term.ellipsis.is_some() { n <= rank } else { n == rank };
        if !fits {
            let (less, tail) = match term.ellipsis {
                Some(_) => ("is more than", ""),
                None => ("does not match", " and no ellipsis was given"),
            };
            bail!(runtime op, "einsum(): the number of subscripts in the equation ({n}) {less} the number of dimensions ({rank}) for operand {k}{tail}");
        }
        let hidden = rank - n;
        covered = covered.max(if term.ellipsis.is_some() { hidden } else { 0 });
        let mut all = term.labels.clone();
        let at = term.ellipsis.unwrap_or(n);
        all.splice(at..at, (0..hidden).map(|d| ELLIPSIS + hidden - 1 - d));
        labels.push(all);
    }
    let count = |label: Label| terms.iter().flat_map(|t| &t.labels).filter(|&&l| l == label).count();
    let hidden: Vec<Label> = (0..covered).rev().map(|d| ELLIPSIS + d).collect();
    let mut order: Vec<Label> = match &output {
        Some(term) => {
            if let Some(&l) = term.labels.iter().find(|&&l| count(l) == 0) {
                bail!(runtime op, "einsum(): output subscript {} does not appear in the equation for any input operand", shown(l));
            }
            let mut all = term.labels.clone();
            if let Some(at) = term.ellipsis {
                all.splice(at..at, hidden.iter().copied());
            }
            all
        }
        None => hidden.iter().copied().chain((0..ELLIPSIS).filter(|&l| count(l) == 1)).collect(),
    };
    let kept = order.len();
    let summed: Vec<Label> =
        (0..ELLIPSIS).filter(|&l| count(l) > 0).chain(hidden).filter(|l| !order.contains(l)).collect();
    order.extend(summed);

    let mut aligned = Vec::with_capacity(operands.len());
    for (k, t) in operands.iter().enumerate() {
        aligned.push(align(k, t, &mut labels[k], &order)?);
    }
    check_sizes(&aligned, &labels, &order)?;
    // The last operand in which a dimension that is summed is more than a placeholder.
    let last = |d: usize| labels.iter().rposition(|l| l.contains(&order[d])).unwrap_or(0);
    let mut operands = aligned.into_iter();
    let Some(mut result) = operands.next() else { return Ok(smallvec![]) };
    let alone: Vec<i64> = (kept..order.len()).filter(|&d| last(d) == 0).map(|d| d as i64).collect();
    if !alone.is_empty() {
        result = result.sum(&alone[..], true)?;
    }
    for (k, next) in operands.enumerate() {
        let dims: Vec<usize> = (kept..order.len()).filter(|&d| last(d) == k + 1).collect();
        result = if dims.is_empty() { result.mul(next)? } else { contract(&result, &next, &dims)? };
    }
    if order.len() > kept {
        let sizes = Dims::from_slice(&result.sizes()[..kept]);
        result = result.view(&sizes)?;
    }
    Ok(smallvec![result])
}

/// An operand with its dimensions in the common order, of size 1 where it has none; diagonals are taken for labels that it
/// repeats.
fn align(k: usize, t: &Tensor, labels: &mut Vec<Label>, order: &[Label]) -> Result<Tensor> {
    let mut t = t.clone();
    let mut first = 0;
    while first < labels.len() {
        let Some(second) = (first + 1..labels.len()).find(|&d| labels[d] == labels[first]) else {
            first += 1;
            continue;
        };
        let sizes = t.sizes();
        if sizes[first] != sizes[second] {
            bail!(runtime "einsum", "einsum(): subscript {} is repeated for operand {k} but the sizes don't match, {} != {}", shown(labels[first]), sizes[second], sizes[first]);
        }
        // The diagonal comes as the last dimension.
        t = t.diagonal(0, first as i64, second as i64)?;
        let label = labels.remove(second);
        labels.remove(first);
        labels.push(label);
    }
    let present: Dims = order.iter().filter_map(|l| labels.iter().position(|m| m == l)).collect();
    t = t.permute(&present[..])?;
    for (d, label) in order.iter().enumerate() {
        if !labels.contains(label) {
            t = t.unsqueeze(d as i64)?;
        }
    }
    Ok(t)
}

fn check_sizes(operands: &[Tensor], labels: &[Vec<Label>], order: &[Label]) -> Result<()> {
    for (d, &label) in order.iter().enumerate() {
        let mut seen = 1;
        for (k, t) in operands.iter().enumerate().filter(|(k, _)| labels[*k].contains(&label)) {
            let n = t.sizes()[d];
            if n != 1 && seen != 1 && n != seen {
                if label >= ELLIPSIS {
                    bail!(runtime "einsum", "einsum(): dimension {d} covered by ellipsis in operand {k} has size {n} which does not broadcast with previously seen ellipsis with size {seen} for the respective dimension");
                }
                bail!(runtime "einsum", "einsum(): subscript {} has size {n} for operand {k} which does not broadcast with previously seen size {seen}", shown(label));
            }
            seen = if seen == 1 { n } else { seen };
        }
    }
    Ok(())
}

/// The product of two aligned operands, summed over `dims`, which keep size 1.
fn contract(x: &Tensor, y: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let (mut x, mut y) = (x.clone(), y.clone());
    let (p, q) = (x.sizes(), y.sizes());
    let rank = p.len();
    // Dimensions of both that stay, of the left one alone, of the right one alone, and of both that are summed.
    let (mut both, mut left, mut right, mut summed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for d in 0..rank {
        match (dims.contains(&d), p[d] != 1, q[d] != 1) {
            (true, true, true) => summed.push(d),
            (true, true, false) => x = x.sum([d], true)?,
            (true, false, true) => y = y.sum([d], true)?,
            (true, false, false) => {}
            (false, true, true) => both.push(d),
            (false, true, false) => left.push(d),
            (false, false, _) => right.push(d),
        }
    }
    let size = |dims: &[usize], sizes: &Dims| dims.iter().map(|&d| sizes[d]).product::<usize>();
    let rest: Vec<usize> = dims.iter().copied().filter(|d| !summed.contains(d)).collect();
    let order = |parts: [&[usize]; 5]| -> Vec<usize> { parts.concat() };
    let (b, m, k, n) = (size(&both, &p), size(&left, &p), size(&summed, &p), size(&right, &q));
    let x = x.permute(&order([&both, &left, &summed, &right, &rest])[..])?.reshape([b, m, k])?;
    let y = y.permute(&order([&both, &summed, &right, &left, &rest])[..])?.reshape([b, k, n])?;
    let apart: Dims = both
        .iter()
        .chain(&left)
        .map(|&d| p[d])
        .chain(right.iter().map(|&d| q[d]))
        .chain(dims.iter().map(|_| 1))
        .collect();
    let made: Vec<usize> = [&both[..], &left, &right, dims].concat();
    let mut back = vec![0usize; rank];
    made.iter().enumerate().for_each(|(at, &d)| back[d] = at);
    x.bmm(y)?.view(&apart)?.permute(&back[..])
}
