//! Policies: from tables to the checks of a route's requests.

use std::sync::Arc;

use weir_http::ext_auth::ExtAuth;
use weir_http::jwks::RemoteKeys;
use weir_http::policies::{Policies, WithUserHeader};
use weir_http_codec::Known;
use weir_policy::http::{
    AddressRules, Algorithm, ApiKey, ApiKeys, Basic, ClaimHeader, Cors, CorsSettings, Effect, Jwt, KeyHash, KeyPlace,
    KeySet, Keys, OriginRule, Provider, RateKey, RateLimit, RateSettings, SharedKeys,
};

use super::remedy::Remedy;
use super::spelling;
use crate::checks::error_at;
use crate::diagnostic::Span;
use crate::document::At;
use crate::protocols::http::policy::{
    ApiKeySection, BasicAuthSection, CorsSection, ExtAuthSection, IpFilterSection, JwtProviderSection, JwtSection,
    PolicyKeys, RateKeyChoice, RateLimitSection,
};
use crate::reader::Reader;
use crate::texts::{Text, Word};

/// The policies that one table of listeners, domains or routes writes.
#[derive(Clone, Default)]
pub(in super::super) struct Rules {
    address: PolicySetting<Arc<AddressRules>>,
    cors: PolicySetting<Cors>,
    basic: PolicySetting<Arc<WithUserHeader<Basic>>>,
    api_keys: PolicySetting<Arc<WithUserHeader<ApiKeys>>>,
    jwt: PolicySetting<(Arc<Jwt>, Vec<Arc<RemoteKeys>>)>,
    ext_auth: PolicySetting<Arc<ExtAuth>>,
    rates: PolicySetting<Vec<Arc<RateLimit>>>,
    /// Which of `basic_auth`, `api_key` and `jwt` look into Authorization.
    uses_authorization: [bool; 3],
    identity_fields: Vec<Box<str>>,
}

/// A policy as its table sets it.
#[derive(Clone, Default)]
enum PolicySetting<T> {
    /// Nothing.
    #[default]
    Inherited,
    /// It does not hold.
    Off,
    /// It holds and cannot be made; that was reported.
    Broken,
    /// This.
    Own(T),
}

impl<T: Clone> PolicySetting<T> {
    /// The setting in force: this one, or that of `outer` if this one is inherited.
    fn over(&self, outer: &Self) -> Self {
        if self.is_inherited() { outer.clone() } else { self.clone() }
    }

    fn own(&self) -> Option<T> {
        match self {
            Self::Own(own) => Some(own.clone()),
            Self::Inherited | Self::Off | Self::Broken => None,
        }
    }

    fn is_inherited(&self) -> bool {
        matches!(self, Self::Inherited)
    }

    /// It holds, whether it could be made or not.
    fn holds(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Broken)
    }
}

impl Rules {
    /// These, and those of `outer` of which nothing stands here: of the route's domain, or of the listener.
    pub(super) fn over(&self, outer: &Self) -> Self {
        let is_inherited = [self.basic.is_inherited(), self.api_keys.is_inherited(), self.jwt.is_inherited()];
        Self {
            address: self.address.over(&outer.address),
            cors: self.cors.over(&outer.cors),
            basic: self.basic.over(&outer.basic),
            api_keys: self.api_keys.over(&outer.api_keys),
            jwt: self.jwt.over(&outer.jwt),
            ext_auth: self.ext_auth.over(&outer.ext_auth),
            rates: self.rates.over(&outer.rates),
            uses_authorization: std::array::from_fn(|kind| match is_inherited[kind] {
                true => outer.uses_authorization[kind],
                false => self.uses_authorization[kind],
            }),
            identity_fields: [&*self.identity_fields, &outer.identity_fields].concat(),
        }
    }

