//! Run-time parameters (`SET`): what a client set, what a server has, and the statements that make the second like the first.
//!
//! Parameters that the server reports (ParameterStatus) are known from its reports alone, which also tell of SET LOCAL and of
//! rollbacks. All others follow the effects of the statements and are undone here when a transaction is.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

mod assign;
mod everybody;

use crate::encoding::is_readable_in;
use crate::login::settings;
pub(crate) use assign::{assign, quote_name};
use everybody::is_for_everybody;

/// Reported parameters that no client can set.
const FIXED: [&[u8]; 6] = [
    b"server_version",
    b"server_encoding",
    b"in_hot_standby",
    b"integer_datetimes",
    b"is_superuser",
    b"session_authorization",
];

/// The name of a reported parameter as servers spell it: drivers compare names byte by byte.
pub fn reported_name(name: &[u8]) -> &[u8] {
    let mixed: [&[u8]; 3] = [b"DateStyle", b"IntervalStyle", b"TimeZone"];
    mixed.into_iter().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name)
}

/// The name under which SET ROLE is kept.
pub(crate) const ROLE: &[u8] = b"role";
/// The name under which SET SESSION AUTHORIZATION is kept.
pub(crate) const AUTHORIZATION: &[u8] = b"session_authorization";

/// Sets of parameters kept per worker before unused ones are dropped, or twice as many as are in use: each client and server has one.
const SETS_MAX: usize = 1_024;

/// Parameters of one client that follow it from server to server. One with more keeps its server. Default 256: applications set some dozens.
const NAMES_MAX: usize = 256;

/// Bytes of their names and values. Default 64 KiB; each change of one copies them. Worst case: as much for each client.
const BYTES_MAX: usize = 64 * 1024;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The value itself.
    Literal(Box<[u8]>),
    /// The text behind `SET name =` in a statement.
    Expression(Box<[u8]>),
    /// The string that stood in `set_config`.
    Config(Box<[u8]>),
}

impl Value {
    /// The text of the value, in one of its forms.
    pub(crate) fn text(&self) -> &[u8] {
        let (Self::Literal(text) | Self::Expression(text) | Self::Config(text)) = self;
        text
    }
}

/// Parameters that differ from the defaults of their session, by lower-case name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variables(Vec<(Box<[u8]>, Value)>);

impl Variables {
    /// The parameters of a startup packet: all but those that say who connects where.
    pub fn from_startup<'a>(parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut variables = Self::default();
        for (name, value) in parameters {
            match name {
                b"user" | b"database" | b"replication" => {}
                // The login has refused anything else than settings.
                b"options" => {
                    for (name, value) in settings(value).unwrap_or_default() {
                        variables.set(&name, Value::Literal(value.into()));
                    }
                }
                _ if name.starts_with(b"_pq_.") => {}
                _ => variables.set(name, Value::Literal(value.into())),
            }
        }
        variables
    }

    /// The value of a parameter, by lower-case name.
    pub fn get(&self, name: &[u8]) -> Option<&Value> {
        self.position(name).ok().map(|at| &self.0[at].1)
    }

    /// Sets a parameter.
    pub(crate) fn set(&mut self, name: &[u8], value: Value) {
        let name = name.to_ascii_lowercase();
        match self.position(&name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name.into(), value)),
        }
    }

    /// Forgets a parameter: it has its default again.
    pub(crate) fn unset(&mut self, name: &[u8]) {
        if let Ok(at) = self.position(&name.to_ascii_lowercase()) {
            self.0.remove(at);
        }
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

/// Equal sets are one object: most comparisons are of pointers.
#[derive(Debug, Default)]
pub(crate) struct VariableSets {
    sets: HashSet<Rc<Variables>>,
    /// Sets in use when unused ones were dropped last.
    used: usize,
}

impl VariableSets {
    /// The one object with this content.
    pub(crate) fn intern(&mut self, variables: Variables) -> Rc<Variables> {
        if let Some(known) = self.sets.get(&variables) {
            return known.clone();
        }
        // As many as are in use may be unused besides: the work of a sweep is spread over as many sets.
        if self.sets.len() >= SETS_MAX.max(2 * self.used) {
            self.sets.retain(|set| Rc::strong_count(set) > 1);
            self.used = self.sets.len();
        }
        let set = Rc::new(variables);
        self.sets.insert(set.clone());
        set
    }
}

/// The parameters of one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerVariables {
    /// The values that the server reported at its login: those that RESET brings back.
    defaults: Variables,
    /// Texts can be read in the encoding that is the default.
    has_readable_default: bool,
    now: Rc<Variables>,
    /// As they were when the transaction began; `None`: none of it changed them.
    before: Option<Rc<Variables>>,
    savepoints: Vec<(Box<[u8]>, Rc<Variables>)>,
    /// SET LOCAL has taken another role or user, up to the end of the transaction.
    has_local_identity: bool,
    /// The same for a `search_path` that no text shows.
    has_local_path: bool,
}

