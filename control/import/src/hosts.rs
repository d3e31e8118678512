//! The hosts for which a rule must be looked at, where the first of all rules counts.

use std::collections::HashMap;

use crate::order::Rule;
use crate::overlap::ANY;

/// Hosts that all rules for more than one named host may have together: some 100 MB of routes.
const WIDE_HOSTS_MAX: usize = 1_000_000;

/// Gives each rule the hosts for which it must be looked at: a rule without a host holds for the hosts of all others too.
///
/// # Errors
/// The rules would have too many hosts.
pub(crate) fn spread_hosts(rules: &mut [Rule]) -> Result<(), String> {
    let (mut all, mut place_of) = (Vec::new(), HashMap::new());
    for host in rules.iter().flat_map(|rule| &rule.route.hosts) {
        place_of.entry(host.clone()).or_insert_with(|| {
            all.push(host.clone());
            all.len()
        });
    }
    if all.is_empty() {
        return Ok(());
    }
    let is_wide = |hosts: &[String]| hosts.is_empty() || hosts.iter().any(|host| host.starts_with('*'));
    let wide = rules.iter().filter(|rule| is_wide(&rule.route.hosts)).count();
    if wide * all.len() > WIDE_HOSTS_MAX {
        return Err(format!("{wide} rules for {} hosts each are too many", all.len()));
    }
    for rule in rules {
        let hosts = &mut rule.route.hosts;
        if !is_wide(hosts) {
            hosts.sort_by_key(|host| place_of.get(host));
            hosts.dedup();
            continue;
        }
        let own = std::mem::take(hosts);
        let is_for = |host: &String| own.is_empty() || own.contains(host) || own.iter().any(|own| is_under(host, own));
        hosts.extend(all.iter().filter(|host| is_for(host)).cloned());
        if own.is_empty() && !hosts.iter().any(|host| host == ANY) {
            hosts.push(ANY.to_owned());
        }
    }
    Ok(())
}

/// Whether all hosts that `host` names are hosts of the wildcard `wide`.
fn is_under(host: &str, wide: &str) -> bool {
    wide == ANY || wide.strip_prefix('*').is_some_and(|suffix| suffix.starts_with('.') && host.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Route, Target};
    use crate::note::SourceLine;

    fn rule(hosts: &str) -> Rule {
        let mut route = Route::new(String::new(), Target::status(200));
        route.hosts = hosts.split_whitespace().map(str::to_owned).collect();
        Rule { route, place: SourceLine { file: "f".into(), line: 1 }, text: String::new() }
    }

    #[test]
    fn many_hosts_are_taken_and_too_many_for_each_of_many_rules_are_a_mistake() {
        let named = |line: usize| rule(&format!("b{line}.example a{line}.example"));
        let mut rules: Vec<Rule> = (0..100_000).map(named).chain([rule("")]).collect();
        spread_hosts(&mut rules).expect("not too many");
        assert_eq!(rules[7].route.hosts, ["b7.example", "a7.example"]);
        assert_eq!(rules[100_000].route.hosts.len(), 200_001);
        let mut rules: Vec<Rule> = (0..5_000).flat_map(|line| [named(line), rule("")]).collect();
        assert_eq!(spread_hosts(&mut rules), Err("5000 rules for 10000 hosts each are too many".to_owned()));
    }
}
