//! A load without a file: the scenario that a URL and a few options mean, as the text of a file. There is no second path: the
//! text is read by [`parse`](crate::scenario::parse) as any scenario is.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use weir_engine::settings::Address;

use crate::protocols::{self, Protocol};
use crate::threshold::Threshold;

/// Connections of a load without a file. Default 50, as in a scenario that names none, and as oha and hey have it.
pub const CONNECTIONS: u32 = 50;
/// The warm-up. Default 2 s: a load from the command line is short.
pub const WARMUP: &str = "2s";
/// The measured window. Default 10 s, the length of a trial of the knee search.
pub const DURATION: &str = "10s";

/// Bytes of the host in the name of a scenario, which has 64 in all.
const HOST_BYTES_IN_NAME: usize = 40;

/// Schemes of the protocols of [`protocols::ALL`] over TLS, which no load of the lab speaks.
const TLS_SCHEMES: [&str; 4] = ["https", "wss", "rediss", "tls"];

/// Where a load goes, and in which protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Url {
    protocol: &'static dyn Protocol,
    /// Host, and port if the text names one, as a request says them.
    authority: String,
    /// Path and query; `/` if the text has none.
    path: String,
    target: Address,
    text: String,
}

impl Url {
    /// Whether a word of the command line is meant as a URL and not as a file.
    #[must_use]
    pub fn is_one(word: &str) -> bool {
        word.contains("://")
    }

    /// The server to connect to.
    #[must_use]
    pub fn target(&self) -> &Address {
        &self.target
    }

    /// Its protocol.
    #[must_use]
    pub fn protocol(&self) -> &'static dyn Protocol {
        self.protocol
    }

    /// Host and port, as the text has them.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query, at least `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why no load can be made of a URL, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let wrong = |why: &str| UrlError(format!("{}: {why}", without_user(text)));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("write scheme://host:port"))?;
        if TLS_SCHEMES.contains(&scheme) {
            return Err(wrong(
                "the lab's own load speaks no TLS; `weir lab compare --tls` measures it with wrk, h2load or redis-benchmark",
            ));
        }
        let schemes = || protocols::ALL.iter().filter_map(|protocol| Some((*protocol, protocol.scheme()?)));
        let (protocol, own) = schemes().find(|(_, own)| own.name == scheme).ok_or_else(|| {
            let names: Vec<String> = schemes().map(|(_, own)| format!("{}://", own.name)).collect();
            wrong(&format!("no protocol of the lab has this scheme; there are {}", names.join(", ")))
        })?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let place = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(place);
        // Where a path means nothing an @ behind a slash is that of a user too, whose password has the slash.
        if authority.contains('@') || (rest.contains('@') && !own.has_path) {
            return Err(wrong("the lab's load sends no user and no password; name a target that needs none"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if path != "/" && !own.has_path {
            return Err(wrong(&format!("a load of {} has no path; leave out \"{path}\"", protocol.title())));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.contains(']'));
        let target = match (has_port, own.port) {
            (true, _) => authority.to_owned(),
            (false, Some(port)) => format!("{}:{port}", authority.trim_end_matches(':')),
            (false, None) => return Err(wrong("the port is missing; write host:port")),
        };
        let target = target.parse::<Address>().map_err(|error| wrong(&format!("{error}")))?;
        Ok(Self { protocol, authority: authority.to_owned(), path, target, text: text.to_owned() })
    }
}

/// A text that is meant as a URL, without user and password: messages end in logs.
#[must_use]
pub fn without_user(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let sign = if scheme.is_empty() { "" } else { "://" };
    // The last @: a password may have one.
    rest.rsplit_once('@').map_or(text.to_owned(), |(_, host)| format!("{scheme}{sign}***@{host}"))
}

/// How a protocol is named in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// `http`
    pub name: &'static str,
    /// The port of a URL that names none; `None`: it must name one.
    pub port: Option<u16>,
    /// Whether a path means something.
    pub has_path: bool,
}

/// A URL with the options of a command line.
#[derive(Clone, Debug)]
pub struct UrlLoad {
    /// Where it goes.
    pub url: Url,
    /// Requests per second; `None`: a closed loop, where the reply decides when the next request is sent.
    pub rate: Option<f64>,
    /// Connections of all cores together.
    pub connections: u32,
    /// Requests under way per connection; streams of HTTP/2.
    pub pipeline: u32,
    /// Generator cores.
    pub shards: u32,
    /// Before the measured window, such as `2s`.
    pub warmup: String,
    /// The measured window, such as `30s`.
    pub duration: String,
    /// Size of a value or a message, such as `64B`; `None`: the default of the protocol.
    pub payload: Option<String>,
    /// The latency target, such as `20ms`.
    pub slo_p99: Option<String>,
    /// Thresholds that decide the exit code.
    pub thresholds: Vec<Threshold>,
}

impl UrlLoad {
    /// The scenario file. Mistakes in numbers and times are left for the reader of scenarios to report.
    #[must_use]
    pub fn scenario(&self) -> String {
        let Self { url, rate, connections, pipeline, shards, warmup, duration, payload, slo_p99, thresholds } = self;
        let protocol = url.protocol;
        let mode = if rate.is_some() { "open" } else { "closed" };
        let depth = if protocol.is_multiplexed() { "streams" } else { "pipeline" };
        let mut text = format!(
            "# The load of {url}. Run it with:\n#   weir lab load FILE --target {}\n\
             name = \"{}\"\nprotocol = \"{protocol}\"\nmode = \"{mode}\"\nshards = {shards}\n\
             connections = {connections}\n{depth} = {pipeline}\n",
            url.target,
            self.name()
        );
        // Writing to a string does not fail.
        if let Some(slo) = slo_p99 {
            let _ = writeln!(text, "slo_p99 = {}", quoted(slo));
        }
        if !thresholds.is_empty() {
            let words: Vec<String> = thresholds.iter().map(|one| quoted(&one.to_string())).collect();
            let _ = writeln!(text, "threshold = [{}]", words.join(", "));
        }
        if let Some(size) = payload {
            let _ = writeln!(text, "payload.size = {}", quoted(size));
        }
        text.push_str(&protocol.lines_of(url));
        text.push_str("\n[[phase]]\nname = \"load\"\n");
        if let Some(rate) = rate {
            let _ = writeln!(text, "rate = {rate}");
        }
        let _ = writeln!(text, "warmup = {}\nduration = {}", quoted(warmup), quoted(duration));
        text
    }

