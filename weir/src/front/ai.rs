//! AI: `GET /v1/models`, whose status is the finding. A server that needs a key responds with 401.

use weir_engine::settings::Address;

use super::{Protocol, http::get, probe::ProbeConnection};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "ai",
    about: "Run the gateway in front of a server with the OpenAI API, without a configuration file",
    listen_port: 8000,
    server_port: 8001,
    listener_table: "",
    tls_request: None,
    ask,
    try_it,
};

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    get(contact, "/v1/models")
}

fn try_it(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("curl --unix-socket {} http://localhost/v1/models", path.display()),
        other => format!("OPENAI_BASE_URL=http://{other}/v1"),
    }
}