    /// The checks of requests; `None`: none.
    pub(super) fn policies(&self) -> Option<Box<Policies>> {
        let (jwt, keys) = self.jwt.own().unzip();
        let policies = Policies {
            address: self.address.own(),
            cors: self.cors.own(),
            basic: self.basic.own(),
            api_keys: self.api_keys.own(),
            jwt,
            keys: keys.unwrap_or_default(),
            ext_auth: self.ext_auth.own(),
            rates: self.rates.own().unwrap_or_default(),
        };
        let asks = policies.address.is_some()
            || policies.cors.is_some()
            || policies.basic.is_some()
            || policies.api_keys.is_some()
            || policies.jwt.is_some()
            || policies.ext_auth.is_some()
            || !policies.rates.is_empty();
        asks.then(|| Box::new(policies))
    }

    /// Two kinds of credentials in one Authorization field: a client cannot send both.
    pub(in super::super) fn wants_authorization_twice(&self) -> bool {
        self.uses_authorization.into_iter().filter(|uses| *uses).count() > 1
    }

    /// A rate limit goes by identity, and nothing finds the identity of a client.
    pub(super) fn counts_without_identity(&self) -> bool {
        let finds = self.basic.holds() || self.api_keys.holds() || self.jwt.holds();
        let by_identity = |rate: &Arc<RateLimit>| matches!(rate.settings().key, RateKey::Identity { .. });
        !finds && self.rates.own().is_some_and(|rates| rates.iter().any(by_identity))
    }

    /// No authentication; the client's name still cannot be forged.
    pub(super) fn without_policies(self) -> Self {
        Self { identity_fields: self.identity_fields, ..Self::default() }
    }

    /// Names of fields that name the client to the origin.
    pub(super) fn identity_fields(&self) -> &[Box<str>] {
        &self.identity_fields
    }
}

/// Makes policies out of what stands at `path`; mistakes are reported.
pub(in super::super) fn rules(written: &PolicyKeys, path: &str, reader: &mut Reader<'_>) -> Rules {
    let mut maker = PolicyBuilder { path, reader, rules: Rules::default() };
    if let Some(section) = &written.ip_filter {
        maker.rules.address = ruled(section.enabled.value, maker.address(section));
    }
    if let Some(section) = &written.cors {
        maker.rules.cors = ruled(section.enabled.value, maker.cors(section));
    }
    if let Some(section) = &written.basic_auth {
        maker.rules.basic = ruled(section.enabled.value, maker.basic(section));
    }
    if let Some(section) = &written.api_key {
        maker.rules.api_keys = ruled(section.enabled.value, maker.api_keys(section));
    }
    if let Some(section) = &written.jwt {
        maker.rules.jwt = ruled(section.enabled.value, maker.jwt(section));
    }
    if let Some(section) = &written.ext_auth {
        maker.rules.ext_auth = ruled(section.enabled.value, maker.ext_auth(section));
    }
    if !written.rate_limit.is_empty() {
        let limits = written.rate_limit.iter().enumerate().filter(|(_, limit)| limit.enabled.value);
        let made: Vec<_> = limits.filter_map(|(index, limit)| maker.rate(limit, index)).map(Arc::new).collect();
        maker.rules.rates = PolicySetting::Own(made);
    }
    maker.rules
}

/// A table that is wrong was reported: the file is refused, whatever stands here.
fn ruled<T>(is_enabled: bool, made: Option<T>) -> PolicySetting<T> {
    match made {
        _ if !is_enabled => PolicySetting::Off,
        Some(made) => PolicySetting::Own(made),
        None => PolicySetting::Broken,
    }
}

/// A field that says where a message ends, or whom it is for.
fn is_framing(known: Known) -> bool {
    matches!(
        known,
        Known::ContentLength
            | Known::TransferEncoding
            | Known::Connection
            | Known::Host
            | Known::Te
            | Known::Trailer
            | Known::Upgrade
            | Known::Expect
            | Known::KeepAlive
            | Known::ProxyConnection
    )
}

struct PolicyBuilder<'m, 'r> {
    path: &'m str,
    reader: &'m mut Reader<'r>,
    rules: Rules,
}

impl PolicyBuilder<'_, '_> {
    fn wrong<V>(&mut self, at: &At<V>, key: &str, what: &str, help: &str) {
        error_at(at, self.path, key, what, help, self.reader);
    }

