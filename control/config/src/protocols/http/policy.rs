//! The requirements of HTTP listeners and routes for their requests: the tables, and the files that they name.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weir_base::{Net, Secret};
use weir_http::{ext_auth, jwks};
use weir_policy::http::{
    Algorithm, BasicUser, IPV6_PREFIX, JWKS_BYTES_MAX, MissingKey, RateFields, Source, parse_htpasswd,
};

use crate::document::{At, Node};
use crate::numbers::Period;
use crate::reader::Reader;
use crate::secret::{SecretRef, private_file, readable_file};
use crate::section::section;
use crate::texts::{Choice, LongWord, Name, Text, Word, string};
use crate::value::{Shape, Value};

/// Bytes of a password file. Default 4 MiB: 10,000 users and their hashes have less.
const PASSWORDS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Mistakes of one password file that are reported.
const MISTAKES_MAX: usize = 16;

section! {
    /// Networks from which requests are accepted or denied. A table of a route replaces that of its domain or listener.
    pub(crate) struct IpFilterSection {
        /// `false` on a domain or route disables the inherited policy.
        default enabled: bool = true;
        /// Networks whose requests are served; other requests get 403. Set either `allow` or `deny`.
        optional allow: Vec<At<Net>>;
        /// Networks whose requests get 403.
        optional deny: Vec<At<Net>>;
        /// Address that is checked: the `client`, according to `trusted_hops`, or the `peer` of the connection (with a PROXY
        /// header, the address in the header).
        default source: Source = Source::Client;
    }
}

section! {
    /// Web pages of other origins that may read responses (CORS). The gateway itself responds to preflight requests. A table of a
    /// route replaces that of its domain or listener.
    pub(crate) struct CorsSection {
        /// `false` on a domain or route disables the inherited policy, and leaves CORS to the upstream.
        default enabled: bool = true;
        /// Origins as browsers send them (`https://app.example.com`), or `*` for all origins, but not with `allow_credentials`.
        optional allow_origins: Vec<At<Word>>;
        /// Regular expressions that match a whole origin.
        optional allow_origin_regexes: Vec<At<LongWord>>;
        /// Methods besides GET, HEAD and POST.
        optional allow_methods: Vec<At<Word>>;
        /// Request headers that pages may set.
        optional allow_headers: Vec<At<Word>>;
        /// Response headers that pages may read.
        optional expose_headers: Vec<At<Word>>;
        /// How long browsers may cache the response to a preflight request. If absent, the default of browsers, 5 s.
        optional max_age: Period => Period::secs(0)..=Period::secs(7 * 86_400);
        /// Allow pages to send cookies and read the response.
        default allow_credentials: bool = false;
        /// Allow pages of public networks to reach this listener in a private network (Private Network Access).
        default allow_private_network: bool = false;
    }
}

section! {
    /// User names and passwords (RFC 7617). Requests without valid credentials get 401. A table of a route replaces that of its
    /// domain or listener. A request must pass all of `basic_auth`, `api_key` and `jwt` that apply to its route.
    pub(crate) struct BasicAuthSection {
        /// `false` on a domain or route disables the inherited policy.
        default enabled: bool = true;
        /// File of users as `htpasswd -B` writes it, with bcrypt, PBKDF2 or SHA hashes, but not MD5 or crypt. A reload reads it
        /// again. Must not be readable for other users of the machine. A relative path starts at the configuration file's
        /// directory.
        optional users_file: PasswordFile;
        /// Text that browsers show in the password dialog.
        default realm: Text = Text("restricted".to_owned());
        /// Forward the Authorization header to the upstream.
        default forward: bool = false;
        /// Header in which the upstream gets the user name, and which is removed from client requests. If absent, no name is sent.
        optional user_header: Word;
    }
}

section! {
    /// API keys of clients. Requests without a valid key get 401. A table of a route replaces that of its domain or listener.
    pub(crate) struct ApiKeySection {
        /// `false` on a domain or route disables the inherited policy.
        default enabled: bool = true;
        /// Header with the key. If absent, `x-api-key`, unless `query` or `cookie` is set.
        optional header: Word;
        /// Word in front of the key in the header, such as `Bearer`. If absent, none.
        optional scheme: Word;
        /// Query parameter with the key. Other systems may log keys in a query.
        optional query: Word;
        /// Cookie with the key.
        optional cookie: Word;
        /// The valid keys.
        tables key: ApiKeyEntrySection;
        /// Forward the key to the upstream.
        default forward: bool = false;
        /// Header in which the upstream gets the name of the key, and which is removed from client requests. If absent, no name is
        /// sent.
        optional user_header: Word;
    }
}

