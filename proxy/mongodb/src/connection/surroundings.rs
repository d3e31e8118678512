//! The surroundings of a session: time, users, shared pins, rules, the server that is presented.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_analysis::mongodb::{Argument, Class, Limits, classify, shape};
use weir_base::{
    error::Culprit,
    time::{Time, turn},
    violation::Violation,
};
use weir_listener::{ConnectionEntry, login::entropy};
use weir_mongodb_codec::{bson::Document, command::Command, message::Message};
use weir_mongodb_session::{
    Refusal, Request,
    face::Presentation,
    io::{Clock, Judge, Presents, SharedPins, Users},
    pins::Pins,
    users::{Identity, User},
};
use weir_policy::mongodb::{Policy, UserPolicy};
use weir_sasl::{Nonce, limits::NONCE_RANDOM_BYTES};

use super::Connection;
use crate::{metrics::DatabaseMetrics, service::Service, settings::MongodbListenerSettings};

/// Bytes of a read preference, which an idle client keeps. Default 4 KiB: one has some tags. A longer one gets code 2.
const PREFERENCE_BYTES_MAX: usize = 4 * 1024;

fn is_short(preference: Document<'_>) -> bool {
    preference.bytes().len() <= PREFERENCE_BYTES_MAX
}

/// The place of a client: the surroundings of its session, and the notes of the shell about its commands.
pub(super) struct Scene {
    pub(super) service: Rc<Service>,
    pub(super) settings: Rc<MongodbListenerSettings>,
    /// The client, while it is there.
    pub(super) connection: Weak<Connection>,
    /// The row of the connection in the table.
    pub(super) entry: Arc<ConnectionEntry>,
    /// `None`: no server has been found since the start.
    pub(super) presented: Option<Arc<Presentation>>,
    pub(super) tally: RefCell<Tally>,
}

/// The last command that passed.
pub(super) struct Tally {
    pub(super) class: Class,
    /// Its word in the table of commands.
    pub(super) name: &'static str,
    /// Its `$readPreference`; empty: none.
    pub(super) preference: Vec<u8>,
    pub(super) is_in_transaction: bool,
    /// The present request was judged: it is a command for a server.
    pub(super) is_judged: bool,
    db: Vec<u8>,
    /// The cells of that database.
    pub(super) metrics: Option<Rc<DatabaseMetrics>>,
    /// The rules for the user, and the policy that they are of.
    rules: Option<(Arc<Policy>, Option<Identity>, UserPolicy)>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            class: Class::Connection,
            name: "other",
            preference: Vec::new(),
            is_in_transaction: false,
            is_judged: false,
            db: Vec::new(),
            metrics: None,
            rules: None,
        }
    }
}

impl Tally {
    /// Notes a command that may pass. Operators see its database.
    fn note(&mut self, command: &Command<'_>, service: &Service, entry: &ConnectionEntry) {
        let (row, class) = classify(command);
        (self.class, self.name) = (class, row.map_or("other", |row| row.name));
        self.is_judged = true;
        self.is_in_transaction = command.is_in_transaction;
        self.preference.clear();
        if let Some(preference) = command.read_preference.filter(|preference| is_short(*preference)) {
            self.preference.extend_from_slice(preference.bytes());
        }
        if self.metrics.is_none() || self.db != command.db {
            self.db.clear();
            self.db.extend_from_slice(command.db);
            let name = String::from_utf8_lossy(command.db);
            self.metrics = Some(service.metrics.database(&service.shared.label(&name)));
            entry.details().database = name.into_owned();
        }
    }

    /// The rules for a user: looked up at the first command, and again behind a reload or a login.
    fn rules(&mut self, policy: &Arc<Policy>, user: Option<&Identity>) -> &UserPolicy {
        let is_known =
            self.rules.as_ref().is_some_and(|(known, whose, _)| Arc::ptr_eq(known, policy) && whose.as_ref() == user);
        if !is_known {
            self.rules = None;
        }
        let made = || (policy.clone(), user.cloned(), policy.user(user.map(|user| &*user.name)));
        &self.rules.get_or_insert_with(made).2
    }
}

