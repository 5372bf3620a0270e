//! Sources of random numbers: a counter and a key. What is drawn follows from the seed and from how many numbers were drawn
//! before, never from threads or chunks. The operations that draw are rows in `random`.

use super::combine::fresh;
use crate::backend::cpu::draw::{Draw, draw};
use crate::backend::cpu::random::GeneratorState;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::sync::lock::Mutex;
use crate::tensor::{Body, Tensor};
use crate::threads::Stoppable;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

/// A source of random numbers. Cloning shares it. The default one is the process's.
#[derive(Clone, Debug)]
pub struct Generator(pub(super) Arc<Mutex<GeneratorState>>);

/// The seed of a generator that was given none.
const DEFAULT_SEED: u64 = 67_280_421_310_721;

impl Default for Generator {
    /// The process's generator, seeded by chance at first.
    fn default() -> Generator {
        static DEFAULT: OnceLock<Generator> = OnceLock::new();
        DEFAULT.get_or_init(|| Generator::with_seed(by_chance())).clone()
    }
}

impl Generator {
    /// A generator of its own, always with the same seed.
    pub fn new() -> Generator {
        Generator::with_seed(DEFAULT_SEED)
    }

    /// A generator of its own with that seed.
    pub fn with_seed(seed: u64) -> Generator {
        Generator(Arc::new(Mutex::new(GeneratorState::new(seed))))
    }

    /// Starts again from a seed.
    pub fn manual_seed(&self, seed: u64) -> &Generator {
        *self.0.lock() = GeneratorState::new(seed);
        self
    }

    /// Starts again from a seed found by chance, and returns it.
    pub fn seed(&self) -> u64 {
        let seed = by_chance();
        self.manual_seed(seed);
        seed
    }

    /// The seed it started from.
    pub fn initial_seed(&self) -> u64 {
        self.0.lock().seed
    }

    /// Its state, as a uint8 tensor.
    ///
    /// # Errors
    /// `RuntimeError` if memory runs out.
    pub fn get_state(&self) -> Result<Tensor> {
        Tensor::from_slice(&self.0.lock().to_bytes(), &[16])
    }

    /// Goes back to a state that [`get_state`](Self::get_state) returned.
    ///
    /// # Errors
    /// `RuntimeError` for a tensor that is no such state.
    pub fn set_state(&self, state: &Tensor) -> Result<()> {
        if state.dtype() != DType::U8 {
            bail!(type_ "set_state", "expected a torch.ByteTensor, but got a tensor of dtype {}", state.dtype());
        }
        let bytes = state.to_vec::<u8>()?;
        let Ok(bytes) = <[u8; 16]>::try_from(&bytes[..]) else {
            bail!(runtime "set_state", "Expected a generator state of size 16 but found the input RNG state size to be {}", bytes.len());
        };
        *self.0.lock() = GeneratorState::from_bytes(bytes);
        Ok(())
    }

    /// Whether both are the same source.
    pub fn is(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Fills row-major memory of its own.
    pub(super) fn fill(&self, to: &Body, what: Draw) {
        let n = to.layout.numel() as u64;
        let (philox, first) = {
            let mut state = self.0.lock();
            (state.philox(), state.reserve(n))
        };
        draw(&to.operand(), philox, first, what);
    }

    /// A fresh tensor of a distribution.
    pub(super) fn draw(&self, op: &'static str, sizes: &[usize], dtype: DType, what: Draw) -> Result<Tensor> {
        let body = fresh(op, sizes.into(), dtype)?;
        let _fresh = Stoppable::fresh_if_long(body.layout.numel());
        self.fill(&body, what);
        Ok(Tensor::from_body(body))
    }
}

/// Seeds the process's generator and returns it.
pub fn manual_seed(seed: u64) -> Generator {
    let generator = Generator::default();
    generator.manual_seed(seed);
    generator
}

/// A number that nobody can know beforehand, from the keys that the standard library draws for its hash maps.
fn by_chance() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
