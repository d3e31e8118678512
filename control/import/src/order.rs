//! HAProxy and Envoy take the first rule that matches. Weir takes the most specific route, whatever the order of the file, and the
//! best host decides alone. Rules become routes here so that the same rule takes each request, and what is left is noted.

use std::cell::Cell;
use std::collections::HashMap;

use crate::model::{PathMatch, Route, Target};
use crate::note::{Note, SourceLine};
use crate::overlap::{covers, has_host, hosts_of, overlap, rank};
use crate::paths;

/// The priority of the first rule; Weir's default, 1000, stands behind.
const FIRST_PRIORITY: u64 = 100;

/// Routes that rules may become. Beyond it a note says what differs.
const ROUTES_MAX: usize = 512;

/// Comparisons of two rules that are made: those of some hundred rules that all meet each other, in seconds. Beyond it a note says
/// what differs.
const COMPARISONS_MAX: u64 = 2_000_000;

/// Comparisons with an earlier rule for the same host that are made to leave out hidden rules: those of 4,000 rules for one host.
/// Further rules are kept, and a note says what differs.
const HOST_COMPARISONS_MAX: usize = 8_000_000;

/// Comparisons that may still be made, and the regexes that they have compiled.
struct Budget {
    comparisons: Cell<u64>,
    regexes: paths::Regexes,
}

impl Budget {
    /// Takes so many. False: none are left.
    fn take(&self, count: usize) -> bool {
        self.comparisons.set(self.comparisons.get().saturating_sub(count as u64));
        self.comparisons.get() > 0
    }
}

/// A rule in the order of the file, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) route: Route,
    pub(crate) place: SourceLine,
    pub(crate) text: String,
}

/// The routes of rules in order. A rule that an earlier one hides is left out where it is hidden; where Weir would try a later one
/// first, a note says so.
pub(crate) fn first_match(rules: Vec<Rule>) -> Vec<Route> {
    let budget = Budget { comparisons: Cell::new(COMPARISONS_MAX), regexes: paths::Regexes::default() };
    let mut left = HOST_COMPARISONS_MAX;
    let mut kept = without_hidden(rules, covers, &mut left);
    let is_settled = left > 0 && kept.len() <= ROUTES_MAX && {
        add_meetings(&mut kept, &budget);
        // If two rules have the same conditions, the earlier one wins. A meeting is needed although one of its own rules covers it.
        kept = without_hidden(kept, has_same_conditions, &mut left);
        left > 0 && settle(&mut kept, &budget)
    };
    if !is_settled {
        unsettled(&mut kept);
    }
    kept.into_iter().map(|rule| rule.route).collect()
}

/// Says once of rules that are too many what else is said of each: that the most specific route is tried first.
fn unsettled(rules: &mut [Rule]) {
    let count = rules.len();
    for (rule, priority) in rules.iter_mut().zip(FIRST_PRIORITY..) {
        rule.route.more.set("priority", crate::toml::Value::Number(priority));
    }
    let Some(first) = rules.first_mut() else { return };
    let why = format!(
        "{count} rules are too many to compare all: among the rules that match a request, the most specific is used, not the first"
    );
    first.route.notes.push(Note::new(&first.place, &first.text, why, "conditions of the [[route]]"));
}

/// The rules without those that earlier ones hide, on the hosts where they do. Takes the comparisons from `left`; once it is 0,
/// all further rules are kept.
fn without_hidden(rules: Vec<Rule>, hides: fn(&Route, &Route) -> bool, left: &mut usize) -> Vec<Rule> {
    let mut kept: Vec<Rule> = Vec::new();
    // The places in `kept` of the rules for each host.
    let mut of_host: HashMap<String, Vec<usize>> = HashMap::new();
    for mut rule in rules {
        let mut hosts = hosts_of(&rule.route);
        let compared: usize = hosts.iter().filter_map(|host| of_host.get(host)).map(Vec::len).sum();
        *left = left.saturating_sub(compared);
        if *left == 0 {
            kept.push(rule);
            continue;
        }
        let is_hidden = |place: &usize| hides(&kept[*place].route, &rule.route);
        hosts.retain(|host| !of_host.get(host).is_some_and(|places| places.iter().any(is_hidden)));
        // The other program does not reach it either.
        if hosts.is_empty() {
            continue;
        }
        for host in &hosts {
            of_host.entry(host.clone()).or_default().push(kept.len());
        }
        if !rule.route.hosts.is_empty() {
            rule.route.hosts = hosts;
        }
        kept.push(rule);
    }
    kept
}

