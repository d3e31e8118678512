//! How a session in front of one server must treat each command. Hand-written; every group says why.
//!
//! The server's own flags decide first; the lists below hold what flags cannot say. A command that a regenerated table
//! brings and no list names falls to the careful side: administrative, blocking or connection-bound, and only else
//! shared. `tests/it/classes.rs` checks the lists against the flags.

use super::command::{Access, Categories, Flags};

/// Treatment of a command by a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Stateless: may ride a shared pipelined lane.
    Shared,
    /// May hold its connection until data or a timeout arrives: own connection, no operation timeout. XREAD and
    /// XREADGROUP carry this class but block only with BLOCK: ask [`treatment`](super::treatment).
    Blocking,
    /// Stateless, but must not queue behind other commands: own connection for one reply. SCRIPT KILL on the lane that
    /// waits for the script would wait with it.
    Exclusive,
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    Subscribe,
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE.
    Unsubscribe,
    /// WATCH: pins.
    Watch,
    /// UNWATCH.
    Unwatch,
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// Answered by the gateway itself.
    Local(LocalCommand),
    /// MONITOR: pins, then streams for ever.
    Monitor,
    /// Changes state bound to the upstream connection that the gateway does not emulate: pins until RESET or the end.
    ConnectionState,
    /// A server talks to a server (SYNC, PSYNC, REPLCONF): refused, admin or not.
    Replication,
    /// Leaves the rule of one reply per command (SCRIPT DEBUG opens a debugger): refused, admin or not.
    Refused,
    /// Refused unless the listener allows administrative commands; then treated as [`Class::Shared`].
    Admin,
    /// CLUSTER subcommands that only read; one server answers them like a [`Class::Shared`] command.
    Cluster,
    /// INFO: as [`Class::Shared`], unless it names the gateway's own section.
    Info,
    /// `POST` and `Host:`: an HTTP request on the wrong port. Redis closes without a reply.
    CrossProtocol,
}

/// Commands that the gateway answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalCommand {
    /// PING
    Ping,
    /// ECHO
    Echo,
    /// QUIT
    Quit,
    /// RESET
    Reset,
    /// HELLO
    Hello,
    /// AUTH
    Auth,
    /// SELECT
    Select,
    /// READONLY
    Readonly,
    /// READWRITE
    Readwrite,
    /// ASKING
    Asking,
    /// ACL WHOAMI: the client's user at the listener, not the gateway's own at the upstream.
    AclWhoami,
    /// CLIENT and its subcommands
    Client(ClientCommand),
}

/// CLIENT subcommands: they speak of the client's connection, which is the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientCommand {
    /// CLIENT alone (an arity error), or a subcommand that a newer table brings and the gateway does not know.
    Container,
    /// CLIENT ID
    Id,
    /// CLIENT GETNAME
    GetName,
    /// CLIENT SETNAME
    SetName,
    /// CLIENT SETINFO
    SetInfo,
    /// CLIENT INFO
    Info,
    /// CLIENT LIST
    List,
    /// CLIENT HELP
    Help,
    /// CLIENT NO-TOUCH
    NoTouch,
    /// CLIENT NO-EVICT
    NoEvict,
    /// CLIENT REPLY
    Reply,
    /// CLIENT KILL
    Kill,
    /// CLIENT PAUSE
    Pause,
    /// CLIENT UNPAUSE
    Unpause,
    /// CLIENT UNBLOCK
    Unblock,
    /// CLIENT TRACKING
    Tracking,
    /// CLIENT TRACKINGINFO
    TrackingInfo,
    /// CLIENT CACHING
    Caching,
    /// CLIENT GETREDIR
    GetRedir,
    /// CLIENT CAPA (Valkey)
    Capa,
    /// CLIENT IMPORT-SOURCE (Valkey)
    ImportSource,
}

impl ClientCommand {
    /// Acts on other clients' connections: needs the listener's permission for administrative commands.
    pub const fn is_admin(self) -> bool {
        matches!(self, Self::Kill | Self::Pause | Self::Unpause | Self::Unblock)
    }
}