impl Scene {
    /// The interface for one call. `message`: the whole message of the request, if it is there.
    pub(super) fn io<'a>(&'a self, message: Option<&'a [u8]>) -> Surroundings<'a> {
        Surroundings { scene: self, message }
    }
}

/// See above.
pub(super) struct Surroundings<'a> {
    scene: &'a Scene,
    message: Option<&'a [u8]>,
}

impl Clock for Surroundings<'_> {
    #[inline]
    fn now(&self) -> Time {
        turn::now()
    }

    fn unix_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }
}

impl Users for Surroundings<'_> {
    fn user(&self, db: &[u8], name: &[u8]) -> Option<Arc<User>> {
        self.scene.settings.users.find(db, name)
    }

    fn nonce(&self) -> Nonce {
        let mut random = [0; NONCE_RANDOM_BYTES];
        // Without randomness the nonce of the client alone makes the exchange unique.
        entropy::fill(&mut random);
        Nonce::from_random(&random)
    }
}

impl SharedPins for Surroundings<'_> {
    fn with_pins<R>(&self, act: impl FnOnce(&mut Pins) -> R) -> R {
        self.scene.service.shared.with_pins(act)
    }

    #[inline]
    fn has_full_owner(&self) -> bool {
        self.scene.service.shared.has_full_owner()
    }
}

impl Surroundings<'_> {
    /// A line of the log about a command that a rule takes notice of: its shape has no value.
    #[cold]
    fn log(&self, rule: &str, (command, word): (&Command<'_>, &str), user: Option<&Identity>) {
        let Some(connection) = self.scene.connection.upgrade() else { return };
        let shape = shape(command, self.message.map(arguments).into_iter().flatten(), &Limits::default());
        let shape = shape.map_or_else(|_| "unknown".to_owned(), |shape| format!("{shape:016x}"));
        let db = command.db.escape_ascii();
        let user = user.map_or_else(|| "a client".to_owned(), |user| format!("{user:?}"));
        let text = format!("rule \"{rule}\" fits {word} of {user} at {db}, shape {shape}");
        let violation = Violation::rule("command_rule", Culprit::Client, text);
        self.scene.service.sessions.report(&connection.handle, &violation);
    }
}

/// The documents of a message's sequences. They are read when a rule asks for them.
fn arguments<'m>(message: &'m [u8]) -> impl Iterator<Item = Argument<'m>> + use<'m> {
    let whole = std::iter::once(message).filter_map(|message| Message::read(message).ok());
    whole.flat_map(Message::sequences).flat_map(|sequence| {
        let name = sequence.identifier;
        sequence.documents().filter_map(Result::ok).map(move |document| Argument { name, document })
    })
}

impl Judge for Surroundings<'_> {
    fn judge(&self, _: &Request<'_>, command: &Command<'_>, user: Option<&Identity>) -> Option<Refusal> {
        let Scene { service, settings, tally, entry, .. } = self.scene;
        let mut tally = tally.borrow_mut();
        tally.note(command, service, entry);
        if !command.read_preference.is_none_or(is_short) {
            return Some(Refusal::too_many("mongodb_read_preference", "the read preference is too long"));
        }
        let word = tally.name;
        let rules = tally.rules(&settings.policy, user);
        let observe = |rule: &str| {
            service.metrics.rule(rule, "observe");
            self.log(rule, (command, word), user);
        };
        let denial = rules.check(command, self.message.map(arguments), observe).err()?;
        service.metrics.rule(denial.reason.word(), "deny");
        Some(Refusal::policy(denial.to_string()))
    }
}

impl Presents for Surroundings<'_> {
    fn presentation(&self) -> &Presentation {
        // The shell holds the first request back until there is one.
        self.scene.presented.as_deref().expect("a session begins when there is a presentation")
    }
}
