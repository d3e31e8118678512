//! The client's guarantee: the k-th reply belongs to the k-th command, in the right database, whatever happens behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_redis_session::{refusal, settings::RedisListenerSettings};
use weir_resp::{Value, ValueLimits};

type Args = Vec<Vec<u8>>;

/// The gateway's own replies that need no fault to happen.
const ORDINARY_REFUSALS: [&str; 7] = [
    "ERR weir: administrative command",
    "ERR weir: command '",
    "ERR weir: transaction too large",
    "ERR weir: command too large",
    "ERR weir: too many subscriptions",
    "ERR weir: HELLO cannot change",
    "ERR weir: only QUIT and RESET",
];

#[derive(Debug)]
struct Sent {
    args: Args,
    /// Confirmations to come, once the first has.
    confirmations: Option<VecDeque<Option<Vec<u8>>>>,
}

#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Args>,
    is_spoiled: bool,
}

/// A client that knows what it sent, and judges each reply by it.
#[derive(Debug)]
pub struct Client {
    settings: RedisListenerSettings,
    buffer: Vec<u8>,
    sent: VecDeque<Sent>,
    is_authenticated: bool,
    failures: u32,
    db: u32,
    version: i64,
    multi: Option<Queue>,
    watched: Vec<(Vec<u8>, u64)>,
    is_watching: bool,
    subscriptions: [BTreeSet<Vec<u8>>; 3],
    is_monitor: bool,
    /// For each kind and channel, the number of the last message.
    last_heard: BTreeMap<(usize, Vec<u8>), u64>,
    /// Messages that must come: the client was subscribed when they were published, and had not said otherwise.
    due: BTreeSet<(usize, Vec<u8>, u64)>,
    /// A reply said that this is the end.
    pub is_dismissed: bool,
    /// Lanes break and limits are reached in this world: the gateway may say so.
    pub is_lenient: bool,
    /// Replies judged.
    pub judged: u64,
}

impl Client {
    /// A client of a listener with these settings.
    pub fn new(settings: RedisListenerSettings) -> Self {
        Self {
            is_authenticated: settings.password.is_none(),
            settings,
            buffer: Vec::new(),
            sent: VecDeque::new(),
            failures: 0,
            db: 0,
            version: 2,
            multi: None,
            watched: Vec::new(),
            is_watching: false,
            subscriptions: Default::default(),
            is_monitor: false,
            last_heard: BTreeMap::new(),
            due: BTreeSet::new(),
            is_dismissed: false,
            is_lenient: false,
            judged: 0,
        }
    }

    /// A command was sent that gets a reply.
    pub fn sent(&mut self, args: &[Vec<u8>]) {
        self.sent.push_back(Sent { args: args.to_vec(), confirmations: None });
    }

    /// Commands without their reply.
    pub fn waiting(&self) -> usize {
        self.sent.len()
    }

    /// The oldest command without its reply.
    pub fn oldest(&self) -> Option<&[Vec<u8>]> {
        self.sent.front().map(|sent| &sent.args[..])
    }

    /// Message number `number` is published: from now on the client must get it, if it is subscribed for certain.
    pub fn published(&mut self, channel: &[u8], number: u64) {
        let is_leaving = |sent: &Sent| {
            matches!(&upper(&sent.args)[..], "RESET" | "QUIT" | "GARBAGE") || {
                let name = upper(&sent.args);
                name.ends_with("UNSUBSCRIBE")
            }
        };
        if self.sent.iter().any(is_leaving) {
            return;
        }
        for (set, some) in self.subscriptions.iter().enumerate() {
            if some.contains(channel) {
                self.due.insert((set, channel.to_vec(), number));
            }
        }
    }

    /// A message that did not come although it must.
    pub fn missing(&self) -> Option<String> {
        self.due.first().map(|(set, channel, number)| format!("{number} of {} ({set})", channel.escape_ascii()))
    }

