//! HELLO and AUTH: who is the client, and which protocol does it speak.

use weir_analysis::redis::{self, Args, Command};
use weir_base::exchange::Refusal;
use weir_policy::redis::Reason;
use weir_resp::{Version, encode};

use crate::{
    io::Io,
    lane::{LaneKey, ServerInfo},
    pin_reason::PinReason,
    refusal,
    request::Request,
    request::parse_integer,
    state::{CommandStatus, Hold, State},
    users::DEFAULT_USER,
};

/// The arguments of a HELLO.
struct Hello<'a> {
    version: Option<Version>,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    fn parse(request: &'a Request<'_>) -> Result<Self, Vec<u8>> {
        let mut hello = Self { version: None, login: None, name: None };
        if request.argc() < 2 {
            return Ok(hello);
        }
        let number = parse_integer(request.text(1)).ok_or(refusal::PROTO_NOT_INTEGER)?;
        hello.version = Some(Version::from_number(number).ok_or(refusal::NO_PROTO)?);
        let mut at = 2;
        while at < request.argc() {
            let option = request.text(at);
            let more = request.argc() - at - 1;
            if option.eq_ignore_ascii_case(b"AUTH") && more >= 2 {
                hello.login = Some((request.text(at + 1), request.text(at + 2)));
                at += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && more >= 1 {
                hello.name = Some(request.text(at + 1));
                at += 2;
            } else {
                return Err([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
            }
        }
        Ok(hello)
    }
}

impl State {
    /// The user that this listener's password belongs to.
    pub(crate) fn login_name(&self) -> &str {
        self.settings.user.as_deref().unwrap_or(DEFAULT_USER)
    }

    pub(crate) fn hello(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let hello = match Hello::parse(request) {
            Ok(hello) => hello,
            Err(text) => {
                io.count(Some(command), 1);
                return self.error_line(io, &text);
            }
        };
        let version = hello.version.unwrap_or(self.version);
        if version != self.version && self.pins.as_ref().is_some_and(|(_, pins)| !pins.has(PinReason::Greeting)) {
            return self.error(io, refusal::HELLO_PINNED);
        }
        if !self.is_authenticated && hello.login.is_none() {
            io.count(Some(command), 1);
            return self.error(io, refusal::NO_AUTH_HELLO);
        }
        if hello.login.is_some() && self.waits_for_penalty(io) {
            return CommandStatus::Held;
        }
        // A guess must not cost an upstream connection: the password is judged first.
        let logs_in = hello.login.is_none_or(|(user, password)| self.knows(user, password));
        // Its own login may be the only one that the server takes.
        let known = hello.login.and_then(|(user, password)| self.users.as_ref()?.log_in(user, password));
        let login = known.map_or(self.login, |user| user.login_key());
        let info = match logs_in {
            true => self.server_info((version, login), command, request, io),
            false => Ok(Default::default()),
        };
        let info = match info {
            Ok(info) => info,
            Err(taken) => return taken,
        };
        io.count(Some(command), 1);
        if let Some((user, password)) = hello.login
            && self.login(user, password, io).is_err()
        {
            return CommandStatus::Done;
        }
        if let Some(name) = hello.name {
            if !is_printable(name) {
                return self.error(io, refusal::BAD_NAME);
            }
            io.entry().details().name = String::from_utf8_lossy(name).into_owned();
        }
        self.version = version;
        io.entry().details().version = version.name();
        let id = io.entry().id;
        self.local(io, |out| write_greeting(out, &info, version, id));
        CommandStatus::Done
    }

    /// The server's description of itself in `version`; requests it if it is not known yet.
    fn server_info(
        &mut self,
        (version, login): (Version, u64),
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<std::rc::Rc<ServerInfo>, CommandStatus> {
        let key = LaneKey { version, login, ..self.key_at(io.keyless()) };
        if let Some(info) = io.server(key) {
            return Ok(info);
        }
        if version == Version::Resp3 && self.pin_result == Some(Err(Refusal::Greeting)) {
            // The very words of a server without HELLO: clients fall back to RESP2 on them, and on no others.
            let mut text = Vec::new();
            redis::text::unknown_command(&mut text, request);
            return Err(self.error_line(io, &text));
        }
        self.need_room(Some(command), io)?;
        self.need_pin(PinReason::Greeting, key, Some(command), io)?;
        let info = io.server(key).unwrap_or_default();
        self.settle_pin(io);
        Ok(info)
    }

    /// AUTH [user] password.
    pub(crate) fn auth(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let needs_none = match self.users.as_deref() {
            Some(users) => users.get(DEFAULT_USER.as_bytes()).is_some_and(|user| user.acl.needs_no_password()),
            None => self.settings.password.is_none(),
        };
        if self.waits_for_penalty(io) {
            return CommandStatus::Held;
        }
        io.count(Some(command), 1);
        let (user, password) = match request.argc() {
            2 if needs_none => return self.error(io, refusal::AUTH_NOT_CONFIGURED),
            2 => (DEFAULT_USER.as_bytes(), request.text(1)),
            3 => (request.text(1), request.text(2)),
            _ => return self.error(io, refusal::SYNTAX),
        };
        match self.login(user, password, io) {
            Ok(()) => self.ok(io),
            Err(()) => CommandStatus::Done,
        }
    }

    /// Somebody at this address has given a wrong password a moment ago: this login waits, once.
    fn waits_for_penalty(&mut self, io: &impl Io) -> bool {
        if std::mem::replace(&mut self.has_served_penalty, true) {
            return false;
        }
        let penalty = match (io.share(), io.source()) {
            (Some(share), Some(source)) => share.login_failures().penalty(source, io.now()),
            _ => None,
        };
        self.hold = penalty.map(Hold::Until);
        self.hold.is_some()
    }

    fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        if let Some(users) = &self.users {
            return users.log_in(user, password).is_some();
        }
        // The password is compared even for a wrong user, so that time tells nothing.
        let matches = self.settings.password.as_ref().is_none_or(|secret| secret.matches(password));
        matches & (user == self.login_name().as_bytes())
    }

    /// Logs in, or answers the refusal and makes the client wait: guessing must be slow.
    fn login(&mut self, user: &[u8], password: &[u8], io: &impl Io) -> Result<(), ()> {
        let known = self.users.as_ref().and_then(|users| users.log_in(user, password)).cloned();
        if let Some(user) = known {
            // The lane for HELLO has been greeted, which is all it was for.
            if let Some(Ok(())) = self.pin_result.take() {
                io.unpin(true);
            }
            return match self.become_user(&user, io) {
                Ok(()) => {
                    io.count_login(user.acl.name());
                    Ok(())
                }
                Err(text) => {
                    self.error(io, text);
                    Err(())
                }
            };
        }
        if self.users.is_none() && self.knows(user, password) {
            self.is_authenticated = true;
            self.limits.authenticated = true;
            io.entry().details().user = self.login_name().to_owned();
            return Ok(());
        }
        io.count_auth_failure();
        if self.users.is_some() {
            self.write_log(Reason::Auth, b"AUTH", user, io);
        }
        self.error(io, refusal::WRONG_PASS);
        self.auth_failures += 1;
        let (base, max) = (self.settings.auth_failure_delay, self.settings.auth_failure_delay_max);
        let delay = match (io.share(), io.source()) {
            (Some(share), Some(source)) => share.login_failures().failed(source, io.now(), base, max),
            _ => base,
        };
        if self.auth_failures >= self.settings.auth_failures_max {
            self.close();
        } else {
            self.hold = Some(Hold::Until(io.now().saturating_add(delay)));
        }
        Err(())
    }
}

/// Printable ASCII without blanks: what Redis allows in a client's name.
pub(crate) fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn write_greeting(out: &mut Vec<u8>, info: &ServerInfo, version: Version, id: u64) {
    encode::map(out, 7, version);
    for (name, value) in [("server", &info.server), ("version", &info.version)] {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value);
    }
    encode::bulk(out, b"proto");
    encode::integer(out, version.number().into());
    encode::bulk(out, b"id");
    encode::integer(out, id as i64);
    encode::bulk(out, b"mode");
    encode::bulk(out, b"standalone");
    encode::bulk(out, b"role");
    encode::bulk(out, &info.role);
    encode::bulk(out, b"modules");
    encode::array(out, 0);
}
