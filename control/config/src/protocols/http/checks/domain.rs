//! Domains: what routes have from there.

use weir_base::nearest;
use weir_http::routes::{Action, Target};
use weir_route::host::HostMatch;

use super::{idle, owners, policy, route};
use crate::checks::{error_at, find_upstream};
use crate::document::At;
use crate::protocols::http::domain::DomainSection;
use crate::protocols::http::route::InvalidRoutes;
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::texts::Name;

/// A domain, made once for all its routes.
pub(super) struct Domain<'f> {
    pub(super) section: &'f DomainSection,
    pub(super) hosts: Vec<HostMatch>,
    /// The action of its routes, unless they set another.
    pub(super) action: Action,
    pub(super) rules: policy::Rules,
    /// Mistakes in it; requests of its routes get a 503 then.
    pub(super) mistakes: Vec<String>,
}

/// Every domain; mistakes are reported.
pub(super) fn all<'f>(file: &'f FileSection, reader: &mut Reader<'_>) -> Vec<Domain<'f>> {
    let made = |(index, section)| domain(file, index, section, reader);
    file.own.http.domain.iter().enumerate().map(made).collect()
}

fn domain<'f>(file: &FileSection, index: usize, section: &'f DomainSection, reader: &mut Reader<'_>) -> Domain<'f> {
    let path = &format!("domain[{index}]");
    if let Some(name) = &section.name {
        owners::any_listener(file, name, path, reader);
        let mut others = file.own.http.domain[..index].iter().filter_map(|other| other.name.as_ref());
        if others.any(|other| other.value == name.value) {
            error_at(name, path, "name", "is used twice", "give each domain a unique name", reader);
        }
        let is_of = |one: &At<Name>| one.value == name.value;
        if !file.own.http.route.iter().filter_map(|route| route.domain.as_ref()).any(is_of) {
            let message = format!("no route has the domain \"{}\"", name.value);
            let help = format!("add domain = \"{}\" to a [[route]], or remove it", name.value);
            reader.problems.warning(&name.span, &format!("{path}.name"), message, help);
        }
    }
    if let Some(listeners) = &section.listeners {
        owners::listeners(file, listeners, path, reader);
    }
    idle::handling(&section.handling, path, reader);
    idle::policies(&section.policies, path, reader);
    idle::wildcard(&section.wildcard, section.hosts.as_ref(), path, reader);
    let hosts = match &section.hosts {
        Some(written) => route::hosts(written, section.wildcard.value, path, reader),
        None => vec![HostMatch::Any],
    };
    for (key, upstream) in section.policies.upstreams() {
        find_upstream(file, upstream, path, key, reader);
    }
    let mut action = Action::plain(Target::Invalid);
    section.handling.give(&mut action, path, reader);
    let rules = policy::rules(&section.policies, path, reader);
    let mistakes = match file.own.http.invalid_routes.value {
        InvalidRoutes::Unavailable => route::bear(path, reader),
        InvalidRoutes::Refuse => Vec::new(),
    };
    Domain { section, hosts, action, rules, mistakes }
}

/// The domain that a route at `path` names.
pub(super) fn find<'d, 'f>(
    domains: &'d [Domain<'f>],
    wanted: &At<Name>,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<&'d Domain<'f>> {
    let name_of = |domain: &&'d Domain<'f>| domain.section.name.as_ref().map(|name| &*name.value.0);
    let found = domains.iter().find(|domain| name_of(domain) == Some(&*wanted.value.0));
    if found.is_none() {
        let help = match nearest(&wanted.value.0, domains.iter().filter_map(|domain| name_of(&domain))) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "name a [[domain]] of this file".to_owned(),
        };
        error_at(
            wanted,
            path,
            "domain",
            &format!("names the domain \"{}\", which does not exist", wanted.value),
            help,
            reader,
        );
    }
    found
}
