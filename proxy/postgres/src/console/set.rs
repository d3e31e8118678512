//! SET: the settings of a listener that change while the process runs, on all its workers and until the next reload.

use std::time::Duration;

use weir_engine::Stream;
use weir_postgres_codec::sqlstate;

use super::{Console, Failure, command, notice};
use crate::settings::PostgresListenerSettings;

/// A time of [`PostgresListenerSettings`] that may change.
struct Changeable {
    name: &'static str,
    value: fn(&PostgresListenerSettings) -> Option<Duration>,
    change: fn(&mut PostgresListenerSettings, Option<Duration>),
    /// 0 means no limit.
    may_be_absent: bool,
}

const CHANGEABLE: [Changeable; 6] = [
    Changeable {
        name: "client_login_timeout",
        value: |settings| Some(settings.client_login_timeout),
        change: |settings, value| settings.client_login_timeout = value.unwrap_or(settings.client_login_timeout),
        may_be_absent: false,
    },
    Changeable {
        name: "query_wait_timeout",
        value: |settings| Some(settings.query_wait_timeout),
        change: |settings, value| settings.query_wait_timeout = value.unwrap_or(settings.query_wait_timeout),
        may_be_absent: false,
    },
    Changeable {
        name: "query_wait_notify",
        value: |settings| settings.query_wait_notify,
        change: |settings, value| settings.query_wait_notify = value,
        may_be_absent: true,
    },
    Changeable {
        name: "query_timeout",
        value: |settings| settings.query_timeout,
        change: |settings, value| settings.query_timeout = value,
        may_be_absent: true,
    },
    Changeable {
        name: "idle_transaction_timeout",
        value: |settings| settings.idle_transaction_timeout,
        change: |settings, value| settings.idle_transaction_timeout = value,
        may_be_absent: true,
    },
    Changeable {
        name: "client_idle_timeout",
        value: |settings| settings.client_idle_timeout,
        change: |settings, value| settings.client_idle_timeout = value,
        may_be_absent: true,
    },
];

/// The longest time that SET takes. Default 1 day: a longer one is a mistake in the unit.
const TIME_MAX: Duration = Duration::from_secs(86_400);

/// A change, as it goes to the workers.
#[derive(Clone, Copy)]
pub(crate) enum SetRequest {
    /// Another value.
    Change { place: usize, value: Option<Duration> },
    /// All values of the file again.
    Restore,
}

impl SetRequest {
    /// The settings after the change. `file` are those of the file.
    pub(crate) fn apply(
        self,
        settings: &PostgresListenerSettings,
        file: &PostgresListenerSettings,
    ) -> PostgresListenerSettings {
        match self {
            Self::Change { place, value } => {
                let mut settings = settings.clone();
                (CHANGEABLE[place].change)(&mut settings, value);
                settings
            }
            Self::Restore => file.clone(),
        }
    }

    /// The change of a setting that the process before had. `None`: this program has no such setting, or does not change it so far.
    pub(crate) fn of_process_before(name: &str, value: Option<Duration>) -> Option<Self> {
        let place = CHANGEABLE.iter().position(|one| one.name == name)?;
        let is_possible = value.map_or(CHANGEABLE[place].may_be_absent, |value| !value.is_zero() && value <= TIME_MAX);
        is_possible.then_some(Self::Change { place, value })
    }

    fn read(key: &str, value: &str) -> Result<Self, Failure> {
        let place = CHANGEABLE.iter().position(|one| one.name.eq_ignore_ascii_case(key));
        let place = place.ok_or_else(|| {
            let names: Vec<_> = CHANGEABLE.iter().map(|one| one.name).collect();
            let text = format!(
                "SET failed: \"{key}\" cannot change while the process runs: change the file and RELOAD; SET changes {}",
                names.join(", ")
            );
            Failure::new(sqlstate::INVALID_PARAMETER_VALUE, text)
        })?;
        let invalid = || {
            let text = format!("SET failed: \"{value}\" is no time: write seconds, or 500ms, 2min, 1h, at most a day");
            Failure::new(sqlstate::INVALID_PARAMETER_VALUE, text)
        };
        let time = time(value).filter(|time| *time <= TIME_MAX).ok_or_else(invalid)?;
        let value = Some(time).filter(|time| !time.is_zero());
        if value.is_none() && !CHANGEABLE[place].may_be_absent {
            return Err(invalid());
        }
        Ok(Self::Change { place, value })
    }
}