section! {
    /// A key of a client. Set either `sha256` or `key`.
    pub(crate) struct ApiKeyEntrySection {
        /// Name of the client, for logs and rate limits. Several keys may have one name, for example while a key is replaced.
        required name: Word;
        /// SHA-256 of the key in hexadecimal: `printf %s KEY | sha256sum`.
        optional sha256: Word;
        /// The key itself.
        optional key: SecretRef;
    }
}

section! {
    /// JSON Web Tokens (RFC 7519). Requests without a valid token get 401. A table of a route replaces that of its domain or
    /// listener.
    pub(crate) struct JwtSection {
        /// `false` on a domain or route disables the inherited policy.
        default enabled: bool = true;
        /// Issuers whose tokens are accepted.
        tables provider: JwtProviderSection;
        /// Header with the token. If absent, `authorization`, unless `query` or `cookie` is set.
        optional header: Word;
        /// Word in front of the token in the header. If absent, `Bearer` in `authorization`, otherwise none.
        optional scheme: Word;
        /// Query parameter with the token.
        optional query: Word;
        /// Cookie with the token.
        optional cookie: Word;
        /// Realm in the challenge of a 401 response.
        default realm: Text = Text("restricted".to_owned());
        /// Forward the token to the upstream.
        default forward: bool = false;
        /// Claims that the upstream gets in headers. These headers are removed from client requests.
        tables claim_header: ClaimHeaderSection;
    }
}

section! {
    /// An issuer of tokens.
    pub(crate) struct JwtProviderSection {
        /// Required value of `iss` in a token. If absent, any value.
        optional issuer: Text;
        /// Accepted audiences. `aud` in a token must contain one of these values. If absent, any value.
        optional audiences: Vec<At<Text>>;
        /// Accepted signature algorithms. `HS256` cannot be combined with others. If absent, `RS256` and `ES256`.
        optional algorithms: Vec<At<Algorithm>>;
        /// File with the keys of the issuer as a JWKS document (RFC 7517), read again at a reload. With a secret (`oct`), the file
        /// must not be readable for other users. A relative path starts at the configuration file's directory. Set either
        /// `jwks_file` or `jwks_upstream`.
        optional jwks_file: JwksFile;
        /// Upstream that publishes the keys of the issuer. The first token causes a fetch of the keys. If a fetch fails, old keys
        /// stay in use; without keys, requests get 503.
        optional jwks_upstream: Name;
        /// Path of the keys at `jwks_upstream`. If absent, `/.well-known/jwks.json`.
        optional jwks_path: Word;
        /// Host of the request for the keys. If absent, the host of the first endpoint of `jwks_upstream`.
        optional jwks_host: Word;
        /// Age at which keys are fetched again. A token with an unknown key causes a fetch at once, but at most every 10 s.
        default jwks_refresh: Period = Period(jwks::REFRESH) => Period::secs(1)..=Period::secs(86_400);
        /// Reject tokens without an expiry time (`exp`).
        default require_exp: bool = true;
    }
}

section! {
    /// A claim that the upstream gets in a header.
    pub(crate) struct ClaimHeaderSection {
        /// Name of the header.
        required header: Word;
        /// Path of the claim, the outermost name first: `["sub"]`, `["realm_access", "kind"]`.
        required claim: Vec<At<Text>>;
    }
}

section! {
    /// External authorization: a service decides on requests that pass all other policies (nginx's `auth_request`, Traefik's
    /// `forwardAuth`). The service gets a GET without a body, with the request line in X-Forwarded-Method and X-Forwarded-Uri. With
    /// 2xx, the request proceeds. A response from 300 to 499 goes to the client. In all other cases, the client gets 503. A table
    /// of a route replaces that of its domain or listener.
    pub(crate) struct ExtAuthSection {
        /// `false` on a domain or route disables the inherited policy.
        default enabled: bool = true;
        /// Upstream of the service.
        optional upstream: Name;
        /// Path of the request to the service. If absent, the path and query of the client request.
        optional path: Word;
        /// Host of the request to the service. If absent, the host of the client request.
        optional host: Word;
        /// Headers of the client request that the service gets. If absent, all, except those about a body or a cache.
        optional request_headers: Vec<At<Word>>;
        /// Headers of a 2xx response that the upstream gets, in place of headers of the same name from the client.
        optional response_headers: Vec<At<Word>>;
        /// Maximum time for the response of the service.
        default timeout: Period = Period(ext_auth::TIMEOUT) => Period::millis(1)..=Period::secs(60);
        /// Let requests proceed if the service fails. Use this only if the upstream checks requests too.
        default fail_open: bool = false;
    }
}

