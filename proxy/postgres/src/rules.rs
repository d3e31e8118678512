//! Rules about statements at a listener: which user may run what at which database.
//!
//! A session without rules has no judge, and pays nothing. With rules, the verdict on a text is kept with the text: one that comes again
//! costs one hash.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    sync::Arc,
};

use weir_analysis::postgres::{Limits, analyse};
use weir_base::{error::Culprit, violation::Violation};
use weir_policy::postgres::{Action, Policy, PolicyError, RuleSettings, SQLSTATE, Settings, UserPolicy};
use weir_postgres_session::{Judge, Refusal};
use weir_telemetry::{CoreMetrics, Counter, catalog};

use crate::connection::Connection;

/// Texts whose verdict is kept, for each user and database. Default 1,024: applications have some hundreds. Beyond it all are forgotten.
const VERDICTS_MAX: usize = 1_024;
/// Longest text whose verdict is kept. Default 4 KiB. Worst case: 4 MiB for each user and database of a worker.
const VERDICT_BYTES_MAX: usize = 4 * 1024;
/// Judges of a worker: one for each user and database. Default 256. Beyond it all are forgotten; sessions keep theirs.
const JUDGES_MAX: usize = 256;

/// The consequence of a rule that fits a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The statement runs, whatever later rules say.
    Allow,
    /// The statement is refused.
    Deny,
    /// A line in the log, once a second at the most, and a count. The rules go on.
    Log,
    /// A count. The rules go on.
    Count,
}

impl RuleAction {
    const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Log => "log",
            Self::Count => "count",
        }
    }
}

/// A rule of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its conditions. The action in it counts for nothing.
    pub conditions: RuleSettings,
    /// Databases that it is for, by the names that clients give; empty: all.
    pub databases: Vec<String>,
    /// Its consequence.
    pub action: RuleAction,
}

/// The rules of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementRules {
    /// In order: of those that allow or deny, the first one that fits decides.
    pub rules: Vec<Rule>,
    /// Users whose statements must be read-only by their texts.
    pub read_only_users: Vec<String>,
    /// The verdict on a statement that no rule fits.
    pub denies_others: bool,
    /// Statements of one Query; `None`: no limit.
    pub statements_max: Option<usize>,
}

impl StatementRules {
    /// Checks all rules.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.policy(|_| true).map(drop)
    }

    /// No text is judged.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn policy(&self, is_wanted: impl Fn(&Rule) -> bool) -> Result<Policy, PolicyError> {
        let rule = |rule: &Rule| {
            let action = if rule.action == RuleAction::Allow { Action::Allow } else { Action::Deny };
            RuleSettings { action, ..rule.conditions.clone() }
        };
        Policy::new(&Settings {
            read_only_users: self.read_only_users.clone(),
            rules: self.rules.iter().filter(|rule| is_wanted(rule)).map(rule).collect(),
            default: if self.denies_others { Action::Deny } else { Action::Allow },
            statements_max: self.statements_max,
            passes_unknown: false,
        })
    }

    fn decides(rule: &Rule) -> bool {
        matches!(rule.action, RuleAction::Allow | RuleAction::Deny)
    }
}

/// A rule that only takes notice.
struct Notice {
    name: Box<str>,
    action: RuleAction,
    policy: UserPolicy,
}

/// A verdict on a text.
#[derive(Clone)]
struct Verdict {
    /// The text of the error, and the name of what denies.
    denied: Option<(Rc<str>, Rc<str>)>,
    /// See [`weir_analysis::postgres::Analysis::fingerprint`].
    fingerprint: u64,
    /// Places of the notices that the text fits.
    notices: Rc<[usize]>,
}

/// Judges the statements of one user at one database.
pub(crate) struct RuleJudge {
    policy: UserPolicy,
    notices: Vec<Notice>,
    verdicts: RefCell<HashMap<Box<[u8]>, Verdict>>,
    metrics: CoreMetrics,
    listener: Arc<str>,
    user: String,
    database: String,
    counted: RefCell<HashMap<(Rc<str>, &'static str), Counter>>,
}

impl RuleJudge {
    fn verdict(&self, text: &[u8]) -> Verdict {
        if let Some(known) = self.verdicts.borrow().get(text) {
            return known.clone();
        }
        let analysis = analyse(text, &Limits::default());
        let denied = self.policy.check(text, &analysis).err();
        let denied = denied.map(|denial| (denial.to_string().into(), denial.reason.word().into()));
        let fits = |notice: &Notice| notice.policy.concerns(text, &analysis);
        let notices = self.notices.iter().enumerate().filter(|(_, notice)| fits(notice)).map(|(place, _)| place);
        let verdict = Verdict { denied, fingerprint: analysis.fingerprint, notices: notices.collect() };
        if text.len() <= VERDICT_BYTES_MAX {
            let mut verdicts = self.verdicts.borrow_mut();
            if verdicts.len() >= VERDICTS_MAX {
                verdicts.clear();
            }
            verdicts.insert(text.into(), verdict.clone());
        }
        verdict
    }

