//! What is compared with what, and how much of the other's CPU time is aimed at.

use weir_knee::Ratio;

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison<R: 'static> {
    /// Whose CPU time stands above the line.
    pub(crate) ours: &'static str,
    /// Whose stands below.
    pub(crate) theirs: &'static str,
    /// Largest ratio that meets the target; `None`: this row has no target.
    pub(crate) at_most: fn(&R) -> Option<f64>,
}

/// Whether the median meets the target. If the interval reaches over it, the blocks do not settle the question, and
/// the verdict says so.
pub(crate) fn verdict(ratio: &Ratio, at_most: Option<f64>) -> String {
    let Some(at_most) = at_most else { return "-".into() };
    let open = if ratio.interval.0 <= at_most && at_most < ratio.interval.1 { " (interval reaches over)" } else { "" };
    if ratio.median <= at_most {
        format!("met{open}")
    } else {
        format!("missed by {:.3}{open}", ratio.median - at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(median: f64, interval: (f64, f64)) -> Ratio {
        Ratio { median, spread: interval, interval, blocks: 8 }
    }

    #[test]
    fn a_verdict_tells_by_how_much_and_whether_it_is_settled() {
        assert_eq!(verdict(&ratio(0.5, (0.48, 0.52)), Some(0.55)), "met");
        assert_eq!(verdict(&ratio(0.5, (0.48, 0.60)), Some(0.55)), "met (interval reaches over)");
        assert_eq!(verdict(&ratio(0.6, (0.58, 0.62)), Some(0.55)), "missed by 0.050");
        assert_eq!(verdict(&ratio(0.6, (0.5, 0.7)), None), "-");
    }
}
