//! Mean of repeats with a 95 % interval (Student's t; the repeats of one step are few).

use serde::{Deserialize, Serialize};

/// A mean and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of the 95 % interval; `None` for a single value, of which nothing is known.
    pub half_width: Option<f64>,
    /// How many values.
    pub n: u32,
}

impl Estimate {
    /// From the values of repeats; `None` without any.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let n = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let half_width = (values.len() > 1).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            t_975(values.len() - 1) * (variance / count).sqrt()
        });
        Some(Self { mean, half_width, n })
    }

    /// The interval, `None` for a single value.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.half_width.map(|half| (self.mean - half, self.mean + half))
    }
}

/// The 97.5 % quantile of Student's t; beyond the table the value of its last row, which is wider than the truth.
fn t_975(degrees: usize) -> f64 {
    T_975.get(degrees.saturating_sub(1)).or(T_975.last()).copied().unwrap_or(f64::INFINITY)
}

/// Degrees of freedom 1 to 20.
const T_975: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_repeats_have_the_interval_of_the_textbook() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]).unwrap();
        // s = 1, t(2) = 4.303: 4.303 / sqrt(3).
        let (low, high) = estimate.interval().unwrap();
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((low - (10.0 - 2.4843)).abs() < 1e-3 && (high - (10.0 + 2.4843)).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_mean() {
        assert_eq!(Estimate::of(&[5.0]).unwrap().interval(), None);
        assert_eq!(Estimate::of(&[]), None);
    }
}
