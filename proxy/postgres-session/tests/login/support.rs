//! A shell without sockets around both machines.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_base::secret::Secret;
use weir_postgres_codec::backend::{self, ErrorFields};
use weir_postgres_codec::{Version, frame, frontend};
use weir_postgres_session::cancel_key::{CancelKey, Place};
use weir_postgres_session::hba::{Method, Rules};
use weir_postgres_session::login::{
    ClientLogin, Entropy, LoggedIn, LoginPolicy, Peer, Progress, Refusal, Step, TlsFacts, greeting,
};
use weir_postgres_session::server_login::{self, Failure, ServerFacts, ServerIdentity, ServerLogin};
use weir_postgres_session::users::{User, Users};
use weir_sasl::{ChannelBinding, KeyCache, Mechanism, ScramVerifier};

pub const PASSWORD: &str = "pencil";
pub const SALT: [u8; 16] = *b"salt of 16 bytes";

/// A listener and a client's connection to it.
pub struct World {
    pub policy: LoginPolicy,
    pub users: Users,
    pub address: Option<IpAddr>,
    /// The result of the TLS handshake.
    pub tls: TlsFacts,
}

impl World {
    /// TCP without TLS; the users `app` (plain password), `verified` (SCRAM), `hashed` (MD5) and `none` (no password).
    pub fn new(method: Method) -> World {
        let users = [
            User::new(b"app", &Secret::from(PASSWORD), &SALT),
            User::new(b"verified", &verifier().format(), &SALT),
            User::new(b"hashed", &weir_sasl::md5::stored(b"hashed", &Secret::from(PASSWORD)), &SALT),
            User::without_password(b"none"),
        ];
        World {
            policy: LoginPolicy::new(Rules::of(method), Secret::from("of the process")),
            users: users.into_iter().collect(),
            address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            tls: TlsFacts::default(),
        }
    }

    /// The same with TLS on offer.
    pub fn with_tls(method: Method, tls: TlsFacts) -> World {
        let world = World::new(method);
        World { policy: LoginPolicy { tls: true, ..world.policy }, tls, ..world }
    }

    pub fn login(&self) -> ClientLogin {
        let peer = Peer { address: self.address, tls: None };
        ClientLogin::new(Arc::new(self.policy.clone()), peer, Entropy { nonce: [2; 18], salt: *b"salt" })
    }
}

pub fn verifier() -> ScramVerifier {
    ScramVerifier::from_password(Mechanism::ScramSha256, &Secret::from(PASSWORD), &SALT, 16)
}

pub fn binding() -> ChannelBinding {
    ChannelBinding::TlsServerEndPoint(vec![7; 32])
}

/// How a login ends, or stands for now.
#[derive(Debug)]
pub enum End {
    More,
    StartTls,
    Cancel(u32, Vec<u8>),
    Done(Box<LoggedIn>),
    Refused(Refusal),
}

/// Bytes that are not consumed, and what was written.
#[derive(Default)]
pub struct Wire {
    pub input: Vec<u8>,
    pub out: Vec<u8>,
}

/// Gives bytes to a login and does what it demands.
pub fn feed(login: &mut ClientLogin, world: &World, wire: &mut Wire, bytes: &[u8]) -> End {
    wire.input.extend_from_slice(bytes);
    loop {
        let Progress { consumed, step } = login.on_bytes(&wire.input, &mut wire.out);
        wire.input.drain(..consumed);
        if let Some(end) = act(login, world, wire, step) {
            return end;
        }
    }
}

/// Does what a step demands; `None`: the machine may have more to do with the bytes it has.
fn act(login: &mut ClientLogin, world: &World, wire: &mut Wire, step: Step) -> Option<End> {
    match step {
        Step::More => Some(End::More),
        Step::StartTls => Some(End::StartTls),
        Step::Cancel { pid, secret } => Some(End::Cancel(pid, secret)),
        Step::Done(logged_in) => Some(End::Done(logged_in)),
        Step::Refuse(refusal) => Some(End::Refused(refusal)),
        Step::LookUp { user, .. } => match login.on_user(world.users.find(&user).cloned(), &mut wire.out) {
            Step::More => None,
            step => act(login, world, wire, step),
        },
        Step::Derive(derivation) => match login.on_keys(&derivation.run(), &mut wire.out) {
            Step::More => None,
            step => act(login, world, wire, step),
        },
    }
}

/// A login of one packet or several at once.
pub fn once(world: &World, bytes: &[u8]) -> (End, Vec<u8>) {
    let mut wire = Wire::default();
    let end = feed(&mut world.login(), world, &mut wire, bytes);
    (end, wire.out)
}

