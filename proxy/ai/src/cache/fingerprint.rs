//! Equality of requests: the same tenant, the same target, the same bytes.
//!
//! The body is not parsed into a form of its own. It is taken as it came, without members that change nothing in a response. So another
//! order of members, or another white space, is another request.

use aws_lc_rs::digest::{Context, SHA256};
use weir_analysis::ai::{Endpoint, Facts, Span};
use weir_http_codec::Fields;

use crate::settings::{Provider, ProviderDialect};

/// SHA-256 of everything that a response depends on. Clients choose the bytes, so no weaker hash will do.
pub(crate) type Fingerprint = [u8; 32];

/// Begins each text that is hashed: another form gets another number.
const FORM: &[u8] = b"weir exact cache 1";

/// Fields of a request that change a response, besides keys.
const VARYING_FIELDS: [&[u8]; 3] = [b"anthropic-version", b"anthropic-beta", b"openai-beta"];

/// Fields that lead to an account of the client's own at a provider.
const ACCOUNT_FIELDS: [&[u8]; 6] =
    [b"authorization", b"x-api-key", b"api-key", b"openai-organization", b"openai-project", b"cookie"];

/// Whose responses they are. No response of one tenant serves another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant<'a> {
    pub(crate) listener: &'a str,
    /// The name of the key. `None`: the listener needs none.
    pub(crate) key: Option<&'a str>,
    /// It changes with the rules of the tenant.
    pub(crate) version: u64,
    /// The client uses an account of its own, which its fields name.
    pub(crate) has_own_account: bool,
}

/// A request, as far as its response depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) tenant: Tenant<'a>,
    /// The path without its version, and the query.
    pub(crate) target: (&'a str, &'a str),
    /// The name of the upstream, and its provider.
    pub(crate) provider: (&'a str, &'a Provider),
    /// The name of the model there.
    pub(crate) model: &'a str,
    /// The provider sends the usage of a stream.
    pub(crate) sends_usage: bool,
    pub(crate) fields: &'a Fields,
    pub(crate) facts: &'a Facts,
    /// As it came.
    pub(crate) body: &'a [u8],
}

impl Subject<'_> {
    /// The number of all equal requests.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut digest = Digest(Context::new(&SHA256));
        let Tenant { listener, key, version, has_own_account } = self.tenant;
        digest.part(FORM);
        digest.part(listener.as_bytes());
        digest.part(&[key.is_some().into(), has_own_account.into(), self.sends_usage.into()]);
        digest.part(key.unwrap_or_default().as_bytes());
        digest.part(&version.to_le_bytes());
        digest.part(self.target.0.as_bytes());
        digest.part(self.target.1.as_bytes());
        let (name, provider) = self.provider;
        digest.part(name.as_bytes());
        digest.part(match provider.dialect {
            ProviderDialect::OpenAi => b"openai",
            ProviderDialect::Azure => b"azure",
            ProviderDialect::Anthropic => b"anthropic",
        });
        digest.part(provider.base_path.as_bytes());
        digest.part(provider.host.as_bytes());
        digest.part(self.model.as_bytes());
        let own = ACCOUNT_FIELDS.into_iter().filter(|_| has_own_account);
        for name in VARYING_FIELDS.into_iter().chain(own) {
            digest.part(name);
            self.fields.all_named(name).for_each(|value| digest.part(value));
        }
        // The last part needs no length in front of each of its pieces.
        digest.part(b"");
        rest(self.facts, self.body).into_iter().for_each(|piece| digest.0.update(piece));
        let mut found = Fingerprint::default();
        found.copy_from_slice(digest.0.finish().as_ref());
        found
    }
}

struct Digest(Context);

impl Digest {
    /// A part with its length, so that no two lists of parts have the same bytes.
    fn part(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

/// The values of members that change nothing in a response. `/responses` repeats its members in the response, so all of them count.
fn irrelevant(facts: &Facts) -> Vec<Span> {
    let options = &facts.options;
    if facts.endpoint == Endpoint::Responses {
        return Vec::new();
    }
    // Whether usage is sent has a place of its own. Other options of a stream change its events.
    let stream_options = options
        .stream_options
        .filter(|options| options.members.is_none_or(|members| members == u64::from(options.include_usage.is_some())));
    let named = [&options.user, &options.safety_identifier, &options.prompt_cache_key];
    let named = named.into_iter().flatten().map(|named| named.span);
    let mut spans: Vec<Span> =
        named.chain(options.metadata).chain(stream_options.map(|options| options.span)).collect();
    spans.sort_unstable_by_key(|span| span.start);
    // The user of Anthropic's messages is within the metadata.
    spans.dedup_by(|inner, outer| inner.start < outer.end);
    spans
}

/// The body without those members. A comma goes with each, so that the rest is the body that a client without the member would send.
fn rest<'b>(facts: &Facts, body: &'b [u8]) -> Vec<&'b [u8]> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    let (mut at, mut comma_follows) = (0, false);
    for span in irrelevant(facts) {
        let Some(start) = member(body, span.start as usize).filter(|start| *start >= at) else { continue };
        push(&mut pieces, &body[at..start], comma_follows);
        at = (span.end as usize).min(body.len());
        let shorter = pieces.last().and_then(|last| last.trim_ascii_end().strip_suffix(b","));
        comma_follows = shorter.is_none();
        if let (Some(last), Some(shorter)) = (pieces.last_mut(), shorter) {
            *last = shorter;
        }
    }
    push(&mut pieces, &body[at..], comma_follows);
    pieces
}

