//! Indexing as a Rust user meets it: what the rows compute against loops written out, Python's indexing against a model of
//! it, errors, histories.

use proptest::prelude::*;
use rustgrad::autograd::no_grad;
use rustgrad::ops::args::{Arg, Args};
use rustgrad::ops::getitem::IndexItem as I;
use rustgrad::ops::{apply, catalogue};
use rustgrad::{DType, Error, Result, Tensor};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn tensor(sizes: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..sizes.iter().product()).map(|i: usize| i as f64).collect();
    Tensor::from_slice(&values, sizes).unwrap()
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

fn mask(values: &[bool], sizes: &[usize]) -> Tensor {
    let bytes: Vec<u8> = values.iter().map(|&b| b as u8).collect();
    rustgrad::ops::to_dtype(&Tensor::from_slice(&bytes, sizes).unwrap(), DType::Bool).unwrap()
}

fn range(start: i64, stop: i64, step: i64) -> I {
    I::Slice { start: Some(start), stop: Some(stop), step: Some(step) }
}

fn all() -> I {
    I::Slice { start: None, stop: None, step: None }
}

fn in_place(name: &str, args: Args) -> Result<Tensor> {
    apply::call_in_place(catalogue::find(name).unwrap(), &args)
}

fn name(t: &Tensor) -> String {
    t.grad_fn().unwrap().node().map_or(String::new(), |n| n.name().into_owned())
}

/// A tensor whose memory order is not its own: a transpose of every other column of something larger.
fn strided(values: &[f64], rows: usize, columns: usize) -> Tensor {
    let mut wide = vec![-1.0; rows * columns * 2];
    for i in 0..rows {
        for j in 0..columns {
            wide[(j * rows + i) * 2] = values[i * columns + j];
        }
    }
    let t = Tensor::from_slice(&wide, &[columns, rows, 2]).unwrap().select(2, 0).unwrap().permute([1, 0]).unwrap();
    assert_eq!(t.to_vec::<f64>().unwrap(), values);
    t
}

