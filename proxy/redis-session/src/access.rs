//! The rights of the client's user: checked for every command of a user with restrictions, before anything is sent.

use std::sync::Arc;

use weir_analysis::redis::{self, Args, Class, Command, Resolved, text};
use weir_base::permit::Permit;
use weir_policy::redis::{Context, DeniedPart, Event, NoPermission, Reason};
use weir_resp::{RequestParser, Step};

use crate::{
    client::write_line,
    io::Io,
    refusal,
    request::Request,
    state::{CommandStatus, Hold, State},
    users::{OWN_LOGIN, UserLimits, UserSettings, Users},
};

/// The user that a client is, with what it holds of the user's limits.
pub(crate) struct CurrentUser {
    pub(crate) settings: Arc<UserSettings>,
    limits: Option<Arc<UserLimits>>,
    /// Permit for one of the user's connections.
    permit: Option<Permit>,
}

/// Effect of new users of the listener on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserChange {
    /// It goes on, by the new rules.
    Stays,
    /// Its user is gone or switched off, or may no longer use a channel that it might have subscribed to.
    Ends,
}

impl State {
    /// Whether a plain command may join a batch as far as the client's user is concerned.
    #[inline]
    pub(crate) fn may_join(&self, command: &'static Command, request: &Request<'_>) -> bool {
        // ACL speaks of the users of the listener, where it has any.
        self.users.is_none() || (!is_acl(command) && (!self.is_watched || self.verdict(command, request).is_ok()))
    }

    /// The requests of the client's user are counted one by one.
    #[inline]
    pub(crate) fn has_own_rate(&self) -> bool {
        self.is_watched && self.user.as_ref().is_some_and(|user| user.limits.is_some())
    }

    /// Verdict of the rules of the client's user.
    pub(crate) fn verdict<A: Args + ?Sized>(&self, command: &'static Command, args: &A) -> Result<(), NoPermission> {
        match &self.user {
            Some(user) => permission(&user.settings, command, args),
            // No user yet; the commands allowed before a login have been checked already.
            None => Ok(()),
        }
    }

