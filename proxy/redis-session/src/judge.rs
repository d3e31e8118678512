//! Resolves a command, judges it, and chooses its way.

use weir_analysis::redis::{self, Args, Class, Command, Flags, LocalCommand, Resolved};
use weir_base::{error::Culprit, violation::Violation};

use crate::{
    access::{is_acl, unknown_name},
    io::{Io, Ticket},
    pin_reason::PinReason,
    refusal,
    request::Request,
    settings::UnknownCommands,
    state::{CommandStatus, Hold, State},
};

impl State {
    /// Judges one command and sends it where it belongs.
    pub(crate) fn command(&mut self, resolved: Resolved, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if !self.follow_primary(io) {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        let command = match resolved {
            Resolved::Known(command) => command,
            Resolved::UnknownSubcommand(container) => return self.unknown_subcommand(container, request, io),
            Resolved::Unknown => return self.unknown(request, io),
        };
        if !redis::check_arity(command, request.argc()) {
            let taken = self.reject_with(io, |out| redis::text::wrong_arity(out, command));
            if command.class == Class::Exec {
                self.abort_transaction(io);
            }
            return taken;
        }
        if !self.is_authenticated && !command.flags.contains(Flags::NO_AUTH) {
            let is_hello = command.class == Class::Local(LocalCommand::Hello);
            if !is_hello {
                let is_exec = command.class == Class::Exec;
                return self.reject(io, if is_exec { refusal::NO_AUTH_EXEC } else { refusal::NO_AUTH });
            }
        }
        if self.is_watched
            && let Some(taken) = self.deny(command, request, io)
        {
            return taken;
        }
        if self.is_paused(Some(command), io) {
            return CommandStatus::Held;
        }
        let class = redis::treatment(command, request);
        if self.transaction.is_none()
            && let Some(no) = self.forbids(command, class)
        {
            if !self.is_quiet() {
                // A MONITOR on its way may be refused.
                self.hold = Some(Hold::Quiet);
                return CommandStatus::Held;
            }
            // As every EXEC that is refused it ends what it would have carried out (`rejectCommand`).
            return match command.class {
                Class::Exec => self.refuse_exec(no.strip_prefix("ERR ").unwrap_or(&no), io),
                _ => self.error(io, &no),
            };
        }
        if self.users.is_some() && is_acl(command) && command.class != Class::Local(LocalCommand::AclWhoami) {
            return self.acl(command, request, io);
        }
        match io.cache() {
            Some(cache) => self.send_cached(&cache, command, class, request, io),
            None => self.send_noted(command, class, request, io),
        }
    }

    /// Sends a command, and notes what it reads, if its client tracks.
    #[inline]
    pub(crate) fn send_noted(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        match self.tracking.is_some() {
            true => self.send_tracked(command, class, request, io),
            false => self.send(command, class, request, io),
        }
    }

    /// Sends a command that its client may run where it belongs.
    #[inline]
    pub(crate) fn send(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        if self.transaction.is_some() {
            return self.in_transaction(command, class, request, io);
        }
        self.dispatch(command, class, request, io)
    }

    /// The refusal of a command that a subscriber of RESP2, or who uses MONITOR, may not use.
    pub(crate) fn forbids(&self, command: &Command, class: Class) -> Option<String> {
        if let Some(no) = self.tunnel.as_ref().and_then(|tunnel| tunnel.forbids(class)) {
            return Some(no);
        }
        let is_allowed = matches!(
            class,
            Class::Subscribe
                | Class::Unsubscribe
                | Class::Local(LocalCommand::Ping | LocalCommand::Quit | LocalCommand::Reset)
        );
        (self.is_modal() && !is_allowed).then(|| refusal::subscribed(command.name))
    }

    #[inline]
    fn dispatch(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        match class {
            Class::Cluster if io.topology().is_some() && self.tunnel.is_none() => self.cluster(command, request, io),
            Class::Info => self.info(command, request, io),
            Class::Shared | Class::Cluster => self.forward(command, request, io),
            Class::Admin if self.settings.admin_commands => self.forward(command, request, io),
            Class::Admin => {
                io.count_refused(Some(command), "admin_command");
                self.error(io, &refusal::admin(command.name))
            }
            Class::Blocking if command.name.starts_with("wait") => {
                self.forward_on_pin(PinReason::Wait, command, request, io)
            }
            Class::Blocking => self.forward_on_pin(PinReason::Blocking, command, request, io),
            Class::Exclusive => self.forward_on_pin(PinReason::Blocking, command, request, io),
            Class::ConnectionState => self.forward_on_pin(PinReason::ConnectionState, command, request, io),
            Class::Watch => self.forward_on_pin(PinReason::Watch, command, request, io),
            Class::Unwatch => self.unwatch(command, io),
            Class::Multi => self.multi(command, io),
            Class::Exec => self.error(io, refusal::EXEC_ALONE),
            Class::Discard => self.error(io, refusal::DISCARD_ALONE),
            Class::Subscribe | Class::Unsubscribe => self.subscribe(command, class, request, io),
            Class::Monitor => self.monitor(command, request, io),
            Class::Local(local) => self.local_command(command, local, request, io),
            Class::Replication | Class::Refused => {
                io.count_refused(Some(command), "unsupported_command");
                self.error(io, &refusal::unsupported(command.name))
            }
            Class::CrossProtocol => {
                io.report(&Violation::rule("cross_protocol", Culprit::Client, "an HTTP request on a Redis port"));
                self.is_closing = true;
                CommandStatus::Done
            }
        }
    }

    fn unknown_subcommand(
        &mut self,
        container: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        // The server knows the container, so it asks for authentication only after naming the unknown part.
        if !self.forwards_unknown_subcommand(container, request) {
            return self.reject_with(io, |out| redis::text::unknown_subcommand(out, container, request.text(1)));
        }
        self.forward_unknown(request, io)
    }

    /// A subcommand that no known server has, behind a container that only administrators may use, stays here.
    pub(crate) fn forwards_unknown_subcommand(&self, container: &Command, request: &Request<'_>) -> bool {
        let is_client = matches!(container.class, Class::Local(LocalCommand::Client(_)));
        let is_own = is_client || (self.users.is_some() && container.name == "acl");
        !is_own
            && self.may_forward(request.text(1))
            && (container.class != Class::Admin || self.settings.admin_commands)
    }

    pub(crate) fn forwards_unknown(&self, request: &Request<'_>) -> bool {
        self.may_forward(request.text(0))
    }

    fn may_forward(&self, name: &[u8]) -> bool {
        // The positions of the keys of an unknown command cannot be determined.
        // A server would ask a subscriber of RESP2 to unsubscribe first, if it knew the command.
        self.is_authenticated
            && !self.is_modal()
            && !self.is_sharded
            && self.settings.unknown_commands == UnknownCommands::Forward
            && redis::may_forward_unknown(name)
    }

    fn unknown(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if !self.forwards_unknown(request) {
            return self.reject_with(io, |out| redis::text::unknown_command(out, request));
        }
        self.forward_unknown(request, io)
    }

    fn forward_unknown(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if self.is_watched
            && let Some(taken) = self.deny_unknown(&unknown_name(request), request, io)
        {
            return taken;
        }
        if self.is_paused(None, io) {
            return CommandStatus::Held;
        }
        if self.transaction.is_some() {
            return self.queue_stateful(request, io);
        }
        let may_go = self.may_go(None, io);
        if let Err(taken) = may_go.and_then(|()| self.need_pin(PinReason::Unknown, self.key(), None, io)) {
            return taken;
        }
        io.count(None, 1);
        if self.tunnel.is_some() {
            self.send_in_tunnel(request, io);
            return CommandStatus::Done;
        }
        let ticket = Ticket::new(self.order.next_number());
        request.with_wire(|wire| io.forward_pinned(wire, ticket));
        self.order.sent();
        self.note_unseen(ticket.number, io);
        CommandStatus::Done
    }
}
