//! The flags of environments as the keeper has them, and their changes.

use std::{io, sync::Arc};

use weir_engine::run_blocking;
use weir_flags_codec::{DeltaEvent, FeaturesDocument, text_bytes};
use weir_flags_session::{FlagState, History, Projects, Refused, first_own_revision};

use super::Desk;
use crate::{edge::seed, environment::Environment, limits::READ_AT_ONCE_MAX};

/// The flags of an environment.
pub(super) struct EnvironmentState {
    /// Shared with the thread that compiles them, and with one that changes a copy.
    pub(super) flags: Arc<FlagState>,
    pub(super) history: History,
    /// The snapshot lacks the last changes.
    pub(super) is_dirty: bool,
    pub(super) built: Option<Arc<Environment>>,
}

impl EnvironmentState {
    fn new() -> Self {
        Self { flags: Arc::new(no_flags()), history: History::default(), is_dirty: false, built: None }
    }
}

fn no_flags() -> FlagState {
    FlagState::new(first_own_revision(seed()))
}

/// The events of a change.
type Changed = Result<Vec<DeltaEvent>, Refused>;

impl Desk {
    /// Takes the flags that a token sees. True: there are other ones than before.
    ///
    /// # Errors
    /// The thread that compared them has panicked. Otherwise they are taken or refused.
    pub(super) async fn take_document(
        &self,
        environment: &str,
        scope: &Projects,
        document: FeaturesDocument,
    ) -> io::Result<Result<bool, Refused>> {
        if text_bytes(&document.features, &document.segments) <= READ_AT_ONCE_MAX {
            return Ok(self.change(environment, |flags| flags.apply_document(scope, document)));
        }
        let scope = scope.clone();
        self.change_off_worker(environment, move |flags| flags.apply_document(&scope, document.clone())).await
    }

    /// Takes the flags of a backup, unless the server has shown some meanwhile.
    ///
    /// # Errors
    /// The thread that compared them has panicked. Otherwise they are taken or refused.
    pub(super) async fn restore(
        &self,
        environment: &str,
        document: FeaturesDocument,
    ) -> io::Result<Result<bool, Refused>> {
        let restore = move |flags: &mut FlagState| match flags.revision() {
            0 => flags.restore(document.clone()),
            _ => Ok(Vec::new()),
        };
        self.change_off_worker(environment, restore).await
    }

    /// Takes changes of the flags that a token sees.
    ///
    /// # Errors
    /// The thread that compared them has panicked. Otherwise they are taken or refused.
    pub(super) async fn take_events(
        &self,
        environment: &str,
        scope: &Projects,
        events: Vec<DeltaEvent>,
    ) -> io::Result<Result<bool, Refused>> {
        if events.iter().map(DeltaEvent::text_bytes).sum::<usize>() <= READ_AT_ONCE_MAX {
            return Ok(self.take_few_events(environment, scope, events));
        }
        let (scope, is_only_source) = (scope.clone(), self.has_one_source(environment));
        let apply = move |flags: &mut FlagState| flags.apply_events(&scope, events.clone(), is_only_source);
        self.change_off_worker(environment, apply).await
    }

    /// The same at once, for events with little in them.
    pub(super) fn take_few_events(
        &self,
        environment: &str,
        scope: &Projects,
        events: Vec<DeltaEvent>,
    ) -> Result<bool, Refused> {
        let is_only_source = self.has_one_source(environment);
        self.change(environment, |flags| flags.apply_events(scope, events, is_only_source))
    }

    /// Whether one token feeds an environment.
    fn has_one_source(&self, environment: &str) -> bool {
        let (polled, _) = self.polled_tokens_of(environment);
        polled.len() == 1
    }

