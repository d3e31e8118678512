//! A small Redis that echoes its requests: each reply repeats the command, its arguments, the database and the
//! instant, so that a reply given to the wrong command, or from the wrong database, is seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_redis_session::lane::LaneKey;
use weir_resp::{RequestLimits, RequestParser, Step, Version, encode};

/// Databases of the model. More than a listener allows by default, as a real server may have.
pub const DATABASES: u32 = 64;

type Command = Vec<Vec<u8>>;

/// State that all connections of the model server share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Commands executed so far.
    pub clock: u64,
    /// When other clients changed a key.
    pub touched: BTreeMap<Vec<u8>, Vec<u64>>,
    /// MONITOR is refused.
    pub denies_monitor: bool,
    /// With several, commands over them are answered in the shape of their real replies, with the shard's number in them.
    pub shards: u16,
    /// They are nodes of a cluster.
    pub is_cluster: bool,
    /// The shard of a group of keys that is not on the one of its number.
    pub homes: BTreeMap<u16, u16>,
    /// The shard that a group is being moved to: its home has none of its keys any more.
    pub moving: BTreeMap<u16, u16>,
    /// The slot that a redirection of a group speaks of, if not its own.
    pub claims: BTreeMap<u16, u16>,
    /// Channels that clients must not subscribe to, and keys that they must not watch.
    pub denied: Vec<Vec<u8>>,
    /// The error that scripts reply with.
    pub script_error: Option<String>,
    /// Groups for which a node is not ready just now.
    pub busy: BTreeSet<u16>,
}

/// The group of a key among `shards`.
pub fn group_of(key: &[u8], shards: u16) -> u16 {
    key.iter().fold(0u16, |sum, &byte| sum.wrapping_add(byte.into())) % shards.max(1)
}

impl Shared {
    /// Another client changes a key.
    pub fn touch(&mut self, key: &[u8]) {
        self.clock += 1;
        self.touched.entry(key.to_vec()).or_default().push(self.clock);
    }
}

/// One connection as the model server sees it.
#[derive(Debug)]
pub struct ServerConnection {
    key: LaneKey,
    /// The database in use.
    pub db: u32,
    parser: RequestParser,
    inbox: Vec<u8>,
    multi: Option<Vec<Command>>,
    is_multi_dirty: bool,
    watched: Vec<(Vec<u8>, u64)>,
    /// Channels, patterns, shard channels.
    subscriptions: [BTreeSet<Vec<u8>>; 3],
    is_monitor: bool,
    /// ASKING was the last command.
    is_asking: bool,
    /// State that a gateway cannot know of (a module's).
    has_foreign_state: bool,
    blocked: Option<Command>,
    backlog: VecDeque<Command>,
}

impl ServerConnection {
    /// A connection greeted for `key`.
    pub fn new(key: LaneKey) -> Self {
        Self {
            key,
            db: key.db,
            parser: RequestParser::new(),
            inbox: Vec::new(),
            multi: None,
            is_multi_dirty: false,
            watched: Vec::new(),
            subscriptions: Default::default(),
            is_monitor: false,
            is_asking: false,
            has_foreign_state: false,
            blocked: None,
            backlog: VecDeque::new(),
        }
    }

