//! The two documents of a backup, and the seal by which a damaged one is known.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_flags_codec::{FeaturesDocument, tokens::ValidatedToken};
use weir_flags_session::Token;
use xxhash_rust::xxh64::xxh64;

use crate::limits::BACKUP_BYTES_MAX;

/// The version of the form.
const VERSION: u32 = 1;

/// Bytes of a sealed document. A seal has at most 121.
pub(super) const SEALED_BYTES_MAX: usize = BACKUP_BYTES_MAX + 128;

/// One of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// The flags of each environment.
    Features,
    /// The tokens.
    Tokens,
}

/// The first line of a document.
#[derive(Serialize, Deserialize)]
struct Seal {
    #[serde(rename = "weirBackup")]
    version: u32,
    bytes: usize,
    xxh64: String,
    /// Seconds since 1970: see [`Restored::shown`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown: Option<u64>,
}

/// Both documents as a store has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) features: Vec<u8>,
    /// `None`: there is no such document.
    pub(super) tokens: Option<Vec<u8>>,
}

/// The state of the documents.
pub(super) struct Restored {
    pub(super) environments: Vec<(String, FeaturesDocument)>,
    pub(super) tokens: Vec<Token>,
    /// The time since 1970 at which the server has shown these flags, or the latest before that is known. `None`: none is.
    pub(super) shown: Option<Duration>,
}

/// The document behind its seal. `shown`: see [`Restored::shown`].
///
/// # Errors
/// It is longer than what is read again.
pub(super) fn sealed(body: &[u8], shown: Option<Duration>) -> Result<Vec<u8>, String> {
    if body.len() > BACKUP_BYTES_MAX {
        return Err(format!("a document has {} bytes, more than {BACKUP_BYTES_MAX}", body.len()));
    }
    let (hash, shown) = (format!("{:016x}", xxh64(body, 0)), shown.map(|shown| shown.as_secs()));
    let seal = Seal { version: VERSION, bytes: body.len(), xxh64: hash, shown };
    let mut text = serde_json::to_vec(&seal).map_err(|error| error.to_string())?;
    text.push(b'\n');
    text.extend_from_slice(body);
    Ok(text)
}

/// The document of a text whose seal holds, and the time of the seal.
fn body(text: &[u8]) -> Result<(&[u8], Option<Duration>), String> {
    let end = text.iter().position(|byte| *byte == b'\n');
    let sealed = end.and_then(|end| Some((serde_json::from_slice::<Seal>(&text[..end]).ok()?, end + 1)));
    // Without a seal it is a document of Unleash Edge.
    let Some((seal, begins)) = sealed else { return Ok((text, None)) };
    let body = &text[begins..];
    if seal.version != VERSION {
        return Err(format!("version {}, which this program does not know", seal.version));
    }
    if seal.bytes != body.len() || seal.xxh64 != format!("{:016x}", xxh64(body, 0)) {
        return Err("it is truncated or damaged".to_owned());
    }
    Ok((body, seal.shown.map(Duration::from_secs)))
}

/// Reads both documents. `name_of`: the name of each in messages.
///
/// # Errors
/// One of them is damaged, or is none.
pub(super) fn read(copies: &Copies, name_of: impl Fn(Document) -> String) -> Result<Restored, String> {
    let named = |document| move |error: String| (document, error);
    let read = || -> Result<Restored, (Document, String)> {
        let (environments, shown) = environments(&copies.features).map_err(named(Document::Features))?;
        let tokens = copies.tokens.as_deref().map_or_else(|| Ok(Vec::new()), tokens);
        Ok(Restored { environments, tokens: tokens.map_err(named(Document::Tokens))?, shown })
    };
    read().map_err(|(document, error)| format!("{}: {error}", name_of(document)))
}

type Environments = Vec<(String, FeaturesDocument)>;

fn environments(text: &[u8]) -> Result<(Environments, Option<Duration>), String> {
    let (body, shown) = body(text)?;
    // Unleash Edge has a list of pairs in place of a map.
    let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let all: BTreeMap<String, &RawValue> = match is_list {
        true => serde_json::from_slice(body).map(|pairs: Vec<(String, &RawValue)>| pairs.into_iter().collect()),
        false => serde_json::from_slice(body),
    }
    .map_err(|_| "no map of environments".to_owned())?;
    let read = |(environment, raw): (String, &RawValue)| match FeaturesDocument::read(raw.get().as_bytes()) {
        Ok(document) => Ok((environment, document)),
        Err(error) => Err(format!("{environment}: {error}")),
    };
    Ok((all.into_iter().map(read).collect::<Result<_, String>>()?, shown))
}

