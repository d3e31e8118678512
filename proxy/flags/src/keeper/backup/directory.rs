//! A backup in two files of a directory.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use super::document::{Copies, Document, SEALED_BYTES_MAX};

/// The file of a document, as Unleash Edge names it.
pub(super) fn path(folder: &Path, document: Document) -> PathBuf {
    folder.join(name(document))
}

fn name(document: Document) -> &'static str {
    match document {
        Document::Features => "unleash_features.json",
        Document::Tokens => "unleash_tokens.json",
    }
}

/// Writes both files.
///
/// # Errors
/// One of them cannot be written. The one before stays.
pub(super) fn save(folder: &Path, copies: &Copies) -> Result<(), String> {
    let all = [(Document::Features, Some(&copies.features)), (Document::Tokens, copies.tokens.as_ref())];
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (document, text) in all {
        let Some(text) = text else { continue };
        write(folder, name(document), text)
            .map_err(|error| format!("{}: {error}", path(folder, document).display()))?;
    }
    Ok(())
}

/// Writes a file as a whole, or leaves the one before. Only its owner may read it: it has secrets.
fn write(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // The save at the end of the process may meet a regular one.
    static SAVES: AtomicU32 = AtomicU32::new(0);
    let number = SAVES.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}.{}.{number}", std::process::id()));
    let replace = || {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, folder.join(name))
    };
    // A disk that is full keeps no part of a file with secrets.
    replace().inspect_err(|_: &io::Error| drop(fs::remove_file(&temporary)))?;
    fs::File::open(folder)?.sync_all()
}

/// Reads both files. `None`: there are none.
///
/// # Errors
/// One of them cannot be read.
pub(super) fn load(folder: &Path) -> Result<Option<Copies>, String> {
    let text = |document| {
        let path = path(folder, document);
        text(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let Some(features) = text(Document::Features)? else { return Ok(None) };
    Ok(Some(Copies { features, tokens: text(Document::Tokens)? }))
}

/// The text of a file. `None`: there is no file.
fn text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(SEALED_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    if text.len() > SEALED_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {SEALED_BYTES_MAX} bytes")));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_written_and_their_owner_alone_reads_them() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load(folder.path()), Ok(None));
        let mut copies = Copies { features: b"flags".to_vec(), tokens: None };
        save(folder.path(), &copies).expect("written");
        assert_eq!(load(folder.path()), Ok(Some(copies.clone())));
        copies.tokens = Some(b"tokens".to_vec());
        save(folder.path(), &copies).expect("written");
        assert_eq!(load(folder.path()), Ok(Some(copies)));
        let file = path(folder.path(), Document::Tokens);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("file").permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = path(folder.path(), Document::Features);
        fs::create_dir(&file).expect("created");
        assert!(load(folder.path()).expect_err("no file").starts_with(&file.display().to_string()));
        fs::remove_dir(&file).expect("removed");
        fs::File::create(&file).and_then(|file| file.set_len(SEALED_BYTES_MAX as u64 + 1)).expect("created");
        assert!(load(folder.path()).expect_err("too long").contains("more than"));
    }
}