// ---- rows against loops ---------------------------------------------------------------------------------------------

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn gathering_and_scattering_are_the_loops(
        (rows, columns, dim) in (1usize..5, 1usize..6, 0usize..2),
        seed in proptest::collection::vec(0u32..1000, 60),
        laid_out in any::<bool>(),
    ) {
        let values: Vec<f64> = (0..rows * columns).map(|i| seed[i % 60] as f64 / 8.0).collect();
        let t = if laid_out { strided(&values, rows, columns) } else { Tensor::from_slice(&values, &[rows, columns]).unwrap() };
        let n = [rows, columns][dim];
        // As many rows and columns of indices as fit, more along `dim`.
        let (h, w) = if dim == 0 { (rows + 2, columns) } else { (rows, columns + 3) };
        let index: Vec<i64> = (0..h * w).map(|i| (seed[(7 * i + 3) % 60] as usize % n) as i64).collect();
        let source: Vec<f64> = (0..h * w).map(|i| 1.0 + seed[(5 * i) % 60] as f64).collect();
        let at = |i: usize, j: usize| {
            let k = index[i * w + j] as usize;
            if dim == 0 { k * columns + j } else { i * columns + k }
        };
        let (mut gathered, mut set, mut added) = (vec![0.0; h * w], values.clone(), values.clone());
        for i in 0..h {
            for j in 0..w {
                gathered[i * w + j] = values[at(i, j)];
                set[at(i, j)] = source[i * w + j];
                added[at(i, j)] += source[i * w + j];
            }
        }
        let index = Tensor::from_slice(&index, &[h, w]).unwrap();
        let source = if laid_out { strided(&source, h, w) } else { Tensor::from_slice(&source, &[h, w]).unwrap() };
        prop_assert_eq!(t.gather(dim as i64, &index).unwrap().to_vec::<f64>().unwrap(), gathered);
        prop_assert_eq!(t.scatter(dim as i64, &index, &source).unwrap().to_vec::<f64>().unwrap(), set.clone());
        prop_assert_eq!(t.scatter_add(dim as i64, &index, &source).unwrap().to_vec::<f64>().unwrap(), added);
        // In place the same, into the same memory.
        in_place("scatter", smallvec::smallvec![Arg::Tensor(t.clone()), Arg::Int(dim as i64), Arg::Tensor(index), Arg::Tensor(source)]).unwrap();
        prop_assert_eq!(t.to_vec::<f64>().unwrap(), set);
        prop_assert_eq!(t.version(), 1);
    }

    #[test]
    fn slices_by_index_are_the_loops(
        sizes in (1usize..4, 1usize..5, 1usize..4),
        dim in 0usize..3,
        picks in proptest::collection::vec(0usize..100, 0..7),
    ) {
        let sizes = [sizes.0, sizes.1, sizes.2];
        let t = tensor(&sizes);
        let values = t.to_vec::<f64>().unwrap();
        let index: Vec<i64> = picks.iter().map(|p| (p % sizes[dim]) as i64).collect();
        let mut picked = sizes;
        picked[dim] = index.len();
        let position = |c: [usize; 3], s: [usize; 3]| (c[0] * s[1] + c[1]) * s[2] + c[2];
        let count: usize = picked.iter().product();
        let source: Vec<f64> = (0..count).map(|i| 100.0 + i as f64).collect();
        let (mut selected, mut added, mut copied) = (Vec::new(), values.clone(), values.clone());
        for a in 0..picked[0] {
            for b in 0..picked[1] {
                for c in 0..picked[2] {
                    let mut to = [a, b, c];
                    to[dim] = index[to[dim]] as usize;
                    selected.push(values[position(to, sizes)]);
                    added[position(to, sizes)] += 2.0 * source[position([a, b, c], picked)];
                    copied[position(to, sizes)] = source[position([a, b, c], picked)];
                }
            }
        }
        let (index, source) = (ints(&index), Tensor::from_slice(&source, &picked).unwrap());
        let d = dim as i64;
        prop_assert_eq!(t.index_select(d, &index).unwrap().to_vec::<f64>().unwrap(), selected);
        prop_assert_eq!(t.index_add(d, &index, (&source * 2.0).copy().unwrap()).unwrap().to_vec::<f64>().unwrap(), added);
        prop_assert_eq!(t.index_copy(d, &index, &source).unwrap().to_vec::<f64>().unwrap(), copied);
    }

    #[test]
    fn sorting_is_stable_and_complete(values in proptest::collection::vec(-4i32..5, 1..40), descending in any::<bool>()) {
        let floats: Vec<f32> = values.iter().map(|&v| if v == 4 { f32::NAN } else { v as f32 / 2.0 }).collect();
        let t = Tensor::from_slice(&floats, &[floats.len()]).unwrap();
        let rank = |v: f32| if v.is_nan() { f32::INFINITY } else { v };
        let mut order: Vec<usize> = (0..floats.len()).collect();
        order.sort_by(|&a, &b| {
            let o = rank(floats[a]).total_cmp(&rank(floats[b]));
            if descending { o.reverse() } else { o }
        });
        let (sorted, positions) = t.sort(0, descending).unwrap();
        let want: Vec<i64> = order.iter().map(|&i| i as i64).collect();
        prop_assert_eq!(positions.to_vec::<i64>().unwrap(), want.clone());
        let got: Vec<u32> = sorted.to_vec::<f32>().unwrap().iter().map(|v| v.to_bits()).collect();
        prop_assert_eq!(got, order.iter().map(|&i| floats[i].to_bits()).collect::<Vec<_>>());
        let k = floats.len() / 2;
        let (_, first) = t.topk(k as i64, 0, descending, true).unwrap();
        prop_assert_eq!(first.to_vec::<i64>().unwrap(), want[..k].to_vec());
        let (_, nth) = t.kthvalue(k as i64 + 1, 0, false).unwrap();
        if !descending {
            prop_assert_eq!(nth.item().unwrap().to_i64(), want[k]);
        }
    }

    #[test]
    fn masks_select_in_order(bits in proptest::collection::vec(any::<bool>(), 1..70), laid_out in any::<bool>()) {
        let n = bits.len();
        let values: Vec<f64> = (0..2 * n).map(|i| i as f64).collect();
        let t = if laid_out { strided(&values, 2, n) } else { Tensor::from_slice(&values, &[2, n]).unwrap() };
        let m = mask(&bits, &[n]);
        let want: Vec<f64> = (0..2 * n).filter(|i| bits[i % n]).map(|i| i as f64).collect();
        prop_assert_eq!(t.masked_select(&m).unwrap().to_vec::<f64>().unwrap(), want.clone());
        prop_assert_eq!(t.at(&[all(), I::Tensor(m.clone())]).unwrap().to_vec::<f64>().unwrap(), want.clone());
        let coordinates = m.argwhere().unwrap();
        let places: Vec<i64> = (0..n).filter(|&i| bits[i]).map(|i| i as i64).collect();
        prop_assert_eq!(&coordinates.sizes()[..], &[places.len(), 1]);
        prop_assert_eq!(coordinates.to_vec::<i64>().unwrap(), places);
        let source: Vec<f64> = (0..want.len()).map(|i| -1.0 - i as f64).collect();
        let back = t.masked_scatter(&m, Tensor::from_slice(&source, &[source.len()]).unwrap()).unwrap().to_vec::<f64>().unwrap();
        let mut next = 0.0;
        for i in 0..2 * n {
            if bits[i % n] { next -= 1.0 }
            prop_assert_eq!(back[i], if bits[i % n] { next } else { i as f64 });
        }
    }

    #[test]
    fn groups_are_the_distinct_values(values in proptest::collection::vec(0i64..6, 0..30)) {
        let t = ints(&values);
        let got = t.unique(true, true, true, None).unwrap();
        let mut distinct = values.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(got[0].to_vec::<i64>().unwrap(), distinct.clone());
        let back: Vec<i64> = got[1].to_vec::<i64>().unwrap().iter().map(|&g| distinct[g as usize]).collect();
        prop_assert_eq!(&back, &values);
        let counts: Vec<i64> = distinct.iter().map(|d| values.iter().filter(|v| *v == d).count() as i64).collect();
        prop_assert_eq!(got[2].to_vec::<i64>().unwrap(), counts);
        let runs = t.unique_consecutive(true, true, None).unwrap();
        let mut deduped = values.clone();
        deduped.dedup();
        prop_assert_eq!(runs[0].to_vec::<i64>().unwrap(), deduped);
        prop_assert_eq!(runs[2].to_vec::<i64>().unwrap().iter().sum::<i64>() as usize, values.len());
        if !values.is_empty() {
            let counts = t.bincount(None, 3).unwrap().to_vec::<i64>().unwrap();
            prop_assert!(counts.iter().enumerate().all(|(v, &c)| values.iter().filter(|x| **x == v as i64).count() as i64 == c));
        }
    }
}

