//! The keys of clients and their policies.

use std::sync::Arc;

use weir_ai::settings::KeyMode;
use weir_base::Net;
use weir_spend::{
    Glob,
    budget::{Budgets, Ledger},
    keys::{KeyHash, KeyRing, KeySecret, KeySettings},
    policy::{OutputAction, OutputCap, Policy},
    rate::Pace,
};

use super::{agents, cache, keys::KeySection};
use crate::checks::{error_at, warn_at};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::texts::Word;

/// Digits of a hash that lists show.
const SHOWN_DIGITS: usize = 8;

/// Models that a remedy names.
const NAMED_MAX: usize = 8;

/// The keys of a listener; mistakes are reported.
pub(super) fn keys(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) -> Vec<KeySettings> {
    let section = &of.section.own.ai.ai;
    let tables = section.key.iter().enumerate();
    let models: Vec<Glob> =
        section.model.iter().filter_map(|model| Glob::new(&model.name.as_ref()?.value.0).ok()).collect();
    let mut keys = Vec::new();
    for (index, table) in tables {
        let path = format!("{path}.key[{index}]");
        if section.keys.value == KeyMode::None
            && let Some(name) = &table.name
        {
            let help = "write keys = \"required\" in [listener.ai], or remove the table";
            error_at(name, &path, "name", "has no effect: clients need no key", help, reader);
        }
        warn_ending(of, table, &path, reader);
        check_models(table, &models, &path, reader);
        agents::warn_unmatched(section, table, &path, reader);
        keys.extend(key(table, &path, reader));
    }
    if section.keys.value == KeyMode::Required && section.key.is_empty() {
        // The admin API issues keys where there is a state.
        if of.file.own.ai.ai.state.is_none() {
            let what = "refuses every request: there is no key, and without [ai] state none can be issued";
            let help = "add [[listener.ai.key]] with name and sha256, or [ai] with state";
            warn_at(&section.keys, path, "keys", what, help, reader);
        }
    }
    // A ring finds names and hashes that stand twice, and long lists.
    if let Err(error) = KeyRing::new(&keys, &[], &Ledger::default()) {
        error_at(&section.keys, path, "key", "cannot be used", error.to_string(), reader);
    }
    keys
}

/// Models of a key that the listener does not have: the key could use none of them.
fn check_models(table: &KeySection, models: &[Glob], path: &str, reader: &mut Reader<'_>) {
    let Some(wanted) = table.models.as_ref().filter(|wanted| !models.is_empty() && !wanted.value.is_empty()) else {
        return;
    };
    // A pattern that is none is reported where it is read.
    let is_there = |word: &At<Word>| {
        Glob::new(&word.value.0).map_or(true, |glob| models.iter().any(|model| model.overlaps(&glob)))
    };
    let names: Vec<&str> = models.iter().map(Glob::text).take(NAMED_MAX).collect();
    let more = if models.len() > NAMED_MAX { ", ..." } else { "" };
    let help = format!("the models of the listener: {}{more}", names.join(", "));
    if !wanted.value.iter().any(is_there) {
        return error_at(wanted, path, "models", "permits no model of the listener", help, reader);
    }
    for word in wanted.value.iter().filter(|word| !is_there(word)) {
        let what = format!("has \"{}\", which matches no model of the listener", word.value);
        warn_at(word, path, "models", &what, help.clone(), reader);
    }
}

/// A budget that the process does not survive.
fn warn_ending(of: &ListenerContext<'_>, table: &KeySection, path: &str, reader: &mut Reader<'_>) {
    let budgets = [table.day_tokens.as_ref().map(|at| &at.span), table.month_tokens.as_ref().map(|at| &at.span)];
    let money = [table.day_money.as_ref().map(|at| &at.span), table.month_money.as_ref().map(|at| &at.span)];
    let first = budgets.into_iter().chain(money).flatten().next();
    if let Some(span) = first.filter(|_| of.file.own.ai.ai.state.is_none()) {
        let message = format!("the budget of `{path}` begins again with each start of the process");
        let help = "write [ai] with state = \"/var/lib/weir/ai\"";
        reader.problems.warning(span, path, message, help);
    }
}

