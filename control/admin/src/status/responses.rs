//! HTTP responses by class of status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// HTTP responses since the process started, by class of status (RFC 9110 section 15). A gRPC call is counted under the HTTP status
/// that corresponds to its gRPC status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseClasses {
    /// Upgrades (101), and extended CONNECTs of HTTP/2 that became a WebSocket. Other interim responses are not counted.
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
    /// The server is at fault, or the gateway found no server.
    #[serde(rename = "5xx")]
    pub server_error: u64,
    /// Responses that did not complete because of the upstream or the gateway. They are errors, like a 5xx.
    pub broken: u64,
    /// Responses that did not complete because the client disconnected, did not read them or broke a rule.
    #[serde(default)]
    pub aborted: u64,
}

impl ResponseClasses {
    /// Responses of all classes.
    pub fn total(&self) -> u64 {
        let Self { informational, successful, redirection, client_error, server_error, broken, aborted } = *self;
        informational + successful + redirection + client_error + server_error + broken + aborted
    }

    /// Responses that the share of errors is a share of: all but `aborted`. Clients that give up in an outage must not hide it.
    pub fn judged(&self) -> u64 {
        self.total() - self.aborted
    }

    /// Responses for which the server or the gateway is at fault.
    pub fn errors(&self) -> u64 {
        self.server_error + self.broken
    }

    /// Counts responses of a class, by its name in the metrics.
    pub fn add(&mut self, class: &str, count: u64) {
        *match class {
            "1xx" => &mut self.informational,
            "2xx" => &mut self.successful,
            "3xx" => &mut self.redirection,
            "4xx" => &mut self.client_error,
            "5xx" => &mut self.server_error,
            "broken" => &mut self.broken,
            "aborted" => &mut self.aborted,
            // Past the limit of the family nothing is known of the class.
            _ => return,
        } += count;
    }
}

/// The share of errors among the responses of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorStatus {
    /// Errors (5xx, and responses that did not complete because of the upstream or the gateway) as a share of all responses except
    /// `aborted` in the last ten seconds, or of the last five responses within a minute; absent if there were no responses.
    pub ratio: Option<f64>,
    /// Share from which the gateway warns about the listener (`error_warn`).
    pub warn_ratio: f64,
    /// The share is at `warn_ratio`, or has not been clearly below it for ten seconds yet.
    pub warned: bool,
}
