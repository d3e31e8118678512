//! The target of one side of a suite: a fresh server, and for the other side a gateway in front of it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::gateway::{Config, Gateway};
use crate::server::{Kind, Options, Server};

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The control: no gateway.
    Direct,
    /// Through the gateway.
    Weir,
}

/// A server without data, and what is in front of it.
pub struct Stand {
    gateway: Option<Gateway>,
    server: Server,
}

impl Stand {
    /// Redis 7.0 as its own suite wants an external server.
    ///
    /// # Panics
    /// If the server or the gateway does not start.
    pub fn start(via: Via) -> Self {
        let words = ["--enable-protected-configs", "yes", "--enable-module-command", "yes"];
        let flags = words.map(str::to_owned).to_vec();
        let server = Server::start_with(Kind::Redis, Options { flags, ..Options::default() });
        let gateway = (via == Via::Weir).then(|| {
            // The suites set the server up with CONFIG, DEBUG and the like.
            let config = Config::to(&server.address).workers(2).listener("[listener.redis]\nadmin_commands = true");
            // Some tests keep the server busy for seconds.
            Gateway::start(config.upstream("request_timeout = \"60s\""))
        });
        Self { gateway, server }
    }

    /// Where the suite connects.
    pub fn address(&self) -> SocketAddr {
        self.gateway.as_ref().map_or(&self.server.address, |gateway| &gateway.address).tcp()
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
