//! HTTP responses by class of status, as the API shows them.

use weir_admin::status::ResponseClasses;
use weir_telemetry::{Snapshot, snapshot::Value};

/// Those that a listener has sent.
pub fn of_listener(cells: &Snapshot, listener: &str) -> ResponseClasses {
    counted(cells, "weir_http_responses_total", "code", &[("listener", listener)]).unwrap_or_default()
}

/// Those of a route, of all its listeners; `None` if it is not counted by itself.
pub fn of_route(cells: &Snapshot, route: &str) -> Option<ResponseClasses> {
    counted(cells, "weir_http_route_responses_total", "class", &[("route", route)])
}

/// Those of an endpoint; `None` before the first.
pub fn of_endpoint(cells: &Snapshot, upstream: &str, endpoint: &str) -> Option<ResponseClasses> {
    let own = [("upstream", upstream), ("endpoint", endpoint)];
    counted(cells, "weir_http_upstream_responses_total", "class", &own)
}

fn counted(cells: &Snapshot, family: &str, label: &str, own: &[(&str, &str)]) -> Option<ResponseClasses> {
    let counts = cells.by(family, label, own);
    if counts.is_empty() {
        return None;
    }
    let mut classes = ResponseClasses::default();
    for (status, value) in counts {
        if let Value::Counter(count) = value {
            classes.add(&status, count);
        }
    }
    Some(classes)
}

#[cfg(test)]
mod tests {
    use weir_telemetry::{Registry, catalog};

    use super::*;

    #[test]
    fn statuses_count_in_their_class_and_0_as_broken_off() {
        let registry = Registry::new();
        let core = registry.core(0);
        for (code, count) in
            [("101", 1), ("200", 20), ("204", 2), ("302", 3), ("404", 4), ("500", 5), ("503", 6), ("0", 7)]
        {
            core.counter(&catalog::HTTP_RESPONSES, &["web", code]).add(count);
        }
        core.counter(&catalog::HTTP_RESPONSES, &["other", "500"]).add(100);
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
        };
        assert_eq!((web, web.total()), (expected, 48));
        assert_eq!(of_listener(&cells, "none"), ResponseClasses::default());
        let api = of_route(&cells, "api").expect("counted");
        assert_eq!((api.server_error, api.successful), (8, 1));
        assert_eq!(of_route(&cells, "unknown"), None);
        assert_eq!(of_endpoint(&cells, "app", "127.0.0.1:1").map(|classes| classes.client_error), Some(9));
        assert_eq!(of_endpoint(&cells, "app", "127.0.0.1:2"), None);
    }
}
