//! A strategy as an evaluation reads it.

use std::sync::Arc;

use weir_base::Rng;
use weir_flags_codec::definition::Strategy;
use weir_flags_codec::{ContextField, Timestamp};

use crate::compile::Compiler;
use crate::condition::Condition;
use crate::murmur::Murmur;
use crate::network::Network;
use crate::text_set::TextSet;
use crate::values::{Slot, Values};
use crate::variant::Variants;

/// A strategy: the flag is on if it is active and all conditions hold.
#[derive(Debug)]
pub(crate) struct Rule {
    activation: Activation,
    conditions: Box<[Condition]>,
    /// Those of its segments. A segment is compiled once for all rules.
    segments: Box<[Arc<[Condition]>]>,
    /// Variants of this strategy.
    pub(crate) variants: Variants,
}

#[derive(Debug)]
enum Activation {
    Always,
    Never,
    Users(TextSet),
    Networks(Box<[Network]>),
    /// So many of a hundred users.
    Rollout {
        sticks_to: SticksTo,
        group: Murmur,
        percent: u32,
    },
    /// So many of a hundred evaluations.
    Random {
        percent: u32,
    },
}

/// The value that decides whether a user is within a rollout.
#[derive(Clone, Copy, Debug)]
enum SticksTo {
    /// The user, else the session, else chance.
    UserOrSession,
    Value(Slot),
}

impl Rule {
    /// The rule of a strategy of the flag `name`. `variants` is the place of its variants among all of the flag.
    ///
    /// # Errors
    /// A constraint or a rollout has no meaning, or a segment is absent. The text names the mistake.
    pub(crate) fn compile(
        strategy: &Strategy,
        name: &str,
        variants: u32,
        compiler: &mut Compiler<'_>,
    ) -> Result<Self, &'static str> {
        let constraints = strategy.constraints.iter().flatten();
        let conditions = constraints.map(|it| Condition::compile(it, compiler)).collect::<Result<_, _>>()?;
        let segments = strategy.segments.iter().flatten().map(|id| compiler.segment(*id)).collect::<Result<_, _>>()?;
        let activation = activation(strategy, name, compiler)?;
        let group = strategy.parameter("groupId").unwrap_or(name);
        let stickiness = strategy.parameter("stickiness");
        let own = strategy.variants.as_deref().unwrap_or_default();
        let variants = Variants::compile(own, variants, group, stickiness, compiler);
        Ok(Self { activation, conditions, segments, variants })
    }

    /// Whether the flag is on because of this rule.
    pub(crate) fn holds(&self, values: &Values<'_>, now: Timestamp, rng: &mut Rng) -> bool {
        let segments = self.segments.iter().flat_map(|conditions| conditions.iter());
        self.activation.is_active(values, rng) && self.conditions.iter().chain(segments).all(|it| it.holds(values, now))
    }
}

fn activation(strategy: &Strategy, name: &str, compiler: &mut Compiler<'_>) -> Result<Activation, &'static str> {
    let parameter = |name| strategy.parameter(name);
    let percent = |name| parameter(name).and_then(|text| text.parse::<u32>().ok());
    let list = |name| parameter(name).map(|text| text.split(',').map(str::trim));
    let sticky = |sticks_to, group: &str, percent: Option<u32>| match percent {
        None => Ok(Activation::Never),
        Some(percent @ 0..=100) => Ok(Activation::Rollout { sticks_to, group: Murmur::of_group(group, 0), percent }),
        Some(_) => Err("a rollout has more than 100 %"),
    };
    match &*strategy.name {
        "default" => Ok(Activation::Always),
        "userWithId" => Ok(list("userIds").map_or(Activation::Never, |ids| Activation::Users(TextSet::new(ids)))),
        "remoteAddress" => Ok(list("IPs")
            .map_or(Activation::Never, |texts| Activation::Networks(texts.filter_map(Network::parse).collect()))),
        "applicationHostname" => {
            let is_named = |host: &str| list("hostNames").is_some_and(|mut it| it.any(|it| same_host(it, host)));
            Ok(if compiler.hostname.is_some_and(is_named) { Activation::Always } else { Activation::Never })
        }
        "gradualRolloutUserId" | "gradualRolloutSessionId" => {
            let is_of_user = strategy.name == "gradualRolloutUserId";
            let field = if is_of_user { ContextField::UserId } else { ContextField::SessionId };
            let Some(group) = parameter("groupId") else { return Ok(Activation::Never) };
            sticky(SticksTo::Value(Slot::of_field(field)), group, percent("percentage"))
        }
        "gradualRolloutRandom" => random(percent("percentage")),
        "flexibleRollout" => {
            let sticks_to = match parameter("stickiness") {
                Some("random") => return random(percent("rollout")),
                None | Some("default") => SticksTo::UserOrSession,
                Some(other) => SticksTo::Value(compiler.names.slot(other)),
            };
            sticky(sticks_to, parameter("groupId").unwrap_or(name), percent("rollout"))
        }
        // A strategy of the application's own: only its SDK can know it.
        _ => Ok(Activation::Never),
    }
}

fn random(percent: Option<u32>) -> Result<Activation, &'static str> {
    match percent {
        None => Ok(Activation::Never),
        Some(percent @ 0..=100) => Ok(Activation::Random { percent }),
        Some(_) => Err("a rollout has more than 100 %"),
    }
}

fn same_host(name: &str, host: &str) -> bool {
    name.to_lowercase() == host.to_lowercase()
}

impl Activation {
    fn is_active(&self, values: &Values<'_>, rng: &mut Rng) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Users(users) => values.field(ContextField::UserId).is_some_and(|user| users.has(user)),
            Self::Networks(networks) => {
                values.field(ContextField::RemoteAddress).is_some_and(|text| Network::any_has(networks, text))
            }
            Self::Rollout { sticks_to, group, percent } => match sticks_to.value(values) {
                Some(user) => group.normalized(user, 100) <= *percent,
                None => matches!(sticks_to, SticksTo::UserOrSession) && is_within(*percent, rng),
            },
            Self::Random { percent } => is_within(*percent, rng),
        }
    }
}

/// True so many times of a hundred.
fn is_within(percent: u32, rng: &mut Rng) -> bool {
    rng.below(100) < u64::from(percent)
}

impl SticksTo {
    fn value<'a>(self, values: &Values<'a>) -> Option<&'a str> {
        match self {
            Self::UserOrSession => user_or_session(values),
            Self::Value(slot) => values.get(slot),
        }
    }
}

/// The value of the stickiness `default`.
pub(crate) fn user_or_session<'a>(values: &Values<'a>) -> Option<&'a str> {
    values.field(ContextField::UserId).or_else(|| values.field(ContextField::SessionId))
}
