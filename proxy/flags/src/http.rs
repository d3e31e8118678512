//! The HTTP listener that a listener of flags stands on.

use std::sync::Arc;

use weir_analysis::http::path::{Ambiguous, PathRules};
use weir_http::{
    policies::Policies,
    routes::{Action, Routes, Target},
    settings::HttpListenerSettings,
};
use weir_route::{
    Route, RouteTable,
    host::HostMatch,
    path::PathMatch,
    redirect::{Redirect, Scheme, Status},
};

use crate::{edge::Edge, handler::FlagsHandler, settings::FlagsListenerSettings};

/// The settings of the HTTP listener. Its handler decides on everything behind the policies.
pub(crate) fn settings(edge: &Arc<Edge>, own: &FlagsListenerSettings) -> HttpListenerSettings {
    let target = match own.redirect_https {
        true => Target::Redirect(Redirect::new(Status::PermanentRedirect).scheme(Scheme::Https)),
        false => Target::Handler(Arc::new(FlagsHandler { edge: edge.clone(), settings: own.clone() })),
    };
    let mut action = Action::plain(target);
    if own.addresses.is_some() || own.cors.is_some() {
        let policies = Policies { address: own.addresses.clone(), cors: own.cors.clone(), ..Policies::default() };
        action.policies = Some(Box::new(policies));
    }
    let upstreams = own.source.upstreams();
    let table = RouteTable::new(vec![Route::new("flags", HostMatch::Any, PathMatch::Segments("/".into()), action)]);
    let routes = Routes { table, upstreams, identity_fields: Vec::new(), names: Vec::new() };
    HttpListenerSettings {
        // Names of flags may have them, and no server behind reads the path.
        path_rules: PathRules { escaped_slash: Ambiguous::Keep, backslash: Ambiguous::Keep, ..PathRules::default() },
        forwarded_for: own.forwarded_for,
        ..HttpListenerSettings::new(Arc::new(routes))
    }
}