    /// Something about a table as a whole.
    fn wrong_table(&mut self, span: &Span, table: &str, what: &str, help: &str) {
        let path = format!("{}.{table}", self.path);
        self.reader.problems.error(span, &path, format!("`{path}` {what}"), help);
    }

    /// The policy of a table; an error is reported.
    fn valid<T, E: std::fmt::Display + Remedy>(&mut self, span: &Span, table: &str, made: Result<T, E>) -> Option<T> {
        let what = |error: &E| format!("cannot be used: {error}");
        made.map_err(|error| self.wrong_table(span, table, &what(&error), &error.remedy())).ok()
    }

    fn address(&mut self, section: &IpFilterSection) -> Option<Arc<AddressRules>> {
        let (effect, nets) = match (&section.allow, &section.deny) {
            (Some(_), Some(deny)) => {
                self.wrong(deny, "ip_filter.deny", "conflicts with allow", "keep one of them");
                return None;
            }
            (Some(allow), None) => (Effect::Allow, allow),
            (None, Some(deny)) => (Effect::Deny, deny),
            (None, None) if !section.enabled.value => return None,
            (None, None) => {
                self.wrong_table(&section.place.0, "ip_filter", "names no networks", "add allow = [\"10.0.0.0/8\"]");
                return None;
            }
        };
        let nets: Vec<_> = nets.value.iter().map(|net| net.value).collect();
        let made = AddressRules::new(effect, section.source.value, &nets);
        self.valid(&section.place.0, "ip_filter", made).map(Arc::new)
    }

    fn cors(&mut self, section: &CorsSection) -> Option<Cors> {
        if !section.enabled.value {
            return None;
        }
        let settings = cors_settings(section);
        self.valid(&section.place.0, "cors", Cors::new(&settings))
    }

    fn basic(&mut self, section: &BasicAuthSection) -> Option<Arc<WithUserHeader<Basic>>> {
        if !section.enabled.value {
            return None;
        }
        let user_field = self.user_field(section.user_header.as_ref(), "basic_auth.user_header");
        let Some(file) = &section.users_file else {
            let path = format!("{}.basic_auth.users_file", self.path);
            if !self.reader.problems.is_known_wrong(&path) {
                let help = "add users_file = \"users.htpasswd\", which `htpasswd -B` writes";
                self.wrong_table(&section.place.0, "basic_auth", "has no users_file", help);
            }
            return None;
        };
        self.rules.uses_authorization[0] = true;
        let made = Basic::new(file.value.users.clone(), &section.realm.value.0, !section.forward.value);
        let policy = self.valid(&file.span, "basic_auth", made)?;
        Some(Arc::new(WithUserHeader { policy, user_field: user_field? }))
    }

    fn api_keys(&mut self, section: &ApiKeySection) -> Option<Arc<WithUserHeader<ApiKeys>>> {
        if !section.enabled.value {
            return None;
        }
        let user_field = self.user_field(section.user_header.as_ref(), "api_key.user_header");
        let place = &section.place.0;
        let mut keys = Vec::new();
        for (index, entry) in section.key.iter().enumerate() {
            let name = entry.name.as_ref()?;
            let key = format!("api_key.key[{index}]");
            let hash = match (&entry.sha256, &entry.key) {
                (Some(hex), None) => match KeyHash::from_hex(&hex.value.0) {
                    Some(hash) => hash,
                    None => {
                        let help = "write 64 hexadecimal digits: printf %s KEY | sha256sum";
                        self.wrong(hex, &format!("{key}.sha256"), "is not a SHA-256 hash", help);
                        return None;
                    }
                },
                (None, Some(secret)) => KeyHash::of(secret.value.secret.expose()),
                (None, None) if !self.reader.lacks(entry.key.as_ref(), self.path, &format!("{key}.key")) => {
                    return None;
                }
                _ => {
                    let help = "write sha256, or key = { env = \"NAME\" }";
                    self.wrong(name, &format!("{key}.name"), "needs one of `sha256` and `key`", help);
                    return None;
                }
            };
            keys.push(ApiKey { name: name.value.0.as_str().into(), hash });
        }
        let (header, scheme) = (section.header.as_ref(), section.scheme.as_ref());
        let places = self.places(header, scheme, section.query.as_ref(), section.cookie.as_ref(), "x-api-key", 1);
        let policy = self.valid(place, "api_key", ApiKeys::new(&keys, places, !section.forward.value))?;
        Some(Arc::new(WithUserHeader { policy, user_field: user_field? }))
    }

