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
    /// Where requests may come from. A table of a route stands in place of that of its listener.
    pub(crate) struct IpFilterSection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// Only requests from these networks are served; others get 403. One of `allow` and `deny`.
        optional allow: Vec<At<Net>>;
        /// Requests from these networks get 403.
        optional deny: Vec<At<Net>>;
        /// Whose address is looked at: that of the `client`, as `trusted_hops` finds it, or of the `peer`, the other end of the
        /// connection (or what its PROXY header says).
        default source: Source = Source::Client;
    }
}

section! {
    /// Which pages of other origins may read answers (CORS). Preflight requests are answered by the gateway. A table of a
    /// route stands in place of that of its listener.
    pub(crate) struct CorsSection {
        /// `false` on a route: the table of the listener does not hold there, and the origin server answers for itself.
        default enabled: bool = true;
        /// Origins as browsers send them (`https://app.example.com`), or `*` for all, which does not go with
        /// `allow_credentials`.
        optional allow_origins: Vec<At<Word>>;
        /// Regular expressions for the whole of an origin.
        optional allow_origin_regexes: Vec<At<LongWord>>;
        /// Methods besides GET, HEAD and POST.
        optional allow_methods: Vec<At<Word>>;
        /// Request headers that pages may set.
        optional allow_headers: Vec<At<Word>>;
        /// Response headers that pages may read.
        optional expose_headers: Vec<At<Word>>;
        /// How long a browser may keep the answer to a preflight. Absent: its own default, 5 s.
        optional max_age: Period => Period::secs(0)..=Period::secs(7 * 86_400);
        /// Pages may send cookies and read the answer.
        default allow_credentials: bool = false;
        /// Pages of public networks may reach this listener in a private one (Private Network Access).
        default allow_private_network: bool = false;
    }
}

section! {
    /// Users with passwords (RFC 7617); without one the answer is 401. A table of a route stands in place of that of its
    /// listener. All of `basic_auth`, `api_key` and `jwt` that hold on a route must be fulfilled.
    pub(crate) struct BasicAuthSection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// File of users as `htpasswd -B` writes it: bcrypt, PBKDF2 or SHA; not MD5 or crypt. Read again at a reload. Others
        /// must not be able to read it. A relative path starts at this file's directory.
        optional users_file: PasswordFile;
        /// The text that browsers show when they ask for a password.
        default realm: Text = Text("restricted".to_owned());
        /// Let the origin have the Authorization field too.
        default forward: bool = false;
        /// Header that gives the origin the user; what clients send under it is taken away. Absent: it is not sent.
        optional user_header: Word;
    }
}

section! {
    /// Keys of programs; without one the answer is 401. A table of a route stands in place of that of its listener.
    pub(crate) struct ApiKeySection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// Header that has the key. Absent: `x-api-key`, unless `query` or `cookie` says where it is.
        optional header: Word;
        /// Word in front of the key in the header: `Bearer`. Absent: none.
        optional scheme: Word;
        /// Parameter of the query that has the key. Keys in a query end up in logs of others.
        optional query: Word;
        /// Cookie that has the key.
        optional cookie: Word;
        /// The keys.
        tables key: ApiKeyEntrySection;
        /// Let the origin have the key too.
        default forward: bool = false;
        /// Header that gives the origin the name of the key; what clients send under it is taken away. Absent: it is
        /// not sent.
        optional user_header: Word;
    }
}

section! {
    /// A key and whose it is. One of `sha256` and `key`.
    pub(crate) struct ApiKeyEntrySection {
        /// For logs and rate limits. Several keys may have one name, as when a key is changed.
        required name: Word;
        /// SHA-256 of the key in hexadecimal: `printf %s KEY | sha256sum`.
        optional sha256: Word;
        /// The key itself.
        optional key: SecretRef;
    }
}

section! {
    /// JSON Web Tokens (RFC 7519); without a good one the answer is 401. A table of a route stands in place of that of its
    /// listener.
    pub(crate) struct JwtSection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// Whom tokens are accepted from.
        tables provider: JwtProviderSection;
        /// Header that has the token. Absent: `authorization`, unless `query` or `cookie` says where it is.
        optional header: Word;
        /// Word in front of the token in the header. Absent: `Bearer` in `authorization`, else none.
        optional scheme: Word;
        /// Parameter of the query that has the token.
        optional query: Word;
        /// Cookie that has the token.
        optional cookie: Word;
        /// In the challenge of a 401.
        default realm: Text = Text("restricted".to_owned());
        /// Let the origin have the token too.
        default forward: bool = false;
        /// Claims that are forwarded to the origin in headers; fields that clients send under these names is taken away.
        tables claim_header: ClaimHeaderSection;
    }
}

