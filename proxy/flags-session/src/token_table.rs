//! The tokens that a gateway knows, good and bad, and those that its upstream is to validate.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use weir_base::{Secret, Time};
use weir_flags_codec::tokens::{TokensToValidate, ValidatedTokens};

use crate::limits::{
    TOKEN_BATCH_INTERVAL, TOKEN_REVALIDATION_INTERVAL, TOKENS_INVALID_MAX, TOKENS_INVALID_TTL, TOKENS_PENDING_MAX,
};
use crate::token::Token;

/// Tokens with what is known of them.
///
/// One thread owns the table, and workers read copies of it; a copy shares the tokens. For a token that is not known a worker refuses the
/// request for now and has the owner call [`want`](Self::want). The owner sends [`next_batch`](Self::next_batch) to the upstream, one at a time,
/// and hands the answer to [`on_answer`](Self::on_answer). Only a definite answer makes a token good or bad: SDKs that get a 403 give up for ever.
#[derive(Clone, Debug)]
pub struct TokenTable {
    /// The seed of the hash: strangers cannot choose texts of one hash.
    seed: u64,
    revalidation: Duration,
    entries: HashMap<u64, Vec<Entry>>,
    /// Hashes of bad tokens, from the oldest.
    invalid: VecDeque<(u64, Arc<Secret>)>,
    pending: Vec<Arc<Secret>>,
    last_batch: Option<Time>,
    is_in_flight: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    /// As a request has it.
    secret: Arc<Secret>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// `validated`: the last time, or zero if the next batch is to have it; an operator's is never validated.
    Valid {
        token: Arc<Token>,
        validated: Option<Time>,
    },
    Invalid {
        since: Time,
    },
}

/// The knowledge of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// The upstream or an operator has named its rights.
    Valid(&'a Arc<Token>),
    /// The upstream does not know it: the response is a 403.
    Invalid,
    /// The upstream has not answered yet: the response is a 503 with `Retry-After`.
    Unknown,
}

