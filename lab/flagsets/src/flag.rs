//! A flag of a set: its JSON, and whether it is on.

use crate::visitor::Visitor;

/// A flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Unique in its set; letters, digits, `-` and `.`.
    pub name: String,
    /// Its project.
    pub project: &'static str,
    /// Switched on in its environment.
    pub is_enabled: bool,
    /// Clients report each evaluation.
    pub has_impressions: bool,
    /// Words of any length: they give a set its size. `None`: the flag has no such member.
    pub description: Option<String>,
    /// The condition of its one strategy; `None`: it has no strategy.
    pub rule: Option<Rule>,
    /// None, or two.
    pub variants: Vec<Variant>,
}

/// The condition of a strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `default`: it always holds.
    Always,
    /// `flexibleRollout` to so many of a hundred users, 1 to 100. Rollouts to all need no user.
    Rollout(u32),
    /// `userWithId` for these.
    Users(Vec<String>),
    /// `default` for these plans.
    Plans(Vec<&'static str>),
    /// `default` for the segment of this number.
    Segment(usize),
}

/// One of the forms of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Its share, of a thousand.
    pub weight: u32,
    /// Its payload, of type `string`; letters and digits.
    pub payload: String,
}

/// Conditions that several flags share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 1.
    pub id: usize,
    /// Plans that are in it.
    pub plans: Vec<&'static str>,
}

impl Flag {
    /// Whether it is on for a visitor; `segments` are those of its set.
    #[must_use]
    pub fn is_on(&self, visitor: &Visitor<'_>, segments: &[Segment]) -> bool {
        let has_plan = |plans: &[&str]| visitor.plan.is_some_and(|plan| plans.contains(&plan));
        self.is_enabled
            && match &self.rule {
                None | Some(Rule::Always) => true,
                Some(Rule::Rollout(percent)) => visitor.is_within(*percent, &self.name),
                Some(Rule::Users(users)) => visitor.user.is_some_and(|user| users.iter().any(|one| one == user)),
                Some(Rule::Plans(plans)) => has_plan(plans),
                Some(Rule::Segment(id)) => segments.iter().any(|one| one.id == *id && has_plan(&one.plans)),
            }
    }

    /// Its variant for a visitor for whom it is on; `None`: it has no variants.
    #[must_use]
    pub fn variant(&self, visitor: &Visitor<'_>) -> Option<&Variant> {
        let at = visitor.variant(self.variants.iter().map(|variant| variant.weight), &self.name)?;
        self.variants.get(at)
    }

    /// Appends the flag as a member of `features`.
    pub fn write(&self, out: &mut String) {
        let Self { name, project, is_enabled, has_impressions, description, .. } = self;
        push(out, &["{\"name\":\"", name, "\",\"type\":\"release\","]);
        if let Some(text) = description {
            push(out, &["\"description\":\"", text, "\","]);
        }
        push(
            out,
            &[
                "\"enabled\":",
                word(*is_enabled),
                ",\"stale\":false,\"impressionData\":",
                word(*has_impressions),
                ",\"project\":\"",
                project,
                "\",\"strategies\":[",
            ],
        );
        if let Some(rule) = &self.rule {
            rule.write(name, out);
        }
        out.push_str("],\"variants\":[");
        list(out, &self.variants, |variant, out| variant.write(out));
        out.push_str("]}");
    }
}

impl Flag {
    /// Appends the flag as a member of `toggles`, for a visitor for whom it is on.
    pub(crate) fn write_toggle(&self, visitor: &Visitor<'_>, out: &mut String) {
        push(out, &["{\"name\":\"", &self.name, "\",\"enabled\":true,\"variant\":{\"name\":\""]);
        match self.variant(visitor) {
            Some(Variant { name, payload, .. }) => {
                push(out, &[name, "\",\"payload\":{\"type\":\"string\",\"value\":\"", payload]);
                out.push_str("\"},\"enabled\":true}");
            }
            None => out.push_str("disabled\",\"enabled\":false}"),
        }
        let impressions = word(self.has_impressions);
        push(out, &[",\"impressionData\":", impressions, ",\"impression_data\":", impressions, "}"]);
    }
}

impl Rule {
    fn write(&self, flag: &str, out: &mut String) {
        let kind = match self {
            Self::Rollout(_) => "flexibleRollout",
            Self::Users(_) => "userWithId",
            _ => "default",
        };
        push(out, &["{\"name\":\"", kind, "\",\"constraints\":["]);
        if let Self::Plans(plans) = self {
            write_constraint(plans, out);
        }
        out.push_str("],\"parameters\":{");
        match self {
            Self::Rollout(percent) => {
                // A rollout to all without a user is decided by the stickiness `default` alone.
                let stickiness = if *percent == 100 { "default" } else { "userId" };
                let percent = percent.to_string();
                push(out, &["\"groupId\":\"", flag, "\",\"rollout\":\"", &percent, "\",\"stickiness\":\"", stickiness]);
                out.push('"');
            }
            Self::Users(users) => push(out, &["\"userIds\":\"", &users.join(","), "\""]),
            _ => {}
        }
        out.push('}');
        if let Self::Segment(id) = self {
            push(out, &[",\"segments\":[", &id.to_string(), "]"]);
        }
        // As unleash-server writes it.
        out.push_str(",\"variants\":[]}");
    }
}

impl Variant {
    fn write(&self, out: &mut String) {
        let weight = self.weight.to_string();
        push(
            out,
            &["{\"name\":\"", self.name, "\",\"weight\":", &weight, ",\"weightType\":\"variable\",\"stickiness\":"],
        );
        push(out, &["\"userId\",\"payload\":{\"type\":\"string\",\"value\":\"", &self.payload, "\"}}"]);
    }
}

impl Segment {
    /// Appends the segment as a member of `segments`.
    pub fn write(&self, out: &mut String) {
        push(out, &["{\"id\":", &self.id.to_string(), ",\"constraints\":["]);
        write_constraint(&self.plans, out);
        out.push_str("]}");
    }
}

fn write_constraint(plans: &[&str], out: &mut String) {
    out.push_str("{\"contextName\":\"plan\",\"operator\":\"IN\",\"values\":[");
    list(out, plans, |plan, out| push(out, &["\"", plan, "\""]));
    out.push_str("],\"caseInsensitive\":false,\"inverted\":false}");
}

/// Appends items with a comma between each two.
pub(crate) fn list<T>(out: &mut String, items: &[T], mut write: impl FnMut(&T, &mut String)) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(item, out);
    }
}

fn push(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
}

const fn word(is_true: bool) -> &'static str {
    if is_true { "true" } else { "false" }
}