/// Where Weir would try a later rule before an earlier one, the requests that match both get a route of their own: it has the
/// conditions of both and goes where the earlier one goes.
fn add_meetings(rules: &mut Vec<Rule>, budget: &Budget) {
    while let Some((at, meeting)) = next_meeting(rules, budget) {
        if rules.len() >= ROUTES_MAX {
            return;
        }
        let Rule { place, text, .. } = &rules[at];
        let rule = Rule { route: meeting, place: place.clone(), text: text.clone() };
        match rules.iter().position(|other| is_same_but_padding(&other.route, &rule.route)) {
            Some(shorter) if shorter <= at => rules[shorter] = rule,
            Some(shorter) if shorter > at => {
                rules.remove(shorter);
                rules.insert(at + 1, rule);
            }
            _ => rules.insert(at + 1, rule),
        }
    }
}

/// The first meeting of two rules that is missing, and the place of the earlier rule.
fn next_meeting(rules: &[Rule], budget: &Budget) -> Option<(usize, Route)> {
    for (at, earlier) in rules.iter().enumerate() {
        // Most pairs are seen at once not to meet.
        if !budget.take((rules.len() - at) / 8) {
            return None;
        }
        for (behind, later) in rules.iter().enumerate().skip(at + 1) {
            if !is_inverted(&earlier.route, &later.route, budget) {
                continue;
            }
            if let Some(meeting) = meeting(&earlier.route, &later.route)
                && !is_settled(&rules[..behind], &earlier.route, &later.route, budget)
            {
                return Some((at, meeting));
            }
        }
    }
    None
}

/// Whether Weir would try the later one first for requests of both, and that makes a difference.
fn is_inverted(earlier: &Route, later: &Route, budget: &Budget) -> bool {
    let differs = || earlier.target != later.target || earlier.more != later.more;
    rank(later) < rank(earlier) && differs() && overlap(earlier, later, &budget.regexes)
}

/// The requests of both rules, going where the earlier one goes; `None`: no route has such conditions.
fn meeting(earlier: &Route, later: &Route) -> Option<Route> {
    let mut route = earlier.clone();
    route.notes.clear();
    let hosts: Vec<String> = hosts_of(earlier).into_iter().filter(|host| has_host(later, host)).collect();
    if !earlier.hosts.is_empty() || !later.hosts.is_empty() {
        route.hosts = hosts;
    }
    // The replacement of the prefix would replace another prefix.
    let needs_prefix =
        matches!(&route.target, Target::Redirect(keys) if keys.iter().any(|(key, _)| key == "path_prefix"));
    if needs_prefix {
        return None;
    }
    let wide = Route { methods: Vec::new(), conditions: Vec::new(), ..earlier.clone() };
    let narrow = Route { methods: Vec::new(), conditions: Vec::new(), ..later.clone() };
    if !covers(&wide, &narrow) {
        // Regexes are tried before prefixes: the earlier rule becomes one that is longer.
        let PathMatch::Regex(regex) = &later.path else { return None };
        let mut own = as_regex(&earlier.path)?;
        paths::pad(&mut own, regex.len());
        route.path = PathMatch::Regex(own);
        return Some(route);
    }
    route.path = later.path.clone();
    if earlier.methods.is_empty() {
        route.methods.clone_from(&later.methods);
    } else if !later.methods.is_empty() {
        route.methods.retain(|method| later.methods.contains(method));
    }
    route.conditions.extend(later.conditions.iter().filter(|one| !earlier.conditions.contains(one)).cloned());
    Some(route)
}

