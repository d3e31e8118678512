//! Parameters of the startup packet: at PostgreSQL they are the defaults of the session, which RESET and DISCARD ALL bring back.
//!
//! The server of a client resets to defaults of its own. So behind such a statement the gateway sets what the startup packet has.

use std::rc::Rc;

use weir_postgres_codec::{TransactionStatus, backend};

use crate::attach::replay;
use crate::io::Io;
use crate::server::ServerState;
use crate::session::Session;
use crate::variables::{ROLE, Value, Variables, difference, reported_name};

/// Parameters of a startup packet, and which of them the client has reset.
#[derive(Debug)]
pub(crate) struct Startup {
    /// Those of the packet.
    parameters: Rc<Variables>,
    /// Names of those that were reset, and may be at the server's defaults.
    reset: Vec<Box<[u8]>>,
}

impl Startup {
    pub(crate) fn new(parameters: Rc<Variables>) -> Self {
        Self { parameters, reset: Vec::new() }
    }

    pub(crate) fn parameters(&self) -> &Variables {
        &self.parameters
    }

    /// The packet has parameters.
    pub(crate) fn has_any(&self) -> bool {
        self.parameters.iter().next().is_some()
    }

    /// A statement has reset a parameter; `None`: all but the role.
    pub(crate) fn on_reset(&mut self, name: Option<&[u8]>) {
        let is_meant = |other: &[u8]| name.map_or(other != ROLE, |name| name.eq_ignore_ascii_case(other));
        self.reset.extend(self.parameters.iter().filter(|(name, _)| is_meant(name)).map(|(name, _)| name.into()));
    }

    /// The parameters that a server with these lacks.
    fn missing(&self, server: &ServerState) -> Vec<(Box<[u8]>, Value)> {
        let is_reset = |name: &[u8]| self.reset.iter().any(|reset| **reset == *name);
        let lacks = |name: &[u8], value: &Value| {
            server.variables.now().get(name).is_none() && server.variables.defaults().get(name) != Some(value)
        };
        let parameters = self.parameters.iter();
        parameters
            .filter(|(name, value)| is_reset(name) && lacks(name, value))
            .map(|(name, value)| (name.into(), value.clone()))
            .collect()
    }
}

impl Session {
    /// Everything sent has its reply: the server gets the reset parameters of the startup packet again.
    pub(crate) fn restore_startup(&mut self, server: &mut ServerState, io: &impl Io) {
        // A failed block takes no SET. Its end brings the parameters back.
        if self.startup.reset.is_empty() || server.status == TransactionStatus::Failed {
            return;
        }
        let missing = self.startup.missing(server);
        self.startup.reset.clear();
        if missing.is_empty() {
            return;
        }
        let mut wanted = (**server.variables.now()).clone();
        for (name, value) in missing {
            // The client has seen the report of the server's default.
            if let (true, Value::Literal(value)) = (server.variables.reports(&name), &value) {
                io.encode_to_client(|out| backend::parameter_status(out, reported_name(&name), value));
            }
            wanted.set(&name, value);
        }
        let difference = difference(&server.variables, &wanted);
        let wanted = self.share.variables(wanted);
        replay(server, &wanted, (&difference, b""), (false, false), io);
    }
}
