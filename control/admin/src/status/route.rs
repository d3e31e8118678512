//! Routes of HTTP listeners.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResponseClasses;

/// Whether a route is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// It is.
    Valid,
    /// There is a mistake in it: its requests are answered 503.
    Invalid,
    /// No listener has it.
    Orphaned,
}

/// One route of HTTP listeners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteStatus {
    /// Name from the configuration.
    pub name: String,
    /// The domain that it is of.
    pub domain: Option<String>,
    /// Listeners that have it.
    pub listeners: Vec<String>,
    /// True if it is in force as far as the configuration says (`state`).
    pub online: bool,
    /// Whether it is in order.
    pub validity: Validity,
    /// Its mistakes in the configuration.
    pub mistakes: Vec<String>,
    /// HTTP responses of all its listeners, by class of status; absent: it is not counted by itself, because it is the only one of its
    /// listeners or one beyond 256.
    pub responses_total: Option<ResponseClasses>,
}

/// Answer of `/api/v1/routes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteList {
    /// Every route, in the order of the configuration.
    pub routes: Vec<RouteStatus>,
}
