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

/// Bytes with the owner that may open them, as an id for a client.
fn seal(mut bytes: Vec<u8>, owner: Vec<u8>) -> Option<String> {
    let nonce = key()?.seal_in_place_append_tag(Aad::from(owner), &mut bytes).ok()?;
    Some(BASE64_URL_SAFE_NO_PAD.encode([&nonce.as_ref()[..], &bytes].concat()))
}

/// The bytes of an id. `None`: they are not those of this process and this owner.
fn open(id: &[u8], owner: Vec<u8>) -> Option<Vec<u8>> {
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut sealed = sealed.to_vec();
    let opened = key()?.open_in_place(nonce.into(), Aad::from(owner), &mut sealed).ok()?;
    Some(opened.to_vec())
}

impl Session {
    /// The id for the client. `None`: the system has no randomness.
    pub(crate) fn seal(&self, server: &str, client_key: Option<&str>) -> Option<String> {
        seal([&self.endpoint.to_be_bytes()[..], &self.own_id].concat(), owner(server, client_key))
    }

    /// The session of an id that a client has sent. `None`: it is not one of this process, this server and this key.
    pub(crate) fn open(id: &[u8], server: &str, client_key: Option<&str>) -> Option<Self> {
        if id.len() > SEALED_BYTES_MAX {
            return None;
        }
        let opened = open(id, owner(server, client_key))?;
        let (endpoint, own_id) = opened.split_first_chunk::<ENDPOINT_BYTES>()?;
        Some(Self { endpoint: u64::from_be_bytes(*endpoint), own_id: own_id.into() })
    }
}

/// Bytes of the sessions of a federation in front of their seal. Default 3 KiB, and so at most 4 KiB in a field of the head: 16 servers
/// with ids of 160 bytes. A server whose id finds no room is left out.
const FEDERATED_BYTES_MAX: usize = 3 * 1_024;

/// Bytes of an id of a federation.
const FEDERATED_SEALED_BYTES_MAX: usize = (FEDERATED_BYTES_MAX + NONCE_LEN + TAG_BYTES).div_ceil(3) * 4;

/// Bytes of the name of a revision.
const REVISION_BYTES: usize = 10;

/// Bytes of a server of a federation without its id: the hash of its name, its abilities, revision and endpoint, and the length of the id.
const FEDERATED_FIXED_BYTES: usize = 8 + 1 + REVISION_BYTES + ENDPOINT_BYTES + 2;

/// The session at one server of a federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSession {
    /// The hash of the name of the server: positions change with a reload.
    pub(crate) server: u64,
    pub(crate) has_tools: bool,
    pub(crate) has_prompts: bool,
    /// The revision that the server speaks.
    pub(crate) revision: [u8; REVISION_BYTES],
    /// An empty id: the server has no sessions, and any of its endpoints serves.
    pub(crate) session: Session,
}

/// The sessions of a client at the servers of a federation, in the order of the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FederatedSession {
    servers: Vec<ServerSession>,
    bytes: usize,
}

impl FederatedSession {
    /// Adds a server. False: there is no room for its id.
    pub(crate) fn add(&mut self, server: ServerSession) -> bool {
        let bytes = self.bytes + FEDERATED_FIXED_BYTES + server.session.own_id.len();
        let has_room = bytes <= FEDERATED_BYTES_MAX;
        if has_room {
            self.bytes = bytes;
            self.servers.push(server);
        }
        has_room
    }

    /// The servers.
    pub(crate) fn servers(&self) -> &[ServerSession] {
        &self.servers
    }

