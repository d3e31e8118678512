//! Frontends: their binds become listeners.

use super::syntax::{Line, Section};
use super::{Importer, limit, timeout, unknown};
use crate::model::{Listener, Protocol};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// Microseconds of an hour and of a day.
const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// A bound address with its options.
struct Bind {
    address: String,
    tls: Option<Table>,
    has_proxy_header: bool,
}

impl<'s> Importer<'s> {
    pub(super) fn frontend(&mut self, section: &'s Section) -> Result<(), Mistake> {
        let context = match section.kind.as_str() {
            "listen" => &[unknown::Context::Frontend, unknown::Context::Backend][..],
            _ => &[unknown::Context::Frontend][..],
        };
        for line in &section.lines {
            let notes: Vec<Note> = context.iter().filter_map(|context| unknown::note(line, *context)).collect();
            // A line of a `listen` that either side reads is read.
            if notes.len() == context.len() {
                self.config.notes.extend(notes.into_iter().next());
            }
        }
        let mut binds = Vec::new();
        for line in section.all("bind") {
            for address in line.word(1).split(',') {
                match address_of(address) {
                    Some(address) => binds.push(self.bind(address, line)?),
                    None => {
                        let note = line
                            .note("a listener has an IP address and a port, or a socket file", "bind = \"0.0.0.0:80\"");
                        self.config.notes.push(note);
                    }
                }
            }
        }
        if section.is_http() { self.http(section, binds) } else { self.tcp(section, binds) }
    }

    fn http(&mut self, section: &'s Section, binds: Vec<Bind>) -> Result<(), Mistake> {
        let forwarded = self.forwarded(section);
        for has_tls in [false, true] {
            let mut names = Vec::new();
            for bind in binds.iter().filter(|bind| bind.tls.is_some() == has_tls) {
                let mut more = self.shared_keys(section, bind)?;
                http_keys(section, &mut more)?;
                more.set("http.forwarded", Value::text(forwarded));
                let is_one = binds.len() == 1;
                let port = bind.address.rsplit(':').next().unwrap_or_default();
                let name = if is_one { section.name.clone() } else { format!("{}-{port}", section.name) };
                let name = self.listener_names.unique(&name);
                names.push(name.clone());
                self.config.listeners.push(Listener {
                    name,
                    bind: bind.address.clone(),
                    protocol: Protocol::Http,
                    upstream: String::new(),
                    more,
                    notes: Vec::new(),
                });
            }
            if !names.is_empty() {
                self.routes(section, &names, has_tls)?;
            }
        }
        Ok(())
    }

    fn tcp(&mut self, section: &'s Section, binds: Vec<Bind>) -> Result<(), Mistake> {
        let (names, rest) = self.tcp_targets(section)?;
        for bind in binds {
            let mut more = self.shared_keys(section, &bind)?;
            // Always written: without the key, these listeners end a connection that is silent for 10 minutes.
            more.set("idle_timeout", limit(timeout(section, "client")?, 100_000, 30 * DAY));
            if bind.tls.is_some() && !names.is_empty() {
                let why = "a listener that forwards TLS by server name does not terminate it";
                let note = Note::new(&section.place, format!("bind {}", bind.address), why, "protocol = \"tcp\"");
                self.config.notes.push(note);
                more.remove("tls");
            }
            for (list, upstream) in &names {
                let mut table = Table::default();
                table.set("names", Value::texts(list));
                table.set("upstream", Value::text(upstream));
                more.push("server_name", table);
            }
            // HAProxy ends connections for names that no rule knows: they go nowhere here.
            let Some(upstream) = rest.clone().or_else(|| (!names.is_empty()).then(String::new)) else {
                return Err(Mistake::new(&section.place, format!("{} {} has no server", section.kind, section.name)));
            };
            self.config.listeners.push(Listener {
                name: self.listener_names.unique(&section.name),
                bind: bind.address,
                protocol: if names.is_empty() { Protocol::Tcp } else { Protocol::Tls },
                upstream,
                more,
                notes: Vec::new(),
            });
        }
        Ok(())
    }