    /// Some text may not run.
    fn is_strict(&self) -> bool {
        !self.policy.is_unrestricted()
    }

    fn count(&self, name: &str, action: &'static str) {
        let mut counted = self.counted.borrow_mut();
        let made = || self.metrics.counter(&catalog::POSTGRES_RULES, &[&self.listener, name, action]);
        counted.entry((name.into(), action)).or_insert_with(made).inc();
    }

    fn deny(&self, name: &str, text: String) -> Refusal {
        self.count(name, RuleAction::Deny.word());
        Refusal::error(SQLSTATE, text)
    }
}

/// The judge of one client.
struct ClientJudge {
    rules: Rc<RuleJudge>,
    connection: Weak<Connection>,
}

impl ClientJudge {
    fn log(&self, rule: &str, fingerprint: u64) {
        let Some(connection) = self.connection.upgrade() else { return };
        let RuleJudge { user, database, .. } = &*self.rules;
        let text = format!("rule \"{rule}\" fits a statement of {user} at {database}, fingerprint {fingerprint:016x}");
        let violation = Violation::rule("statement_rule", Culprit::Client, text);
        connection.service.sessions.report(&connection.handle, &violation);
    }
}

impl Judge for ClientJudge {
    fn text(&self, text: &[u8]) -> Option<Refusal> {
        let verdict = self.rules.verdict(text);
        for place in &*verdict.notices {
            let notice = &self.rules.notices[*place];
            self.rules.count(&notice.name, notice.action.word());
            if notice.action == RuleAction::Log {
                self.log(&notice.name, verdict.fingerprint);
            }
        }
        let (words, name) = verdict.denied?;
        Some(self.rules.deny(&name, words.to_string()))
    }

    fn unread(&self) -> Option<Refusal> {
        let text = "permission denied: the query is too long to be checked, or its client_encoding forbids that";
        self.rules.is_strict().then(|| self.rules.deny("not_analysed", text.to_owned()))
    }

