//! An origin with a gateway in front of it, and how much of a case is played.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::{Ask, Caller, Origin, Protocol, Transfer, connect};
use crate::certificate::Certificates;
use crate::gateway::{Config, Gateway};
use crate::stream::{Address, Stream};

/// Names the seconds that each victim is watched for the whole table.
const VARIABLE: &str = "WEIR_ISOLATION_SECONDS";

/// How much of the cases is played: a short form of each, or the whole table.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How long a victim is watched.
    pub watched: Duration,
    /// All rates, numbers and distances, and everything once more without a gateway.
    pub is_whole: bool,
}

impl Extent {
    /// As the environment has it.
    ///
    /// # Panics
    /// If it is no number.
    pub fn of_environment() -> Self {
        match std::env::var(VARIABLE) {
            Err(_) => Self { watched: Duration::from_millis(900), is_whole: false },
            Ok(seconds) => {
                let seconds = seconds.parse().unwrap_or_else(|_| panic!("{VARIABLE}={seconds}: a number of seconds"));
                Self { watched: Duration::from_secs_f64(seconds), is_whole: true }
            }
        }
    }

    /// One of two, by what is played.
    pub fn pick<T>(&self, short: T, whole: T) -> T {
        if self.is_whole { whole } else { short }
    }
}

/// An origin, a gateway, and the ways to both.
pub struct Stand {
    /// The protocol of both sides.
    pub protocol: &'static dyn Protocol,
    /// First, because it is judged when it is dropped.
    pub gateway: Gateway,
    /// The origin behind the gateway.
    pub origin: Box<dyn Origin>,
    tls: Option<Arc<ClientConfig>>,
    _folder: Option<tempfile::TempDir>,
}

impl Stand {
    /// With default settings, an origin that has room for everybody, and one worker.
    pub fn start(protocol: &'static dyn Protocol) -> Self {
        Self::with(protocol, protocol.origin(), |config| config)
    }

    /// With this origin, and settings of the case.
    pub fn with(
        protocol: &'static dyn Protocol,
        origin: Box<dyn Origin>,
        change: impl FnOnce(Config) -> Config,
    ) -> Self {
        let gateway = Gateway::start(change(protocol.config(&[origin.address()])));
        Self { protocol, gateway, origin, tls: None, _folder: None }
    }

    /// With TLS towards clients besides.
    ///
    /// # Panics
    /// If no certificate can be made.
    pub fn with_tls(protocol: &'static dyn Protocol, change: impl FnOnce(Config) -> Config) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Certificates::create(folder.path());
        let (certificate, key) = (files.server.display(), files.server_key.display());
        let lines = format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"");
        let mut tls = Arc::unwrap_or_clone(files.client_config());
        tls.alpn_protocols = protocol.alpn().map(<[u8]>::to_vec).into_iter().collect();
        let stand = Self::with(protocol, protocol.origin(), |config| change(config.listener(&lines)));
        Self { tls: Some(Arc::new(tls)), _folder: Some(folder), ..stand }
    }

    /// A connection to the gateway.
    ///
    /// # Errors
    /// If it takes none.
    pub fn connect(&self) -> Result<Stream> {
        match &self.tls {
            Some(tls) => Stream::connect_tls(self.gateway.address.tcp(), tls.clone()),
            None => connect(&self.gateway.address),
        }
    }

    /// Asks through the gateway, without waiting for the response.
    ///
    /// # Panics
    /// If that cannot be sent.
    pub fn begin(&self, ask: &Ask) -> Box<dyn Transfer> {
        let begun = self.connect().and_then(|stream| self.protocol.begin(stream, ask));
        begun.unwrap_or_else(|error| panic!("{}: {ask:?}: {error}", self.protocol.name()))
    }

    /// How a victim connects to the gateway, which has no TLS then.
    pub fn victim(&self) -> impl Fn() -> Result<Box<dyn Caller>> + Send + 'static {
        to(self.protocol, &self.gateway.address)
    }
}

/// How a client connects to that address.
pub fn to(
    protocol: &'static dyn Protocol,
    address: &Address,
) -> impl Fn() -> Result<Box<dyn Caller>> + Send + 'static + use<> {
    let address = address.clone();
    move || protocol.caller(connect(&address)?)
}