    /// As [`Session::seal`].
    pub(crate) fn seal(&self, federation: &str, client_key: Option<&str>) -> Option<String> {
        let mut bytes = Vec::with_capacity(self.bytes + TAG_BYTES);
        for ServerSession { server, has_tools, has_prompts, revision, session } in &self.servers {
            bytes.extend_from_slice(&server.to_be_bytes());
            bytes.push(u8::from(*has_tools) | u8::from(*has_prompts) << 1);
            bytes.extend_from_slice(revision);
            bytes.extend_from_slice(&session.endpoint.to_be_bytes());
            bytes.extend_from_slice(&u16::try_from(session.own_id.len()).ok()?.to_be_bytes());
            bytes.extend_from_slice(&session.own_id);
        }
        seal(bytes, Self::owner(federation, client_key))
    }

    /// As [`Session::open`].
    pub(crate) fn open(id: &[u8], federation: &str, client_key: Option<&str>) -> Option<Self> {
        if id.len() > FEDERATED_SEALED_BYTES_MAX {
            return None;
        }
        let opened = open(id, Self::owner(federation, client_key))?;
        let (mut all, mut rest) = (Self::default(), &*opened);
        while !rest.is_empty() {
            let (server, behind) = rest.split_first_chunk()?;
            let (&[abilities], behind) = behind.split_first_chunk()?;
            let (revision, behind) = behind.split_first_chunk()?;
            let (endpoint, behind) = behind.split_first_chunk()?;
            let (length, behind) = behind.split_first_chunk()?;
            let (own_id, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = behind;
            let session = Session { endpoint: u64::from_be_bytes(*endpoint), own_id: own_id.into() };
            let (has_tools, has_prompts) = (abilities & 1 != 0, abilities & 2 != 0);
            let server = u64::from_be_bytes(*server);
            all.add(ServerSession { server, has_tools, has_prompts, revision: *revision, session });
        }
        Some(all)
    }

    /// A name may be that of a server before a reload, and that of a federation behind it.
    fn owner(federation: &str, client_key: Option<&str>) -> Vec<u8> {
        [b"\0federation\0", &*owner(federation, client_key)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn federated(ids: &[&str]) -> FederatedSession {
        let mut all = FederatedSession::default();
        for (number, id) in (1..).zip(ids) {
            let session = Session { endpoint: number + 10, own_id: id.as_bytes().into() };
            let (has_tools, has_prompts) = (number % 2 == 0, number % 3 == 0);
            let revision = *b"2025-11-25";
            assert!(all.add(ServerSession { server: number, has_tools, has_prompts, revision, session }));
        }
        all
    }

    #[test]
    fn the_id_of_a_federation_leads_to_each_session_for_its_owner_alone() {
        let all = federated(&["4f9c", "", "x", "y", "z", "0"]);
        let id = all.seal("all", Some("team")).expect("randomness");
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()) && !id.contains("4f9c"));
        assert_eq!(FederatedSession::open(id.as_bytes(), "all", Some("team")), Some(all));
        for (name, key) in [("all", Some("other")), ("all", None), ("al", Some("team"))] {
            assert_eq!(FederatedSession::open(id.as_bytes(), name, key), None, "{name} {key:?}");
        }
        assert_eq!(Session::open(id.as_bytes(), "all", Some("team")), None, "it is no id of a server");
        let plain = session().seal("all", Some("team")).expect("randomness");
        assert_eq!(FederatedSession::open(plain.as_bytes(), "all", Some("team")), None);
        for at in 0..id.len() {
            assert_eq!(FederatedSession::open(&id.as_bytes()[..at], "all", Some("team")), None, "{at}");
        }
    }

    #[test]
    fn sixteen_servers_fit_and_an_id_without_room_does_not() {
        let id = "x".repeat(160);
        let mut all = federated(&[&*id; 16]);
        let sealed = all.seal("all", None).expect("randomness");
        assert!(sealed.len() <= FEDERATED_SEALED_BYTES_MAX && sealed.len() < 4_200, "{}", sealed.len());
        assert_eq!(FederatedSession::open(sealed.as_bytes(), "all", None).as_ref(), Some(&all));
        let last = all.servers()[0].clone();
        assert!(!all.add(last), "the seventeenth");
    }

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