    /// Refuses a command that the client's user may not run, or not so often; `None` if it may.
    pub(crate) fn deny(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Option<CommandStatus> {
        if command.class == Class::CrossProtocol {
            // Closed for every user: an HTTP request must not go on as commands.
            return None;
        }
        if let Err(no) = self.verdict(command, request) {
            self.note_denial(command.name, Some(request), &no, io);
            io.count_refused(Some(command), denial(&no));
            let taken = if command.class == Class::Exec {
                self.refuse_exec(&String::from_utf8_lossy(&no_permission(command, &no)), io)
            } else {
                self.reject_with(io, |out| out.extend_from_slice(&no_permission(command, &no)))
            };
            return Some(taken);
        }
        // The end of a transaction is not checked on its own: a refusal would leave the client in the transaction.
        let is_free =
            matches!(command.class, Class::Exec | Class::Discard) || command.flags.contains(redis::Flags::NO_AUTH);
        (!is_free && !self.is_within_rate(io)).then(|| {
            io.count_refused(Some(command), refusal::USER_RATE_REASON);
            self.reject(io, refusal::USER_RATE)
        })
    }

    /// As [`State::deny`], for a command that is in no table: its effects and its keys are unknown.
    pub(crate) fn deny_unknown(&mut self, name: &str, request: &Request<'_>, io: &impl Io) -> Option<CommandStatus> {
        let error = self.refuse_unknown(name, request, io)?;
        Some(self.reject_with(io, |out| out.extend_from_slice(&error)))
    }

    /// The error for an unknown command that the client's user may not send.
    fn refuse_unknown(&mut self, name: &str, request: &Request<'_>, io: &impl Io) -> Option<Vec<u8>> {
        let user = self.user.as_ref().filter(|_| self.is_watched)?;
        if !user.settings.acl.allows_unknown() {
            let no = NoPermission::Denied(DeniedPart::Command);
            self.note_denial(name, Some(request), &no, io);
            io.count_refused(None, denial(&no));
            return Some(refusal::no_command(name).into());
        }
        (!self.is_within_rate(io)).then(|| {
            io.count_refused(None, refusal::USER_RATE_REASON);
            refusal::USER_RATE.into()
        })
    }

    /// The error for a large command of which the beginning is here; `None` if it may go on. Without a command: one that no
    /// table has.
    pub(crate) fn refuse_large(
        &mut self,
        command: Option<&'static Command>,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Option<Vec<u8>> {
        if !self.is_watched {
            return None;
        }
        let Some(command) = command else {
            return self.refuse_unknown(&unknown_name(request), request, io);
        };
        if let Err(no) = self.verdict(command, request) {
            self.note_denial(command.name, Some(request), &no, io);
            io.count_refused(Some(command), denial(&no));
            return Some(no_permission(command, &no));
        }
        (!self.is_within_rate(io)).then(|| {
            io.count_refused(Some(command), refusal::USER_RATE_REASON);
            refusal::USER_RATE.into()
        })
    }

    /// The rate of the client's user has room. Checked once per command, however often it is held and looked at again.
    fn is_within_rate(&mut self, io: &impl Io) -> bool {
        if !self.is_rated {
            let limits = self.user.as_ref().and_then(|user| user.limits.as_ref());
            self.is_rated = limits.is_none_or(|limits| limits.rate.try_take(io.now()));
            if !self.is_rated {
                io.count_denied(self.user_name(), "rate");
            }
        }
        self.is_rated
    }

    fn user_name(&self) -> &str {
        self.user.as_ref().map_or("", |user| user.settings.acl.name())
    }

    /// Counts a denial and writes it into the log of the listener.
    fn note_denial(&self, name: &str, request: Option<&Request<'_>>, no: &NoPermission, io: &impl Io) {
        io.count_denied(self.user_name(), denial_reason(no));
        let argument = |index| request.map_or(&b""[..], |request| request.text(index));
        let (reason, object) = match no {
            NoPermission::Denied(DeniedPart::Key(index)) => (Reason::Key, argument(*index)),
            NoPermission::Denied(DeniedPart::Channel(index)) => (Reason::Channel, argument(*index)),
            NoPermission::Keys(_) => return,
            NoPermission::SortBy | NoPermission::SortGet => (Reason::Key, name.as_bytes()),
            NoPermission::Denied(DeniedPart::Command) | NoPermission::Script => (Reason::Command, name.as_bytes()),
        };
        self.write_log(reason, object, self.user_name().as_bytes(), io);
    }

    /// Adds to the log of the listener.
    pub(crate) fn write_log(&self, reason: Reason, object: &[u8], user: &[u8], io: &impl Io) {
        let Some(share) = io.share() else { return };
        let context = if self.transaction.is_some() { Context::Multi } else { Context::TopLevel };
        let now = io.now();
        let client = || {
            let mut line = Vec::new();
            write_line(&mut line, io.entry(), now);
            line.pop();
            line
        };
        let at = std::time::Duration::from_nanos(now.as_nanos());
        share.log().add(Event { reason, context, object, user }, at, client);
    }

    /// Makes the client this user.
    ///
    /// # Errors
    /// The user has as many connections as it may.
    pub(crate) fn become_user(&mut self, user: &Arc<UserSettings>, io: &impl Io) -> Result<(), &'static str> {
        let login = user.login_key();
        let is_asking = self.hold == Some(Hold::Pin) || self.pin_result.is_some();
        let is_bound =
            self.pins.is_some() || self.parked.is_some() || is_asking || self.is_subscriber() || !self.is_quiet();
        if login != self.login && is_bound {
            return Err(refusal::LOGIN_PINNED);
        }
        let limits = io.share().map(|share| share.limits(user));
        let is_same = self.user.as_ref().is_some_and(|current| current.settings.acl.name() == user.acl.name());
        let permit = match &limits {
            // It keeps the permit that it has.
            Some(limits) if !is_same && user.connections_max.is_some() => {
                let Some(permit) = limits.connections.try_acquire() else {
                    io.count_denied(user.acl.name(), "connections");
                    io.count_shed("user_connections");
                    return Err(refusal::USER_CONNECTIONS);
                };
                Some(permit)
            }
            _ if is_same => self.user.take().and_then(|current| current.permit),
            _ => None,
        };
        let limits = limits.filter(|_| user.requests_per_second.is_some());
        self.login = login;
        self.is_watched = user.is_watched();
        self.is_authenticated = true;
        self.limits.authenticated = true;
        self.user = Some(CurrentUser { settings: user.clone(), limits, permit });
        io.entry().details().user = user.acl.name().to_owned();
        Ok(())
    }

