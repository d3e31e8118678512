//! The flags of an offline gateway: a file, and its changes.

use std::{fs, io::Read as _, path::Path, rc::Rc, time::SystemTime};

use weir_flags_codec::{FeaturesDocument, limits::DOCUMENT_BYTES_MAX};
use weir_flags_session::Projects;

use super::Desk;
use crate::{counts::PollResult, settings::FileSource};

/// The name of the only environment.
const ENVIRONMENT: &str = "";

/// Reads the file, and again whenever it changes.
pub(super) async fn run(desk: Rc<Desk>, source: FileSource) {
    let (mut seen, mut last_error) = (None, String::new());
    loop {
        let (path, before) = (source.path.clone(), seen);
        let looked = weir_engine::run_blocking(move || look(&path, before)).await;
        match looked.map_err(|error| error.to_string()).and_then(|looked| looked) {
            Ok(None) => desk.edge.counts.polled(ENVIRONMENT, PollResult::Unchanged),
            Ok(Some((mark, document))) => {
                (seen, last_error) = (Some(mark), String::new());
                take(&desk, document);
            }
            Err(error) => {
                if error != last_error {
                    tracing::error!(file = %source.path.display(), %error, "the file of flags cannot be used; the last flags stay");
                }
                last_error = error;
                seen = mark(&source.path).or(seen);
                desk.edge.counts.polled(ENVIRONMENT, PollResult::Garbage);
            }
        }
        if desk.edge.take_wanted_coding()
            && let Some(environment) = desk.edge.view().environments.get(ENVIRONMENT).cloned()
        {
            let _ = weir_engine::run_blocking(move || environment.make_wanted()).await;
        }
        match source.reload_interval.is_zero() {
            true => desk.edge.signal.wait().await,
            false => drop(weir_engine::timeout(source.reload_interval, desk.edge.signal.wait()).await),
        }
    }
}

fn take(desk: &Desk, document: FeaturesDocument) {
    let result = match desk.take_document(ENVIRONMENT, &Projects::All, document) {
        Ok(true) => PollResult::Changed,
        Ok(false) => PollResult::Unchanged,
        Err(error) => {
            tracing::error!(%error, "the file of flags is refused; the last flags stay");
            PollResult::Garbage
        }
    };
    desk.edge.counts.polled(ENVIRONMENT, result);
}

/// Length and time of a file.
type Mark = (u64, SystemTime);

fn mark(path: &Path) -> Option<Mark> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// The document, if the file is another one than `before`.
fn look(path: &Path, before: Option<Mark>) -> Result<Option<(Mark, FeaturesDocument)>, String> {
    let found = mark(path).ok_or("it is not there, or may not be read")?;
    if before == Some(found) {
        return Ok(None);
    }
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("it has more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    let document = FeaturesDocument::read_bootstrap(&text).map_err(|error| error.to_string())?;
    Ok(Some((found, document)))
}