/// The paths as a regex for the whole of a path.
fn as_regex(path: &PathMatch) -> Option<String> {
    let literal = |path: &str| paths::escaped(&paths::encoded(path));
    Some(match path {
        PathMatch::Prefix(path) => format!("{}.*", literal(path)),
        PathMatch::Segments(path) => format!("{}(?:/.*)?", literal(path.trim_end_matches('/'))),
        PathMatch::Regex(regex) => paths::unpadded(regex).to_owned(),
        PathMatch::Any | PathMatch::Exact(_) => return None,
    })
}

/// Whether requests of both routes go where the earlier one goes: there is the meeting, or that of a wider rule with the same end.
fn is_settled(rules: &[Rule], earlier: &Route, later: &Route, budget: &Budget) -> bool {
    let settles =
        |wide: &Route| budget.take(rules.len()) && meeting(wide, later).is_some_and(|met| is_met(rules, &met, later));
    let is_wider = |wide: &Route| {
        let has_all_hosts = hosts_of(earlier).iter().all(|host| has_host(wide, host));
        (&wide.target, &wide.more) == (&earlier.target, &earlier.more) && has_all_hosts && covers(wide, earlier)
    };
    settles(earlier)
        || budget.take(rules.len()) && rules.iter().any(|rule| is_wider(&rule.route) && settles(&rule.route))
}

/// Whether a rule among `rules` takes the requests of a meeting before `later` does.
fn is_met(rules: &[Rule], met: &Route, later: &Route) -> bool {
    let is_padded = |route: &Route| is_same_but_padding(route, met) && rank(route) < rank(later);
    rules.iter().any(|rule| is_same_match(&rule.route, met) || is_padded(&rule.route))
}

/// Whether two regex routes differ in their length alone.
fn is_same_but_padding(one: &Route, other: &Route) -> bool {
    let (PathMatch::Regex(path), PathMatch::Regex(other_path)) = (&one.path, &other.path) else { return false };
    paths::unpadded(path) == paths::unpadded(other_path)
        && (&one.target, &one.methods, &one.conditions, &one.hosts)
            == (&other.target, &other.methods, &other.conditions, &other.hosts)
}

fn has_same_conditions(one: &Route, other: &Route) -> bool {
    (&one.path, &one.methods, &one.conditions) == (&other.path, &other.methods, &other.conditions)
}

fn is_same_match(one: &Route, other: &Route) -> bool {
    has_same_conditions(one, other) && hosts_of(other).iter().all(|host| has_host(one, host))
}

