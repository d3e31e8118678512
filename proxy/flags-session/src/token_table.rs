//! The tokens that a gateway knows, good and bad, and those that its upstream is to validate.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use weir_base::{Secret, Time};
use weir_flags_codec::tokens::{TokensToValidate, ValidatedToken, ValidatedTokens};

use crate::limits::{
    TOKEN_BATCH_INTERVAL, TOKEN_FAILURES_MAX, TOKEN_REVALIDATION_INTERVAL, TOKEN_SETBACK, TOKENS_BATCH_BYTES_MAX,
    TOKENS_INVALID_MAX, TOKENS_INVALID_TTL, TOKENS_PENDING_MAX,
};
use crate::token::Token;

/// Tokens with what is known of them.
///
/// One thread owns the table, and workers read copies of it; a copy shares the good tokens. For a token that is not known a worker refuses the
/// request for now and has the owner call [`want`](Self::want). The owner sends [`next_batch`](Self::next_batch) to the upstream, one at a time,
/// and hands the response to [`on_verdict`](Self::on_verdict). Only a definite response makes a token good or bad: SDKs that get a 403 give up for
/// ever.
///
/// The table keeps the hash alone of a bad token: strangers make most of them up, and each publication copies all. The seed is random, so a
/// stranger does not find two texts of one hash.
#[derive(Clone)]
pub struct TokenTable {
    /// The seed of the hash: strangers cannot choose texts of one hash.
    seed: u64,
    revalidation: Duration,
    good: HashMap<u64, Vec<Good>>,
    /// The times of the verdicts.
    bad: HashMap<u64, Time>,
    /// The same from the oldest. Marks of tokens that are no longer bad since then have no meaning.
    marks: VecDeque<(u64, Time)>,
    /// From the oldest.
    pending: VecDeque<Pending>,
    pending_hashes: HashSet<u64>,
    last_batch: Option<Time>,
    /// The hashes of the batch on its way.
    in_flight: Vec<u64>,
    /// Tokens of the next batch. It shrinks with each failure, since one token may be the cause.
    batch_tokens_max: usize,
}

/// A token that waits for a verdict.
#[derive(Clone)]
struct Pending {
    hash: u64,
    secret: Arc<Secret>,
    /// Batches of it alone that have failed.
    failures: u32,
}

#[derive(Clone)]
struct Good {
    /// As a request has it.
    secret: Arc<Secret>,
    token: Arc<Token>,
    /// The last time, or zero if the next batch is to have it. `None`: an operator vouches for it, and it is never validated.
    validated: Option<Time>,
    /// The last batch of it alone that has failed since then.
    failed: Option<Time>,
}

/// Numbers alone: texts of tokens are secrets.
impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenTable({} good, {} bad, {} pending)", self.good.len(), self.bad.len(), self.pending.len())
    }
}

/// The knowledge of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// The upstream or an operator has named its rights.
    Valid(&'a Arc<Token>),
    /// The upstream does not know it: the response is a 403.
    Invalid,
    /// The upstream has not responded yet: the response is a 503 with `Retry-After`.
    Unknown,
}

/// The tokens that a verdict has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Tokens that are good now and were not, or have other rights.
    pub added: Vec<Arc<Token>>,
    /// Tokens that were good, or had other rights. Streams with them end.
    pub removed: Vec<Arc<Token>>,
}

