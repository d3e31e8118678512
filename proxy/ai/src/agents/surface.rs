//! The paths and methods of MCP and A2A.

use super::settings::{AgentProtocol, AgentServer, Federation};

/// The description of an agent, below its path (A2A, "Agent Discovery"): that of 0.3 and later, and that before.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The meaning of a request by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentRequest {
    /// A POST with a message.
    Message,
    /// A GET that listens to a server, or goes on with a stream.
    Listen,
    /// A DELETE of a session.
    EndSession,
    /// The description of an agent, at this path below its own.
    Card(&'static str),
}

impl AgentRequest {
    /// The word of the metrics, apart from messages.
    pub(crate) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Message => None,
            Self::Listen => Some("listen"),
            Self::EndSession => Some("end_session"),
            Self::Card(_) => Some("card"),
        }
    }
}

/// Why a request has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRequest {
    /// There is no such server.
    Unknown,
    /// The path exists, and not with this method.
    WrongMethod(&'static str),
}

/// Whether a path may be that of a server or an agent. The filter that is created for it looks again.
pub(crate) fn is_agent_path(path: &str) -> bool {
    protocol(path).is_some()
}

/// The protocol of a path.
pub(super) fn protocol(path: &str) -> Option<AgentProtocol> {
    [AgentProtocol::Mcp, AgentProtocol::A2a].into_iter().find(|protocol| below(path, *protocol).is_some())
}

/// The part of a path behind that of a protocol.
fn below(path: &str, protocol: AgentProtocol) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(protocol.name())?.strip_prefix('/')
}

/// The server of a request, by its position, and the meaning. `path`: without the query. `permits`: the key may reach the server; one
/// that it may not reach does not exist for it.
pub(crate) fn of(
    servers: &[AgentServer],
    method: &[u8],
    path: &str,
    permits: impl Fn(&AgentServer) -> bool,
) -> Result<(usize, AgentRequest), NoRequest> {
    let found = servers.iter().enumerate().find_map(|(number, server)| {
        let rest = below(path, server.protocol)?.strip_prefix(&*server.name)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((number, server, rest))
    });
    let (number, server, rest) = found.filter(|(_, server, _)| permits(server)).ok_or(NoRequest::Unknown)?;
    let request = match (server.protocol, rest, method) {
        (_, "", b"POST") => AgentRequest::Message,
        (AgentProtocol::Mcp, "", b"GET") => AgentRequest::Listen,
        (AgentProtocol::Mcp, "", b"DELETE") => AgentRequest::EndSession,
        (AgentProtocol::Mcp, "", _) => return Err(NoRequest::WrongMethod("POST, GET, DELETE")),
        (AgentProtocol::A2a, "", _) => return Err(NoRequest::WrongMethod("POST")),
        (AgentProtocol::A2a, rest, method) => {
            let card = CARDS.into_iter().find(|card| *card == rest).ok_or(NoRequest::Unknown)?;
            if method != b"GET" {
                return Err(NoRequest::WrongMethod("GET"));
            }
            AgentRequest::Card(card)
        }
        _ => return Err(NoRequest::Unknown),
    };
    Ok((number, request))
}