/// Notes on what is left, and priorities where they decide. False: there are too many to say.
fn settle(rules: &mut [Rule], budget: &Budget) -> bool {
    let mut is_equal = vec![false; rules.len()];
    for later in 1..rules.len() {
        if !budget.take(later) {
            return false;
        }
        for earlier in 0..later {
            let (before, after) = (&rules[earlier].route, &rules[later].route);
            let differs = before.target != after.target || before.more != after.more;
            if differs && overlap(before, after, &budget.regexes) && rank(after) == rank(before) {
                (is_equal[earlier], is_equal[later]) = (true, true);
            }
            if !is_inverted(before, after, budget) || is_settled(&rules[..later], before, after, budget) {
                continue;
            }
            let why = format!(
                "requests that also match `{}` in line {}, an earlier rule, go here: the most specific route is tried first",
                rules[earlier].text, rules[earlier].place.line
            );
            let note = Note::new(&rules[later].place, &rules[later].text, why, "conditions of the [[route]]");
            if !rules[later].route.notes.contains(&note) {
                rules[later].route.notes.push(note);
            }
        }
    }
    // Last, for a priority is no difference between two routes.
    for ((rule, _), priority) in
        rules.iter_mut().zip(is_equal).zip(FIRST_PRIORITY..).filter(|((_, is_equal), _)| *is_equal)
    {
        rule.route.more.set("priority", crate::toml::Value::Number(priority));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::spread_hosts;

    fn rule(line: usize, host: &str, path: PathMatch, upstream: &str) -> Rule {
        let mut route = Route::new(format!("{line}"), Target::Upstream(upstream.into()));
        route.path = path;
        route.hosts = host.split_whitespace().map(str::to_owned).collect();
        Rule { route, place: SourceLine { file: "f".into(), line }, text: format!("rule {line}") }
    }

    fn prefix(path: &str) -> PathMatch {
        PathMatch::Prefix(path.into())
    }

    #[test]
    fn a_rule_without_a_host_holds_for_the_hosts_of_others() {
        let mut rules = vec![
            rule(1, "", prefix("/static"), "files"),
            rule(2, "api.example", PathMatch::Any, "api"),
            rule(3, "*.example", PathMatch::Any, "wide"),
            rule(4, "", PathMatch::Any, "rest"),
        ];
        spread_hosts(&mut rules).expect("few");
        let routes = first_match(rules);
        let hosts: Vec<&[String]> = routes.iter().map(|route| route.hosts.as_slice()).collect();
        assert_eq!(hosts[0], ["api.example", "*.example", "*"]);
        assert_eq!(hosts[1], ["api.example"]);
        // `api.example` is taken whole by the rule before.
        assert_eq!(hosts[2], ["*.example"]);
        assert_eq!(hosts[3], ["*"]);
        assert!(routes.iter().all(|route| route.notes.is_empty()));
    }

    #[test]
    fn an_earlier_rule_for_a_whole_host_hides_later_ones_there() {
        let mut rules = vec![rule(1, "api.example", PathMatch::Any, "api"), rule(2, "", prefix("/static"), "files")];
        spread_hosts(&mut rules).expect("few");
        assert_eq!(first_match(rules)[1].hosts, ["*"]);
        // HAProxy does not reach the second one either.
        let hidden = first_match(vec![rule(1, "", PathMatch::Any, "a"), rule(2, "", prefix("/x"), "b")]);
        assert_eq!((hidden.len(), hidden[0].notes.len()), (1, 0));
    }

    /// Each of the later rules is for all hosts, and hidden on each of them by the one rule of that host.
    #[test]
    fn rules_without_a_host_are_hidden_behind_the_rules_of_many_hosts() {
        let named = |line: usize| rule(line, &format!("h{line}.example"), PathMatch::Any, &format!("u{line}"));
        let wide = |line: usize| rule(line, "", prefix(&format!("/s{line}")), "files");
        let mut rules: Vec<Rule> = (1..=400).map(named).chain((401..=460).map(wide)).collect();
        spread_hosts(&mut rules).expect("few");
        let routes = first_match(rules);
        assert_eq!(routes.len(), 460);
        assert!(routes[400..].iter().all(|route| route.hosts == ["*"]), "{:?}", routes[459].hosts);
        assert!(routes.iter().all(|route| route.notes.is_empty()), "{:?}", routes[0].notes);
    }

    #[test]
    fn requests_of_two_rules_go_where_the_earlier_one_says() {
        let mut wide = rule(1, "", prefix("/a"), "a");
        wide.route.methods = vec!["GET".into()];
        let routes = first_match(vec![wide, rule(2, "", prefix("/a/b"), "b")]);
        let met: Vec<(&PathMatch, usize, &Target)> =
            routes.iter().map(|route| (&route.path, route.methods.len(), &route.target)).collect();
        let (a, b) = (Target::Upstream("a".into()), Target::Upstream("b".into()));
        assert_eq!(met, [(&prefix("/a"), 1, &a), (&prefix("/a/b"), 1, &a), (&prefix("/a/b"), 0, &b)]);
        assert!(routes.iter().all(|route| route.notes.is_empty()));
    }

    #[test]
    fn rules_beyond_a_bound_have_one_note_for_all() {
        let many = |count: usize, path: fn(usize) -> PathMatch| {
            let rules = (1..=count).map(|line| rule(line, "", path(line), &format!("u{line}")));
            first_match(rules.collect())
        };
        let routes = many(3_000, |line| PathMatch::Exact(format!("/{line}")));
        assert_eq!((routes.len(), routes[0].notes.len()), (3_000, 1));
        assert!(routes[0].notes[0].why.contains("3000 rules are too many"));
        assert!(routes[1..].iter().all(|route| route.notes.is_empty()));
        // So many that they are not compared at all from some point on.
        let routes = many(100_000, |line| PathMatch::Exact(format!("/{line}")));
        assert_eq!((routes.len(), routes[0].notes.len()), (100_000, 1));
        assert!(routes[0].notes[0].why.contains("100000 rules are too many"));
        // Each of them meets all others.
        let routes = many(300, |line| PathMatch::Regex(format!("/.*{}", "a".repeat(line))));
        assert!(routes[0].notes[0].why.contains("are too many"), "{:?}", routes[0].notes);
        assert!(many(400, |line| PathMatch::Exact(format!("/{line}"))).iter().all(|route| route.notes.is_empty()));
    }

    #[test]
    fn rules_are_compared_as_often_as_is_allowed() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COMPARED: AtomicUsize = AtomicUsize::new(0);
        fn hides(earlier: &Route, later: &Route) -> bool {
            COMPARED.fetch_add(1, Ordering::Relaxed);
            earlier.path == later.path
        }
        // The second ten are the first ten again, as are all behind them.
        let rules: Vec<Rule> = (0..1_000).map(|line| rule(line, "", prefix(&format!("/{}", line % 10)), "a")).collect();
        let mut left = usize::MAX;
        assert_eq!((without_hidden(rules.clone(), hides, &mut left).len(), left > 0), (10, true));
        COMPARED.store(0, Ordering::Relaxed);
        let mut left = 100;
        let kept = without_hidden(rules, hides, &mut left);
        assert!(left == 0 && COMPARED.load(Ordering::Relaxed) <= 100, "{COMPARED:?} comparisons, {left} left");
        assert!(kept.len() > 900, "{}", kept.len());
    }

    #[test]
    fn rules_without_counterpart_have_a_note_and_equal_ranks_a_priority() {
        let regex = |line, text: &str| rule(line, "", PathMatch::Regex(text.into()), "b");
        let routes = first_match(vec![rule(1, "", prefix("/a"), "a"), regex(2, "/.*c")]);
        assert_eq!(
            routes[1].path,
            PathMatch::Regex("/a.*(?:)".into()),
            "longer than the later regex, which is tried next"
        );
        assert!(routes.iter().all(|route| route.notes.is_empty()));
        let mut redirect = rule(1, "", prefix("/a"), "a");
        redirect.route.target = Target::Redirect(vec![("path_prefix".into(), crate::toml::Value::text("/b"))]);
        let routes = first_match(vec![redirect, regex(2, "/.*c")]);
        assert!(routes[1].notes[0].to_string().contains("`rule 1` in line 1"), "{:?}", routes[1].notes);
        let header = |name: &str| ("header", crate::toml::Value::text(name));
        let (mut one, mut two) = (rule(1, "", PathMatch::Any, "a"), rule(2, "", PathMatch::Any, "b"));
        one.route.conditions = vec![header("x")];
        two.route.conditions = vec![header("a")];
        let routes = first_match(vec![one, two]);
        assert_eq!(routes[0].more.get("priority"), Some(&crate::toml::Value::Number(100)));
        assert_eq!(routes[1].more.get("priority"), Some(&crate::toml::Value::Number(101)));
    }
}
