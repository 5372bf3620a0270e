//! Trains a small network on the handwritten digits without Python: tensors, autograd and an optimiser written with the
//! crate's operations alone.
//!
//! ```console
//! $ cargo run --release --example train
//! ```

use rustgrad::autograd::no_grad;
use rustgrad::ops::random::manual_seed;
use rustgrad::{DType, Error, Result, Tensor};

/// 1,797 images of 8 by 8 pixels, one a line: 64 intensities from 0 to 16, then the digit. See tests/data/digits.md.
const DIGITS: &str = include_str!("../tests/data/digits.csv");
const TRAINING: usize = 1437;
const BATCH: usize = 64;
const EPOCHS: usize = 30;

struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Weights from the uniform distribution of He et al. (2015), as PyTorch's `Linear` draws them.
    fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = 1.0 / (inputs as f64).sqrt();
        let draw = |sizes: &[usize]| Tensor::rand(sizes)?.mul(2.0 * bound)?.sub(bound)?.requires_grad_(true);
        Ok(Linear { weight: draw(&[outputs, inputs])?, bias: draw(&[outputs])? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, &self.bias)
    }
}

/// Adam (Kingma & Ba 2015) over a list of parameters.
struct Adam {
    parameters: Vec<Tensor>,
    moments: Vec<(Tensor, Tensor)>,
    steps: i32,
}

impl Adam {
    fn new(parameters: Vec<Tensor>) -> Result<Adam> {
        let zeros = |p: &Tensor| Ok((rustgrad::ops::zeros_like(p)?, rustgrad::ops::zeros_like(p)?));
        let moments = parameters.iter().map(zeros).collect::<Result<_>>()?;
        Ok(Adam { parameters, moments, steps: 0 })
    }

    fn step(&mut self, rate: f64) -> Result<()> {
        let (b1, b2) = (0.9, 0.999);
        self.steps += 1;
        let (c1, c2) = (1.0 - f64::powi(b1, self.steps), 1.0 - f64::powi(b2, self.steps));
        no_grad(|| {
            for (p, (m, v)) in self.parameters.iter().zip(&mut self.moments) {
                let Some(g) = p.grad() else { continue };
                *m = m.mul(b1)?.add(&g.mul(1.0 - b1)?)?;
                *v = v.mul(b2)?.add(&g.mul(&g)?.mul(1.0 - b2)?)?;
                let change = m.true_divide(c1)?.true_divide(&v.true_divide(c2)?.sqrt()?.add(1e-8)?)?;
                p.set_data(&p.sub(&change.mul(rate)?)?)?;
                p.set_grad(None)?;
            }
            Ok(())
        })
    }
}

fn digits() -> Result<(Tensor, Tensor)> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for line in DIGITS.lines() {
        let mut row: Vec<f32> = line.split(',').filter_map(|v| v.parse().ok()).collect();
        let Some(label) = row.pop().filter(|_| row.len() == 64) else {
            return Err(Error::value("digits", format!("not 64 pixels and a digit: {line:?}")));
        };
        labels.push(label as i64);
        pixels.extend(row.into_iter().map(|v| v / 8.0 - 1.0));
    }
    let n = labels.len();
    Ok((Tensor::from_slice(&pixels, &[n, 64])?, Tensor::from_slice(&labels, &[n])?))
}

fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<f64> {
    let right = logits.argmax(1i64, false)?.eq(labels)?;
    Ok(rustgrad::ops::to_dtype(&right, DType::F64)?.mean_all()?.item()?.to_f64())
}

fn main() -> Result<()> {
    manual_seed(0);
    let (x, y) = digits()?;
    let order = Tensor::randperm(x.sizes()[0] as i64)?;
    let (x, y) = (x.index_select(0, &order)?, y.index_select(0, &order)?);
    let part = |t: &Tensor, from: usize, to: usize| t.narrow(0, from as i64, (to - from) as i64);
    let (test_x, test_y) = (part(&x, TRAINING, x.sizes()[0])?, part(&y, TRAINING, y.sizes()[0])?);

    let layers = [Linear::new(64, 96)?, Linear::new(96, 10)?];
    let model = |x: &Tensor| layers[1].forward(&layers[0].forward(x)?.relu()?);
    let mut adam = Adam::new(layers.iter().flat_map(|l| [l.weight.clone(), l.bias.clone()]).collect())?;

    let mut held_out = 0.0;
    for epoch in 1..=EPOCHS {
        let shuffled = Tensor::randperm(TRAINING as i64)?;
        let mut total = 0.0;
        for start in (0..TRAINING - BATCH).step_by(BATCH) {
            let batch = part(&shuffled, start, start + BATCH)?;
            let (bx, by) = (x.index_select(0, &batch)?, y.index_select(0, &batch)?);
            let loss = model(&bx)?.cross_entropy(&by, None::<Tensor>, -100i64, "mean".to_string(), 0.0)?;
            loss.backward()?;
            adam.step(2e-3)?;
            total += loss.item()?.to_f64();
        }
        held_out = no_grad(|| accuracy(&model(&test_x)?, &test_y))?;
        if epoch % 5 == 0 {
            println!("epoch {epoch:2}  loss {:.4}  held-out accuracy {held_out:.4}", total / (TRAINING / BATCH) as f64);
        }
    }
    if held_out < 0.96 {
        return Err(Error::runtime("train", format!("held-out accuracy {held_out:.4} is below 0.96")));
    }
    Ok(())
}
