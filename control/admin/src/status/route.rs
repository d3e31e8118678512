//! Routes of HTTP listeners.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResponseClasses;

/// Whether a route is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// The route is in order.
    Valid,
    /// The route has a mistake: its requests get 503.
    Invalid,
    /// No listener has the route.
    Orphaned,
}

/// One route of HTTP listeners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteStatus {
    /// Name from the configuration.
    pub name: String,
    /// Domain of the route.
    pub domain: Option<String>,
    /// Listeners that have the route.
    pub listeners: Vec<String>,
    /// True if the configuration enables the route (`state`).
    pub online: bool,
    /// Whether the route is in order.
    pub validity: Validity,
    /// Mistakes of the route in the configuration.
    pub mistakes: Vec<String>,
    /// HTTP responses of the route over all its listeners, by class of status; absent if the route is not counted separately,
    /// because it is the only route of its listeners, or a route beyond the first 256.
    pub responses_total: Option<ResponseClasses>,
}

/// Response of `/api/v1/routes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteList {
    /// Every route, in the order of the configuration.
    pub routes: Vec<RouteStatus>,
}
