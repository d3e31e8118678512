//! Models and their targets.

use std::sync::Arc;

use weir_ai::settings::{Balance, Model, TARGETS_MAX, Target};
use weir_spend::prices::PriceTable;

use super::clients::glob;
use super::keys::{ModelSection, TargetSection};
use crate::checks::{error_at, find_upstream, warn_at};
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
            let what = "is never reached: an earlier table matches the name";
            error_at(name, &path, "name", what, "move it up, or remove one of them", reader);
        }
        let sticky_prefix_bytes = table.sticky_prefix_bytes.as_ref().map(|bytes| bytes.value.bytes() as usize);
        if let (Some(bytes), 1) = (&table.sticky_prefix_bytes, targets.len()) {
            let help = "add another [[listener.ai.model.target]], or remove it";
            warn_at(bytes, &path, "sticky_prefix_bytes", "has no effect with one target", help, reader);
        }
        models.push(Model { name: glob, balance: table.balance.value, sticky_prefix_bytes, targets });
    }
    (upstreams, models)
}

/// Reports weights that decide nothing, and prices that a balance lacks.
pub(super) fn check_balances(of: &ListenerContext<'_>, prices: &PriceTable, path: &str, reader: &mut Reader<'_>) {
    for (index, table) in of.section.own.ai.ai.model.iter().enumerate() {
        let (path, balance) = (format!("{path}.model[{index}]"), table.balance.value);
        if balance == Balance::Weight {
            continue;
        }
        if table.target.len() == 1 {
            let help = "add another [[listener.ai.model.target]], or remove it";
            warn_at(&table.balance, &path, "balance", "has no effect with one target", help, reader);
        }
        for (index, target) in table.target.iter().enumerate() {
            let path = format!("{path}.target[{index}]");
            if target.weight.value > 1 {
                let what = format!("sets no share with balance = \"{}\"", balance.name());
                let help = "remove it, or write 0 for a target that serves only after a failure";
                error_at(&target.weight, &path, "weight", &what, help, reader);
            }
            check_price(table, target, prices, &path, reader);
        }
    }
}

/// Reports a target that is chosen by its price, and has none.
fn check_price(table: &ModelSection, target: &TargetSection, prices: &PriceTable, path: &str, reader: &mut Reader<'_>) {
    let (Some(name), Some(upstream)) = (target.model.as_ref().or(table.name.as_ref()), &target.upstream) else {
        return;
    };
    if table.balance.value == Balance::Price && prices.price(&name.value.0, None).is_none() {
        let what = format!("has no price for `{}`, which balance = \"price\" needs", name.value.0);
        let help = "add [[listener.ai.price]] with models, input and output, or write another balance";
        match &target.model {
            Some(model) => error_at(model, path, "model", &what, help, reader),
            None => error_at(upstream, path, "upstream", &what, help, reader),
        }
    }
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
        let help = format!("write 1 to {TARGETS_MAX} tables [[listener.ai.model.target]] below it");
        error_at(name, path, "name", &what, help, reader);
    }
    targets
}
