//! The next step for each mistake that another room finds in a value.

use weir_analysis::http::host::HostError;
use weir_analysis::http::path::PathError;
use weir_policy::http::{AddressError, ApiKeyError, BasicError, CorsError, JwtError, KeyPlace, RateError};
use weir_route::RouteError;
use weir_route::split::SplitError;
use weir_route::variables::TemplateError;

/// The remedy for an error.
pub(crate) trait Remedy {
    /// In a few words, for the author of the value.
    fn remedy(&self) -> String;
}

impl Remedy for RouteError {
    fn remedy(&self) -> String {
        match self {
            Self::Host { text, why } => host(text, *why),
            Self::HostPort(text) => format!("write \"{}\"", text.split(':').next().unwrap_or(text)),
            Self::HostTrailingDot(text) => format!("write \"{}\"", text.trim_end_matches('.')),
            Self::Wildcard(_) => {
                "write \"*.example.com\" for all names below example.com, or \"*\" for all hosts".to_owned()
            }
            Self::Path { text, why } => path(text, *why),
            Self::PathForm { form, .. } => format!("write \"{form}\""),
            Self::Regex { .. } => {
                "write it in the syntax of Rust's regex crate: no look-around and no back-references; in TOML, 'single \
                 quotes' keep backslashes"
                    .to_owned()
            }
            Self::Method(_) => "write a method as clients send it: \"GET\"".to_owned(),
            Self::HeaderName(_) => "write the name alone: letters, digits and hyphens, without a colon".to_owned(),
            Self::MissingAsEmpty(_) => {
                "add negate = true with a kind that compares, or remove missing_as_empty".to_owned()
            }
            Self::Group { group, .. } => format!("add a group {group} to path_regex: parentheses, or (?P<name>...)"),
            Self::Dollar(_) => "write $1 or ${name} for a group of path_regex, $$ for a dollar sign".to_owned(),
            Self::Replacement(_) => {
                "write a path that begins with `/`, or a host with at most a port, without spaces, query and fragment"
                    .to_owned()
            }
            Self::NoPrefix(_) => "give the route a path_prefix, or write path or path_regex here".to_owned(),
        }
    }
}

fn host(text: &str, why: HostError) -> String {
    if let Some((_, rest)) = text.split_once("://") {
        return format!("write the host alone: \"{}\"", rest.split(['/', ':']).next().unwrap_or(rest));
    }
    match why {
        HostError::Port => "remove the port: hosts match names without ports".to_owned(),
        HostError::Address => "write an IPv6 address in brackets: \"[2001:db8::1]\"".to_owned(),
        HostError::Userinfo => "remove the part before `@`".to_owned(),
        _ => "write a host as clients send it: \"example.com\", \"*.example.com\", or \"*\"".to_owned(),
    }
}

fn path(text: &str, why: PathError) -> String {
    match why {
        PathError::NotAbsolute if !text.contains("://") => format!("begin it with a slash: \"/{text}\""),
        PathError::NotAbsolute => {
            "write the path alone, without scheme and host; the host has a separate key".to_owned()
        }
        PathError::Character => {
            "remove the query and the fragment ([[route.query]] matches the query), and write other bytes as %XX"
                .to_owned()
        }
        PathError::BadEscape => "write `%25` for a percent sign".to_owned(),
        PathError::EscapedNul | PathError::EscapedSlash | PathError::Backslash => {
            "requests with it get status 400; if a key of the listener keeps it, path_regex can match it".to_owned()
        }
        PathError::Parameter => "remove the part from `;`".to_owned(),
        PathError::HiddenDotSegment | PathError::AboveRoot => "write the path without dot segments".to_owned(),
    }
}

impl Remedy for SplitError {
    fn remedy(&self) -> String {
        match self {
            Self::NoTarget => "add [[route.split]] with upstream and weight".to_owned(),
            Self::NoWeight => "give one upstream a weight above 0".to_owned(),
        }
    }
}

impl Remedy for TemplateError {
    fn remedy(&self) -> String {
        match self {
            Self::Unclosed => "write `%%` for a percent sign, or close the variable: %REQ(x-name)%".to_owned(),
            Self::Unknown { nearest: Some(nearest), .. } => format!("write %{nearest}%"),
            Self::Unknown { nearest: None, .. } => {
                "the variables are listed in docs/guide/http.md; write `%%` for a percent sign".to_owned()
            }
            Self::Argument(_) => "write %REQ(x-name)% with the name of a header".to_owned(),
            Self::ResponseOnly(_) => "move it to response_header".to_owned(),
            Self::Character => "remove line ends and other control characters".to_owned(),
            Self::TooLong => "shorten it".to_owned(),
        }
    }
}