    /// Forgets flags and segments that no token sees with which flags are fetched: they are those of a token that is gone. Nothing is forgotten
    /// while a token has no verdict, or has not shown its own flags.
    pub(super) fn forget_unseen(&self, environment: &str) {
        // After each poll, so the tokens are not compared with each other unless something may be unseen.
        if !self.may_have_unseen(environment) {
            return;
        }
        let (polled, awaits) = self.polled_tokens_of(environment);
        let scopes: Vec<&Projects> = polled.iter().map(|token| token.projects()).collect();
        let is_due = !awaits && self.flags(environment).is_some_and(|flags| flags.has_unseen(&scopes));
        if is_due && self.change(environment, |flags| Ok(flags.keep_scopes(&scopes))) == Ok(true) {
            tracing::info!(environment, "flags that no token of `tokens` sees any more are forgotten");
        }
    }

    /// Whether flags may be there that none of the tokens sees that were to be polled at the last change of the tokens. Each change leads to another
    /// look.
    pub(super) fn may_have_unseen(&self, environment: &str) -> bool {
        let state = self.state.borrow();
        let polled = state.polled.get(environment);
        let is_polled = |scope: &Projects| polled.is_some_and(|scopes| scopes.contains(scope));
        state.environments.get(environment).is_some_and(|one| one.flags.has_scopes_besides(is_polled))
    }

    /// Changes the flags of an environment.
    fn change(&self, environment: &str, apply: impl FnOnce(&mut FlagState) -> Changed) -> Result<bool, Refused> {
        let (before, events) = {
            let mut state = self.state.borrow_mut();
            let one = state.environments.entry(environment.into()).or_insert_with(EnvironmentState::new);
            let before = one.flags.revision();
            match apply(Arc::make_mut(&mut one.flags)) {
                Ok(events) => (before, events),
                Err(refused) => {
                    if before == 0 {
                        state.environments.remove(environment);
                    }
                    return Err(refused);
                }
            }
        };
        Ok(self.record(environment, before, events))
    }

    /// The same on another thread, where a copy is changed. It is changed again if another token has brought other flags meanwhile.
    async fn change_off_worker(
        &self,
        environment: &str,
        apply: impl Fn(&mut FlagState) -> Changed + Send + Sync + 'static,
    ) -> io::Result<Result<bool, Refused>> {
        let apply = Arc::new(apply);
        loop {
            // Held here, so that a change meanwhile is one of another copy.
            let before = self.flags(environment);
            let (apply, former) = (apply.clone(), before.clone());
            let work = move || {
                let mut flags = former.map_or_else(no_flags, |former| FlagState::clone(&former));
                apply(&mut flags).map(|events| (Arc::new(flags), events))
            };
            let (flags, events) = match run_blocking(work).await? {
                Ok(changed) => changed,
                Err(refused) => return Ok(Err(refused)),
            };
            let is_same = match (&before, &self.flags(environment)) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if is_same {
                let one = EnvironmentState::new;
                self.state.borrow_mut().environments.entry(environment.into()).or_insert_with(one).flags = flags;
                let before = before.map_or(0, |before| before.revision());
                return Ok(Ok(self.record(environment, before, events)));
            }
        }
    }

    /// Notes a change since a revision. False: there was none.
    fn record(&self, environment: &str, before: u64, events: Vec<DeltaEvent>) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(one) = state.environments.get_mut(environment) else { return false };
        let revision = one.flags.revision();
        if revision == before {
            return false;
        }
        one.history.record(revision, events);
        one.is_dirty = true;
        state.had_flags = true;
        state.generation += 1;
        self.is_dirty.notify();
        true
    }

    fn flags(&self, environment: &str) -> Option<Arc<FlagState>> {
        self.state.borrow().environments.get(environment).map(|one| one.flags.clone())
    }

    /// The last revision that the server has named for a token.
    pub(super) fn upstream_revision(&self, environment: &str, scope: &Projects) -> Option<u64> {
        self.state.borrow().environments.get(environment)?.flags.upstream_revision(scope)
    }

    /// Whether an environment has flags.
    pub(super) fn has_flags(&self, environment: &str) -> bool {
        self.state.borrow().environments.contains_key(environment)
    }
}
