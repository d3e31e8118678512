//! CLIENT: it speaks of the client's own connection, which ends at the gateway.

use weir_analysis::redis::{self, Args, ClientCommand, Command, CommandId};
use weir_base::{connection::ConnectionEntry, time::Time};
use weir_resp::{Version, encode};

use crate::{
    client_filter::{ClientFilter, Purpose},
    hello::is_printable,
    io::Io,
    ordering::ReplyMode,
    refusal,
    request::Request,
    state::{CommandStatus, State},
    users::DEFAULT_USER,
};

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <option> ...",
    "    Kill connections to this gateway: <ip:port>, or those that all of these options name:",
    "    ID <id>..., ADDR <ip:port>, IP <ip>, TYPE (NORMAL|PUBSUB), USER <user>, NAME <name>, LIB-NAME <name>,",
    "    LIB-VER <version>, DB <db>, MAXAGE <seconds>, IDLE <seconds>, SKIPME (YES|NO).",
    "LIST [options ...]",
    "    Return information about the client connections of this gateway; options as for KILL.",
    "NO-EVICT (ON|OFF)",
    "    Accepted; has no effect through a gateway.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted; has no effect through a gateway.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, commands of the clients of this listener for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set LIB-NAME or LIB-VER of the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    Stop the current pause, resuming traffic.",
    "HELP",
    "    Print this help.",
];

impl State {
    pub(crate) fn client(
        &mut self,
        client: ClientCommand,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        if client.is_admin() && !self.settings.admin_commands {
            io.count_shed("admin_command");
            return self.error(io, &refusal::admin(command.name));
        }
        match client {
            ClientCommand::Id => {
                self.local(io, |out| encode::integer(out, io.entry().id as i64));
                CommandStatus::Done
            }
            ClientCommand::GetName => self.client_name(io),
            ClientCommand::SetName => self.set_client_name(request, io),
            ClientCommand::SetInfo => self.set_client_info(request, io),
            ClientCommand::Info => {
                let mut line = Vec::new();
                write_line(&mut line, io.entry(), io.now());
                self.text(io, &line)
            }
            ClientCommand::List => self.client_list(request, io),
            ClientCommand::Pause => self.client_pause(request, io),
            ClientCommand::Unpause => self.client_unpause(io),
            ClientCommand::Unblock => self.client_unblock(command, request, io),
            ClientCommand::NoTouch | ClientCommand::NoEvict => self.on_or_off(request, io),
            ClientCommand::Reply => self.client_reply(request, io),
            ClientCommand::Kill => self.client_kill(request, io),
            ClientCommand::Help => {
                self.local(io, |out| {
                    encode::array(out, HELP.len());
                    HELP.iter().for_each(|line| encode::simple(out, line));
                });
                CommandStatus::Done
            }
            ClientCommand::Tracking
            | ClientCommand::Caching
            | ClientCommand::GetRedir
            | ClientCommand::TrackingInfo => self.client_tracks(client, request, io),
            // Optional features switch themselves off on this text.
            _ => {
                let mut text = Vec::new();
                unsupported_subcommand(&mut text, command, request.text(1));
                self.error_line(io, &text)
            }
        }
    }

    fn client_list(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let filter = match ClientFilter::parse(request, Purpose::List, self) {
            Ok(filter) => filter,
            Err(line) => return self.error_line(io, &line),
        };
        let (own, now, mut lines) = (io.entry().id, io.now(), Vec::new());
        io.list_clients(&|entry| filter.matches(entry, own, now), &mut lines);
        self.text(io, &lines)
    }

    /// The listener has a user of this name.
    pub(crate) fn knows_user(&self, name: &[u8]) -> bool {
        match &self.users {
            Some(users) => users.get(name).is_some(),
            None => name == self.login_name().as_bytes() || name == DEFAULT_USER.as_bytes(),
        }
    }

    /// Text for people: RESP3 marks it as such.
    fn text(&mut self, io: &impl Io, text: &[u8]) -> CommandStatus {
        let version = self.version;
        self.local(io, |out| encode::verbatim(out, *b"txt", text, version));
        CommandStatus::Done
    }

    fn client_name(&mut self, io: &impl Io) -> CommandStatus {
        let name = io.entry().details().name.clone();
        let version = self.version;
        self.local(io, |out| match name.is_empty() {
            true => encode::null_bulk(out, version),
            false => encode::bulk(out, name.as_bytes()),
        });
        CommandStatus::Done
    }

