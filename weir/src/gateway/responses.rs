//! HTTP responses by class of status, as the API shows them.

use weir_admin::status::ResponseClasses;
use weir_telemetry::{Snapshot, snapshot::Value};

/// Those that a listener has sent.
pub fn of_listener(cells: &Snapshot, listener: &str) -> ResponseClasses {
    counted(cells, "weir_http_listener_responses_total", &[("listener", listener)]).unwrap_or_default()
}

/// Those of a route, of all its listeners; `None` if it is not counted by itself.
pub fn of_route(cells: &Snapshot, route: &str) -> Option<ResponseClasses> {
    counted(cells, "weir_http_route_responses_total", &[("route", route)])
}

/// Those of an endpoint; `None` before the first.
pub fn of_endpoint(cells: &Snapshot, upstream: &str, endpoint: &str) -> Option<ResponseClasses> {
    let own = [("upstream", upstream), ("endpoint", endpoint)];
    counted(cells, "weir_http_upstream_responses_total", &own)
}

fn counted(cells: &Snapshot, family: &str, own: &[(&str, &str)]) -> Option<ResponseClasses> {
    let counts = cells.by(family, "class", own);
    if counts.is_empty() {
        return None;
    }
    let mut classes = ResponseClasses::default();
    for (class, value) in counts {
        if let Value::Counter(count) = value {
            classes.add(&class, count);
        }
    }
    Some(classes)
}

#[cfg(test)]
mod tests {
    use weir_telemetry::{Registry, catalog};

    use super::*;

    #[test]
    fn listeners_routes_and_endpoints_have_their_own_classes() {
        let registry = Registry::new();
        let core = registry.core(0);
        for (class, count) in catalog::RESPONSE_CLASSES.into_iter().zip([1, 22, 3, 4, 11, 7, 2]) {
            core.counter(&catalog::HTTP_LISTENER_RESPONSES, &["web", class]).add(count);
        }
        core.counter(&catalog::HTTP_LISTENER_RESPONSES, &["other", "5xx"]).add(100);
        core.counter(&catalog::HTTP_ROUTE_RESPONSES, &["web", "api", "5xx"]).add(8);
        core.counter(&catalog::HTTP_ROUTE_RESPONSES, &["other", "api", "2xx"]).add(1);
        core.counter(&catalog::HTTP_UPSTREAM_RESPONSES, &["app", "127.0.0.1:1", "4xx"]).add(9);
        let cells = registry.read();
        let web = of_listener(&cells, "web");
        let expected = ResponseClasses {
            informational: 1,
            successful: 22,
            redirection: 3,
            client_error: 4,
            server_error: 11,
            broken: 7,
            aborted: 2,
        };
        assert_eq!((web, web.total(), web.judged(), web.errors()), (expected, 50, 48, 18));
        assert_eq!(of_listener(&cells, "none"), ResponseClasses::default());
        let api = of_route(&cells, "api").expect("counted");
        assert_eq!((api.server_error, api.successful), (8, 1));
        assert_eq!(of_route(&cells, "unknown"), None);
        assert_eq!(of_endpoint(&cells, "app", "127.0.0.1:1").map(|classes| classes.client_error), Some(9));
        assert_eq!(of_endpoint(&cells, "app", "127.0.0.1:2"), None);
    }
}
