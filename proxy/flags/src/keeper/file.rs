//! The flags of an offline gateway: a file, and its changes.

use std::{fs, io::Read as _, path::Path, rc::Rc, time::SystemTime};

use weir_flags_codec::{FeaturesDocument, limits::DOCUMENT_BYTES_MAX};
use weir_flags_session::Projects;

use super::Desk;
use crate::{counts::PollResult, settings::FileSource};

/// The name of the only environment.
const ENVIRONMENT: &str = "";

/// Reads the file, and again whenever it changes. Without an interval it is read once: a reload makes another keeper.
pub(super) async fn run(desk: Rc<Desk>, source: FileSource) {
    let (mut seen, mut last_error) = (None, String::new());
    loop {
        let (path, before) = (source.path.clone(), seen);
        let looked = weir_engine::run_blocking(move || look(&path, before)).await;
        // The mark is older than the text: a file that changes during the read is read again.
        let (found, text) = looked.unwrap_or_else(|error| (None, Err(error.to_string())));
        seen = found.or(seen);
        match text {
            Ok(None) => desk.edge.counts.polled(ENVIRONMENT, PollResult::Unchanged),
            Ok(Some(document)) => {
                last_error = String::new();
                take(&desk, document).await;
            }
            Err(error) => {
                if error != last_error {
                    tracing::error!(file = %source.path.display(), %error, "the file of flags cannot be used; the last flags stay");
                }
                last_error = error;
                desk.edge.counts.polled(ENVIRONMENT, PollResult::Garbage);
            }
        }
        if source.reload_interval.is_zero() {
            return;
        }
        weir_engine::sleep(source.reload_interval).await;
    }
}

async fn take(desk: &Desk, document: FeaturesDocument) {
    let refused = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "the file of flags is refused; the last flags stay");
        PollResult::Garbage
    };
    let result = match desk.take_document(ENVIRONMENT, &Projects::All, document).await {
        Ok(Ok(true)) => PollResult::Changed,
        Ok(Ok(false)) => PollResult::Unchanged,
        Ok(Err(error)) => refused(&error),
        Err(error) => refused(&error),
    };
    desk.edge.counts.polled(ENVIRONMENT, result);
}

/// Length and time of a file.
type Mark = (u64, SystemTime);

fn mark(path: &Path) -> Option<Mark> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// The mark of the file, and its document if the file is another one than `before`.
fn look(path: &Path, before: Option<Mark>) -> (Option<Mark>, Result<Option<FeaturesDocument>, String>) {
    match mark(path) {
        None => (None, Err("it is not there, or may not be read".to_owned())),
        found if found == before => (found, Ok(None)),
        found => (found, document(path).map(Some)),
    }
}

fn document(path: &Path) -> Result<FeaturesDocument, String> {
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("it has more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    FeaturesDocument::read_bootstrap(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    #[test]
    fn a_file_that_changes_during_a_read_that_fails_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("features.json");
        // A pipe holds the read until there is a writer.
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let reader = thread::spawn({
            let path = path.clone();
            move || look(&path, None)
        });
        let mut pipe = fs::OpenOptions::new().write(true).open(&path).expect("the read has begun");
        let whole = r#"{"a":{"enabled":true}}"#;
        fs::write(folder.path().join("other"), whole).expect("written");
        fs::rename(folder.path().join("other"), &path).expect("renamed");
        std::io::Write::write_all(&mut pipe, b"{").expect("written");
        drop(pipe);
        let (seen, failed) = reader.join().expect("a read");
        assert!(failed.is_err(), "half a document");
        let (found, document) = look(&path, seen);
        assert!(found != seen && document.is_ok_and(|document| document.is_some_and(|it| it.features.len() == 1)));
        assert_eq!(look(&path, found), (found, Ok(None)));
    }
}
