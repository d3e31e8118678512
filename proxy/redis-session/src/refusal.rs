//! Every way to say no, in Redis's own words where it has them (Redis 7.0.15), else `ERR weir: …`.

use weir_base::exchange::{LossCause, Refusal};
use weir_policy::redis::{DeniedPart, NoPermission};
use weir_resp::encode;

pub(crate) const NO_AUTH: &str = "NOAUTH Authentication required.";
pub(crate) const NO_AUTH_EXEC: &str = "EXECABORT Transaction discarded because of: NOAUTH Authentication required.";
pub(crate) const NO_AUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
pub(crate) const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const AUTH_NOT_CONFIGURED: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
pub(crate) const NO_PROTO: &str = "NOPROTO unsupported protocol version";
pub(crate) const PROTO_NOT_INTEGER: &str = "ERR Protocol version is not an integer or out of range";
pub(crate) const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
pub(crate) const SYNTAX: &str = "ERR syntax error";
/// A number that is none.
pub const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
/// A database that the listener does not have.
pub const DB_RANGE: &str = "ERR DB index is out of range";
pub(crate) const SELECT_IN_CLUSTER: &str = "ERR SELECT is not allowed in cluster mode";
/// CLUSTER in front of no cluster.
pub const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
pub(crate) const MULTI_NESTED: &str = "ERR MULTI calls can not be nested";
pub(crate) const WATCH_IN_MULTI: &str = "ERR WATCH inside MULTI is not allowed";
pub(crate) const EXEC_ALONE: &str = "ERR EXEC without MULTI";
pub(crate) const DISCARD_ALONE: &str = "ERR DISCARD without MULTI";
/// EXEC behind a command that was refused.
pub const EXEC_ABORT: &str = "EXECABORT Transaction discarded because of previous errors.";
/// Keys of several slots in one command.
pub const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
pub(crate) const NOT_IN_MULTI: &str = "ERR Command not allowed inside a transaction";
/// MONITOR between MULTI and EXEC.
pub const MONITOR_IN_MULTI: &str = "ERR MONITOR isn't allowed for DENY BLOCKING client";

pub(crate) const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";
pub(crate) const NO_CHANNEL: &str =
    "NOPERM this user has no permissions to access one of the channels used as arguments";
pub(crate) const NO_SORT_BY: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
pub(crate) const NO_SORT_GET: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";
pub(crate) const GENPASS_RANGE: &str =
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";

/// A script of a user with restrictions: at the server it has the rights of the gateway, whatever the user's are.
pub(crate) const NO_SCRIPT: &str =
    "NOPERM weir: this user has no permissions to run scripts: the gateway cannot judge what they do";
/// ACL SETUSER and the like.
pub(crate) const USERS_IN_FILE: &str =
    "ERR weir: users are kept in the configuration of the listener; change them there and reload";
/// The user at the server cannot change under a lane of the client's own.
pub(crate) const LOGIN_PINNED: &str =
    "ERR weir: AUTH cannot change the user at the server while the session holds server state; RESET first";
