//! A shell for tests: users, one presentation, pins that are shared, and time that stands still.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use weir_base::secret::Secret;
use weir_base::time::Time;
use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::face::{Face, Presentation, WireVersions};
use weir_mongodb_session::io::{Clock, Judge, Presents, SharedPins, Users};
use weir_mongodb_session::login::{LoginPolicy, Methods, Peer, TlsFacts};
use weir_mongodb_session::pins::{PinLimits, Pins};
use weir_mongodb_session::users::{EXTERNAL, Identity, User};
use weir_mongodb_session::{Next, Refusal, Request, Session};
use weir_sasl::{Mechanism, Nonce};

/// See above.
pub struct Shell {
    pub now: Cell<Time>,
    pub pins: RefCell<Pins>,
    pub presentation: Presentation,
    /// A command that the rules forbid.
    pub forbidden: Option<&'static [u8]>,
    users: Vec<Arc<User>>,
    nonces: Cell<u8>,
}

pub const PASSWORD: &str = "pencil";

impl Shell {
    pub fn new() -> Shell {
        let presentation = Presentation {
            face: Face::Mongos,
            service_id: [5; 12],
            wire: WireVersions { min: 0, max: 21 },
            compressors: Vec::new(),
            session_timeout_minutes: Some(30),
            topology: None,
        };
        Shell {
            now: Cell::new(Time::ZERO),
            pins: RefCell::new(Pins::new(PinLimits::SHARED)),
            presentation,
            forbidden: None,
            users: Vec::new(),
            nonces: Cell::new(0),
        }
    }

    /// With users `both`, `old` and `new` in `admin`, and `directory` in `$external`.
    pub fn with_users() -> Shell {
        let mut shell = Shell::new();
        let (old, new) = (Mechanism::ScramSha1, Mechanism::ScramSha256);
        let user = |db: &[u8], name: &str, mechanisms: &[Mechanism]| {
            let identity = Identity::new(db, name.as_bytes());
            Arc::new(User::from_password(identity, &Secret::from(PASSWORD), mechanisms, &[[1; 16], [2; 16]]))
        };
        shell.users = vec![
            user(b"admin", "both", &[old, new]),
            user(b"admin", "old", &[old]),
            user(b"admin", "new", &[new]),
            user(EXTERNAL, "directory", &[new]),
        ];
        shell
    }
}

impl Clock for Shell {
    fn now(&self) -> Time {
        self.now.get()
    }
    fn unix_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

impl Users for Shell {
    fn user(&self, db: &[u8], name: &[u8]) -> Option<Arc<User>> {
        self.users.iter().find(|user| (&*user.identity.db, &*user.identity.name) == (db, name)).cloned()
    }
    fn nonce(&self) -> Nonce {
        self.nonces.set(self.nonces.get() + 1);
        Nonce::from_random(&[self.nonces.get(); 18])
    }
}

impl SharedPins for Shell {
    fn with_pins<R>(&self, act: impl FnOnce(&mut Pins) -> R) -> R {
        act(&mut self.pins.borrow_mut())
    }
    fn has_full_owner(&self) -> bool {
        self.pins.borrow().has_full_owner()
    }
}

impl Judge for Shell {
    fn judge(&self, _: &Request<'_>, command: &Command<'_>, _: Option<&Identity>) -> Option<Refusal> {
        (self.forbidden == Some(command.name)).then(|| Refusal::policy("the rules forbid it"))
    }
}

impl Presents for Shell {
    fn presentation(&self) -> &Presentation {
        &self.presentation
    }
}

pub fn all_methods() -> Methods {
    Methods::SCRAM_SHA_256.and(Methods::SCRAM_SHA_1).and(Methods::X509).and(Methods::PLAIN)
}

/// A session whose clients log in by these methods.
pub fn session(methods: Methods, tls: Option<TlsFacts>) -> Session {
    let policy = LoginPolicy { methods, mock_secret: Secret::from("of the process"), ..LoginPolicy::open() };
    let peer = Peer { connection_id: 7, address: "192.0.2.1:5000".into(), tls };
    Session::new(peer, Arc::new(policy), PinLimits::CONNECTION)
}

/// A session whose clients need no login.
pub fn open_session() -> Session {
    session(Methods::default(), None)
}

pub fn written(id: i32, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: id, response_to: 0 }, flags, body);
    out
}

/// Sends a command and returns what follows, with the reply.
pub fn send(session: &mut Session, shell: &Shell, bytes: &[u8]) -> (Next, Vec<u8>) {
    let request = Request::read(bytes).expect("a request");
    let mut out = Vec::new();
    let next = session.on_request(&request, shell, &mut out);
    (next, out)
}

/// Sends a command that the session answers itself.
pub fn ask(session: &mut Session, shell: &Shell, body: impl FnOnce(&mut Writer<'_>)) -> ReplyMessage {
    let (next, out) = send(session, shell, &written(40, Flags::empty(), body));
    assert!(matches!(next, Next::Replied), "{next:?}");
    let reply = ReplyMessage(out);
    assert_eq!(reply.message().header.response_to, 40);
    reply
}

/// A reply of the session.
pub struct ReplyMessage(pub Vec<u8>);

impl ReplyMessage {
    pub fn message(&self) -> Message<'_> {
        Message::read(&self.0).expect("a message")
    }
    pub fn field(&self, name: &str) -> Option<Value<'_>> {
        self.message().body.get(name.as_bytes()).expect("whole")
    }
    pub fn document(&self, name: &str) -> Option<Document<'_>> {
        self.field(name).and_then(|value| value.as_document().expect("whole"))
    }
    pub fn reply(&self) -> Reply {
        Reply::read(self.message().body).expect("a reply")
    }
    pub fn code(&self) -> Option<i32> {
        self.reply().code
    }
}