/// Class of a command by name (lower case, `container|sub`), flags and ACL categories.
pub(super) const fn classify(name: &str, flags: Flags, categories: Categories) -> Class {
    if let Some(class) = session_class(name.as_bytes()) {
        return class;
    }
    if is_administrative(name.as_bytes()) {
        Class::Admin
    } else if is_harmless_read(name.as_bytes()) {
        Class::Shared
    } else if flags.contains(Flags::ADMIN) {
        Class::Admin
    } else if flags.contains(Flags::BLOCKING) {
        Class::Blocking
    } else if is_stateless_although_flagged(name.as_bytes()) {
        Class::Shared
    } else if flags.intersects(Flags::NO_MULTI.union(Flags::PUBSUB)) || bound_to_connection(categories) {
        Class::ConnectionState
    } else {
        Class::Shared
    }
}

/// Effect of the command on data and server. Its main use: a command with [`Access::Read`] may be retried.
pub(super) const fn access(name: &str, flags: Flags, class: Class) -> Access {
    if matches!(class, Class::Admin | Class::Replication | Class::Refused | Class::Monitor) {
        Access::Admin
    } else if flags.contains(Flags::WRITE) || may_write(name.as_bytes()) {
        Access::Write
    } else if flags.contains(Flags::READONLY)
        || matches!(class, Class::Cluster)
        || is_harmless_read(name.as_bytes())
        || is_help(name.as_bytes())
    {
        Access::Read
    } else {
        Access::Other
    }
}

const fn bound_to_connection(categories: Categories) -> bool {
    categories.intersects(Categories::CONNECTION.union(Categories::TRANSACTION))
}

/// Commands that the session's state machine knows by name.
const fn session_class(name: &[u8]) -> Option<Class> {
    use LocalCommand as L;
    Some(match name {
        b"subscribe" | b"psubscribe" | b"ssubscribe" => Class::Subscribe,
        b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => Class::Unsubscribe,
        b"watch" => Class::Watch,
        b"unwatch" => Class::Unwatch,
        b"multi" => Class::Multi,
        b"exec" => Class::Exec,
        b"discard" => Class::Discard,
        b"monitor" => Class::Monitor,
        b"ping" => Class::Local(L::Ping),
        b"echo" => Class::Local(L::Echo),
        b"quit" => Class::Local(L::Quit),
        b"reset" => Class::Local(L::Reset),
        b"hello" => Class::Local(L::Hello),
        b"auth" => Class::Local(L::Auth),
        b"select" => Class::Local(L::Select),
        b"readonly" => Class::Local(L::Readonly),
        b"readwrite" => Class::Local(L::Readwrite),
        b"asking" => Class::Local(L::Asking),
        b"acl|whoami" => Class::Local(L::AclWhoami),
        b"client" | [b'c', b'l', b'i', b'e', b'n', b't', b'|', ..] => Class::Local(L::Client(client_command(name))),
        // WAIT and WAITAOF count the writes of their own connection; Redis 7.0 does not flag them as blocking.
        b"wait" | b"waitaof" => Class::Blocking,
        // Answered while a script runs: that is their purpose.
        b"script|kill" | b"function|kill" | b"function|stats" => Class::Exclusive,
        // RESTORE-ASKING and CLUSTER SYNCSLOTS are how one node hands keys to another.
        b"sync" | b"psync" | b"replconf" | b"restore-asking" | b"cluster|syncslots" => Class::Replication,
        b"script|debug" => Class::Refused,
        b"info" => Class::Info,
        b"post" | b"host:" => Class::CrossProtocol,
        // REPLICAS, SLAVES, COUNT-FAILURE-REPORTS and GETSLOTMIGRATIONS are flagged admin but only read.
        b"cluster|countkeysinslot"
        | b"cluster|getkeysinslot"
        | b"cluster|help"
        | b"cluster|info"
        | b"cluster|keyslot"
        | b"cluster|links"
        | b"cluster|myid"
        | b"cluster|myshardid"
        | b"cluster|nodes"
        | b"cluster|shards"
        | b"cluster|slots"
        | b"cluster|slot-stats"
        | b"cluster|replicas"
        | b"cluster|slaves"
        | b"cluster|count-failure-reports"
        | b"cluster|getslotmigrations" => Class::Cluster,
        _ => return None,
    })
}