impl ServerVariables {
    pub(crate) fn new(reported: Variables, none: Rc<Variables>) -> Self {
        let has_readable_default = is_readable_in(&reported);
        Self {
            defaults: reported,
            has_readable_default,
            now: none,
            before: None,
            savepoints: Vec::new(),
            has_local_identity: false,
            has_local_path: false,
        }
    }

    pub(crate) fn now(&self) -> &Rc<Variables> {
        &self.now
    }

    pub(crate) fn defaults(&self) -> &Variables {
        &self.defaults
    }

    #[inline]
    pub(crate) fn has_readable_default(&self) -> bool {
        self.has_readable_default
    }

    fn is_reported(&self, name: &[u8]) -> bool {
        self.defaults.position(name).is_ok() && !FIXED.contains(&name)
    }

    /// The server reports each change of the parameter, by lower-case name.
    pub(crate) fn reports(&self, name: &[u8]) -> bool {
        self.is_reported(name)
    }

    /// The client may have the parameter with a value of so many bytes besides its others.
    pub(crate) fn has_room_for(&self, name: &[u8], value_bytes: usize) -> bool {
        let others = self.now.iter().filter(|(other, _)| !other.eq_ignore_ascii_case(name));
        let (mut count, mut bytes) = (1, name.len() + value_bytes);
        for (name, value) in others {
            count += 1;
            bytes += name.len() + value.text().len();
        }
        count <= NAMES_MAX && bytes <= BYTES_MAX
    }

    /// ParameterStatus. False: there is no room for it, so that the value is not known.
    pub(crate) fn on_report(&mut self, name: &[u8], value: &[u8], sets: &mut VariableSets) -> bool {
        let name = name.to_ascii_lowercase();
        let value = Value::Literal(value.into());
        if FIXED.contains(&&*name) || self.defaults.get(&name).is_none() {
            self.defaults.set(&name, value);
            self.has_readable_default = is_readable_in(&self.defaults);
            return true;
        }
        let is_default = self.defaults.get(&name) == Some(&value);
        let has_room = is_default || self.has_room_for(&name, value.text().len());
        if has_room {
            self.change(sets, |now| if is_default { now.unset(&name) } else { now.set(&name, value) });
        }
        has_room
    }

    /// A statement set a parameter, for longer than its transaction if that commits.
    pub(crate) fn on_set(&mut self, name: &[u8], value: Value, sets: &mut VariableSets) {
        let name = name.to_ascii_lowercase();
        if self.is_reported(&name) {
            return;
        }
        self.begin_change();
        // The server drops the role with the user that took it.
        let drops_role = name == AUTHORIZATION;
        self.change(sets, |now| {
            now.set(&name, value);
            if drops_role {
                now.unset(ROLE);
            }
        });
    }

    /// A statement took another role or user for the rest of its transaction.
    pub(crate) fn on_local_identity(&mut self) {
        self.begin_change();
        self.has_local_identity = true;
    }

    /// A statement took a `search_path` that its text does not show for the rest of its transaction.
    pub(crate) fn on_local_path(&mut self) {
        self.begin_change();
        self.has_local_path = true;
    }

    /// New objects may be temporary although no text shows it.
    pub(crate) fn may_have_temporary_path(&self) -> bool {
        self.has_local_path
    }