/// One key; `None`: something of it is missing.
fn key(table: &KeySection, path: &str, reader: &mut Reader<'_>) -> Option<KeySettings> {
    let policy = policy(table, path, reader);
    let (name, current) = (table.name.as_ref()?, table.sha256.as_ref()?);
    let mut secrets = vec![secret(current, None, path, "sha256", reader)?];
    match (&table.old_sha256, &table.old_until) {
        (Some(old), Some(until)) => secrets.push(secret(old, Some(until.value.0), path, "old_sha256", reader)?),
        (Some(old), None) => {
            error_at(old, path, "old_sha256", "needs old_until", "add old_until", reader);
        }
        (None, Some(until)) => {
            error_at(until, path, "old_until", "needs old_sha256", "add old_sha256, or remove it", reader);
        }
        (None, None) => {}
    }
    Some(KeySettings {
        name: name.value.0.clone(),
        secrets,
        is_enabled: table.enabled.value,
        expires: table.expires.as_ref().map(|time| time.value.0),
        policy: Arc::new(policy),
        team: None,
        organization: None,
    })
}

/// A hash that is good until a time; one that cannot be is reported.
fn secret(written: &At<Word>, until: Option<u64>, path: &str, key: &str, reader: &mut Reader<'_>) -> Option<KeySecret> {
    let Some(hash) = KeyHash::from_hex(&written.value.0) else {
        let help = "write the 64 digits that weir keys new NAME --offline has printed";
        error_at(written, path, key, "is not a SHA-256 hash", help, reader);
        return None;
    };
    let digits: String = hash.to_hex().chars().take(SHOWN_DIGITS).collect();
    Some(KeySecret { hash, shown: format!("sha256:{digits}…").into(), until })
}

fn policy(table: &KeySection, path: &str, reader: &mut Reader<'_>) -> Policy {
    if let Some(models) = table.models.as_ref().filter(|models| models.value.is_empty()) {
        let help = "remove it to permit all models, or write enabled = false";
        error_at(models, path, "models", "is empty, which would permit all", help, reader);
    }
    Policy {
        models_allowed: globs(table.models.as_ref(), path, "models", reader).unwrap_or_default(),
        models_denied: globs(table.models_denied.as_ref(), path, "models_denied", reader).unwrap_or_default(),
        tools_allowed: globs(table.tools.as_ref(), path, "tools", reader),
        tools_max: table.tools_max.as_ref().map(|most| most.value),
        server_tools: table.mcp_tools.as_ref().map(|list| agents::tools(list, path, reader)),
        agents: table.a2a_agents.as_ref().map(|list| agents::names(list, path, reader)),
        tool_calls: table.tool_calls_per_minute.as_ref().map(|limit| Pace::per_minute(limit.value.into())),
        prompt_bytes_max: table.prompt_bytes_max.as_ref().map(|most| most.value.bytes()),
        output: table
            .output_tokens_max
            .as_ref()
            .map(|most| OutputCap { tokens: most.value.into(), action: OutputAction::Clamp }),
        sources: sources(table, path, reader),
        requests: table.requests_per_minute.as_ref().map(|limit| Pace::per_minute(limit.value.into())),
        tokens: table.tokens_per_minute.as_ref().map(|limit| Pace::per_minute(limit.value)),
        concurrent_max: table.concurrent_max.as_ref().map(|most| most.value),
        budgets: Budgets {
            day_tokens: table.day_tokens.as_ref().map(|limit| limit.value),
            day_money: table.day_money.as_ref().map(|limit| limit.value.0),
            month_tokens: table.month_tokens.as_ref().map(|limit| limit.value),
            month_money: table.month_money.as_ref().map(|limit| limit.value.0),
        },
        cache: cache::rule(table.cache_ttl.as_ref(), &table.cache_sampled, path, reader),
        mode: table.mode.value,
    }
}

fn sources(table: &KeySection, path: &str, reader: &mut Reader<'_>) -> Vec<Net> {
    let Some(sources) = &table.sources else { return Vec::new() };
    if sources.value.is_empty() {
        let help = "remove it to permit all networks, or write enabled = false";
        error_at(sources, path, "sources", "is empty, which would permit all", help, reader);
    }
    sources.value.iter().map(|net| net.value).collect()
}

/// The patterns of a list.
fn globs(list: Option<&At<Vec<At<Word>>>>, path: &str, key: &str, reader: &mut Reader<'_>) -> Option<Vec<Glob>> {
    Some(list?.value.iter().filter_map(|word| glob(word, path, key, reader)).collect())
}

/// A pattern; one that cannot be is reported.
pub(super) fn glob(word: &At<Word>, path: &str, key: &str, reader: &mut Reader<'_>) -> Option<Glob> {
    Glob::new(&word.value.0)
        .map_err(|error| error_at(word, path, key, "is not a pattern", error.to_string(), reader))
        .ok()
}
