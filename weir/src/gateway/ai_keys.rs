//! The keys of AI clients for the admin server: those of the configuration, and those that it issues.

use std::{
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use weir_admin::{
    Problem,
    status::{
        AiBudgetUse, AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyQuery, AiKeyRequest, AiKeySource, AiKeyState,
        AiKeyStatus, AiKeyText, AiKeyUsage, AiRateUse,
    },
};
use weir_ai::settings::{AiListenerSettings, KeyMode};
use weir_base::time::{Time, rfc3339};
use weir_config::Snapshot;
use weir_spend::{
    budget::{AccountId, AccountKind, Day, Ledger, Measure, Supply},
    keys::{DocumentError, IssueError, IssuedKey, IssuedKeys, KeyDocument, KeySettings, PolicyDocument, document::utc},
    rate::RateState,
};

use super::{Gateway, ai_listeners, lock};

/// The reason of a refusal.
const UPGRADING: &str = "an upgrade is under way";

/// Orders about issued keys: one at a time, and none while another process has their file.
#[derive(Debug, Default)]
pub(super) struct KeyOrders {
    is_closed: Mutex<bool>,
}

impl KeyOrders {
    /// Carries out an order. `None`: none is taken.
    fn carry_out<T>(&self, order: impl FnOnce() -> T) -> Option<T> {
        let is_closed = lock(&self.is_closed);
        (!*is_closed).then(order)
    }

    /// Takes no more orders, behind the end of the one under way.
    pub(super) fn close(&self) {
        *lock(&self.is_closed) = true;
    }

    /// Takes orders again.
    pub(super) fn open(&self) {
        *lock(&self.is_closed) = false;
    }
}

/// Listeners whose clients need a key, with their names.
fn listeners(snapshot: &Snapshot) -> impl Iterator<Item = (&Arc<str>, &AiListenerSettings)> {
    ai_listeners(snapshot).filter(|(_, own)| own.key_mode == KeyMode::Required)
}

impl Gateway {
    /// A page of the keys, by name.
    pub(super) fn list_ai_keys(&self, query: &AiKeyQuery) -> AiKeyList {
        let (snapshot, issued) = (self.snapshot(), self.spend.issued().map(IssuedKeys::all).unwrap_or_default());
        let is_wanted = |name: &str| {
            query.name.as_deref().is_none_or(|only| only == name)
                && query.after.as_deref().is_none_or(|after| name > after)
        };
        let of_file = listeners(&snapshot).flat_map(|(listener, own)| own.keys.iter().map(move |key| (key, listener)));
        let mut rows: Vec<(&KeySettings, Origin<'_>)> = of_file
            .map(|(key, listener)| (key, Origin::Config(listener)))
            .chain(issued.values().map(|key| (&key.settings, Origin::Api(key))))
            .filter(|(key, _)| is_wanted(&key.name))
            .collect();
        rows.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        // A page ends between two names, so that `after` loses no key.
        let end = rows.get(query.limit).map(|(next, _)| {
            let first = rows.partition_point(|(key, _)| key.name < next.name);
            if first > 0 { first } else { rows.partition_point(|(key, _)| key.name <= next.name) }
        });
        let is_cut = end.is_some_and(|end| end < rows.len());
        rows.truncate(end.unwrap_or(rows.len()));
        let next_after = rows.last().filter(|_| is_cut).map(|(key, _)| key.name.to_string());
        let (now, unix) = (Time::now(), unix_seconds());
        let keys = rows.into_iter().map(|(key, origin)| self.ai_key(key, origin, &snapshot, (now, unix))).collect();
        AiKeyList { keys, can_issue: self.spend.issued().is_some_and(IssuedKeys::has_state), next_after }
    }

    /// Carries out an order about an issued key: it is on the disk, and in force on all workers, when this returns.
    pub(super) fn carry_out_ai_key(&self, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
        if let Some(reason) = self.refusal_of_keys() {
            return Err(Problem::refused(409, "process", reason, "send the order to the process that serves"));
        }
        let carried_out = self.upgrading.key_orders.carry_out(|| self.change_ai_key(order));
        carried_out.unwrap_or_else(|| Err(under_way()))
    }

    fn change_ai_key(&self, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
        let (name, action) = match &order {
            AiKeyOrder::Create(request) => (request.name.clone(), "created"),
            AiKeyOrder::Change { name, .. } => (name.clone(), "changed"),
            AiKeyOrder::Rotate { name, .. } => (name.clone(), "rotated"),
            AiKeyOrder::Delete { name } => (name.clone(), "deleted"),
        };
        let snapshot = self.snapshot();
        let of_file = listeners(&snapshot).find(|(_, own)| own.keys.iter().any(|key| *key.name == *name));
        let (Some(issued), now) = (self.spend.issued(), unix_seconds()) else { return Err(under_way()) };
        if let Some((listener, _)) = of_file
            && !(issued.all().contains_key(&*name) && action != "created")
        {
            return Err(of_configuration(&name, listener));
        }
        let result = match order {
            AiKeyOrder::Create(request) => {
                document(*request, &snapshot).and_then(|document| issued.issue(&name, &document, now).map(with_text))
            }
            AiKeyOrder::Change { name, patch } => {
                let listener = patch.get("listener").and_then(Value::as_str);
                let checked = listener.map_or(Ok(()), |listener| check_listener(Some(listener), &snapshot));
                let changed = checked.map_err(IssueError::from).and_then(|()| issued.patch(&name, patch));
                changed.map(|key| (key, None))
            }
            AiKeyOrder::Rotate { name, rotation } => {
                let until = rotation.old_until.as_deref().map(|text| utc(text, "old_until")).transpose();
                until.map_err(IssueError::from).and_then(|until| issued.rotate(&name, until, now)).map(with_text)
            }
            AiKeyOrder::Delete { name } => issued.remove(&name).map(|key| (key, None)),
        };
        let (key, text) = result.map_err(|error| problem(&error, &name))?;
        self.renew_issued_keys();
        self.spend.claim_changed();
        tracing::info!(key = %name, action, "a key of the admin API");
        let status = self.ai_key(&key.settings, Origin::Api(&key), &snapshot, (Time::now(), now));
        Ok(AiKeyOutcome { key: status, text })
    }

    /// Puts the issued keys in force, in the present plan: one that a reload makes meanwhile has these keys already.
    pub(super) fn renew_issued_keys(&self) {
        let Some(issued) = self.spend.issued() else { return };
        for (listener, own) in listeners(&self.snapshot()) {
            own.renew_keys(listener, &self.spend.ledger(), issued);
        }
    }

    fn refusal_of_keys(&self) -> Option<&'static str> {
        if self.is_handed_over() {
            return Some("this process has handed over to another");
        }
        // The new process has read the file as it was.
        self.is_upgrade_under_way().then_some(UPGRADING)
    }

    fn ai_key(
        &self,
        key: &KeySettings,
        origin: Origin<'_>,
        snapshot: &Snapshot,
        (now, unix): (Time, u64),
    ) -> AiKeyStatus {
        let (source, listener, created) = match origin {
            Origin::Config(listener) => (AiKeySource::Config, Some(listener.to_string()), None),
            Origin::Api(issued) => (AiKeySource::Api, issued.listener.as_deref().map(Into::into), Some(issued.created)),
        };
        let is_good = |until: &Option<u64>| until.is_none_or(|end| end > unix);
        let texts = key.secrets.iter().filter(|secret| is_good(&secret.until)).map(|secret| AiKeyText {
            // A key of the configuration is shown by a part of its hash.
            shown: (source == AiKeySource::Api).then(|| secret.shown.to_string()),
            until: secret.until.map(rfc3339),
        });
        AiKeyStatus {
            name: key.name.to_string(),
            source,
            state: match (key.is_enabled, key.expires.is_some_and(|end| unix >= end)) {
                (false, _) => AiKeyState::Disabled,
                (true, true) => AiKeyState::Expired,
                (true, false) => AiKeyState::Active,
            },
            expires: key.expires.map(rfc3339),
            created: created.map(rfc3339),
            texts: texts.collect(),
            shadowed_by: if source == AiKeySource::Api {
                shadows(key, listener.as_deref(), snapshot)
            } else {
                Vec::new()
            },
            listener,
            policy: transfer(&PolicyDocument::of(&key.policy)).unwrap_or_default(),
            usage: usage(key, &self.spend.ledger(), now, unix),
        }
    }
}

/// The origin of a key: a listener of the file, or the admin API.
#[derive(Clone, Copy)]
enum Origin<'a> {
    Config(&'a Arc<str>),
    Api(&'a IssuedKey),
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn with_text((key, new): (IssuedKey, weir_spend::keys::NewKey)) -> (IssuedKey, Option<weir_base::secret::Secret>) {
    (key, Some(new.text))
}

/// The same members in another type.
fn transfer<T: DeserializeOwned>(from: &impl Serialize) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::to_value(from)?)
}

/// The listeners whose configuration has the name or a hash of an issued key.
fn shadows(key: &KeySettings, of: Option<&str>, snapshot: &Snapshot) -> Vec<String> {
    let is_its = |other: &KeySettings| {
        let has = |hash| key.secrets.iter().any(|own| own.hash == hash);
        other.name == key.name || other.secrets.iter().any(|secret| has(secret.hash))
    };
    listeners(snapshot)
        .filter(|(name, own)| of.is_none_or(|of| *of == ***name) && own.keys.iter().any(is_its))
        .map(|(name, _)| name.to_string())
        .collect()
}

/// The account of a key in its present windows.
fn usage(key: &KeySettings, ledger: &Ledger, now: Time, unix: u64) -> AiKeyUsage {
    let account = ledger.account(AccountId::new(AccountKind::Key, &key.name));
    let (position, today) = (account.position(), Day::of(unix));
    let settled = &position.settled;
    // A clock that has gone back stays in the window of the latest day.
    let day = today.max(settled.day);
    let in_day = if day == settled.day { (settled.in_day, position.reserved_in_day) } else { Default::default() };
    let is_month = day.month() == settled.month;
    let in_month = if is_month { (settled.in_month, position.reserved_in_month) } else { Default::default() };
    let budgets = &key.policy.budgets;
    let is_shared = ledger.supply() != Supply::Own;
    let both = |used: u64, reserved: u64, measure: Measure| {
        let limit = measure.limit(budgets);
        let is_present =
            position.window_of(measure) == if measure.is_daily() { day.number() } else { day.month().number() };
        let claim = position.claim(measure);
        let shared = |amount: u64| (is_shared && limit.is_some()).then_some(if is_present { amount } else { 0 });
        AiBudgetUse {
            used,
            reserved,
            limit,
            used_elsewhere: shared(claim.used_elsewhere),
            claimed: shared(claim.allowed),
        }
    };
    let rate = |state: Result<RateState, RateState>| {
        let state = state.unwrap_or_else(|state| state);
        AiRateUse { limit: state.limit, remaining: state.remaining, reset_seconds: state.reset.as_secs_f64() }
    };
    AiKeyUsage {
        day: day.text(),
        day_tokens: both(in_day.0.tokens, in_day.1.tokens, Measure::DayTokens),
        day_money_micro: both(in_day.0.money, in_day.1.money, Measure::DayMoney),
        month_tokens: both(in_month.0.tokens, in_month.1.tokens, Measure::MonthTokens),
        month_money_micro: both(in_month.0.money, in_month.1.money, Measure::MonthMoney),
        requests_per_minute: key.policy.requests.map(|pace| rate(account.requests.look_request(pace, now))),
        tokens_per_minute: key.policy.tokens.map(|pace| rate(account.tokens.look_tokens(pace, now))),
        concurrent: key.policy.concurrent_max.map(|_| account.open.in_use()),
    }
}

/// The document of a request.
fn document(request: AiKeyRequest, snapshot: &Snapshot) -> Result<KeyDocument, IssueError> {
    check_listener(request.listener.as_deref(), snapshot)?;
    let Ok(Value::Object(mut members)) = serde_json::to_value(request) else {
        return Err(DocumentError::Shape("it is not an object".to_owned()).into());
    };
    members.remove("name");
    Ok(KeyDocument::read(members)?)
}

/// A listener that no client could use the key at is a mistake.
fn check_listener(name: Option<&str>, snapshot: &Snapshot) -> Result<(), DocumentError> {
    match name {
        Some(name) if !listeners(snapshot).any(|(listener, _)| **listener == *name) => {
            let what = "is not an AI listener with keys = \"required\"".to_owned();
            Err(DocumentError::Member("listener", what))
        }
        None if listeners(snapshot).next().is_none() => {
            let what = "cannot be chosen: no AI listener has keys = \"required\"".to_owned();
            Err(DocumentError::Member("listener", what))
        }
        _ => Ok(()),
    }
}

fn under_way() -> Problem {
    Problem::refused(409, "process", UPGRADING, "send the request again after the upgrade")
}

fn of_configuration(name: &str, listener: &str) -> Problem {
    Problem::refused(
        409,
        "key_of_configuration",
        format!("the key {name} is a table of the listener {listener} in the configuration file"),
        "choose another name, or change [[listener.ai.key]] in the file and reload",
    )
}

fn problem(error: &IssueError, name: &str) -> Problem {
    let (status, kind, remedy) = match error {
        IssueError::NoState => (
            409,
            "ai_state",
            "write [ai] with state = \"/var/lib/weir/ai\" and start the gateway again, or make a table for the file: weir keys new \
             NAME --offline",
        ),
        IssueError::Exists => (409, "key_exists", "choose another name, or rotate or change this key"),
        IssueError::NotFound => (404, "key", "GET /api/v1/ai/keys lists the keys"),
        IssueError::Full | IssueError::TooLarge => {
            (409, "keys_full", "delete keys that no client uses, or give several clients one key")
        }
        IssueError::Texts => (409, "key_texts", "wait until one of them has ended, or rotate without old_until"),
        IssueError::Name | IssueError::Document(_) | IssueError::Past => {
            (400, "key", "/api/v1/openapi.json lists the members of a key")
        }
        IssueError::NoRandomness => (500, "randomness", "check the system: getrandom(2) fails"),
        IssueError::Disk(_) => {
            (503, "disk", "check the directory of [ai] state: space, permissions, and the kernel log")
        }
    };
    Problem::refused(status, kind, format!("key {}: {error}", name.escape_debug()), remedy)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use serde_json::json;
    use weir_admin::status::AiKeyPolicy;

    use super::*;

    #[test]
    fn a_policy_has_the_same_members_here_and_there() {
        let whole = json!({
            "models": ["a"], "models_denied": ["b"], "tools": ["c"], "tools_max": 1,
            "mcp_tools": ["s/t"], "a2a_agents": ["d"], "tool_calls_per_minute": 11, "prompt_bytes_max": 2,
            "output_tokens_max": 3, "sources": ["10.0.0.0/8"], "requests_per_minute": 4, "tokens_per_minute": 5,
            "concurrent_max": 6, "day_tokens": 7, "month_tokens": 8, "day_money": "9", "month_money": "10",
            "cache_ttl": "5m", "cache_sampled": true, "mode": "observe",
        });
        let shown: AiKeyPolicy = serde_json::from_value(whole.clone()).expect("a policy");
        let document: PolicyDocument = transfer(&shown).expect("the same members");
        assert_eq!(
            transfer::<AiKeyPolicy>(&PolicyDocument::of(&document.policy().expect("valid"))).expect("the same"),
            shown
        );
        assert_eq!(serde_json::to_value(&shown).expect("JSON"), whole);
    }

    #[test]
    fn an_order_under_way_ends_before_another_process_reads_the_file_and_none_begins_then() {
        let (orders, is_written) = (KeyOrders::default(), AtomicBool::new(false));
        let (begun, begins) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let order = || {
                orders.carry_out(|| {
                    begun.send(()).expect("it is waited for");
                    // A slow disk.
                    std::thread::sleep(Duration::from_millis(100));
                    is_written.store(true, Ordering::SeqCst);
                })
            };
            let under_way = scope.spawn(order);
            begins.recv().expect("it has begun");
            orders.close();
            assert!(is_written.load(Ordering::SeqCst), "the other process finds it in the file");
            assert_eq!(orders.carry_out(|| ()), None);
            assert_eq!(under_way.join().expect("no panic"), Some(()));
        });
        orders.open();
        assert_eq!(orders.carry_out(|| ()), Some(()));
    }

    #[test]
    fn each_refusal_says_the_next_step_and_no_secret() {
        for error in [IssueError::NoState, IssueError::Exists, IssueError::NotFound, IssueError::Full, IssueError::Past]
        {
            let problem = problem(&error, "a");
            assert!((400..500).contains(&problem.status) && !problem.remedy.is_empty(), "{problem:?}");
        }
        assert!(problem(&IssueError::NoState, "a").remedy.contains("[ai]"));
    }
}
