//! One row of the command table: what a server itself says about a command (`COMMAND INFO`), plus how a session
//! must treat it (`class.rs`).

use super::class::{self, Class};

bitflags::bitflags! {
    /// Command flags, with the names that `COMMAND INFO` uses (Redis 7.0 `server.c`, `addReplyFlagsForCommand`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Flags: u32 {
        /// May modify data.
        const WRITE = 1 << 0;
        /// Never modifies data.
        const READONLY = 1 << 1;
        /// Refused when the server is out of memory.
        const DENYOOM = 1 << 2;
        /// Provided by a module.
        const MODULE = 1 << 3;
        /// Administrative.
        const ADMIN = 1 << 4;
        /// Pub/sub.
        const PUBSUB = 1 << 5;
        /// Not callable from scripts.
        const NOSCRIPT = 1 << 6;
        /// May block its connection.
        const BLOCKING = 1 << 7;
        /// Allowed while the server loads its data set.
        const LOADING = 1 << 8;
        /// Allowed on a stale replica.
        const STALE = 1 << 9;
        /// Not shown to MONITOR.
        const SKIP_MONITOR = 1 << 10;
        /// Not written to the slow log.
        const SKIP_SLOWLOG = 1 << 11;
        /// Accepted for an importing slot.
        const ASKING = 1 << 12;
        /// O(1) or O(log N).
        const FAST = 1 << 13;
        /// Allowed before authentication.
        const NO_AUTH = 1 << 14;
        /// Its key arguments may be absent (EVAL with numkeys 0).
        const NO_MANDATORY_KEYS = 1 << 15;
        /// Only a sentinel answers it.
        const SENTINEL = 1 << 16;
        /// Only a sentinel answers it (name used by 7.2 and later).
        const ONLY_SENTINEL = 1 << 17;
        /// Refused while loading asynchronously.
        const NO_ASYNC_LOADING = 1 << 18;
        /// Refused between MULTI and EXEC.
        const NO_MULTI = 1 << 19;
        /// First/last/step do not describe the keys; the key specs do.
        const MOVABLEKEYS = 1 << 20;
        /// Allowed while a script or a module is busy.
        const ALLOW_BUSY = 1 << 21;
        /// Reply depends on chance or time (Redis 6.2).
        const RANDOM = 1 << 22;
        /// Reply sorted for scripts (Redis 6.2).
        const SORT_FOR_SCRIPT = 1 << 23;
        /// Protected by `enable-*-command` settings.
        const PROTECTED = 1 << 24;
        /// May touch keys it does not name (SCAN, RANDOMKEY).
        const TOUCHES_ARBITRARY_KEYS = 1 << 25;
        /// Not written to the command log (Valkey's word for SKIP_SLOWLOG).
        const SKIP_COMMANDLOG = 1 << 27;
        /// May replicate although it is not a write (PUBLISH, EVAL).
        const MAY_REPLICATE = 1 << 26;
    }
}

bitflags::bitflags! {
    /// ACL categories (`@read`, `@admin`, …), as `COMMAND INFO` names them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Categories: u32 {
        /// `@keyspace`
        const KEYSPACE = 1 << 0;
        /// `@read`
        const READ = 1 << 1;
        /// `@write`
        const WRITE = 1 << 2;
        /// `@set`
        const SET = 1 << 3;
        /// `@sortedset`
        const SORTEDSET = 1 << 4;
        /// `@list`
        const LIST = 1 << 5;
        /// `@hash`
        const HASH = 1 << 6;
        /// `@string`
        const STRING = 1 << 7;
        /// `@bitmap`
        const BITMAP = 1 << 8;
        /// `@hyperloglog`
        const HYPERLOGLOG = 1 << 9;
        /// `@geo`
        const GEO = 1 << 10;
        /// `@stream`
        const STREAM = 1 << 11;
        /// `@pubsub`
        const PUBSUB = 1 << 12;
        /// `@admin`
        const ADMIN = 1 << 13;
        /// `@fast`
        const FAST = 1 << 14;
        /// `@slow`
        const SLOW = 1 << 15;
        /// `@blocking`
        const BLOCKING = 1 << 16;
        /// `@dangerous`
        const DANGEROUS = 1 << 17;
        /// `@connection`
        const CONNECTION = 1 << 18;
        /// `@transaction`
        const TRANSACTION = 1 << 19;
        /// `@scripting`
        const SCRIPTING = 1 << 20;
    }
}

