//! Secrets: named in the file, kept outside of it.
//!
//! A literal is refused. Configuration files are committed, mailed and pasted into tickets; a reference is not worth
//! stealing. There is no switch to allow literals, because it would be on in the one file that leaks.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};
use weir_base::Secret;

use crate::document::Node;
use crate::reader::Reader;
use crate::surroundings::FileContents;
use crate::value::{Shape, Value};

/// Bytes of a secret. Default 4 KiB: tokens of identity providers reach 2 KiB.
const SECRET_BYTES_MAX: u64 = 4 * 1024;

/// A secret and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRef {
    source: Source,
    pub(crate) secret: Secret,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Env(String),
    File(PathBuf),
}

impl Value for SecretRef {
    fn shape() -> Shape {
        Shape::Secret
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let source = match node.value {
            DeValue::Table(table) => source(node, table, reader)?,
            DeValue::String(text) if short(text).is_some() => short(text)?,
            DeValue::String(_) => {
                let message = format!("`{}` is in the file in plain text", node.path);
                let help = format!("put it into the environment or a file and write {}", Shape::Secret.example());
                reader.problems.error_cut(&(node.span.start..node.span.start), node.path, message, help);
                return None;
            }
            _ => {
                reader.wrong_kind(node, &Shape::Secret);
                return None;
            }
        };
        match source {
            Source::Env(name) => from_env(node, name, reader),
            Source::File(path) => from_file(node, path, reader),
        }
    }

    fn show(&self) -> Json {
        match &self.source {
            Source::Env(name) => json!({ "env": name }),
            Source::File(path) => json!({ "file": path.display().to_string() }),
        }
    }
}

/// `env:NAME` or `file:/path`, the short form of a reference.
fn short(text: &str) -> Option<Source> {
    let is_name = |name: &&str| !name.is_empty() && !name.contains(['=', '\0']);
    let env = text.strip_prefix("env:").filter(is_name).map(|name| Source::Env(name.to_owned()));
    let file = text.strip_prefix("file:").filter(|path| !path.is_empty() && !path.contains('\0'));
    env.or_else(|| file.map(|path| Source::File(PathBuf::from(path))))
}

/// Exactly one of `env` and `file`, and nothing else.
fn source(node: &Node<'_>, table: &DeTable<'_>, reader: &mut Reader<'_>) -> Option<Source> {
    let mut sources = Vec::new();
    for (key, value) in table.iter() {
        let word: &str = key.get_ref();
        let text = value.get_ref().as_str().filter(|text| !text.is_empty());
        match (word, text) {
            ("env", Some(name)) if !name.contains(['=', '\0']) => sources.push(Source::Env(name.to_owned())),
            ("file", Some(path)) if !path.contains('\0') => sources.push(Source::File(PathBuf::from(path))),
            _ => {
                let message = format!("`{}` is not a valid reference to a secret", node.path);
                reader.problems.error_cut(
                    &key.span(),
                    node.path,
                    message,
                    format!("write {}", Shape::Secret.example()),
                );
                return None;
            }
        }
    }
    if sources.len() != 1 {
        let message = format!("`{}` needs one source, but has {}", node.path, sources.len());
        reader.wrong_value(node, message, format!("write {}", Shape::Secret.example()));
        return None;
    }
    sources.pop()
}

fn from_env(node: &Node<'_>, name: String, reader: &mut Reader<'_>) -> Option<SecretRef> {
    let Some(value) = reader.surroundings.variable(&name) else {
        if reader.surroundings.is_offline() {
            reader.not_here(node, &format!("the environment variable `{name}` is not set here"));
            return None;
        }
        let message = format!("`{}`: the environment variable `{name}` is not set", node.path);
        reader.wrong_value(node, message, format!("set {name} for this process, or use {{ file = \"/path\" }}"));
        return None;
    };
    let secret = checked(node, value.into_bytes(), reader)?;
    Some(SecretRef { source: Source::Env(name), secret })
}

fn from_file(node: &Node<'_>, path: PathBuf, reader: &mut Reader<'_>) -> Option<SecretRef> {
    let contents = private_file(node, &path, SECRET_BYTES_MAX, reader)?;
    let mut bytes = contents.bytes;
    // Editors and `echo` end a file with a line end that is no part of the secret.
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    if bytes.ends_with(b"\r") {
        bytes.pop();
    }
    let secret = checked(node, bytes, reader)?;
    Some(SecretRef { source: Source::File(path), secret })
}

/// A secret is neither empty nor huge.
fn checked(node: &Node<'_>, bytes: Vec<u8>, reader: &mut Reader<'_>) -> Option<Secret> {
    let secret = Secret::new(bytes);
    let length = secret.expose().len() as u64;
    if (1..=SECRET_BYTES_MAX).contains(&length) {
        return Some(secret);
    }
    let message = format!("`{}`: the secret has {length} bytes", node.path);
    reader.wrong_value(node, message, format!("it must have 1 to {SECRET_BYTES_MAX}"));
    None
}

/// Reads a file that holds a secret or a private key, and refuses one that others can read: a warning would be read
/// once and forgotten. The rule is the one of PostgreSQL's `ssl_key_file`: nothing for others, nothing for the group
/// either unless the superuser owns the file (which is how orchestrators hand secrets to unprivileged processes).
pub(crate) fn private_file(
    node: &Node<'_>,
    path: &Path,
    bytes_max: u64,
    reader: &mut Reader<'_>,
) -> Option<FileContents> {
    let contents = readable_file(node, path, bytes_max, reader)?;
    let forbidden = if contents.is_root_owned { 0o027 } else { 0o077 };
    match contents.mode {
        // The mode of a copy, such as that of version control, says nothing about the file where the gateway runs.
        Some(mode) if mode & forbidden != 0 && !reader.surroundings.is_offline() => {
            let shown = path.display();
            let message = format!("`{}`: other users can read {shown} (mode {mode:03o})", node.path);
            let mended = if contents.is_root_owned { "640" } else { "600" };
            drop(Secret::new(contents.bytes));
            reader.wrong_value(node, message, format!("run chmod {mended} {shown} (in Kubernetes: defaultMode: 0400)"));
            None
        }
        _ => Some(contents),
    }
}

/// Reads a file, or reports why that cannot be done. Relative paths start at the configuration file.
pub(crate) fn readable_file(
    node: &Node<'_>,
    path: &Path,
    bytes_max: u64,
    reader: &mut Reader<'_>,
) -> Option<FileContents> {
    let path = reader.directory.join(path);
    let surroundings = reader.surroundings;
    surroundings
        .file(&path, bytes_max)
        .map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => Some("is not here"),
                io::ErrorKind::PermissionDenied => Some("may not be read by this user"),
                _ => None,
            };
            if let Some(why) = why.filter(|_| reader.surroundings.is_offline()) {
                return reader.not_here(node, &format!("{} {why}", path.display()));
            }
            let message = format!("`{}`: cannot read {}: {error}", node.path, path.display());
            let help = match error.kind() {
                io::ErrorKind::NotFound if path.is_relative() || reader.directory != Path::new("") => {
                    "check the path; a relative one starts at the directory of the configuration file"
                }
                io::ErrorKind::NotFound => "check the path",
                io::ErrorKind::PermissionDenied => "let the user of this process read it",
                _ => "name a readable regular file",
            };
            reader.wrong_value(node, message, help);
        })
        .ok()
}