// ---- Python's indexing against a model ------------------------------------------------------------------------------

/// What an index reads, worked out element by element: shape and values.
fn model(sizes: &[usize], items: &[I]) -> Option<(Vec<usize>, Vec<f64>)> {
    // Each dimension of the result names elements of dimensions of the tensor.
    let named = items.iter().filter(|i| matches!(i, I::Int(_) | I::Slice { .. })).count();
    if named > sizes.len() {
        return None;
    }
    let (mut d, mut left, mut shape, mut lists) = (0, named, Vec::new(), Vec::new());
    let whole = |d: usize, shape: &mut Vec<usize>| {
        shape.push(sizes[d]);
        (0..sizes[d]).collect::<Vec<_>>()
    };
    for item in items {
        left -= matches!(item, I::Int(_) | I::Slice { .. }) as usize;
        match item {
            I::Int(i) => {
                let n = sizes[d] as i64;
                if *i < -n || *i >= n {
                    return None;
                }
                lists.push(vec![i.rem_euclid(n) as usize]);
                d += 1;
            }
            I::Slice { start, stop, step } => {
                let n = sizes[d] as i64;
                let clamp = |i: i64| if i < 0 { (i + n).max(0) } else { i.min(n) };
                let (a, b) = (clamp(start.unwrap_or(0)), clamp(stop.unwrap_or(n)));
                let list: Vec<usize> = (a..b).step_by(step.unwrap_or(1) as usize).map(|i| i as usize).collect();
                shape.push(list.len());
                lists.push(list);
                d += 1;
            }
            I::None => shape.push(1),
            _ => {
                while d < sizes.len() - left {
                    lists.push(whole(d, &mut shape));
                    d += 1;
                }
            }
        }
    }
    while d < sizes.len() {
        lists.push(whole(d, &mut shape));
        d += 1;
    }
    let mut places = vec![0usize];
    for (list, &n) in lists.iter().zip(sizes) {
        places = places.iter().flat_map(|&p| list.iter().map(move |&i| p * n + i)).collect();
    }
    Some((shape, places.iter().map(|&p| p as f64).collect()))
}