bitflags::bitflags! {
    /// The access of a command to the keys of one key spec (Redis 7.0 `server.h`, `CMD_KEY_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct KeyFlags: u16 {
        /// Read only.
        const RO = 1 << 0;
        /// Read and write.
        const RW = 1 << 1;
        /// Overwritten, old value unread.
        const OW = 1 << 2;
        /// Removed.
        const RM = 1 << 3;
        /// The value is returned to the client.
        const ACCESS = 1 << 4;
        /// The value is changed depending on the old one.
        const UPDATE = 1 << 5;
        /// Data is added.
        const INSERT = 1 << 6;
        /// Data is deleted.
        const DELETE = 1 << 7;
        /// Looks like a key, is none (a shard channel): counts for the slot, not for key ACLs.
        const NOT_KEY = 1 << 8;
        /// The spec does not find every key.
        const INCOMPLETE = 1 << 9;
        /// The flags depend on the arguments (`SET … GET`).
        const VARIABLE_FLAGS = 1 << 10;
    }
}

/// Position of a command in [`COMMANDS`](super::COMMANDS); changes when the table is regenerated, so it is never
/// written to disk or wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u16);

/// The effect of a command on the server, coarsely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Changes nothing: may be repeated after a lost reply.
    Read,
    /// May change data.
    Write,
    /// Changes or exposes the server itself.
    Admin,
    /// Neither: messages (PUBLISH), connection state, transactions.
    Other,
}

/// Where the search for keys of one spec starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginSearch {
    /// At this argument (0 is the command name).
    Index(i32),
    /// Behind a keyword, searched from argument `start`; a negative `start` counts from the end and searches backwards.
    Keyword {
        /// Upper-case keyword, compared without regard to case.
        word: &'static str,
        /// First argument looked at.
        start: i32,
    },
    /// Not expressible; `keys.rs` has a procedure for it.
    Unknown,
}

/// How keys are found from the start that [`BeginSearch`] gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindKeys {
    /// Consecutive arguments.
    Range {
        /// Last key relative to the first; negative counts from the last argument (-1).
        last: i32,
        /// Distance between keys.
        step: i32,
        /// With `last` = -1: use only 1/limit of the rest (2 for XREAD); 0 and 1 mean all.
        limit: i32,
    },
    /// An argument says how many keys follow.
    KeyNum {
        /// Where the count stands, relative to the start.
        number: i32,
        /// Where the first key stands, relative to the start.
        first: i32,
        /// Distance between keys.
        step: i32,
    },
    /// Not expressible; `keys.rs` has a procedure for it.
    Unknown,
}

/// To which of several shards a command goes. Source: the tip `request_policy` of `COMMAND` (Redis 7.0, "Command tips").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPolicy {
    /// The shard of its keys; any shard if it has none.
    Default,
    /// All nodes, replicas too.
    AllNodes,
    /// All shards.
    AllShards,
    /// The shards of its keys, each with its own keys.
    MultiShard,
    /// By a rule of its own (SCAN).
    Special,
}

/// The merging of the replies of several shards. Source: the tip `response_policy` of `COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponsePolicy {
    /// Elements in the order of the keys; without keys one array after the other.
    Default,
    /// The first that is no error.
    OneSucceeded,
    /// The first, if none is an error.
    AllSucceeded,
    /// 1 where all say 1, element by element.
    AggLogicalAnd,
    /// 1 where one says 1, element by element.
    AggLogicalOr,
    /// The least.
    AggMin,
    /// The greatest.
    AggMax,
    /// The sum.
    AggSum,
    /// By a rule of its own (INFO).
    Special,
}

/// One way to find keys of a command. Source: `COMMAND INFO`, element 9 (Redis 7.0 and later).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// Effect of the command on these keys.
    pub flags: KeyFlags,
    /// Where to start.
    pub begin: BeginSearch,
    /// How to go on.
    pub find: FindKeys,
}

