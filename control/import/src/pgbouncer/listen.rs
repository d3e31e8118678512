//! Addresses: `listen_addr` with `listen_port`, and the Unix socket.

use std::net::{IpAddr, SocketAddr};

use super::amount;
use super::ini::{Entry, Ini};
use crate::note::{Mistake, Note, SourceLine};

/// Addresses of one file. Default 64: each has a listener with all users.
const ADDRESSES_MAX: usize = 64;

/// PgBouncer's own port.
const PORT: u16 = 6432;

/// Addresses to bind.
pub(super) fn binds(ini: &Ini, top: &SourceLine, notes: &mut Vec<Note>) -> Result<Vec<String>, Mistake> {
    let port = match ini.get("listen_port") {
        None => PORT,
        Some(entry) => {
            let port = entry.value.parse().ok().filter(|port| *port != 0);
            port.ok_or_else(|| entry.wrong("is no port"))?
        }
    };
    let mut binds: Vec<String> = Vec::new();
    if let Some(entry) = ini.get("listen_addr") {
        for word in amount::list(&entry.value) {
            if let Some(address) = address(word, entry, notes) {
                let bind = SocketAddr::new(address, port).to_string();
                if !binds.contains(&bind) {
                    binds.push(bind);
                }
            }
            if binds.len() > ADDRESSES_MAX {
                return Err(Mistake::new(&entry.place, format!("there are more than {ADDRESSES_MAX} addresses")));
            }
        }
    }
    binds.extend(socket(ini, top, port, notes));
    Ok(binds)
}

/// An address; `None`, with a note: it is left out.
fn address(word: &str, entry: &Entry, notes: &mut Vec<Note>) -> Option<IpAddr> {
    let mut note = |why: &str, nearest: &str| notes.push(Note::new(&entry.place, entry.text(), why, nearest));
    match word {
        "*" => {
            note("IPv4 addresses alone are bound", "a [[listener]] with bind = \"[::]:PORT\"");
            Some([0, 0, 0, 0].into())
        }
        "localhost" => {
            note("127.0.0.1 alone is bound", "a [[listener]] with bind = \"[::1]:PORT\"");
            Some([127, 0, 0, 1].into())
        }
        word => {
            let address = word.parse().ok();
            if address.is_none() {
                note("a listener has an IP address, not a name; it is left out", "the IP address of the name");
            }
            address
        }
    }
}

/// The Unix socket, whose name is that of a PostgreSQL server at the port.
fn socket(ini: &Ini, top: &SourceLine, port: u16, notes: &mut Vec<Note>) -> Option<String> {
    let folder = ini.get("unix_socket_dir").map_or("/tmp", |entry| &*entry.value);
    if folder.is_empty() {
        return None;
    }
    if !folder.starts_with('/') {
        if let Some(entry) = ini.get("unix_socket_dir") {
            let why = "a listener needs the absolute path of a socket; it is left out";
            notes.push(Note::new(&entry.place, entry.text(), why, "bind = \"unix:/path\""));
        }
        return None;
    }
    let mode = ini.get("unix_socket_mode").or_else(|| ini.get("unix_socket_dir"));
    let (place, directive) = mode.map_or((top, "unix_socket_mode".to_owned()), |entry| (&entry.place, entry.text()));
    let why = "PgBouncer gives its socket unix_socket_mode, 0777 by default; here the umask of the process decides who may connect";
    notes.push(Note::new(place, directive, why, "the service manager's UMask="));
    Some(format!("unix:{}/.s.PGSQL.{port}", folder.trim_end_matches('/')))
}

/// Whether only clients of this machine reach an address.
pub(super) fn is_local(bind: &str) -> bool {
    bind.starts_with("unix:") || bind.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}
