//! Copies of flags and tokens, and a start from them while the server is down.
//!
//! Two documents, in a store. The first line of each has the version of the form, the length and a hash of the rest, which is a map from
//! environments to their flags, or the list of tokens. A document without that line is one of Unleash Edge, and is read as such.
//!
//! | file | concept |
//! |---|---|
//! | `document` | the documents and their seal |
//! | `directory` | a store: a directory |
//! | `redis` | a store: a Redis server |
//! | `s3` | a store: a bucket |

mod directory;
mod document;
mod redis;
mod s3;

use std::{
    collections::BTreeSet,
    rc::Rc,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use weir_engine::{JoinHandle, run_blocking, spawn};
use weir_flags_codec::{FeaturesDocument, tokens::ValidatedToken};
use weir_flags_session::Token;

use self::document::{Copies, Document, Restored, sealed};
use super::{Desk, state::State};
use crate::{
    edge::{Signal, View, unix_time},
    environment::lock,
    limits::{BACKUP_FIRST_RETRY, BACKUP_INTERVAL, BACKUP_RETRY_INTERVAL, BACKUP_START_TIMEOUT},
    settings::{BackupStore, UpstreamSource},
};

/// Saves for as long as the keeper lives.
pub(super) async fn run(desk: Rc<Desk>, source: UpstreamSource) {
    loop {
        weir_engine::sleep(BACKUP_INTERVAL).await;
        let generation = desk.state.borrow().generation;
        let is_saved = desk.state.borrow().saved == Some(generation);
        // A failed write is repeated at the next interval.
        if !is_saved && save(&desk, &source).await {
            desk.state.borrow_mut().saved = Some(generation);
        }
    }
}

/// Saves the present state. False: the copies before stay, because of a failure, which is logged, or because they are better.
pub(super) async fn save(desk: &Desk, source: &UpstreamSource) -> bool {
    let Some(store) = source.backup.as_deref().cloned() else { return true };
    let view = desk.edge.view();
    if !is_worth_saving(&desk.state.borrow(), &view) {
        return false;
    }
    // One time for all: the earliest of them says too little of the others, and never too much.
    let shown = desk.edge.counts.last_polls().into_iter().map(|(_, shown)| shown).min();
    let made = run_blocking(move || copies(&view, shown)).await.map_err(|error| error.to_string());
    let written = match made.and_then(|made| made) {
        Ok(copies) => write(desk, store, copies).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &written {
        tracing::error!(%error, "the backup of flags cannot be written");
    }
    written.is_ok()
}

/// Whether a state is better than the copies that are there. They are the best that there are while the flags of a source are missing. A state
/// without any flags is better if the server knows no token of theirs any more, which a verdict has said and not a response to a poll alone.
fn is_worth_saving(state: &State, view: &View) -> bool {
    let has_flags = |name: Option<&str>| name.is_some_and(|name| view.environments.contains_key(name));
    let is_whole = view.sources.iter().all(|source| has_flags(source.environment()));
    match view.environments.is_empty() {
        true => state.had_flags && !view.awaits_sources && view.sources.is_empty() && !state.has_revoked(),
        // Once the copies are read, this process has all that they had.
        false => (is_whole && !view.awaits_sources) || state.is_backup_read || state.saved.is_some(),
    }
}

async fn write(desk: &Desk, store: BackupStore, copies: Copies) -> Result<(), String> {
    let written = match store {
        BackupStore::Directory(folder) => run_blocking(move || directory::save(&folder, &copies)).await,
        BackupStore::Redis(backup) => return on_thread(move || redis::save(&backup, &copies)).await,
        BackupStore::S3(backup) => Ok(s3::save(desk, &backup, copies).await),
    };
    written.map_err(|error| error.to_string())?
}

/// Does what waits for a server on a thread of its own: those of the worker are for all of its sessions.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    struct Done<T>(Arc<(Signal, Mutex<Option<T>>)>);
    impl<T> Drop for Done<T> {
        fn drop(&mut self) {
            self.0.0.notify();
        }
    }
    let shared = Arc::new((Signal::default(), Mutex::new(None)));
    let done = Done(shared.clone());
    let run = move || {
        let done = done;
        *lock(&done.0.1) = Some(work());
    };
    thread::Builder::new().name("flags-backup".to_owned()).spawn(run).map_err(|error| error.to_string())?;
    shared.0.wait().await;
    let result = lock(&shared.1).take();
    result.unwrap_or_else(|| Err("the thread has panicked".to_owned()))
}

/// The documents of a state.
fn copies(view: &View, shown: Option<Duration>) -> Result<Copies, String> {
    let tokens: Vec<ValidatedToken> = view.tokens.judged().map(|token| (&**token).into()).collect();
    let tokens = serde_json::to_vec(&tokens).map_err(|error| error.to_string())?;
    Ok(Copies { features: sealed(&view.all_documents(), shown)?, tokens: Some(sealed(&tokens, None)?) })
}

/// The end of an attempt to take the state of the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attempt {
    /// Another one would have no other result, or is of no use.
    Over,
    /// The store did not respond, for this reason.
    Failed(String),
}

