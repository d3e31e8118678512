//! Names and addresses that may be used only once.

use std::collections::HashMap;
use std::net::SocketAddr;

use weir_engine::settings::Address;

use crate::diagnostic::Span;
use crate::document::At;
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::texts::Name;

/// Reports duplicate names, addresses that exclude each other, and upstreams that point back at a listener.
pub(super) fn check(file: &FileSection, reader: &mut Reader<'_>) {
    let listeners = file.listener.iter().enumerate();
    let names = listeners.clone().map(|(index, one)| (format!("listener[{index}].name"), &one.name));
    unique_names(names.collect(), reader);
    let upstreams = file.upstream.iter().enumerate();
    let names = upstreams.map(|(index, one)| (format!("upstream[{index}].name"), &one.name));
    unique_names(names.collect(), reader);

    let mut binds: Vec<(String, Address, Span)> = Vec::new();
    let admin = &file.admin.bind;
    let own = listeners.filter_map(|(index, one)| {
        let bind = one.bind.as_ref()?;
        Some((format!("listener[{index}].bind"), bind.value.0.clone(), bind.span.clone()))
    });
    let own: Vec<_> = own.collect();
    // Last, so that a listener on the admin server's default address is reported at the listener only if it stands
    // after a written [admin]; a default has no line of its own to point at.
    for (path, address, span) in
        std::iter::once(("admin.bind".to_owned(), Address::Socket(admin.value.0), admin.span.clone())).chain(own)
    {
        let taken = binds.iter().find(|(_, other, _)| address.excludes(other));
        if let Some((other_path, other, other_span)) = taken {
            let message = format!("`{path}` {address} is taken by `{other_path}` {other}");
            let is_default = other_path == "admin.bind" && !admin.is_given;
            let help = match is_default {
                true => "choose another address, or set bind in [admin]: this is its default".to_owned(),
                false => {
                    format!("choose another address; the first use is in line {}", reader.problems.line(other_span))
                }
            };
            reader.problems.error(&span, &path, message, help);
        }
        binds.push((path, address, span));
    }
    refuse_loops(file, &binds, reader);
}

fn unique_names(names: Vec<(String, &Option<At<Name>>)>, reader: &mut Reader<'_>) {
    let mut seen: HashMap<&str, &Span> = HashMap::new();
    for (path, name) in &names {
        let Some(name) = name else { continue };
        match seen.get(&*name.value.0) {
            Some(first) => {
                let message = format!("`{path}` \"{}\" is used twice", name.value);
                let help = format!("choose another name; the first use is in line {}", reader.problems.line(first));
                reader.problems.error(&name.span, path, message, help);
            }
            None => {
                seen.insert(&name.value.0, &name.span);
            }
        }
    }
}

/// An upstream that is one of our own listeners would send each request round in circles until a limit ends it.
fn refuse_loops(file: &FileSection, binds: &[(String, Address, Span)], reader: &mut Reader<'_>) {
    for (index, upstream) in file.upstream.iter().enumerate() {
        for endpoint in upstream.endpoints.iter().flat_map(|list| &list.value) {
            let own = binds.iter().find(|(_, bind, _)| reaches(&endpoint.value.0, bind));
            let Some((bind_path, ..)) = own else { continue };
            let path = format!("upstream[{index}].endpoints");
            let message = format!("`{path}` {} is `{bind_path}` of this gateway", endpoint.value.0);
            reader.problems.error(&endpoint.span, &path, message, "name the server behind the gateway");
        }
    }
}

/// True if connecting to `endpoint` certainly reaches `bind` on this machine.
fn reaches(endpoint: &Address, bind: &Address) -> bool {
    match (endpoint, bind) {
        (Address::Socket(endpoint), Address::Socket(bind)) => {
            let wildcard = SocketAddr::new(bind.ip(), 0).ip().is_unspecified() && endpoint.ip().is_loopback();
            let same_family = endpoint.is_ipv4() == bind.is_ipv4();
            endpoint == bind || (wildcard && same_family && endpoint.port() == bind.port())
        }
        (endpoint, bind) => endpoint == bind,
    }
}
