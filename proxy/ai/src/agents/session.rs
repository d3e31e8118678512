//! The id of a session at the gateway.
//!
//! A server gives a session its id (MCP, "Session Management"), and the session lives at the endpoint that gave it. The client gets
//! another id: endpoint and server's id, sealed with a key of the process (AES-256-GCM), and bound to server and client key. So the id
//! leads to its endpoint on every worker without a table, tells nothing, and is of use to no other key. An id of another process, or a
//! changed one, is unknown: 404, and the client begins another session.

use std::sync::OnceLock;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, RandomizedNonceKey},
    rand,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

/// Bytes of an id of a server. Default 512; SDKs use 32 or 36. A longer one is no id.
pub(crate) const SERVER_ID_BYTES_MAX: usize = 512;

/// Bytes of an id of the gateway: that of a server with its endpoint, nonce and tag, in base64.
const SEALED_BYTES_MAX: usize = (SERVER_ID_BYTES_MAX + ENDPOINT_BYTES + NONCE_LEN + TAG_BYTES).div_ceil(3) * 4;

const ENDPOINT_BYTES: usize = 8;
const TAG_BYTES: usize = 16;

/// The key of the process. `None`: the system has no randomness, and no session can begin.
static KEY: OnceLock<Option<RandomizedNonceKey>> = OnceLock::new();

fn key() -> Option<&'static RandomizedNonceKey> {
    let make = || {
        let mut secret = [0; 32];
        rand::fill(&mut secret).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &secret).ok()
    };
    KEY.get_or_init(make).as_ref()
}

/// A session of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The hash of the address of its endpoint.
    pub(crate) endpoint: u64,
    /// The id that the server knows.
    pub(crate) own_id: Box<[u8]>,
}

/// Whether a server may give such an id: visible ASCII, of a bounded length.
pub(crate) fn is_server_id(id: &[u8]) -> bool {
    (1..=SERVER_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// The owner of a session: no other server and no other key can use its id. Names have no zero byte.
fn owner(server: &str, client_key: Option<&str>) -> Vec<u8> {
    [server.as_bytes(), b"\0", client_key.map_or(&b"-"[..], |_| &b"+"[..]), client_key.unwrap_or_default().as_bytes()]
        .concat()
}

impl Session {
    /// The id for the client. `None`: the system has no randomness.
    pub(crate) fn seal(&self, server: &str, client_key: Option<&str>) -> Option<String> {
        let mut sealed = [&self.endpoint.to_be_bytes()[..], &self.own_id].concat();
        let aad = Aad::from(owner(server, client_key));
        let nonce = key()?.seal_in_place_append_tag(aad, &mut sealed).ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode([&nonce.as_ref()[..], &sealed].concat()))
    }

    /// The session of an id that a client has sent. `None`: it is not one of this process, this server and this key.
    pub(crate) fn open(id: &[u8], server: &str, client_key: Option<&str>) -> Option<Self> {
        if id.len() > SEALED_BYTES_MAX {
            return None;
        }
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(owner(server, client_key));
        let opened = key()?.open_in_place(nonce.into(), aad, &mut sealed).ok()?;
        let (endpoint, own_id) = opened.split_first_chunk::<ENDPOINT_BYTES>()?;
        Some(Self { endpoint: u64::from_be_bytes(*endpoint), own_id: own_id.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session { endpoint: 7, own_id: b"4f9c0d1e"[..].into() }
    }

    #[test]
    fn an_id_leads_back_to_its_session_for_its_owner_alone() {
        let id = session().seal("git", Some("team")).expect("randomness");
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()) && !id.contains("4f9c0d1e"));
        assert_eq!(Session::open(id.as_bytes(), "git", Some("team")), Some(session()));
        for (server, key) in [("git", Some("other")), ("git", None), ("github", Some("team")), ("gi", Some("team"))] {
            assert_eq!(Session::open(id.as_bytes(), server, key), None, "{server} {key:?}");
        }
        let open = session().seal("git", None).expect("randomness");
        assert_eq!(Session::open(open.as_bytes(), "git", None), Some(session()));
        assert_eq!(Session::open(open.as_bytes(), "git", Some("")), None);
        assert_ne!(session().seal("git", None), Some(open), "no two ids are the same");
    }

    #[test]
    fn a_changed_id_is_unknown() {
        let id = session().seal("git", None).expect("randomness").into_bytes();
        for at in 0..id.len() {
            let mut changed = id.clone();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(Session::open(&changed, "git", None), None, "{at}");
            assert_eq!(Session::open(&id[..at], "git", None), None, "{at}");
        }
        for foreign in [&b"4f9c0d1e"[..], b"", b"\xff\xfe", &[b'A'; 9_000]] {
            assert_eq!(Session::open(foreign, "git", None), None);
        }
    }

    #[test]
    fn the_longest_id_of_a_server_fits() {
        let longest = Session { endpoint: u64::MAX, own_id: vec![b'x'; SERVER_ID_BYTES_MAX].into() };
        let id = longest.seal("git", None).expect("randomness");
        assert!(id.len() <= SEALED_BYTES_MAX);
        assert_eq!(Session::open(id.as_bytes(), "git", None), Some(longest));
        assert!(is_server_id(&[b'x'; SERVER_ID_BYTES_MAX]) && !is_server_id(&[b'x'; SERVER_ID_BYTES_MAX + 1]));
        assert!(!is_server_id(b"") && !is_server_id(b"a b") && !is_server_id(b"a\x7f"));
    }
}
