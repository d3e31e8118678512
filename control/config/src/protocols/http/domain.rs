//! `[[domain]]`: what the routes of some hosts have in common.

use weir_route::host::Labels;

use super::handling::Handling;
use super::policy::PolicyKeys;
use super::route::RouteState;
use crate::document::At;
use crate::section::section;
use crate::texts::{Name, Word};

section! {
    /// Hosts, and the settings that their routes have in common. A route names its domain with `domain` and inherits every key
    /// that it does not set. A key that neither sets has the value of the listener. A list or a table of the route replaces the
    /// whole list or table of the domain. Limits of a domain count the requests of all routes that inherit them.
    pub(crate) struct DomainSection [name = name] {
        /// Unique among domains.
        required name: Name;
        /// Listeners that have its routes. Absent: all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts of its routes: `example.com`, `*.example.com`, or `*`, without ports. Absent: all.
        optional hosts: Vec<At<Word>>;
        /// Labels that the star of a wildcard host stands for: `one` or `many`.
        default wildcard: Labels = Labels::One;
        /// Whether its routes are in force: `online`, or `offline` as if they were not there.
        default state: RouteState = RouteState::Online;
        include handling: Handling;
        include policies: PolicyKeys;
    }
}
