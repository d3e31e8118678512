//! The target of one side of a suite: a fresh server, and for the other side a gateway in front of it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::gateway::{Config, Gateway};
use crate::mongodb::FerretDb;
use crate::postgres::{Major, PASSWORD, Postgres};
use crate::server::{Kind, Options, Server};

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The control: no gateway.
    Direct,
    /// Through the gateway.
    Weir,
}

/// The server of a stand.
enum Backend {
    Redis(Server),
    Postgres(Postgres),
    Mongodb(FerretDb),
}

/// A server without data, and what is in front of it.
pub struct Stand {
    gateway: Option<Gateway>,
    server: Backend,
}

impl Stand {
    /// Redis 7.0 as its own suite wants an external server.
    ///
    /// # Panics
    /// If the server or the gateway does not start.
    pub fn redis(via: Via) -> Self {
        let words = ["--enable-protected-configs", "yes", "--enable-module-command", "yes"];
        let flags = words.map(str::to_owned).to_vec();
        let server = Server::start_with(Kind::Redis, Options { flags, ..Options::default() });
        let gateway = (via == Via::Weir).then(|| {
            // The suites set the server up with CONFIG, DEBUG and the like.
            let config = Config::to(&server.address).workers(2).listener("[listener.redis]\nadmin_commands = true");
            // Some tests keep the server busy for seconds.
            Gateway::start(config.upstream("request_timeout = \"60s\""))
        });
        Self { gateway, server: Backend::Redis(server) }
    }

    /// PostgreSQL 15, where the suite is a superuser; the gateway pools by transaction. On two workers chance would decide which of the
    /// server connections a test finds, and which statements that has.
    ///
    /// # Panics
    /// If the server or the gateway does not start.
    pub fn postgres(via: Via) -> Self {
        let server = Postgres::start(Major::Fifteen);
        let gateway = (via == Via::Weir).then(|| {
            let user = "user = \"postgres\"\npassword = { env = \"WEIR_TEST_PASSWORD\" }\npool_size = 50";
            let listener = "[[listener.user]]\nname = \"postgres\"\npassword = { env = \"WEIR_TEST_PASSWORD\" }";
            let config = Config::to(&server.address).workers(1).listener(listener);
            let mut config = config.upstream(&format!("[upstream.postgres]\n{user}"));
            config.environment.push(("WEIR_TEST_PASSWORD".into(), PASSWORD.into()));
            Gateway::start(Config { protocol: "postgres", ..config })
        });
        Self { gateway, server: Backend::Postgres(server) }
    }

    /// FerretDB without logins. The gateway shows what the server is, a server without a set.
    ///
    /// # Panics
    /// If the server or the gateway does not start.
    pub fn mongodb(via: Via) -> Self {
        let server = FerretDb::start();
        let gateway = (via == Via::Weir).then(|| {
            let config = Config { protocol: "mongodb", ..Config::to(&server.address) }.workers(2);
            Gateway::start(config.listener("[listener.mongodb]\nauth = \"none\""))
        });
        Self { gateway, server: Backend::Mongodb(server) }
    }

    /// The variables that libpq and its relatives read: address and login of the superuser.
    pub fn libpq_environment(&self) -> Vec<(&'static str, String)> {
        let address = self.address();
        vec![
            ("PGHOST", address.ip().to_string()),
            ("PGPORT", address.port().to_string()),
            ("PGUSER", "postgres".into()),
            ("PGDATABASE", "postgres".into()),
            ("PGPASSWORD", PASSWORD.into()),
        ]
    }

    /// Where the suite connects.
    pub fn address(&self) -> SocketAddr {
        let server = match &self.server {
            Backend::Redis(server) => &server.address,
            Backend::Postgres(server) => &server.address,
            Backend::Mongodb(server) => &server.address,
        };
        self.gateway.as_ref().map_or(server, |gateway| &gateway.address).tcp()
    }

    /// Ends both. The gateway is judged as after every end-to-end test: at rest, clean exit, no panic.
    ///
    /// # Errors
    /// The failed condition.
    pub fn finish(self) -> Result<(), String> {
        let Some(gateway) = self.gateway else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| gateway.finish())).map_err(|panic| {
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "the gateway does not end well".to_owned())
        })
    }
}
