//! Servers of MCP and agents of A2A.

use std::sync::Arc;

use weir_ai::settings::{AgentProtocol, AgentServer, FEDERATED_SERVERS_MAX, Federation, is_server_prefix};
use weir_spend::{Glob, policy::ServerTool};

use super::clients::glob;
use super::keys::{KeySection, ListenerAiSection};
use super::models::position;
use crate::checks::{error_at, find_upstream, warn_at};
use crate::document::At;
use crate::numbers::Period;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::texts::{LongWord, Name, Word};

/// The keys of a table.
struct AgentKeys<'a> {
    name: &'a Option<At<Name>>,
    upstream: &'a Option<At<Name>>,
    path: &'a At<LongWord>,
    idle_timeout: &'a At<Period>,
}

/// The servers and agents of a listener; mistakes are reported. Their upstreams follow those of its models.
pub(super) fn agents(
    of: &ListenerContext<'_>,
    path: &str,
    upstreams: &mut Vec<Arc<str>>,
    reader: &mut Reader<'_>,
) -> Vec<AgentServer> {
    let section = &of.section.own.ai.ai;
    let mut all: Vec<AgentServer> = Vec::new();
    for (index, table) in section.mcp.iter().enumerate() {
        let keys = AgentKeys {
            name: &table.name,
            upstream: &table.upstream,
            path: &table.path,
            idle_timeout: &table.idle_timeout,
        };
        let path = format!("{path}.mcp[{index}]");
        let server = agent(of, (AgentProtocol::Mcp, &keys), &path, upstreams, &all, reader);
        all.extend(server);
    }
    for (index, table) in section.a2a.iter().enumerate() {
        let keys = AgentKeys {
            name: &table.name,
            upstream: &table.upstream,
            path: &table.path,
            idle_timeout: &table.idle_timeout,
        };
        let path = format!("{path}.a2a[{index}]");
        let server = agent(of, (AgentProtocol::A2a, &keys), &path, upstreams, &all, reader);
        all.extend(server);
    }
    all
}

fn agent(
    of: &ListenerContext<'_>,
    (protocol, keys): (AgentProtocol, &AgentKeys<'_>),
    path: &str,
    upstreams: &mut Vec<Arc<str>>,
    before: &[AgentServer],
    reader: &mut Reader<'_>,
) -> Option<AgentServer> {
    let (name, wanted) = (keys.name.as_ref()?, keys.upstream.as_ref()?);
    find_upstream(of.file, wanted, path, "upstream", reader);
    if before.iter().any(|other| other.protocol == protocol && other.name == name.value.0) {
        error_at(name, path, "name", "is used twice", "give each a different name", reader);
    }
    let target = &*keys.path.value.0;
    if !target.starts_with('/') || target.contains(['?', '#']) {
        error_at(keys.path, path, "path", "is not a path", "write it as in \"/mcp\"", reader);
    }
    Some(AgentServer {
        protocol,
        name: name.value.0.clone(),
        upstream: position(wanted, upstreams),
        path: target.into(),
        idle_timeout: keys.idle_timeout.value.0,
    })
}

/// The federations of a listener; mistakes are reported.
pub(super) fn federations(
    of: &ListenerContext<'_>,
    path: &str,
    agents: &[AgentServer],
    reader: &mut Reader<'_>,
) -> Vec<Federation> {
    let mut all: Vec<Federation> = Vec::new();
    for (index, table) in of.section.own.ai.ai.mcp_federation.iter().enumerate() {
        let path = format!("{path}.mcp_federation[{index}]");
        let (Some(name), Some(servers)) = (&table.name, &table.servers) else { continue };
        let is_server = agents.iter().any(|one| one.protocol == AgentProtocol::Mcp && one.name == name.value.0);
        if is_server || all.iter().any(|other| other.name == name.value.0) {
            error_at(name, &path, "name", "is used twice", "give each path /mcp/<name> a different name", reader);
        }
        if servers.value.is_empty() || servers.value.len() > FEDERATED_SERVERS_MAX {
            let what = format!("has {} servers", servers.value.len());
            error_at(servers, &path, "servers", &what, "name 1 to 16 of [[listener.ai.mcp]]", reader);
        }
        let servers = members(servers, &path, agents, reader);
        all.push(Federation { name: name.value.0.clone(), servers });
    }
    all
}

/// The servers of a federation, by their positions.
fn members(list: &At<Vec<At<Name>>>, path: &str, agents: &[AgentServer], reader: &mut Reader<'_>) -> Vec<usize> {
    let mut all = Vec::new();
    for name in &list.value {
        let is_it = |one: &AgentServer| one.protocol == AgentProtocol::Mcp && one.name == name.value.0;
        let (what, help) = match agents.iter().position(is_it) {
            None => ("names no [[listener.ai.mcp]]", "correct the name"),
            Some(number) if all.contains(&number) => ("names a server twice", "remove one"),
            Some(_) if !is_server_prefix(&name.value.0) => {
                ("names a server with `__` in its name, or `_` at its end", "rename it: `__` separates server and tool")
            }
            Some(number) => {
                all.push(number);
                continue;
            }
        };
        error_at(name, path, "servers", what, help, reader);
    }
    all
}

/// The tools of a key, as `server/tool`; one that names none is reported.
pub(super) fn tools(list: &At<Vec<At<Word>>>, path: &str, reader: &mut Reader<'_>) -> Vec<ServerTool> {
    list.value.iter().filter_map(|word| tool(word, path, reader)).collect()
}

fn tool(word: &At<Word>, path: &str, reader: &mut Reader<'_>) -> Option<ServerTool> {
    let rule = ServerTool::new(&word.value.0);
    if rule.is_none() {
        let help = "write it as in \"github/create_issue\", \"github/*\" or \"*/read_*\"";
        error_at(word, path, "mcp_tools", "is not of the form server/tool", help, reader);
    }
    rule
}

/// The agents of a key.
pub(super) fn names(list: &At<Vec<At<Word>>>, path: &str, reader: &mut Reader<'_>) -> Vec<Glob> {
    list.value.iter().filter_map(|word| glob(word, path, "a2a_agents", reader)).collect()
}

/// Whether a pattern fits one of these names. A text that is no pattern was reported.
fn fits<'n>(pattern: &str, mut names: impl Iterator<Item = &'n At<Name>>) -> bool {
    match Glob::new(pattern) {
        Ok(pattern) => names.any(|name| pattern.matches(&name.value.0)),
        Err(_) => true,
    }
}

/// Rules of a key that fit no server or agent of the listener.
pub(super) fn warn_unmatched(section: &ListenerAiSection, table: &KeySection, path: &str, reader: &mut Reader<'_>) {
    for word in table.mcp_tools.iter().flat_map(|list| &list.value) {
        let server = word.value.0.split('/').next().unwrap_or_default();
        if !fits(server, section.mcp.iter().flat_map(|table| &table.name)) {
            let help = "correct the name, or remove it";
            warn_at(word, path, "mcp_tools", "names a server that fits no [[listener.ai.mcp]]", help, reader);
        }
    }
    for word in table.a2a_agents.iter().flat_map(|list| &list.value) {
        if !fits(&word.value.0, section.a2a.iter().flat_map(|table| &table.name)) {
            let help = "correct the name, or remove it";
            warn_at(word, path, "a2a_agents", "fits no [[listener.ai.a2a]]", help, reader);
        }
    }
}