    /// Resets the client to its user at connect time: `default` if that needs no password, else none.
    pub(crate) fn forget_user(&mut self, io: &impl Io) {
        self.user = None;
        self.login = OWN_LOGIN;
        self.is_watched = false;
        let users = self.users.clone();
        self.is_authenticated = match users.as_deref() {
            Some(users) => users.open().is_some_and(|user| self.become_user(user, io).is_ok()),
            None => self.settings.password.is_none(),
        };
        self.limits.authenticated = self.is_authenticated;
        let name = match &self.user {
            Some(user) => user.settings.acl.name(),
            None if self.users.is_some() => "",
            None => self.login_name(),
        };
        name.clone_into(&mut io.entry().details().user);
    }

    /// The listener has other users now. As ACL SETUSER and DELUSER have it: new rules hold at once for who is logged in;
    /// whose user is gone, or switched off, has to go.
    pub(crate) fn follow_users(&mut self, users: Option<&Arc<Users>>, io: &impl Io) -> UserChange {
        let before = self.users.take();
        self.users = users.cloned();
        if before.as_ref() == users {
            return UserChange::Stays;
        }
        if !self.is_authenticated {
            let Some(users) = users else {
                // Its other settings are the old ones, which ask for no password where there were users.
                return UserChange::Ends;
            };
            if users.open().is_some() {
                self.forget_user(io);
            }
            return UserChange::Stays;
        }
        let name = match &self.user {
            Some(user) => user.settings.acl.name().to_owned(),
            None => self.login_name().to_owned(),
        };
        let Some(users) = users else {
            // The rules of this user are gone: the session goes on only if its user needed no password and had no restrictions.
            let was_open = before.is_none_or(|before| before.open().is_some_and(|user| user.acl.name() == name));
            let was_open = was_open && self.login == OWN_LOGIN && !self.is_watched;
            self.user = None;
            self.is_watched = false;
            return if was_open { UserChange::Stays } else { UserChange::Ends };
        };
        let Some(user) = users.get(name.as_bytes()).filter(|user| user.acl.is_enabled()) else {
            return UserChange::Ends;
        };
        let keeps_channels = match &self.user {
            Some(current) => user.acl.keeps_channels_of(&current.settings.acl),
            None => user.acl.is_unrestricted(),
        };
        // A SUBSCRIBE under way is judged as one that is over: its confirmation would come by the old rules.
        if self.become_user(user, io).is_err() || (self.subscriptions.is_some() && !keeps_channels) {
            return UserChange::Ends;
        }
        UserChange::Stays
    }

    /// The client was user `name` in another process of the gateway, if it had logged in there.
    pub(crate) fn settle_user(&mut self, name: &str, was_restricted: bool, io: &impl Io) -> UserChange {
        let Some(users) = self.users.clone() else {
            // The rules of another user are not known here.
            let is_known = !self.is_authenticated || (name == self.login_name() && !was_restricted);
            return if is_known { UserChange::Stays } else { UserChange::Ends };
        };
        if !self.is_authenticated {
            self.forget_user(io);
            return UserChange::Stays;
        }
        let user = users.get(name.as_bytes()).filter(|user| user.acl.is_enabled());
        match user.map(|user| self.become_user(user, io)) {
            Some(Ok(())) => UserChange::Stays,
            Some(Err(_)) | None => UserChange::Ends,
        }
    }

