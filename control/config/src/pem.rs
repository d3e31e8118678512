//! Paths of PEM files. The contents are read once to learn that they are there, and to notice a renewal under the
//! same name; what is in them is judged by the engine when it builds a TLS context (see `checks::tls`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weir_base::Secret;
use weir_engine::tls::{self, ALT_NAMES_MAX, AltName, PEM_BYTES_MAX, PeerIdentity};

use crate::document::Node;
use crate::reader::Reader;
use crate::secret::{private_file, readable_file};
use crate::texts::string;
use crate::value::{Shape, Value};

/// Certificates: public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates;

/// A private key: no other user may read the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateKey;

/// The objects of a PEM file.
pub(crate) trait Holds: Clone + PartialEq {
    const WHAT: &'static str;
    const EXAMPLE: &'static str;
    const IS_PRIVATE: bool;
}

impl Holds for Certificates {
    const WHAT: &'static str = "the path of a PEM file with certificates";
    const EXAMPLE: &'static str = "/etc/weir/tls.crt";
    const IS_PRIVATE: bool = false;
}

impl Holds for PrivateKey {
    const WHAT: &'static str = "the path of a PEM file with a private key";
    const EXAMPLE: &'static str = "/etc/weir/tls.key";
    const IS_PRIVATE: bool = true;
}

/// A certificate, as far as it is looked at before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// How it is called in reports.
    pub(crate) name: String,
    /// When it begins and ends to be valid (RFC 3339, UTC).
    pub(crate) validity: Option<(String, String)>,
    /// Its host names; empty if it has so many that not all of them were read.
    pub(crate) hosts: Vec<String>,
}

impl Certificate {
    fn of(identity: &PeerIdentity) -> Self {
        let host = |name: &AltName| match name {
            AltName::Dns(name) => Some(name.to_ascii_lowercase()),
            AltName::Uri(_) | AltName::Email(_) | AltName::Ip(_) => None,
        };
        let is_whole = identity.alt_names.len() < ALT_NAMES_MAX;
        let hosts = identity.alt_names.iter().filter(|_| is_whole).filter_map(host);
        Self { name: identity.to_string(), validity: identity.validity.clone(), hosts: hosts.collect() }
    }

    /// A client that asks for this name, or for those of this wildcard, takes it (RFC 6125 section 6.4.3). True if its names
    /// are not known.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let matches = |own: &String| match own.strip_prefix("*.") {
            _ if *own == name => true,
            Some(suffix) => name.split_once('.').is_some_and(|(label, rest)| label != "*" && rest == suffix),
            None => false,
        };
        self.hosts.is_empty() || self.hosts.iter().any(matches)
    }
}

/// A readable PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PemFile<T> {
    /// As it is opened: a relative path already joined to the configuration's directory.
    pub(crate) path: PathBuf,
    /// Digest of the contents. SipHash without a key of its own: it only has to differ when the file does, and its
    /// 64 bits reveal nothing about a private key.
    pub(crate) digest: u64,
    /// The validity and names of its certificates; empty for a file with a key.
    pub(crate) certificates: Vec<Certificate>,
    holds: PhantomData<T>,
}

impl<T: Holds> Value for PemFile<T> {
    fn shape() -> Shape {
        Shape::Text { what: T::WHAT, example: T::EXAMPLE }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        if text.is_empty() || text.contains('\0') {
            reader.wrong_value(node, format!("`{}` is not a path", node.path), format!("write {}", T::WHAT));
            return None;
        }
        let path = Path::new(text);
        let contents = match T::IS_PRIVATE {
            true => private_file(node, path, PEM_BYTES_MAX, reader),
            false => readable_file(node, path, PEM_BYTES_MAX, reader),
        };
        let contents = match contents {
            Some(contents) => contents,
            // It was noted. The table around it is read on as if the file were there.
            None if reader.surroundings.is_offline() && !reader.problems.has_errors_at(node.path) => {
                let path = reader.directory.join(path);
                return Some(Self { path, digest: 0, certificates: Vec::new(), holds: PhantomData });
            }
            None => return None,
        };
        let bytes = Secret::new(contents.bytes);
        let mut hasher = DefaultHasher::new();
        bytes.expose().hash(&mut hasher);
        let certificates = match T::IS_PRIVATE {
            true => Vec::new(),
            false => tls::identities(bytes.expose()).iter().map(Certificate::of).collect(),
        };
        let path = reader.directory.join(path);
        Some(Self { path, digest: hasher.finish(), certificates, holds: PhantomData })
    }

    fn show(&self) -> Json {
        json!(self.path.display().to_string())
    }
}

/// One digest for the files of a TLS table.
pub(crate) fn combined(digests: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    digests.hash(&mut hasher);
    hasher.finish()
}