    /// Where credentials may be; without a word of it in a header called `default`.
    fn places(
        &mut self,
        header: Option<&At<Word>>,
        scheme: Option<&At<Word>>,
        query: Option<&At<Word>>,
        cookie: Option<&At<Word>>,
        default: &str,
        kind: usize,
    ) -> Vec<KeyPlace> {
        let mut places = Vec::new();
        let is_default = header.is_none() && query.is_none() && cookie.is_none();
        if let Some(name) = header.map(|word| word.value.0.as_str()).or(is_default.then_some(default)) {
            let is_authorization = name.eq_ignore_ascii_case("authorization");
            let bearer = if is_authorization && kind == 2 { "Bearer" } else { "" };
            let scheme = scheme.map_or(bearer, |word| word.value.0.as_str());
            self.rules.uses_authorization[kind] |= is_authorization;
            places.push(KeyPlace::Header { name: name.to_owned(), scheme: scheme.to_owned() });
        } else if let Some(scheme) = scheme {
            let key = if kind == 2 { "jwt.scheme" } else { "api_key.scheme" };
            self.wrong(scheme, key, "has no effect without header", "add header, or remove it");
        }
        places.extend(query.map(|word| KeyPlace::Query(word.value.0.clone())));
        places.extend(cookie.map(|word| KeyPlace::Cookie(word.value.0.clone())));
        places
    }

    /// The field that names the client to the origin: `None` if it is none, which was reported.
    fn user_field(&mut self, word: Option<&At<Word>>, key: &str) -> Option<Option<Box<str>>> {
        let Some(word) = word else { return Some(None) };
        let name = word.value.0.as_str();
        let is_free = weir_http_codec::Known::of(name.as_bytes()) == weir_http_codec::Known::Other;
        if !is_free || !weir_http_codec::token::is_token(name.as_bytes()) {
            self.wrong(word, key, "is not a free header name", "choose another name, such as \"X-Remote-User\"");
            return None;
        }
        self.rules.identity_fields.push(name.into());
        Some(Some(name.into()))
    }

    fn jwt(&mut self, section: &JwtSection) -> Option<(Arc<Jwt>, Vec<Arc<RemoteKeys>>)> {
        if !section.enabled.value {
            return None;
        }
        let told = section.claim_header.iter().filter_map(|one| one.header.as_ref());
        // Others are no names for it, which is reported: they must not be taken from the requests of other routes.
        let own = told.map(|header| header.value.0.as_str()).filter(|name| Known::of(name.as_bytes()) == Known::Other);
        self.rules.identity_fields.extend(own.map(Into::into));
        let sections = section.provider.iter().enumerate();
        let made: Vec<_> = sections.filter_map(|(index, one)| self.provider(one, index)).collect();
        if made.len() < section.provider.len() {
            return None;
        }
        let (providers, remote): (Vec<Provider>, Vec<_>) = made.into_iter().unzip();
        let mut claim_headers = Vec::new();
        for one in &section.claim_header {
            let (header, claim) = (one.header.as_ref()?, one.claim.as_ref()?);
            claim_headers.push(ClaimHeader {
                header: header.value.0.clone(),
                claim: claim.value.iter().map(|name: &At<Text>| name.value.0.clone()).collect(),
            });
        }
        let (header, scheme) = (section.header.as_ref(), section.scheme.as_ref());
        let places = self.places(header, scheme, section.query.as_ref(), section.cookie.as_ref(), "authorization", 2);
        let made = Jwt::new(providers, places, claim_headers, section.forward.value, &section.realm.value.0);
        let made = self.valid(&section.place.0, "jwt", made)?;
        Some((Arc::new(made), remote.into_iter().flatten().map(Arc::new).collect()))
    }

