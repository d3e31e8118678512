//! Requests that two parsers could read in two ways: each as the bytes of one client, with what must come of them. The same
//! bytes are the seeds of the fuzz target `http_request`.

mod answers;
mod chunks;
mod connections;
mod framing;
mod heads;
mod streams;
pub mod view;

pub use answers::{Spoken, Told, answers};
pub use streams::{Stream, streams};

/// A request as an origin should see it: method, target, body.
pub type Expected = (&'static str, &'static str, &'static str);

/// What follows a request that is refused: who sees this request has read the bytes in another way than the gateway.
pub const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// The bytes of one client on one connection, and what comes of them.
#[derive(Clone, Debug)]
pub struct Case {
    /// Says what is odd about it.
    pub name: &'static str,
    /// All that the client sends before it ends its direction.
    pub input: Vec<u8>,
    /// The requests that go on, in order.
    pub seen: Vec<Expected>,
    /// The statuses of the answers, interim ones left out.
    pub answers: Vec<u16>,
    /// The last answer says that the connection closes.
    pub closes: bool,
    /// Behind `seen` one more request may begin upstream, and never ends there.
    pub is_cut: bool,
}

impl Case {
    /// All of it goes on, and is answered.
    fn served(name: &'static str, input: Vec<u8>, seen: &[Expected]) -> Self {
        let answers = vec![200; seen.len()];
        Self { name, input, seen: seen.to_vec(), answers, closes: false, is_cut: false }
    }

    /// Nothing of it goes on, nor what follows it.
    fn refused(name: &'static str, status: u16, input: Vec<u8>) -> Self {
        let input = [&input, SMUGGLED].concat();
        Self { name, input, seen: Vec::new(), answers: vec![status], closes: true, is_cut: false }
    }

    /// The head is in order and the body is not, or ends early.
    fn cut(name: &'static str, status: u16, input: Vec<u8>) -> Self {
        Self { name, input, seen: Vec::new(), answers: vec![status], closes: true, is_cut: true }
    }
}

/// All of HTTP/1.
pub fn cases() -> Vec<Case> {
    [framing::cases(), chunks::cases(), heads::cases(), connections::cases()].concat()
}

/// A POST of `/x` with these field lines and this body.
fn post(lines: &[u8], body: &[u8]) -> Vec<u8> {
    [b"POST /x HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n", body].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        let is_file_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        assert!(names.iter().all(is_file_name), "they are the names of seeds, too");
        assert!(cases.len() > 200);
    }
}