    /// Forwarding of client addresses. HAProxy adds X-Forwarded-For if the frontend or the backend has the option.
    fn forwarded(&mut self, section: &Section) -> &'static str {
        const OPTION: &str = "option forwardfor";
        if section.find(OPTION).is_some() {
            return "append";
        }
        let named: Vec<&str> =
            section.all("use_backend").chain(section.find("default_backend")).map(|line| line.word(1)).collect();
        let is_named = |backend: &&Section| {
            matches!(backend.kind.as_str(), "backend" | "listen") && named.contains(&backend.name.as_str())
        };
        let backends: Vec<&Section> = self.sections.iter().filter(is_named).collect();
        let (with, without): (Vec<&Section>, Vec<&Section>) =
            backends.into_iter().partition(|backend| backend.find(OPTION).is_some());
        if with.is_empty() {
            return "keep";
        }
        for backend in without {
            let text = format!("{} {}", backend.kind, backend.name);
            let why = format!("another backend of {} has {OPTION}, which applies to the whole listener", section.name);
            self.config.notes.push(Note::new(&backend.place, text, why, "listener.http.forwarded"));
        }
        "append"
    }

    /// Keys that listeners of all protocols have.
    fn shared_keys(&mut self, section: &Section, bind: &Bind) -> Result<Table, Mistake> {
        let mut more = Table::default();
        for (word, key) in [("maxconn", "connections_max"), ("backlog", "backlog")] {
            if let Some(line) = section.find(word) {
                let count: u64 = line.word(1).parse().map_err(|_| line.mistake(format!("{word} needs a number")))?;
                // 0 is the limit of the process.
                if count > 0 {
                    more.set(key, Value::Number(count));
                }
            }
        }
        if bind.has_proxy_header {
            more.set("proxy_protocol", Value::text("any"));
        }
        if let Some(tls) = &bind.tls {
            *more.table("tls") = tls.clone();
        }
        Ok(more)
    }

    fn bind(&mut self, address: String, line: &Line) -> Result<Bind, Mistake> {
        let mut bind = Bind { address, tls: None, has_proxy_header: false };
        let mut tls = Table::default();
        let (mut has_tls, mut certificates) = (false, Vec::new());
        let mut words = line.words.iter().skip(2);
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().unwrap_or_default();
            match word.as_str() {
                "ssl" => has_tls = true,
                "crt" => certificates.push(value()),
                "crt-list" => {
                    certificates.push(value());
                    let why = "each certificate has its own entry: replace the name of the list with its certificates";
                    self.config.notes.push(Note::new(&line.place, line.text(), why, "[[listener.tls.certificate]]"));
                }
                "accept-proxy" => bind.has_proxy_header = true,
                "alpn" => tls.set("alpn", Value::texts(value().split(','))),
                "ca-file" => tls.set("client_ca_file", Value::text(value())),
                "verify" => match value().as_str() {
                    "none" => {}
                    word => tls.set("client_auth", Value::text(word)),
                },
                // All of these hold anyway.
                "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "no-tls-tickets" | "v6only" | "transparent" => {}
                "ssl-min-ver" if matches!(value().as_str(), "TLSv1.2") => {}
                "name" | "process" | "thread" | "id" | "nice" => {
                    value();
                }
                other => {
                    let why = format!("`{other}` has no counterpart");
                    self.config.notes.push(Note::new(&line.place, line.text(), why, "[listener.tls]"));
                }
            }
        }
        if !has_tls {
            return Ok(bind);
        }
        let Some((first, further)) = certificates.split_first() else {
            return Err(line.mistake("`ssl` needs a certificate: crt FILE"));
        };
        if certificates.iter().any(|file| file.ends_with('/')) {
            let why = "each certificate has its own entry: replace server.pem with the first file of the directory";
            self.config.notes.push(Note::new(&line.place, line.text(), why, "[[listener.tls.certificate]]"));
        }
        // A file of HAProxy has the certificate and its key.
        let file =
            |name: &str| Value::text(if name.ends_with('/') { format!("{name}server.pem") } else { name.to_owned() });
        tls.set("cert_file", file(first));
        tls.set("key_file", file(first));
        for name in further {
            let mut table = Table::default();
            table.set("cert_file", file(name));
            table.set("key_file", file(name));
            tls.push("certificate", table);
        }
        bind.tls = Some(tls);
        Ok(bind)
    }
}

/// Keys of an HTTP listener.
fn http_keys(section: &Section, more: &mut Table) -> Result<(), Mistake> {
    let request = timeout(section, "http-request")?;
    // Without it only pauses of a head are bounded. Weir's limit stays then: a head that never ends would hold its connection.
    if request.is_some() {
        more.set("head_timeout", limit(request, 1_000, HOUR));
    }
    let client = timeout(section, "client")?;
    more.set("http.body_idle_timeout", limit(client, 1_000, DAY));
    // HAProxy waits for the next request as long as for the first, or else as long as for anything of a client.
    let kept = timeout(section, "http-keep-alive")?.or(request).or(client);
    more.set("http.keep_alive_timeout", limit(kept, 1_000, DAY));
    // HAProxy passes every upgrade on.
    more.set("http.upgrades", Value::texts(["websocket"]));
    more.set("http.websocket.idle_timeout", limit(timeout(section, "tunnel")?.or(client), 1_000, DAY));
    if section.find("option http-buffer-request").is_none() {
        more.set("http.request_buffer_bytes", Value::Number(0));
    }
    Ok(())
}

/// The address of a `bind`; `None`: it cannot be said.
fn address_of(text: &str) -> Option<String> {
    if text.starts_with('/') {
        return Some(format!("unix:{text}"));
    }
    let text = ["ipv4@", "ipv6@", "unix@"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let host = host.trim_matches(['[', ']']);
    match host {
        "" | "*" => Some(format!("0.0.0.0:{port}")),
        "localhost" => Some(format!("127.0.0.1:{port}")),
        _ => Some(std::net::SocketAddr::new(host.parse().ok()?, port).to_string()),
    }
}
