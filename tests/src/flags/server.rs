//! A real Unleash server, with a database of its own.

use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

use super::api::{Reply, call};
use super::clients;
use crate::deadline::until;
use crate::port;
use crate::postgres::{Major, Postgres};
use crate::process::Process;
use crate::stream::Address;

/// The token of the admin API.
const ADMIN: &str = "*:*.weir-test-admin-secret-0123456789";

/// Its migrations take some seconds.
const START: Duration = Duration::from_secs(90);

/// A running server. It ends with this value.
pub struct Unleash {
    /// Where it listens.
    pub address: Address,
    process: Process,
    _database: Postgres,
    _folder: TempDir,
}

impl Unleash {
    /// Starts a server with the backend and the frontend token of these tests.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        let database = Postgres::start(Major::Fifteen);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = Address::port(port::free());
        let program = clients().join("server/node_modules/unleash-server/dist/server.js");
        assert!(program.is_file(), "no Unleash server: run `cargo xtask setup unleash`");
        let words = ["node".to_owned(), program.to_string_lossy().into_owned()];
        let variables = [
            ("DATABASE_URL", database.url(crate::postgres::USER)),
            ("DATABASE_SSL", "false".to_owned()),
            ("HTTP_HOST", "127.0.0.1".to_owned()),
            ("HTTP_PORT", address.tcp().port().to_string()),
            ("INIT_ADMIN_API_TOKENS", ADMIN.to_owned()),
            ("INIT_BACKEND_API_TOKENS", super::BACKEND.to_owned()),
            ("INIT_FRONTEND_API_TOKENS", super::FRONTEND.to_owned()),
            ("CHECK_VERSION", "false".to_owned()),
            ("SEND_TELEMETRY", "false".to_owned()),
            ("LOG_LEVEL", "warn".to_owned()),
            ("TZ", "UTC".to_owned()),
            ("NODE_ENV", "production".to_owned()),
            ("CLIENT_METRICS_RATE_LIMIT_PER_MINUTE", "100000".to_owned()),
            ("REGISTER_CLIENT_RATE_LIMIT_PER_MINUTE", "100000".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let mut process = Process::start("unleash", &words, &folder.path().join("unleash.log"), &variables);
        until("the Unleash server to be healthy", START, || {
            if let Some(status) = process.try_wait() {
                panic!("the Unleash server ended with {status}:\n{}", process.log());
            }
            std::net::TcpStream::connect(address.tcp()).ok()?;
            (call(&address, "GET", "/health", "", &[], "").status == 200).then_some(())
        });
        let server = Self { address, process, _database: database, _folder: folder };
        until("the tokens of the start", START, || {
            (call(&server.address, "GET", "/api/client/features", super::BACKEND, &[], "").status == 200).then_some(())
        });
        server
    }

    /// A request of the admin API.
    ///
    /// # Panics
    /// If it is refused.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> Reply {
        let fields = [("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = call(&self.address, method, &format!("/api/admin{path}"), ADMIN, &fields, &body);
        assert!(
            (200..300).contains(&reply.status),
            "{method} {path}: {} {}\n{}",
            reply.status,
            reply.body,
            self.process.log()
        );
        reply
    }

    /// Creates a flag, which is off.
    pub fn create(&self, flag: &str) {
        self.admin("POST", "/projects/default/features", &json!({ "name": flag, "type": "release" }));
        let strategy = json!({ "name": "default", "parameters": {}, "constraints": [], "segments": [] });
        self.admin(
            "POST",
            &format!("/projects/default/features/{flag}/environments/development/strategies"),
            &strategy,
        );
    }

    /// Turns a flag on or off.
    pub fn turn(&self, flag: &str, state: &str) {
        self.admin(
            "POST",
            &format!("/projects/default/features/{flag}/environments/development/{state}"),
            &Value::Null,
        );
    }

    /// Archives a flag.
    pub fn archive(&self, flag: &str) {
        self.admin("DELETE", &format!("/projects/default/features/{flag}"), &Value::Null);
    }

    /// Makes a token: its text.
    ///
    /// # Panics
    /// If the response has none.
    #[must_use]
    pub fn make_token(&self, name: &str, kind: &str) -> String {
        let order = json!({ "tokenName": name, "type": kind, "environment": "development", "projects": ["*"] });
        let reply = self.admin("POST", "/api-tokens", &order).json();
        reply["secret"].as_str().unwrap_or_else(|| panic!("no secret: {reply}")).to_owned()
    }

    /// Deletes a token.
    pub fn delete_token(&self, secret: &str) {
        self.admin("DELETE", &format!("/api-tokens/{secret}"), &Value::Null);
    }

    /// Evaluations of a flag that an application has reported: on, and off.
    #[must_use]
    pub fn counts(&self, flag: &str, application: &str) -> (u64, u64) {
        let metrics = self.admin("GET", &format!("/client-metrics/features/{flag}/raw"), &Value::Null).json();
        let rows = metrics["data"].as_array().cloned().unwrap_or_default();
        let own = rows.iter().filter(|row| row["appName"] == application);
        own.fold((0, 0), |(yes, no), row| {
            (yes + row["yes"].as_u64().unwrap_or(0), no + row["no"].as_u64().unwrap_or(0))
        })
    }
}
