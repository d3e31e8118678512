//! Keys as text.

use weir_admin::status::{AiBudgetUse, AiKeyIssued, AiKeyList, AiKeySource, AiKeyState, AiKeyStatus, AiRateUse};

/// In front of a text that is shown once.
pub const FOR_THE_CLIENT: &str = "# For the client; it is stored nowhere, and cannot be shown again:\n";

/// A key that was issued, or has another text.
pub fn issued(issued: &AiKeyIssued) -> String {
    format!("{FOR_THE_CLIENT}{}\n\n{}", issued.text, one(&issued.key))
}

/// A line for each key.
pub fn table(list: &AiKeyList) -> String {
    let heading = ["NAME", "STATE", "FROM", "LISTENER", "EXPIRES", "TOKENS TODAY", "TOKENS MONTH", "MODELS"];
    let mut rows: Vec<[String; 8]> = vec![heading.map(str::to_owned)];
    rows.extend(list.keys.iter().map(|key| {
        [
            key.name.clone(),
            state(key).to_owned(),
            source(key.source).to_owned(),
            key.listener.clone().unwrap_or_else(|| "*".to_owned()),
            key.expires.clone().unwrap_or_else(|| "-".to_owned()),
            budget(&key.usage.day_tokens, false),
            budget(&key.usage.month_tokens, false),
            key.policy.models.as_ref().map_or_else(|| "*".to_owned(), |models| models.join(",")),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text: String = rows.iter().map(line).collect();
    if !list.can_issue {
        text += "no key can be issued here: write [ai] with state = \"/var/lib/weir/ai\" and start the gateway again\n";
    }
    text
}

/// All of a key, a line for each fact.
pub fn one(key: &AiKeyStatus) -> String {
    let mut text = format!("{}: {}, {}", key.name, state(key), origin(key));
    let mut line = |name: &str, value: String| text += &format!("\n  {name:<20}{value}");
    let mut some = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            line(name, value);
        }
    };
    some("issued", key.created.clone());
    some("expires", key.expires.clone());
    for one in &key.texts {
        let shown = one.shown.as_deref().unwrap_or("[not shown]");
        some(
            "secret",
            Some(one.until.as_ref().map_or_else(|| shown.to_owned(), |until| format!("{shown} until {until}"))),
        );
    }
    for listener in &key.shadowed_by {
        some("no effect at", Some(format!("{listener}: the file has a key with this name or secret")));
    }
    let usage = &key.usage;
    for (name, budget_use, is_money) in [
        ("tokens of the day", &usage.day_tokens, false),
        ("tokens of the month", &usage.month_tokens, false),
        ("money of the day", &usage.day_money_micro, true),
        ("money of the month", &usage.month_money_micro, true),
    ] {
        some(name, Some(budget(budget_use, is_money)));
    }
    let rate = |rate: &AiRateUse| format!("{} of {} left", rate.remaining, rate.limit);
    some("requests a minute", usage.requests_per_minute.as_ref().map(rate));
    some("tokens a minute", usage.tokens_per_minute.as_ref().map(rate));
    some("requests at once", usage.concurrent.map(|open| open.to_string()));
    let members = serde_json::to_value(&key.policy).unwrap_or_default();
    for (name, value) in members.as_object().into_iter().flatten() {
        some(name, Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    text + "\n"
}

fn origin(key: &AiKeyStatus) -> String {
    match (key.source, &key.listener) {
        (AiKeySource::Config, listener) => {
            format!("in the configuration file, listener {}", listener.as_deref().unwrap_or_default())
        }
        (AiKeySource::Api, Some(listener)) => format!("issued, for listener {listener}"),
        (AiKeySource::Api, None) => "issued, for each listener with keys".to_owned(),
    }
}

fn source(source: AiKeySource) -> &'static str {
    match source {
        AiKeySource::Config => "file",
        AiKeySource::Api => "api",
    }
}

fn state(key: &AiKeyStatus) -> &'static str {
    match key.state {
        AiKeyState::Active => "active",
        AiKeyState::Disabled => "disabled",
        AiKeyState::Expired => "expired",
    }
}

/// `120 (+30 reserved, +500 elsewhere) of 1000`.
fn budget(budget: &AiBudgetUse, is_money: bool) -> String {
    let amount = |amount: u64| match is_money {
        true => format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000),
        false => amount.to_string(),
    };
    let more = [(Some(budget.reserved), "reserved"), (budget.used_elsewhere, "elsewhere")];
    let more = more.into_iter().filter_map(|(more, what)| Some((more.filter(|more| *more > 0)?, what)));
    let more: Vec<String> = more.map(|(more, what)| format!("+{} {what}", amount(more))).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    let limit = budget.limit.map(|limit| format!(" of {}", amount(limit))).unwrap_or_default();
    format!("{}{more}{limit}", amount(budget.used))
}

#[cfg(test)]
mod tests {
    use weir_admin::status::{AiKeyPolicy, AiKeyText, AiKeyUsage};

    use super::*;

    fn key(name: &str) -> AiKeyStatus {
        AiKeyStatus {
            name: name.to_owned(),
            source: AiKeySource::Api,
            listener: None,
            state: AiKeyState::Active,
            expires: None,
            created: None,
            texts: vec![AiKeyText { shown: Some("sk-weir-AbCd…".to_owned()), until: None }],
            shadowed_by: Vec::new(),
            policy: AiKeyPolicy { models: Some(vec!["a".to_owned(), "b*".to_owned()]), ..AiKeyPolicy::default() },
            usage: AiKeyUsage {
                day_tokens: AiBudgetUse { used: 120, reserved: 30, limit: Some(1_000), ..AiBudgetUse::default() },
                day_money_micro: AiBudgetUse { used: 1_500_000, ..AiBudgetUse::default() },
                month_tokens: AiBudgetUse { used: 7, used_elsewhere: Some(50), ..AiBudgetUse::default() },
                ..AiKeyUsage::default()
            },
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_key() {
        let keys = vec![
            key("a"),
            AiKeyStatus { state: AiKeyState::Disabled, listener: Some("ai".to_owned()), ..key("longer-name") },
        ];
        let text = table(&AiKeyList { keys, can_issue: true, next_after: None });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let words: Vec<&str> = lines[1].split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(words, ["a", "active", "api", "*", "-", "120 (+30 reserved) of 1000", "7 (+50 elsewhere)", "a,b*"]);
        assert!(lines[2].starts_with("longer-name  disabled  api   ai"), "{text}");
        let without = table(&AiKeyList { keys: Vec::new(), can_issue: false, next_after: None });
        assert!(without.contains("[ai] with state"), "{without}");
    }

    #[test]
    fn a_key_shows_its_use_and_its_limits() {
        let text = one(&key("a"));
        for words in ["a: active, issued", "sk-weir-AbCd…", "120 (+30 reserved) of 1000", "1.500000", "models", "b*"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(issued(&AiKeyIssued { text: "sk-weir-x".to_owned(), key: key("a") }).starts_with(FOR_THE_CLIENT));
    }
}