fn tokens(text: &[u8]) -> Result<Vec<Token>, String> {
    let all: Vec<ValidatedToken> = serde_json::from_slice(body(text)?.0).map_err(|_| "no list of tokens".to_owned())?;
    // A trusted token is one of the configuration, which alone vouches for it.
    let is_judged =
        |token: &&ValidatedToken| token.status.as_deref().is_none_or(|status| status.eq_ignore_ascii_case("validated"));
    Ok(all.iter().filter(is_judged).filter_map(|token| Token::validated(token).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"{"development":{"version":2,"features":[{"name":"a","enabled":true}]}}"#;

    fn restored(features: &[u8], tokens: Option<&[u8]>) -> Result<Restored, String> {
        let copies = Copies { features: features.to_vec(), tokens: tokens.map(<[u8]>::to_vec) };
        read(&copies, |document| format!("{document:?}"))
    }

    #[test]
    fn documents_are_read_as_they_were_sealed_without_tokens_of_the_configuration() {
        let tokens = r#"[{"token":"*:development.s","type":"backend","environment":"development","projects":["*"]},
            {"token":"*:development.t","type":"frontend","environment":"development","projects":["*"],"status":"Trusted"}]"#;
        let (features, tokens) =
            (sealed(ALL.as_bytes(), None).expect("sealed"), sealed(tokens.as_bytes(), None).expect("sealed"));
        let both = restored(&features, Some(&tokens)).expect("valid");
        assert_eq!((both.environments.len(), both.tokens.len()), (1, 1));
        assert_eq!(both.environments[0].1.features.len(), 1);
        assert!(restored(&features, None).expect("valid").tokens.is_empty());
    }

    #[test]
    fn the_time_of_the_flags_is_kept_and_absent_from_documents_of_unleash_edge() {
        let shown = Some(Duration::from_secs(1_700_000_000));
        let features = sealed(ALL.as_bytes(), shown).expect("sealed");
        assert_eq!(restored(&features, None).expect("valid").shown, shown);
        assert_eq!(restored(ALL.as_bytes(), None).expect("valid").shown, None);
    }

    #[test]
    fn f7_a_truncated_document_and_one_of_another_version_are_refused_by_name() {
        let whole = sealed(ALL.as_bytes(), None).expect("sealed");
        for cut in 0..whole.len() {
            let error = restored(&whole[..cut], None).err().unwrap_or_else(|| panic!("{cut} bytes are no backup"));
            assert!(error.starts_with("Features: "), "{error}");
        }
        let later = String::from_utf8(whole.clone()).expect("UTF-8").replace("\"weirBackup\":1", "\"weirBackup\":2");
        assert!(restored(later.as_bytes(), None).err().expect("refused").contains("version 2"));
        let error = restored(&whole, Some(&whole[..whole.len() - 1])).err().expect("refused");
        assert_eq!(error, "Tokens: it is truncated or damaged");
    }

    #[test]
    fn documents_of_unleash_edge_are_read_as_pairs_and_as_a_map() {
        let pairs = r#" [["development",{"version":2,"features":[]}],["production",{"version":2,"features":[]}]]"#;
        let tokens = r#"[{"token":"*:development.s","type":"client","environment":"development","projects":["*"],"status":"Validated"}]"#;
        let both = restored(pairs.as_bytes(), Some(tokens.as_bytes())).expect("valid");
        assert_eq!((both.environments.len(), both.tokens.len()), (2, 1));
        assert_eq!(restored(ALL.as_bytes(), None).expect("valid").environments.len(), 1);
        for wrong in ["[]x", "[[\"development\"]]", "3", ""] {
            assert!(restored(wrong.as_bytes(), None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_that_would_not_be_read_again_is_not_written() {
        assert!(sealed(&vec![b' '; BACKUP_BYTES_MAX + 1], None).is_err());
        let longest = sealed(&vec![b' '; BACKUP_BYTES_MAX], Some(Duration::MAX)).expect("sealed");
        assert!(longest.len() <= SEALED_BYTES_MAX);
    }
}
