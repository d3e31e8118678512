//! Blocking sockets around the machines.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use weir_base::secret::Secret;
use weir_postgres_codec::{TransactionStatus, backend, frame, frontend};
use weir_postgres_session::cancel_key::{CancelKey, Place};
use weir_postgres_session::hba::{Method, Rules};
use weir_postgres_session::login::{
    self, ClientLogin, Entropy, LoggedIn, LoginPolicy, Peer, Refusal, TlsFacts, greeting,
};
use weir_postgres_session::server_login::{self, Failure, ServerFacts, ServerIdentity, ServerLogin};
use weir_postgres_session::users::Users;
use weir_sasl::{ChannelBinding, KeyCache};
use weir_tests::certificate::Certificates;

/// No step of a login takes so long; a test fails then instead of hanging.
const READ_WAIT: Duration = Duration::from_secs(30);

/// A socket, with TLS or without.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// The end of one client's login.
#[derive(Debug)]
pub enum End {
    In(Box<LoggedIn>),
    Refused(Refusal),
    /// It closed or did not accept our certificate.
    Gone,
}

/// A listener on TCP and on a Unix socket of the same port. It ends with its process.
pub struct Listener {
    pub port: u16,
    ends: mpsc::Receiver<End>,
}

/// TLS of a listener.
pub struct Tls {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

impl Tls {
    pub fn new(files: &Certificates) -> Tls {
        let certificate = CertificateDer::from_pem_file(&files.server).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(&files.server_key).expect("a key");
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("key and certificate belong together");
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Tls { config: Arc::new(config), certificate }
    }
}

struct Gate {
    method: Method,
    users: Users,
    tls: Option<Tls>,
}

impl Listener {
    /// Listens with one method for all; the Unix socket is in `folder`.
    pub fn start(method: Method, users: Users, tls: Option<Tls>, folder: &Path) -> Listener {
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = tcp.local_addr().expect("its address").port();
        let unix = UnixListener::bind(folder.join(format!(".s.PGSQL.{port}"))).expect("a socket");
        let gate = Arc::new(Gate { method, users, tls });
        let (sender, ends) = mpsc::channel();
        let (local, local_sender) = (gate.clone(), sender.clone());
        thread::spawn(move || {
            for stream in unix.incoming().flatten() {
                stream.set_read_timeout(Some(READ_WAIT)).expect("a timeout");
                drop(local_sender.send(local.serve(Box::new(stream), true)));
            }
        });
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                stream.set_read_timeout(Some(READ_WAIT)).expect("a timeout");
                drop(sender.send(gate.serve(Box::new(stream), false)));
            }
        });
        Listener { port, ends }
    }

    /// The end of the next login.
    pub fn next(&self) -> End {
        self.ends.recv_timeout(READ_WAIT).expect("a client")
    }
}

/// Whether an error is the peer's leaving.
fn read(wire: &mut dyn Wire, input: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    let bytes = wire.read(&mut buffer).unwrap_or(0);
    input.extend_from_slice(&buffer[..bytes]);
    bytes > 0
}

fn flush(wire: &mut dyn Wire, out: &mut Vec<u8>) {
    // A client that has gone is found by the next read.
    drop(wire.write_all(out).and_then(|()| wire.flush()));
    out.clear();
}

impl Gate {
    fn serve(&self, mut wire: Box<dyn Wire>, is_local: bool) -> End {
        let mut policy = LoginPolicy::new(Rules::of(self.method), Secret::from("of the process"));
        policy.tls = self.tls.is_some();
        let address = (!is_local).then(|| "127.0.0.1".parse().expect("an address"));
        let entropy = Entropy { nonce: [3; 18], salt: *b"salt" };
        let mut login = ClientLogin::new(Arc::new(policy), Peer { address, tls: None }, entropy);
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let progress = login.on_bytes(&input, &mut out);
            input.drain(..progress.consumed);
            let mut step = progress.step;
            while let login::Step::LookUp { .. } | login::Step::Derive(_) = step {
                step = match step {
                    login::Step::LookUp { user, .. } => login.on_user(self.users.find(&user).cloned(), &mut out),
                    login::Step::Derive(derivation) => login.on_keys(&derivation.run(), &mut out),
                    other => other,
                };
            }
            flush(&mut *wire, &mut out);
            match step {
                login::Step::StartTls => {
                    let tls = self.tls.as_ref().expect("TLS was offered");
                    let Some((stream, facts)) = handshake(tls, wire) else { return End::Gone };
                    wire = stream;
                    assert!(matches!(login.on_tls(facts, &mut out), login::Step::More));
                }
                login::Step::Done(logged_in) => {
                    talk(&mut *wire, &logged_in, input);
                    return End::In(logged_in);
                }
                login::Step::Refuse(refusal) => return End::Refused(refusal),
                _ if read(&mut *wire, &mut input) => {}
                _ => return End::Gone,
            }
        }
    }
}

