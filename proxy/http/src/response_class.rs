//! The class that a response counts in: one for its listener, its route and its endpoint.

use weir_base::error::Culprit;
use weir_listener::CloseReason;
use weir_telemetry::{Counter, catalog::RESPONSE_CLASSES};

/// The class of a response, in the order of [`RESPONSE_CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseClass {
    Informational,
    Successful,
    Redirection,
    ClientError,
    ServerError,
    /// It did not come to its end, for which the client is not at fault.
    Broken,
    /// The client did not take it to its end.
    Aborted,
}

impl ResponseClass {
    /// The class of a status. One beyond those of RFC 9110 is no success.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            ..200 => Self::Informational,
            200..300 => Self::Successful,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    /// The class of a response that breaks off for this reason.
    pub(crate) fn of_break(reason: CloseReason) -> Self {
        if reason.culprit() == Some(Culprit::Client) { Self::Aborted } else { Self::Broken }
    }
}

/// A counter for each class.
pub(crate) struct ByClass([Counter; RESPONSE_CLASSES.len()]);

impl ByClass {
    pub(crate) fn new(make: impl FnMut(&'static str) -> Counter) -> Self {
        Self(RESPONSE_CLASSES.map(make))
    }

    #[inline]
    pub(crate) fn inc(&self, class: ResponseClass) {
        self.0[class as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_that_of_the_first_digit_or_names_the_side_that_broke_off() {
        let named = |class: ResponseClass| RESPONSE_CLASSES[class as usize];
        let statuses = [101, 204, 304, 499, 503, 999].map(|status| named(ResponseClass::of_status(status)));
        assert_eq!(statuses, ["1xx", "2xx", "3xx", "4xx", "5xx", "5xx"]);
        let gateway = CloseReason::Broken { reason: "x", culprit: Culprit::Gateway };
        let reasons = [CloseReason::of_upstream("x"), gateway, CloseReason::of_client("x"), CloseReason::ClientReset];
        let broken = reasons.map(|reason| named(ResponseClass::of_break(reason)));
        assert_eq!(broken, ["broken", "broken", "aborted", "aborted"]);
    }
}
