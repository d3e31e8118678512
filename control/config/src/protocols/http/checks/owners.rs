//! The listeners that have a route or the routes of a domain.

use weir_base::nearest;

use crate::checks::{error_at, warn_repeated};
use crate::document::At;
use crate::protocols::ProtocolName;
use crate::reader::Reader;
use crate::sections::{FileSection, ListenerSection};
use crate::texts::Name;

/// Reports listeners that there are not, or that have no routes.
pub(super) fn listeners(file: &FileSection, listeners: &At<Vec<At<Name>>>, path: &str, reader: &mut Reader<'_>) {
    if listeners.value.is_empty() {
        let help = "name listeners, or remove it for all HTTP listeners";
        error_at(listeners, path, "listeners", "is empty: no request would ever match", help, reader);
    }
    listeners.value.iter().for_each(|one| listener(file, one, path, reader));
    warn_repeated(listeners, path, "listeners", reader);
}

fn listener(file: &FileSection, wanted: &At<Name>, path: &str, reader: &mut Reader<'_>) {
    let is_it = |one: &&ListenerSection| one.name.as_ref().is_some_and(|name| name.value == wanted.value);
    if let Some(listener) = file.listener.iter().find(is_it) {
        if let Some(protocol) = listener.protocol.as_ref().filter(|protocol| protocol.value != ProtocolName::Http) {
            let what = format!("names \"{}\", which speaks {} and has no routes", wanted.value, protocol.value);
            let help = "name listeners with protocol = \"http\", or remove it";
            error_at(wanted, path, "listeners", &what, help, reader);
        }
        return;
    }
    let names = file.listener.iter().filter_map(|listener| listener.name.as_ref()).map(|name| &*name.value.0);
    let help = match nearest(&wanted.value.0, names) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => "name a [[listener]] of this file".to_owned(),
    };
    error_at(
        wanted,
        path,
        "listeners",
        &format!("names the listener \"{}\", which does not exist", wanted.value),
        help,
        reader,
    );
}

/// Reports routes of a file in which no listener has any.
pub(super) fn any_listener(file: &FileSection, name: &At<Name>, path: &str, reader: &mut Reader<'_>) {
    let may_have_routes =
        |one: &ListenerSection| one.protocol.as_ref().is_none_or(|one| one.value == ProtocolName::Http);
    if !file.listener.is_empty() && !file.listener.iter().any(may_have_routes) {
        let help = "add a [[listener]] with protocol = \"http\", or remove it";
        error_at(name, path, "name", "has no effect: no listener of this file speaks HTTP", help, reader);
    }
}
