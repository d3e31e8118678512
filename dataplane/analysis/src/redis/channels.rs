//! Which arguments are channels (Redis 7.0 `db.c`, `commands_with_channels`). The servers tell nothing of it in COMMAND,
//! so the table is written as theirs is.

use super::command::Command;

/// The channels of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// They are patterns, as PSUBSCRIBE has them.
    pub are_patterns: bool,
    /// How many there are from argument 1 on, at most.
    pub count_max: usize,
}

/// The channels that `command` publishes to or subscribes to; `None` for all others. To unsubscribe needs no permission.
pub fn channels(command: &Command) -> Option<Channels> {
    match command.name {
        "subscribe" | "ssubscribe" => Some(Channels { are_patterns: false, count_max: usize::MAX }),
        "psubscribe" => Some(Channels { are_patterns: true, count_max: usize::MAX }),
        "publish" | "spublish" => Some(Channels { are_patterns: false, count_max: 1 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COMMANDS, Flags};
    use super::*;

    #[test]
    fn every_command_of_pub_sub_has_channels_or_needs_no_permission() {
        let without: Vec<&str> = COMMANDS
            .iter()
            .filter(|command| command.flags.contains(Flags::PUBSUB) && channels(command).is_none())
            .map(|command| command.name)
            .collect();
        let expected = [
            "punsubscribe",
            "sunsubscribe",
            "unsubscribe",
            "pubsub|channels",
            "pubsub|numpat",
            "pubsub|numsub",
            "pubsub|shardchannels",
            "pubsub|shardnumsub",
        ];
        assert_eq!(without, expected);
    }
}
