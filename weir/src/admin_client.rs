//! Requests to the admin server of a running gateway, for commands that print what they get.

use std::time::Duration;

use serde::de::DeserializeOwned;
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

    /// `GET path`: the body of a 200.
    ///
    /// # Errors
    /// In words, with the URL: it cannot be reached, or responds with another status.
    pub fn text(&self, path: &str, limit: Duration) -> Result<String, String> {
        self.send("GET", path, limit)
    }

    /// `GET path` as JSON.
    ///
    /// # Errors
    /// As [`Admin::text`], or the body has another shape.
    pub fn json<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, String> {
        self.parsed(path, &self.send("GET", path, limit)?)
    }

    /// `POST path`, with JSON as the response.
    ///
    /// # Errors
    /// As [`Admin::json`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, limit: Duration) -> Result<T, String> {
        self.parsed(path, &self.send("POST", path, limit)?)
    }

    fn parsed<T: DeserializeOwned>(&self, path: &str, body: &str) -> Result<T, String> {
        serde_json::from_str(body)
            .map_err(|error| format!("{}{path}: another shape than expected ({error})", self.base))
    }

    fn send(&self, method: &str, path: &str, limit: Duration) -> Result<String, String> {
        let config = Agent::config_builder()
            .timeout_global(Some(limit))
            .http_status_as_error(false)
            // Neither a redirect nor a proxy from the environment may carry the token elsewhere.
            .max_redirects(0)
            .proxy(None)
            .build();
        let url = format!("{}{path}", self.base);
        let mut request = ureq::http::Request::builder().method(method).uri(&url);
        if let Some(token) = self.token.as_ref().and_then(Secret::expose_str) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|error| format!("{url}: {error}"))?;
        let mut response = Agent::from(config).run(request).map_err(|error| format!("{url}: {error}"))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| format!("{url}: {error}"))?;
        if status == 200 {
            return Ok(body);
        }
        Err(match serde_json::from_str::<Problem>(&body) {
            Ok(problem) => format!("{url} responds with {status}: {}; {}", problem.detail, problem.remedy),
            Err(_not_ours) => format!("{url} responds with {status}; is it the admin address of Weir?"),
        })
    }
}