/// Appends a piece, without the comma in front if that belongs to a member that is gone.
fn push<'b>(pieces: &mut Vec<&'b [u8]>, piece: &'b [u8], comma_follows: bool) {
    let behind = piece.trim_ascii_start().strip_prefix(b",").filter(|_| comma_follows);
    let piece = behind.map_or(piece, <[u8]>::trim_ascii_start);
    if !piece.is_empty() {
        pieces.push(piece);
    }
}

/// Where the member begins whose value begins here: at the quote of its name. The body is valid JSON, and the name has no quote within.
fn member(body: &[u8], value: usize) -> Option<usize> {
    let name = body.get(..value)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"")?;
    name.iter().rposition(|byte| *byte == b'"')
}

#[cfg(test)]
mod tests {
    use weir_analysis::ai::{Wanted, read};

    use super::*;

    fn text(endpoint: Endpoint, body: &str) -> String {
        let facts = read(endpoint, body.as_bytes(), Wanted::default()).expect("valid");
        String::from_utf8(rest(&facts, body.as_bytes()).concat()).expect("UTF-8")
    }

    #[test]
    fn members_that_change_nothing_are_left_out_with_a_comma() {
        for body in [
            r#"{"model":"m","n":1}"#,
            r#"{"user":"a","model":"m","n":1}"#,
            r#"{"user":"a","metadata":{"k":"},\"user\":"},"model":"m","n":1}"#,
            r#"{"model":"m","n":1,"user":"a","safety_identifier":"s"}"#,
            r#"{"model":"m","metadata":{},"user":"a","prompt_cache_key":"k","n":1}"#,
            r#"{"model":"m","stream_options":{"include_usage":true},"n":1}"#,
            r#"{"model":"m","us\u0065r" : "a","n":1}"#,
            r#"{"model":"m","stream_options":null,"n":1}"#,
        ] {
            assert_eq!(text(Endpoint::Chat, body), r#"{"model":"m","n":1}"#, "{body}");
        }
        assert_eq!(text(Endpoint::Chat, r#"{"user":"a"}"#), "{}");
        let messages = r#"{"model":"m","metadata":{"user_id":"u"},"max_tokens":1}"#;
        assert_eq!(text(Endpoint::Messages, messages), r#"{"model":"m","max_tokens":1}"#);
    }

    #[test]
    fn everything_else_counts() {
        for (endpoint, body) in [
            (Endpoint::Chat, r#"{"model":"m","messages":[{"user":"a"}]}"#),
            (Endpoint::Chat, r#"{"model":"m","stream_options":{"include_obfuscation":false}}"#),
            (Endpoint::Chat, r#"{"model":"m", "n":1}"#),
            (Endpoint::Responses, r#"{"model":"m","user":"a","metadata":{"k":"v"}}"#),
        ] {
            assert_eq!(text(endpoint, body), body);
        }
    }

    fn provider(api: &str) -> Provider {
        Provider {
            dialect: ProviderDialect::OpenAi,
            api_key: None,
            base_path: api.into(),
            host: "h".into(),
            include_usage: true,
            abilities: Default::default(),
        }
    }

    #[test]
    fn each_part_makes_another_request() {
        let facts = |body: &str| read(Endpoint::Chat, body.as_bytes(), Wanted::default()).expect("valid");
        let (body, other) = (r#"{"model":"m"}"#, r#"{"model":"n"}"#);
        let (first, second) = (facts(body), facts(other));
        let (v1, v2) = (provider("/v1"), provider("/v2"));
        let (none, mut beta, mut alice) = (Fields::new(), Fields::new(), Fields::new());
        beta.push(b"OpenAI-Beta", b"x");
        alice.push(b"Authorization", b"Bearer alice");
        let tenant = Tenant { listener: "a", key: Some("k"), version: 1, has_own_account: false };
        let subject = Subject {
            tenant,
            target: ("/chat/completions", ""),
            provider: ("u", &v1),
            model: "m",
            sends_usage: true,
            fields: &none,
            facts: &first,
            body: body.as_bytes(),
        };
        let own = Tenant { has_own_account: true, ..tenant };
        let all = [
            subject,
            Subject { tenant: Tenant { listener: "b", ..tenant }, ..subject },
            Subject { tenant: Tenant { key: Some("l"), ..tenant }, ..subject },
            Subject { tenant: Tenant { key: None, ..tenant }, ..subject },
            Subject { tenant: Tenant { listener: "ak", key: Some(""), ..tenant }, ..subject },
            Subject { tenant: Tenant { version: 2, ..tenant }, ..subject },
            Subject { tenant: own, ..subject },
            Subject { tenant: own, fields: &alice, ..subject },
            Subject { target: ("/completions", ""), ..subject },
            Subject { target: ("/chat/completions", "?a"), ..subject },
            Subject { provider: ("w", &v1), ..subject },
            Subject { provider: ("u", &v2), ..subject },
            Subject { model: "x", ..subject },
            Subject { sends_usage: false, ..subject },
            Subject { fields: &beta, ..subject },
            Subject { facts: &second, body: other.as_bytes(), ..subject },
        ];
        let numbers: std::collections::HashSet<_> = all.iter().map(Subject::fingerprint).collect();
        assert_eq!(numbers.len(), all.len());
        // The keys of clients go nowhere if the gateway has the account.
        assert_eq!(Subject { fields: &alice, ..subject }.fingerprint(), subject.fingerprint());
    }
}