/// The refusal of a login, which must be one, and what was written.
pub fn refused(world: &World, bytes: &[u8]) -> (Refusal, Vec<u8>) {
    match once(world, bytes) {
        (End::Refused(refusal), out) => (refusal, out),
        (end, _) => panic!("{end:?}"),
    }
}

/// The SQLSTATE, text and detail of the last message, which is an error.
pub fn error(out: &[u8]) -> (String, String, String) {
    let messages = messages(out);
    let (tag, body) = messages.last().expect("a message");
    assert_eq!(*tag, backend::tag::ERROR);
    let fields = ErrorFields::read(body).expect("an error");
    assert_eq!(fields.severity(), Some(&b"FATAL"[..]));
    let text = |letter| String::from_utf8_lossy(fields.get(letter).unwrap_or_default()).into_owned();
    (text(b'C'), text(b'M'), text(b'D'))
}

/// Tags and bodies of whole messages.
pub fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(head) = frame::head(bytes).expect("a message") {
        found.push((head.tag, bytes[frame::HEAD_BYTES..head.whole()].to_vec()));
        bytes = &bytes[head.whole()..];
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    found
}

pub fn startup(version: Version, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = Vec::new();
    let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    frontend::startup(&mut packet, version, parameters);
    packet
}

pub fn ssl_request() -> Vec<u8> {
    let mut packet = Vec::new();
    frontend::ssl_request(&mut packet);
    packet
}

pub fn gss_request() -> Vec<u8> {
    let mut packet = Vec::new();
    frontend::gss_request(&mut packet);
    packet
}

/// The end of a login between both machines.
#[derive(Debug)]
pub struct Both {
    pub client: Result<ServerFacts, Failure>,
    /// A login that the client gave up on is a refusal without a reason.
    pub server: Result<Box<LoggedIn>, Option<Refusal>>,
    /// How often keys were derived.
    pub derivations: usize,
}

/// A login at the gateway by the gateway's own client, in pieces of so many bytes. TLS is a handshake without bytes.
pub fn together(world: &World, identity: ServerIdentity, piece: usize, cache: &mut KeyCache) -> Both {
    let mut ours = ServerLogin::new(identity, &[1; 18]);
    let mut theirs = world.login();
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut wire, mut input) = (Wire::default(), Vec::new());
    let (mut client, mut server, mut derivations) = (None, None, 0);
    ours.start(&mut to_server);
    while client.is_none() {
        let next: Vec<u8> = to_server.drain(..piece.min(to_server.len())).collect();
        let mut end = if server.is_none() { feed(&mut theirs, world, &mut wire, &next) } else { End::More };
        if matches!(end, End::StartTls) {
            to_client.append(&mut wire.out);
            let step = theirs.on_tls(world.tls.clone(), &mut wire.out);
            end = act(&mut theirs, world, &mut wire, step).unwrap_or(End::More);
        }
        to_client.append(&mut wire.out);
        match end {
            End::More | End::StartTls => {}
            End::Done(logged_in) => {
                let place = Place { process: 1, worker: 2, slot: 3 };
                let key = CancelKey::new(place, logged_in.start.version, [9; 32]).expect("in range");
                let settings: [(&[u8], &[u8]); 2] = [(b"server_version", b"15.0"), (b"TimeZone", b"UTC")];
                greeting(&mut to_client, settings, &key);
                server = Some(Ok(logged_in));
            }
            End::Refused(refusal) => server = Some(Err(Some(refusal))),
            End::Cancel(..) => panic!("no cancel request"),
        }
        let idle = next.is_empty() && to_client.is_empty();
        input.extend(to_client.drain(..piece.min(to_client.len())));
        let server_login::Progress { consumed, step } = ours.on_bytes(&input, &mut to_server);
        input.drain(..consumed);
        let mut step = Some(step);
        while let Some(next) = step.take() {
            match next {
                server_login::Step::More => {}
                server_login::Step::StartTls => step = Some(ours.on_tls(world.tls.binding.clone(), &mut to_server)),
                server_login::Step::Derive(derivation) => {
                    derivations += usize::from(cache.get(&derivation).is_none());
                    step = Some(ours.on_keys(&cache.get_or_run(&derivation), &mut to_server));
                }
                server_login::Step::Done(facts) => client = Some(Ok(*facts)),
                server_login::Step::Failed(failure) => client = Some(Err(*failure)),
            }
        }
        if idle && client.is_none() && to_server.is_empty() {
            client = Some(Err(ours.on_closed()));
        }
    }
    Both { client: client.expect("an end"), server: server.unwrap_or(Err(None)), derivations }
}
