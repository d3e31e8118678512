//! The gateway's login at a server and the login of its clients, one against the other.

use weir_base::secret::Secret;
use weir_mongodb_codec::message::{Flags, Message};
use weir_mongodb_session::login::{Methods, TlsFacts};
use weir_mongodb_session::server_hello::ServerHello;
use weir_mongodb_session::server_login::{Credential, Failure, ServerIdentity, ServerLogin, Step};
use weir_mongodb_session::users::EXTERNAL;
use weir_mongodb_session::{AfterRelay, Next, Refusal, Request, Session};
use weir_sasl::Nonce;

use crate::support::{PASSWORD, ReplyMessage, Shell, all_methods, send, session, written};

fn identity(user: &str, credential: Credential) -> ServerIdentity {
    let (source, application) = ("admin".into(), "tests".into());
    ServerIdentity { user: user.into(), source, credential, application, is_encrypted: true }
}

/// Both until the login is over, with the messages that the client has sent.
fn log_in(client: &mut ServerLogin, server: &mut Session, shell: &Shell) -> (Result<ServerHello, Failure>, usize) {
    let (mut to_server, mut to_client, mut messages) = (Vec::new(), Vec::new(), 0);
    client.start(&mut to_server);
    loop {
        let request = Request::read(&to_server).expect("one request");
        messages += 1;
        match server.on_request(&request, shell, &mut to_client) {
            Next::Replied | Next::Close(_) => {}
            Next::Derive(derivation) => drop(server.on_keys(&derivation.run(), &mut to_client)),
            next => panic!("{next:?}"),
        }
        to_server.clear();
        let mut step = client.on_bytes(&std::mem::take(&mut to_client), &mut to_server).step;
        if let Step::Derive(derivation) = step {
            step = client.on_keys(&derivation.run(), &mut to_server);
        }
        match step {
            Step::More => assert!(!to_server.is_empty(), "both wait"),
            Step::Done(hello) => return (Ok(*hello), messages),
            Step::Failed(failure) => return (Err(*failure), messages),
            Step::Derive(_) => unreachable!("keys are derived once"),
        }
    }
}

fn attempt(
    identity: ServerIdentity,
    methods: Methods,
    tls: Option<TlsFacts>,
) -> (Result<ServerHello, Failure>, usize, Session) {
    let (shell, mut server) = (Shell::with_users(), session(methods, tls));
    let mut client = ServerLogin::new(identity, Nonce::from_random(&[9; 18]));
    let (result, messages) = log_in(&mut client, &mut server, &shell);
    (result, messages, server)
}

fn password(text: &str) -> Credential {
    Credential::Password(Secret::from(text))
}

#[test]
fn a_speculative_login_needs_two_messages() {
    for user in ["both", "new"] {
        let (result, messages, server) = attempt(identity(user, password(PASSWORD)), all_methods(), None);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!((messages, &*server.login().user().unwrap().name), (2, user.as_bytes()));
    }
}

#[test]
fn a_user_of_the_older_mechanism_logs_in_with_it() {
    let (result, messages, server) = attempt(identity("old", password(PASSWORD)), all_methods(), None);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((messages, server.login().is_done()), (3, true), "the speculation is for nothing");
}

#[test]
fn unknown_users_fail_like_wrong_passwords() {
    let failure = |user: &str, text: &str, methods| attempt(identity(user, password(text)), methods, None);
    for methods in [Methods::SCRAM_SHA_256, all_methods()] {
        let (wrong, one, server) = failure("both", "pen", methods);
        let (unknown, other, _) = failure("stranger", PASSWORD, methods);
        assert!(matches!(&wrong, Err(Failure::Refused { code: 18, .. })), "{wrong:?}");
        assert_eq!((wrong, one), (unknown, other));
        assert!(server.login().user().is_none());
    }
}

#[test]
fn plain_needs_tls_on_both_sides() {
    let plain = || Credential::Plain(Secret::from(PASSWORD));
    let (result, _, server) = attempt(identity("directory", plain()), all_methods(), Some(TlsFacts::default()));
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(&*server.login().user().unwrap().db, EXTERNAL);
    let wrong = Credential::Plain(Secret::from("pen"));
    let (result, ..) = attempt(identity("directory", wrong), all_methods(), Some(TlsFacts::default()));
    assert!(matches!(result, Err(Failure::Refused { code: 18, .. })), "{result:?}");
    let (result, ..) = attempt(identity("directory", plain()), all_methods(), None);
    assert!(matches!(result, Err(Failure::Refused { code: 334, .. })), "{result:?}");
    let naked = ServerIdentity { is_encrypted: false, ..identity("directory", plain()) };
    let (result, ..) = attempt(naked, all_methods(), Some(TlsFacts::default()));
    assert_eq!(result, Err(Failure::ClearText));
}

#[test]
fn a_certificate_logs_in_with_its_subject() {
    let tls = |subject: &str| Some(TlsFacts { subject: Some(subject.as_bytes().into()) });
    let (result, messages, server) = attempt(identity("", Credential::Certificate), all_methods(), tls("CN=app"));
    assert!(result.is_ok() && messages == 1, "{result:?}");
    assert_eq!(&*server.login().user().unwrap().name, b"CN=app");
    let (result, ..) = attempt(identity("CN=other", Credential::Certificate), all_methods(), tls("CN=app"));
    assert!(matches!(result, Err(Failure::Refused { code: 18, .. })), "{result:?}");
    let (result, ..) = attempt(identity("", Credential::Certificate), all_methods(), Some(TlsFacts::default()));
    assert!(result.is_err(), "no certificate");
}

