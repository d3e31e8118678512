//! `[[domain]]`: what the routes of some hosts have in common.

use weir_route::host::Labels;

use super::handling::Handling;
use super::policy::PolicyKeys;
use super::route::RouteState;
use crate::document::At;
use crate::section::section;
use crate::texts::{Name, Word};

section! {
    /// Settings shared by the routes of certain hosts. A route names its domain with `domain` and inherits every key that it does
    /// not set. A key that neither the route nor the domain sets has the value of the listener. A list or table of the route
    /// replaces the whole list or table of the domain. A rate limit of a domain counts the requests of all routes that inherit it.
    pub(crate) struct DomainSection [name = name] {
        /// Unique name of the domain.
        required name: Name;
        /// Listeners that have the routes of the domain. If absent, all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts of the routes: `example.com`, `*.example.com`, or `*`, without ports. If absent, all hosts.
        optional hosts: Vec<At<Word>>;
        /// Labels that the star of a wildcard host matches: `one` or `many`.
        default wildcard: Labels = Labels::One;
        /// Whether the routes of the domain are active: `online`, or `offline` as if they did not exist.
        default state: RouteState = RouteState::Online;
        /// If absent, the setting of the listener applies.
        include handling: Handling;
        include policies: PolicyKeys;
    }
}
