//! Requests to the admin server of a running gateway, for commands that print what they get.

use std::{fmt::Display, io::ErrorKind, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use ureq::Agent;
use weir_admin::Problem;
use weir_base::secret::Secret;

/// Bytes of one response: 32 MiB is a `/metrics` of some 300,000 lines.
const RESPONSE_BYTES_MAX: u64 = 32 << 20;

/// One admin server. Each request has a connection of its own, so that none stays with a process that an upgrade replaces.
pub struct Admin {
    base: String,
    token: Option<Secret>,
}

impl Admin {
    /// The server at `base`, a URL without path.
    pub fn new(base: &str, token: Option<Secret>) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), token }
    }

    /// `GET path`: the body of a success.
    ///
    /// # Errors
    /// In words, with the URL: it cannot be reached, or responds with another status.
    pub fn text(&self, path: &str, limit: Duration) -> Result<String, String> {
        self.send("GET", path, None, limit)
    }

    /// `GET path` as JSON.
    ///
    /// # Errors
    /// As [`Admin::text`], or the body has another shape.
    pub fn json<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, String> {
        self.parsed(path, &self.send("GET", path, None, limit)?)
    }

    /// `POST path`, with JSON as the response.
    ///
    /// # Errors
    /// As [`Admin::json`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, String> {
        self.parsed(path, &self.send("POST", path, None, limit)?)
    }

    /// A request with a method of its own, and JSON as its body and as its response.
    ///
    /// # Errors
    /// As [`Admin::json`].
    pub fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
    ) -> Result<T, String> {
        let body = body.map(serde_json::to_string).transpose().map_err(|error| error.to_string())?;
        self.parsed(path, &self.send(method, path, body.as_deref(), limit)?)
    }

    /// False if no program listens at the address.
    pub fn is_there(&self, limit: Duration) -> bool {
        let refused = |error: &ureq::Error| match error {
            ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
            ureq::Error::ConnectionFailed => true,
            _ => false,
        };
        let url = format!("{}/livez", self.base);
        !agent(limit).get(&url).call().is_err_and(|error| refused(&error))
    }

    fn parsed<T: DeserializeOwned>(&self, path: &str, body: &str) -> Result<T, String> {
        serde_json::from_str(body)
            .map_err(|error| format!("{}{path}: another shape than expected ({error})", self.base))
    }

    fn send(&self, method: &str, path: &str, body: Option<&str>, limit: Duration) -> Result<String, String> {
        let url = format!("{}{path}", self.base);
        let mut request = ureq::http::Request::builder().method(method).uri(&url);
        if let Some(token) = self.token.as_ref().and_then(Secret::expose_str) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let failed = |error: &dyn Display| format!("{url}: {error}");
        let response = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json").body(body);
                agent(limit).run(request.map_err(|error| failed(&error))?)
            }
            None => agent(limit).run(request.body(()).map_err(|error| failed(&error))?),
        };
        let mut response = response.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| failed(&error))?;
        if status.is_success() {
            return Ok(body);
        }
        let status = status.as_u16();
        Err(match serde_json::from_str::<Problem>(&body) {
            Ok(problem) => format!("{url} responds with {status}: {}; {}", problem.detail, problem.remedy),
            Err(_not_ours) => format!("{url} responds with {status}; is it the admin address of Weir?"),
        })
    }
}

/// For one request. Neither a redirect nor a proxy from the environment may carry the token elsewhere.
fn agent(limit: Duration) -> Agent {
    let config = Agent::config_builder().timeout_global(Some(limit)).http_status_as_error(false);
    config.max_redirects(0).proxy(None).build().into()
}