/// Takes the state of the documents, and waits for it for a while. Without a usable one the start is from the server, and the log says why.
/// The task that is left tries again while the store is out of reach and there are no flags.
pub(super) async fn restore(desk: &Rc<Desk>, source: &UpstreamSource) -> Option<JoinHandle<()>> {
    let store = source.backup.as_deref().cloned()?;
    let mut first = Box::pin(first_attempts(desk.clone(), store.clone()));
    let ended = weir_engine::timeout(BACKUP_START_TIMEOUT, &mut first).await.ok();
    if ended == Some(Attempt::Over) {
        return None;
    }
    let desk = desk.clone();
    Some(spawn(async move {
        let mut attempt = match ended {
            Some(attempt) => attempt,
            None => first.await,
        };
        let (mut logged, mut failures) = (None, 0);
        while let Attempt::Failed(error) = attempt {
            if logged.as_ref() != Some(&error) {
                tracing::error!(%error, "the backup of flags cannot be used; the start is from the server");
                logged = Some(error);
            }
            let wait = desk.rng.borrow_mut().backoff(failures, Duration::from_secs(1), BACKUP_RETRY_INTERVAL);
            failures += 1;
            weir_engine::sleep(wait).await;
            attempt = self::attempt(desk.clone(), store.clone()).await;
        }
    }))
}

/// Whether the flags of a backup are of use: a source has no other ones, and it is one of the same server.
fn is_of_use(desk: &Desk) -> bool {
    let view = desk.edge.view();
    let state = desk.state.borrow();
    let lacks = |source: &Arc<Token>| source.environment().is_some_and(|name| !state.environments.contains_key(name));
    (state.environments.is_empty() || view.awaits_sources || view.sources.iter().any(lacks)) && !state.lacks_backup
}

/// The attempts of a start. The second one is soon: an upstream may not have the addresses of its names yet.
async fn first_attempts(desk: Rc<Desk>, store: BackupStore) -> Attempt {
    match attempt(desk.clone(), store.clone()).await {
        Attempt::Over => Attempt::Over,
        Attempt::Failed(_) => {
            weir_engine::sleep(BACKUP_FIRST_RETRY).await;
            attempt(desk, store).await
        }
    }
}

async fn attempt(desk: Rc<Desk>, store: BackupStore) -> Attempt {
    let attempt = read_and_take(&desk, store).await;
    desk.state.borrow_mut().is_backup_read |= attempt == Attempt::Over;
    attempt
}

async fn read_and_take(desk: &Rc<Desk>, store: BackupStore) -> Attempt {
    if !is_of_use(desk) {
        return Attempt::Over;
    }
    let copies = match load(desk, store.clone()).await {
        Ok(Some(copies)) => copies,
        Ok(None) => {
            tracing::info!("there is no backup of flags yet");
            return Attempt::Over;
        }
        Err(error) => return Attempt::Failed(error),
    };
    let read = run_blocking(move || document::read(&copies, |document| name_of(&store, document))).await;
    match read.map_err(|error| error.to_string()).and_then(|read| read) {
        // The server may have responded meanwhile.
        Ok(restored) if is_of_use(desk) => take(desk, restored).await,
        Ok(_) => tracing::info!("the backup of flags came late; the flags of the server stay"),
        Err(error) => tracing::error!(%error, "the backup of flags cannot be used; the start is from the server"),
    }
    Attempt::Over
}

/// The copies of the store. `None`: it has none.
async fn load(desk: &Desk, store: BackupStore) -> Result<Option<Copies>, String> {
    let read = match store {
        BackupStore::Directory(folder) => run_blocking(move || directory::load(&folder)).await,
        BackupStore::Redis(backup) => return on_thread(move || redis::load(&backup)).await,
        BackupStore::S3(backup) => Ok(s3::load(desk, &backup).await),
    };
    read.map_err(|error| error.to_string())?
}