    fn function_call(&self) -> Option<Refusal> {
        let text = "permission denied: a function that is called by its number cannot be checked; use a query";
        self.rules.is_strict().then(|| self.rules.deny("function_call", text.to_owned()))
    }
}

/// The judges of one listener on one worker.
#[derive(Default)]
pub(crate) struct Judges(RefCell<HashMap<Names, Option<Rc<RuleJudge>>>>);

/// The names of a user and a database.
type Names = (Box<[u8]>, Box<[u8]>);

impl Judges {
    /// The rules have changed: clients get other judges.
    pub(crate) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    /// The judge of a client with that user and database. `None`: it may run everything, and nothing is noticed.
    pub(crate) fn of(
        &self,
        rules: &StatementRules,
        (user, database): (&[u8], &[u8]),
        connection: &Rc<Connection>,
    ) -> Option<Rc<dyn Judge>> {
        if rules.is_empty() {
            return None;
        }
        let sessions = &connection.service.sessions;
        let (metrics, listener) = (&sessions.core().metrics, sessions.name());
        let key = (user.into(), database.into());
        let mut judges = self.0.borrow_mut();
        if judges.len() >= JUDGES_MAX && !judges.contains_key(&key) {
            judges.clear();
        }
        let make = || judge(rules, (user, database), (metrics, listener)).map(Rc::new);
        let rules = judges.entry(key).or_insert_with(make).clone()?;
        Some(Rc::new(ClientJudge { rules, connection: Rc::downgrade(connection) }))
    }
}

fn judge(
    rules: &StatementRules,
    (user, database): (&[u8], &[u8]),
    (metrics, listener): (&CoreMetrics, &Arc<str>),
) -> Option<RuleJudge> {
    let is_here =
        |rule: &Rule| rule.databases.is_empty() || rule.databases.iter().any(|name| name.as_bytes() == database);
    // The configuration has checked them; rules that cannot be made let no statement pass.
    let deny_all = StatementRules { denies_others: true, ..StatementRules::default() };
    let policy = rules.policy(|rule| is_here(rule) && StatementRules::decides(rule));
    let policy = policy.or_else(|_| deny_all.policy(|_| false)).ok()?.user(user);
    let notice = |rule: &Rule| {
        let conditions = RuleSettings { action: Action::Deny, ..rule.conditions.clone() };
        let alone = StatementRules { rules: vec![Rule { conditions, ..rule.clone() }], ..StatementRules::default() };
        let policy = alone.policy(|_| true).ok()?.user(user);
        let is_for_user = !policy.is_unrestricted();
        is_for_user.then(|| Notice { name: rule.conditions.name.as_str().into(), action: rule.action, policy })
    };
    let noticed = rules.rules.iter().filter(|rule| is_here(rule) && !StatementRules::decides(rule));
    let notices: Vec<_> = noticed.filter_map(notice).collect();
    if policy.is_unrestricted() && notices.is_empty() {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(RuleJudge {
        policy,
        notices,
        verdicts: RefCell::default(),
        metrics: metrics.clone(),
        listener: listener.clone(),
        user: text(user),
        database: text(database),
        counted: RefCell::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_telemetry::Registry;

    fn rule(name: &str, action: RuleAction, change: impl FnOnce(&mut Rule)) -> Rule {
        let conditions = RuleSettings {
            name: name.to_owned(),
            action: Action::Deny,
            users: Vec::new(),
            classes: Vec::new(),
            verbs: Vec::new(),
            tables: Vec::new(),
            functions: Vec::new(),
        };
        let mut rule = Rule { conditions, databases: Vec::new(), action };
        change(&mut rule);
        rule
    }

    fn judged(rules: &StatementRules, user: &str, database: &str) -> Option<RuleJudge> {
        let metrics = Registry::default().core(0);
        judge(rules, (user.as_bytes(), database.as_bytes()), (&metrics, &"pg".into()))
    }

    fn denies(judge: &RuleJudge, text: &str) -> Option<String> {
        judge.verdict(text.as_bytes()).denied.map(|(_, name)| name.to_string())
    }

    #[test]
    fn the_first_rule_that_allows_or_denies_decides_and_others_take_notice() {
        let rules = StatementRules {
            rules: vec![
                rule("seen", RuleAction::Count, |rule| rule.conditions.tables = vec!["orders".to_owned()]),
                rule("mine", RuleAction::Allow, |rule| rule.conditions.users = vec!["owner".to_owned()]),
                rule("no-ddl", RuleAction::Deny, |rule| rule.conditions.classes = vec!["ddl".to_owned()]),
            ],
            ..StatementRules::default()
        };
        rules.check().expect("good rules");
        let app = judged(&rules, "app", "shop").expect("rules");
        assert_eq!(denies(&app, "drop table orders"), Some("no-ddl".to_owned()));
        assert_eq!(denies(&app, "select * from orders"), None);
        let notices = |text: &str| app.verdict(text.as_bytes()).notices.len();
        assert_eq!((notices("select * from orders"), notices("select 1")), (1, 0));
        assert_eq!((notices("select 'a\\'"), notices("do ''")), (0, 0), "only what a text shows is counted");
        assert_eq!(app.verdicts.borrow().len(), 5, "a text is judged once");
        assert_eq!(denies(&judged(&rules, "owner", "shop").expect("rules"), "drop table orders"), None);
    }

    #[test]
    fn rules_are_for_their_databases_and_a_client_without_any_has_no_judge() {
        let only_shop = rule("no-ddl", RuleAction::Deny, |rule| rule.databases = vec!["shop".to_owned()]);
        let rules = StatementRules { rules: vec![only_shop], ..StatementRules::default() };
        assert!(judged(&rules, "app", "shop").is_some() && judged(&rules, "app", "other").is_none());
        let readers = StatementRules { read_only_users: vec!["reader".to_owned()], ..StatementRules::default() };
        let reader = judged(&readers, "reader", "shop").expect("rules");
        assert_eq!(denies(&reader, "insert into orders values (1)"), Some("read_only".to_owned()));
        assert!(judged(&readers, "writer", "shop").is_none());
    }
}