fn handshake(tls: &Tls, wire: Box<dyn Wire>) -> Option<(Box<dyn Wire>, TlsFacts)> {
    let connection = ServerConnection::new(tls.config.clone()).expect("a configuration");
    let mut stream = StreamOwned::new(connection, wire);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    let has_alpn = stream.conn.alpn_protocol() == Some(b"postgresql");
    let binding = ChannelBinding::of_certificate(&tls.certificate);
    Some((Box::new(stream), TlsFacts { has_alpn, binding, client_names: Vec::new() }))
}

/// Greets the client and completes its queries until it leaves.
fn talk(wire: &mut dyn Wire, logged_in: &LoggedIn, mut input: Vec<u8>) {
    let place = Place { process: 1, worker: 2, slot: 3 };
    let key = CancelKey::new(place, logged_in.start.version, [9; 32]).expect("in range");
    let settings: [(&[u8], &[u8]); 2] = [(b"server_version", b"15.0"), (b"client_encoding", b"UTF8")];
    let mut out = Vec::new();
    greeting(&mut out, settings, &key);
    flush(wire, &mut out);
    loop {
        while let Some(head) = frame::head(&input).expect("a message").filter(|head| input.len() >= head.whole()) {
            if head.tag == frontend::tag::QUERY {
                backend::command_complete(&mut out, b"DONE");
                backend::ready_for_query(&mut out, TransactionStatus::Idle);
            }
            input.drain(..head.whole());
        }
        flush(wire, &mut out);
        if !read(wire, &mut input) {
            return;
        }
    }
}

/// Logs in at a server on a port of this machine. `files` are of its authority; `binding` replaces the hash of its certificate.
pub fn log_in(
    port: u16,
    identity: ServerIdentity,
    files: Option<&Certificates>,
    binding: Option<ChannelBinding>,
    cache: &mut KeyCache,
) -> Result<ServerFacts, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    stream.set_read_timeout(Some(READ_WAIT)).expect("a timeout");
    let mut wire: Box<dyn Wire> = Box::new(stream);
    let mut login = ServerLogin::new(identity, &[5; 18]);
    let (mut input, mut out) = (Vec::new(), Vec::new());
    login.start(&mut out);
    flush(&mut *wire, &mut out);
    loop {
        let progress = login.on_bytes(&input, &mut out);
        input.drain(..progress.consumed);
        let mut step = progress.step;
        if let server_login::Step::Derive(derivation) = &step {
            step = login.on_keys(&cache.get_or_run(derivation), &mut out);
        }
        flush(&mut *wire, &mut out);
        match step {
            server_login::Step::StartTls => {
                let name = ServerName::try_from("localhost").expect("a server name");
                let config = files.expect("the files of a server with TLS").client_config();
                let connection = ClientConnection::new(config, name).expect("the name fits");
                let mut stream = StreamOwned::new(connection, wire);
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
                }
                let found = ChannelBinding::of_certificate(&stream.conn.peer_certificates().expect("a chain")[0]);
                wire = Box::new(stream);
                assert!(matches!(login.on_tls(binding.clone().unwrap_or(found), &mut out), server_login::Step::More));
                flush(&mut *wire, &mut out);
            }
            server_login::Step::Done(facts) => {
                frontend::terminate(&mut out);
                flush(&mut *wire, &mut out);
                return Ok(*facts);
            }
            server_login::Step::Failed(failure) => return Err(*failure),
            _ if read(&mut *wire, &mut input) => {}
            _ => return Err(login.on_closed()),
        }
    }
}
