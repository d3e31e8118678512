//! A gateway with a listener of each kind, its servers, and the traffic of its clients.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_tests::certificate::Certificates;
use weir_tests::client::Client;
use weir_tests::deadline::WAIT;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::nginx::Nginx;
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;

/// A part of a long transfer, and the pause behind it.
const PART: [u8; 0x4000] = [b'a'; 0x4000];
const PAUSE: Duration = Duration::from_millis(20);

/// Responses by listener and class of status.
pub type Counts = BTreeMap<(&'static str, &'static str), f64>;

/// The running whole.
pub struct Stand {
    /// Its listeners: `test` (HTTP without TLS), `secure` (HTTP with TLS), `cache` (Redis), `pipe` (TCP), and `names` (TLS by
    /// name, in front of an nginx).
    pub gateway: Gateway,
    /// The responses of [`Stand::burst`] and [`Stand::transfers`] so far.
    pub counts: Counts,
    authority: String,
    ports: Ports,
    is_flowing: Arc<AtomicBool>,
    folder: tempfile::TempDir,
    _servers: (Server, Nginx),
}

#[derive(Clone, Copy)]
struct Ports {
    secure: u16,
    cache: u16,
    pipe: u16,
    names: u16,
}

/// Long transfers under way: HTTP/1.1, HTTP/2 with TLS, HTTP with the origin's TLS, and TCP.
pub struct Transfers {
    curls: [(Process, PathBuf); 3],
    pipe: JoinHandle<u64>,
}

