//! Gateways of these tests.

use std::path::Path;

use crate::gateway::Gateway;
use crate::port;
use crate::stream::Address;

/// The backend token that these gateways have from their start, which the lab's origin knows.
pub const BACKEND: &str = "*:development.lab-backend";

/// A frontend token of the same environment, which the lab's origin knows, too.
pub const FRONTEND: &str = "*:development.lab-frontend";

/// Variables with which these gateways start.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    let pairs = [
        ("FLAGS_TOKEN", BACKEND),
        ("FLAGS_CLIENT_TOKEN", BACKEND),
        ("FLAGS_FRONTEND_TOKEN", FRONTEND),
        ("FLAGS_EXTRA_TOKEN", "*:development.extra-secret-0123456789"),
        ("FLAGS_OTHER_TOKEN", "*:production.lab-backend"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// A gateway with two workers in front of a server with Unleash's API. It polls each second. `more`: further lines of `[listener.flags]`,
/// and tables behind it.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn before(server: &Address, more: &str) -> Gateway {
    before_with(server, more, "", &environment())
}

/// The same with further tables, and with other variables.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn before_with(server: &Address, more: &str, tables: &str, environment: &[(String, String)]) -> Gateway {
    let address = Address::port(port::free());
    let interval = if more.contains("poll_interval") { "" } else { "poll_interval = \"1s\"\n" };
    let tokens =
        if more.contains("tokens =") && !more.contains("pretrusted") { "" } else { "tokens = [\"env:FLAGS_TOKEN\"]\n" };
    let text = format!(
        "[runtime]\nworkers = 2\n{tables}\n\
         [[upstream]]\nname = \"unleash\"\nendpoints = [\"{}\"]\n\
         [[listener]]\nname = \"flags\"\nprotocol = \"flags\"\nbind = \"{}\"\nupstream = \"unleash\"\n\
         [listener.flags]\n{tokens}{interval}metrics_interval = \"1s\"\n{more}\n",
        server.text(),
        address.text()
    );
    Gateway::with_environment(&text, address, environment)
}

/// A gateway without a server, whose file has this text.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn offline(folder: &Path, document: &str) -> Gateway {
    offline_with(folder, document, "")
}

/// The same with further lines of `[listener.flags]`.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn offline_with(folder: &Path, document: &str, more: &str) -> Gateway {
    let (address, file) = (Address::port(port::free()), folder.join("features.json"));
    std::fs::write(&file, document).expect("written");
    let text = format!(
        "[runtime]\nworkers = 2\n\
         [[listener]]\nname = \"flags\"\nprotocol = \"flags\"\nbind = \"{}\"\n\
         [listener.flags]\nbootstrap_file = \"{}\"\nreload_interval = \"1s\"\n\
         client_tokens = [\"env:FLAGS_CLIENT_TOKEN\"]\nfrontend_tokens = [\"env:FLAGS_FRONTEND_TOKEN\"]\n{more}\n",
        address.text(),
        file.display()
    );
    Gateway::with_environment(&text, address, &environment())
}
