//! The generator against its published answers, the fills against their definitions and against statistics. Seeds are fixed,
//! so a test of statistics either always passes or always fails; its bounds are those of one chance in a million or less.

use proptest::prelude::*;

use super::*;

/// From the file `kat_vectors` of the Random123 distribution: counter, key, answer of philox4x32 with 10 rounds.
const KNOWN: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
    ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
    ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
    (
        [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
        [0xa409_3822, 0x299f_31d0],
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
    ),
];

#[test]
fn known_answers() {
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    for (counter, key, answer) in KNOWN {
        let philox = Philox::new(join(key[0], key[1]));
        assert_eq!(philox.block(join(counter[0], counter[1]), join(counter[2], counter[3])), answer);
    }
}

#[test]
fn groups_are_eight_blocks() {
    let philox = Philox::new(0x0123_4567_89ab_cdef);
    for group in [0, 1, (1 << 29) - 1, u64::MAX / 8] {
        let words = philox.group(group, 77);
        for lane in 0..LANES as u64 {
            let block = philox.block(8 * group + lane, 77);
            assert_eq!(words.map(|word| word[lane as usize] as u32), block);
        }
    }
}

/// The bits of a fill, by its number.
const FILLS: usize = 10;
fn fill(philox: &Philox, which: usize, n: usize, start: u64) -> Vec<u64> {
    fn bits<T: Copy + Default>(n: usize, bits: impl Fn(T) -> u64, fill: impl FnOnce(&mut [T])) -> Vec<u64> {
        let mut out = vec![T::default(); n];
        fill(&mut out);
        out.into_iter().map(bits).collect()
    }
    let float = |v: f32| u64::from(v.to_bits());
    match which {
        0 => bits(n, float, |out| philox.uniform_f32(out, start)),
        1 => bits(n, f64::to_bits, |out| philox.uniform_f64(out, start)),
        2 => bits(n, float, |out| philox.normal_f32(out, start)),
        3 => bits(n, f64::to_bits, |out| philox.normal_f64(out, start)),
        4 => bits(n, float, |out| philox.exponential_f32(out, start, 1.5)),
        5 => bits(n, f64::to_bits, |out| philox.exponential_f64(out, start, 1.5)),
        6 => bits(n, |v: i64| v as u64, |out| philox.randint(out, start, -5, 1000)),
        7 => bits(n, |v: i64| v as u64, |out| philox.randint(out, start, i64::MIN, i64::MAX)),
        8 => bits(n, u64::from, |out: &mut [u8]| philox.bernoulli(out, start, 0.3)),
        _ => bits(n, float, |out| philox.fill_body(out, start, Stream::Normal32, &Normal32)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn an_element_does_not_depend_on_its_chunk(seed: u64, start in prop_oneof![0..100u64, any::<u64>()], cuts in prop::collection::vec(0..700usize, 0..6)) {
        let philox = Philox::new(seed);
        let n = 700;
        let mut cuts = cuts;
        cuts.extend([0, n]);
        cuts.sort_unstable();
        for which in 0..FILLS {
            let whole = fill(&philox, which, n, start);
            let parts: Vec<u64> = cuts
                .windows(2)
                .flat_map(|cut| fill(&philox, which, cut[1] - cut[0], start.wrapping_add(cut[0] as u64)))
                .collect();
            prop_assert_eq!(&whole, &parts, "fill {}", which);
        }
        // The build for this processor and the portable one agree to the bit.
        prop_assert_eq!(fill(&philox, 2, n, start), fill(&philox, 9, n, start));
    }

    #[test]
    fn a_permutation_holds_every_index_once(seed: u64, n in 0..500usize) {
        let mut order = vec![0; n];
        Philox::new(seed).randperm(&mut order, 3);
        order.sort_unstable();
        prop_assert_eq!(order, (0..n as i64).collect::<Vec<_>>());
    }

    #[test]
    fn integers_stay_in_range(seed: u64, low: i64, high: i64) {
        let mut out = [0; 100];
        Philox::new(seed).randint(&mut out, 0, low, high);
        for value in out {
            let inside = if high > low { (low..high).contains(&value) } else { value == low };
            prop_assert!(inside, "{}", value);
        }
    }

    #[test]
    fn state_survives_its_bytes(seed: u64, offset: u64) {
        let state = GeneratorState { seed, offset };
        prop_assert_eq!(GeneratorState::from_bytes(state.to_bytes()), state);
    }
}

#[test]
fn reservations_do_not_overlap() {
    let mut state = GeneratorState::new(5);
    assert_eq!(state.reserve(0), 0);
    assert_eq!(state.reserve(1), 0);
    assert_eq!(state.reserve(32), 32);
    assert_eq!(state.reserve(33), 64);
    assert_eq!(state.reserve(7), 128);
    assert_eq!(state.to_bytes(), *b"\x05\0\0\0\0\0\0\0\xa0\0\0\0\0\0\0\0");
    let fills: Vec<_> = (0..FILLS - 1).map(|which| fill(&state.philox(), which, 64, 0)).collect();
    assert_ne!(fills[0], fills[2]);
}

const N: usize = 1 << 20;

/// The largest distance between the sample's distribution and the one given. Beyond `2.7 / sqrt(n)` lies one chance in a
/// million (Kolmogorov's limit law, `2 exp(-2 x^2)`).
fn kolmogorov(mut sample: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    sample.sort_unstable_by(f64::total_cmp);
    let n = sample.len() as f64;
    let gaps = sample.iter().enumerate().map(|(i, &x)| {
        let p = distribution(x);
        (p - i as f64 / n).abs().max(((i + 1) as f64 / n - p).abs())
    });
    gaps.fold(0.0, f64::max)
}

fn check_distribution(sample: Vec<f64>, mean: f64, deviation: f64, distribution: impl Fn(f64) -> f64) {
    let n = sample.len() as f64;
    let found = sample.iter().sum::<f64>() / n;
    assert!((found - mean).abs() < 5.0 * deviation / n.sqrt(), "mean {found}");
    let spread = (sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    assert!((spread / deviation - 1.0).abs() < 10.0 / n.sqrt(), "deviation {spread}");
    // Neighbours, and elements a group apart, are not correlated.
    for step in [1, 2, 8, 16, 32] {
        let both = sample.iter().zip(&sample[step..]).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
        assert!((both / n / deviation.powi(2)).abs() < 5.0 / n.sqrt(), "correlation over {step}");
    }
    let gap = kolmogorov(sample, distribution);
    assert!(gap < 2.7 / n.sqrt(), "distance {gap}");
}

fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

#[test]
fn fills_have_their_distributions() {
    let philox = Philox::new(20_260_101);
    let mut single = vec![0.0f32; N];
    let mut double = vec![0.0f64; N];
    let wide = |sample: &[f32]| sample.iter().copied().map(f64::from).collect::<Vec<_>>();
    let third = 1.0 / 12f64.sqrt();
    philox.uniform_f32(&mut single, 7);
    check_distribution(wide(&single), 0.5, third, |x| x);
    philox.uniform_f64(&mut double, 7);
    check_distribution(double.clone(), 0.5, third, |x| x);
    philox.normal_f32(&mut single, 7);
    check_distribution(wide(&single), 0.0, 1.0, normal);
    philox.normal_f64(&mut double, 7);
    check_distribution(double.clone(), 0.0, 1.0, normal);
    philox.exponential_f32(&mut single, 7, 4.0);
    check_distribution(wide(&single), 0.25, 0.25, |x| -(-4.0 * x).exp_m1());
    philox.exponential_f64(&mut double, 7, 4.0);
    check_distribution(double.clone(), 0.25, 0.25, |x| -(-4.0 * x).exp_m1());
}

#[test]
fn uniforms_are_multiples_below_one() {
    let words: Words = [[0; LANES], [0xffff_ffff; LANES], [0x8000_0000; LANES], [0xff; LANES]];
    let mut single = [9.0; 32];
    Uniform32.make(&words, &mut single);
    assert_eq!([single[0], single[8], single[16], single[24]], [0.0, 1.0 - 2f32.powi(-24), 0.5, 0.0]);
    let ones: Words = [[0xffff_ffff; LANES]; 4];
    let mut double = [9.0; 16];
    Uniform64.make(&ones, &mut double);
    assert_eq!(double, [1.0 - 2f64.powi(-53); 16]);
}

#[test]
fn normal_tails_have_their_weight() {
    // Beyond 4 deviations lie 6.3342e-5 of all numbers (erfc(4 / sqrt 2)); of 2^22 that is 265.7, with a deviation of 16.3.
    let mut sample = vec![0.0f32; 1 << 22];
    Philox::new(1).normal_f32(&mut sample, 0);
    let beyond = sample.iter().filter(|x| x.abs() > 4.0).count() as f64;
    let expected = sample.len() as f64 * libm::erfc(4.0 / std::f64::consts::SQRT_2);
    assert!((beyond - expected).abs() < 5.0 * expected.sqrt(), "{beyond}, expected {expected}");
    assert!(sample.iter().all(|x| x.is_finite()));
}

#[test]
fn logarithm_is_accurate_and_positive_for_every_word() {
    let check = |word: u32| {
        let exact = if word < 1 << 31 {
            -libm::log((f64::from(word) + 0.5) / 2f64.powi(32))
        } else {
            -libm::log1p(-(f64::from(!word) + 0.5) / 2f64.powi(32))
        };
        let got = minus_log(word);
        assert!(got > 0.0 && (f64::from(got) / exact - 1.0).abs() < 4e-7, "{word}: {got}, expected {exact}");
    };
    (0..=u32::MAX).step_by(10_007).for_each(check);
    (0..1000).for_each(|i| {
        check(i);
        check(u32::MAX - i);
        check(1 << 31 | i);
        // Around the square root of a half, where the exponent changes.
        check(3_037_000_000 + i);
    });
    for shift in 0..64 {
        for word in [u64::MAX >> shift, !(u64::MAX >> shift), 1 << shift] {
            let exact = if word < 1 << 63 {
                -libm::log((word as f64 + 0.5) / 2f64.powi(64))
            } else {
                -libm::log1p(-(!word as f64 + 0.5) / 2f64.powi(64))
            };
            let got = distribution::minus_log_f64(word);
            assert!(got > 0.0 && (got / exact - 1.0).abs() < 1e-15, "{word}: {got}, expected {exact}");
        }
    }
}

fn minus_log(word: u32) -> f32 {
    distribution::minus_log_f32(word)
}

#[test]
fn angles_are_accurate_all_around() {
    for word in (0..=u32::MAX).step_by(10_007) {
        let exact = libm::sincos(f64::from(word) / 2f64.powi(32) * std::f64::consts::TAU);
        let single = distribution::sin_cos_f32(word);
        assert!((f64::from(single.0) - exact.0).abs() < 1.2e-7 && (f64::from(single.1) - exact.1).abs() < 1.2e-7);
        let double = distribution::sin_cos_f64(u64::from(word) << 32);
        // The reference itself rounds the angle, of up to 6.3, before it takes the sine.
        assert!((double.0 - exact.0).abs() < 1e-15 && (double.1 - exact.1).abs() < 1e-15);
    }
}

#[test]
fn integers_are_uniform() {
    let philox = Philox::new(99);
    let mut sample = vec![0; N];
    philox.randint(&mut sample, 0, -3, 7);
    // Chi-square with 9 degrees of freedom: beyond 45 lies one chance in a million.
    let mut counts = [0f64; 10];
    sample.iter().for_each(|&v| counts[(v + 3) as usize] += 1.0);
    let expected = N as f64 / 10.0;
    let chi_square: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
    assert!(chi_square < 45.0, "{chi_square}");
    // A range of 3 * 2^61: scaling 64 bits would make every third value twice as likely as the others.
    let range = 3 << 61;
    philox.randint(&mut sample, 0, 0, range);
    let mut counts = [0f64; 3];
    sample.iter().for_each(|&v| counts[(v % 3) as usize] += 1.0);
    let expected = N as f64 / 3.0;
    let chi_square: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
    assert!(chi_square < 28.0, "{chi_square}");
    let half = sample.iter().filter(|&&v| v < range / 2).count() as f64;
    assert!((half - N as f64 / 2.0).abs() < 5.0 * (N as f64 / 4.0).sqrt());
    // The short scaling is the exact one.
    let mut words = vec![0u64; 1000];
    philox.fill(&mut words, 0, Stream::Integer, &Bits64);
    for range in [1, 2, 1000, (1 << 32) - 1, 1 << 32] {
        let mut values = vec![0i64; 1000];
        philox.randint(&mut values, 0, 0, range);
        for (&word, &value) in words.iter().zip(&values) {
            assert_eq!(distribution::scale(word, range as u64), value as u64);
        }
    }
}

#[test]
fn events_have_their_probability() {
    let philox = Philox::new(4);
    let mut hits = vec![7u8; N];
    for p in [1e-4, 0.1, 0.5, 0.9] {
        philox.bernoulli(&mut hits, 11, p);
        assert!(hits.iter().all(|&h| h <= 1));
        let found: f64 = hits.iter().map(|&h| f64::from(h)).sum();
        let (mean, deviation) = (p * N as f64, (p * (1.0 - p) * N as f64).sqrt());
        assert!((found - mean).abs() < 5.0 * deviation, "{p}: {found}");
    }
    for (p, always) in [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (1.0, 1), (2.0, 1), (f64::INFINITY, 1)] {
        philox.bernoulli(&mut hits, 0, p);
        assert!(hits.iter().all(|&h| h == always), "{p}");
    }
}

#[test]
fn permutations_are_uniform() {
    // All 24 orders of four things. Chi-square with 23 degrees of freedom: beyond 72 lies one chance in a million.
    let philox = Philox::new(8);
    let mut counts = [0f64; 256];
    let runs = 24_000;
    for run in 0..runs {
        let mut order = [0; 4];
        philox.randperm(&mut order, 32 * run);
        counts[order.iter().fold(0, |code, &v| 4 * code + v as usize)] += 1.0;
    }
    let expected = runs as f64 / 24.0;
    let seen: Vec<f64> = counts.into_iter().filter(|&c| c > 0.0).collect();
    assert_eq!(seen.len(), 24);
    let chi_square: f64 = seen.iter().map(|c| (c - expected).powi(2) / expected).sum();
    assert!(chi_square < 72.0, "{chi_square}");
}