/// The federation of a request, by its position, and the meaning. `None`: the path is that of none. `permits`: the key may reach one of its
/// servers.
pub(crate) fn of_federation(
    federations: &[Federation],
    method: &[u8],
    path: &str,
    permits: impl Fn(&Federation) -> bool,
) -> Option<Result<(usize, AgentRequest), NoRequest>> {
    let name = below(path, AgentProtocol::Mcp)?;
    let (number, federation) = federations.iter().enumerate().find(|(_, federation)| *federation.name == *name)?;
    Some(match method {
        _ if !permits(federation) => Err(NoRequest::Unknown),
        b"POST" => Ok((number, AgentRequest::Message)),
        b"DELETE" => Ok((number, AgentRequest::EndSession)),
        // Each server would need an open stream of its own.
        _ => Err(NoRequest::WrongMethod("POST, DELETE")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<AgentServer> {
        let server = |protocol, name: &str| AgentServer {
            protocol,
            name: name.into(),
            upstream: 0,
            path: "/".into(),
            idle_timeout: super::super::settings::AGENT_IDLE_TIMEOUT,
        };
        let (mcp, a2a) = (AgentProtocol::Mcp, AgentProtocol::A2a);
        vec![server(mcp, "git"), server(mcp, "github"), server(a2a, "git")]
    }

    #[test]
    fn each_path_has_its_server_and_its_methods() {
        use AgentRequest::{Card, EndSession, Listen, Message};
        let wrong = |allow| Err(NoRequest::WrongMethod(allow));
        type Found = Result<(usize, AgentRequest), NoRequest>;
        let rows: &[(&str, &str, Found)] = &[
            ("POST", "/mcp/git", Ok((0, Message))),
            ("POST", "/mcp/github", Ok((1, Message))),
            ("GET", "/mcp/github", Ok((1, Listen))),
            ("DELETE", "/mcp/github", Ok((1, EndSession))),
            ("PUT", "/mcp/github", wrong("POST, GET, DELETE")),
            ("POST", "/a2a/git", Ok((2, Message))),
            ("GET", "/a2a/git", wrong("POST")),
            ("GET", "/a2a/git/.well-known/agent-card.json", Ok((2, Card(CARDS[0])))),
            ("GET", "/a2a/git/.well-known/agent.json", Ok((2, Card(CARDS[1])))),
            ("POST", "/a2a/git/.well-known/agent.json", wrong("GET")),
            ("GET", "/mcp/git/.well-known/agent-card.json", Err(NoRequest::Unknown)),
            ("POST", "/mcp/git/", Err(NoRequest::Unknown)),
            ("POST", "/mcp/gi", Err(NoRequest::Unknown)),
            ("POST", "/a2a/github", Err(NoRequest::Unknown)),
            ("POST", "/mcp", Err(NoRequest::Unknown)),
            ("POST", "/mcp/", Err(NoRequest::Unknown)),
            ("POST", "//mcp/git", Err(NoRequest::Unknown)),
        ];
        for (method, path, wanted) in rows {
            assert_eq!(of(&servers(), method.as_bytes(), path, |_| true), *wanted, "{method} {path}");
            assert_eq!(of(&servers(), method.as_bytes(), path, |_| false), Err(NoRequest::Unknown), "{method} {path}");
        }
    }

    #[test]
    fn a_federation_has_no_stream_and_is_for_keys_that_reach_one_of_its_servers() {
        let federations = [Federation { name: "all".into(), servers: vec![0, 1] }];
        let of =
            |method: &str, path, is_permitted| of_federation(&federations, method.as_bytes(), path, |_| is_permitted);
        assert_eq!(of("POST", "/mcp/all", true), Some(Ok((0, AgentRequest::Message))));
        assert_eq!(of("DELETE", "/mcp/all", true), Some(Ok((0, AgentRequest::EndSession))));
        assert_eq!(of("GET", "/mcp/all", true), Some(Err(NoRequest::WrongMethod("POST, DELETE"))));
        assert_eq!(of("GET", "/mcp/all", false), Some(Err(NoRequest::Unknown)));
        for path in ["/mcp/al", "/mcp/all/", "/a2a/all", "/mcp/"] {
            assert_eq!(of("POST", path, true), None, "{path}");
        }
    }

    #[test]
    fn paths_of_models_are_none_of_agents() {
        for path in ["/v1/chat/completions", "/mcp", "/a2a", "/mcps/x", "mcp/x", ""] {
            assert!(!is_agent_path(path), "{path}");
        }
        assert!(is_agent_path("/mcp/x") && is_agent_path("/a2a/x/y"));
    }
}
