//! Copies of flags and tokens on the disk, and a start from them while the server is down.
//!
//! Two files in a directory. The first line of each has the version of the form, the length and a hash of the rest, which is the document
//! that Unleash Edge has under the same name. A file without that line is one of Unleash Edge, and is read as such.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    rc::Rc,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_flags_codec::{FeaturesDocument, tokens::ValidatedToken};
use weir_flags_session::{Projects, Token};
use xxhash_rust::xxh64::xxh64;

use super::Desk;
use crate::{limits::BACKUP_INTERVAL, settings::UpstreamSource};

const FEATURES: &str = "unleash_features.json";
const TOKENS: &str = "unleash_tokens.json";

/// The version of the form.
const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Seal {
    #[serde(rename = "weirBackup")]
    version: u32,
    bytes: usize,
    xxh64: String,
}

/// Saves for as long as the keeper lives.
pub(super) async fn run(desk: Rc<Desk>, source: UpstreamSource) {
    let mut saved = desk.state.borrow().generation;
    loop {
        weir_engine::sleep(BACKUP_INTERVAL).await;
        let generation = desk.state.borrow().generation;
        if generation != saved {
            save(&desk, &source).await;
            saved = generation;
        }
    }
}

/// Saves the present state. A failure is logged, and the files before stay.
pub(super) async fn save(desk: &Desk, source: &UpstreamSource) {
    let Some(folder) = source.backup_dir.clone() else { return };
    let view = desk.edge.view();
    if view.environments.is_empty() {
        return;
    }
    let tokens: Vec<ValidatedToken> = view.tokens.judged().map(|token| validated(token)).collect();
    let written = weir_engine::run_blocking(move || {
        let mut all = vec![b'{'];
        for (at, (name, environment)) in view.environments.iter().enumerate() {
            if at > 0 {
                all.push(b',');
            }
            weir_flags_codec::delta::string(&mut all, name);
            all.push(b':');
            all.extend_from_slice(&environment.document(&environment.scope(&Projects::All), None).json);
        }
        all.push(b'}');
        let tokens = serde_json::to_vec(&tokens).map_err(io::Error::other)?;
        fs::create_dir_all(&folder)?;
        write(&folder, FEATURES, &all)?;
        write(&folder, TOKENS, &tokens)
    });
    if let Err(error) = written.await.and_then(|written| written) {
        tracing::error!(%error, "the backup of flags cannot be written");
    }
}

fn validated(token: &Token) -> ValidatedToken {
    ValidatedToken {
        token: token.secret().expose_str().unwrap_or_default().to_owned(),
        kind: token.kind().map(|kind| kind.as_str().to_owned()),
        environment: token.environment().map(str::to_owned),
        projects: token.projects().names().map(str::to_owned).collect(),
        status: Some("Validated".to_owned()),
    }
}

/// Writes a file as a whole, or leaves the one before. Only its owner may read it: it has secrets.
fn write(folder: &Path, name: &str, body: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let seal = Seal { version: VERSION, bytes: body.len(), xxh64: format!("{:016x}", xxh64(body, 0)) };
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let mut line = serde_json::to_vec(&seal).map_err(io::Error::other)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.write_all(body)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    fs::File::open(folder)?.sync_all()
}

/// The state of the files.
struct Restored {
    environments: Vec<(String, FeaturesDocument)>,
    tokens: Vec<Token>,
}

/// Takes the state of the files. Without usable ones the start is from the server, and the log says why.
pub(super) async fn restore(desk: &Rc<Desk>, source: &UpstreamSource) {
    let Some(folder) = source.backup_dir.clone() else { return };
    {
        let state = desk.state.borrow();
        if !state.environments.is_empty() || state.lacks_backup {
            return;
        }
    }
    let read = weir_engine::run_blocking(move || read(folder)).await;
    let restored = match read {
        Ok(Ok(Some(restored))) => restored,
        Ok(Ok(None)) => return tracing::info!("there is no backup of flags yet"),
        Ok(Err(error)) => {
            return tracing::error!(%error, "the backup of flags cannot be used; the start is from the server");
        }
        Err(error) => {
            return tracing::error!(%error, "the backup of flags cannot be used; the start is from the server");
        }
    };
    for (environment, document) in restored.environments {
        if let Err(error) = desk.restore(&environment, document) {
            tracing::error!(%error, environment, "the backup of an environment cannot be used");
        }
    }
    desk.restore_tokens(restored.tokens);
    tracing::warn!("flags are those of the backup until the server responds");
    desk.publish();
}

