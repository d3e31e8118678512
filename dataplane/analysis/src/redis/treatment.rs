//! Treatment of commands whose class depends on their arguments.

use super::args::{Args, is_word};
use super::class::Class;
use super::command::Command;
use super::keys::KeyError;

/// Options of XREAD and XREADGROUP in front of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamOptions {
    /// BLOCK was given.
    pub block: bool,
    /// Index of the word STREAMS; `None`: missing, or something the server does not know stands before it.
    pub streams: Option<usize>,
}

/// The class for these very arguments. Differs from [`Command::class`] in two cases: XREAD and XREADGROUP without BLOCK
/// are [`Class::Shared`], and so is CONFIG GET of nothing but harmless parameters.
#[inline]
pub fn treatment<A: Args + ?Sized>(command: &Command, args: &A) -> Class {
    match command.class {
        Class::Blocking if !is_blocking(command, args) => Class::Shared,
        Class::Admin if command.name == "config|get" && reads_harmless_parameters(args) => Class::Shared,
        class => class,
    }
}

/// Whether the command may hold its connection. In doubt (an argument is not held in memory) it may.
#[inline]
pub fn is_blocking<A: Args + ?Sized>(command: &Command, args: &A) -> bool {
    match command.class {
        Class::Blocking if matches!(command.name, "xread" | "xreadgroup") => {
            streams_at(args).map_or(true, |options| options.block)
        }
        class => class == Class::Blocking,
    }
}

/// Walks the options as `xreadGetKeys` of Redis 7.0 does, so that a group named BLOCK or STREAMS is only a name. CLAIM
/// takes a value from Redis 8.4 on; older servers refuse it, so reading it as an option is safe for both.
pub(super) fn streams_at<A: Args + ?Sized>(args: &A) -> Result<StreamOptions, KeyError> {
    let mut options = StreamOptions { block: false, streams: None };
    let mut index = 1;
    while index < args.argc() {
        let arg = args.arg(index).ok_or(KeyError::NotBuffered)?;
        let is = |word: &[u8]| is_word(arg, word);
        index += if is(b"STREAMS") {
            options.streams = Some(index);
            break;
        } else if is(b"BLOCK") {
            options.block = true;
            2
        } else if is(b"COUNT") || is(b"CLAIM") {
            2
        } else if is(b"GROUP") {
            3
        } else if is(b"NOACK") {
            1
        } else {
            break;
        };
    }
    Ok(options)
}

/// Parameters that tools read at connect and that tell nothing secret: redis-benchmark (save, appendonly), job queues
/// (maxmemory-policy), session stores (notify-keyspace-events), exporters and browsers (databases, limits, slow log).
/// Names only, no patterns: `CONFIG GET *` shows the upstream's password.
const HARMLESS_PARAMETERS: &[&str] = &[
    "appendfsync",
    "appendonly",
    "client-query-buffer-limit",
    "cluster-enabled",
    "databases",
    "hz",
    "io-threads",
    "latency-monitor-threshold",
    "lfu-decay-time",
    "lfu-log-factor",
    "maxclients",
    "maxmemory",
    "maxmemory-policy",
    "maxmemory-samples",
    "min-replicas-max-lag",
    "min-replicas-to-write",
    "notify-keyspace-events",
    "proto-max-bulk-len",
    "save",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "tcp-keepalive",
    "timeout",
];

fn reads_harmless_parameters<A: Args + ?Sized>(args: &A) -> bool {
    args.argc() > 2
        && (2..args.argc()).all(|index| {
            args.arg(index)
                .is_some_and(|name| HARMLESS_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())))
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Resolved, resolve};
    use super::*;

    fn of(line: &str) -> Class {
        let args: Vec<&str> = line.split(' ').collect();
        match resolve(args[0].as_bytes(), args.get(1).map(|sub| sub.as_bytes())) {
            Resolved::Known(command) => treatment(command, &args),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn streams_block_only_with_block() {
        assert_eq!(of("XREAD COUNT 1 STREAMS k 0"), Class::Shared);
        assert_eq!(of("XREAD block 0 STREAMS k $"), Class::Blocking);
        assert_eq!(of("XREADGROUP GROUP g c NOACK BLOCK 5 STREAMS k >"), Class::Blocking);
        assert_eq!(of("XREADGROUP GROUP block BLOCK COUNT 1 STREAMS BLOCK >"), Class::Shared);
        assert_eq!(of("XREAD STREAMS BLOCK 0"), Class::Shared);
        assert_eq!(of("BLPOP k 0"), Class::Blocking);
        assert_eq!(of("WAIT 1 0"), Class::Blocking);
    }

    #[test]
    fn config_get_passes_names_of_harmless_parameters_only() {
        assert_eq!(of("CONFIG GET save"), Class::Shared);
        assert_eq!(of("config get MaxMemory-Policy databases"), Class::Shared);
        for line in
            ["CONFIG GET *", "CONFIG GET requirepass", "CONFIG GET save requirepass", "CONFIG GET s*", "CONFIG GET"]
        {
            assert_eq!(of(line), Class::Admin, "{line}");
        }
        assert_eq!(of("CONFIG SET save 1"), Class::Admin);
    }
}
