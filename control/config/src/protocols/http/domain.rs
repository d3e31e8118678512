//! `[[domain]]`: what the routes of some hosts have in common.

use weir_route::host::Labels;

use super::handling::Handling;
use super::policy::PolicyKeys;
use super::route::RouteState;
use crate::document::At;
use crate::section::section;
use crate::texts::{Name, Word};

section! {
    /// Hosts, and what the routes of these hosts have in common: a route names its domain with `domain`, and has from it what it
    /// does not write. What neither writes is as the listener says. A list or a table of the route stands in place of the whole
    /// list or table of the domain. Limits of a domain count the requests of all routes that have them from it.
    pub(crate) struct DomainSection [name = name] {
        /// Unique among domains.
        required name: Name;
        /// Listeners that have its routes. Absent: all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts of its routes: `example.com`, `*.example.com`, or `*`, without ports. Absent: all.
        optional hosts: Vec<At<Word>>;
        /// What the star of a wildcard host stands for: `one` label, or `many`.
        default wildcard: Labels = Labels::One;
        /// Whether its routes are in force: `online`, or `offline` as if they were not there.
        default state: RouteState = RouteState::Online;
        include handling: Handling;
        include policies: PolicyKeys;
    }
}
