//! Requests by hand.

use serde_json::Value;

use crate::http::{HttpClient, Response};
use crate::stream::Address;

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The body without its chunks, as it came otherwise.
    pub body: String,
    response: Response,
}

impl Reply {
    /// The value of a field, if it is there.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        self.response.field(name)
    }

    /// Whether it is a 503 whose client is to come again in 1 to 3 s.
    #[must_use]
    pub fn is_later(&self) -> bool {
        self.status == 503 && is_retry_after(self.field("retry-after").as_deref())
    }

    /// The bytes of the body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.response.body
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {} {}", self.status, self.body))
    }

    /// The names of the flags in a document of either API.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let document = self.json();
        let list = document["features"].as_array().or_else(|| document["toggles"].as_array());
        let list = list.unwrap_or_else(|| panic!("no list of flags: {document}"));
        list.iter().map(|flag| flag["name"].as_str().expect("a name").to_owned()).collect()
    }
}

/// Whether the value of Retry-After is one of the waits of a 503: 1 to 3 s.
#[must_use]
pub fn is_retry_after(value: Option<&str>) -> bool {
    value.is_some_and(|value| ["1", "2", "3"].contains(&value))
}

/// A request over a connection of its own, with a token unless it is empty.
///
/// # Panics
/// If no response comes.
#[must_use]
pub fn call(address: &Address, method: &str, path: &str, token: &str, fields: &[(&str, &str)], body: &str) -> Reply {
    let mut client = HttpClient::connect(address);
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: flags.example\r\n");
    if !token.is_empty() {
        head += &format!("Authorization: {token}\r\n");
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    client.send(format!("{head}\r\n{body}"));
    let response = client.response_to(method == "HEAD");
    Reply { status: response.status, body: response.content(), response }
}

/// A GET.
#[must_use]
pub fn get(address: &Address, path: &str, token: &str) -> Reply {
    call(address, "GET", path, token, &[], "")
}

/// A POST of JSON.
#[must_use]
pub fn post(address: &Address, path: &str, token: &str, body: &str) -> Reply {
    call(address, "POST", path, token, &[("Content-Type", "application/json")], body)
}
