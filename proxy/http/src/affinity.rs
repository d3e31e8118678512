//! The key that decides the endpoint of a request, for upstreams with affinity.

use weir_http_codec::{Fields, Known, RequestHead};
use weir_upstream::{affinity_hash, settings::Affinity};

use crate::{connection::Connection, request_context::RequestContext};

/// The hash of what keeps a request together with others; `None`: it goes anywhere.
pub(crate) fn of(
    connection: &Connection,
    affinity: &Affinity,
    head: &RequestHead,
    request: &RequestContext,
) -> Option<u64> {
    match affinity {
        Affinity::None => None,
        Affinity::Address => {
            let client = request.client.get().copied().unwrap_or_else(|| connection.addresses(&Fields::new()).1);
            Some(affinity_hash(client.to_canonical().to_string().as_bytes()))
        }
        Affinity::Header(name) => head.fields.all_named(name.as_bytes()).next().map(affinity_hash),
        Affinity::Cookie { name, max_age } => {
            let known = head.fields.all(Known::Cookie).find_map(|line| cookie(line, name.as_bytes()));
            if let Some(value) = known.filter(|value| !value.is_empty()) {
                return Some(affinity_hash(value));
            }
            let value = format!("{:016x}", connection.service.sessions.chance());
            let mut cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax");
            if connection.is_tls() {
                cookie.push_str("; Secure");
            }
            if let Some(age) = max_age {
                cookie.push_str(&format!("; Max-Age={}", age.as_secs()));
            }
            // A retried request keeps its first cookie.
            let _ = request.affinity_cookie.set(cookie.into_bytes().into());
            Some(affinity_hash(value.as_bytes()))
        }
    }
}

/// The value of a cookie in a line of them.
fn cookie<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..at] == *name).then(|| pair[at + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let line = b"xid=1; id=a=b;id2=3 ; ID=4";
        assert_eq!(cookie(line, b"id"), Some(&b"a=b"[..]));
        assert_eq!(cookie(line, b"id2"), Some(&b"3"[..]));
        assert_eq!(cookie(line, b"d"), None);
    }
}
