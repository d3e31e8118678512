//! What is done with requests and answers on their way: of a route, or of a domain whose routes write nothing else.

use std::sync::Arc;
use std::time::Duration;

use weir_http::compression::Compression;
use weir_http::cookies::CookieChange;
use weir_http::routes::{Action, FieldChange};
use weir_http::settings::{RetrySettings, Upgrades};
use weir_http_codec::{Known, token};
use weir_route::variables::{Side, Template};

use crate::checks::error_at;
use crate::checks::route::told;
use crate::domain::Handling;
use crate::http::{CompressionSection, upgrades};
use crate::reader::Reader;
use crate::route::{ChangeKind, CookieSection, FieldSection};

/// What a route or a domain says of it; what is empty it does not say.
#[derive(Clone, Default)]
pub(super) struct Handled {
    request_fields: Vec<FieldChange>,
    response_fields: Vec<FieldChange>,
    cookies: Vec<CookieChange>,
    response_timeout: Option<Duration>,
    request_timeout: Option<Duration>,
    body_idle_timeout: Option<Duration>,
    answer_idle_timeout: Option<Duration>,
    body_rate_min: Option<u64>,
    request_buffer_bytes: Option<u64>,
    request_body_bytes_max: Option<u64>,
    retry: Option<Box<RetrySettings>>,
    compression: Option<Arc<Compression>>,
    upgrades: Option<Upgrades>,
}

impl Handled {
    /// This, and from `domain` what it does not say.
    pub(super) fn over(self, domain: &Self) -> Self {
        fn list<T: Clone>(own: Vec<T>, inherited: &[T]) -> Vec<T> {
            if own.is_empty() { inherited.to_vec() } else { own }
        }
        Self {
            request_fields: list(self.request_fields, &domain.request_fields),
            response_fields: list(self.response_fields, &domain.response_fields),
            cookies: list(self.cookies, &domain.cookies),
            response_timeout: self.response_timeout.or(domain.response_timeout),
            request_timeout: self.request_timeout.or(domain.request_timeout),
            body_idle_timeout: self.body_idle_timeout.or(domain.body_idle_timeout),
            answer_idle_timeout: self.answer_idle_timeout.or(domain.answer_idle_timeout),
            body_rate_min: self.body_rate_min.or(domain.body_rate_min),
            request_buffer_bytes: self.request_buffer_bytes.or(domain.request_buffer_bytes),
            request_body_bytes_max: self.request_body_bytes_max.or(domain.request_body_bytes_max),
            retry: self.retry.or_else(|| domain.retry.clone()),
            compression: self.compression.or_else(|| domain.compression.clone()),
            upgrades: self.upgrades.or(domain.upgrades),
        }
    }

    /// Puts it into `action`.
    pub(super) fn give(self, action: &mut Action) {
        action.request_fields = self.request_fields;
        action.response_fields = self.response_fields;
        action.cookies = self.cookies;
        action.response_timeout = self.response_timeout;
        action.request_timeout = self.request_timeout;
        action.body_idle_timeout = self.body_idle_timeout;
        action.answer_idle_timeout = self.answer_idle_timeout;
        action.body_rate_min = self.body_rate_min;
        action.request_buffer_bytes = self.request_buffer_bytes;
        action.request_body_bytes_max = self.request_body_bytes_max;
        action.retry = self.retry;
        action.compression = self.compression;
        action.upgrades = self.upgrades;
    }
}

/// Makes it out of what stands at `path`; mistakes are reported.
pub(super) fn made(written: &Handling<'_>, path: &str, reader: &mut Reader<'_>) -> Handled {
    let mut changes = |sections: &[FieldSection], key: &str, side: Side| {
        sections.iter().filter_map(|section| change(section, path, key, side, reader)).collect()
    };
    let request_fields = changes(written.request_header, "request_header", Side::Request);
    let response_fields = changes(written.response_header, "response_header", Side::Response);
    Handled {
        request_fields,
        response_fields,
        cookies: written.cookie.iter().filter_map(cookie).collect(),
        response_timeout: written.response_timeout.map(|timeout| timeout.value.0),
        request_timeout: written.request_timeout.map(|timeout| timeout.value.0),
        body_idle_timeout: written.body_idle_timeout.map(|timeout| timeout.value.0),
        answer_idle_timeout: written.answer_idle_timeout.map(|timeout| timeout.value.0),
        body_rate_min: written.body_rate_min.map(|rate| u64::from(rate.value)),
        request_buffer_bytes: written.request_buffer_bytes.map(|bytes| bytes.value.bytes()),
        request_body_bytes_max: written.request_body_bytes_max.map(|most| most.value.bytes()),
        retry: written.retry.map(|retry| Box::new(retry.settings(&format!("{path}.retry"), reader))),
        compression: written.compression.map(CompressionSection::settings),
        upgrades: written.upgrades.map(upgrades),
    }
}

fn cookie(section: &CookieSection) -> Option<CookieChange> {
    Some(CookieChange {
        name: section.name.as_ref()?.value.0.as_str().into(),
        path: section.path.as_ref().map(|path| path.value.0.as_str().into()),
        domain: section.domain.as_ref().map(|domain| domain.value.0.as_str().into()),
        secure: section.secure.as_ref().map(|secure| secure.value),
        same_site: section.same_site.as_ref().map(|same_site| same_site.value.attribute()),
    })
}

fn change(section: &FieldSection, path: &str, key: &str, side: Side, reader: &mut Reader<'_>) -> Option<FieldChange> {
    let name = section.name.as_ref()?;
    let (name_key, value_key) = (format!("{key}.name"), format!("{key}.value"));
    if !token::is_token(name.value.0.as_bytes()) {
        error_at(name, path, &name_key, "is no field name", "use letters, digits and hyphens", reader);
        return None;
    }
    if is_framing(&name.value.0) {
        let help = "the gateway frames messages; rewrite.host changes the host";
        error_at(name, path, &name_key, "decides on how the message is read", help, reader);
        return None;
    }
    let own: Box<str> = name.value.0.as_str().into();
    match (section.change.value, &section.value) {
        (ChangeKind::Remove, None) => Some(FieldChange::Remove(own)),
        (ChangeKind::Remove, Some(value)) => {
            error_at(value, path, &value_key, "is not needed to remove a field", "remove it", reader);
            None
        }
        (kind, Some(value)) => {
            let template = told(value, path, &value_key, Template::parse(&value.value.0, side), reader)?;
            Some(match kind {
                ChangeKind::Add => FieldChange::Add(own, template),
                _ => FieldChange::Set(own, template),
            })
        }
        (_, None) => {
            error_at(name, path, &name_key, "has no value", "add value, or change = \"remove\"", reader);
            None
        }
    }
}

/// Fields that only the gateway itself may write.
fn is_framing(name: &str) -> bool {
    matches!(
        Known::of(name.as_bytes()),
        Known::Host
            | Known::ContentLength
            | Known::TransferEncoding
            | Known::Connection
            | Known::Upgrade
            | Known::Te
            | Known::Trailer
            | Known::KeepAlive
            | Known::ProxyConnection
    )
}
