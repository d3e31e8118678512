//! Which key a request names: uniform, or Zipf.

use std::fmt;

use weir_base::Rng;

/// How often each key is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// Key `k` (from 0) with a probability proportional to `1 / (k + 1)^exponent`.
    Zipf {
        /// Above 0. Caches in the field show 0.6 to 1.2.
        exponent: f64,
    },
}

/// `uniform`, `zipf(0.99)`.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf({exponent})"),
        }
    }
}

/// Draws key indices below a count.
#[derive(Clone, Debug)]
pub struct KeyPicker(Picker);

#[derive(Clone, Debug)]
enum Picker {
    Uniform { count: u64 },
    Zipf(Zipf),
}

impl KeyPicker {
    /// A picker among `count` keys; a count of 0 is read as 1.
    #[must_use]
    pub fn new(distribution: Distribution, count: u64) -> Self {
        let count = count.max(1);
        Self(match distribution {
            Distribution::Uniform => Picker::Uniform { count },
            Distribution::Zipf { exponent } => Picker::Zipf(Zipf::new(count, exponent)),
        })
    }

    /// The next key, from 0.
    pub fn pick(&self, rng: &mut Rng) -> u64 {
        match &self.0 {
            Picker::Uniform { count } => rng.below(*count),
            Picker::Zipf(zipf) => zipf.rank(rng) - 1,
        }
    }
}

/// Rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6(3), 1996): exact up to the rounding of `f64`, constant memory, about 1.1 draws a rank.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    /// Integral of the density up to 1.5, less the whole mass of rank 1.
    area_first: f64,
    /// Integral of the density up to `count + 0.5`.
    area_last: f64,
    /// Below this distance from the drawn point a rank is taken without the second look.
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let count = count as f64;
        let mut zipf = Self { count, exponent, area_first: 0.0, area_last: 0.0, squeeze: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// From 1.
    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_last + rng.unit() * (self.area_first - self.area_last);
            let point = self.area_inverse(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.count);
            if rank - point <= self.squeeze || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the density from 1 to `x`; continuous in the exponent, 1 included.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_m1_over((1.0 - self.exponent) * log) * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        // Rounding can leave the range of the logarithm by a hair.
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (ln_1p_over(t) * area).exp()
    }
}

/// Below this the quotients are replaced by their series, whose error is then beyond the last bit.
const SERIES_BELOW: f64 = 1e-8;

/// `ln(1 + x) / x`.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > SERIES_BELOW { x.ln_1p() / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)) }
}

/// `(e^x - 1) / x`.
fn exp_m1_over(x: f64) -> f64 {
    if x.abs() > SERIES_BELOW { x.exp_m1() / x } else { 1.0 + x * 0.5 * (1.0 + x / 3.0 * (1.0 + 0.25 * x)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of `draws` against `weights`, and its degrees of freedom. Cells that expect under 10 are pooled.
    fn chi_square(distribution: Distribution, weights: &[f64], draws: u32, seed: u64) -> (f64, f64) {
        let picker = KeyPicker::new(distribution, weights.len() as u64);
        let mut rng = Rng::new(seed);
        let mut seen = vec![0u32; weights.len()];
        for _ in 0..draws {
            seen[usize::try_from(picker.pick(&mut rng)).unwrap()] += 1;
        }
        let total: f64 = weights.iter().sum();
        let (mut chi, mut cells, mut rest_seen, mut rest_expected) = (0.0, 0.0, 0.0, 0.0);
        for (weight, seen) in weights.iter().zip(seen) {
            rest_expected += f64::from(draws) * weight / total;
            rest_seen += f64::from(seen);
            if rest_expected >= 10.0 {
                chi += (rest_seen - rest_expected).powi(2) / rest_expected;
                (cells, rest_seen, rest_expected) = (cells + 1.0, 0.0, 0.0);
            }
        }
        (chi, cells - 1.0)
    }

    /// Within 5 standard deviations of what chi-square is if the draws follow the weights.
    fn assert_follows(distribution: Distribution, weights: &[f64]) {
        let (chi, freedom) = chi_square(distribution, weights, 400_000, 11);
        let bound = freedom + 5.0 * (2.0 * freedom).sqrt();
        assert!(freedom > 0.0 && chi < bound, "{distribution}: {chi} of at most {bound}");
    }

    #[test]
    fn zipf_frequencies_are_the_theoretical_ones() {
        for exponent in [0.3, 0.5, 0.99, 1.0, 1.01, 1.5, 3.0] {
            for count in [2u32, 10, 1_000] {
                let weights: Vec<f64> = (1..=count).map(|k| f64::from(k).powf(-exponent)).collect();
                assert_follows(Distribution::Zipf { exponent }, &weights);
            }
        }
    }

    #[test]
    fn the_test_of_frequencies_can_fail() {
        let weights: Vec<f64> = (1..=100).map(|k| f64::from(k).powf(-1.05)).collect();
        let (chi, freedom) = chi_square(Distribution::Zipf { exponent: 1.0 }, &weights, 400_000, 11);
        assert!(chi > freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi}");
    }

    #[test]
    fn uniform_names_all_keys_alike() {
        assert_follows(Distribution::Uniform, &[1.0; 500]);
    }

    #[test]
    fn the_ends_of_the_key_space_are_reached_and_never_left() {
        let mut rng = Rng::new(5);
        for (count, exponent) in [(1, 1.0), (2, 10.0), (1 << 40, 0.2), (1 << 40, 1.0), (1_000_000, 0.001)] {
            let picker = KeyPicker::new(Distribution::Zipf { exponent }, count);
            let picks: Vec<u64> = (0..20_000).map(|_| picker.pick(&mut rng)).collect();
            assert!(picks.iter().all(|key| *key < count), "{count} {exponent}");
            let is_wide = count > 2 && exponent < 0.5;
            assert!(!is_wide || picks.iter().any(|key| *key > count / 100 * 99), "{count} {exponent}");
        }
        assert_eq!(KeyPicker::new(Distribution::Uniform, 0).pick(&mut rng), 0);
    }
}
