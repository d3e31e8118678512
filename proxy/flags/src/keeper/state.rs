//! Tokens and flags as the keeper has them, and their publication.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use weir_base::{Time, time::turn};
use weir_flags_session::{Projects, Standing, Token, TokenTable, TokenType, minimal, token_table::Changes};

use super::{Desk, Source, flags::EnvironmentState};
use crate::{
    edge::{View, Watched},
    limits::REVOCATION_HOLD,
};

/// The state of a keeper. Only its worker has it.
#[derive(Default)]
pub(super) struct State {
    pub(super) table: Option<TokenTable>,
    pub(super) environments: BTreeMap<Box<str>, EnvironmentState>,
    /// Backend tokens of clients, for which flags are fetched, too.
    dynamic: Vec<Arc<Token>>,
    /// The projects of the tokens that were to be polled at the last change of the tokens, by environment.
    pub(super) polled: BTreeMap<Box<str>, BTreeSet<Projects>>,
    /// Counts the changes that a backup would have.
    pub(super) generation: u64,
    /// Tokens that the server has revoked in responses to polls, with the time of it.
    revoked: Vec<(Arc<Token>, Time)>,
    /// Tokens of the start that the log has called bad.
    pub(super) noted_bad: Vec<String>,
    /// The backup is of no use: it is that of a server before.
    pub(super) lacks_backup: bool,
    /// The copies of the store are read, or of no use.
    pub(super) is_backup_read: bool,
    /// There were flags of this server.
    pub(super) had_flags: bool,
    /// The generation that the store of backups has. `None`: none of this process.
    pub(super) saved: Option<u64>,
}

impl State {
    /// With the tokens that an operator vouches for, and what is known from the keeper before, unless that one had another server.
    pub(super) fn new(source: &Source, before: Option<(Source, Self)>, seed: u64) -> Self {
        let has_other_server = before
            .as_ref()
            .is_some_and(|(former, _)| matches!(former, Source::Upstream(_)) && !source.shares_state_with(former));
        let before = before.filter(|(former, _)| source.shares_state_with(former));
        let has_same_backup = before.as_ref().is_some_and(|(former, _)| source.shares_backup_with(former));
        let mut before = before.map(|(_, state)| state).unwrap_or_default();
        // The keeper before may have been compiling them.
        before.environments.values_mut().for_each(|one| one.is_dirty = true);
        let mut table = TokenTable::new(seed);
        match source {
            Source::File(file) => {
                file.tokens.iter().for_each(|token| table.trust(token.clone()));
                // The flags of the file before stay until the new one is read.
                Self { table: Some(table), environments: before.environments, ..Self::default() }
            }
            Source::Upstream(upstream) => {
                table = table.with_revalidation(upstream.revalidation_interval);
                upstream.pretrusted.iter().for_each(|token| table.trust(token.clone()));
                if let Some(judged) = &before.table {
                    table = table.with_judged(judged);
                }
                let dynamic = if upstream.is_dynamic { before.dynamic } else { Vec::new() };
                Self {
                    table: Some(table),
                    environments: before.environments,
                    dynamic,
                    polled: BTreeMap::new(),
                    generation: before.generation,
                    revoked: before.revoked,
                    noted_bad: Vec::new(),
                    is_backup_read: has_same_backup && before.is_backup_read,
                    had_flags: before.had_flags,
                    saved: before.saved.filter(|_| has_same_backup),
                    lacks_backup: has_other_server || before.lacks_backup,
                }
            }
        }
    }

    /// The tokens.
    pub(super) fn tokens(&mut self) -> &mut TokenTable {
        self.table.get_or_insert_with(|| TokenTable::new(0))
    }

    /// Makes a token bad that the server does not know any more.
    pub(super) fn revoke(&mut self, token: &Arc<Token>) -> Changes {
        let now = turn::now();
        self.revoked.retain(|(other, at)| other.secret() != token.secret() && now.since(*at) < REVOCATION_HOLD);
        self.revoked.push((token.clone(), now));
        self.tokens().revoke(token.secret().expose_str().unwrap_or_default(), now)
    }

    /// Whether the server has revoked a token of late.
    pub(super) fn is_revoked(&self, text: &[u8]) -> bool {
        let now = turn::now();
        let mut revoked = self.revoked.iter();
        revoked.any(|(other, at)| other.secret().matches(text) && now.since(*at) < REVOCATION_HOLD)
    }

    /// Whether the server has revoked any token of late.
    pub(super) fn has_revoked(&self) -> bool {
        self.revoked.iter().any(|(_, at)| turn::now().since(*at) < REVOCATION_HOLD)
    }

    fn standing<'a>(table: &'a TokenTable, token: &Token) -> Standing<'a> {
        table.find(token.secret().expose_str().unwrap_or_default(), turn::now())
    }
}

impl Desk {
    /// Has requests and streams see the present state.
    pub(super) fn publish(&self) {
        self.publish_to(Watched::Flags);
    }

    /// The same, and wakes only those that watch this part of it.
    pub(super) fn publish_to(&self, changed: Watched) {
        if self.is_over.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        if changed == Watched::Flags {
            // A backup has the published flags.
            state.generation += 1;
        }
        let table = state.tokens().for_readers();
        let (sources, awaits_sources) = self.sources(&state);
        let built = state.environments.iter().filter_map(|(name, one)| Some((name.clone(), one.built.clone()?)));
        let environments = built.collect();
        let is_offline = matches!(self.source, Source::File(_));
        let view = View { tokens: table, is_offline, sources, awaits_sources, environments };
        self.edge.counts.keep_environments(|name| view.knows(name) || state.environments.contains_key(name));
        self.edge.publish(view, changed);
    }