/// The tokens that an answer has changed.
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
            entries: HashMap::new(),
            invalid: VecDeque::new(),
            pending: Vec::new(),
            last_batch: None,
            is_in_flight: false,
        }
    }

    /// The same with another time after which a good token is validated again.
    #[must_use]
    pub fn with_revalidation(self, revalidation: Duration) -> Self {
        Self { revalidation, ..self }
    }

    /// The same with the tokens that the upstream has judged in another table. Those that an operator vouches for stay behind: the
    /// operator may have removed them.
    #[must_use]
    pub fn with_judged(mut self, other: &Self) -> Self {
        for entry in other.entries.values().flatten() {
            let is_judged = match &entry.state {
                State::Valid { validated, .. } => validated.is_some(),
                State::Invalid { .. } => true,
            };
            let hash = self.hash(entry.secret.expose());
            let is_known =
                self.entries.get(&hash).is_some_and(|list| list.iter().any(|own| own.secret == entry.secret));
            if !is_judged || is_known {
                continue;
            }
            if matches!(entry.state, State::Invalid { .. }) {
                self.invalid.push_back((hash, entry.secret.clone()));
            }
            self.set(hash, entry.clone());
        }
        self
    }

    /// Adds a token that the upstream has validated at a time that is not known, in another process for example. It is good meanwhile,
    /// and the next batch has it.
    pub fn restore(&mut self, token: Token) {
        let (hash, secret) = (self.hash(token.secret().expose()), Arc::new(token.secret().clone()));
        if self.entries.get(&hash).is_none_or(|list| list.iter().all(|own| own.secret != secret)) {
            let state = State::Valid { token: Arc::new(token), validated: Some(Time::ZERO) };
            self.set(hash, Entry { secret, state });
        }
    }

    /// Has a good token validated with the next batch, whatever its time: the upstream has refused a request with it. A bad one becomes
    /// unknown. A token that an operator vouches for stays good.
    pub fn doubt(&mut self, text: &str) {
        let text = text.trim();
        let hash = self.hash(text.as_bytes());
        let Some(list) = self.entries.get_mut(&hash) else { return };
        for entry in list.iter_mut().filter(|entry| entry.secret.matches(text.as_bytes())) {
            if let State::Valid { validated: Some(validated), .. } = &mut entry.state {
                *validated = Time::ZERO;
            }
        }
        list.retain(|entry| !(entry.secret.matches(text.as_bytes()) && matches!(entry.state, State::Invalid { .. })));
        if list.is_empty() {
            self.entries.remove(&hash);
        }
    }

    /// Whether a token waits to be validated, or is being validated.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds a token that an operator vouches for.
    pub fn trust(&mut self, token: Token) {
        let (hash, secret) = (self.hash(token.secret().expose()), Arc::new(token.secret().clone()));
        self.set(hash, Entry { secret, state: State::Valid { token: Arc::new(token), validated: None } });
    }

    /// The knowledge of the token of a request.
    pub fn find(&self, text: &str, now: Time) -> Standing<'_> {
        let text = text.trim();
        match self.entry(self.hash(text.as_bytes()), text).map(|entry| &entry.state) {
            Some(State::Valid { token, .. }) => Standing::Valid(token),
            Some(State::Invalid { since }) if now.since(*since) < TOKENS_INVALID_TTL => Standing::Invalid,
            _ => Standing::Unknown,
        }
    }

    /// Has a token validated with the next batch. False: the table has no room, and the request is to come again.
    pub fn want(&mut self, text: &str, now: Time) -> bool {
        let text = text.trim();
        let is_known = self.find(text, now) != Standing::Unknown;
        if is_known || self.pending.iter().any(|secret| secret.matches(text.as_bytes())) {
            return true;
        }
        let has_room = self.pending.len() < TOKENS_PENDING_MAX;
        if has_room {
            self.pending.push(Arc::new(text.into()));
        }
        has_room
    }

    /// The next tokens to validate: new ones, and good ones whose time has come. At most one batch per second is on its way.
    pub fn next_batch(&mut self, now: Time) -> Option<TokensToValidate> {
        let is_early = self.last_batch.is_some_and(|last| now.since(last) < TOKEN_BATCH_INTERVAL);
        if self.is_in_flight || is_early {
            return None;
        }
        let is_due = |validated: Option<Time>| {
            validated.is_some_and(|validated| validated == Time::ZERO || now.since(validated) >= self.revalidation)
        };
        let due = self.entries.values().flatten().filter_map(|entry| match entry.state {
            State::Valid { validated, .. } if is_due(validated) => Some(&entry.secret),
            _ => None,
        });
        let texts = self.pending.iter().chain(due).take(TOKENS_PENDING_MAX);
        let tokens: Vec<String> = texts.filter_map(|secret| secret.expose_str().map(str::to_owned)).collect();
        if tokens.is_empty() {
            return None;
        }
        (self.is_in_flight, self.last_batch) = (true, Some(now));
        Some(TokensToValidate { tokens })
    }

    /// The time until a good token is to be validated again. `None`: there is none.
    pub fn due_in(&self, now: Time) -> Option<Duration> {
        let left = |entry: &Entry| match entry.state {
            State::Valid { validated: Some(Time::ZERO), .. } => Some(Duration::ZERO),
            State::Valid { validated: Some(validated), .. } => {
                Some(self.revalidation.saturating_sub(now.since(validated)))
            }
            State::Valid { validated: None, .. } | State::Invalid { .. } => None,
        };
        self.entries.values().flatten().filter_map(left).min()
    }

    /// Takes the answer to a batch. Tokens that it lacks, or whose rights have no meaning, are bad.
    pub fn on_answer(&mut self, batch: &TokensToValidate, answer: &ValidatedTokens, now: Time) -> Changes {
        self.is_in_flight = false;
        let mut changes = Changes::default();
        for text in &batch.tokens {
            let named = answer.tokens.iter().find(|token| token.token == *text && is_good(token.status.as_deref()));
            let token = named.and_then(|named| Token::validated(named).ok()).map(Arc::new);
            self.pending.retain(|secret| !secret.matches(text.as_bytes()));
            let hash = self.hash(text.as_bytes());
            let before = self.entry(hash, text).and_then(|entry| match &entry.state {
                State::Valid { token, .. } => Some(token.clone()),
                State::Invalid { .. } => None,
            });
            if before != token {
                changes.removed.extend(before);
                changes.added.extend(token.clone());
            }
            let secret: Arc<Secret> = Arc::new(text.as_str().into());
            let state = match token {
                Some(token) => State::Valid { token, validated: Some(now) },
                None => State::Invalid { since: now },
            };
            if matches!(state, State::Invalid { .. }) {
                self.invalid.push_back((hash, secret.clone()));
            }
            self.set(hash, Entry { secret, state });
        }
        self.forget_invalid(now);
        changes
    }

    /// The batch has no answer, or one that says nothing about its tokens. It goes with the next.
    pub const fn on_failure(&mut self) {
        self.is_in_flight = false;
    }

    /// The good tokens.
    pub fn valid(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.entries.values().flatten().filter_map(|entry| match &entry.state {
            State::Valid { token, .. } => Some(token),
            State::Invalid { .. } => None,
        })
    }

    /// The good tokens that the upstream has validated, without those that an operator vouches for.
    pub fn judged(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.entries.values().flatten().filter_map(|entry| match &entry.state {
            State::Valid { token, validated: Some(_) } => Some(token),
            State::Valid { validated: None, .. } | State::Invalid { .. } => None,
        })
    }

    /// The number of bad tokens that are remembered.
    pub fn invalid_count(&self) -> usize {
        self.invalid.len()
    }

    /// Forgets bad tokens that are too old or too many.
    fn forget_invalid(&mut self, now: Time) {
        while let Some((hash, secret)) = self.invalid.front() {
            let text = secret.expose();
            let entries = self.entries.get_mut(hash);
            let found = entries.as_ref().and_then(|list| list.iter().position(|entry| entry.secret.matches(text)));
            let state = found.zip(entries.as_ref()).map(|(at, list)| &list[at].state);
            let is_old = match state {
                Some(State::Invalid { since }) => now.since(*since) >= TOKENS_INVALID_TTL,
                // It has become good, or a later mark of it is in the queue.
                _ => true,
            };
            if !is_old && self.invalid.len() <= TOKENS_INVALID_MAX {
                break;
            }
            if matches!(state, Some(State::Invalid { .. }))
                && let Some((at, list)) = found.zip(entries)
            {
                list.swap_remove(at);
                if list.is_empty() {
                    self.entries.remove(hash);
                }
            }
            self.invalid.pop_front();
        }
    }

    fn entry(&self, hash: u64, text: &str) -> Option<&Entry> {
        self.entries.get(&hash)?.iter().find(|entry| entry.secret.matches(text.as_bytes()))
    }

    fn set(&mut self, hash: u64, entry: Entry) {
        let list = self.entries.entry(hash).or_default();
        list.retain(|other| other.secret != entry.secret);
        list.push(entry);
    }

    /// Tokens of one hash are compared in constant time.
    fn hash(&self, text: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(text);
        hasher.finish()
    }
}

fn is_good(status: Option<&str>) -> bool {
    status.is_none_or(|status| ["validated", "trusted"].iter().any(|good| good.eq_ignore_ascii_case(status)))
}

const _: () = assert!(TOKENS_PENDING_MAX <= weir_flags_codec::limits::TOKENS_MAX);
const _: () = assert!(TOKEN_BATCH_INTERVAL.as_secs() < TOKENS_INVALID_TTL.as_secs());
