//! A backup in two objects of a bucket, in S3 or a server with its API.

use std::time::Duration;

use bytes::Bytes;
use rusty_s3::{Credentials, S3Action as _};
use weir_http::filter::{FilterRequest, FilterRequestError, FilterResponse};
use weir_http_codec::{Fields, HeadLimits, Known, RequestHead, Version};

use super::{
    Desk,
    document::{Copies, Document, SEALED_BYTES_MAX},
};
use crate::{
    limits::{BACKUP_TIMEOUT, RESPONSE_BYTES_MAX},
    settings::{S3Access, S3Backup},
};

/// How long a signature holds. Default 10 min: clocks may differ, and a request begins at once.
const SIGNATURE_TTL: Duration = Duration::from_secs(600);

/// Letters of a code of an error in messages. The longest of S3 has about 50.
const CODE_BYTES_MAX: usize = 64;

/// The name of the object of a document.
pub(super) fn object(backup: &S3Backup, document: Document) -> String {
    let name = match document {
        Document::Features => "unleash-features.json",
        Document::Tokens => "unleash-tokens.json",
    };
    format!("{}{name}", backup.prefix)
}

/// Writes both objects.
///
/// # Errors
/// One of them cannot be written. Its last version stays.
pub(super) async fn save(desk: &Desk, backup: &S3Backup, copies: Copies) -> Result<(), String> {
    for (document, text) in [(Document::Features, Some(copies.features)), (Document::Tokens, copies.tokens)] {
        let Some(text) = text else { continue };
        let name = object(backup, document);
        let response = send(desk, backup, &name, Some(text)).await?;
        if response.status / 100 != 2 {
            return Err(refusal(&name, &response));
        }
    }
    Ok(())
}

/// Reads both objects. `None`: there are none.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub(super) async fn load(desk: &Desk, backup: &S3Backup) -> Result<Option<Copies>, String> {
    let Some(features) = text(desk, backup, Document::Features).await? else { return Ok(None) };
    Ok(Some(Copies { features, tokens: text(desk, backup, Document::Tokens).await? }))
}

/// The text of an object. `None`: there is no object.
async fn text(desk: &Desk, backup: &S3Backup, document: Document) -> Result<Option<Vec<u8>>, String> {
    let name = object(backup, document);
    let response = send(desk, backup, &name, None).await?;
    match response.status {
        200 if response.is_whole => Ok(Some(response.body)),
        200 => Err(format!("the object {name}: the response broke off")),
        // A bucket that is not there is a mistake of the operator.
        404 if code(&response.body) != "NoSuchBucket" => Ok(None),
        _ => Err(refusal(&name, &response)),
    }
}

/// Sends a request for an object. `body`: it is written; `None`: it is read.
async fn send(desk: &Desk, backup: &S3Backup, name: &str, body: Option<Vec<u8>>) -> Result<FilterResponse, String> {
    let request = request(backup, name, body).map_err(|error| format!("the object {name}: {error}"))?;
    desk.http.send_request(request).await.map_err(|error| {
        let what = match error {
            FilterRequestError::Unreachable => "the server cannot be reached".to_owned(),
            FilterRequestError::Failed => "the server does not respond as it should, or in time".to_owned(),
            FilterRequestError::TooLong => format!("it has more than {SEALED_BYTES_MAX} bytes"),
            FilterRequestError::NoRoom => "limits.buffered_bytes has no room for it".to_owned(),
        };
        format!("the object {name}: {what}")
    })
}

/// The request, whose target has the signature. It ends with [`SIGNATURE_TTL`], and is shown nowhere.
fn request(backup: &S3Backup, name: &str, body: Option<Vec<u8>>) -> Result<FilterRequest, String> {
    let access = credentials(&backup.access).ok_or("a key is no text")?;
    let bucket = &backup.bucket;
    let (method, url) = match &body {
        None => ("GET", bucket.get_object(Some(&access), name).sign(SIGNATURE_TTL)),
        Some(_) => ("PUT", bucket.put_object(Some(&access), name).sign(SIGNATURE_TTL)),
    };
    let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    // The signature has the Host.
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let mut fields = Fields::new();
    fields.push(b"user-agent", concat!("weir/", env!("CARGO_PKG_VERSION")).as_bytes());
    if body.is_some() {
        fields.add(Known::ContentType, b"application/json");
    }
    let line = (method.as_bytes(), target.as_bytes(), host.as_bytes());
    let head = RequestHead::from_parts(Version::Http11, line, fields, body.is_none(), &HeadLimits::default());
    Ok(FilterRequest {
        upstream: backup.upstream.clone(),
        endpoint: None,
        host: None,
        head: head.map_err(|error| format!("no request can be made: {error:?}"))?,
        response_bytes_max: if body.is_some() { RESPONSE_BYTES_MAX } else { SEALED_BYTES_MAX },
        body: Bytes::from(body.unwrap_or_default()),
        is_repeatable: true,
        timeout: BACKUP_TIMEOUT,
    })
}

fn credentials(access: &S3Access) -> Option<Credentials> {
    let (key_id, secret_key) = (access.key_id.expose_str()?, access.secret_key.expose_str()?);
    Some(match &access.session_token {
        Some(token) => Credentials::new_with_token(key_id, secret_key, token.expose_str()?),
        None => Credentials::new(key_id, secret_key),
    })
}

/// Why a request was refused, in the words of the server.
fn refusal(name: &str, response: &FilterResponse) -> String {
    format!("the object {name}: the server responds with {} {}", response.status, code(&response.body))
}

/// The code of an error. It is a stranger's text: only its first letters and digits are kept.
fn code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4_096)]);
    let code = text.split_once("<Code>").map_or("", |(_, rest)| rest);
    code.chars().take_while(char::is_ascii_alphanumeric).take(CODE_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use weir_base::Secret;

    use super::*;

    fn backup(session_token: Option<Secret>) -> S3Backup {
        let access = S3Access {
            key_id: Secret::new(b"the-id".to_vec()),
            secret_key: Secret::new(b"the-key".to_vec()),
            session_token,
        };
        let bucket = crate::settings::bucket("flags", "eu", ("localhost:7070", false), true).expect("a bucket");
        S3Backup { upstream: "s3".into(), bucket, prefix: "/".into(), access }
    }

    #[test]
    fn a_request_has_its_signature_in_the_target_and_no_key() {
        let read = request(&backup(None), "/unleash-features.json", None).expect("a request");
        let target = String::from_utf8_lossy(read.head.target()).into_owned();
        assert!(target.starts_with("/flags//unleash-features.json?X-Amz-Algorithm=AWS4-HMAC-SHA256&"), "{target}");
        assert!(target.contains("X-Amz-Signature=") && !target.contains("the-key"), "{target}");
        assert_eq!(read.head.authority(), b"localhost:7070");
        let token = Some(Secret::new(b"the-token".to_vec()));
        let written = request(&backup(token), "/unleash-features.json", Some(b"{}".to_vec())).expect("a request");
        assert!(String::from_utf8_lossy(written.head.target()).contains("X-Amz-Security-Token=the-token"));
        assert_eq!(&*written.body, b"{}");
    }

    #[test]
    fn the_code_of_an_error_has_letters_and_digits_alone() {
        assert_eq!(code(b"<Error><Code>NoSuchKey</Code>"), "NoSuchKey");
        assert_eq!(code(b"<Code>No\nSuch"), "No");
        assert_eq!(code(&[b"<Code>".to_vec(), vec![b'a'; 10_000]].concat()).len(), CODE_BYTES_MAX);
        assert_eq!(code(b"garbage"), "");
    }
}
