//! Days and months in UTC.

/// Seconds of a day. Unix time has no leap seconds.
const DAY_SECONDS: u64 = 86_400;

/// A day, as the number of days since 1970-01-01 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

/// A month, as the number of months since January 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(u32);

impl Day {
    /// The day of a Unix time.
    pub fn of(unix_seconds: u64) -> Self {
        Self(u32::try_from(unix_seconds / DAY_SECONDS).unwrap_or(u32::MAX))
    }

    /// The day with this number.
    pub const fn new(days_since_1970: u32) -> Self {
        Self(days_since_1970)
    }

    /// Days since 1970-01-01.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Its month: `civil_from_days` of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    pub fn month(self) -> Month {
        let days = u64::from(self.0) + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        // The year of the algorithm begins in March.
        let months = (year_of_era + era * 400) * 12 + shifted + 2;
        Month(u32::try_from(months - 1_970 * 12).unwrap_or(u32::MAX))
    }

    /// `2026-01-31`.
    pub fn text(self) -> String {
        weir_base::time::rfc3339(u64::from(self.0) * DAY_SECONDS)[..].split('T').next().unwrap_or_default().to_owned()
    }
}

impl Month {
    /// The month with this number.
    pub const fn new(months_since_1970: u32) -> Self {
        Self(months_since_1970)
    }

    /// Months since January 1970.
    pub const fn number(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_of_four_centuries_is_in_the_month_of_its_date() {
        for number in 0..146_097 {
            let day = Day::new(number);
            let text = day.text();
            let (year, month): (u32, u32) = (text[..4].parse().unwrap(), text[5..7].parse().unwrap());
            assert_eq!(day.month(), Month::new((year - 1_970) * 12 + month - 1), "{text}");
        }
        assert_eq!(Day::of(0), Day::new(0));
        assert_eq!((Day::of(86_399), Day::of(86_400)), (Day::new(0), Day::new(1)));
        assert_eq!(Day::of(u64::MAX), Day::new(u32::MAX));
        let _no_panic = Day::new(u32::MAX).month();
    }
}