/// Seconds, or a number with its unit.
fn time(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = match unit.trim() {
        "" | "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// The settings that may change, with their values in seconds.
pub(super) fn values(settings: &PostgresListenerSettings) -> impl Iterator<Item = (&'static str, String)> {
    CHANGEABLE.iter().map(|one| {
        let value = (one.value)(settings).unwrap_or_default();
        (one.name, seconds(value))
    })
}

/// A time in seconds, without a fraction if it has none.
pub(super) fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 { time.as_secs().to_string() } else { time.as_secs_f64().to_string() }
}

impl Console<'_> {
    /// Changes a setting for clients that log in from now on.
    pub(super) fn set(&self, stream: &Stream, key: &str, value: &str) -> Result<(), Failure> {
        if command::parameter(key).is_some() {
            notice(stream, "SET ignored", "the console has no use for it");
            return Ok(());
        }
        self.send(SetRequest::read(key, value)?)
    }

    /// The values of the file hold again.
    pub(super) fn restore(&self) -> Result<(), Failure> {
        self.send(SetRequest::Restore)
    }

    fn send(&self, request: SetRequest) -> Result<(), Failure> {
        self.lasting(|| self.send_to_workers(request))?
    }

    fn send_to_workers(&self, request: SetRequest) -> Result<(), Failure> {
        let (core, name) = (self.service.sessions.core(), self.service.sessions.name());
        for worker in 0..core.workers {
            if !(core.post)(worker, name, Box::new(request)) {
                let text = format!("SET failed: worker {worker} takes no orders now; try again");
                return Err(Failure::new(sqlstate::INSUFFICIENT_RESOURCES, text));
            }
        }
        match request {
            SetRequest::Change { place, value } => self.service.shared.note_set(CHANGEABLE[place].name, value),
            SetRequest::Restore => self.service.shared.forget_set(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_seconds_without() {
        let read = |text: &str| match SetRequest::read("QUERY_TIMEOUT", text) {
            Ok(SetRequest::Change { value, .. }) => Some(value),
            _ => None,
        };
        assert_eq!(read("5"), Some(Some(Duration::from_secs(5))));
        assert_eq!(read("0"), Some(None), "no limit");
        assert_eq!(read("500ms"), Some(Some(Duration::from_millis(500))));
        assert_eq!(read("2 min"), Some(Some(Duration::from_secs(120))));
        for wrong in ["", "x", "5 years", "-1", "1e9", "2d", "1.2.3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_change_of_the_process_before_is_taken_as_far_as_this_one_would_make_it() {
        let second = Some(Duration::from_secs(1));
        let taken = |name: &str, value| SetRequest::of_process_before(name, value).is_some();
        assert!(taken("query_timeout", second) && taken("query_timeout", None));
        assert!(taken("query_wait_timeout", second) && !taken("query_wait_timeout", None), "it has no end");
        assert!(
            !taken("query_timeout", Some(TIME_MAX + Duration::from_secs(1))) && !taken("of_another_program", second)
        );
    }

    #[test]
    fn only_what_can_change_is_taken() {
        assert!(SetRequest::read("query_wait_timeout", "3").is_ok());
        let error = |key: &str, value: &str| SetRequest::read(key, value).err().expect("an error").1;
        assert!(error("default_pool_size", "5").contains("change the file and RELOAD"));
        assert!(error("query_wait_timeout", "0").contains("is no time"), "a wait without end is not bounded");
    }
}
