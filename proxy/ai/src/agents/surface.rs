//! The paths and methods of MCP and A2A.

use super::settings::{AgentProtocol, AgentServer};

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
    [AgentProtocol::Mcp, AgentProtocol::A2a].into_iter().any(|protocol| below(path, protocol).is_some())
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
    fn paths_of_models_are_none_of_agents() {
        for path in ["/v1/chat/completions", "/mcp", "/a2a", "/mcps/x", "mcp/x", ""] {
            assert!(!is_agent_path(path), "{path}");
        }
        assert!(is_agent_path("/mcp/x") && is_agent_path("/a2a/x/y"));
    }
}
