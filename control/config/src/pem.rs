//! Paths of PEM files. The contents are read once to learn that they are there, and to notice a renewal under the
//! same name; what is in them is judged by the engine when it builds a TLS context (see `checks::tls`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weir_base::Secret;
use weir_engine::tls::PEM_BYTES_MAX;

use crate::document::Node;
use crate::reader::Reader;
use crate::secret::{private_file, readable_file};
use crate::texts::string;
use crate::value::{Shape, Value};

/// Certificates: public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates;

/// A private key: nobody else may read the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateKey;

/// What a PEM file holds.
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

/// A readable PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PemFile<T> {
    /// As it is opened: a relative path already joined to the configuration's directory.
    pub(crate) path: PathBuf,
    /// Of the contents. SipHash without a key of its own: it only has to differ when the file does, and 64 bits of it
    /// say nothing about a private key.
    pub(crate) digest: u64,
    holds: PhantomData<T>,
}

impl<T: Holds> Value for PemFile<T> {
    fn shape() -> Shape {
        Shape::Text { what: T::WHAT, example: T::EXAMPLE }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        if text.is_empty() || text.contains('\0') {
            reader.wrong_value(node, format!("`{}` is no path", node.path), format!("write {}", T::WHAT));
            return None;
        }
        let path = Path::new(text);
        let contents = match T::IS_PRIVATE {
            true => private_file(node, path, PEM_BYTES_MAX, reader)?,
            false => readable_file(node, path, PEM_BYTES_MAX, reader)?,
        };
        let bytes = Secret::new(contents.bytes);
        let mut hasher = DefaultHasher::new();
        bytes.expose().hash(&mut hasher);
        Some(Self { path: reader.directory.join(path), digest: hasher.finish(), holds: PhantomData })
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
