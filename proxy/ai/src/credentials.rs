//! The key of a client, and the key of a provider in its place.

use weir_http_codec::{Fields, Known};

use crate::settings::{Provider, ProviderDialect};

/// Fields with a key besides Authorization: Anthropic's, and Azure's.
const KEY_FIELDS: [&[u8]; 2] = [b"x-api-key", b"api-key"];

/// Fields of a client that another's key replaces: its own key, and its choice among its accounts at a provider, which means nothing
/// without that.
const REPLACED_FIELDS: ([Known; 2], [&[u8]; 4]) =
    ([Known::Authorization, Known::Cookie], [b"x-api-key", b"api-key", b"openai-organization", b"openai-project"]);

/// Fields of a response that name the account at a provider, or tie the client to it.
const RESPONSE_FIELDS: ([Known; 1], [&[u8]; 3]) =
    ([Known::SetCookie], [b"openai-organization", b"openai-project", b"anthropic-organization-id"]);

/// Fields by which providers and servers of tools see the client's address. They are no servers of the operator.
const CLIENT_FIELDS: [Known; 3] = [Known::XForwardedFor, Known::XForwardedHost, Known::XForwardedProto];

/// Removes the fields that show a client from the head of its request.
pub(crate) fn hide_client(fields: &mut Fields) {
    fields.remove_all(&CLIENT_FIELDS, &[]);
}

/// Removes the fields that tell of the account at a provider from the head of its response, if the account is that of the gateway.
pub(crate) fn hide_account(fields: &mut Fields, provider: &Provider) {
    if provider.api_key.is_some() {
        fields.remove_all(&RESPONSE_FIELDS.0, &RESPONSE_FIELDS.1);
    }
}

/// The key that a client has sent. Empty: it has sent none, or several.
pub(crate) fn of_client(fields: &Fields) -> &[u8] {
    let bearer = fields.all(Known::Authorization).map(|value| bearer(value).unwrap_or_default());
    let mut keys = bearer.chain(KEY_FIELDS.into_iter().flat_map(|name| fields.all_named(name)));
    let Some(first) = keys.next() else { return b"" };
    // SDKs of Anthropic send the same key twice, if they are given one as a token too.
    if keys.all(|other| other == first) { first } else { b"" }
}

/// The token of an Authorization field (RFC 6750 section 2.1; the scheme has any case).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Puts the key of the provider in the place of that of the client. `is_ours`: the client's key is one of the listener, and must not
/// go on in any case.
pub(crate) fn swap(fields: &mut Fields, provider: &Provider, is_ours: bool) {
    if provider.api_key.is_none() && !is_ours {
        return;
    }
    fields.remove_all(&REPLACED_FIELDS.0, &REPLACED_FIELDS.1);
    if let Some(key) = &provider.api_key {
        add(fields, provider.dialect, key.expose());
    }
}

/// Puts a key into the field of a dialect, in the place of all others. Without a key nothing changes.
pub(crate) fn place(fields: &mut Fields, dialect: ProviderDialect, key: &[u8]) {
    if key.is_empty() {
        return;
    }
    fields.remove_all(&[Known::Authorization], &KEY_FIELDS);
    add(fields, dialect, key);
}

/// Adds a key in the field of a dialect.
fn add(fields: &mut Fields, dialect: ProviderDialect, key: &[u8]) {
    match dialect {
        ProviderDialect::OpenAi => fields.add(Known::Authorization, &[b"Bearer ", key].concat()),
        ProviderDialect::Azure => fields.push(b"api-key", key),
        ProviderDialect::Anthropic => fields.push(b"x-api-key", key),
    }
}

#[cfg(test)]
mod tests {
    use weir_base::Secret;

    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    fn written(fields: &Fields) -> String {
        let mut out = Vec::new();
        fields.write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn a_key_is_found_in_the_field_of_each_dialect() {
        for (lines, key) in [
            (&[("Authorization", "Bearer k1")][..], "k1"),
            (&[("authorization", "bearer  k1")], "k1"),
            (&[("X-Api-Key", "k2")], "k2"),
            (&[("api-key", "k3")], "k3"),
            (&[("Authorization", "Basic k1")], ""),
            (&[("Authorization", "Bearer k1"), ("x-api-key", "k1")], "k1"),
            (&[("Authorization", "Bearer k1"), ("x-api-key", "k2")], ""),
            (&[("Authorization", "Bearer k1"), ("Authorization", "Bearer k2")], ""),
            (&[], ""),
        ] {
            assert_eq!(of_client(&fields(lines)), key.as_bytes(), "{lines:?}");
        }
    }

    #[test]
    fn no_key_of_a_client_goes_on_beside_that_of_the_provider() {
        let sent = [
            ("Authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("OpenAI-Organization", "o"),
            ("Cookie", "c"),
            ("Accept", "a"),
        ];
        let swapped = |dialect, api_key: Option<&str>, is_ours| {
            let api_key = api_key.map(|key| Secret::new(key.as_bytes().to_vec()));
            let provider = Provider { api_key, ..Provider::new(dialect, "h") };
            let mut fields = fields(&sent);
            swap(&mut fields, &provider, is_ours);
            written(&fields)
        };
        let all = "Authorization: Bearer k\r\nx-api-key: k\r\nOpenAI-Organization: o\r\nCookie: c\r\nAccept: a\r\n";
        assert_eq!(swapped(ProviderDialect::OpenAi, None, false), all, "it is the client's own");
        assert_eq!(swapped(ProviderDialect::OpenAi, None, true), "Accept: a\r\n");
        assert_eq!(swapped(ProviderDialect::OpenAi, Some("p"), true), "Accept: a\r\nauthorization: Bearer p\r\n");
        assert_eq!(swapped(ProviderDialect::Azure, Some("p"), false), "Accept: a\r\napi-key: p\r\n");
        assert_eq!(swapped(ProviderDialect::Anthropic, Some("p"), true), "Accept: a\r\nx-api-key: p\r\n");
    }
}
