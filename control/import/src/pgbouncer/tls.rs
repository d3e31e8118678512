//! TLS towards clients and towards servers.

use super::ini::{Entry, Ini};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// The mode under a key; `None`: there is none.
fn mode<'i>(ini: &'i Ini, key: &str) -> Result<Option<(&'static str, &'i Entry)>, Mistake> {
    let Some(entry) = ini.get(key) else { return Ok(None) };
    let known = MODES.into_iter().find(|mode| *mode == entry.value);
    let wrong = || entry.wrong("is no mode: disable, allow, prefer, require, verify-ca or verify-full");
    Ok(Some((known.ok_or_else(wrong)?, entry)))
}

/// The file under a key.
fn file<'i>(ini: &'i Ini, key: &str) -> Option<&'i str> {
    ini.get(key).map(|entry| &*entry.value).filter(|value| !value.is_empty())
}

/// Keys of a listener.
pub(super) fn listener(ini: &Ini, more: &mut Table) -> Result<(), Mistake> {
    let (mode, entry) = match mode(ini, "client_tls_sslmode")? {
        Some((mode, entry)) if mode != "disable" => (mode, entry),
        _ => return Ok(()),
    };
    let (Some(cert), Some(key)) = (file(ini, "client_tls_cert_file"), file(ini, "client_tls_key_file")) else {
        return Err(entry.wrong("needs client_tls_cert_file and client_tls_key_file"));
    };
    more.set("tls.cert_file", Value::text(cert));
    more.set("tls.key_file", Value::text(key));
    if mode.starts_with("verify") {
        let Some(authority) = file(ini, "client_tls_ca_file") else {
            return Err(entry.wrong("needs client_tls_ca_file: Weir trusts no authority by itself"));
        };
        more.set("tls.client_auth", Value::text("required"));
        more.set("tls.client_ca_file", Value::text(authority));
    }
    Ok(())
}

/// Whether clients that come by TCP have to use TLS.
pub(super) fn is_demanded(ini: &Ini) -> Result<bool, Mistake> {
    Ok(mode(ini, "client_tls_sslmode")?
        .is_some_and(|(mode, _)| matches!(mode, "require" | "verify-ca" | "verify-full")))
}

/// Keys of an upstream that is reached by TCP. `far` is the entry of one that is on another machine.
pub(super) fn upstream(ini: &Ini, far: Option<&Entry>, more: &mut Table, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let Some((mode, entry)) = mode(ini, "server_tls_sslmode")? else {
        if let Some(far) = far {
            let why = "connections to servers are in clear text; newer versions of PgBouncer take TLS where the server has it";
            notes.push(Note::new(&far.place, &far.key, why, "[upstream.tls]"));
        }
        return Ok(());
    };
    let mut note = |why: &str, nearest: &str| notes.push(Note::new(&entry.place, entry.text(), why, nearest));
    match mode {
        "disable" => return Ok(()),
        "allow" | "prefer" => {
            note("TLS is demanded or not used: connections to servers are in clear text", "[upstream.tls]");
            return Ok(());
        }
        "require" => {
            note("as at PgBouncer, any certificate of the server is accepted", "ca_file of [upstream.tls]");
        }
        "verify-ca" => note("the name in the server's certificate is checked too", "server_name of [upstream.tls]"),
        _ => {}
    }
    let table = more.table("tls");
    match (mode, file(ini, "server_tls_ca_file")) {
        ("require", _) => table.set("insecure_skip_verify", Value::Flag(true)),
        (_, Some(authority)) => table.set("ca_file", Value::text(authority)),
        (_, None) => {}
    }
    if let (Some(cert), Some(key)) = (file(ini, "server_tls_cert_file"), file(ini, "server_tls_key_file")) {
        table.set("cert_file", Value::text(cert));
        table.set("key_file", Value::text(key));
    }
    Ok(())
}
