//! Routes that no request can have: their path is none, or other routes take all of their requests before.

use std::collections::HashMap;

use weir_http::routes::Action;
use weir_route::Route;

use super::route::CheckedRoute;
use crate::checks::{error_at, warn_at};
use crate::protocols::ListenerProtocol;
use crate::reader::Reader;
use crate::snapshot::Listener;

/// Findings about one route of the file, over all its hosts and listeners.
#[derive(Default)]
struct RouteFindings<'l> {
    places: usize,
    /// Where it gets no requests: the listener, the route there, and the one that is taken in its place.
    shadowed: Vec<(&'l Listener, &'l Route<Action>, &'l Route<Action>)>,
    /// A listener that refuses all paths that it would match.
    pathless: Option<&'l Listener>,
}

/// The last route of each listener is the listener itself.
fn is_of_file(route: &&Route<Action>) -> bool {
    route.priority != i32::MAX
}

/// Reports them. A guard on such a route guards nothing.
pub(in super::super) fn check(listeners: &[Listener], routes: &[CheckedRoute], reader: &mut Reader<'_>) {
    let mut found: HashMap<&str, RouteFindings<'_>> = HashMap::new();
    for listener in listeners {
        let ListenerProtocol::Http(http) = &listener.protocol else { continue };
        for route in http.routes.table.routes().iter().filter(is_of_file) {
            let found = found.entry(&*route.name).or_default();
            found.places += 1;
            if !route.path.can_match(&http.path_rules) {
                found.pathless = Some(listener);
            }
        }
        for (route, by) in
            http.routes.table.shadowed().into_iter().filter(|(route, by)| is_of_file(route) && route.name != by.name)
        {
            found.entry(&*route.name).or_default().shadowed.push((listener, route, by));
        }
    }
    for checked in routes {
        let (name, path) = checked.place();
        let Some(found) = found.get(&*name.value.0) else { continue };
        if let Some(listener) = found.pathless {
            let what = format!("names a route whose path no request of \"{}\" can have", listener.settings.name);
            let help =
                "see path_parameters, path_backslash and path_merge_slashes of that listener, or change the path";
            error_at(name, path, "name", &what, help, reader);
        }
        let Some((listener, route, by)) = found.shadowed.first() else { continue };
        let help = "change a condition of one route, give this route a lower priority number, or remove it";
        if found.shadowed.len() == found.places {
            let what =
                format!("names a route that gets no requests: \"{}\" is tried first and matches all of them", by.name);
            error_at(name, path, "name", &what, help, reader);
        } else {
            let what = format!(
                "names a route that gets no requests for the host {} of \"{}\": \"{}\" is tried first",
                route.host, listener.settings.name, by.name
            );
            warn_at(name, path, "name", &what, help, reader);
        }
    }
}