    /// Looks again at the commands of a transaction whose user has other rules now than when it began; not at those whose
    /// numbers in `wire`, from 0, are to be left out.
    ///
    /// # Errors
    /// The text of the reply to EXEC.
    pub(crate) fn check_queued(
        &self,
        wire: &[u8],
        is_left_out: impl Fn(u32) -> bool,
        io: &impl Io,
    ) -> Result<(), String> {
        let (mut parser, mut rest, mut number) = (RequestParser::new(), wire, 0);
        while let Ok(Step::Command { len, .. }) = parser.parse(rest, &self.limits) {
            let request = Request { parser: &parser, bytes: &rest[..len], is_inline: false };
            let no = match redis::resolve(request.text(0), request.arg(1)) {
                // MULTI, which stands in front, was requested before.
                Resolved::Known(command) if command.class == Class::Multi => None,
                _ if is_left_out(number) => None,
                Resolved::Known(command) => self.verdict(command, &request).err().map(|no| (command.name, no)),
                _ => {
                    let may = self.user.as_ref().is_none_or(|user| user.settings.acl.allows_unknown());
                    (!may).then_some(("unknown", NoPermission::Denied(DeniedPart::Command)))
                }
            };
            if let Some((name, no)) = no {
                self.note_denial(name, Some(&request), &no, io);
                return Err(refusal::rules_changed(&no));
            }
            rest = &rest[len..];
            number += 1;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // Queued commands can be parsed again; one that cannot is unknown, and counts as denied.
        Err(refusal::rules_changed(&NoPermission::Denied(DeniedPart::Command)))
    }
}

/// The decision of a user's rules about a command.
pub(crate) fn permission<A: Args + ?Sized>(
    user: &UserSettings,
    command: &'static Command,
    args: &A,
) -> Result<(), NoPermission> {
    match user.acl.check(command, args) {
        Err(NoPermission::Script) if user.trusts_scripts || user.upstream.is_some() => Ok(()),
        verdict => verdict,
    }
}

/// ACL and its subcommands.
pub(crate) fn is_acl(command: &Command) -> bool {
    command.name.starts_with("acl|")
}

/// The error for a command that the client's user may not run.
fn no_permission(command: &'static Command, no: &NoPermission) -> Vec<u8> {
    match no {
        NoPermission::Denied(DeniedPart::Command) => refusal::no_command(command.name).into(),
        NoPermission::Denied(DeniedPart::Key(_)) => refusal::NO_KEY.into(),
        NoPermission::Denied(DeniedPart::Channel(_)) => refusal::NO_CHANNEL.into(),
        NoPermission::SortBy => refusal::NO_SORT_BY.into(),
        NoPermission::SortGet => refusal::NO_SORT_GET.into(),
        NoPermission::Script => refusal::NO_SCRIPT.into(),
        NoPermission::Keys(error) => {
            let mut out = Vec::new();
            text::invalid_keys(&mut out, command, *error);
            out
        }
    }
}

/// The name of a command that no table has, with its subcommand if its container is known. Printable and bounded, or it
/// would not have come so far.
pub(crate) fn unknown_name(request: &Request<'_>) -> String {
    let lower = |index| String::from_utf8_lossy(request.text(index)).to_ascii_lowercase();
    match redis::resolve(request.text(0), request.arg(1)) {
        Resolved::UnknownSubcommand(container) => format!("{}|{}", container.name, lower(1)),
        _ => lower(0),
    }
}

/// The label of `weir_shed_total`.
fn denial(no: &NoPermission) -> &'static str {
    match no {
        NoPermission::Keys(_) => "acl_keys",
        _ => "acl",
    }
}

/// The label of `weir_redis_acl_denied_total`.
fn denial_reason(no: &NoPermission) -> &'static str {
    match no {
        NoPermission::Denied(DeniedPart::Command) => "command",
        NoPermission::Denied(DeniedPart::Key(_)) | NoPermission::SortBy | NoPermission::SortGet => "key",
        NoPermission::Denied(DeniedPart::Channel(_)) => "channel",
        NoPermission::Script => "script",
        NoPermission::Keys(_) => "malformed",
    }
}
