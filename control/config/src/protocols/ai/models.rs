//! Models and their targets.

use std::sync::Arc;

use weir_ai::settings::{Model, TARGETS_MAX, Target};

use super::clients::glob;
use super::keys::ModelSection;
use crate::checks::{error_at, find_upstream};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::texts::Name;

/// The upstreams of a listener, its own first, and its models; mistakes are reported.
pub(super) fn models(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) -> (Vec<Arc<str>>, Vec<Model>) {
    let section = of.section;
    let mut upstreams: Vec<Arc<str>> = section.upstream.iter().map(|name| name.value.0.clone()).collect();
    let mut models: Vec<Model> = Vec::new();
    for (index, table) in section.own.ai.ai.model.iter().enumerate() {
        let path = format!("{path}.model[{index}]");
        let Some(name) = &table.name else { continue };
        let targets = targets(of, table, &path, &mut upstreams, reader);
        let Some(glob) = glob(name, &path, "name", reader) else { continue };
        if models.iter().any(|before| before.name.matches(&name.value.0)) {
            let what = "is never reached: a table before it takes the name";
            error_at(name, &path, "name", what, "move it up, or remove one of them", reader);
        }
        models.push(Model { name: glob, targets });
    }
    (upstreams, models)
}

/// The position of an upstream among those of a listener.
pub(super) fn position(wanted: &At<Name>, upstreams: &mut Vec<Arc<str>>) -> usize {
    upstreams.iter().position(|known| *known == wanted.value.0).unwrap_or_else(|| {
        upstreams.push(wanted.value.0.clone());
        upstreams.len() - 1
    })
}

fn targets(
    of: &ListenerContext<'_>,
    table: &ModelSection,
    path: &str,
    upstreams: &mut Vec<Arc<str>>,
    reader: &mut Reader<'_>,
) -> Vec<Target> {
    let mut targets = Vec::new();
    for (index, target) in table.target.iter().enumerate() {
        let path = format!("{path}.target[{index}]");
        let Some(wanted) = &target.upstream else { continue };
        find_upstream(of.file, wanted, &path, "upstream", reader);
        let upstream = position(wanted, upstreams);
        let model = target.model.as_ref().map(|model| model.value.0.as_str().into());
        targets.push(Target { upstream, model, weight: target.weight.value });
    }
    if let Some(name) = &table.name
        && (table.target.is_empty() || table.target.len() > TARGETS_MAX)
    {
        let what = format!("has {} targets", table.target.len());
        let help = format!("write 1 to {TARGETS_MAX} tables [[listener.ai.model.target]] behind it");
        error_at(name, path, "name", &what, help, reader);
    }
    targets
}