impl TokenTable {
    /// A table without tokens. `seed` is random.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            revalidation: TOKEN_REVALIDATION_INTERVAL,
            good: HashMap::new(),
            bad: HashMap::new(),
            marks: VecDeque::new(),
            pending: VecDeque::new(),
            pending_hashes: HashSet::new(),
            last_batch: None,
            in_flight: Vec::new(),
            batch_tokens_max: TOKENS_PENDING_MAX,
        }
    }

    /// The same with another time after which a good token is validated again.
    #[must_use]
    pub fn with_revalidation(self, revalidation: Duration) -> Self {
        Self { revalidation, ..self }
    }

    /// The same with the tokens that the upstream has judged in another table, and with its seed. Those that an operator vouches for stay behind:
    /// the operator may have removed them.
    #[must_use]
    pub fn with_judged(self, other: &Self) -> Self {
        let own = self.good.into_values().flatten();
        let mut table = Self { seed: other.seed, good: HashMap::new(), ..self };
        for good in own {
            table.set(table.hash(good.secret.expose()), good);
        }
        for good in other.good.values().flatten().filter(|good| good.validated.is_some()) {
            table.add(good.clone());
        }
        for (hash, since) in other.marks.iter().filter(|(hash, since)| other.bad.get(hash) == Some(since)) {
            if !table.good.contains_key(hash) {
                table.bad.insert(*hash, *since);
                table.marks.push_back((*hash, *since));
            }
        }
        table
    }

    /// A copy for those who only look tokens up.
    #[must_use]
    pub fn for_readers(&self) -> Self {
        let (good, bad) = (self.good.clone(), self.bad.clone());
        Self { good, bad, ..Self::new(self.seed) }
    }

    /// Adds a token that the upstream has validated at a time that is not known, in another process for example. It is good meanwhile,
    /// and the next batch has it.
    pub fn restore(&mut self, token: Token) {
        let secret = Arc::new(token.secret().clone());
        self.add(Good { secret, token: Arc::new(token), validated: Some(Time::ZERO), failed: None });
    }

    /// Has a good token validated with the next batch, whatever its time: the upstream has refused a request with it. A bad one becomes
    /// unknown. A token that an operator vouches for stays good.
    pub fn doubt(&mut self, text: &str) {
        let text = text.trim();
        let hash = self.hash(text.as_bytes());
        self.bad.remove(&hash);
        for good in self.good.get_mut(&hash).into_iter().flatten().filter(|good| good.secret.matches(text.as_bytes())) {
            good.validated = good.validated.map(|_| Time::ZERO);
        }
    }

    /// Makes a good token bad: the upstream has said in its own words that it does not know it. A token that an operator vouches for stays good.
    pub fn revoke(&mut self, text: &str, now: Time) -> Changes {
        let text = text.trim();
        let is_judged = self.good(self.hash(text.as_bytes()), text).is_some_and(|good| good.validated.is_some());
        if !is_judged {
            return Changes::default();
        }
        let batch = TokensToValidate { tokens: vec![text.to_owned()] };
        self.judge(&batch, &ValidatedTokens::default(), now)
    }

    /// Whether a token waits to be validated, or is being validated.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds a token that an operator vouches for.
    pub fn trust(&mut self, token: Token) {
        let secret = Arc::new(token.secret().clone());
        self.set(self.hash(secret.expose()), Good { secret, token: Arc::new(token), validated: None, failed: None });
    }

    /// The knowledge of the token of a request.
    pub fn find(&self, text: &str, now: Time) -> Standing<'_> {
        let text = text.trim();
        let hash = self.hash(text.as_bytes());
        match (self.good(hash, text), self.bad.get(&hash)) {
            (Some(good), _) => Standing::Valid(&good.token),
            (None, Some(since)) if now.since(*since) < TOKENS_INVALID_TTL => Standing::Invalid,
            _ => Standing::Unknown,
        }
    }

    /// Has a token validated with the next batch. False: it does not wait, because it is known or the table has no room.
    pub fn want(&mut self, text: &str, now: Time) -> bool {
        let text = text.trim();
        let hash = self.hash(text.as_bytes());
        if self.pending_hashes.contains(&hash) {
            return true;
        }
        let is_wanted = self.find(text, now) == Standing::Unknown && self.pending.len() < TOKENS_PENDING_MAX;
        if is_wanted {
            self.pending.push_back(Pending { hash, secret: Arc::new(text.into()), failures: 0 });
            self.pending_hashes.insert(hash);
        }
        is_wanted
    }

    /// The next tokens to validate: good ones whose time has come, and new ones. At most one batch per second is on its way. A flood of new ones
    /// cannot keep good ones from being validated again. After a failure it has half of the tokens.
    pub fn next_batch(&mut self, now: Time) -> Option<TokensToValidate> {
        let is_early = self.last_batch.is_some_and(|last| now.since(last) < TOKEN_BATCH_INTERVAL);
        if !self.in_flight.is_empty() || is_early {
            return None;
        }
        let (mut tokens, mut hashes, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (hash, secret) in self.in_turn(now).take(self.batch_tokens_max) {
            let Some(text) = secret.expose_str() else { continue };
            bytes += json_bytes(text);
            // One token goes in any case: it would wait for ever.
            if bytes > TOKENS_BATCH_BYTES_MAX && !tokens.is_empty() {
                break;
            }
            tokens.push(text.to_owned());
            hashes.push(hash);
        }
        if tokens.is_empty() {
            return None;
        }
        (self.in_flight, self.last_batch) = (hashes, Some(now));
        Some(TokensToValidate { tokens })
    }

    /// The tokens to validate with their hashes, in the order of their turns. Good ones come before new ones, except those that were set back.
    fn in_turn(&self, now: Time) -> impl Iterator<Item = (u64, &Arc<Secret>)> {
        let good = self.good.iter().flat_map(|(hash, list)| list.iter().map(|good| (*hash, good)));
        let due = good.filter(|(_, good)| self.left(good, now) == Some(Duration::ZERO));
        let is_set_back = |good: &Good| good.failed.is_some_and(|failed| now.since(failed) < TOKEN_SETBACK);
        let (mut last, first): (Vec<_>, Vec<_>) = due.partition(|(_, good)| is_set_back(good));
        last.sort_by_key(|(_, good)| good.failed);
        let first = first.into_iter().map(|(hash, good)| (hash, &good.secret));
        let last = last.into_iter().map(|(hash, good)| (hash, &good.secret));
        let pending = self.pending.iter().map(|token| (token.hash, &token.secret));
        first.chain(pending).chain(last)
    }

    /// The time until a good token is to be validated again. `None`: there is none.
    pub fn due_in(&self, now: Time) -> Option<Duration> {
        self.good.values().flatten().filter_map(|good| self.left(good, now)).min()
    }

    /// The time until a token is to be validated again. `None`: it never is.
    fn left(&self, good: &Good, now: Time) -> Option<Duration> {
        let validated = good.validated?;
        Some(match validated == Time::ZERO {
            true => Duration::ZERO,
            false => self.revalidation.saturating_sub(now.since(validated)),
        })
    }

    /// Takes the verdict on a batch. Tokens that it lacks, or whose rights have no meaning, are bad.
    pub fn on_verdict(&mut self, batch: &TokensToValidate, verdict: &ValidatedTokens, now: Time) -> Changes {
        self.in_flight.clear();
        self.batch_tokens_max = TOKENS_PENDING_MAX;
        self.judge(batch, verdict, now)
    }

    fn judge(&mut self, batch: &TokensToValidate, verdict: &ValidatedTokens, now: Time) -> Changes {
        let named = verdict.tokens.iter().filter(|token| is_good(token.status.as_deref()));
        let named: HashMap<&str, &ValidatedToken> = named.rev().map(|token| (&*token.token, token)).collect();
        let mut changes = Changes::default();
        let mut judged = HashSet::with_capacity(batch.tokens.len());
        for text in &batch.tokens {
            let token = named.get(&**text).and_then(|named| Token::validated(named).ok()).map(Arc::new);
            let hash = self.hash(text.as_bytes());
            judged.insert(hash);
            let before = self.good(hash, text).map(|good| good.token.clone());
            if before != token {
                changes.removed.extend(before);
                changes.added.extend(token.clone());
            }
            self.forget_good(hash, text);
            match token {
                Some(token) => {
                    self.bad.remove(&hash);
                    let secret = Arc::new(text.as_str().into());
                    self.set(hash, Good { secret, token, validated: Some(now), failed: None });
                }
                None => {
                    self.bad.insert(hash, now);
                    self.marks.push_back((hash, now));
                }
            }
        }
        self.pending.retain(|token| !judged.contains(&token.hash));
        self.pending_hashes.retain(|hash| !judged.contains(hash));
        self.forget_bad(now);
        changes
    }

    /// The batch has no response, or one that says nothing about its tokens. They wait for the next batches, which are smaller until a verdict
    /// comes. A token that fails alone lets the others pass: the server may choke on it. Returns a new one that has failed so too often: it waits no
    /// longer, and a client may send it again.
    pub fn on_failure(&mut self) -> Option<String> {
        let batch = std::mem::take(&mut self.in_flight);
        if batch.is_empty() {
            return None;
        }
        self.batch_tokens_max = (batch.len() / 2).max(1);
        let [hash] = *batch else { return None };
        self.good.get_mut(&hash).into_iter().flatten().for_each(|good| good.failed = self.last_batch);
        let at = self.pending.iter().position(|token| token.hash == hash)?;
        let mut token = self.pending.remove(at)?;
        token.failures += 1;
        if token.failures < TOKEN_FAILURES_MAX {
            self.pending.push_back(token);
            return None;
        }
        self.pending_hashes.remove(&hash);
        token.secret.expose_str().map(str::to_owned)
    }

    /// The good tokens.
    pub fn valid(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.good.values().flatten().map(|good| &good.token)
    }

    /// The good tokens that the upstream has validated, without those that an operator vouches for.
    pub fn judged(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.good.values().flatten().filter(|good| good.validated.is_some()).map(|good| &good.token)
    }

    /// The number of bad tokens that are remembered.
    pub fn invalid_count(&self) -> usize {
        self.bad.len()
    }

    /// Forgets bad tokens that are too old or too many.
    fn forget_bad(&mut self, now: Time) {
        while let Some((hash, since)) = self.marks.front().copied() {
            let is_current = self.bad.get(&hash) == Some(&since);
            let is_old = now.since(since) >= TOKENS_INVALID_TTL;
            if is_current && !is_old && self.bad.len() <= TOKENS_INVALID_MAX {
                break;
            }
            if is_current {
                self.bad.remove(&hash);
            }
            self.marks.pop_front();
        }
    }

    fn good(&self, hash: u64, text: &str) -> Option<&Good> {
        self.good.get(&hash)?.iter().find(|good| good.secret.matches(text.as_bytes()))
    }

    fn forget_good(&mut self, hash: u64, text: &str) {
        let Some(list) = self.good.get_mut(&hash) else { return };
        list.retain(|good| !good.secret.matches(text.as_bytes()));
        if list.is_empty() {
            self.good.remove(&hash);
        }
    }

    /// Adds a token, unless it is known as good.
    fn add(&mut self, good: Good) {
        let hash = self.hash(good.secret.expose());
        if self.good.get(&hash).is_none_or(|list| list.iter().all(|own| own.secret != good.secret)) {
            self.set(hash, good);
        }
    }

    fn set(&mut self, hash: u64, good: Good) {
        let list = self.good.entry(hash).or_default();
        list.retain(|other| other.secret != good.secret);
        list.push(good);
    }

    /// Tokens of one hash are compared in constant time.
    fn hash(&self, text: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(text);
        hasher.finish()
    }
}

/// The bytes of a token in a body, with its quotes, its escapes and a comma.
fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(text.len(), |json| json.len() + 1)
}

fn is_good(status: Option<&str>) -> bool {
    status.is_none_or(|status| ["validated", "trusted"].iter().any(|good| good.eq_ignore_ascii_case(status)))
}

const _: () = assert!(TOKENS_PENDING_MAX <= weir_flags_codec::limits::TOKENS_MAX);
const _: () = assert!(TOKEN_BATCH_INTERVAL.as_secs() < TOKENS_INVALID_TTL.as_secs());
