//! TCP: the server takes a connection. Which protocol it speaks is not known, so nothing is sent.

use weir_engine::settings::Address;

use super::{
    Protocol,
    probe::{ProbeConnection, millis},
};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "tcp",
    about: "Run the gateway in front of a server of any TCP protocol, without a configuration file",
    listen_port: 5432,
    server_port: 5433,
    listener_table: "",
    tls_request: None,
    ask,
    try_it,
};

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    Ok(format!("takes connections, connected in {}", millis(contact.connect_time)))
}

fn try_it(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("nc -U {}", path.display()),
        other => format!("nc {} {}", other.host().unwrap_or_default(), other.port().unwrap_or_default()),
    }
}