impl KeySpec {
    /// One generated spec.
    pub(super) const fn new(flags: &[KeyFlags], begin: BeginSearch, find: FindKeys) -> Self {
        let (mut union, mut at) = (KeyFlags::empty(), 0);
        while at < flags.len() {
            union = union.union(flags[at]);
            at += 1;
        }
        Self { flags: union, begin, find }
    }
}

/// A command or subcommand known to at least one of the [`SERVERS`](super::SERVERS).
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Index in [`COMMANDS`](super::COMMANDS).
    pub id: CommandId,
    /// Lower case; a subcommand carries its container: `client|setname`.
    pub name: &'static str,
    /// Positive: exact number of arguments with the name; negative: at least `-arity`.
    pub arity: i16,
    /// Flags as the newest server reports them.
    pub flags: Flags,
    /// ACL categories as the newest server reports them.
    pub categories: Categories,
    /// Key specs; empty when the command takes no keys.
    pub keys: &'static [KeySpec],
    /// How a session in front of one server treats it.
    pub class: Class,
    /// Effect of the command on data and server.
    pub access: Access,
    /// Has subcommands.
    pub container: bool,
    /// Bit i: `SERVERS[i]` knows it.
    pub servers: u8,
    /// To which shards it goes.
    pub request_policy: RequestPolicy,
    /// The handling of their replies.
    pub response_policy: ResponsePolicy,
}

impl Command {
    /// One generated row; class and access are derived here, at compile time.
    pub(super) const fn row(
        name: &'static str,
        arity: i16,
        flags: &[Flags],
        categories: &[Categories],
        keys: &'static [KeySpec],
        container: bool,
        servers: u8,
    ) -> Self {
        let (mut flag_union, mut at) = (Flags::empty(), 0);
        while at < flags.len() {
            flag_union = flag_union.union(flags[at]);
            at += 1;
        }
        // Redis 7.0.15 and Valkey 9.1 do not report this flag yet.
        if matches!(name.as_bytes(), b"scan" | b"randomkey" | b"keys" | b"clusterscan") {
            flag_union = flag_union.union(Flags::TOUCHES_ARBITRARY_KEYS);
        }
        let (mut category_union, mut at) = (Categories::empty(), 0);
        while at < categories.len() {
            category_union = category_union.union(categories[at]);
            at += 1;
        }
        let class = class::classify(name, flag_union, category_union);
        Self {
            id: CommandId(0),
            name,
            arity,
            flags: flag_union,
            categories: category_union,
            keys,
            class,
            access: class::access(name, flag_union, class),
            container,
            servers,
            request_policy: RequestPolicy::Default,
            response_policy: ResponsePolicy::Default,
        }
    }

    /// The same with the tips of a generated row.
    pub(super) const fn over_shards(mut self, request: RequestPolicy, response: ResponsePolicy) -> Self {
        self.request_policy = request;
        self.response_policy = response;
        self
    }

    /// Name of the container: `client` for `client|setname`, the name itself otherwise.
    pub fn base_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(base, _)| base)
    }

    /// Name of the subcommand: `setname` for `client|setname`.
    pub fn subcommand_name(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(_, sub)| sub)
    }

    /// Labels of the servers whose table has it, oldest first: `redis-7.0`, `valkey-9.1`.
    pub fn known_to(&self) -> impl Iterator<Item = &'static str> + use<> {
        let servers = self.servers;
        super::SERVERS.iter().enumerate().filter(move |(bit, _)| servers & (1 << bit) != 0).map(|(_, label)| *label)
    }
}

/// Whether a command with `argc` arguments (name included) may run (`server.c`, `commandCheckArity`).
#[inline]
pub fn check_arity(command: &Command, argc: usize) -> bool {
    let wanted = usize::from(command.arity.unsigned_abs());
    if command.arity >= 0 { argc == wanted } else { argc >= wanted }
}

/// Whether a lost reply may be answered by sending the command again: it changes nothing and does not wait.
#[inline]
pub fn retry_safe(command: &Command) -> bool {
    matches!(command.access, Access::Read) && matches!(command.class, Class::Shared | Class::Cluster | Class::Info)
}
