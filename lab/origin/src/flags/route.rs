//! The endpoint of a request.

/// An endpoint. The query stands where replies depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// All flags.
    Features(&'a str),
    /// One of them.
    Feature(&'a str),
    /// Changes.
    Delta(&'a str),
    /// Changes as they come.
    Streaming(&'a str),
    /// Flags that are on for a context in the query.
    Frontend(&'a str),
    /// The same for one in the body.
    PostedFrontend,
    /// Which tokens are valid.
    Validate,
    /// An application.
    Register,
    /// Counts of one client.
    Metrics,
    /// Counts of an edge.
    Bulk,
    /// That it serves.
    Health,
    /// The number of requests so far.
    Requests,
    /// A path for tests.
    Control(Control, &'a str),
    /// A path that is there, with another method; the right one.
    WrongMethod(&'static str),
    /// Nothing.
    Unknown,
}

/// Paths for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The ledger.
    Ledger,
    /// An empty one from now on.
    ClearLedger,
    /// Edits.
    Edit,
    /// Other flags.
    Replace,
    /// Changes.
    Events,
    /// A text for all streams.
    Broadcast,
    /// Replies that go wrong.
    Faults,
    /// None of them any more.
    ClearFaults,
    /// Other tokens.
    Tokens,
    /// The end of all streams.
    EndStreams,
}

impl Endpoint<'_> {
    /// As the ledger and faults call it. `None`: it is none of the API's.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Features(_) => "features",
            Self::Feature(_) => "feature",
            Self::Delta(_) => "delta",
            Self::Streaming(_) => "streaming",
            Self::Frontend(_) | Self::PostedFrontend => "frontend",
            Self::Validate => "validate",
            Self::Register => "register",
            Self::Metrics => "metrics",
            Self::Bulk => "bulk",
            Self::WrongMethod(_) | Self::Unknown => "unknown",
            Self::Health | Self::Requests | Self::Control(..) => return None,
        })
    }
}

/// The endpoint of a request. `has_deltas`: those of deltas and streams exist.
pub fn endpoint<'a>(method: &[u8], target: &'a [u8], has_deltas: bool) -> Endpoint<'a> {
    let Ok(target) = std::str::from_utf8(target) else { return Endpoint::Unknown };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is = |wanted: &str| method == wanted.as_bytes();
    let control = |control| Endpoint::Control(control, query);
    let (wanted, found) = match path {
        "/api/client/features" => ("GET", Endpoint::Features(query)),
        "/api/client/delta" if has_deltas => ("GET", Endpoint::Delta(query)),
        "/api/client/streaming" if has_deltas => ("GET", Endpoint::Streaming(query)),
        "/api/frontend" if is("POST") => ("POST", Endpoint::PostedFrontend),
        "/api/frontend" => ("GET", Endpoint::Frontend(query)),
        "/edge/validate" => ("POST", Endpoint::Validate),
        "/api/client/register" => ("POST", Endpoint::Register),
        "/api/client/metrics" => ("POST", Endpoint::Metrics),
        "/api/client/metrics/bulk" => ("POST", Endpoint::Bulk),
        "/health" | "/" => ("GET", Endpoint::Health),
        "/requests" => ("GET", Endpoint::Requests),
        "/lab/ledger" if is("DELETE") => ("DELETE", control(Control::ClearLedger)),
        "/lab/ledger" => ("GET", control(Control::Ledger)),
        "/lab/edit" => ("POST", control(Control::Edit)),
        "/lab/features" => ("PUT", control(Control::Replace)),
        "/lab/events" => ("POST", control(Control::Events)),
        "/lab/broadcast" => ("POST", control(Control::Broadcast)),
        "/lab/faults" if is("DELETE") => ("DELETE", control(Control::ClearFaults)),
        "/lab/faults" => ("PUT", control(Control::Faults)),
        "/lab/tokens" => ("PUT", control(Control::Tokens)),
        "/lab/streams" => ("DELETE", control(Control::EndStreams)),
        path => match path.strip_prefix("/api/client/features/") {
            Some(name) if !name.is_empty() => ("GET", Endpoint::Feature(name)),
            _ => return Endpoint::Unknown,
        },
    };
    if is(wanted) { found } else { Endpoint::WrongMethod(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_methods_and_deltas_may_be_absent() {
        let of = |method: &str, target: &'static str| endpoint(method.as_bytes(), target.as_bytes(), true);
        assert_eq!(of("GET", "/api/client/features?namePrefix=a"), Endpoint::Features("namePrefix=a"));
        assert_eq!(of("GET", "/api/client/features/a%20b"), Endpoint::Feature("a%20b"));
        assert_eq!(of("POST", "/api/client/features"), Endpoint::WrongMethod("GET"));
        assert_eq!(of("PUT", "/lab/features?environment=e"), Endpoint::Control(Control::Replace, "environment=e"));
        assert_eq!(of("DELETE", "/lab/ledger"), Endpoint::Control(Control::ClearLedger, ""));
        for unknown in ["/api/client/metrics/edge", "/api/client", "/api/client/features/", "x"] {
            assert_eq!(of("POST", unknown), Endpoint::Unknown, "{unknown}");
        }
        assert_eq!(of("GET", "/api/frontend?userId=a"), Endpoint::Frontend("userId=a"));
        assert_eq!(of("POST", "/api/frontend"), Endpoint::PostedFrontend);
        assert_eq!(of("GET", "/api/client/delta"), Endpoint::Delta(""));
        assert_eq!(endpoint(b"GET", b"/api/client/delta", false), Endpoint::Unknown);
        assert_eq!(Endpoint::Unknown.name(), Some("unknown"));
    }
}