    fn set_client_name(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if !is_printable(request.text(2)) {
            return self.error(io, refusal::BAD_NAME);
        }
        io.entry().details().name = String::from_utf8_lossy(request.text(2)).into_owned();
        self.ok(io)
    }

    fn set_client_info(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let (attribute, value) = (request.text(2), request.text(3));
        let value_text = String::from_utf8_lossy(value).into_owned();
        let is_name = attribute.eq_ignore_ascii_case(b"LIB-NAME");
        if !is_name && !attribute.eq_ignore_ascii_case(b"LIB-VER") {
            let text = [b"ERR Unrecognized option '", attribute, b"'"].concat();
            return self.error_line(io, &text);
        }
        if !is_printable(value) {
            let attribute = if is_name { "lib-name" } else { "lib-ver" };
            let text = format!("ERR {attribute} cannot contain spaces, newlines or special characters.");
            return self.error(io, &text);
        }
        let mut details = io.entry().details();
        if is_name {
            details.library = value_text;
        } else {
            details.library_version = value_text;
        }
        drop(details);
        self.ok(io)
    }

    fn on_or_off(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let value = request.text(2);
        if value.eq_ignore_ascii_case(b"ON") || value.eq_ignore_ascii_case(b"OFF") {
            self.ok(io)
        } else {
            self.error(io, refusal::SYNTAX)
        }
    }

    /// The server's replies cannot be turned off on a lane that others share, so they are dropped here.
    fn client_reply(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let mode = request.text(2);
        if mode.eq_ignore_ascii_case(b"ON") {
            self.order.mode = ReplyMode::On;
            return self.ok(io);
        }
        if mode.eq_ignore_ascii_case(b"OFF") {
            self.order.mode = ReplyMode::Off;
        } else if mode.eq_ignore_ascii_case(b"SKIP") {
            if self.order.mode == ReplyMode::On {
                self.order.mode = ReplyMode::SkipNext;
            }
        } else {
            return self.error(io, refusal::SYNTAX);
        }
        CommandStatus::Done
    }

    fn client_kill(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if request.argc() == 3 {
            let address = request.text(2);
            return match io.kill_clients(&|entry| entry.peer.as_bytes() == address) {
                0 => self.error(io, "ERR No such client"),
                _ => self.ok(io),
            };
        }
        let filter = match ClientFilter::parse(request, Purpose::Kill, self) {
            Ok(filter) => filter,
            Err(line) => return self.error_line(io, &line),
        };
        let (own, now) = (io.entry().id, io.now());
        let killed = io.kill_clients(&|entry| filter.matches(entry, own, now));
        self.local(io, |out| encode::integer(out, killed as i64));
        CommandStatus::Done
    }
}

/// The words of a server that does not know the subcommand.
pub(crate) fn unsupported_subcommand(out: &mut Vec<u8>, command: &Command, name: &[u8]) {
    if let redis::Resolved::Known(container) = redis::resolve(command.base_name().as_bytes(), None) {
        redis::text::unknown_subcommand(out, container, name);
    }
}

/// One line of CLIENT LIST (Redis `catClientInfoString`); fields that have no meaning at a gateway are left out.
pub fn write_line(out: &mut Vec<u8>, entry: &ConnectionEntry, now: Time) {
    use std::{io::Write, sync::atomic::Ordering::Relaxed};
    let details = entry.details().clone();
    let idle = now.since(Time::from_nanos(entry.active_at.load(Relaxed))).as_secs();
    let command = entry.last_command.load(Relaxed).checked_sub(1);
    let command = command.map_or("NULL", |id| CommandId(id as u16).command().name);
    // Writing to a vector cannot fail.
    let _ = writeln!(
        out,
        "id={} addr={} name={} age={} idle={} flags={} db={} obl={} cmd={} user={} resp={} lib-name={} lib-ver={}",
        entry.id,
        entry.peer,
        details.name,
        now.since(entry.accepted_at).as_secs(),
        idle,
        if details.pinned.is_empty() && entry.subscriptions.load(Relaxed) == 0 { "N" } else { "P" },
        details.db.unwrap_or_default(),
        entry.buffered.load(Relaxed),
        command,
        details.user,
        if details.version == Version::Resp3.name() { 3 } else { 2 },
        details.library,
        details.library_version,
    );
}