    /// The beginning of a frame is here and its end is not.
    pub fn is_mid_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Judges what was read. `touched`: when others changed which key.
    pub fn read(&mut self, bytes: &[u8], touched: &BTreeMap<Vec<u8>, Vec<u64>>) {
        self.buffer.extend_from_slice(bytes);
        loop {
            let decoded = Value::decode(&self.buffer, &ValueLimits::default());
            match decoded.unwrap_or_else(|error| panic!("{error}: {}", self.buffer.escape_ascii())) {
                None => return,
                Some((value, len)) => {
                    self.buffer.drain(..len);
                    self.frame(value, touched);
                }
            }
        }
    }

    fn frame(&mut self, value: Value, touched: &BTreeMap<Vec<u8>, Vec<u64>>) {
        if let Value::Push(_) = &value {
            assert_eq!(self.version, 3, "a push in RESP2");
        }
        if let Value::Simple(line) = &value
            && self.is_monitor
            && line.first().is_some_and(u8::is_ascii_digit)
        {
            return;
        }
        if let Some((kind, elements)) = self.pubsub(&value) {
            return self.pubsub_frame(&kind, &elements);
        }
        let Some(sent) = self.sent.pop_front() else {
            let text = value.as_error().unwrap_or_else(|| panic!("a reply without a request: {value:?}"));
            assert!(self.is_lenient && text == refusal::STATE_LOST.as_bytes(), "{}", text.escape_ascii());
            self.is_dismissed = true;
            return;
        };
        assert!(sent.confirmations.is_none() || value.as_error().is_some(), "half the confirmations, then {value:?}");
        self.judged += 1;
        self.reply(&sent.args, value, touched);
    }

    /// Kind and further elements of a message or confirmation.
    fn pubsub(&self, value: &Value) -> Option<(String, Vec<Value>)> {
        let elements = value.as_elements()?;
        let kind = String::from_utf8_lossy(elements.first()?.as_bytes()?).into_owned();
        let is_known = kind.ends_with("message") || kind.ends_with("subscribe");
        let may_be = match value {
            Value::Push(_) => true,
            _ => {
                let asks = self.sent.front().is_some_and(|sent| upper(&sent.args).ends_with("SUBSCRIBE"));
                self.version == 2 && (asks || self.is_subscriber())
            }
        };
        (is_known && may_be).then(|| (kind, elements[1..].to_vec()))
    }

    fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|some| !some.is_empty())
    }

    fn pubsub_frame(&mut self, kind: &str, elements: &[Value]) {
        let set = match kind {
            "psubscribe" | "punsubscribe" | "pmessage" => 1,
            "ssubscribe" | "sunsubscribe" | "smessage" => 2,
            _ => 0,
        };
        let channel = elements[0].as_bytes().map(<[u8]>::to_vec);
        if kind.ends_with("message") {
            let channel = channel.expect("a channel");
            assert!(self.subscriptions[set].contains(&channel), "a message of a channel not subscribed to");
            let payload = elements.last().and_then(Value::as_bytes).expect("a payload");
            let (number, is_own) = number_of(payload);
            // Its own are numbered when they are sent, the others when they are executed.
            let series = if is_own { set + 3 } else { set };
            let before = self.last_heard.insert((series, channel.clone()), number);
            assert!(before.is_none_or(|before| before < number), "{number} after {before:?}: twice, or out of order");
            self.due.remove(&(set, channel, number));
            return;
        }
        let own = &self.subscriptions[set];
        let oldest = self.sent.front_mut().expect("a confirmation without a request");
        assert_eq!(upper(&oldest.args), kind.to_uppercase(), "a confirmation in its command's place");
        let expected = oldest.confirmations.get_or_insert_with(|| match &oldest.args[1..] {
            [] if own.is_empty() => VecDeque::from([None]),
            [] => own.iter().cloned().map(Some).collect(),
            named => named.iter().cloned().map(Some).collect(),
        });
        assert_eq!(expected.pop_front(), Some(channel.clone()), "one confirmation per channel, in order");
        let is_last = expected.is_empty();
        if let Some(channel) = channel {
            match kind.contains("un") {
                true => self.subscriptions[set].remove(&channel),
                false => self.subscriptions[set].insert(channel),
            };
        }
        let [channels, patterns, shards] = &self.subscriptions;
        let count = if set == 2 { shards.len() } else { channels.len() + patterns.len() };
        assert_eq!(elements[1], Value::Integer(count as i64), "the count of {kind}");
        if is_last {
            self.judged += 1;
            self.sent.pop_front();
        }
    }

    fn reply(&mut self, args: &Args, value: Value, touched: &BTreeMap<Vec<u8>, Vec<u64>>) {
        let name = upper(args);
        if let Some(text) = value.as_error() {
            let text = String::from_utf8_lossy(text).into_owned();
            return self.error(&name, args, &text);
        }
        assert!(is_known(&name) || self.is_authenticated, "{name} before authentication: {value:?}");
        if self.version == 2 && self.is_subscriber() && !matches!(&name[..], "PING" | "QUIT" | "RESET") {
            panic!("{name} while subscribed: {value:?}");
        }
        if self.multi.is_some() && !matches!(&name[..], "EXEC" | "DISCARD" | "RESET" | "QUIT") {
            assert_eq!(value, Value::Simple(b"QUEUED".to_vec()), "{name} in MULTI");
            if let Some(queue) = &mut self.multi {
                queue.commands.push(args.clone());
            }
            return;
        }
        match &name[..] {
            "MULTI" | "EXEC" | "DISCARD" | "UNWATCH" | "WATCH" => self.transaction(&name, args, value, touched),
            "RESET" | "QUIT" | "HELLO" | "AUTH" | "MONITOR" | "CLIENT" => self.connection(&name, args, &value),
            "PING" if self.version == 2 && self.is_subscriber() => {
                let text = args.get(1).cloned().unwrap_or_default();
                assert_eq!(value, Value::Array(vec![Value::Bulk(b"pong".to_vec()), Value::Bulk(text)]));
            }
            "PUBLISH" => self.publish(args, &value),
            "BLPOP" if value == Value::Null => {}
            "BLPOP" => drop(echo_array(args, &value, self.db)),
            _ => {
                let mut db = self.db;
                single(&name, args, &value, &mut db);
                self.db = db;
            }
        }
    }

    /// The reply to a command that begins or ends a transaction, or what it watches.
    fn transaction(&mut self, name: &str, args: &Args, value: Value, touched: &BTreeMap<Vec<u8>, Vec<u64>>) {
        match name {
            "MULTI" => {
                assert!(is_ok(&value));
                self.multi = Some(Queue::default());
            }
            "EXEC" => self.exec(value, touched),
            "WATCH" => self.watch(args, &value),
            _ => {
                assert!(is_ok(&value) && (name == "UNWATCH" || self.multi.is_some()));
                self.forget();
            }
        }
    }

    /// The reply to a command about the connection itself.
    fn connection(&mut self, name: &str, args: &Args, value: &Value) {
        match name {
            "RESET" => {
                assert_eq!(value, &Value::Simple(b"RESET".to_vec()));
                let fresh = Client::new(self.settings.clone());
                let old = std::mem::replace(self, fresh);
                (self.sent, self.buffer, self.failures) = (old.sent, old.buffer, old.failures);
                (self.is_lenient, self.judged) = (old.is_lenient, old.judged);
            }
            "QUIT" => {
                assert!(is_ok(value));
                self.is_dismissed = true;
            }
            "HELLO" => self.hello(args, value),
            "AUTH" => {
                assert!(is_ok(value) && args.last().is_some_and(|password| password == b"secret"));
                self.is_authenticated = true;
            }
            "MONITOR" => {
                assert!(is_ok(value));
                self.is_monitor = true;
            }
            _ if args[1].eq_ignore_ascii_case(b"ID") => assert_eq!(value, &Value::Integer(7)),
            _ => assert!(is_ok(value), "{value:?}"),
        }
    }

    fn publish(&self, args: &Args, value: &Value) {
        let (number, _) = number_of(&args[2]);
        let own = self.last_heard.get(&(3, args[1].clone())).copied();
        let must_hear = self.subscriptions[0].contains(&args[1]) && !self.is_lenient;
        assert!(!must_hear || own >= Some(number), "the message comes before the reply to its publisher");
        // It may have gone on the lane of the subscriptions, which is in no database.
        let text = String::from_utf8_lossy(value.as_bytes().expect("the echo")).into_owned();
        assert!(text.starts_with(&format!("{}|", lossy(args))), "{text}");
    }

    fn watch(&mut self, args: &Args, value: &Value) {
        let text = value.as_bytes().map(String::from_utf8_lossy).expect("a line");
        let clock = text.strip_prefix("OK ").and_then(|clock| clock.parse().ok()).expect("the instant");
        self.watched.extend(args[1..].iter().map(|key| (key.clone(), clock)));
        self.is_watching = true;
    }

    fn hello(&mut self, args: &Args, value: &Value) {
        let version = args.get(1).map_or(self.version, |_| if args[1] == b"3" { 3 } else { 2 });
        assert_eq!(value.field(b"proto"), Some(&Value::Integer(version)), "{value:?}");
        assert_eq!(matches!(value, Value::Map(_)), version == 3, "a map in RESP3 only");
        self.version = version;
        self.is_authenticated |= args.get(4).is_some_and(|password| password == b"secret");
        assert!(self.is_authenticated, "HELLO without a login");
    }

    fn forget(&mut self) {
        self.multi = None;
        self.watched.clear();
        self.is_watching = false;
    }

    fn exec(&mut self, value: Value, touched: &BTreeMap<Vec<u8>, Vec<u64>>) {
        let queue = self.multi.take().expect("EXEC without MULTI is refused");
        assert!(!queue.is_spoiled, "a spoiled transaction was carried out");
        let (watched, was_watching) = (std::mem::take(&mut self.watched), std::mem::take(&mut self.is_watching));
        if value == Value::Null {
            assert!(was_watching || self.is_lenient, "a transaction without WATCH is always carried out");
            return;
        }
        let replies = value.as_elements().unwrap_or_else(|| panic!("{value:?}"));
        assert_eq!(replies.len(), queue.commands.len(), "{queue:?} {value:?}");
        let mut clock = None;
        // Bytes of the gateway's own replies so far.
        let mut own_bytes = 0;
        for (args, reply) in queue.commands.iter().zip(replies) {
            let name = upper(args);
            let is_own = is_local_inside(&name, args);
            clock = clock.max(match &name[..] {
                "BLPOP" => {
                    assert_eq!(reply, &Value::Null);
                    None
                }
                _ if is_own && own_bytes >= self.settings.pipeline_bytes => {
                    assert_eq!(reply.as_error(), Some(refusal::TRANSACTION_FULL.as_bytes()));
                    None
                }
                name => single(name, args, reply, &mut self.db),
            });
            if is_own {
                own_bytes += reply.as_error().map_or(b":7\r\n".len(), |text| refusal::line(text).len()) as u64;
            }
        }
        for (key, since) in &watched {
            let times = touched.get(key).map(Vec::as_slice).unwrap_or_default();
            let is_broken = times.iter().any(|at| at > since && Some(*at) < clock);
            assert!(!is_broken, "a key was changed between WATCH and EXEC, and EXEC went through");
        }
    }

    fn error(&mut self, name: &str, args: &Args, text: &str) {
        let is_own = text.contains("ERR weir:");
        let is_ordinary = ORDINARY_REFUSALS.iter().any(|ordinary| text.starts_with(ordinary));
        assert!(!is_own || is_ordinary || self.is_lenient, "{name}: {text}");
        if text == refusal::STATE_LOST {
            self.is_dismissed = true;
            return;
        }
        // Half a large command cannot be taken back: the session ends with its error.
        self.is_dismissed |= is_own && text.contains("upstream") && args.iter().map(Vec::len).sum::<usize>() > 64;
        let is_short_of_room = text == refusal::IN_FLIGHT || text == refusal::BUFFERED;
        match name {
            "GARBAGE" => {
                assert!(text.starts_with("ERR Protocol error"), "{text}");
                self.is_dismissed = true;
            }
            "EXEC" => self.exec_error(args, text),
            "DISCARD" if is_own && !is_short_of_room => self.forget(),
            "UNWATCH" if is_own && !is_short_of_room && self.multi.is_none() => self.forget(),
            "WATCH" => self.is_watching |= is_own,
            "AUTH" | "HELLO" if text.starts_with("WRONGPASS") => {
                assert!(args.last().is_none_or(|password| password != b"secret"), "the right password");
                self.failures += 1;
                self.is_dismissed |= self.failures >= self.settings.auth_failures_max;
            }
            _ => {}
        }
        let may_fail = match name {
            "EXEC" | "GARBAGE" | "AUTH" | "HELLO" | "DISCARD" => true,
            _ if is_own => true,
            _ => self.may_fail(name, args, text),
        };
        assert!(may_fail, "{}: {text}", args.join(&b' ').escape_ascii());
        let spoils = !matches!(name, "EXEC" | "DISCARD" | "MULTI" | "WATCH" | "GARBAGE");
        if let Some(queue) = self.multi.as_mut().filter(|_| spoils) {
            queue.is_spoiled = true;
        }
    }

    fn exec_error(&mut self, args: &Args, text: &str) {
        if let Some(queue) = &self.multi {
            let is_refused = queue.commands.iter().any(|args| args.get(1).is_some_and(|key| key.starts_with(b"oom")));
            let expected = text.contains("ERR weir:") || args.len() > 1 || queue.is_spoiled || is_refused;
            assert!(expected, "{text}");
            self.forget();
        } else if text.starts_with("EXECABORT Transaction discarded because of:") {
            // An EXEC that is not let through unwatches as well (`execCommandAbort` in multi.c).
            self.forget();
        }
    }

    /// Whether the server, or the gateway in its place, may refuse this command now.
    fn may_fail(&self, name: &str, args: &Args, text: &str) -> bool {
        if !self.is_authenticated && !matches!(name, "RESET" | "QUIT") {
            return text.starts_with("NOAUTH") || text.contains("unknown") || text.contains("wrong number");
        }
        let is_arity = args.len() == 1 && text.contains("wrong number of arguments");
        let is_subscriber = self.version == 2 && self.is_subscriber();
        let is_unknown = name.starts_with("MOD.") || name == "CLIENT" || name == "OBJECT";
        is_arity
            || (is_subscriber && text.contains("Can't execute"))
            || (self.multi.is_some() && !matches!(name, "GET" | "SET" | "PING" | "ECHO" | "LRANGE"))
            || (is_unknown && text.contains("unknown"))
            || (name == "STRLEN" && text.starts_with(&format!("WRONGTYPE {}|{}|", lossy(args), self.db)))
            || (name == "SELECT" && (text == refusal::DB_RANGE || text == refusal::NOT_INTEGER))
            || (name.ends_with("SUBSCRIBE") && text.starts_with("NOPERM"))
            || (name == "MONITOR" && text.starts_with("NOPERM"))
            || (name == "READONLY" && text == refusal::NO_CLUSTER)
    }
}

