//! HTTP responses by class of status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// HTTP responses since the process started, by class of status (RFC 9110 section 15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseClasses {
    /// Upgrades (101). Other interim responses are not counted.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// The request succeeded.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// The client is sent elsewhere, or has the response already.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// The request is at fault.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// The server is at fault, or the gateway found none.
    #[serde(rename = "5xx")]
    pub server_error: u64,
    /// Responses that broke off before their end.
    pub broken: u64,
}

impl ResponseClasses {
    /// Responses of all classes.
    pub fn total(&self) -> u64 {
        let Self { informational, successful, redirection, client_error, server_error, broken } = *self;
        informational + successful + redirection + client_error + server_error + broken
    }

    /// Counts responses with a status or a class of statuses, by their first character: `2` of `200` and of `2xx`. Others broke off.
    pub fn add(&mut self, status: &str, count: u64) {
        *match status.as_bytes().first() {
            Some(b'1') => &mut self.informational,
            Some(b'2') => &mut self.successful,
            Some(b'3') => &mut self.redirection,
            Some(b'4') => &mut self.client_error,
            Some(b'5') => &mut self.server_error,
            _ => &mut self.broken,
        } += count;
    }
}

/// The share of errors among the responses of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorStatus {
    /// 5xx as a share of all responses over the last ten seconds; absent: there were no responses.
    pub ratio: Option<f64>,
    /// Share from which the listener is warned about (`error_warn`).
    pub warn_ratio: f64,
    /// The share is at `warn_ratio`, or has not been clearly below it for ten seconds yet.
    pub warned: bool,
}