section! {
    /// An issuer of tokens.
    pub(crate) struct JwtProviderSection {
        /// The value that `iss` of a token must have. Absent: anything.
        optional issuer: Text;
        /// One of these must be in `aud` of a token. Absent: anything.
        optional audiences: Vec<At<Text>>;
        /// Algorithms of signatures that are accepted. `HS256` stands alone. Absent: `RS256` and `ES256`.
        optional algorithms: Vec<At<Algorithm>>;
        /// Its keys: a file with a JWKS document (RFC 7517), read again at a reload. One with a secret (`oct`) must not be
        /// readable for others. A relative path starts at this file's directory. One of `jwks_file` and `jwks_upstream`.
        optional jwks_file: JwksFile;
        /// The upstream that has its keys, as the issuer publishes them. The first token fetches them; while they cannot be had, old
        /// ones hold, and without any the answer is 503.
        optional jwks_upstream: Name;
        /// Their path there. Absent: `/.well-known/jwks.json`.
        optional jwks_path: Word;
        /// Host of the request for them. Absent: the host of the upstream's first endpoint.
        optional jwks_host: Word;
        /// How old they may become before they are fetched again. A token of an unknown key fetches them at once, every 10 s at most.
        default jwks_refresh: Period = Period(jwks::REFRESH) => Period::secs(1)..=Period::secs(86_400);
        /// Refuse tokens that do not say when they end (`exp`).
        default require_exp: bool = true;
    }
}

section! {
    /// A claim that is forwarded to the origin in a header.
    pub(crate) struct ClaimHeaderSection {
        /// Name of the header.
        required header: Word;
        /// Names from the outside in: `["sub"]`, `["realm_access", "kind"]`.
        required claim: Vec<At<Text>>;
    }
}

section! {
    /// Another service decides on requests that all other policies let through (nginx's `auth_request`, Traefik's `forwardAuth`). It
    /// gets a GET without a body, with the request line in X-Forwarded-Method and X-Forwarded-Uri. Its 2xx lets the request go on; an
    /// answer from 300 to 499 goes to the client as it is; what else happens is answered 503. A table of a route stands in place of
    /// that of its listener.
    pub(crate) struct ExtAuthSection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// The upstream that is queried.
        optional upstream: Name;
        /// The path of the request. Absent: that of the request, with its query.
        optional path: Word;
        /// The Host of the check. Absent: that of the request.
        optional host: Word;
        /// Header fields of the request that the service receives. Absent: all, except those about a body or a cache.
        optional request_headers: Vec<At<Word>>;
        /// Header fields of a 2xx answer that the origin gets, in place of what the client sent under these names.
        optional response_headers: Vec<At<Word>>;
        /// How long its answer may take.
        default timeout: Period = Period(ext_auth::TIMEOUT) => Period::millis(1)..=Period::secs(60);
        /// Let requests go on that could not be judged. Only where the origin judges too.
        default fail_open: bool = false;
    }
}

section! {
    /// How often clients may ask; beyond it the answer is 429 with Retry-After. Tables of a route stand in place of those of
    /// its listener. Counted by all workers together, in this process; a reload that leaves a limit as it is leaves its
    /// counts.
    pub(crate) struct RateLimitSection [name = name] {
        /// Shown in RateLimit fields.
        required name: Name;
        /// `false` on a route: the table stands for nothing, and those of the listener do not hold there.
        default enabled: bool = true;
        /// So many in `per` on average.
        optional requests: u32 => 1..=1_000_000_000;
        /// The time in which they may come.
        default per: Period = Period::secs(1) => Period::secs(1)..=Period::secs(86_400);
        /// So many at once after a pause. Absent: `requests`.
        optional burst: u32 => 1..=1_000_000_000;
        /// Requests that are counted together: those of each `client` address, of each value of a `header`, of each `identity`
        /// that authentication found, or `all`.
        default key: RateKeyChoice = RateKeyChoice::Client;
        /// The header of `key = "header"`.
        optional header: Word;
        /// Handling of requests without the header or identity: they are counted by `client` address, or `pass`.
        default missing: MissingKey = MissingKey::Client;
        /// Bits of an IPv6 address that tell clients apart.
        default ipv6_prefix: u32 = IPV6_PREFIX as u32 => 1..=128;
        /// Status of the refusal.
        default status: u32 = 429 => 400..=599;
        /// Fields that tell clients about the limit: `draft` (RateLimit and RateLimit-Policy), `legacy` (X-RateLimit-Limit,
        /// -Remaining, -Reset), `both` or `none`. Retry-After of a refusal is always sent.
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
        /// Where requests may come from.
        optional_table ip_filter: IpFilterSection;
        /// Which pages of other origins may read answers.
        optional_table cors: CorsSection;
        /// Users with passwords.
        optional_table basic_auth: BasicAuthSection;
        /// Keys of programs.
        optional_table api_key: ApiKeySection;
        /// JSON Web Tokens.
        optional_table jwt: JwtSection;
        /// Another service that decides.
        optional_table ext_auth: ExtAuthSection;
        /// How often clients may ask; all limits count.
        tables rate_limit: RateLimitSection;
    }
}

impl PolicyKeys {
    /// The upstreams that policies ask, with the keys that name them.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (&'static str, &At<Name>)> {
        let keys = self.jwt.iter().flat_map(|jwt| &jwt.provider);
        let keys = keys.filter_map(|one| Some(("jwt.provider.jwks_upstream", one.jwks_upstream.as_ref()?)));
        keys.chain(self.ext_auth.iter().filter_map(|one| Some(("ext_auth.upstream", one.upstream.as_ref()?))))
    }
}

/// A file that is read whole: its path, and what tells two states of it apart.
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
        reader.wrong_value(node, format!("`{}` is no path", node.path), format!("write {}", shape.what()));
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
                    reader.wrong_value(node, message, "mend the line; `htpasswd -B FILE USER` writes good ones");
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
        // Public keys may be read by everybody; who reads the secret of an HMAC makes tokens.
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