/// A user with as many connections as it may have.
pub(crate) const USER_CONNECTIONS: &str = "ERR weir: too many connections of this user";
/// A user with as many requests per second as it may send.
pub(crate) const USER_RATE: &str = "ERR weir: too many requests per second of this user";
/// The label value of [`USER_RATE`].
pub(crate) const USER_RATE_REASON: &str = "user_rate";
/// A transaction longer than it may be.
pub const TRANSACTION_FULL: &str = "ERR weir: transaction too large";
/// DBSIZE and the like between MULTI and EXEC.
pub(crate) const ALL_SHARDS_IN_MULTI: &str = "ERR weir: a command for all shards cannot be part of a transaction";
/// SORT with BY or GET, in the manner of a cluster.
pub(crate) const FOREIGN_KEYS: &str = "ERR weir: SORT with BY or GET reads keys of other shards";
/// In place of a redirection that the gateway could not follow: the client must not go there by itself.
pub(crate) const NOT_FOLLOWED: &str = "ERR weir: the key is being moved to another node, try again";
/// The label value of a command whose keys cannot be read, where they decide which shard it goes to.
pub(crate) const UNREADABLE_KEYS_REASON: &str = "unreadable_keys";
/// The client's own lane leads to another shard than the command.
pub const PINNED_ELSEWHERE: &str = "ERR weir: the session holds state on another shard; RESET first";
/// MONITOR and commands this build does not know, where there are several shards.
pub(crate) const NOT_OVER_SHARDS: &str = "ERR weir: command is not supported over several shards";
/// As many exchanges as the core may have.
pub const IN_FLIGHT: &str = "ERR weir: too many requests in flight";
/// As many requests per second as the listener is known to carry.
pub(crate) const KNEE: &str = "ERR weir: too many requests per second";
/// The label value of [`KNEE`].
pub(crate) const KNEE_REASON: &str = "knee";
/// As many bytes buffered as the process may hold.
pub const BUFFERED: &str = "ERR weir: buffered bytes limit reached";
/// Sentinel, or the servers themselves, have not named a primary yet.
pub(crate) const NO_PRIMARY: &str = "ERR weir: no primary is known";
/// More blocked clients than the listener may have.
pub(crate) const BLOCKED_CLIENTS: &str = "ERR weir: too many blocked clients";
/// The protocol cannot change under a lane of the client's own.
pub(crate) const HELLO_PINNED: &str =
    "ERR weir: HELLO cannot change the protocol while the session holds server state; RESET first";
/// A cursor of SCAN that names a shard which is gone.
pub(crate) const SCAN_OF_LOST_SHARD: &str = "ERR weir: invalid cursor: its shard is gone, start the scan again";
/// More subscriptions than one client may have.
pub(crate) const SUBSCRIPTIONS: &str = "ERR weir: too many subscriptions";
/// More subscriptions than the clients of one worker may have.
pub(crate) const SUBSCRIPTIONS_OF_WORKER: &str = "ERR weir: too many subscriptions of all clients";
/// The client's lane, and the state on it, is gone.
pub const STATE_LOST: &str = "ERR weir: upstream connection lost, session state is gone";

/// A command that the client's user may not run.
pub(crate) fn no_command(name: &str) -> String {
    format!("NOPERM this user has no permissions to run the '{name}' command")
}

/// A queued command that the client's user may not run any more.
pub(crate) fn rules_changed(no: &NoPermission) -> String {
    let reason = match no {
        NoPermission::Denied(DeniedPart::Command) => "no permission to execute the command or subcommand",
        NoPermission::Denied(DeniedPart::Key(_)) => "no permission to touch the specified keys",
        NoPermission::Denied(DeniedPart::Channel(_)) => "no permission to access one of the channels used as arguments",
        _ => "no permission",
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}"
    )
}

/// `text` as an error reply.
pub fn line(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    let mut line = Vec::with_capacity(text.len() + 3);
    encode::error(&mut line, text);
    line
}

/// The error line for a request that the upstream never got.
pub fn refused(refusal: Refusal) -> String {
    format!("ERR weir: {}", refusal.text())
}

/// The error line for a request whose reply is lost.
pub fn lost(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Timeout => "ERR weir: upstream timeout",
        LossCause::Violation => "ERR weir: upstream broke the protocol",
        LossCause::Closed | LossCause::Retired => "ERR weir: upstream connection lost",
    }
}

/// An administrative command on a listener that does not allow them.
pub(crate) fn admin(name: &str) -> String {
    let name = name.replace('|', " ");
    format!("ERR weir: administrative command '{name}' is not allowed on this listener")
}

/// A command that a gateway cannot carry.
pub(crate) fn unsupported(name: &str) -> String {
    let name = name.replace('|', " ");
    format!("ERR weir: command '{name}' is not supported through a gateway")
}

/// A command with unknown keys, where the keys decide which shard it goes to.
pub(crate) fn unknown_keys(name: &str) -> String {
    let name = name.replace('|', " ");
    format!("ERR weir: the keys of '{name}' are not known, so it has no shard")
}

/// A command that a RESP2 subscriber may not use.
pub(crate) fn subscribed(name: &str) -> String {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )
}