    /// The backend tokens that are valid, and whether there may be more soon.
    fn sources(&self, state: &State) -> (Vec<Arc<Token>>, bool) {
        let (Source::Upstream(source), Some(table)) = (&self.source, &state.table) else { return (Vec::new(), false) };
        let (mut valid, mut awaits) = (Vec::new(), false);
        for token in source.tokens.iter().chain(state.dynamic.iter().map(|token| &**token)) {
            match State::standing(table, token) {
                Standing::Valid(known) if known.kind() != Some(TokenType::Frontend) => valid.push(known.clone()),
                Standing::Valid(_) | Standing::Invalid => {}
                Standing::Unknown => awaits = true,
            }
        }
        (valid, awaits)
    }

    /// The tokens to poll with: the fewest that see everything. They are compared with each other.
    pub(super) fn polled_tokens(&self) -> Vec<Arc<Token>> {
        fewest(self.sources(&self.state.borrow()).0)
    }

    /// The same of one environment. Also whether there may be more soon.
    pub(super) fn polled_tokens_of(&self, environment: &str) -> (Vec<Arc<Token>>, bool) {
        let (mut sources, awaits) = self.sources(&self.state.borrow());
        sources.retain(|token| token.environment() == Some(environment));
        (fewest(sources), awaits)
    }

    /// Notes the tokens that are polled from now on.
    pub(super) fn note_polled(&self, tokens: &[Arc<Token>]) {
        let mut polled: BTreeMap<Box<str>, BTreeSet<Projects>> = BTreeMap::new();
        for token in tokens {
            let environment = token.environment().unwrap_or_default();
            polled.entry(environment.into()).or_default().insert(token.projects().clone());
        }
        self.state.borrow_mut().polled = polled;
    }

    /// Takes the consequences of a verdict on tokens.
    pub(super) fn on_changes(&self, changes: &Changes) {
        for token in &changes.removed {
            tracing::warn!(%token, "the server does not know a token any more, or has changed its rights");
        }
        let Source::Upstream(source) = &self.source else { return };
        if self.is_over.get() {
            return;
        }
        let mut changed = if changes.removed.is_empty() { Watched::Verdicts } else { Watched::Flags };
        {
            let mut state = self.state.borrow_mut();
            if *changes != Changes::default() {
                state.generation += 1;
            }
            if source.is_dynamic {
                let backend = changes.added.iter().filter(|token| token.kind() == Some(TokenType::Backend));
                let added: Vec<Arc<Token>> = backend.cloned().collect();
                let judged = added.iter().chain(&changes.removed);
                state.dynamic.retain(|known| judged.clone().all(|token| token.secret() != known.secret()));
                state.dynamic.extend(added);
            }
            let (sources, awaits) = self.sources(&state);
            // The flags of an environment without a token have no reader, once that is certain. A backup may have some.
            if !awaits {
                let has_source = |name: &str| sources.iter().any(|token| token.environment() == Some(name));
                state.environments.retain(|name, _| has_source(name));
            }
            let before = self.edge.view();
            if before.sources != sources || before.environments.len() != state.environments.len() {
                changed = Watched::Flags;
            }
        }
        self.publish_to(changed);
        self.has_other_sources.notify();
    }

    /// Forgets those of these environments, and of the environments of the tokens of the start, that certainly have no source any more. Others stay:
    /// a backup of flags alone names no token, and is of use until the first verdict.
    pub(super) fn forget_unsourced(&self, environments: &BTreeSet<String>) {
        let Source::Upstream(source) = &self.source else { return };
        let mut state = self.state.borrow_mut();
        let (sources, awaits) = self.sources(&state);
        let has_source = |name: &str| sources.iter().any(|token| token.environment() == Some(name));
        let is_of_start = |name: &str| source.tokens.iter().any(|token| token.environment() == Some(name));
        if !awaits {
            let is_claimed = |name: &str| environments.contains(name) || is_of_start(name);
            state.environments.retain(|name, _| has_source(name) || !is_claimed(name));
        }
    }

    /// Takes the tokens of a backup.
    pub(super) fn restore_tokens(&self, tokens: Vec<Token>) {
        let mut state = self.state.borrow_mut();
        let is_dynamic = matches!(&self.source, Source::Upstream(source) if source.is_dynamic);
        for token in tokens {
            // The server may have refused it since the backup was written.
            let is_bad = state.is_revoked(token.secret().expose())
                || State::standing(state.tokens(), &token) == Standing::Invalid;
            if is_bad {
                continue;
            }
            let is_new = state.dynamic.iter().all(|known| known.secret() != token.secret());
            if is_dynamic && is_new && token.kind() == Some(TokenType::Backend) {
                state.dynamic.push(Arc::new(token.clone()));
            }
            state.tokens().restore(token);
        }
    }
}

/// The fewest of the tokens that see everything.
fn fewest(tokens: Vec<Arc<Token>>) -> Vec<Arc<Token>> {
    let all: Vec<&Token> = tokens.iter().map(|token| &**token).collect();
    let fewest = minimal(&all);
    let is_needed = |token: &&Arc<Token>| fewest.iter().any(|one| std::ptr::eq(*one, &***token));
    tokens.iter().filter(is_needed).cloned().collect()
}
