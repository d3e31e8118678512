//! `[[route]]`: which requests go where.

use weir_base::ByteSize;
use weir_http::fault::Fault;
use weir_route::{host::Labels, text::Operator};

use super::handling::Handling;
use super::policy::PolicyKeys;
use crate::document::At;
use crate::numbers::{Period, Ratio};
use crate::section::{Section as _, section};
use crate::texts::{Choice, LongWord, Name, Text, Word};

/// Highest priority number.
const PRIORITY_MAX: u32 = 1_000_000;
/// The priority of routes that do not say.
const PRIORITY: u32 = 1_000;

section! {
    /// A route of HTTP listeners, for requests that meet all its conditions. The order in the file does not matter. Exact hosts
    /// come before wildcards, and wildcards before all hosts; then exact paths before regexes, and regexes before prefixes, longer
    /// before shorter; then routes with a method, with more headers, with more of the query. Only routes of the best host are
    /// tried: if none matches, the response is 404. A request for a host that no route names goes to the `upstream` of the
    /// listener.
    pub(crate) struct RouteSection [name = name] {
        /// Unique name of the route; a label of metrics.
        required name: Name;
        /// Domain from which the route inherits every key that it does not set.
        optional domain: Name;
        /// Listeners that have the route. If absent, those of its domain, or all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts: `example.com`, `*.example.com`, or `*`, without ports. If absent, those of its domain, or all hosts.
        optional hosts: Vec<At<Word>>;
        /// Labels that the star of a wildcard host matches: `one` or `many`. Only for the hosts of this route.
        default wildcard: Labels = Labels::One;
        /// Exact path. At most one of `path`, `path_prefix`, `path_string_prefix` and `path_regex`; without any, all paths match.
        optional path: LongWord;
        /// First segments of the path: `/blog` matches `/blog` and `/blog/x`, but not `/blogger`.
        optional path_prefix: LongWord;
        /// Beginning of the path as text: `/blog` matches `/blogger` too.
        optional path_string_prefix: LongWord;
        /// Regular expression of up to 4 KiB for the whole path, without the query.
        optional path_regex: LongWord;
        /// Methods. If absent, all methods.
        optional methods: Vec<At<Word>>;
        /// Conditions on headers, which must all be met.
        tables header: HeaderMatchSection;
        /// Conditions on the query, which must all be met. If a parameter is repeated, its first value is compared.
        tables query: QueryMatchSection;
        /// Among equally specific routes, the route with the lower number is tried first.
        default priority: u32 = PRIORITY => 0..=PRIORITY_MAX;
        /// Whether the route is active: `online`, or `offline` as if it did not exist.
        default state: RouteState = RouteState::Online;
        /// Upstream that requests go to. Set exactly one of `upstream`, `split`, `redirect` and `response`.
        optional upstream: Name;
        /// Several upstreams, each with a share of the requests.
        tables split: SplitSection;
        /// A second upstream that gets copies of the requests. The gateway discards its responses.
        optional_table mirror: MirrorSection;
        /// Injected faults, to test how clients handle failures.
        optional_table fault: FaultSection;
        /// Redirect of the client to another URL.
        optional_table redirect: RedirectSection;
        /// Response of the gateway itself.
        optional_table response: ResponseSection;
        /// Changes to the path or host before the request is forwarded.
        optional_table rewrite: RewriteSection;
        /// If absent, the setting of the domain or the listener applies.
        include handling: Handling;
        include policies: PolicyKeys;
    }
}

section! {
    /// Condition on a header. Several lines of a header are one value, joined by `, `.
    pub(crate) struct HeaderMatchSection {
        /// Name of the header. Case does not matter.
        required name: Word;
        /// How `value` is compared: `exact`, `prefix`, `suffix`, `contains`, `regex` (the whole value), or `present` (any value,
        /// without `value`).
        default kind: Operator = Operator::Exact;
        /// Value to compare with.
        optional value: Text;
        /// Ignore the case of letters.
        default ignore_case: bool = false;
        /// Invert the condition: it is met if the comparison fails.
        default negate: bool = false;
        /// With `negate`: treat a missing header as an empty value.
        default missing_as_empty: bool = false;
    }
}

section! {
    /// Condition on a query parameter.
    pub(crate) struct QueryMatchSection {
        /// Name of the query parameter. Case matters.
        required name: Word;
        /// How `value` is compared: `exact`, `prefix`, `suffix`, `contains`, `regex` (the whole value), or `present` (any value,
        /// without `value`).
        default kind: Operator = Operator::Exact;
        /// Value to compare with.
        optional value: Text;
        /// Ignore the case of letters.
        default ignore_case: bool = false;
    }
}

section! {
    /// An upstream with a share of the requests of a route.
    pub(crate) struct SplitSection {
        /// Name of the upstream.
        required upstream: Name;
        /// Share of the requests, relative to the other weights. If no table has a weight, all shares are equal. If some have a
        /// weight, upstreams without a weight get no requests.
        optional weight: u32 => 0..=1_000_000;
    }
}

section! {
    /// A second upstream that gets copies of the requests. The host of a copy has the suffix `-shadow`.
    pub(crate) struct MirrorSection {
        /// Name of the upstream.
        required upstream: Name;
        /// Share of the requests that are copied, 0.0 to 1.0.
        default share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// Maximum size of a request body. Requests with longer bodies are not copied.
        default body_bytes_max: ByteSize = ByteSize::kib(64) => ByteSize::new(0)..=ByteSize::mib(16);
    }
}

