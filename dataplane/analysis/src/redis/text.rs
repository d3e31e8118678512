//! Error texts exactly as a server writes them, so that clients that match on them see no gateway. Appended without the
//! leading `-` and the CRLF. Source: Redis 7.0.15 and Valkey 9.1 on the wire (`tests/it/golden/errors.txt`).

use super::args::Args;
use super::class::Class;
use super::command::Command;
use super::keys::KeyError;

/// Bytes of a name, and of all arguments together, that an error repeats (`server.c`, `commandCheckExistence`).
const ECHO_BYTES_MAX: usize = 128;

/// `ERR unknown command 'foo', with args beginning with: 'a' 'b' `, trailing blank included. An argument that is not
/// held in memory ends the list.
pub fn unknown_command<A: Args + ?Sized>(out: &mut Vec<u8>, args: &A) {
    out.extend_from_slice(b"ERR unknown command '");
    echo(out, args.arg(0).unwrap_or_default(), ECHO_BYTES_MAX);
    out.extend_from_slice(b"', with args beginning with: ");
    let start = out.len();
    for index in 1..args.argc() {
        let written = out.len() - start;
        let Some(arg) = args.arg(index).filter(|_| written < ECHO_BYTES_MAX) else {
            break;
        };
        out.push(b'\'');
        echo(out, arg, ECHO_BYTES_MAX - written);
        out.extend_from_slice(b"' ");
    }
}

/// `ERR unknown subcommand 'nope'. Try CLIENT HELP.`
pub fn unknown_subcommand(out: &mut Vec<u8>, container: &Command, subcommand: &[u8]) {
    out.extend_from_slice(b"ERR unknown subcommand '");
    echo(out, subcommand, ECHO_BYTES_MAX);
    out.extend_from_slice(b"'. Try ");
    out.extend(container.name.bytes().map(|byte| byte.to_ascii_uppercase()));
    out.extend_from_slice(b" HELP.");
}

/// `ERR wrong number of arguments for 'client|reply' command`; EXEC alone has another first word, because its refusal
/// ends the transaction.
pub fn wrong_arity(out: &mut Vec<u8>, command: &Command) {
    if command.class == Class::Exec {
        out.extend_from_slice(b"EXECABORT Transaction discarded because of: ");
    } else {
        out.extend_from_slice(b"ERR ");
    }
    out.extend_from_slice(b"wrong number of arguments for '");
    out.extend_from_slice(command.name.as_bytes());
    out.extend_from_slice(b"' command");
}

/// The error of the server for keys that [`keys`](super::keys()) could not find (`tests/it/golden/key_counts.txt`).
/// [`KeyError::NotBuffered`] is the gateway's own refusal and says so.
pub fn invalid_keys(out: &mut Vec<u8>, command: &Command, error: KeyError) {
    const NOT_AN_INTEGER: &str = "value is not an integer or out of range";
    const TOO_MANY: &str = "Number of keys can't be greater than number of args";
    let name = command.name;
    let is_script = name.starts_with("eval") || name.starts_with("fcall");
    let is_pop_or_card = name.ends_with("mpop") || name == "sintercard";
    let text = match error {
        KeyError::NotBuffered => "weir: an argument that decides which keys are used is too long",
        KeyError::Syntax => "syntax error",
        KeyError::UnbalancedStreams => {
            let id = if name == "xreadgroup" { ">" } else { "$" };
            let text =
                format!("Unbalanced '{name}' list of streams: for each stream key an ID or '{id}' must be specified.");
            return append_error(out, &text);
        }
        KeyError::CountBeyondArguments if is_script || name == "sintercard" => TOO_MANY,
        KeyError::CountBeyondArguments => "syntax error",
        _ if is_pop_or_card => "numkeys should be greater than 0",
        _ if name == "msetex" => "invalid numkeys value or out of range",
        KeyError::CountNotInteger if name.starts_with("fcall") => "Bad number of keys provided",
        KeyError::CountNotInteger => NOT_AN_INTEGER,
        KeyError::CountNegative if is_script => "Number of keys can't be negative",
        KeyError::CountNegative | KeyError::CountZero => {
            return append_error(out, &format!("at least 1 input key is needed for '{name}' command"));
        }
    };
    append_error(out, text);
}

fn append_error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"ERR ");
    out.extend_from_slice(text.as_bytes());
}

/// User text as C's `%.*s` prints it: up to `bytes_max` bytes or the first NUL; CR and LF become blanks.
fn echo(out: &mut Vec<u8>, text: &[u8], bytes_max: usize) {
    let text = &text[..text.len().min(bytes_max)];
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
}