    /// The login alone may not be able to set the parameter to what a statement has set it to just now: that ran with the rights
    /// of another role or user. Names with a dot belong to libraries, or are free; the replay finds out.
    pub(crate) fn needs_identity(&self, name: &[u8]) -> bool {
        let is_other = self.has_local_identity || self.now.get(ROLE).is_some() || self.now.get(AUTHORIZATION).is_some();
        is_other && !self.is_reported(name) && !is_for_everybody(name) && !name.contains(&b'.')
    }

    /// A statement reset a parameter, or all of them.
    pub(crate) fn on_reset(&mut self, name: Option<&[u8]>, sets: &mut VariableSets) {
        self.begin_change();
        match name {
            Some(name) => {
                let name = name.to_ascii_lowercase();
                if !self.is_reported(&name) {
                    self.change(sets, |now| now.unset(&name));
                }
            }
            None => {
                // Reported ones follow by their reports; RESET ALL leaves users and roles.
                let reported = self.defaults.clone();
                self.change(sets, |now| {
                    now.0.retain(|(name, _)| {
                        **name == *ROLE || **name == *AUTHORIZATION || reported.position(name).is_ok()
                    });
                });
            }
        }
    }

    /// DISCARD ALL, outside of a transaction: everything is as after the login.
    pub(crate) fn on_discard(&mut self, sets: &mut VariableSets) {
        self.now = sets.intern(Variables::default());
        self.before = None;
        self.savepoints.clear();
        (self.has_local_identity, self.has_local_path) = (false, false);
    }

    /// SAVEPOINT.
    pub(crate) fn on_savepoint(&mut self, name: &[u8]) {
        self.savepoints.push((name.into(), self.now.clone()));
    }

    /// ROLLBACK TO: the savepoint stays.
    pub(crate) fn on_rollback_to(&mut self, name: &[u8], sets: &mut VariableSets) {
        if let Some(at) = self.savepoints.iter().rposition(|(other, _)| **other == *name) {
            self.savepoints.truncate(at + 1);
            let then = self.savepoints[at].1.clone();
            self.restore(&then, sets);
        }
    }

    /// RELEASE.
    pub(crate) fn on_release(&mut self, name: &[u8]) {
        if let Some(at) = self.savepoints.iter().rposition(|(other, _)| **other == *name) {
            self.savepoints.truncate(at);
        }
    }

    /// Savepoints of the open transaction.
    pub(crate) fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// A transaction has changed something that its end decides about.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.before.is_some() || !self.savepoints.is_empty()
    }

    /// A statement has completed with this command tag. `is_partial`: it is ROLLBACK TO.
    #[inline]
    pub(crate) fn on_tag(&mut self, tag: &[u8], is_partial: bool, sets: &RefCell<VariableSets>) {
        if !self.has_changes() {
            return;
        }
        match tag {
            b"COMMIT" | b"PREPARE TRANSACTION" => self.on_commit(),
            b"ROLLBACK" if !is_partial => self.on_rollback(&mut sets.borrow_mut()),
            _ => {}
        }
    }

    /// A server is outside of a transaction again.
    #[inline]
    pub(crate) fn on_idle(&mut self, has_failed: bool, sets: &RefCell<VariableSets>) {
        match self.has_changes() {
            true if has_failed => self.on_rollback(&mut sets.borrow_mut()),
            true => self.on_commit(),
            false => {}
        }
    }

    /// A transaction has committed.
    #[inline]
    pub(crate) fn on_commit(&mut self) {
        self.before = None;
        self.savepoints.clear();
        (self.has_local_identity, self.has_local_path) = (false, false);
    }

    /// A transaction was rolled back.
    pub(crate) fn on_rollback(&mut self, sets: &mut VariableSets) {
        self.savepoints.clear();
        (self.has_local_identity, self.has_local_path) = (false, false);
        if let Some(before) = self.before.take() {
            self.restore(&before, sets);
        }
    }

    /// The server was made like this, or is like this in another form.
    pub(crate) fn become_like(&mut self, wanted: &Rc<Variables>) {
        self.now = wanted.clone();
    }

    /// New objects are temporary although their CREATE does not say so.
    #[inline]
    pub(crate) fn has_temporary_path(&self) -> bool {
        let names_temp = |value: &Value| memchr::memmem::find(&value.text().to_ascii_lowercase(), b"pg_temp").is_some();
        !self.now.0.is_empty() && self.now.get(b"search_path").is_some_and(names_temp)
    }

    fn begin_change(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.now.clone());
        }
    }

    fn change(&mut self, sets: &mut VariableSets, change: impl FnOnce(&mut Variables)) {
        let mut now = (*self.now).clone();
        change(&mut now);
        if now != *self.now {
            self.now = sets.intern(now);
        }
    }

    /// Back to `then`, except for reported ones.
    fn restore(&mut self, then: &Rc<Variables>, sets: &mut VariableSets) {
        if Rc::ptr_eq(&self.now, then) {
            return;
        }
        let is_reported = |name: &[u8]| self.is_reported(name);
        let mut restored = Variables::default();
        for (name, value) in then.iter().filter(|(name, _)| !is_reported(name)) {
            restored.set(name, value.clone());
        }
        for (name, value) in self.now.iter().filter(|(name, _)| is_reported(name)) {
            restored.set(name, value.clone());
        }
        self.now = sets.intern(restored);
    }
}

