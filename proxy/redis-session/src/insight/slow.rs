//! The slow log of the gateway: requests that took long, what they were, and where the time went.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    key::printable,
    wire::{Argument, RequestArguments},
};

/// Arguments that an entry shows, the last one telling how many there are more (Redis `SLOWLOG_ENTRY_MAX_ARGC`).
const ARGS_SHOWN: usize = 32;
/// Bytes of an argument that it shows (Redis `SLOWLOG_ENTRY_MAX_STRING`).
const ARG_BYTES_SHOWN: usize = 128;
/// Replaces arguments that must not be readable later (Redis `redactClientCommandArgument`).
const REDACTED: &str = "(redacted)";

/// A request that took long.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowRequest {
    /// Unique in the process, growing with time.
    pub id: u64,
    /// When its reply was complete, or known to be lost.
    pub ended: SystemTime,
    /// From the queue of its connection to the end of the reply. A wait for a dedicated connection comes before.
    pub duration: Duration,
    /// The part of it before the request was handed to the kernel, in the queue of its connection.
    pub gateway: Duration,
    /// The rest: the server, the network, and those in front of it on the same connection.
    pub upstream: Duration,
    /// The command and its arguments, cut and redacted; only the command if arguments are not to be shown; nothing if it took
    /// so long that they are not kept any more.
    pub command: Vec<String>,
    /// Requests that were sent and answered together with it, itself included: they took as long.
    pub requests: u64,
    /// `ok`, `error`, or why there was no reply.
    pub outcome: &'static str,
    /// The client.
    pub client: SlowClient,
    /// Name of the upstream.
    pub upstream_name: Arc<str>,
    /// Address of the endpoint; `None` if it is not known any more.
    pub endpoint: Option<String>,
}

/// The client of a slow request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowClient {
    /// Number of its connection.
    pub id: u64,
    /// Its address.
    pub peer: String,
    /// The name that it gave itself.
    pub name: String,
    /// Its user.
    pub user: String,
    /// The listener that it came in on.
    pub listener: Arc<str>,
    /// The worker that owns it.
    pub worker: usize,
}

/// The slow requests of one worker, the newest first.
pub(super) struct SlowLog {
    entries: VecDeque<SlowRequest>,
    capacity: usize,
}

impl SlowLog {
    pub(super) fn new(capacity: u32) -> Self {
        Self { entries: VecDeque::new(), capacity: capacity as usize }
    }

    pub(super) fn add(&mut self, entry: SlowRequest) {
        self.entries.truncate(self.capacity.saturating_sub(1));
        self.entries.push_front(entry);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn report(&self) -> Vec<SlowRequest> {
        self.entries.iter().cloned().collect()
    }

    /// Forgets all; how many there were.
    pub(super) fn reset(&mut self) -> usize {
        std::mem::take(&mut self.entries).len()
    }
}

/// The lists of several workers as one, the newest first.
pub fn merge_slow_requests(lists: impl IntoIterator<Item = Vec<SlowRequest>>) -> Vec<SlowRequest> {
    let mut all: Vec<SlowRequest> = lists.into_iter().flatten().collect();
    all.sort_by_key(|entry| std::cmp::Reverse(entry.id));
    all
}

/// A command as the log shows it.
pub(super) fn shown(words: &RequestArguments<'_>, declared: usize, with_arguments: bool) -> Vec<String> {
    let args = words.args();
    let shown = |(index, arg): (usize, &Argument<'_>)| match is_secret(args, index) {
        true => REDACTED.to_owned(),
        false => argument(arg),
    };
    if !with_arguments {
        let name = words.command().map(|command| command.name.to_owned());
        let name = name.or_else(|| args.first().map(argument));
        return name.into_iter().chain(more(declared.saturating_sub(1), "arguments")).collect();
    }
    // As Redis: the last of the places tells how many are left out.
    let room = if declared > ARGS_SHOWN { ARGS_SHOWN - 1 } else { ARGS_SHOWN };
    let held = args.len().min(room);
    args.iter().enumerate().take(held).map(shown).chain(more(declared - held, "arguments")).collect()
}

fn argument(arg: &Argument<'_>) -> String {
    let held = &arg.held[..arg.held.len().min(ARG_BYTES_SHOWN)];
    let rest = more(arg.bytes - held.len(), "bytes").unwrap_or_default();
    format!("{}{rest}", printable(held))
}

fn more(count: usize, what: &str) -> Option<String> {
    (count > 0).then(|| format!("... ({count} more {what})"))
}

/// Whether argument `index` may be a password. Wider than Redis in one place: of CONFIG SET no value is shown.
fn is_secret(args: &[Argument<'_>], index: usize) -> bool {
    let is = |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.held.eq_ignore_ascii_case(word));
    if is(0, b"AUTH") || is(0, b"HELLO") {
        return index > 0;
    }
    if is(0, b"ACL") {
        return index > 1 && (is(1, b"SETUSER") || is(1, b"GETUSER") || is(1, b"DELUSER"));
    }
    if is(0, b"CONFIG") && is(1, b"SET") {
        return index > 2 && index % 2 == 1;
    }
    if is(0, b"MIGRATE") {
        // MIGRATE host port key db timeout ... AUTH password, or AUTH2 user password.
        return (6..index).any(|at| is(at, b"AUTH") && index == at + 1 || is(at, b"AUTH2") && index <= at + 2);
    }
    if is(0, b"SENTINEL") {
        return index > 2 && is(1, b"SET");
    }
    false
}

#[cfg(test)]
mod tests {
    use weir_analysis::redis::Args;
    use weir_resp::encode;

