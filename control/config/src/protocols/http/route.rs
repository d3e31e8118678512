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
    /// A route of HTTP listeners: requests that fulfil all its conditions go where it says. The order in which routes are
    /// tried does not depend on their order in the file: exact hosts before wildcards before all, then exact paths, regexes,
    /// prefixes, the longer before the shorter, then those with a method, with more headers, with more of the query. The best
    /// host decides alone: if none of its routes takes a request, it is answered 404. A request for a host
    /// that no route names goes to the `upstream` of the listener.
    pub(crate) struct RouteSection [name = name] {
        /// Unique among routes; a label of metrics.
        required name: Name;
        /// Its domain. The route inherits every key from there that it does not set.
        optional domain: Name;
        /// Listeners that have it. Absent: those of its domain, or all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts: `example.com`, `*.example.com`, or `*`, without ports. Absent: those of its domain, or all.
        optional hosts: Vec<At<Word>>;
        /// Labels that the star of a wildcard host stands for: `one` or `many`. Only for the hosts of this route.
        default wildcard: Labels = Labels::One;
        /// The path, as it is. At most one of the four kinds of path; absent: all paths.
        optional path: LongWord;
        /// The first segments of the path: `/blog` takes `/blog` and `/blog/x`, not `/blogger`.
        optional path_prefix: LongWord;
        /// The beginning of the path, as text: `/blog` takes `/blogger` too.
        optional path_string_prefix: LongWord;
        /// The whole path as a regular expression of up to 4 KiB, without the query.
        optional path_regex: LongWord;
        /// Methods. Absent: all.
        optional methods: Vec<At<Word>>;
        /// Conditions on header fields; all must hold.
        tables header: HeaderMatchSection;
        /// Conditions on the query; all must hold. The first value of a name counts.
        tables query: QueryMatchSection;
        /// Between routes that ask equally much the lower number is tried first.
        default priority: u32 = PRIORITY => 0..=PRIORITY_MAX;
        /// Whether it is in force: `online`, or `offline` as if it were not there.
        default state: RouteState = RouteState::Online;
        /// The upstream that requests go to. One of `upstream`, `split`, `redirect` and `response`.
        optional upstream: Name;
        /// Several upstreams, each with its share of the requests.
        tables split: SplitSection;
        /// A second upstream that gets copies of the requests; its responses are discarded.
        optional_table mirror: MirrorSection;
        /// Failures made on purpose, to see that clients bear them.
        optional_table fault: FaultSection;
        /// Tell the client to go elsewhere.
        optional_table redirect: RedirectSection;
        /// Answer in the gateway's own name.
        optional_table response: ResponseSection;
        /// Changes to the target before the request is forwarded.
        optional_table rewrite: RewriteSection;
        /// Absent: as the domain's or the listener's.
        include handling: Handling;
        include policies: PolicyKeys;
    }
}

section! {
    /// Condition on a header field. Lines of a field that comes more than once are one value, joined by `, `.
    pub(crate) struct HeaderMatchSection {
        /// In any case.
        required name: Word;
        /// How `value` is compared: `exact`, `prefix`, `suffix`, `contains`, `regex` (the whole value), or `present`, for which
        /// there is no value.
        default kind: Operator = Operator::Exact;
        /// The value that it is compared with.
        optional value: Text;
        /// Compare without regard to case.
        default ignore_case: bool = false;
        /// The condition holds if the comparison does not.
        default negate: bool = false;
        /// With `negate`: a field that is not there counts as an empty one.
        default missing_as_empty: bool = false;
    }
}

section! {
    /// Condition on a value of the query.
    pub(crate) struct QueryMatchSection {
        /// As it is; case counts.
        required name: Word;
        /// As of headers.
        default kind: Operator = Operator::Exact;
        /// The value that it is compared with.
        optional value: Text;
        /// Compare without regard to case.
        default ignore_case: bool = false;
    }
}

section! {
    /// A share of the requests of a route.
    pub(crate) struct SplitSection {
        /// The upstream.
        required upstream: Name;
        /// Its share, relative to the others'. If no table has one, all get the same; if one has, those without get nothing.
        optional weight: u32 => 0..=1_000_000;
    }
}

section! {
    /// A second upstream. Copies carry `-shadow` behind their host.
    pub(crate) struct MirrorSection {
        /// The upstream.
        required upstream: Name;
        /// Share of the requests, 0.0 to 1.0.
        default share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// Requests with longer bodies are not copied.
        default body_bytes_max: ByteSize = ByteSize::kib(64) => ByteSize::new(0)..=ByteSize::mib(16);
    }
}

section! {
    /// Failures made on purpose. Both may befall one request, the delay first.
    pub(crate) struct FaultSection {
        /// A pause before the request goes on.
        optional delay: Period => Period::millis(1)..=Period::secs(60);
        /// Share of the requests that have it, 0.0 to 1.0.
        default delay_share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// A status that is answered in the origin's place.
        optional abort_status: u32 => 200..=599;
        /// Share of the requests that have it, 0.0 to 1.0.
        default abort_share: Ratio = Ratio(1.0) => Ratio(0.0)..=Ratio(1.0);
        /// Only requests with this header field.
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
    /// Changes to one cookie that origins set. An attribute without a key here stays.
    pub(crate) struct CookieSection {
        /// Its name; cases count.
        required name: Word;
        /// Another Path.
        optional path: Word;
        /// Another Domain; `""`: none.
        optional domain: Text;
        /// With or without Secure.
        optional secure: bool;
        /// Another SameSite.
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
    /// A redirect to another place. A part of the URL without a key here stays as in the request.
    pub(crate) struct RedirectSection {
        /// 301, 302, 303, 307 or 308.
        default status: u32 = 302 => 301..=308;
        /// `http` or `https`.
        optional scheme: Word;
        /// Another host.
        optional host: Word;
        /// Another port.
        optional port: u32 => 1..=65_535;
        /// Another path.
        optional path: Word;
        /// Instead of the route's `path_prefix`.
        optional path_prefix: Word;
    }
}

section! {
    /// An answer of the gateway's own.
    pub(crate) struct ResponseSection {
        /// 200 to 599.
        required status: u32 => 200..=599;
        /// Up to 4 KiB. Absent: empty.
        optional body: Text;
        /// Media type of the body.
        default content_type: Text = Text("text/plain; charset=utf-8".to_owned());
    }
}

section! {
    /// Changes to the target before the request is forwarded. At most one of `path`, `path_prefix` and `path_regex`.
    pub(crate) struct RewriteSection {
        /// The whole path.
        optional path: LongWord;
        /// Instead of the route's `path_prefix`.
        optional path_prefix: LongWord;
        /// Every match of this expression in the path becomes `path_replacement`.
        optional path_regex: LongWord;
        /// With groups of the expression: `$1`, `${name}`.
        optional path_replacement: LongWord;
        /// Host of the request that goes on.
        optional host: Word;
        /// The same from this header field, if the request has it.
        optional host_from_header: Word;
    }
}

section! {
    /// A change to the fields of a message.
    pub(crate) struct FieldSection {
        /// `set` (one field of this name and no other), `add` (one more) or `remove`.
        default change: ChangeKind = ChangeKind::Set;
        /// Its name.
        required name: Word;
        /// Its value, which may have variables in Envoy's way: `%DOWNSTREAM_REMOTE_ADDRESS%`, `%REQ(x-name)%`, `%ROUTE_NAME%`.
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
