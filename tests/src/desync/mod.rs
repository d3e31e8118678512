//! Requests that two parsers could read in two ways: each as the bytes of one client, with what must come of them. The same
//! bytes are the seeds of the fuzz target `http_request`.

mod chunks;
mod connections;
mod framing;
mod heads;
mod responses;
mod streams;
pub mod view;

pub use responses::{ExpectedResponse, OriginResponse, responses};
pub use streams::{Stream, streams};

/// A request as an origin should see it: method, target, body.
pub type ExpectedRequest = (&'static str, &'static str, &'static str);

/// Bytes behind a refused request. A server that sees this request has parsed the bytes in another way than the gateway.
pub const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// The bytes of one client on one connection, and what comes of them.
#[derive(Clone, Debug)]
pub struct Case {
    /// Says what is odd about it.
    pub name: &'static str,
    /// All that the client sends before it ends its direction.
    pub input: Vec<u8>,
    /// The requests that go on, in order.
    pub seen: Vec<ExpectedRequest>,
    /// The statuses of the responses, interim ones left out.
    pub responses: Vec<u16>,
    /// The last response says that the connection closes.
    pub closes: bool,
    /// Behind `seen` one more request may begin upstream, and never ends there.
    pub is_cut: bool,
}

impl Case {
    /// All of it goes on, and gets responses.
    fn served(name: &'static str, input: Vec<u8>, seen: &[ExpectedRequest]) -> Self {
        let responses = vec![200; seen.len()];
        Self { name, input, seen: seen.to_vec(), responses, closes: false, is_cut: false }
    }

    /// Nothing of it goes on, nor what follows it.
    fn refused(name: &'static str, status: u16, input: Vec<u8>) -> Self {
        let input = [&input, SMUGGLED].concat();
        Self { name, input, seen: Vec::new(), responses: vec![status], closes: true, is_cut: false }
    }

    /// The head is in order and the body is not, or ends early.
    fn cut(name: &'static str, status: u16, input: Vec<u8>) -> Self {
        Self { name, input, seen: Vec::new(), responses: vec![status], closes: true, is_cut: true }
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

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

    /// Inputs of a fuzz target are at most so long (`xtask`, lane `fuzz`).
    const SEED_BYTES_MAX: usize = 4096;

    /// The folder has each of these seeds, and besides only what a search has found.
    fn assert_seeds(target: &str, seeds: impl IntoIterator<Item = (&'static str, Vec<u8>)>) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let seeds: BTreeMap<&str, Vec<u8>> = seeds.into_iter().filter(|seed| seed.1.len() <= SEED_BYTES_MAX).collect();
        if std::env::var_os("WEIR_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&folder).expect("a folder");
            seeds.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).expect("written"));
        }
        let hint = "write it with WEIR_WRITE_SEEDS=1 cargo test -p weir-tests --lib desync";
        for (name, bytes) in &seeds {
            let file = fs::read(folder.join(name)).unwrap_or_default();
            assert!(file == *bytes, "{target}: the seed {name} is not its case: {hint}");
        }
        for entry in fs::read_dir(&folder).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            assert!(name.starts_with("found-") || seeds.contains_key(&name[..]), "{target}: no case for {name}");
        }
    }

    #[test]
    fn the_cases_are_the_seeds_of_the_fuzz_targets() {
        assert_seeds("http_request", cases().into_iter().map(|case| (case.name, case.input)));
        assert_seeds("http_response", responses().into_iter().map(|response| (response.name, response.bytes)));
        let bodies = chunks::cases().into_iter().map(|case| {
            let head = case.input.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
            (case.name, case.input[head..].to_vec())
        });
        assert_seeds("http_chunks", bodies);
    }
}