    use super::*;

    fn of(args: &[&str]) -> Vec<String> {
        let mut wire = Vec::new();
        encode::command(&mut wire, args.iter().map(|arg| arg.as_bytes()));
        let words = RequestArguments::read(&wire).expect("it is there");
        shown(&words, words.argc(), true)
    }

    #[test]
    fn arguments_are_cut_as_redis_cuts_them() {
        let long = "x".repeat(200);
        assert_eq!(of(&["SET", "k\n", &long]), ["SET", "k\\n", &format!("{}... (72 more bytes)", "x".repeat(128))]);
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let many: Vec<&str> = std::iter::once("DEL").chain(many.iter().map(String::as_str)).collect();
        let told = of(&many);
        assert_eq!((told.len(), told[30].as_str(), told[31].as_str()), (32, "29", "... (10 more arguments)"));
        assert_eq!(of(&many[..32]).len(), 32);
        assert_eq!(of(&many[..32])[31], "30");
    }

    #[test]
    fn lost_requests_of_the_trail_are_counted() {
        let words = RequestArguments::read(b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$9000\r\nabc").expect("its head is there");
        let told = shown(&words, words.argc(), true);
        assert_eq!(told, ["SET", "k", "abc... (8997 more bytes)", "... (1 more arguments)"]);
        assert_eq!(shown(&words, words.argc(), false), ["set", "... (3 more arguments)"]);
    }

    #[test]
    fn passwords_are_not_shown() {
        let line = |text: &str| of(&text.split(' ').collect::<Vec<_>>()).join(" ");
        assert_eq!(line("AUTH user pw"), "AUTH (redacted) (redacted)");
        assert_eq!(line("hello 3 AUTH user pw"), "hello (redacted) (redacted) (redacted) (redacted)");
        assert_eq!(line("ACL SETUSER bob >pw"), "ACL SETUSER (redacted) (redacted)");
        assert_eq!(line("ACL LIST"), "ACL LIST");
        assert_eq!(
            line("CONFIG SET requirepass pw maxmemory 5"),
            "CONFIG SET requirepass (redacted) maxmemory (redacted)"
        );
        assert_eq!(line("CONFIG GET requirepass"), "CONFIG GET requirepass");
        let migrate = "MIGRATE host 6379 k 0 1000";
        assert_eq!(line(&format!("{migrate} COPY AUTH pw KEYS a")), format!("{migrate} COPY AUTH (redacted) KEYS a"));
        assert_eq!(
            line(&format!("{migrate} AUTH2 user pw KEYS a")),
            format!("{migrate} AUTH2 (redacted) (redacted) KEYS a")
        );
        assert_eq!(line("GET AUTH pw"), "GET AUTH pw");
    }

    #[test]
    fn the_log_is_a_ring() {
        let entry = |id| SlowRequest {
            id,
            ended: SystemTime::UNIX_EPOCH,
            duration: Duration::from_millis(id),
            gateway: Duration::ZERO,
            upstream: Duration::from_millis(id),
            command: vec!["get".to_owned()],
            requests: 1,
            outcome: "ok",
            client: SlowClient::default(),
            upstream_name: "main".into(),
            endpoint: None,
        };
        let mut log = SlowLog::new(3);
        (0..10).for_each(|id| log.add(entry(id)));
        let ids = |entries: &[SlowRequest]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&log.report()), [9, 8, 7]);
        let other = vec![entry(20), entry(8)];
        assert_eq!(ids(&merge_slow_requests([log.report(), other])), [20, 9, 8, 8, 7]);
        assert_eq!((log.reset(), log.report().len()), (3, 0));
    }
}