impl Stand {
    /// Starts it with this `telemetry.level`.
    pub fn start(level: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Certificates::create(folder.path());
        let redis = Server::start(Kind::Redis);
        let is_flowing = Arc::new(AtomicBool::new(true));
        let web = serve(is_flowing.clone(), exchanges);
        let source = serve(is_flowing.clone(), flow);
        let (certificate, key) = (files.server.display(), files.server_key.display());
        let nginx = Nginx::start(
            "ssl",
            &format!(
                "ssl_certificate {certificate}; ssl_certificate_key {key};
                 location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_buffering off; }}",
                web.text()
            ),
        );
        let ports = Ports { secure: port::free(), cache: port::free(), pipe: port::free(), names: port::free() };
        let listener = |name: &str, protocol: &str, port: u16, upstream: &str| {
            format!(
                "[[listener]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nbind = \"127.0.0.1:{port}\"\nupstream = \"{upstream}\"\n"
            )
        };
        let upstream = |name: &str, address: &Address| {
            format!("[[upstream]]\nname = \"{name}\"\nendpoints = [\"{}\"]\n", address.text())
        };
        let tables = [
            listener("secure", "http", ports.secure, "server"),
            format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"\n"),
            listener("cache", "redis", ports.cache, "redis"),
            listener("pipe", "tcp", ports.pipe, "source"),
            listener("names", "tls", ports.names, "nginx"),
            upstream("redis", &redis.address),
            upstream("source", &source),
            upstream("nginx", &nginx.address),
            "[[route]]\nname = \"all\"\nlisteners = [\"test\", \"secure\"]\nupstream = \"server\"\n".to_owned(),
            format!("[telemetry]\nlevel = \"{level}\"\n"),
        ];
        let gateway = Gateway::start(Config::http(&web).tables(&tables.concat()));
        let authority = files.authority.display().to_string();
        Self { gateway, counts: Counts::new(), authority, ports, is_flowing, folder, _servers: (redis, nginx) }
    }

    /// Some requests to each listener that has requests.
    pub fn burst(&mut self) {
        let mut client = HttpClient::connect(&self.gateway.address);
        for (class, path, count) in [("2xx", "/200", 6), ("4xx", "/404", 3), ("5xx", "/500", 2)] {
            (0..count).for_each(|_| assert_eq!(format!("/{}", client.get(path).status), path));
            *self.counts.entry(("test", class)).or_default() += f64::from(count);
        }
        let url = format!("https://127.0.0.1:{}/[200-204]", self.ports.secure);
        let (mut curl, log) = self.curl("burst", &["--http2", &url]);
        assert!(curl.wait(WAIT).success(), "{}", std::fs::read_to_string(log).unwrap_or_default());
        *self.counts.entry(("secure", "2xx")).or_default() += 5.0;
        let mut client = Client::connect(&Address::port(self.ports.cache));
        client.expect(&["SET", "k", "v"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"$1\r\nv\r\n");
        assert!(client.call(&["NOSUCH"]).starts_with(b"-ERR"));
        assert!(client.call(&["SHUTDOWN"]).starts_with(b"-"));
    }

    /// Clients that break rules: refusals, violations and failed handshakes.
    pub fn mischief(&self) {
        let say = |port: u16, bytes: &[u8]| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the gateway accepts");
            stream.set_read_timeout(Some(WAIT)).expect("a time limit can be set");
            stream.write_all(bytes).expect("sent");
            // A refusal, an end or a reset.
            let _ = stream.read(&mut [0; 64]);
        };
        say(self.gateway.address.tcp().port(), b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        say(self.ports.secure, b"GET / HTTP/1.1\r\n\r\n");
        say(self.ports.names, b"GET / HTTP/1.1\r\n\r\n");
        say(self.ports.cache, b"*1\r\n$-7\r\n");
    }

    /// Begins a long transfer of each protocol.
    pub fn transfers(&mut self) -> Transfers {
        self.is_flowing.store(true, Relaxed);
        let plain = format!("http://{}/long", self.gateway.address.text());
        let [secure, passed] =
            [self.ports.secure, self.ports.names].map(|port| format!("https://127.0.0.1:{port}/long"));
        let curls = [
            self.curl("plain", &["--http1.1", &plain]),
            self.curl("secure", &["--http2", &secure]),
            self.curl("passed", &["--http1.1", &passed]),
        ];
        for listener in ["test", "secure"] {
            *self.counts.entry((listener, "2xx")).or_default() += 1.0;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.pipe)).expect("the gateway accepts");
        stream.write_all(b"go").expect("sent");
        let pipe = std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()).expect("whole"));
        Transfers { curls, pipe }
    }

    /// Lets the transfers come to their end. Bytes of the bodies of HTTP that Weir reads, and bytes of TCP.
    pub fn end(&self, transfers: Transfers) -> (f64, f64) {
        self.is_flowing.store(false, Relaxed);
        let bodies = transfers.curls.map(|(mut curl, log)| {
            let status = curl.wait(WAIT);
            let text = std::fs::read_to_string(log).expect("a log");
            assert!(status.success(), "{text}");
            text.trim().parse::<f64>().unwrap_or_else(|error| panic!("{error}: {text}"))
        });
        (bodies[0] + bodies[1], transfers.pipe.join().expect("the pipe ended well") as f64)
    }

    /// A curl that prints the number of the bytes of all bodies.
    fn curl(&self, name: &str, words: &[&str]) -> (Process, PathBuf) {
        let log = self.folder.path().join(name);
        let fixed =
            ["curl", "-sS", "--no-buffer", "--cacert", &self.authority, "-o", "/dev/null", "-w", "%{size_download}\n"];
        let words: Vec<String> = fixed.iter().chain(words).map(|word| (*word).to_owned()).collect();
        (Process::start("curl", &words, &log, &[]), log)
    }
}

impl Transfers {
    /// None of them has ended.
    pub fn are_under_way(&mut self) -> bool {
        self.curls.iter_mut().all(|(curl, _)| curl.try_wait().is_none()) && !self.pipe.is_finished()
    }
}

/// A server on a free port, with a thread for each connection.
fn serve(is_flowing: Arc<AtomicBool>, each: fn(&mut TcpStream, &AtomicBool) -> std::io::Result<()>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let is_flowing = is_flowing.clone();
            // An error: the gateway has closed the connection.
            std::thread::spawn(move || each(&mut stream, &is_flowing));
        }
    });
    address
}

/// Responds with the status that the path names, or with a body as long as the flow lasts.
fn exchanges(stream: &mut TcpStream, is_flowing: &AtomicBool) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path != "/long" {
            write!(stream, "HTTP/1.1 {} Status\r\nContent-Length: 2\r\n\r\nhi", &path[1..])?;
            continue;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        while is_flowing.load(Relaxed) {
            stream.write_all(&[b"4000\r\n", &PART[..], b"\r\n"].concat())?;
            std::thread::sleep(PAUSE);
        }
        stream.write_all(b"0\r\n\r\n")?;
    }
}

/// Sends as long as the flow lasts.
fn flow(stream: &mut TcpStream, is_flowing: &AtomicBool) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 2])?;
    while is_flowing.load(Relaxed) {
        stream.write_all(&PART)?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
