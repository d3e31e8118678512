//! Redis' error texts (7.0.15, `server.c` and the command files), without the leading `-`.

use std::borrow::Cow;

pub const NOT_INTEGER: Refusal = Refusal::new("ERR value is not an integer or out of range");
pub const OVERFLOW: Refusal = Refusal::new("ERR increment or decrement would overflow");
pub const DECREMENT_OVERFLOW: Refusal = Refusal::new("ERR decrement would overflow");
pub const OUT_OF_RANGE_POSITIVE: Refusal = Refusal::new("ERR value is out of range, must be positive");
pub const SYNTAX: Refusal = Refusal::new("ERR syntax error");
pub const WRONG_TYPE: Refusal = Refusal::new("WRONGTYPE Operation against a key holding the wrong kind of value");
pub const STRING_TOO_LONG: Refusal = Refusal::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub const OUT_OF_MEMORY: Refusal = Refusal::new("OOM command not allowed when used memory > 'maxmemory'.");
pub const INVALID_CURSOR: Refusal = Refusal::new("ERR invalid cursor");
pub const NO_AUTH: Refusal = Refusal::new("NOAUTH Authentication required.");
pub const HELLO_NO_AUTH: Refusal = Refusal::new(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option \
     can be used to authenticate the client and select the RESP protocol version at the same time",
);
pub const NO_PASSWORD: Refusal = Refusal::new(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration \
     is correct?",
);
pub const WRONG_PASSWORD: Refusal = Refusal::new("WRONGPASS invalid username-password pair or user is disabled.");
pub const NO_PROTO: Refusal = Refusal::new("NOPROTO unsupported protocol version");
pub const PROTO_NOT_INTEGER: Refusal = Refusal::new("ERR Protocol version is not an integer or out of range");
pub const CLIENT_NAME: Refusal =
    Refusal::new("ERR Client names cannot contain spaces, newlines or special characters.");
pub const DB_RANGE: Refusal = Refusal::new("ERR DB index is out of range");
pub const NESTED_MULTI: Refusal = Refusal::new("ERR MULTI calls can not be nested");
pub const WATCH_IN_MULTI: Refusal = Refusal::new("ERR WATCH inside MULTI is not allowed");
pub const EXEC_ALONE: Refusal = Refusal::new("ERR EXEC without MULTI");
pub const DISCARD_ALONE: Refusal = Refusal::new("ERR DISCARD without MULTI");
pub const EXEC_ABORT: Refusal = Refusal::new("EXECABORT Transaction discarded because of previous errors.");
pub const EXPIRE_NX: Refusal = Refusal::new("ERR NX and XX, GT or LT options at the same time are not compatible");
pub const EXPIRE_GT_LT: Refusal = Refusal::new("ERR GT and LT options at the same time are not compatible");
pub const CLIENTS_MAX: Refusal = Refusal::new("ERR max number of clients reached");
pub const SCRIPTED: Refusal = Refusal::new("ERR weir: scripted error");
pub const MESSAGE_TOO_LARGE: Refusal = Refusal::new("ERR weir: origin message limit exceeded (message_bytes_max)");

/// Longest piece of user text in an error.
const QUOTED_BYTES_MAX: usize = 128;

/// Why a command was not carried out: the text of its error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Cow<'static, [u8]>);

impl Refusal {
    const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    /// The text, its code first.
    pub fn text(&self) -> &[u8] {
        &self.0
    }
}

/// A text that names something of this command.
pub fn refusal(text: String) -> Refusal {
    Refusal(Cow::Owned(text.into_bytes()))
}

/// `name` is the full name, `client|reply` for a subcommand.
pub fn arity(name: &str) -> Refusal {
    refusal(format!("ERR wrong number of arguments for '{name}' command"))
}

pub fn invalid_expire(name: &str) -> Refusal {
    refusal(format!("ERR invalid expire time in '{name}' command"))
}

pub fn subscriber_only(name: &str) -> Refusal {
    refusal(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    ))
}

/// Redis collects arguments until 128 bytes of them are quoted.
pub fn unknown_command(args: &[&[u8]]) -> Refusal {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(quoted(args[0], QUOTED_BYTES_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in &args[1..] {
        let used = text.len() - start;
        if used >= QUOTED_BYTES_MAX {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(quoted(arg, QUOTED_BYTES_MAX - used));
        text.extend_from_slice(b"' ");
    }
    Refusal(Cow::Owned(text))
}

/// `container` in upper case.
pub fn unknown_subcommand(container: &str, name: &[u8]) -> Refusal {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(quoted(name, QUOTED_BYTES_MAX));
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(container.as_bytes());
    text.extend_from_slice(b" HELP.");
    Refusal(Cow::Owned(text))
}

pub fn hello_option(option: &[u8]) -> Refusal {
    let mut text = b"ERR Syntax error in HELLO option '".to_vec();
    text.extend_from_slice(quoted(option, QUOTED_BYTES_MAX));
    text.push(b'\'');
    Refusal(Cow::Owned(text))
}

/// Options of `EXPIRE`.
pub fn unsupported_option(option: &[u8]) -> Refusal {
    let mut text = b"ERR Unsupported option ".to_vec();
    text.extend_from_slice(quoted(option, QUOTED_BYTES_MAX));
    Refusal(Cow::Owned(text))
}

/// Options of `CLIENT SETINFO`.
pub fn unrecognized_option(option: &[u8]) -> Refusal {
    let mut text = b"ERR Unrecognized option '".to_vec();
    text.extend_from_slice(quoted(option, QUOTED_BYTES_MAX));
    text.push(b'\'');
    Refusal(Cow::Owned(text))
}

/// As C's `%.*s` prints it: at most `bytes_max`, and nothing from a NUL on.
fn quoted(text: &[u8], bytes_max: usize) -> &[u8] {
    let text = &text[..text.len().min(bytes_max)];
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_quoted_as_redis_quotes_them() {
        let text = |args: &[&[u8]]| String::from_utf8(unknown_command(args).text().to_vec()).expect("ASCII");
        assert_eq!(text(&[b"foo", b"a", b"b"]), "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
        assert_eq!(text(&[b"foo"]), "ERR unknown command 'foo', with args beginning with: ");
        let long = [b'x'; 300];
        assert_eq!(
            text(&[&long, &long, b"never"]),
            format!("ERR unknown command '{0}', with args beginning with: '{0}' ", "x".repeat(128))
        );
    }
}
