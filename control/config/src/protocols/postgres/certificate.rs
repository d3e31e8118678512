//! `auth = "cert"`: it needs certificates that are requested.

use weir_engine::settings::ClientAuth;
use weir_postgres::settings::Method;

use crate::checks::error_at;
use crate::protocols::ListenerContext;
use crate::reader::Reader;

/// Refuses `auth = "cert"` at a listener that requests no certificate: no client would get in.
pub(super) fn check(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let auth = &of.section.own.postgres.postgres.auth;
    let is_requested = of.section.tls.as_ref().is_some_and(|tls| tls.client_auth.value != ClientAuth::Off);
    if auth.value == Method::Cert && !is_requested {
        let what = "lets no client in: this listener requests no certificate";
        let help = "add [listener.tls] with client_auth = \"required\" and client_ca_file, or choose another method";
        error_at(auth, &format!("{}.postgres", of.path), "auth", what, help, reader);
    }
}