    /// `http1-127.0.0.1-8080`
    fn name(&self) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
        let host: String = self.url.authority.chars().map(plain).take(HOST_BYTES_IN_NAME).collect();
        format!("{}-{}", self.url.protocol, host)
    }
}

/// A TOML text. Control characters are no part of any option.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrivals::Rate;
    use crate::scenario::{self, Mode};

    fn load(url: &str) -> UrlLoad {
        UrlLoad {
            url: url.parse().unwrap_or_else(|error| panic!("{error}")),
            rate: None,
            connections: CONNECTIONS,
            pipeline: 1,
            shards: 1,
            warmup: WARMUP.to_owned(),
            duration: DURATION.to_owned(),
            payload: None,
            slo_p99: None,
            thresholds: Vec::new(),
        }
    }

    #[test]
    fn a_url_means_a_scenario_that_a_file_could_say() {
        for (url, protocol, target) in [
            ("redis://127.0.0.1", "redis", "127.0.0.1:6379"),
            ("redis://127.0.0.1:7000/", "redis", "127.0.0.1:7000"),
            ("http://localhost", "http1", "localhost:80"),
            ("http://127.0.0.1:8080/a?b=c", "http1", "127.0.0.1:8080"),
            ("http://[::1]:8080", "http1", "[::1]:8080"),
            ("http://[::1]/", "http1", "[::1]:80"),
            ("h2c://127.0.0.1:8080/x", "http2", "127.0.0.1:8080"),
            ("ws://127.0.0.1:8080/chat", "websocket", "127.0.0.1:8080"),
            ("postgres://127.0.0.1", "postgres", "127.0.0.1:5432"),
            ("mongodb://127.0.0.1", "mongodb", "127.0.0.1:27017"),
            ("tcp://127.0.0.1:7", "tcp", "127.0.0.1:7"),
        ] {
            let load = load(url);
            let text = load.scenario();
            let scenario = scenario::parse(url, &text).unwrap_or_else(|mistakes| panic!("{text}{mistakes}"));
            assert_eq!((scenario.protocol.word(), &*load.url.target().to_string()), (protocol, target), "{text}");
            assert_eq!((scenario.mode, scenario.connections, scenario.phases.len()), (Mode::Closed, 50, 1));
        }
    }

    #[test]
    fn options_stand_in_the_scenario() {
        let load = UrlLoad {
            rate: Some(2_000.0),
            connections: 7,
            pipeline: 3,
            shards: 2,
            duration: "30s".to_owned(),
            payload: Some("1KiB".to_owned()),
            thresholds: ["p99<5ms", "errors<0.1%"].map(|one| one.parse().expect("right")).to_vec(),
            ..load("h2c://127.0.0.1:8080/a")
        };
        let scenario = scenario::parse("url", &load.scenario()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!((scenario.connections, scenario.pipeline, scenario.shards), (7, 3, 2));
        assert_eq!(scenario.phases[0].rate, Rate::per_second(2_000.0));
        assert_eq!(scenario.phases[0].duration, Duration::from_secs(30));
        assert_eq!((scenario.thresholds.len(), scenario.slo_p99), (2, Some(Duration::from_millis(5))));
        assert_eq!(scenario.request.path.as_deref(), Some("/a"));
        assert!(!scenario.request.has_any_length, "the size is said");
        assert_eq!((&*scenario.request.host, scenario.payload.bytes_max()), ("127.0.0.1:8080", 1_024));
    }

    #[test]
    fn a_url_that_no_load_can_be_made_of_names_the_remedy() {
        for (url, why) in [
            ("https://127.0.0.1/", "speaks no TLS; `weir lab compare --tls`"),
            ("ftp://127.0.0.1/", "there are redis://, http://, h2c://, ws://, postgres://, mongodb://, tcp://"),
            ("redis://user:secret@127.0.0.1", "no user and no password"),
            ("redis://127.0.0.1/3", "a load of Redis has no path; leave out \"/3\""),
            ("tcp://127.0.0.1", "the port is missing"),
            ("http:///x", "the host is missing"),
            ("rediss://:secret@127.0.0.1", "rediss://***@127.0.0.1: the lab's own load speaks no TLS"),
            ("ftp://user:se@cret@127.0.0.1/", "ftp://***@127.0.0.1/: no protocol"),
            ("redis://:secret/more@127.0.0.1", "no user and no password"),
        ] {
            let error = url.parse::<Url>().expect_err(url).to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("secret") && !error.contains("cret@") && !error.contains("user:"), "{error}");
        }
        assert_eq!(without_user(":secret@127.0.0.1:6379"), "***@127.0.0.1:6379");
        assert_eq!(without_user("http://127.0.0.1/"), "http://127.0.0.1/");
    }

    #[test]
    fn what_a_user_types_cannot_leave_its_quotes() {
        let load = UrlLoad { duration: "1s\"\nrate = 5 #".to_owned(), ..load("tcp://127.0.0.1:7") };
        assert!(scenario::parse("url", &load.scenario()).is_err());
    }
}
