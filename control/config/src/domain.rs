//! `[[domain]]`: what the routes of some hosts have in common.

use weir_base::ByteSize;
use weir_route::host::Labels;

use crate::document::At;
use crate::http::{CompressionSection, RetrySection, Upgrade};
use crate::numbers::Period;
use crate::policy::{
    ApiKeySection, BasicAuthSection, CorsSection, ExtAuthSection, IpFilterSection, JwtSection, RateLimitSection,
    Written, written_policies,
};
use crate::route::{CookieSection, FieldSection, RouteState};
use crate::section::section;
use crate::texts::{Name, Word};

section! {
    /// Hosts, and what the routes of these hosts have in common: a route names its domain with `domain`, and has from it what it
    /// does not write. What neither writes is as the listener says. A list or a table of the route stands in place of the whole
    /// list or table of the domain. Limits of a domain count the requests of all routes that have them from it.
    pub(crate) struct DomainSection [name = name] {
        /// Unique among domains.
        required name: Name;
        /// Listeners that have its routes. Absent: all HTTP listeners.
        optional listeners: Vec<At<Name>>;
        /// Hosts of its routes: `example.com`, `*.example.com`, or `*`, without ports. Absent: all.
        optional hosts: Vec<At<Word>>;
        /// What the star of a wildcard host stands for: `one` label, or `many`.
        default wildcard: Labels = Labels::One;
        /// Whether its routes are in force: `online`, or `offline` as if they were not there.
        default state: RouteState = RouteState::Online;
        /// Changes to the fields that origins get, in order.
        tables request_header: FieldSection;
        /// Changes to the fields that clients get, in order.
        tables response_header: FieldSection;
        /// Changes to cookies that origins set.
        tables cookie: CookieSection;
        /// From the end of a request to the head of its answer.
        optional response_timeout: Period => Period::millis(1)..=Period::secs(86_400);
        /// From the head of a request to the end of its answer.
        optional request_timeout: Period => Period::millis(1)..=Period::secs(86_400);
        /// How long the body of a request may pause.
        optional body_idle_timeout: Period => Period::millis(1)..=Period::secs(86_400);
        /// Bytes a second that the body of a request must bring at least. 0: as slow as it likes.
        optional body_rate_min: u32 => 0..=16_777_216;
        /// Bytes of a request body that are read before a connection to an origin is taken for it, so that a slow client holds none; a
        /// longer one goes on as it comes from there on. 0: from its first byte on, for bodies that are one half of a talk.
        optional request_buffer_bytes: ByteSize => ByteSize::new(0)..=ByteSize::mib(64);
        /// How long the body of an answer may pause.
        optional answer_idle_timeout: Period => Period::millis(1)..=Period::secs(86_400);
        /// Compressing answers.
        optional_table compression: CompressionSection;
        /// Asking another origin when one fails.
        optional_table retry: RetrySection;
        /// Bytes of a request body; a longer one is answered 413. 0: any length.
        optional request_body_bytes_max: ByteSize => ByteSize::new(0)..=ByteSize::mib(1 << 20);
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
        /// What client connections may become if the origin agrees: `["websocket"]`, or `[]` for nothing.
        optional upgrades: Vec<At<Upgrade>>;
    }
}

/// The [`Handling`] of a section with these keys.
macro_rules! written_handling {
    ($section:expr) => {
        $crate::domain::Handling {
            request_header: &$section.request_header,
            response_header: &$section.response_header,
            cookie: &$section.cookie,
            response_timeout: $section.response_timeout.as_ref(),
            request_timeout: $section.request_timeout.as_ref(),
            body_idle_timeout: $section.body_idle_timeout.as_ref(),
            answer_idle_timeout: $section.answer_idle_timeout.as_ref(),
            body_rate_min: $section.body_rate_min.as_ref(),
            request_buffer_bytes: $section.request_buffer_bytes.as_ref(),
            request_body_bytes_max: $section.request_body_bytes_max.as_ref(),
            compression: $section.compression.as_ref(),
            retry: $section.retry.as_ref(),
            upgrades: $section.upgrades.as_ref(),
        }
    };
}

pub(crate) use written_handling;

/// What a route or a domain writes about the way of requests and answers.
pub(crate) struct Handling<'s> {
    pub(crate) request_header: &'s [FieldSection],
    pub(crate) response_header: &'s [FieldSection],
    pub(crate) cookie: &'s [CookieSection],
    pub(crate) response_timeout: Option<&'s At<Period>>,
    pub(crate) request_timeout: Option<&'s At<Period>>,
    pub(crate) body_idle_timeout: Option<&'s At<Period>>,
    pub(crate) answer_idle_timeout: Option<&'s At<Period>>,
    pub(crate) body_rate_min: Option<&'s At<u32>>,
    pub(crate) request_buffer_bytes: Option<&'s At<ByteSize>>,
    pub(crate) request_body_bytes_max: Option<&'s At<ByteSize>>,
    pub(crate) compression: Option<&'s CompressionSection>,
    pub(crate) retry: Option<&'s RetrySection>,
    pub(crate) upgrades: Option<&'s At<Vec<At<Upgrade>>>>,
}

impl DomainSection {
    /// What is done with requests and answers on their way.
    pub(crate) fn handling(&self) -> Handling<'_> {
        written_handling!(self)
    }

    /// The policies that stand here.
    pub(crate) fn policies(&self) -> Written<'_> {
        written_policies!(self)
    }
}
