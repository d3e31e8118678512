//! HTTP responses per second by class of status, and when they mean trouble.

use weir_admin::status::ResponseClasses;
use weir_http::settings::ERROR_WARN;

/// Responses per second of a listener, a route or an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ResponseRates {
    pub(super) successful: f64,
    pub(super) redirection: f64,
    pub(super) client_error: f64,
    pub(super) server_error: f64,
    /// Those that the origin or the gateway broke off.
    pub(super) broken: f64,
    /// Some have broken off since the process started.
    pub(super) has_broken: bool,
    all: f64,
    /// Those that the share of errors is a share of.
    judged: f64,
}

impl ResponseRates {
    /// Rates per second from two samples of the counts, `seconds` apart.
    pub(super) fn between(before: ResponseClasses, now: ResponseClasses, seconds: f64) -> Self {
        let rate = |of: fn(&ResponseClasses) -> u64| of(&now).saturating_sub(of(&before)) as f64 / seconds;
        Self {
            successful: rate(|classes| classes.successful),
            redirection: rate(|classes| classes.redirection),
            client_error: rate(|classes| classes.client_error),
            server_error: rate(|classes| classes.server_error),
            broken: rate(|classes| classes.broken),
            has_broken: now.broken > 0,
            all: rate(ResponseClasses::total),
            judged: rate(ResponseClasses::judged),
        }
    }

    /// Responses of all classes.
    pub(super) fn all(self) -> f64 {
        self.all
    }

    /// At least this share of the responses are errors. Those that clients left do not count.
    pub(super) fn fail_from(self, share: f64) -> bool {
        let errors = self.server_error + self.broken;
        errors > 0.0 && errors >= share * self.judged
    }

    /// As [`ResponseRates::fail_from`], with the share from which listeners are warned about by default.
    pub(super) fn fail(self) -> bool {
        self.fail_from(ERROR_WARN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_error_of_twenty_responses_is_trouble_and_one_of_a_hundred_is_none() {
        let now = |successful, server_error| ResponseClasses { successful, server_error, ..Default::default() };
        let rates = |now| ResponseRates::between(ResponseClasses::default(), now, 2.0);
        assert_eq!(rates(now(38, 2)).server_error, 1.0);
        assert!(rates(now(38, 2)).fail());
        assert!(!rates(now(99, 1)).fail());
        assert!(!rates(now(0, 0)).fail());
        assert!(rates(now(99, 1)).fail_from(0.01));
        let broken = rates(ResponseClasses { broken: 2, ..now(38, 0) });
        assert!(broken.fail() && broken.has_broken, "a response that the origin broke off is an error");
        let aborted = rates(ResponseClasses { aborted: 2, ..now(38, 0) });
        assert!(!aborted.fail() && !aborted.has_broken, "one that its client left is none");
        let hung = rates(ResponseClasses { aborted: 500, ..now(0, 20) });
        assert!(hung.fail() && hung.all() == 260.0, "clients that give up do not hide errors");
    }
}