section! {
    /// Injected faults. A request may get a delay and then an abort.
    pub(crate) struct FaultSection {
        /// Delay before the request is forwarded.
        optional delay: Period => Period::millis(1)..=Period::secs(60);
        /// Share of the requests that are delayed, 0.0 to 1.0.
        default delay_share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// Status of a response that the gateway sends in place of the upstream.
        optional abort_status: u32 => 200..=599;
        /// Share of the requests that are aborted, 0.0 to 1.0.
        default abort_share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// Header that a request must have to get faults. If absent, all requests may get faults.
        optional header: Word;
    }
}

impl FaultSection {
    pub(crate) fn settings(&self) -> Fault {
        Fault {
            delay: self.delay.as_ref().map(|delay| (delay.value.0, self.delay_share.value.0)),
            // The range of the key is that of statuses.
            abort: self.abort_status.as_ref().map(|status| (status.value as u16, self.abort_share.value.0)),
            field: self.header.as_ref().map(|header| header.value.0.as_str().into()),
        }
    }
}

section! {
    /// Changes to one cookie that upstreams set. Attributes without a key here stay unchanged.
    pub(crate) struct CookieSection {
        /// Name of the cookie. Case matters.
        required name: Word;
        /// New value of the attribute Path.
        optional path: Word;
        /// New value of the attribute Domain. `""` removes the attribute.
        optional domain: Text;
        /// Whether the cookie has the attribute Secure.
        optional secure: bool;
        /// New value of the attribute SameSite.
        optional same_site: SameSite;
    }
}

/// SameSite of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SameSite {
    Strict,
    Lax,
    None,
}

impl SameSite {
    /// The word of the attribute.
    pub(crate) const fn attribute(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
        }
    }
}

impl Choice for SameSite {
    const WORDS: &'static [(&'static str, Self)] =
        &[("strict", Self::Strict), ("lax", Self::Lax), ("none", Self::None)];
}

section! {
    /// A redirect. Parts of the URL without a key here stay as in the request.
    pub(crate) struct RedirectSection {
        /// Status of the response: 301, 302, 303, 307 or 308.
        default status: u32 = 302 => 301..=308;
        /// New scheme: `http` or `https`.
        optional scheme: Word;
        /// New host.
        optional host: Word;
        /// New port.
        optional port: u32 => 1..=65_535;
        /// New path.
        optional path: Word;
        /// Replacement for the `path_prefix` of the route.
        optional path_prefix: Word;
    }
}

section! {
    /// A response of the gateway itself.
    pub(crate) struct ResponseSection {
        /// Status of the response, 200 to 599.
        required status: u32 => 200..=599;
        /// Body of the response, up to 4 KiB. If absent, the body is empty.
        optional body: Text;
        /// Media type of the body.
        default content_type: Text = Text("text/plain; charset=utf-8".to_owned());
    }
}

section! {
    /// Changes to the path or host before the request is forwarded. Set at most one of `path`, `path_prefix` and `path_regex`.
    pub(crate) struct RewriteSection {
        /// New path.
        optional path: LongWord;
        /// Replacement for the `path_prefix` of the route.
        optional path_prefix: LongWord;
        /// Regular expression. `path_replacement` replaces each match in the path.
        optional path_regex: LongWord;
        /// Replacement for matches of `path_regex`, with groups of the expression: `$1`, `${name}`.
        optional path_replacement: LongWord;
        /// New host.
        optional host: Word;
        /// Header whose value becomes the new host, if the request has the header.
        optional host_from_header: Word;
    }
}

section! {
    /// A change to the headers of a message.
    pub(crate) struct FieldSection {
        /// `set` (replace all headers of this name by one), `add` (one more) or `remove`.
        default change: ChangeKind = ChangeKind::Set;
        /// Name of the header.
        required name: Word;
        /// Value of the header, with variables as in Envoy: `%DOWNSTREAM_REMOTE_ADDRESS%`, `%ROUTE_NAME%`, `%REQ(x-name)%` (empty in
        /// responses of upstreams). A change with an empty variable is not made.
        optional value: Text;
    }
}

impl RouteSection {
    /// The upstreams that it names.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &At<Name>> {
        let mirror = self.mirror.iter().filter_map(|mirror| mirror.upstream.as_ref());
        let targets = self.upstream.iter().chain(self.split.iter().filter_map(|share| share.upstream.as_ref()));
        targets.chain(mirror).chain(self.policies.upstreams().map(|(_, upstream)| upstream))
    }
}

/// Whether a route is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteState {
    Online,
    Offline,
}

/// Treatment of a route with a mistake in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidRoutes {
    Refuse,
    Unavailable,
}

impl Choice for InvalidRoutes {
    const WORDS: &'static [(&'static str, Self)] = &[("refuse", Self::Refuse), ("unavailable", Self::Unavailable)];
}

/// The keys of a route or a domain that define its action, and not its conditions: a mistake in one of them affects no
/// other route.
pub(super) fn deeds() -> Vec<&'static str> {
    let mut deeds = vec!["upstream", "split", "mirror", "fault", "redirect", "response", "rewrite"];
    Handling::names(&mut deeds);
    PolicyKeys::names(&mut deeds);
    deeds
}

/// The kind of change to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Set,
    Add,
    Remove,
}

impl Choice for RouteState {
    const WORDS: &'static [(&'static str, Self)] = &[("online", Self::Online), ("offline", Self::Offline)];
}

impl Choice for ChangeKind {
    const WORDS: &'static [(&'static str, Self)] = &[("set", Self::Set), ("add", Self::Add), ("remove", Self::Remove)];
}

impl Choice for Labels {
    const WORDS: &'static [(&'static str, Self)] = &[("one", Self::One), ("many", Self::Many)];
}

impl Choice for Operator {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("exact", Self::Exact),
        ("prefix", Self::Prefix),
        ("suffix", Self::Suffix),
        ("contains", Self::Contains),
        ("regex", Self::Regex),
        ("present", Self::Present),
    ];
}