    fn provider(&mut self, section: &JwtProviderSection, index: usize) -> Option<(Provider, Option<RemoteKeys>)> {
        // Without them what is in the file says nothing.
        if self.reader.problems.is_known_wrong(&format!("{}.jwt.provider[{index}].algorithms", self.path)) {
            return None;
        }
        let algorithms = section
            .algorithms
            .as_ref()
            .map_or(vec![Algorithm::Rs256, Algorithm::Es256], |list| list.value.iter().map(|one| one.value).collect());
        let table = format!("jwt.provider[{index}]");
        let (keys, remote) = match (&section.jwks_file, &section.jwks_upstream) {
            (Some(file), None) => {
                let made = KeySet::from_jwks(file.value.text(), &algorithms);
                (Keys::Fixed(self.valid(&file.span, &format!("{table}.jwks_file"), made)?), None)
            }
            (None, Some(upstream)) if algorithms.contains(&Algorithm::Hs256) => {
                let help = "put the secret into a jwks_file that only the gateway can read";
                self.wrong(upstream, &format!("{table}.jwks_upstream"), "cannot supply the secret of HS256", help);
                return None;
            }
            (None, Some(upstream)) => {
                let keys = Arc::new(self.valid(&section.place.0, &table, SharedKeys::new(&algorithms))?);
                let path = section.jwks_path.as_ref().map_or("/.well-known/jwks.json", |path| &path.value.0);
                if !path.starts_with('/') {
                    self.wrong(upstream, &format!("{table}.jwks_path"), "is not a path", "begin it with a slash");
                }
                let host = section.jwks_host.as_ref().map(|host| host.value.0.as_str());
                let (upstream, refresh) = (upstream.value.0.clone(), section.jwks_refresh.value.0);
                (Keys::Shared(keys.clone()), Some(RemoteKeys::new(upstream, path, host, refresh, keys)))
            }
            _ => {
                let path = format!("{}.{table}.jwks_file", self.path);
                if !self.reader.problems.is_known_wrong(&path) {
                    let help = "write jwks_file = \"jwks.json\", or jwks_upstream = \"NAME\"";
                    self.wrong_table(&section.place.0, &table, "needs one of `jwks_file` and `jwks_upstream`", help);
                }
                return None;
            }
        };
        let audiences = section.audiences.iter().flat_map(|list| &list.value);
        let provider = Provider {
            issuer: section.issuer.as_ref().map(|issuer| issuer.value.0.clone()),
            audiences: audiences.map(|one| one.value.0.clone()).collect(),
            requires_exp: section.require_exp.value,
            keys,
        };
        Some((provider, remote))
    }

