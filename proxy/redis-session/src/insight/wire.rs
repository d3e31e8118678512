//! A request read again from the bytes that were sent to the server; of long ones the end may be missing.

use weir_analysis::redis::{self, Args, Command, Resolved};

/// Arguments that are looked at. Those behind them are only counted.
pub(super) const ARGS_MAX: usize = 256;

/// One argument, as far as it is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    /// Its beginning, or all of it.
    pub(super) held: &'a [u8],
    /// Its whole length.
    pub(super) bytes: usize,
}

/// The arguments of one request.
pub(super) struct RequestArguments<'a> {
    args: Vec<Argument<'a>>,
    declared: usize,
    /// Bytes that the request has at least, by what is here of it.
    pub(super) bytes: usize,
}

impl<'a> RequestArguments<'a> {
    /// Reads the request at the front of `wire`; `None` if nothing of it is there.
    pub(super) fn read(wire: &'a [u8]) -> Option<Self> {
        let (declared, mut at) = header(wire, b'*')?;
        let mut words = Self { args: Vec::with_capacity(declared.min(8)), declared, bytes: 0 };
        for _ in 0..declared.min(ARGS_MAX) {
            let Some((bytes, head)) = wire.get(at..).and_then(|rest| header(rest, b'$')) else { break };
            let begin = at + head;
            at = begin.saturating_add(bytes).saturating_add(2);
            if begin <= wire.len() {
                let end = begin.saturating_add(bytes).min(wire.len());
                words.args.push(Argument { held: &wire[begin..end], bytes });
            }
        }
        words.bytes = at;
        Some(words)
    }

    /// The `index`-th request of those in `wire`.
    pub(super) fn nth(wire: &'a [u8], index: u64) -> Option<Self> {
        Self::read(skip(wire, index)?)
    }

    /// The arguments that are here, the name first.
    pub(super) fn args(&self) -> &[Argument<'a>] {
        &self.args
    }

    /// The command that it is.
    pub(super) fn command(&self) -> Option<&'static Command> {
        match redis::resolve(self.arg(0)?, self.arg(1)) {
            Resolved::Known(command) if redis::check_arity(command, self.declared) => Some(command),
            _ => None,
        }
    }

    /// Its keys, `most` at most; `None` if they cannot all be determined.
    pub(super) fn keys(&self, command: &Command, most: usize) -> Option<Vec<&'a [u8]>> {
        let mut keys = redis::Keys::new();
        redis::keys(command, self, &mut keys).ok()?;
        let held = |index: usize| self.args.get(index).filter(|arg| arg.held.len() == arg.bytes).map(|arg| arg.held);
        Some(keys.iter().take(most).filter_map(|key| held(key.index)).collect())
    }

    /// The key, if it is a command with one and only one.
    pub(super) fn single_key(&self, command: &Command) -> Option<&'a [u8]> {
        match self.keys(command, 2)?[..] {
            [key] => Some(key),
            _ => None,
        }
    }
}

impl Args for RequestArguments<'_> {
    fn argc(&self) -> usize {
        self.declared
    }

    fn arg(&self, index: usize) -> Option<&[u8]> {
        self.args.get(index).filter(|arg| arg.held.len() == arg.bytes).map(|arg| arg.held)
    }
}

/// The bytes after the first `count` requests.
pub(super) fn skip(mut wire: &[u8], count: u64) -> Option<&[u8]> {
    for _ in 0..count {
        wire = wire.get(length(wire)?..)?;
    }
    Some(wire)
}

/// Bytes of the request at the front, if its header is here.
fn length(wire: &[u8]) -> Option<usize> {
    let (declared, mut at) = header(wire, b'*')?;
    for _ in 0..declared {
        let (bytes, head) = header(wire.get(at..)?, b'$')?;
        at = at.checked_add(head)?.checked_add(bytes)?.checked_add(2)?;
    }
    Some(at)
}

/// The number behind `mark`, and the bytes up to the end of its line.
fn header(wire: &[u8], mark: u8) -> Option<(usize, usize)> {
    let (first, digits) = wire.split_first()?;
    if *first != mark {
        return None;
    }
    let mut number = 0usize;
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = number.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?,
            // The line is CR LF: the parser of the session saw to it.
            b'\r' if at > 0 => return Some((number, at + 3)),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use weir_resp::encode;

    use super::*;

    fn wire(commands: &[&str]) -> Vec<u8> {
        let mut wire = Vec::new();
        for line in commands {
            encode::command(&mut wire, line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
        wire
    }

    fn texts(words: &RequestArguments<'_>) -> Vec<String> {
        words.args().iter().map(|arg| String::from_utf8_lossy(arg.held).into_owned()).collect()
    }

    #[test]
    fn each_request_of_a_batch_is_found() {
        let wire = wire(&["GET a", "SET key value EX 10", "MGET a b c"]);
        let nth = |index| RequestArguments::nth(&wire, index).expect("it is there");
        assert_eq!(texts(&nth(0)), ["GET", "a"]);
        assert_eq!(texts(&nth(1)), ["SET", "key", "value", "EX", "10"]);
        let words = nth(2);
        let command = words.command().expect("known");
        assert_eq!(words.keys(command, 8), Some(vec![&b"a"[..], b"b", b"c"]));
        assert_eq!(words.single_key(command), None);
        assert!(RequestArguments::nth(&wire, 3).is_none());
    }

    #[test]
    fn a_request_cut_anywhere_gives_its_complete_arguments() {
        let whole = wire(&["SET key some-value EX 10"]);
        for cut in 0..whole.len() {
            let Some(words) = RequestArguments::read(&whole[..cut]) else { continue };
            assert_eq!(words.argc(), 5, "cut at {cut}");
            for arg in words.args() {
                assert!(arg.held.len() <= arg.bytes);
            }
            if let Some(command) = words.command()
                && let Some(key) = words.single_key(command)
            {
                assert_eq!(key, b"key");
            }
        }
        let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\nabc";
        let words = RequestArguments::read(head).expect("the head is there");
        assert_eq!(words.args()[2], Argument { held: b"abc", bytes: 1_000_000 });
        assert!(words.bytes > 1_000_000);
        assert_eq!(words.single_key(words.command().expect("known")), Some(&b"k"[..]));
    }

    #[test]
    fn invalid_requests_are_none() {
        for wire in [&b""[..], b"*", b"*x\r\n", b"GET a\r\n", b"*99999999999999999999999\r\n", b"$3\r\nGET\r\n"] {
            assert!(RequestArguments::read(wire).is_none(), "{wire:?}");
        }
    }
}
