//! Key, tool, header and rates of a message.

use weir_base::time::turn;
use weir_http_codec::Fields;
use weir_mcp_session::{Message, MessageKind, header};
use weir_spend::{
    Amount, Denial,
    keys::Key,
    meter::{Clock, Reservation},
    policy::{Mode, Policy},
};

use super::{
    account::{Call, MessageRecord},
    refusal::AgentRefusal,
    settings::{AgentProtocol, AgentServer},
};
use crate::{metrics::Treatment, spend::unix_time, worker::Worker};

/// The word of metrics for a server that a key may not reach.
const SERVER: &str = "server_not_found";

/// Whether a key may do something. One that only observes forbids nothing, and counts it.
fn permits(worker: &Worker, key: Option<&Key>, reason: &'static str, by: impl Fn(&Policy) -> bool) -> bool {
    for level in key.map_or(&[][..], Key::levels) {
        if by(&level.policy) {
            continue;
        }
        match level.policy.mode {
            Mode::Enforce => return false,
            Mode::Observe => worker.metrics.denied(reason, Treatment::Observed),
        }
    }
    true
}

/// Whether a key may reach a server or an agent.
pub(crate) fn permits_server(worker: &Worker, key: Option<&Key>, server: &AgentServer) -> bool {
    permits(worker, key, SERVER, |policy| match server.protocol {
        AgentProtocol::Mcp => policy.permits_server(&server.name),
        AgentProtocol::A2a => policy.permits_agent(&server.name),
    })
}

/// Whether a key may reach a server of a federation: one of several, so nothing is counted.
pub(crate) fn may_reach(key: Option<&Key>, server: &AgentServer) -> bool {
    let levels = key.map_or(&[][..], Key::levels);
    levels.iter().all(|level| level.policy.mode == Mode::Observe || level.policy.permits_server(&server.name))
}

/// Whether a key may call a tool of a server, for a list of them.
pub(crate) fn may_list(key: Option<&Key>, server: &str, tool: &str) -> bool {
    let levels = key.map_or(&[][..], Key::levels);
    levels.iter().all(|level| level.policy.mode == Mode::Observe || level.policy.permits_tool(server, tool))
}

/// Whether a key may call only some tools: lists lose the others.
pub(crate) fn is_restricted(key: Option<&Key>) -> bool {
    let levels = key.map_or(&[][..], Key::levels);
    levels.iter().any(|level| level.policy.mode == Mode::Enforce && level.policy.server_tools.is_some())
}

/// Judges a message by its own words and the fields that repeat them.
///
/// # Errors
/// The first rule that it breaks.
pub(crate) fn judge(
    worker: &Worker,
    key: Option<&Key>,
    server: &AgentServer,
    message: &Message,
    fields: &Fields,
) -> Result<(), AgentRefusal> {
    if server.protocol == AgentProtocol::A2a {
        return Ok(());
    }
    // A response has no method: its head may not name one either.
    if !header::agree(message, fields.all_named(b"mcp-method"), fields.all_named(b"mcp-name")) {
        return Err(AgentRefusal::MISMATCH);
    }
    if message.kind == MessageKind::Response || Call::of(server.protocol, &message.method) != Some(Call::Tool) {
        return Ok(());
    }
    let tool = message.name.as_deref().ok_or(AgentRefusal::NO_NAME)?;
    let is_permitted =
        permits(worker, key, AgentRefusal::TOOL.reason, |policy| policy.permits_tool(&server.name, tool));
    if is_permitted { Ok(()) } else { Err(AgentRefusal::TOOL) }
}

/// Takes a request from the rates of its key. It costs nothing; a call has a line in the usage log.
///
/// # Errors
/// The limit that refuses it.
pub(crate) fn reserve(worker: &Worker, key: Option<&Key>, record: &MessageRecord) -> Result<Reservation, Denial> {
    let (unix, now) = (unix_time(), turn::now());
    let clock = Clock { now, unix_seconds: unix.as_secs() };
    let reservation = worker.meter.reserve(key, Amount::ZERO, clock, |_, out| record.write_open(unix, out))?;
    let taken = match record.call {
        Some(_) => worker.meter.take_tool_call(key, now),
        None => Ok(None),
    };
    match taken {
        Ok(observed) => {
            for denial in [observed, reservation.observed()].into_iter().flatten() {
                worker.metrics.denied(denial.reason(), Treatment::Observed);
            }
            Ok(reservation)
        }
        Err(denial) => {
            reservation.release(now, |_, _| ());
            Err(denial)
        }
    }
}