    fn ext_auth(&mut self, section: &ExtAuthSection) -> Option<Arc<ExtAuth>> {
        if !section.enabled.value {
            return None;
        }
        for name in section.response_headers.iter().flat_map(|list| &list.value) {
            // Whatever the client says under a name that names the client to the origin is taken away, on every route, also
            // while there is a mistake in this one. Others, such as Authorization, the service has to see first.
            if Known::of(name.value.0.as_bytes()) == Known::Other {
                self.rules.identity_fields.push(name.value.0.as_str().into());
            }
        }
        for name in section.request_headers.iter().flat_map(|list| &list.value) {
            spelling::field(name, self.path, "ext_auth.request_headers", self.reader);
        }
        let Some(upstream) = &section.upstream else {
            let help = "add upstream = \"NAME\", the service that decides";
            self.wrong_table(&section.place.0, "ext_auth", "has no upstream", help);
            return None;
        };
        if let Some(path) = section.path.as_ref().filter(|path| !path.value.0.starts_with('/')) {
            self.wrong(path, "ext_auth.path", "is not a path", "begin it with a slash: \"/verify\"");
            return None;
        }
        let names = |list: &Option<At<Vec<At<Word>>>>| -> Option<Vec<Box<str>>> {
            Some(list.as_ref()?.value.iter().map(|name| name.value.0.as_str().into()).collect())
        };
        for name in section.response_headers.iter().flat_map(|list| &list.value) {
            let text = name.value.0.as_bytes();
            if !weir_http_codec::token::is_token(text) || is_framing(Known::of(text)) {
                let help = "choose another name, such as \"X-Remote-User\"";
                self.wrong(
                    name,
                    "ext_auth.response_headers",
                    "has an entry that is not a header name, or a header that must not go to the upstream",
                    help,
                );
                return None;
            }
        }
        Some(Arc::new(ExtAuth {
            upstream: upstream.value.0.clone(),
            path: section.path.as_ref().map(|path| path.value.0.as_str().into()),
            host: section.host.as_ref().map(|host| host.value.0.as_str().into()),
            request_fields: names(&section.request_headers),
            response_fields: names(&section.response_headers).unwrap_or_default(),
            timeout: section.timeout.value.0,
            fails_open: section.fail_open.value,
        }))
    }

    fn rate(&mut self, section: &RateLimitSection, index: usize) -> Option<RateLimit> {
        let name = section.name.as_ref()?;
        let table = format!("rate_limit[{index}]");
        let Some(requests) = &section.requests else {
            let path = format!("{}.{table}.requests", self.path);
            if !self.reader.problems.is_known_wrong(&path) {
                self.wrong(
                    name,
                    &format!("{table}.name"),
                    "names a rate limit without requests",
                    "add requests = 100 and per = \"1m\"",
                );
            }
            return None;
        };
        let missing = section.missing.value;
        let key = match (section.key.value, &section.header) {
            (RateKeyChoice::Header, Some(header)) => RateKey::Header { name: header.value.0.clone(), missing },
            (RateKeyChoice::Header, None) => {
                self.wrong(&section.key, &format!("{table}.key"), "needs a header", "add header = \"x-tenant\"");
                return None;
            }
            (_, Some(header)) => {
                let help = "write key = \"header\", or remove it";
                self.wrong(header, &format!("{table}.header"), "has no effect without key = \"header\"", help);
                return None;
            }
            (RateKeyChoice::Client, None) => RateKey::Client { ipv6_prefix: section.ipv6_prefix.value as u8 },
            (RateKeyChoice::Identity, None) => RateKey::Identity { missing },
            (RateKeyChoice::All, None) => RateKey::All,
        };
        let settings = RateSettings {
            name: name.value.0.to_string(),
            requests: requests.value,
            unit: section.per.value.0,
            burst: section.burst.as_ref().map(|burst| burst.value),
            key,
            status: section.status.value as u16,
            fields: section.fields.value,
        };
        self.valid(&section.place.0, &table, RateLimit::new(settings, None))
    }
}

/// The settings of a CORS policy as they are written.
pub(crate) fn cors_settings(section: &CorsSection) -> CorsSettings {
    let words = |list: &Option<At<Vec<At<Word>>>>| {
        list.iter().flat_map(|list| &list.value).map(|one| one.value.0.clone()).collect()
    };
    let exact = section.allow_origins.iter().flat_map(|list| &list.value).map(|word| match &*word.value.0 {
        "*" => OriginRule::Any,
        origin => OriginRule::Exact(origin.to_owned()),
    });
    let regexes = section.allow_origin_regexes.iter().flat_map(|list| &list.value);
    CorsSettings {
        origins: exact.chain(regexes.map(|word| OriginRule::Regex(word.value.0.clone()))).collect(),
        methods: words(&section.allow_methods),
        headers: words(&section.allow_headers),
        expose: words(&section.expose_headers),
        max_age: section.max_age.as_ref().map(|age| age.value.0.as_secs() as u32),
        credentials: section.allow_credentials.value,
        private_network: section.allow_private_network.value,
    }
}
