//! A threshold with hysteresis: an alert that it decides begins once and ends once.

use std::time::Duration;

use weir_base::time::Time;

/// A threshold is left below this share of it.
const FALL_BACK: f64 = 0.9;
/// A threshold is left after this long below [`FALL_BACK`]. Default 10 s: balancers ask every few seconds and believe
/// two or three responses alike, so what changes faster would be noise to them, and two lines a time in the log.
pub const HOLD: Duration = Duration::from_secs(10);

/// Whether a value is above a threshold, in a way that does not flap.
#[derive(Default)]
pub struct Threshold {
    /// While it counts as above: when it last was not clearly below.
    last_high: Option<Time>,
}

/// Which way a threshold was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// It is above now.
    Up,
    /// It is below again.
    Down,
}

impl Threshold {
    /// The value is above, or was not clearly below for long enough.
    pub fn is_over(&self) -> bool {
        self.last_high.is_some()
    }

    /// Notes the value of now; whether that crosses the threshold.
    pub fn look(&mut self, now: Time, value: f64, threshold: f64) -> Option<Crossing> {
        match self.last_high {
            None if value >= threshold => {
                self.last_high = Some(now);
                Some(Crossing::Up)
            }
            None => None,
            Some(_) if value >= threshold * FALL_BACK => {
                self.last_high = Some(now);
                None
            }
            Some(last) if now.since(last) >= HOLD => {
                self.last_high = None;
                Some(Crossing::Down)
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_threshold_is_crossed_once_however_the_load_jitters() {
        let mut threshold = Threshold::default();
        let mut crossings = Vec::new();
        for look in 0..400_u64 {
            // Around the threshold for fifty seconds, then clearly below it.
            let value = if look < 200 { 0.8 + 0.05 * f64::from((look % 5) as u8) - 0.1 } else { 0.5 };
            crossings.extend(threshold.look(at(look * 250), value, 0.8).map(|crossed| (look, crossed)));
        }
        assert_eq!(crossings.len(), 2, "{crossings:?}");
        assert_eq!(crossings[0], (2, Crossing::Up));
        let (look, crossed) = crossings[1];
        assert_eq!(crossed, Crossing::Down);
        assert!((238..=242).contains(&look), "{look}: ten seconds after the last value above nine tenths");
    }

    #[test]
    fn a_short_dip_does_not_leave_the_threshold() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.look(at(0), 1.0, 1.0), Some(Crossing::Up));
        assert_eq!(threshold.look(at(9_000), 0.0, 1.0), None);
        assert_eq!(threshold.look(at(9_250), 0.91, 1.0), None, "not clearly below: the ten seconds begin again");
        assert_eq!(threshold.look(at(19_000), 0.0, 1.0), None);
        assert_eq!(threshold.look(at(19_250), 0.89, 1.0), Some(Crossing::Down));
        assert_eq!(threshold.look(at(19_500), 0.99, 1.0), None);
    }
}