fn basic_item() -> impl Strategy<Value = I> {
    prop_oneof![
        (-4i64..4).prop_map(I::Int),
        (proptest::option::of(-5i64..6), proptest::option::of(-5i64..6), proptest::option::of(1i64..4))
            .prop_map(|(start, stop, step)| I::Slice { start, stop, step }),
        Just(I::None),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn basic_indexing_follows_the_model(
        sizes in proptest::collection::vec(1usize..4, 0..4),
        items in proptest::collection::vec(basic_item(), 1..5),
        dots in proptest::option::of(0usize..5),
        recorded in any::<bool>(),
    ) {
        let mut items = items;
        if let Some(at) = dots {
            items.insert(at.min(items.len()), I::Ellipsis);
        }
        let leaf = tensor(&sizes).requires_grad_(recorded).unwrap();
        let got = leaf.at(&items);
        match model(&sizes, &items) {
            Some((shape, values)) => {
                let got = got.unwrap();
                prop_assert_eq!(&got.sizes()[..], &shape[..], "{:?}", items);
                prop_assert_eq!(got.to_vec::<f64>().unwrap(), values, "{:?}", items);
                prop_assert!(got.is_view());
                prop_assert_eq!(got.requires_grad(), recorded);
                // What is written through the index is what is read, and nothing else changes.
                let fresh = tensor(&sizes);
                fresh.set_at(&items, -1.0).unwrap();
                let after = fresh.to_vec::<f64>().unwrap();
                let read = leaf.detach().at(&items).unwrap().to_vec::<f64>().unwrap();
                for (i, v) in after.iter().enumerate() {
                    prop_assert_eq!(*v, if read.contains(&(i as f64)) { -1.0 } else { i as f64 });
                }
            }
            None => prop_assert!(matches!(got, Err(Error::Index { .. })), "{:?}", items),
        }
    }

    #[test]
    fn advanced_indexing_is_the_loop(
        (a, b) in (proptest::collection::vec(-3i64..3, 1..5), -4i64..4),
        apart in any::<bool>(),
    ) {
        let t = tensor(&[3, 2, 4]);
        let (n, second) = (a.len(), ints(&[b]));
        let first = ints(&a);
        let at = |i: usize| (a[i].rem_euclid(3) as usize, b.rem_euclid(4) as usize);
        // Apart, the indices' dimension comes first: [n, 2]; so it does here side by side, as they stand in front.
        let (got, values): (Tensor, Vec<f64>) = if apart {
            let values = (0..n).flat_map(|i| (0..2).map(move |j| (i, j))).map(|(i, j)| { let (x, z) = at(i); ((x * 2 + j) * 4 + z) as f64 }).collect();
            (t.at(&[I::Tensor(first), all(), I::Tensor(second)]).unwrap(), values)
        } else {
            let y = ints(&[b.rem_euclid(2)]);
            let values = (0..n).flat_map(|i| (0..4).map(move |k| (i, k))).map(|(i, k)| ((at(i).0 * 2 + b.rem_euclid(2) as usize) * 4 + k) as f64).collect();
            (t.at(&[I::Tensor(first), I::Tensor(y)]).unwrap(), values)
        };
        prop_assert_eq!(&got.sizes()[..], &[n, if apart { 2 } else { 4 }]);
        prop_assert_eq!(got.to_vec::<f64>().unwrap(), values);
    }
}

// ---- shapes, names, errors as recorded from PyTorch 2.13 --------------------------------------------------------------

#[test]
fn shapes_of_mixed_indices() -> Result<()> {
    let q = tensor(&[2, 3, 4]);
    let two = || I::Tensor(ints(&[0, 1]));
    let m = || I::Tensor(mask(&[true, false, true, true, true, false], &[2, 3]));
    let flag = |b| I::Tensor(rustgrad::ops::to_dtype(&Tensor::from(b), DType::Bool).unwrap());
    let cases: Vec<(Vec<I>, &[usize])> = vec![
        (vec![two(), all(), two()], &[2, 3]),
        (vec![two(), I::Int(0), two()], &[2]),
        (vec![all(), two(), two()], &[2, 2]),
        (vec![I::Int(0), all(), two()], &[3, 2]),
        (vec![two(), I::None, two()], &[2, 1, 4]),
        (vec![all(), I::Tensor(ints(&[]))], &[2, 0, 4]),
        (vec![m(), range(0, 2, 1)], &[4, 2]),
        (vec![m(), I::Int(1)], &[4]),
        (vec![m(), all(), I::None], &[4, 4, 1]),
        (vec![m(), I::None], &[4, 1, 4]),
        (vec![m(), I::Tensor(ints(&[0, 1, 2, 3]))], &[4]),
        (vec![I::Bool(true)], &[1, 2, 3, 4]),
        (vec![I::Bool(false)], &[0, 2, 3, 4]),
        (vec![I::Bool(true), I::Int(0)], &[1, 3, 4]),
        (vec![flag(true)], &[1, 2, 3, 4]),
        (vec![flag(false)], &[0, 2, 3, 4]),
        (vec![I::Ellipsis, I::Int(0), I::Ellipsis], &[2, 3]),
        (vec![I::Int(0), I::Ellipsis, I::Int(0), I::Ellipsis, I::Int(0)], &[]),
        (vec![I::Bool(true), two()], &[2, 3, 4]),
        (vec![I::Tensor(Tensor::from(1i64)), all(), I::Tensor(Tensor::from(1i64))], &[3]),
    ];
    for (items, want) in cases {
        assert_eq!(&q.at(&items)?.sizes()[..], want, "{items:?}");
    }
    let huge = Tensor::from(1.0).expand([1i64 << 33])?;
    assert_eq!(huge.at(&[I::Int(5)])?.item()?.to_f64(), 1.0);
    assert_eq!(&huge.at(&[range(3, 1 << 32, 2)])?.sizes()[..], &[((1usize << 32) - 3).div_ceil(2)]);
    Ok(())
}

#[test]
fn histories_have_pytorchs_names() -> Result<()> {
    let x = tensor(&[2, 3]).requires_grad_(true)?;
    let two = || I::Tensor(ints(&[0, 1]));
    let cases: Vec<(Vec<I>, &str)> = vec![
        (vec![I::Int(0)], "SelectBackward0"),
        (vec![I::Tensor(Tensor::from(0i64))], "SelectBackward0"),
        (vec![range(0, 1, 1)], "SliceBackward0"),
        (vec![all()], "SliceBackward0"),
        (vec![], "AliasBackward0"),
        (vec![I::Ellipsis], "AliasBackward0"),
        (vec![two()], "IndexBackward0"),
        (vec![I::Bool(true)], "IndexBackward0"),
    ];
    for (items, want) in cases {
        assert_eq!(name(&x.at(&items)?), want, "{items:?}");
    }
    let edges = |t: &Tensor| t.grad_fn().unwrap().node().map_or(0, |n| n.edges.len());
    assert_eq!(edges(&x.gather(0, Tensor::from_slice(&[0i64], &[1, 1])?)?), 1);
    assert_eq!(edges(&x.index_put(vec![Some(ints(&[0]))], Tensor::scalar(1.0, DType::F64)?, false)?), 2);

    // In place: on a tensor the row's node, on a view CopySlices.
    let y = &x * 1.0;
    y.set_at(&[two()], 1.0)?;
    assert_eq!(name(&y), "IndexPutBackward0");
    let y = &x * 1.0;
    y.set_at(&[I::Int(0)], 1.0)?;
    assert_eq!(name(&y), "CopySlices");
    let y = &x * 1.0;
    y.set_at(&[I::Int(0), I::Tensor(ints(&[0, 2]))], 5.0)?;
    assert_eq!(name(&y), "CopySlices");
    y.sum((), false)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [0.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn assignments_send_gradients_to_both_sides() -> Result<()> {
    let x = tensor(&[2, 3]).requires_grad_(true)?;
    let v = Tensor::from_slice(&[10.0, 20.0, 30.0], &[1, 1, 3])?.requires_grad_(true)?;
    let y = &x * 2.0;
    y.set_at(&[I::Int(1)], &v)?;
    (&y * &y).sum((), false)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f64>()?, [0.0, 8.0, 16.0, 0.0, 0.0, 0.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f64>()?, [20.0, 40.0, 60.0]);
    assert_eq!(v.grad().unwrap().sizes(), v.sizes());

    let (x, w) = (tensor(&[3]).requires_grad_(true)?, Tensor::scalar(7.0, DType::F64)?.requires_grad_(true)?);
    let y = &x * 1.0;
    y.set_at(&[I::Tensor(mask(&[true, false, true], &[3]))], &w)?;
    assert_eq!(y.to_vec::<f64>()?, [7.0, 1.0, 7.0]);
    (&y * &y).sum((), false)?.backward()?;
    assert_eq!((x.grad().unwrap().to_vec::<f64>()?, w.grad().unwrap().item()?.to_f64()), (vec![0.0, 2.0, 0.0], 28.0));
    Ok(())
}

#[test]
fn refusals_have_pytorchs_classes_and_words() {
    let x = tensor(&[2, 3]);
    let scalar = Tensor::from(3.0);
    let expect = |got: Result<Tensor>, class: &str, words: &str| {
        let error = got.expect_err(words);
        let have = match &error {
            Error::Index { .. } => "IndexError",
            Error::Value { .. } => "ValueError",
            Error::Runtime { .. } => "RuntimeError",
            _ => "another",
        };
        assert!(have == class && error.to_string().starts_with(words), "{have}: {error}\nwanted {class}: {words}");
    };
    let i = |t: Tensor| I::Tensor(t);
    expect(x.at(&[I::Int(5)]), "IndexError", "index 5 is out of bounds for dimension 0 with size 2");
    expect(x.at(&[I::Int(0), I::Int(-4)]), "IndexError", "index -4 is out of bounds for dimension 1 with size 3");
    expect(x.at(&[I::Int(0), I::Int(0), I::Int(0)]), "IndexError", "too many indices for tensor of dimension 2");
    expect(x.at(&[range(0, 2, -1)]), "ValueError", "step must be greater than zero");
    expect(x.at(&[range(0, 2, 0)]), "ValueError", "slice step cannot be zero");
    expect(x.at(&[i(ints(&[0, 2]))]), "IndexError", "index 2 is out of bounds for dimension 0 with size 2");
    expect(x.at(&[all(), i(ints(&[-4]))]), "IndexError", "index -4 is out of bounds for dimension 1 with size 3");
    expect(x.at(&[i(tensor(&[1]))]), "IndexError", "tensors used as indices must be long, int, byte or bool tensors");
    expect(
        x.at(&[i(mask(&[true; 3], &[3]))]),
        "IndexError",
        "The shape of the mask [3] at index 0 does not match the shape of the indexed tensor [2, 3] at index 0",
    );
    expect(
        x.at(&[i(ints(&[0, 1])), i(ints(&[0, 1, 2]))]),
        "IndexError",
        "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
    );
    expect(scalar.at(&[I::Int(0)]), "IndexError", "invalid index of a 0-dim tensor. Use `tensor.item()`");
    expect(scalar.at(&[all()]), "IndexError", "slice() cannot be applied to a 0-dim tensor.");
    expect(tensor(&[0, 3]).at(&[i(ints(&[0]))]), "IndexError", "index is out of bounds for dimension with size 0");
    let set = |items: &[I], v: &Tensor| x.set_at(items, v).map(|()| x.clone());
    expect(
        set(&[I::Int(0)], &tensor(&[2])),
        "RuntimeError",
        "The expanded size of the tensor (3) must match the existing size (2) at non-singleton dimension 0",
    );
    expect(
        set(&[i(ints(&[0]))], &tensor(&[2])),
        "RuntimeError",
        "shape mismatch: value tensor of shape [2] cannot be broadcast to indexing result of shape [1, 3]",
    );
    expect(
        set(&[i(mask(&[true; 6], &[2, 3]))], &tensor(&[5])),
        "RuntimeError",
        "shape mismatch: value tensor of shape [5] cannot be broadcast to indexing result of shape [6]",
    );
    expect(
        set(&[i(ints(&[0]))], &ints(&[1])),
        "RuntimeError",
        "Index put requires the source and destination dtypes match, got Double for the destination and Long for the source.",
    );
    expect(
        set(&[i(ints(&[0, 1]))], &x),
        "RuntimeError",
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location",
    );
    // A failure leaves the tensor as it was.
    expect(set(&[i(ints(&[0, 1, 9]))], &tensor(&[3])), "IndexError", "index 9 is out of bounds");
    assert_eq!((x.to_vec::<f64>().unwrap(), x.version()), (vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0));
    let leaf = tensor(&[2, 3]).requires_grad_(true).unwrap();
    let error = leaf.set_at(&[I::Int(0)], 1.0).unwrap_err().to_string();
    assert!(
        error.starts_with("a view of a leaf Variable that requires grad is being used in an in-place operation."),
        "{error}"
    );
    let error = leaf.set_at(&[I::Tensor(ints(&[0]))], 1.0).unwrap_err().to_string();
    assert!(error.starts_with("a leaf Variable that requires grad is being used in an in-place operation."), "{error}");
    no_grad(|| leaf.set_at(&[I::Int(0)], 1.0)).unwrap();
}

#[test]
fn saved_indices_are_guarded_by_their_version() -> Result<()> {
    let x = tensor(&[4]).requires_grad_(true)?;
    for row in 0..3 {
        let index = ints(&[1, 2]);
        let y = match row {
            0 => x.at(&[I::Tensor(index.clone())])?,
            1 => x.gather(0, &index)?,
            _ => x.index_select(0, &index)?,
        };
        index.set_at(&[I::Int(0)], 3)?;
        let error = y.sum((), false)?.backward().unwrap_err().to_string();
        assert!(error.contains("modified by an inplace operation: [torch.LongTensor [2]]"), "{error}");
    }
    Ok(())
}

#[test]
fn half_sums_are_rounded_once() -> Result<()> {
    // 4096 times 0.0003 in float16 steps would stop at 1; PyTorch's scatter_add gives 1.2285.
    let (n, zeros) = (4096, |d: DType| rustgrad::ops::zeros(&[1], d));
    let index = rustgrad::ops::zeros(&[n], DType::I64)?;
    let parts = rustgrad::ops::full(&[n], 0.0003.into(), DType::F16)?;
    for sum in [
        zeros(DType::F16)?.scatter_add(0, &index, &parts)?,
        zeros(DType::F16)?.index_add(0, &index, &parts)?,
        zeros(DType::F16)?.put(&index, &parts, true)?,
    ] {
        assert!((sum.item()?.to_f64() - 1.2285).abs() < 1e-3, "{sum}");
    }
    Ok(())
}

#[test]
fn sums_at_one_place_have_the_order_of_their_parts() -> Result<()> {
    // In this order the small numbers survive only if they are added last.
    let parts = [1e16, -1e16, 1.0, 1e16, 1.0, -1e16];
    let want = parts.iter().sum::<f64>();
    let t = rustgrad::ops::zeros(&[3], DType::F64)?;
    let index = ints(&[1; 6]);
    let source = Tensor::from_slice(&parts, &[6])?;
    for sum in [
        t.scatter_add(0, &index, &source)?,
        t.index_add(0, &index, &source)?,
        t.index_put(vec![Some(index.clone())], &source, true)?,
    ] {
        assert_eq!(sum.to_vec::<f64>()?, [0.0, want, 0.0]);
    }
    Ok(())
}

#[test]
fn embeddings_pad_scale_and_shorten() -> Result<()> {
    let w = tensor(&[4, 2]).requires_grad_(true)?;
    let index = ints(&[1, 3, 1]);
    Tensor::embedding(&w, &index, 3, true, false)?.sum((), false)?.backward()?;
    assert_eq!(w.grad().unwrap().to_vec::<f64>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    // PyTorch: rows longer than 1 are brought to 1 / (norm + 1e-7) of their length, in place.
    let table = Tensor::from_slice(&[3.0, 4.0, 0.1, 0.1], &[2, 2])?;
    let out = Tensor::embedding_lookup(ints(&[0, 0, 1]), &table, None, 1.0, 2.0, false, false)?.to_vec::<f64>()?;
    assert!((out[0] - 0.6).abs() < 1e-7 && (out[1] - 0.8).abs() < 1e-7 && out[4] == 0.1);
    assert_eq!((table.to_vec::<f64>()?[..2] == out[..2], table.version()), (true, 1));
    let error = Tensor::embedding(&w, ints(&[4]), -1, false, false).unwrap_err();
    assert!(
        matches!(error, Error::Index { .. }) && error.to_string().starts_with("index out of range in self"),
        "{error}"
    );
    Ok(())
}

#[test]
fn an_update_in_place_copies_nothing_but_what_it_writes() -> Result<()> {
    let t = tensor(&[1000]);
    let before = t.at(&[range(0, 1, 1)])?;
    in_place(
        "index_add",
        smallvec::smallvec![
            Arg::Tensor(t.clone()),
            Arg::Int(0),
            Arg::Tensor(ints(&[0, 0])),
            Arg::Tensor(tensor(&[2])),
            Arg::None
        ],
    )?;
    // The view made before sees the change: the memory is the same.
    assert_eq!(before.to_vec::<f64>()?, [1.0]);
    assert_eq!((t.version(), before.version()), (1, 1));
    Ok(())
}