/// The number at the front of a message, and whether the client sent it itself.
fn number_of(payload: &[u8]) -> (u64, bool) {
    let word = String::from_utf8_lossy(payload.split(|&byte| byte == b' ').next().unwrap_or_default()).into_owned();
    let own = word.strip_prefix('o');
    (own.unwrap_or(&word).parse().expect("the number of the message"), own.is_some())
}

fn is_ok(value: &Value) -> bool {
    *value == Value::Simple(b"OK".to_vec())
}

/// Commands that need no login.
fn is_known(name: &str) -> bool {
    matches!(name, "AUTH" | "HELLO" | "RESET" | "QUIT")
}

fn upper(args: &Args) -> String {
    String::from_utf8_lossy(&args[0]).to_ascii_uppercase()
}

fn lossy(args: &Args) -> String {
    String::from_utf8_lossy(&args.join(&b' ')).into_owned()
}

/// The gateway replies to this command of a transaction itself.
fn is_local_inside(name: &str, args: &Args) -> bool {
    match name {
        "CLIENT" | "READONLY" | "MONITOR" => true,
        "SELECT" => args[1] == b"40" || args[1] == b"x",
        _ => false,
    }
}

/// Judges a reply of the server to one command; its instant, if it tells.
fn single(name: &str, args: &Args, reply: &Value, db: &mut u32) -> Option<u64> {
    match name {
        // Some are answered at the gateway, in a transaction too.
        "CLIENT" => {
            assert_eq!(reply, &Value::Integer(7));
            None
        }
        "READONLY" | "MONITOR" => {
            let text = reply.as_error().expect("neither is possible");
            assert!(text == refusal::NO_CLUSTER.as_bytes() || text == refusal::MONITOR_IN_MULTI.as_bytes());
            None
        }
        "SELECT" if reply.as_error().is_some() => {
            let text = reply.as_error();
            assert!(text == Some(refusal::DB_RANGE.as_bytes()) || text == Some(refusal::NOT_INTEGER.as_bytes()));
            assert!(args[1] == b"40" || args[1] == b"x");
            None
        }
        "SELECT" => {
            assert_eq!(reply, &Value::Simple(b"OK".to_vec()));
            *db = std::str::from_utf8(&args[1]).ok().and_then(|text| text.parse().ok()).expect("a number");
            None
        }
        "PING" | "ECHO" => {
            let expected = match args.get(1) {
                None => Value::Simple(b"PONG".to_vec()),
                Some(text) if name == "PING" || is_local_echo(reply, text) => Value::Bulk(text.clone()),
                Some(_) => return echo(args, reply, *db),
            };
            assert_eq!(reply, &expected);
            None
        }
        "LRANGE" => echo_array(args, reply, *db),
        "STRLEN" => {
            let text = reply.as_error().expect("STRLEN is refused by the model server");
            let text = text.strip_prefix(b"WRONGTYPE ").expect("WRONGTYPE");
            echo(args, &Value::Bulk(text.to_vec()), *db)
        }
        _ => echo(args, reply, *db),
    }
}

/// The gateway answers ECHO itself, but not in a transaction or when it is large.
fn is_local_echo(reply: &Value, text: &[u8]) -> bool {
    reply.as_bytes() == Some(text)
}

fn echo(args: &Args, reply: &Value, db: u32) -> Option<u64> {
    let text = reply.as_bytes().unwrap_or_else(|| panic!("{}: {reply:?}", lossy(args)));
    let mut expected = args.join(&b' ');
    expected.extend_from_slice(format!("|{db}|").as_bytes());
    let clock = text.strip_prefix(&expected[..]);
    let clock = clock.unwrap_or_else(|| panic!("{}: {}", expected.escape_ascii(), text.escape_ascii()));
    std::str::from_utf8(clock).ok()?.parse().ok()
}

fn echo_array(args: &Args, reply: &Value, db: u32) -> Option<u64> {
    let elements = reply.as_elements().unwrap_or_else(|| panic!("{}: {reply:?}", lossy(args)));
    let (last, front) = elements.split_last().expect("the echo");
    assert!(front.iter().zip(&args[1..]).all(|(element, arg)| element.as_bytes() == Some(arg)));
    assert_eq!(front.len(), args.len() - 1);
    echo(args, last, db)
}
