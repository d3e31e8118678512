//! Logins on the shell's side: delays behind wrong passwords, keys off the worker, and what operators see of a client.

use std::mem;

use weir_base::{
    time::{Time, turn},
    violation::Violation,
};
use weir_listener::{
    CloseReason,
    login::{Begun, derive},
};
use weir_mongodb_codec::bson::{Document, Value};
use weir_mongodb_session::{Next, Request, hello::is_hello};
use weir_sasl::{Derivation, ScramKeys};

use super::life::{Life, Stage};

/// The text of a field, cut: clients choose it.
fn text(document: Option<Document<'_>>, name: &[u8]) -> String {
    let value = document.and_then(|document| document.get(name).ok().flatten());
    let bytes = value.and_then(Value::as_string).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

fn inner<'a>(document: Document<'a>, name: &[u8]) -> Option<Document<'a>> {
    document.get(name).ok().flatten().and_then(|value| value.as_document().ok().flatten())
}

impl Life<'_> {
    /// Whether a login has to wait behind wrong passwords of its address.
    pub(super) fn holds_back(&mut self, request: &Request<'_>) -> Result<bool, CloseReason> {
        if self.has_waited || self.session.login().is_done() {
            return Ok(false);
        }
        let Ok(command) = request.command() else { return Ok(false) };
        let is_login = matches!(command.name, b"saslStart" | b"authenticate")
            || (is_hello(command.name) && inner(command.body, b"speculativeAuthenticate").is_some());
        let Some(address) = self.connection.address().filter(|_| is_login) else { return Ok(false) };
        match self.connection.service.penalties.begins(address, b"", turn::now()) {
            Begun::Free => {
                self.has_waited = true;
                Ok(false)
            }
            Begun::Waits(delay, waiting) => {
                self.stage = Stage::Punished(turn::now().saturating_add(delay), waiting);
                Ok(true)
            }
            Begun::Refused => Err(CloseReason::Ended("login_refused")),
        }
    }

    /// Sends what the session has replied. A wrong password is answered behind its delay. `end`: the connection ends then.
    pub(super) fn answer(&mut self, failures: u32, end: Option<Violation>) -> Result<(), CloseReason> {
        if self.session.login().failures() == failures {
            self.give_own();
            self.active = turn::now();
            return end.map_or(Ok(()), |violation| Err(self.connection.violated(&violation)));
        }
        let service = &self.connection.service;
        service.metrics.auth_failures.inc();
        self.has_waited = false;
        let delay = self
            .connection
            .address()
            .map(|address| service.penalties.failed(address, b"", std::time::Duration::ZERO, turn::now()));
        let until = turn::now().saturating_add(delay.unwrap_or_default());
        self.stage = Stage::Answering(until, mem::take(&mut self.own), end);
        Ok(())
    }

    /// The delay of a wrong password is over.
    pub(super) fn answer_now(&mut self) -> Result<(), CloseReason> {
        let Stage::Answering(_, reply, end) = mem::replace(&mut self.stage, Stage::Request) else { return Ok(()) };
        self.output.append(&reply);
        self.active = turn::now();
        match end {
            Some(violation) => Err(self.connection.violated(&violation)),
            None => self.go_on(),
        }
    }

    /// Makes keys of a password off the worker.
    pub(super) fn derive(&mut self, derivation: Derivation) {
        self.active = turn::now();
        self.stage = Stage::Deriving(Box::pin(derive(derivation, &self.connection.service.keys)));
    }

    /// The keys are there.
    pub(super) fn on_keys(&mut self, keys: &ScramKeys) -> Result<(), CloseReason> {
        self.stage = Stage::Request;
        let before = self.session.login().failures();
        match self.session.on_keys(keys, &mut self.own) {
            Next::Close(violation) => self.answer(before, Some(violation))?,
            _ => self.answer(before, None)?,
        }
        self.show_login();
        if matches!(self.stage, Stage::Request) { self.go_on() } else { Ok(()) }
    }

    /// Shows operators who the client is, once it has logged in.
    pub(super) fn show_login(&mut self) {
        let Some(user) = self.session.login().user() else {
            // A connection on which this user has logged in serves no other one.
            if std::mem::replace(&mut self.is_shown, false) {
                self.lease.own = None;
            }
            return;
        };
        if self.is_shown {
            return;
        }
        let name = format!("{}@{}", String::from_utf8_lossy(&user.name), String::from_utf8_lossy(&user.db));
        self.connection.handle.entry().details().user = name;
        self.connection.service.metrics.logins.inc();
        self.is_shown = true;
    }

    /// Shows operators what the client says of itself in its first hello.
    pub(super) fn describe(&mut self, request: &Request<'_>) {
        if self.is_described {
            return;
        }
        let Ok(command) = request.command() else { return };
        self.is_described = true;
        let Some(client) = inner(command.body, b"client").filter(|_| is_hello(command.name)) else { return };
        let driver = inner(client, b"driver");
        let mut details = self.connection.handle.entry().details();
        details.name = text(inner(client, b"application"), b"name");
        (details.library, details.library_version) = (text(driver, b"name"), text(driver, b"version"));
    }

    /// When a login that was begun now has to be over.
    pub(super) fn login_deadline(&self) -> Time {
        turn::now().saturating_add(self.scene.settings.client_login_timeout)
    }
}