    /// The reason why no other client may use this connection, if any.
    pub fn dirt(&self) -> Option<&'static str> {
        let rules = [
            (self.db != self.key.db, "another database"),
            (self.multi.is_some(), "an open MULTI"),
            (!self.watched.is_empty(), "watched keys"),
            (self.subscriptions.iter().any(|some| !some.is_empty()), "a subscription"),
            (self.is_monitor, "MONITOR"),
            (self.has_foreign_state, "state of a module"),
            (self.blocked.is_some() || !self.backlog.is_empty(), "a command without its reply"),
            (!self.inbox.is_empty(), "half a command"),
        ];
        rules.iter().find(|(holds, _)| *holds).map(|(_, what)| *what)
    }

    /// True while a blocking command waits.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// The slot of a shard channel goes to another node: the server ends the subscription by itself.
    pub fn drop_shard_channel(&mut self, channel: &[u8], out: &mut Vec<u8>) {
        if self.subscriptions[2].remove(channel) {
            self.confirm(2, "sunsubscribe", Some(channel), out);
        }
    }

    /// True if it would get messages of `channel`.
    pub fn hears(&self, channel: &[u8]) -> bool {
        self.subscriptions.iter().any(|some| some.contains(channel))
    }

    /// Takes bytes of the gateway.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        let limits = RequestLimits { stream_bytes: u32::MAX, ..RequestLimits::default() };
        loop {
            match self.parser.parse(&self.inbox, &limits).expect("the gateway forwards whole, valid commands") {
                Step::Incomplete => return,
                Step::Command { len, inline } => {
                    assert!(!inline, "commands are forwarded as arrays");
                    self.backlog.push_back(self.parser.args(&self.inbox).map(<[u8]>::to_vec).collect());
                    self.inbox.drain(..len);
                }
                other => panic!("{other:?} is not what a gateway sends"),
            }
        }
    }

    /// Executes the oldest command; false if there is none or it must wait.
    pub fn execute_one(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> bool {
        if self.blocked.is_some() {
            return false;
        }
        let Some(command) = self.backlog.pop_front() else { return false };
        shared.clock += 1;
        self.execute(command, shared, out);
        if self.is_monitor {
            out.extend_from_slice(format!("+{}.000001 [0 peer] \"PING\"\r\n", shared.clock).as_bytes());
        }
        true
    }

    /// Gives the blocked command what it waits for, or its timeout.
    pub fn release(&mut self, shared: &mut Shared, has_data: bool, out: &mut Vec<u8>) {
        let Some(command) = self.blocked.take() else { return };
        shared.clock += 1;
        if has_data {
            self.echo_array(&command, shared, out);
        } else {
            encode::null_array(out, self.key.version);
        }
    }

    /// A message of another client.
    pub fn publish(&self, channel: &[u8], payload: &[u8], out: &mut Vec<u8>) {
        let version = self.key.version;
        let names: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
        for (kind, name) in names.into_iter().enumerate() {
            if !self.subscriptions[kind].contains(channel) {
                continue;
            }
            encode::push(out, if kind == 1 { 4 } else { 3 }, version);
            encode::bulk(out, name);
            if kind == 1 {
                encode::bulk(out, channel);
            }
            encode::bulk(out, channel);
            encode::bulk(out, payload);
        }
    }

    fn execute(&mut self, command: Command, shared: &mut Shared, out: &mut Vec<u8>) {
        let name = command[0].to_ascii_uppercase();
        let is_subscriber =
            self.key.version == Version::Resp2 && self.subscriptions.iter().any(|some| !some.is_empty());
        let allowed: [&[u8]; 7] =
            [b"PING", b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"SSUBSCRIBE", b"SUNSUBSCRIBE"];
        let own: [&[u8]; 7] = [b"AUTH", b"HELLO", b"RESET", b"QUIT", b"CLIENT", b"DISCARD", b"SYNC"];
        assert!(!own.contains(&&name[..]), "{} is never forwarded", name.escape_ascii());
        if is_subscriber && !allowed.contains(&&name[..]) {
            return encode::error(out, b"ERR Can't execute: a subscriber");
        }
        if let Some(error) = self.redirection(&name, &command, shared) {
            self.is_multi_dirty = self.multi.is_some();
            return encode::error(out, error.as_bytes());
        }
        if name == b"ASKING" {
            self.is_asking = true;
            return encode::simple(out, "OK");
        }
        if self.multi.is_some() && ![&b"EXEC"[..], b"DISCARD", b"MULTI", b"WATCH"].contains(&&name[..]) {
            return self.enqueue(command, out);
        }
        match &name[..] {
            b"MULTI" => {
                self.multi = Some(Vec::new());
                self.is_multi_dirty = false;
                encode::simple(out, "OK");
            }
            b"EXEC" => self.exec(shared, out),
            b"WATCH" if command[1..].iter().any(|key| shared.denied.contains(key)) => {
                encode::error(out, b"NOPERM No permissions to access a key");
            }
            b"WATCH" => {
                self.watched.extend(command[1..].iter().map(|key| (key.clone(), shared.clock)));
                encode::simple(out, &format!("OK {}", shared.clock));
            }
            b"UNWATCH" => {
                self.watched.clear();
                encode::simple(out, "OK");
            }
            _ => self.single(&name, &command, shared, out, false),
        }
    }

    fn enqueue(&mut self, command: Command, out: &mut Vec<u8>) {
        if command.get(1).is_some_and(|key| key.starts_with(b"oom")) {
            self.is_multi_dirty = true;
            return encode::error(out, b"OOM command not allowed when used memory > 'maxmemory'.");
        }
        encode::simple(out, "QUEUED");
        if let Some(queue) = &mut self.multi {
            queue.push(command);
        }
    }

    fn exec(&mut self, shared: &mut Shared, out: &mut Vec<u8>) {
        let queue = self.multi.take().expect("EXEC behind MULTI");
        let watched = std::mem::take(&mut self.watched);
        if self.is_multi_dirty {
            return encode::error(out, b"EXECABORT Transaction discarded because of previous errors.");
        }
        if watched
            .iter()
            .any(|(key, since)| shared.touched.get(key).is_some_and(|times| times.iter().any(|at| at > since)))
        {
            return encode::null_array(out, self.key.version);
        }
        encode::array(out, queue.len());
        for command in queue {
            let name = command[0].to_ascii_uppercase();
            self.single(&name, &command, shared, out, true);
        }
    }

    fn single(&mut self, name: &[u8], command: &Command, shared: &Shared, out: &mut Vec<u8>, in_exec: bool) {
        if shared.shards > 1 && self.reply_as_shard(name, command, out) {
            return;
        }
        match name {
            b"EVAL" if shared.script_error.is_some() => {
                encode::error(out, shared.script_error.as_deref().unwrap_or_default().as_bytes());
            }
            b"SELECT" => match std::str::from_utf8(&command[1]).ok().and_then(|text| text.parse().ok()) {
                Some(db) if db < DATABASES => {
                    self.db = db;
                    encode::simple(out, "OK");
                }
                _ => encode::error(out, b"ERR DB index is out of range"),
            },
            b"PING" => self.ping(command, out),
            b"BLPOP" if in_exec => encode::null_array(out, self.key.version),
            b"BLPOP" => self.blocked = Some(command.clone()),
            b"MONITOR" if shared.denies_monitor => encode::error(out, b"NOPERM no MONITOR for you"),
            b"MONITOR" => {
                self.is_monitor = true;
                encode::simple(out, "OK");
            }
            b"PUBLISH" => {
                self.publish(&command[1], &command[2], out);
                encode::bulk(out, &self.echo(command, shared));
            }
            b"SUBSCRIBE" => self.subscribe(0, command, shared, out),
            b"PSUBSCRIBE" => self.subscribe(1, command, shared, out),
            b"SSUBSCRIBE" => self.subscribe(2, command, shared, out),
            b"UNSUBSCRIBE" => self.unsubscribe(0, command, out),
            b"PUNSUBSCRIBE" => self.unsubscribe(1, command, out),
            b"SUNSUBSCRIBE" => self.unsubscribe(2, command, out),
            b"LRANGE" => self.echo_array(command, shared, out),
            b"STRLEN" => {
                let text = [b"WRONGTYPE ", &self.echo(command, shared)[..]].concat();
                encode::error(out, &text);
            }
            _ => {
                self.has_foreign_state |= name == b"MOD.STATE";
                encode::bulk(out, &self.echo(command, shared));
            }
        }
    }

    /// The redirection by a node of a cluster for a key that is not here.
    fn redirection(&mut self, name: &[u8], command: &Command, shared: &Shared) -> Option<String> {
        let is_asking = std::mem::take(&mut self.is_asking);
        let keyless: [&[u8]; 11] = [
            b"KEYS",
            b"SCAN",
            b"PING",
            b"SUBSCRIBE",
            b"UNSUBSCRIBE",
            b"PSUBSCRIBE",
            b"PUNSUBSCRIBE",
            b"PUBLISH",
            b"EXEC",
            b"MULTI",
            b"CLUSTER",
        ];
        // A script's key stands behind the script and the count.
        let at = if name == b"EVAL" { 3 } else { 1 };
        let key = command.get(at).filter(|_| shared.is_cluster && !keyless.contains(&name))?;
        let group = group_of(key, shared.shards);
        let home = shared.homes.get(&group).copied().unwrap_or(group);
        // A shard channel has no keys that could be elsewhere: it goes with its slot.
        let is_channel = matches!(name, b"SSUBSCRIBE" | b"SUNSUBSCRIBE" | b"SPUBLISH");
        let target = shared.moving.get(&group).copied().filter(|_| !is_channel);
        let here = self.key.shard;
        let has_keys = match name {
            b"MSET" => command.len() > 3,
            b"MGET" | b"DEL" => command.len() > 2,
            _ => false,
        };
        // As in Redis, a single key is either here or there.
        if has_keys && shared.busy.contains(&group) {
            return Some("TRYAGAIN Multiple keys request during rehashing of slot".to_owned());
        }
        match target {
            Some(target) if here == home => Some(format!("ASK {group} node:{target}")),
            Some(target) if here == target && is_asking => None,
            _ if here != home => {
                let claimed = shared.claims.get(&group).unwrap_or(&group);
                Some(format!("MOVED {claimed} node:{home}"))
            }
            _ => None,
        }
    }

    /// False for commands that one shard answers for all.
    fn reply_as_shard(&self, name: &[u8], command: &Command, out: &mut Vec<u8>) -> bool {
        let shard = self.key.shard;
        match name {
            b"MGET" => {
                encode::array(out, command.len() - 1);
                command[1..]
                    .iter()
                    .for_each(|key| encode::bulk(out, &[key, &b"@"[..], shard.to_string().as_bytes()].concat()));
            }
            b"MSET" | b"FLUSHALL" => encode::simple(out, "OK"),
            b"DEL" | b"EXISTS" => encode::integer(out, command.len() as i64 - 1),
            b"DBSIZE" => encode::integer(out, 10_i64.pow(shard.into())),
            b"KEYS" => {
                encode::array(out, 1);
                encode::bulk(out, format!("key@{shard}").as_bytes());
            }
            b"SCAN" => {
                let next: &[u8] = if command[1] == b"0" { b"7" } else { b"0" };
                encode::array(out, 2);
                encode::bulk(out, next);
                encode::array(out, 1);
                encode::bulk(out, &[&b"from "[..], &command[1], b"@", shard.to_string().as_bytes()].concat());
            }
            _ => return false,
        }
        true
    }

    fn ping(&self, command: &Command, out: &mut Vec<u8>) {
        let is_subscriber =
            self.key.version == Version::Resp2 && self.subscriptions.iter().any(|some| !some.is_empty());
        let text = command.get(1).map(Vec::as_slice);
        match (is_subscriber, text) {
            (true, text) => {
                encode::array(out, 2);
                encode::bulk(out, b"pong");
                encode::bulk(out, text.unwrap_or_default());
            }
            (false, Some(text)) => encode::bulk(out, text),
            (false, None) => encode::simple(out, "PONG"),
        }
    }

    fn echo(&self, command: &Command, shared: &Shared) -> Vec<u8> {
        let mut text = command.join(&b' ');
        text.extend_from_slice(format!("|{}|{}", self.db, shared.clock).as_bytes());
        text
    }

    fn echo_array(&self, command: &Command, shared: &Shared, out: &mut Vec<u8>) {
        encode::array(out, command.len());
        command[1..].iter().for_each(|arg| encode::bulk(out, arg));
        encode::bulk(out, &self.echo(command, shared));
    }

    fn subscribe(&mut self, kind: usize, command: &Command, shared: &Shared, out: &mut Vec<u8>) {
        if command.iter().any(|channel| channel.starts_with(b"denied") || shared.denied.contains(channel)) {
            return encode::error(out, b"NOPERM No permissions to access a channel");
        }
        for channel in &command[1..] {
            self.subscriptions[kind].insert(channel.clone());
            self.confirm(kind, ["subscribe", "psubscribe", "ssubscribe"][kind], Some(channel), out);
        }
    }

    fn unsubscribe(&mut self, kind: usize, command: &Command, out: &mut Vec<u8>) {
        let name = ["unsubscribe", "punsubscribe", "sunsubscribe"][kind];
        let named: Vec<Vec<u8>> = match command.len() {
            1 => self.subscriptions[kind].iter().cloned().collect(),
            _ => command[1..].to_vec(),
        };
        if named.is_empty() {
            return self.confirm(kind, name, None, out);
        }
        for channel in &named {
            self.subscriptions[kind].remove(channel);
            self.confirm(kind, name, Some(channel), out);
        }
    }

    fn confirm(&self, kind: usize, name: &str, channel: Option<&[u8]>, out: &mut Vec<u8>) {
        let version = self.key.version;
        encode::push(out, 3, version);
        encode::bulk(out, name.as_bytes());
        match channel {
            Some(channel) => encode::bulk(out, channel),
            None => encode::null_bulk(out, version),
        }
        let [channels, patterns, shards] = &self.subscriptions;
        let count = if kind == 2 { shards.len() } else { channels.len() + patterns.len() };
        encode::integer(out, count as i64);
    }
}