/// The statements that make a server as a client wants it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The statement that sets `client_encoding`, if it has to run before the text is sent: a server reads all of a text in the encoding
    /// that it has when the text comes.
    pub(crate) encoding: Vec<u8>,
    /// Statements, each with its semicolon; empty: nothing differs.
    pub(crate) text: Vec<u8>,
    /// The server may refuse one of them, or one decides on rights. They are one transaction: with one that fails, the server
    /// keeps what its last client wanted, so nothing of the client may go out before they are known to have worked.
    pub(crate) may_fail: bool,
}

/// The difference between the parameters of a server and those that a client wants.
pub(crate) fn difference(server: &ServerVariables, wanted: &Variables) -> Difference {
    let mut difference = Difference::default();
    let now = &*server.now;
    let differs = |name: &[u8]| now.get(name) != wanted.get(name);
    let identity_differs = differs(AUTHORIZATION) || differs(ROLE);
    if identity_differs {
        // Everything else is set with the rights of the login.
        difference.text.extend_from_slice(b"RESET ROLE;");
        if differs(AUTHORIZATION) {
            assign(&mut difference.text, AUTHORIZATION, wanted.get(AUTHORIZATION));
        }
    }
    let mut is_doubtful = identity_differs;
    for (name, _) in now.iter() {
        if wanted.get(name).is_none() && !is_identity(name) {
            is_doubtful |= !is_sure(server, name, None);
            assign(&mut difference.text, name, None);
        }
    }
    for (name, value) in wanted.iter() {
        let has = now.get(name).or_else(|| server.defaults.get(name));
        if has != Some(value) && !is_identity(name) {
            is_doubtful |= !is_sure(server, name, Some(value));
            assign(&mut difference.text, name, Some(value));
        }
    }
    if identity_differs && wanted.get(ROLE).is_some() {
        assign(&mut difference.text, ROLE, wanted.get(ROLE));
    }
    if differs(ENCODING) && !difference.text.is_ascii() {
        assign(&mut difference.encoding, ENCODING, wanted.get(ENCODING));
    }
    // The statements themselves may take too long for the last client.
    let is_timed = || TIMEOUTS.iter().any(|name| now.get(name).is_some());
    difference.may_fail = is_doubtful || (!difference.text.is_empty() && is_timed());
    difference
}

/// The encoding of texts in both directions.
pub(crate) const ENCODING: &[u8] = b"client_encoding";

/// Parameters of a server that cut its statements short.
const TIMEOUTS: [&[u8]; 2] = [b"statement_timeout", b"transaction_timeout"];

/// The server is sure to take a value that another one of its database took from this login. A backslash in the text of a client
/// means what `standard_conforming_strings` says.
fn is_sure(server: &ServerVariables, name: &[u8], value: Option<&Value>) -> bool {
    let is_same_text = match value {
        Some(Value::Expression(text) | Value::Config(text)) => !text.contains(&b'\\'),
        Some(Value::Literal(_)) | None => true,
    };
    is_same_text && (server.is_reported(name) || is_for_everybody(name))
}

fn is_identity(name: &[u8]) -> bool {
    name == ROLE || name == AUTHORIZATION
}

#[cfg(test)]
mod tests;