#[test]
fn without_a_login_hello_is_enough() {
    let (result, messages, _) = attempt(identity("", Credential::None), Methods::default(), None);
    assert_eq!(messages, 1);
    let hello = result.expect("no login");
    assert_eq!(hello.wire.map(|wire| wire.max), Some(21));
    assert!(hello.set_name.is_none() && hello.hosts.is_empty(), "nothing leaks");
}

#[test]
fn no_secret_is_in_a_message_or_a_debug_text() {
    let mut client = ServerLogin::new(identity("both", password("hush-hush")), Nonce::from_random(&[9; 18]));
    let mut out = Vec::new();
    client.start(&mut out);
    assert!(Message::read(&out).is_ok() && !out.windows(9).any(|bytes| bytes == b"hush-hush"));
    assert!(!format!("{client:?}").contains("hush"));
}

/// A login through the gateway that the server behind it checks.
fn log_in_through(
    client: &mut ServerLogin,
    gateway: &mut Session,
    server: &mut Session,
) -> Result<ServerHello, Failure> {
    let shell = Shell::with_users();
    let (mut to_gateway, mut to_client) = (Vec::new(), Vec::new());
    client.start(&mut to_gateway);
    loop {
        let request = Request::read(&to_gateway).expect("one request");
        match gateway.on_request(&request, &shell, &mut to_client) {
            Next::Replied => {}
            Next::Relay(own) => {
                let bytes = own.unwrap_or_else(|| to_gateway.clone());
                let mut reply = Vec::new();
                let request = Request::read(&bytes).expect("one request");
                assert!(matches!(server.on_request(&request, &shell, &mut reply), Next::Replied));
                let body = Message::read(&reply).expect("a reply").body;
                match gateway.on_relayed(body, &shell, &mut to_client).expect("whole") {
                    AfterRelay::Replied => {}
                    AfterRelay::Pass | AfterRelay::LoggedIn | AfterRelay::Close => to_client = reply,
                }
            }
            next => panic!("{next:?}"),
        }
        to_gateway.clear();
        let mut step = client.on_bytes(&std::mem::take(&mut to_client), &mut to_gateway).step;
        if let Step::Derive(derivation) = step {
            step = client.on_keys(&derivation.run(), &mut to_gateway);
        }
        match step {
            Step::More => assert!(!to_gateway.is_empty(), "both wait"),
            Step::Done(hello) => return Ok(*hello),
            Step::Failed(failure) => return Err(*failure),
            Step::Derive(_) => unreachable!("keys are derived once"),
        }
    }
}

#[test]
fn a_login_that_the_server_checks_ends_with_the_servers_user() {
    for user in ["both", "old"] {
        let mut client = ServerLogin::new(identity(user, password(PASSWORD)), Nonce::from_random(&[9; 18]));
        let (mut gateway, mut server) = (session(Methods::RELAYED, None), session(all_methods(), None));
        let hello = log_in_through(&mut client, &mut gateway, &mut server).expect("a login");
        assert!(hello.mechanisms.is_some_and(|mechanisms| !mechanisms.is_empty()));
        for side in [&gateway, &server] {
            assert_eq!(&*side.login().user().expect("a user").name, user.as_bytes());
        }
    }
    // Such a client kills its cursors at the server itself: the gateway has no login to do it with.
    let mut client = ServerLogin::new(identity("both", password(PASSWORD)), Nonce::from_random(&[9; 18]));
    let (mut gateway, mut server) = (session(Methods::RELAYED, None), session(all_methods(), None));
    log_in_through(&mut client, &mut gateway, &mut server).expect("a login");
    let kill = written(40, Flags::empty(), |body| {
        body.string("killCursors", "orders");
        body.array("cursors", [77], |writer, name, id| writer.int64(name, id));
        body.string("$db", "shop");
    });
    let (next, out) = send(&mut gateway, &Shell::with_users(), &kill);
    assert!(matches!(next, Next::Take(_)) && out.is_empty(), "{next:?}");
    // Another user on the same connection would add its rights to those of this one.
    let logout = written(41, Flags::empty(), |body| {
        body.int32("logout", 1);
        body.string("$db", "admin");
    });
    gateway.on_no_server(&Refusal::overloaded("full"), &Shell::with_users(), &mut Vec::new());
    assert!(matches!(send(&mut gateway, &Shell::with_users(), &logout).0, Next::Replied));
    let again = written(42, Flags::empty(), |body| {
        body.int32("saslStart", 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, b"n,,n=new,r=rOprNGfwEbeRWgbNEkqO");
        body.string("$db", "admin");
    });
    let (next, out) = send(&mut gateway, &Shell::with_users(), &again);
    assert!(matches!(next, Next::Replied), "{next:?}");
    assert_eq!(ReplyMessage(out).code(), Some(17));
    let mut client = ServerLogin::new(identity("both", password("pen")), Nonce::from_random(&[9; 18]));
    let (mut gateway, mut server) = (session(Methods::RELAYED, None), session(all_methods(), None));
    let failed = log_in_through(&mut client, &mut gateway, &mut server);
    assert!(matches!(failed, Err(Failure::Refused { code: 18, .. })), "{failed:?}");
    assert!(gateway.login().user().is_none() && !gateway.login().is_done());
}