const fn client_command(name: &[u8]) -> ClientCommand {
    match name {
        b"client|id" => ClientCommand::Id,
        b"client|getname" => ClientCommand::GetName,
        b"client|setname" => ClientCommand::SetName,
        b"client|setinfo" => ClientCommand::SetInfo,
        b"client|info" => ClientCommand::Info,
        b"client|list" => ClientCommand::List,
        b"client|help" => ClientCommand::Help,
        b"client|no-touch" => ClientCommand::NoTouch,
        b"client|no-evict" => ClientCommand::NoEvict,
        b"client|reply" => ClientCommand::Reply,
        b"client|kill" => ClientCommand::Kill,
        b"client|pause" => ClientCommand::Pause,
        b"client|unpause" => ClientCommand::Unpause,
        b"client|unblock" => ClientCommand::Unblock,
        b"client|tracking" => ClientCommand::Tracking,
        b"client|trackinginfo" => ClientCommand::TrackingInfo,
        b"client|caching" => ClientCommand::Caching,
        b"client|getredir" => ClientCommand::GetRedir,
        b"client|capa" => ClientCommand::Capa,
        b"client|import-source" => ClientCommand::ImportSource,
        _ => ClientCommand::Container,
    }
}

/// Administrative although the server does not flag them so.
const fn is_administrative(name: &[u8]) -> bool {
    matches!(
        name,
        // MIGRATE makes the server connect to any host and move keys there; SWAPDB exchanges every client's database.
        b"migrate" | b"swapdb"
        // Drops every key of a slot, in one call.
        | b"cluster|flushslot"
        // Returns memory of the whole allocator at once: a pause for every client.
        | b"memory|purge"
        // Containers as such: what a server newer than the table may hide behind them is unknown.
        | b"acl" | b"cluster" | b"commandlog" | b"config" | b"function" | b"latency" | b"memory" | b"module"
        | b"script" | b"slowlog"
    )
}

/// Only reads, whatever the flags say. Tools and clients send these at connect or every few seconds, and none of them
/// shows credentials or changes the server. CONFIG GET is not here: `CONFIG GET *` shows `requirepass`, and the
/// upstream's password is the gateway's secret; [`treatment`](super::treatment) passes single harmless parameters.
const fn is_harmless_read(name: &[u8]) -> bool {
    matches!(
        name,
        // INFO: ioredis' ready check, exporters. ROLE: clients that came by Sentinel. TIME, LASTSAVE: monitoring.
        b"info" | b"role" | b"time" | b"lastsave"
        // COMMAND is forwarded: redis-cli hints and cluster clients want what this very server knows.
        | b"command" | b"command|count" | b"command|docs" | b"command|getkeys" | b"command|getkeysandflags"
        | b"command|info" | b"command|list" | b"command|help"
        // redis_exporter and RedisInsight. SLOWLOG GET shows keys and values, which this client may read anyway, and
        // never an AUTH. The RESET forms stay administrative: they erase what another operator looks for.
        | b"slowlog|get" | b"slowlog|len" | b"commandlog|get" | b"commandlog|len"
        | b"latency|latest" | b"latency|history" | b"latency|histogram" | b"latency|graph" | b"latency|doctor"
        | b"memory|stats" | b"memory|doctor" | b"memory|malloc-stats"
        // MODULE LIST: RedisInsight, Redis OM and search clients look for modules.
        | b"module|list"
        // ACL CAT is static. The other readers of ACL show password hashes and stay administrative.
        | b"acl|cat" | b"acl|genpass"
        | b"pubsub|channels" | b"pubsub|numsub" | b"pubsub|numpat" | b"pubsub|shardchannels"
        | b"pubsub|shardnumsub"
        | b"script|exists" | b"script|show" | b"function|list" | b"function|dump"
    )
}

/// Flagged pub/sub but without state: they send a message or are containers.
const fn is_stateless_although_flagged(name: &[u8]) -> bool {
    matches!(name, b"publish" | b"spublish")
}

/// Not flagged as a write, yet able to change data: what a script does is unknown.
const fn may_write(name: &[u8]) -> bool {
    matches!(name, b"eval" | b"evalsha" | b"fcall" | b"script|load" | b"script|flush")
}

/// `container|help`.
const fn is_help(name: &[u8]) -> bool {
    matches!(name, [.., b'|', b'h', b'e', b'l', b'p'])
}
