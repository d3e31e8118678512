//! The hand-written lists of `class.rs` against what the servers say about each command.

use weir_analysis::redis::{
    Access, COMMANDS, Categories, Class, ClientCommand, Command, Flags, LocalCommand, Resolved, SERVERS, resolve,
    retry_safe,
};

fn command(name: &str) -> &'static Command {
    COMMANDS.iter().find(|command| command.name == name).unwrap_or_else(|| panic!("{name} is not in the table"))
}

fn names_of(class: impl Fn(Class) -> bool) -> Vec<&'static str> {
    COMMANDS.iter().filter(|command| class(command.class)).map(|command| command.name).collect()
}

#[test]
fn the_table_is_whole() {
    assert_eq!(SERVERS, ["redis-6.2", "redis-7.0", "valkey-9.1"]);
    assert!(COMMANDS.len() >= 400, "{} rows", COMMANDS.len());
    for (index, row) in COMMANDS.iter().enumerate() {
        assert_eq!(usize::from(row.id.0), index);
        assert!(row.known_to().count() > 0, "{} is known to no server", row.name);
        assert!(row.arity != 0, "{} has an arity", row.name);
        assert_eq!(row.name, row.name.to_ascii_lowercase());
        let sub = row.subcommand_name();
        assert_eq!(sub.is_some(), row.name.contains('|'));
        if sub.is_some() {
            assert!(command(row.base_name()).container, "{} has a container", row.name);
        }
    }
}

#[test]
fn shared_commands_have_no_state() {
    for row in COMMANDS.iter().filter(|row| matches!(row.class, Class::Shared | Class::Cluster)) {
        assert!(!row.flags.intersects(Flags::BLOCKING | Flags::NO_MULTI), "{}: {:?}", row.name, row.flags);
        let sends = matches!(row.name, "publish" | "spublish") || row.base_name() == "pubsub";
        assert!(!row.flags.contains(Flags::PUBSUB) || sends, "{} is pub/sub", row.name);
        // @connection and @transaction name state, except for COMMAND, which Redis files there.
        let state = row.categories.intersects(Categories::CONNECTION | Categories::TRANSACTION);
        assert!(!state || row.base_name() == "command", "{} is bound to its connection", row.name);
    }
}

#[test]
fn every_blocking_flag_is_heeded() {
    for row in COMMANDS {
        let blocks = row.flags.contains(Flags::BLOCKING) || row.categories.contains(Categories::BLOCKING);
        assert_eq!(row.class == Class::Blocking, blocks, "{}", row.name);
    }
    let expected = [
        "blmove",
        "blmpop",
        "blpop",
        "brpop",
        "brpoplpush",
        "bzmpop",
        "bzpopmax",
        "bzpopmin",
        "wait",
        "waitaof",
        "xread",
        "xreadgroup",
    ];
    assert_eq!(names_of(|class| class == Class::Blocking), expected);
}

/// Flagged admin by the servers, and passed all the same. The list stands here a second time on purpose: who opens
/// another one has to say so twice.
#[test]
fn only_these_admin_commands_are_open() {
    let open: Vec<&str> = COMMANDS
        .iter()
        .filter(|row| row.flags.contains(Flags::ADMIN))
        .filter(|row| matches!(row.class, Class::Shared | Class::Cluster))
        .map(|row| row.name)
        .collect();
    let expected = [
        "cluster|count-failure-reports",
        "cluster|getslotmigrations",
        "cluster|replicas",
        "cluster|slaves",
        "commandlog|get",
        "commandlog|len",
        "latency|doctor",
        "latency|graph",
        "latency|histogram",
        "latency|history",
        "latency|latest",
        "module|list",
        "slowlog|get",
        "slowlog|len",
    ];
    assert_eq!(open, expected, "ROLE and LASTSAVE carry only the ACL category");
}

#[test]
fn commands_that_show_credentials_or_run_code_are_administrative() {
    for name in [
        "config|get",
        "config|set",
        "config|rewrite",
        "config|resetstat",
        "acl|list",
        "acl|getuser",
        "acl|setuser",
        "acl|users",
        "acl|log",
        "acl|dryrun",
        "acl|load",
        "acl|save",
        "acl|deluser",
        "module|load",
        "module|loadex",
        "module|unload",
        "debug",
        "shutdown",
        "save",
        "bgsave",
        "bgrewriteaof",
        "replicaof",
        "slaveof",
        "failover",
        "migrate",
        "swapdb",
        "pfdebug",
        "pfselftest",
        "slowlog|reset",
        "commandlog|reset",
        "latency|reset",
        "memory|purge",
        "cluster|addslots",
        "cluster|setslot",
        "cluster|failover",
        "cluster|reset",
        "cluster|meet",
        "cluster|flushslot",
        "cluster|flushslots",
        "cluster|migrateslots",
        "cluster|saveconfig",
    ] {
        assert_eq!((command(name).class, command(name).access), (Class::Admin, Access::Admin), "{name}");
    }
}