/// The name of a document in messages.
fn name_of(store: &BackupStore, document: Document) -> String {
    match store {
        BackupStore::Directory(folder) => directory::path(folder, document).display().to_string(),
        BackupStore::Redis(backup) => format!("the key {}", redis::key(backup, document)),
        BackupStore::S3(backup) => format!("the object {}", s3::object(backup, document)),
    }
}

/// Takes the flags of an environment that has none. `shown`: see [`Restored`].
async fn restore_one(desk: &Desk, environment: &str, document: FeaturesDocument, shown: Duration) {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, environment, "the backup of an environment cannot be used");
    };
    match desk.restore(environment, document).await {
        Ok(Ok(_)) => desk.edge.counts.restored(environment, shown),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

async fn take(desk: &Rc<Desk>, restored: Restored) {
    // Without a time in the copies the age counts from now.
    let shown = restored.shown.unwrap_or_else(unix_time);
    // Before the first flags, and before any wait: a verdict or a poll that comes meanwhile keeps the flags that these tokens see.
    let claimed: BTreeSet<_> =
        restored.tokens.iter().filter_map(|token| token.environment()).map(str::to_owned).collect();
    desk.restore_tokens(restored.tokens);
    for (environment, document) in restored.environments {
        // The server may have responded while those before were read.
        if !desk.has_flags(&environment) {
            restore_one(desk, &environment, document, shown).await;
        }
    }
    // The server may have refused a token meanwhile.
    desk.forget_unsourced(&claimed);
    tracing::warn!("flags are those of the backup until the server responds");
    desk.publish();
    // Tokens may be good that were not known, and are to be validated.
    desk.has_other_sources.notify();
    desk.edge.signal.notify();
}

#[cfg(test)]
mod tests {
    use weir_flags_session::token_table::Changes;

    use super::*;
    use crate::{
        flight::on_worker,
        keeper::tests::{desk, document, interrupted, token},
    };

    #[test]
    fn a_verdict_between_two_environments_of_a_copy_keeps_the_flags_of_its_tokens() {
        on_worker(|| async {
            let desk = desk(&[token("*:development.s")]);
            // So many that helper threads are not always done at once.
            let names: Vec<String> = (0..50).map(|number| format!("e{number}")).collect();
            let restored = Restored {
                environments: names.iter().map(|name| (name.clone(), document(&["a"]))).collect(),
                // Clients have sent them to the process before.
                tokens: names.iter().map(|name| token(&format!("*:{name}.s"))).collect(),
                shown: None,
            };
            let mut verdicts = 0;
            interrupted(take(&desk, restored), || {
                desk.on_changes(&Changes::default());
                verdicts += 1;
            })
            .await;
            assert!(names.iter().all(|name| desk.has_flags(name)), "{verdicts} verdicts came meanwhile");
        });
    }

    #[test]
    fn an_environment_of_a_token_that_was_refused_before_is_not_kept() {
        on_worker(|| async {
            let (desk, gone) = (desk(&[token("*:development.s")]), Arc::new(token("*:production.s")));
            desk.state.borrow_mut().tokens().restore(Token::clone(&gone));
            let changes = desk.state.borrow_mut().revoke(&gone);
            desk.on_changes(&changes);
            let names = ["development", "production", "unnamed"];
            let restored = Restored {
                environments: names.map(|name| (name.into(), document(&["a"]))).into(),
                tokens: vec![Token::clone(&gone)],
                shown: None,
            };
            take(&desk, restored).await;
            let kept = names.map(|name| desk.has_flags(name));
            assert_eq!(kept, [true, false, true], "no token names the last one, so it waits for a verdict");
        });
    }

    #[test]
    fn a_token_that_is_refused_meanwhile_leaves_no_environment() {
        on_worker(|| async {
            let desk = desk(&[token("*:development.s")]);
            let gone = Arc::new(token("*:production.s"));
            let restored = Restored {
                environments: ["development", "production"].map(|name| (name.into(), document(&["a"]))).into(),
                tokens: vec![Token::clone(&gone)],
                shown: None,
            };
            // Holds the helper threads until the token is refused.
            let (go, gate) = std::sync::mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(gate));
            for _ in 0..4 {
                let gate = gate.clone();
                spawn(async move { drop(run_blocking(move || lock(&gate).recv().is_err()).await) }).detach();
            }
            weir_engine::sleep(Duration::from_millis(1)).await;
            let mut go = Some(go);
            interrupted(take(&desk, restored), || {
                if go.take().is_some() {
                    let changes = desk.state.borrow_mut().revoke(&gone);
                    desk.on_changes(&changes);
                }
            })
            .await;
            assert!(go.is_none() && desk.has_flags("development") && !desk.has_flags("production"));
        });
    }
}