/// `None`: there are no files.
fn read(folder: PathBuf) -> Result<Option<Restored>, String> {
    let Some(features) = body(&folder, FEATURES)? else { return Ok(None) };
    let name_of = |name: &str| folder.join(name).display().to_string();
    let all: BTreeMap<String, &RawValue> =
        serde_json::from_slice(&features).map_err(|_| format!("{}: no map of environments", name_of(FEATURES)))?;
    let mut environments = Vec::new();
    for (environment, raw) in all {
        let document = FeaturesDocument::read(raw.get().as_bytes());
        let document = document.map_err(|error| format!("{}: {environment}: {error}", name_of(FEATURES)))?;
        environments.push((environment, document));
    }
    let tokens: Vec<ValidatedToken> = match body(&folder, TOKENS)? {
        Some(text) => serde_json::from_slice(&text).map_err(|_| format!("{}: no list of tokens", name_of(TOKENS)))?,
        None => Vec::new(),
    };
    // A trusted token is one of the configuration, which alone vouches for it.
    let is_judged =
        |token: &&ValidatedToken| token.status.as_deref().is_none_or(|status| status.eq_ignore_ascii_case("validated"));
    let tokens = tokens.iter().filter(is_judged).filter_map(|token| Token::validated(token).ok()).collect();
    Ok(Some(Restored { environments, tokens }))
}

/// The body of a file whose seal holds. `None`: there is no file.
fn body(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    let path = folder.join(name);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let end = text.iter().position(|byte| *byte == b'\n');
    let sealed = end.and_then(|end| Some((serde_json::from_slice::<Seal>(&text[..end]).ok()?, end + 1)));
    // Without a seal it is a file of Unleash Edge.
    let Some((seal, begins)) = sealed else { return Ok(Some(text)) };
    let body = &text[begins..];
    if seal.version != VERSION {
        return Err(format!("{}: version {}, which this program does not know", path.display(), seal.version));
    }
    if seal.bytes != body.len() || seal.xxh64 != format!("{:016x}", xxh64(body, 0)) {
        return Err(format!("{}: it is truncated or damaged", path.display()));
    }
    Ok(Some(body.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"{"development":{"version":2,"features":[{"name":"a","enabled":true}]}}"#;

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), FEATURES, ALL.as_bytes()).expect("written");
        let tokens = r#"[{"token":"*:development.s","type":"backend","environment":"development","projects":["*"]},
            {"token":"*:development.t","type":"frontend","environment":"development","projects":["*"],"status":"Trusted"}]"#;
        write(folder.path(), TOKENS, tokens.as_bytes()).expect("written");
        let restored = read(folder.path().to_owned()).expect("valid").expect("files");
        assert_eq!((restored.environments.len(), restored.tokens.len()), (1, 1));
        assert_eq!(restored.environments[0].1.features.len(), 1);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(folder.path().join(TOKENS)).expect("file").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn f7_a_truncated_file_and_one_of_another_version_are_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read(folder.path().to_owned()).expect("no error").is_none());
        write(folder.path(), FEATURES, ALL.as_bytes()).expect("written");
        let path = folder.path().join(FEATURES);
        let whole = fs::read(&path).expect("read");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            let error = read(folder.path().to_owned()).err().unwrap_or_else(|| panic!("{cut} bytes are no backup"));
            assert!(error.contains(FEATURES), "{error}");
        }
        let later = String::from_utf8(whole.clone()).expect("UTF-8").replace("\"weirBackup\":1", "\"weirBackup\":2");
        fs::write(&path, later).expect("written");
        assert!(read(folder.path().to_owned()).err().expect("refused").contains("version 2"));
    }

    #[test]
    fn a_file_of_unleash_edge_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FEATURES), ALL).expect("written");
        assert_eq!(read(folder.path().to_owned()).expect("valid").expect("a file").environments.len(), 1);
    }
}