#[test]
fn the_session_knows_these_by_name() {
    for (name, class) in [
        ("subscribe", Class::Subscribe),
        ("psubscribe", Class::Subscribe),
        ("ssubscribe", Class::Subscribe),
        ("unsubscribe", Class::Unsubscribe),
        ("punsubscribe", Class::Unsubscribe),
        ("sunsubscribe", Class::Unsubscribe),
        ("watch", Class::Watch),
        ("unwatch", Class::Unwatch),
        ("multi", Class::Multi),
        ("exec", Class::Exec),
        ("discard", Class::Discard),
        ("monitor", Class::Monitor),
        ("sync", Class::Replication),
        ("psync", Class::Replication),
        ("replconf", Class::Replication),
        ("restore-asking", Class::Replication),
        ("cluster|syncslots", Class::Replication),
        ("script|debug", Class::Refused),
        ("script|kill", Class::Exclusive),
        ("function|kill", Class::Exclusive),
        ("post", Class::CrossProtocol),
        ("host:", Class::CrossProtocol),
        ("acl|whoami", Class::Local(LocalCommand::AclWhoami)),
        ("publish", Class::Shared),
        ("info", Class::Info),
        ("command|docs", Class::Shared),
        ("eval", Class::Shared),
        ("flushall", Class::Shared),
        ("role", Class::Shared),
        ("lastsave", Class::Shared),
        ("scan", Class::Shared),
    ] {
        assert_eq!(command(name).class, class, "{name}");
    }
    assert_eq!(names_of(|class| class == Class::ConnectionState), Vec::<&str>::new(), "decide on each new one by name");
}

#[test]
fn every_client_subcommand_has_a_local_meaning() {
    let containers: Vec<&str> = names_of(|class| class == Class::Local(LocalCommand::Client(ClientCommand::Container)));
    assert_eq!(containers, ["client"], "give each new CLIENT subcommand its own");
    for row in COMMANDS.iter().filter(|row| row.base_name() == "client") {
        assert!(matches!(row.class, Class::Local(LocalCommand::Client(_))), "{}", row.name);
    }
    let admin = |command: &&ClientCommand| command.is_admin();
    let all = [ClientCommand::Kill, ClientCommand::Pause, ClientCommand::Unpause, ClientCommand::Unblock];
    assert_eq!(all.iter().filter(admin).count(), 4);
    assert!(!ClientCommand::List.is_admin() && !ClientCommand::NoEvict.is_admin());
}

#[test]
fn a_write_is_never_sent_twice() {
    for row in COMMANDS.iter().filter(|row| retry_safe(row)) {
        assert!(!row.flags.intersects(Flags::WRITE | Flags::BLOCKING | Flags::MAY_REPLICATE), "{}", row.name);
        assert!(!row.categories.contains(Categories::WRITE), "{}", row.name);
    }
    for name in ["get", "mget", "scan", "info", "eval_ro", "time", "cluster|slots", "object|encoding", "pubsub|numsub"]
    {
        assert!(retry_safe(command(name)), "{name}");
    }
    for name in [
        "set",
        "incr",
        "eval",
        "evalsha",
        "fcall",
        "publish",
        "spublish",
        "script|load",
        "script|flush",
        "xreadgroup",
        "xread",
        "blpop",
        "getex",
        "getdel",
        "flushall",
        "watch",
        "multi",
        "exec",
        "config|get",
        "wait",
    ] {
        assert!(!retry_safe(command(name)), "{name}");
    }
}

#[test]
fn containers_as_such_are_never_forwarded_by_class() {
    for row in COMMANDS.iter().filter(|row| row.container && row.name != "command") {
        assert!(row.arity == -2, "{} alone is an arity error", row.name);
        assert!(!retry_safe(row), "{}", row.name);
    }
    // COMMAND alone is a command.
    assert!(matches!(resolve(b"COMMAND", None), Resolved::Known(c) if c.arity == -1 && c.class == Class::Shared));
}