section! {
    /// Maximum rate of requests. Further requests get 429 with Retry-After. The tables of a route replace those of its domain or
    /// listener. All workers of the process share the counts. A reload that does not change a limit keeps its counts.
    pub(crate) struct RateLimitSection [name = name] {
        /// Name of the limit in RateLimit headers.
        required name: Name;
        /// `false` on a domain or route: the table sets no limit, but replaces inherited limits.
        default enabled: bool = true;
        /// Average number of requests allowed in `per`.
        optional requests: u32 => 1..=1_000_000_000;
        /// Period of `requests`.
        default per: Period = Period::secs(1) => Period::secs(1)..=Period::secs(86_400);
        /// Maximum number of requests at once after a pause. If absent, `requests`.
        optional burst: u32 => 1..=1_000_000_000;
        /// Requests that are counted together: those of each `client` address, of each value of a `header`, of each `identity` that
        /// authentication found, or `all`.
        default key: RateKeyChoice = RateKeyChoice::Client;
        /// Name of the header for `key = "header"`.
        optional header: Word;
        /// Treatment of requests without the header or identity: count them by `client` address, or let them `pass`.
        default missing: MissingKey = MissingKey::Client;
        /// Leading bits of an IPv6 address that identify a client.
        default ipv6_prefix: u32 = IPV6_PREFIX as u32 => 1..=128;
        /// Status of the response to requests beyond the limit.
        default status: u32 = 429 => 400..=599;
        /// Headers that report the limit to clients: `draft` (RateLimit and RateLimit-Policy), `legacy` (X-RateLimit-Limit,
        /// -Remaining, -Reset), `both` or `none`. A refusal always has Retry-After.
        default fields: RateFields = RateFields::Draft;
    }
}

/// The property by which a rate limit groups requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateKeyChoice {
    Client,
    Header,
    Identity,
    All,
}

impl Choice for RateKeyChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("client", Self::Client), ("header", Self::Header), ("identity", Self::Identity), ("all", Self::All)];
}

impl Choice for MissingKey {
    const WORDS: &'static [(&'static str, Self)] = &[("client", Self::Client), ("pass", Self::Pass)];
}

impl Choice for RateFields {
    const WORDS: &'static [(&'static str, Self)] =
        &[("draft", Self::Draft), ("legacy", Self::Legacy), ("both", Self::Both), ("none", Self::None)];
}

impl Choice for Source {
    const WORDS: &'static [(&'static str, Self)] = &[("client", Self::Client), ("peer", Self::Peer)];
}

impl Choice for Algorithm {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
        ("HS256", Self::Hs256),
    ];
}

section! {
    /// The policies of a route, a domain or a listener: a route's own stands in place of its domain's, and that of its listener's.
    pub(crate) struct PolicyKeys {
        /// Networks from which requests are accepted or denied.
        optional_table ip_filter: IpFilterSection;
        /// Web pages of other origins that may read responses (CORS).
        optional_table cors: CorsSection;
        /// User names and passwords.
        optional_table basic_auth: BasicAuthSection;
        /// API keys of clients.
        optional_table api_key: ApiKeySection;
        /// JSON Web Tokens.
        optional_table jwt: JwtSection;
        /// External authorization by another service.
        optional_table ext_auth: ExtAuthSection;
        /// Maximum rates of requests. A request must be within all limits.
        tables rate_limit: RateLimitSection;
    }
}

impl PolicyKeys {
    /// The upstreams that policies use, with the keys that name them.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (&'static str, &At<Name>)> {
        let keys = self.jwt.iter().flat_map(|jwt| &jwt.provider);
        let keys = keys.filter_map(|one| Some(("jwt.provider.jwks_upstream", one.jwks_upstream.as_ref()?)));
        keys.chain(self.ext_auth.iter().filter_map(|one| Some(("ext_auth.upstream", one.upstream.as_ref()?))))
    }
}