impl Remedy for CorsError {
    fn remedy(&self) -> String {
        match self {
            Self::NoOrigins => "add allow_origins = [\"https://app.example.com\"]".to_owned(),
            Self::TooMany { .. } => "write a pattern in allow_origin_regexes".to_owned(),
            Self::Origin { text, .. } => origin(text),
            Self::Regex { .. } => {
                "write it in the syntax of Rust's regex crate; in TOML, 'single quotes' keep backslashes".to_owned()
            }
            Self::Name { .. } => "write one name per entry: letters, digits and hyphens".to_owned(),
            Self::AnyWithCredentials(_) => "name the origins, or remove allow_credentials".to_owned(),
        }
    }
}

/// An origin as a browser sends it, made of what was written.
fn origin(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://").unwrap_or(("https", &lower));
    let host = rest.split('/').next().unwrap_or(rest);
    let host = host.strip_suffix(if scheme == "http" { ":80" } else { ":443" }).unwrap_or(host);
    match host.contains('*') {
        true => "write a pattern in allow_origin_regexes: \"https://[a-z0-9-]+\\\\.example\\\\.com\"".to_owned(),
        false => format!("write \"{scheme}://{host}\""),
    }
}

impl Remedy for AddressError {
    fn remedy(&self) -> String {
        match self {
            Self::NoNets => "name a network: \"10.0.0.0/8\"".to_owned(),
            Self::TooManyNets(_) => "join networks: two /24 side by side are one /23".to_owned(),
            Self::Hops(_) => "write the number of proxies in front".to_owned(),
        }
    }
}

impl Remedy for BasicError {
    fn remedy(&self) -> String {
        match self {
            Self::NoColon | Self::Password { .. } => "write the line again with `htpasswd -B`".to_owned(),
            Self::NoUsers => "add a user: htpasswd -B users.htpasswd NAME".to_owned(),
            Self::TooManyUsers(_) => "use jwt or ext_auth for so many users".to_owned(),
            Self::Name(_) | Self::Twice(_) => "give each user one line, with a name without a colon".to_owned(),
            Self::Realm => "write a word or two: realm = \"staff\"".to_owned(),
            Self::NoRandomness => RANDOMNESS.to_owned(),
        }
    }
}

const RANDOMNESS: &str = "check getrandom(2) of this system: the gateway needs it for secrets";

impl Remedy for ApiKeyError {
    fn remedy(&self) -> String {
        match self {
            Self::NoKeys => "add [[api_key.key]] with name, and sha256 or key, below the table".to_owned(),
            Self::TooManyKeys(_) => "use jwt or ext_auth for so many keys".to_owned(),
            Self::Places(_) => "name one header, one query parameter or one cookie".to_owned(),
            Self::Place(KeyPlace::Header { .. }) => {
                "write header = \"x-api-key\"; a scheme is one word, such as \"Bearer\"".to_owned()
            }
            Self::Place(KeyPlace::Query(_)) => "write query = \"api_key\"".to_owned(),
            Self::Place(KeyPlace::Cookie(_)) => "write cookie = \"api_key\", the name alone".to_owned(),
            Self::Name(_) => "shorten the name".to_owned(),
            Self::Twice(_) => "remove one of the two, or make another key".to_owned(),
            Self::NoRandomness => RANDOMNESS.to_owned(),
        }
    }
}

impl Remedy for JwtError {
    fn remedy(&self) -> String {
        match self {
            Self::Providers(0) => {
                "add [[jwt.provider]] with issuer and jwks_file or jwks_upstream, below the table".to_owned()
            }
            Self::Providers(_) => "divide the providers among routes".to_owned(),
            Self::NoAlgorithm => "write algorithms = [\"RS256\"], or remove it".to_owned(),
            Self::MixedAlgorithms => "add a separate provider with algorithms = [\"HS256\"]".to_owned(),
            Self::Jwks | Self::JwksTooLarge(_) | Self::TooManyKeys(_) => {
                "save what the issuer serves at its jwks_uri: {\"keys\": [...]}".to_owned()
            }
            Self::NoKeys => {
                "add the algorithm of the keys to algorithms, or request such a key from the issuer".to_owned()
            }
            Self::Places => "name one header, one query parameter or one cookie, each a word".to_owned(),
            Self::TooManyHeaders(_) => "forward fewer claims".to_owned(),
            Self::Header(_) => "write header = \"X-Claim-Sub\" and claim = [\"sub\"]".to_owned(),
            Self::Realm => "write a word or two: realm = \"api\"".to_owned(),
            Self::NoRandomness => RANDOMNESS.to_owned(),
        }
    }
}

impl Remedy for RateError {
    fn remedy(&self) -> String {
        match self {
            Self::Never => "write requests = 100 and per = \"1m\", for example".to_owned(),
            Self::TooLong => "lower burst, or raise requests".to_owned(),
            Self::Status(_) => "write status = 429".to_owned(),
            Self::Header(_) => "write the name alone: header = \"x-tenant\"".to_owned(),
            Self::Prefix(_) => "write ipv6_prefix = 64".to_owned(),
            Self::Name => "use letters, digits and hyphens".to_owned(),
            Self::Entries(_) => "write a lower number".to_owned(),
        }
    }
}