/// A file that is read whole: its path, and a digest that differs between two states of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    /// As it is opened.
    path: PathBuf,
    /// Digest of the contents: 64 bits that differ when the file does.
    digest: u64,
}

impl FileState {
    fn new(text: &str, bytes: &[u8], reader: &Reader<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self { path: reader.directory.join(text), digest: hasher.finish() }
    }
}

/// The text of a path; reports anything else.
fn path_text<'n>(node: &'n Node<'_>, shape: &Shape, reader: &mut Reader<'_>) -> Option<&'n str> {
    let text = string(node, shape, reader)?;
    if text.is_empty() || text.contains('\0') {
        reader.wrong_value(node, format!("`{}` is not a path", node.path), format!("write {}", shape.what()));
        return None;
    }
    Some(text)
}

/// UTF-8 of a file; reports anything else.
fn utf8<'b>(node: &Node<'_>, seen: &FileState, bytes: &'b [u8], reader: &mut Reader<'_>) -> Option<&'b str> {
    let text = std::str::from_utf8(bytes).ok();
    if text.is_none() {
        reader.wrong_value(node, format!("`{}`: {} is not UTF-8", node.path, seen.path.display()), "save it as UTF-8");
    }
    text
}

/// Users as `htpasswd` writes them.
#[derive(Clone, Debug)]
pub(crate) struct PasswordFile {
    seen: FileState,
    pub(crate) users: Vec<BasicUser>,
}

impl PartialEq for PasswordFile {
    fn eq(&self, other: &Self) -> bool {
        self.seen == other.seen
    }
}

impl Value for PasswordFile {
    fn shape() -> Shape {
        Shape::Text { what: "the path of a password file", example: "users.htpasswd" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = path_text(node, &Self::shape(), reader)?;
        let contents = private_file(node, Path::new(text), PASSWORDS_BYTES_MAX, reader)?;
        let bytes = Secret::new(contents.bytes);
        let seen = FileState::new(text, bytes.expose(), reader);
        match parse_htpasswd(utf8(node, &seen, bytes.expose(), reader)?) {
            Ok(users) => Some(Self { seen, users }),
            Err(mistakes) => {
                for mistake in mistakes.iter().take(MISTAKES_MAX) {
                    let place = format!("{}:{}", seen.path.display(), mistake.line);
                    let message = format!("`{}`: {place}: {}", node.path, mistake.error);
                    reader.wrong_value(node, message, "correct the line; `htpasswd -B FILE USER` writes valid lines");
                }
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.seen.path.display().to_string())
    }
}

/// A JWKS document, as text: what of it is usable depends on the algorithms.
#[derive(Clone, Debug)]
pub(crate) struct JwksFile {
    seen: FileState,
    text: Secret,
}

impl PartialEq for JwksFile {
    fn eq(&self, other: &Self) -> bool {
        self.seen == other.seen
    }
}

impl JwksFile {
    /// The document.
    pub(crate) fn text(&self) -> &str {
        self.text.expose_str().unwrap_or_default()
    }
}

impl Value for JwksFile {
    fn shape() -> Shape {
        Shape::Text { what: "the path of a JWKS file", example: "jwks.json" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = path_text(node, &Self::shape(), reader)?;
        let contents = readable_file(node, Path::new(text), JWKS_BYTES_MAX as u64, reader)?;
        let mut bytes = Secret::new(contents.bytes);
        // Public keys may be read by everybody. A reader of the secret of an HMAC makes tokens.
        if has_secret(bytes.expose()) {
            bytes = Secret::new(private_file(node, Path::new(text), JWKS_BYTES_MAX as u64, reader)?.bytes);
        }
        let seen = FileState::new(text, bytes.expose(), reader);
        utf8(node, &seen, bytes.expose(), reader)?;
        Some(Self { seen, text: bytes })
    }

    fn show(&self) -> Json {
        json!(self.seen.path.display().to_string())
    }
}

fn has_secret(document: &[u8]) -> bool {
    let document: Json = serde_json::from_slice(document).unwrap_or_default();
    let keys = document.get("keys").and_then(Json::as_array);
    keys.into_iter().flatten().any(|key| key.get("kty").is_some_and(|kind| kind == "oct"))
}
