//! The targets of a request, in the order in which they are tried.

use std::sync::Arc;

use weir_analysis::ai::{Endpoint, Facts};
use weir_base::time::turn;
use weir_spend::{Tokens, estimate};

use crate::{
    account::Identity,
    balance::{Attempt, Conditions},
    error::ApiError,
    settings::{Model, Provider, ProviderDialect, Target},
    translate,
    worker::Worker,
};

/// The targets of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The label of its model in metrics: a name or pattern of the configuration.
    pub(crate) label: usize,
    /// At least one.
    pub(crate) targets: Vec<Target>,
    /// So many bytes at the beginning of the prompt decide on the first target: [`Self::choose_by_prompt`].
    pub(crate) prefix_bytes: Option<usize>,
}

/// The target of a listener without models, and of requests that name none.
pub(crate) static DEFAULT: Target = Target { upstream: 0, model: None, weight: 1 };

impl Plan {
    /// The plan of a request, and whether it goes on from a response of which it is not known where it was made: then its targets are
    /// searched for it. `is_free`: no provider bills it, and none gets it by a translation.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn of(
        worker: &Worker,
        facts: &Facts,
        identity: &Identity,
        is_free: bool,
    ) -> Result<(Self, bool), ApiError> {
        let Worker { settings, providers, .. } = worker;
        let stickiness = Stickiness::of(facts, identity.key.as_deref());
        let random = stickiness.share().unwrap_or_else(|| worker.random());
        let is_cooling = |upstream| !stickiness.is_bound() && worker.is_cooling(upstream);
        let mut plan = Self::new(&settings.models, providers, facts.endpoint, &identity.model, random, is_cooling)?;
        if is_free {
            plan = plan.untranslated(providers, facts.endpoint)?;
        }
        let mut is_searching = false;
        match stickiness {
            Stickiness::None => {
                plan.prefix_bytes = plan.sticky_bytes(worker, facts).filter(|_| !is_free);
                if plan.prefix_bytes.is_none() {
                    plan.balance(worker, facts, &identity.model);
                }
            }
            Stickiness::Preferred(_) => {}
            Stickiness::Bound(_) => {
                let id = facts.options.previous_response.as_ref().map(|id| &*id.text);
                is_searching = !worker.bind(&mut plan, id);
            }
        }
        Ok((plan, is_searching))
    }

    /// The plan for a model, by weight. `random`: a uniform number. Upstreams of which `is_cooling` holds come last.
    ///
    /// # Errors
    /// No such model, or no provider of it has the endpoint or one to which its requests are translated.
    pub(crate) fn new(
        models: &[Model],
        providers: &[Arc<Provider>],
        endpoint: Endpoint,
        name: &str,
        random: u64,
        is_cooling: impl Fn(usize) -> bool,
    ) -> Result<Self, ApiError> {
        let (label, all) = match models {
            [] => (0, std::slice::from_ref(&DEFAULT)),
            models => {
                let label = models.iter().position(|model| model.name.matches(name)).ok_or(ApiError::NO_MODEL)?;
                (label, &*models[label].targets)
            }
        };
        let has_endpoint =
            |target: &&Target| providers.get(target.upstream).is_some_and(|one| serves(one.dialect, endpoint));
        let mut targets: Vec<Target> = all.iter().filter(has_endpoint).cloned().collect();
        let first = chosen(&targets, random).ok_or(ApiError::OTHER_DIALECT)?;
        targets[..=first].rotate_right(1);
        // Stable: among those that may be used, the order stays.
        targets.sort_by_key(|target| is_cooling(target.upstream));
        Ok(Self { label, targets, prefix_bytes: None })
    }
}

/// The number of a text, as uniform as one by chance: the same in each process and version.
pub(crate) fn number(text: &str) -> u64 {
    number_of(text.bytes())
}

/// The number of bytes: FNV-1a, whose high bits a step of SplitMix64 makes uniform.
fn number_of(bytes: impl Iterator<Item = u8>) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, fnv);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The number of the first bytes of a prompt: tools, instructions, messages, in the order in which caches of providers have them. `None`: it
/// has fewer.
fn prefix_number(facts: &Facts, body: &[u8], bytes: usize) -> Option<u64> {
    let parts = [facts.tools.span, facts.tools.more_span, facts.instructions, facts.messages].map(|span| span.of(body));
    let length: usize = parts.iter().map(|part| part.len()).sum();
    (length >= bytes).then(|| number_of(parts.into_iter().flatten().copied().take(bytes)))
}

/// A provider keeps the response: it does so unless the client forbids it.
pub(crate) fn is_stored(facts: &Facts) -> bool {
    facts.endpoint == Endpoint::Responses && facts.options.store.is_none_or(|flag| flag.value)
}

/// Whether requests stay at one target. The share in it decides on the first target by weight, in place of chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stickiness {
    /// The balance of the model decides.
    None,
    /// The same share begins at the same target; others follow after a failure.
    Preferred(u64),
    /// It goes on from a response or a conversation: only the target that made that can serve it.
    Bound(u64),
}

impl Stickiness {
    /// That of a request. `key`: the name of the client's key.
    ///
    /// A request that goes on from a response or a conversation begins at the same target for each key, unless it is known where that was
    /// made ([`StoredResponses`](crate::stored::StoredResponses)). Without keys, all responses that are kept are at the first target,
    /// where clients also read them.
    pub(crate) fn of(facts: &Facts, key: Option<&str>) -> Self {
        let options = &facts.options;
        if options.previous_response.is_some() || options.conversation.is_some() {
            return Self::Bound(key.map_or(0, number));
        }
        if key.is_none() && is_stored(facts) {
            return Self::Preferred(0);
        }
        // The same cache key leads to the same target, whose cache is warm.
        options.prompt_cache_key.as_ref().map_or(Self::None, |key| Self::Preferred(number(&key.text)))
    }

    fn share(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Preferred(share) | Self::Bound(share) => Some(share),
        }
    }

    fn is_bound(self) -> bool {
        matches!(self, Self::Bound(_))
    }
}

/// The position of the first target, by weight.
fn chosen(targets: &[Target], random: u64) -> Option<usize> {
    let sum: u64 = targets.iter().map(|target| u64::from(target.weight)).sum();
    // The high bits decide; uneven by less than the sum of weights in 2^64.
    let mut point = ((u128::from(random) * u128::from(sum)) >> 64) as u64;
    let by_weight = targets.iter().position(|target| {
        let weight = u64::from(target.weight);
        let is_here = point < weight;
        point = point.saturating_sub(weight);
        is_here
    });
    by_weight.or((!targets.is_empty()).then_some(0))
}

impl Plan {
    /// Leaves out the targets that would need a translation.
    ///
    /// # Errors
    /// No target speaks the dialect of the endpoint.
    pub(crate) fn untranslated(mut self, providers: &[Arc<Provider>], endpoint: Endpoint) -> Result<Self, ApiError> {
        let is_anthropic = endpoint == Endpoint::Messages;
        self.targets.retain(|target| {
            let provider = providers.get(target.upstream);
            provider.is_some_and(|one| (one.dialect == ProviderDialect::Anthropic) == is_anthropic)
        });
        if self.targets.is_empty() { Err(ApiError::OTHER_DIALECT) } else { Ok(self) }
    }
}

impl Plan {
    /// The bytes of the prompt by which requests of this model stay at one target.
    fn sticky_bytes(&self, worker: &Worker, facts: &Facts) -> Option<usize> {
        let has_choice = self.targets.len() > 1 && facts.endpoint != Endpoint::Embeddings;
        worker.settings.models.get(self.label)?.sticky_prefix_bytes.filter(|_| has_choice)
    }

    /// Chooses the first target by the beginning of the prompt in `body`, if the model wants so, and leaves a shorter one to the balance. Once,
    /// before the first attempt. `name`: that of the client for the model.
    pub(crate) fn choose_by_prompt(&mut self, worker: &Worker, facts: &Facts, name: &str, body: &[u8]) {
        let Some(bytes) = self.prefix_bytes.take() else { return };
        let Some(number) = prefix_number(facts, body, bytes) else { return self.balance(worker, facts, name) };
        let Worker { settings, providers, .. } = worker;
        let is_cooling = |upstream| worker.is_cooling(upstream);
        // The same models and providers have given this plan its targets.
        if let Ok(plan) = Self::new(&settings.models, providers, facts.endpoint, name, number, is_cooling) {
            *self = plan;
        }
    }

    /// Puts the targets into the order of the model's balance. `name`: that of the client for the model.
    fn balance(&mut self, worker: &Worker, facts: &Facts, name: &str) {
        let settings = &worker.settings;
        let Some(model) = settings.models.get(self.label) else { return };
        let cost = |target: &Target| {
            let tier = facts.options.service_tier.as_ref().map(|tier| &*tier.text);
            let output = facts.options.output_tokens_max().unwrap_or(settings.reserved_output_tokens);
            let cost = settings.prices.cost(served(target, name), tier, &most(facts, output));
            cost.is_priced.then_some(cost.money)
        };
        let conditions = Conditions {
            now: turn::now(),
            is_stream: facts.options.is_stream(),
            is_cooling: &|upstream| worker.is_cooling(upstream),
            cost: &cost,
        };
        worker.balancer.order(model, self.label, &mut self.targets, &conditions);
    }

    /// An attempt begins at a target. `None`: the model needs no measure.
    pub(crate) fn attempt(&self, worker: &Worker, target: &Target, is_stream: bool) -> Option<Attempt> {
        let model = worker.settings.models.get(self.label)?;
        worker.balancer.begin(model, self.label, target, is_stream, turn::now())
    }
}

/// The name of a model at its provider.
pub(crate) fn served<'a>(target: &'a Target, alias: &'a str) -> &'a str {
    target.model.as_deref().unwrap_or(alias)
}

/// The most tokens that a request may use.
pub(crate) fn most(facts: &Facts, output_tokens: u64) -> Tokens {
    let output_tokens = if facts.endpoint == Endpoint::Embeddings { 0 } else { output_tokens };
    // Tokens by their numbers have two bytes at the least, and the estimate takes three.
    let prompt_bytes = facts.prompt_bytes().max(facts.items.tokens.saturating_mul(3));
    estimate(prompt_bytes, output_tokens, facts.choices())
}

/// Whether a dialect has an endpoint, or one to which its requests are translated.
const fn serves(dialect: ProviderDialect, endpoint: Endpoint) -> bool {
    matches!(dialect, ProviderDialect::Anthropic) == matches!(endpoint, Endpoint::Messages)
        || translate::direction(endpoint, dialect).is_some()
}

#[cfg(test)]
mod tests {
    use weir_analysis::ai::{Wanted, read};
    use weir_spend::Glob;

    use super::*;
    use crate::settings::Balance;

    fn providers() -> Vec<Arc<Provider>> {
        let of = |dialect| Arc::new(Provider { api_key: None, ..Provider::new(dialect, "") });
        [ProviderDialect::OpenAi, ProviderDialect::Azure, ProviderDialect::Anthropic].map(of).to_vec()
    }

    fn target(upstream: usize, weight: u32) -> Target {
        Target { upstream, model: None, weight }
    }

    fn model(name: &str, targets: &[Target]) -> Model {
        let name = Glob::new(name).expect("a pattern");
        Model { name, balance: Balance::Weight, sticky_prefix_bytes: None, targets: targets.to_vec() }
    }

    fn order(models: &[Model], endpoint: Endpoint, name: &str, random: u64) -> Result<Vec<usize>, ApiError> {
        let plan = Plan::new(models, &providers(), endpoint, name, random, |_| false)?;
        Ok(plan.targets.iter().map(|target| target.upstream).collect())
    }

    #[test]
    fn the_first_is_chosen_by_weight_and_the_others_keep_their_order() {
        let models = [model("fast", &[target(0, 1), target(1, 3), target(0, 0)])];
        let mut counts = [0; 2];
        for share in 0..8_u64 {
            let order = order(&models, Endpoint::Chat, "fast", share << 61).expect("a plan");
            assert_eq!(order.len(), 3);
            counts[order[0]] += 1;
            assert_eq!(order[1..], if order[0] == 0 { [1, 0] } else { [0, 0] });
        }
        assert_eq!(counts, [2, 6]);
        let zeros = [model("*", &[target(1, 0), target(0, 0)])];
        assert_eq!(order(&zeros, Endpoint::Chat, "x", u64::MAX), Ok(vec![1, 0]));
    }

    #[test]
    fn providers_that_cannot_serve_the_endpoint_are_left_out() {
        let models = [model("both", &[target(2, 9), target(1, 0)]), model("claude-*", &[target(2, 1)])];
        for endpoint in [Endpoint::Chat, Endpoint::Messages] {
            assert_eq!(order(&models, endpoint, "both", 0), Ok(vec![2, 1]), "one of both is translated");
            assert_eq!(order(&models, endpoint, "claude-x", 0), Ok(vec![2]));
        }
        for endpoint in [Endpoint::Responses, Endpoint::Embeddings, Endpoint::Completions] {
            assert_eq!(order(&models, endpoint, "both", 0), Ok(vec![1]));
            assert_eq!(order(&models, endpoint, "claude-x", 0), Err(ApiError::OTHER_DIALECT));
        }
        assert_eq!(order(&models, Endpoint::Chat, "other", 0), Err(ApiError::NO_MODEL));
    }

    #[test]
    fn texts_are_spread_over_targets_by_weight_and_each_stays() {
        let models = [model("fast", &[target(0, 1), target(1, 1)])];
        let first = |text: &str| order(&models, Endpoint::Chat, "fast", number(text)).expect("a plan")[0];
        let ones = (0..200).filter(|count| first(&format!("key {count}")) == 1).count();
        assert!((60..140).contains(&ones), "{ones}");
        assert_eq!(first("the same"), first("the same"));
    }

    #[test]
    fn the_number_of_a_text_is_the_same_in_each_version() {
        assert_eq!((number(""), number("team")), (0xf52a_15e9_a9b5_e89b, 0xf163_f1f0_a51b_457a));
    }

    #[test]
    fn continued_responses_begin_at_the_target_of_their_key_and_kept_ones_without_keys_at_the_first() {
        let of = |endpoint, body: &str, key| {
            Stickiness::of(&read(endpoint, body.as_bytes(), Wanted::default()).expect("valid"), key)
        };
        let responses = |body, key| of(Endpoint::Responses, body, key);
        for body in [r#"{"previous_response_id":"r"}"#, r#"{"conversation":{"id":"c"},"store":false}"#] {
            assert_eq!(responses(body, Some("team")), Stickiness::Bound(number("team")), "{body}");
            assert_eq!(responses(body, None), Stickiness::Bound(0), "{body}");
        }
        let cached = Stickiness::Preferred(number("k"));
        for (body, wanted) in [("{}", Stickiness::None), (r#"{"store":true,"prompt_cache_key":"k"}"#, cached)] {
            assert_eq!(responses(body, Some("team")), wanted, "the balance decides: {body}");
            assert_eq!(responses(body, None), Stickiness::Preferred(0), "{body}");
        }
        let forgotten = r#"{"store":false}"#;
        assert_eq!([responses(forgotten, Some("team")), responses(forgotten, None)], [Stickiness::None; 2]);
        assert_eq!(of(Endpoint::Chat, "{}", Some("team")), Stickiness::None);
        assert_eq!(of(Endpoint::Chat, r#"{"prompt_cache_key":"k"}"#, None), cached);
    }

    #[test]
    fn prompts_with_the_same_beginning_have_the_same_number() {
        let number = |endpoint, body: &str, bytes| {
            let facts = read(endpoint, body.as_bytes(), Wanted::default()).expect("valid");
            prefix_number(&facts, body.as_bytes(), bytes)
        };
        let chat = |system: &str, text: &str, more: &str| {
            let messages =
                format!(r#"[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{text}"}}]"#);
            number(Endpoint::Chat, &format!(r#"{{"model":"m"{more},"messages":{messages}}}"#), 64)
        };
        let system = "You answer questions about one product. ".repeat(2);
        let first = chat(&system, "a", "");
        assert!(first.is_some());
        assert_eq!(
            chat(&system, "another", r#","temperature":1"#),
            first,
            "what follows the first bytes is of no account"
        );
        assert_ne!(chat(&system.replacen("You", "We", 1), "a", ""), first);
        let tools = r#","tools":[{"type":"function","function":{"name":"f"}}]"#;
        assert_ne!(chat(&system, "a", tools), first, "tools come first");
        assert_eq!(number(Endpoint::Chat, r#"{"model":"m","messages":[]}"#, 64), None, "it is shorter");
        let of_claude = |system: &str, text: &str| {
            let messages = format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#);
            number(Endpoint::Messages, &format!(r#"{{"model":"m",{messages},"system":"{system}"}}"#), 32)
        };
        assert_eq!(of_claude(&system, "a"), of_claude(&system, "b"), "wherever the instructions stand");
    }

    #[test]
    fn a_provider_that_wants_a_pause_comes_last() {
        let models = [model("fast", &[target(0, 1), target(1, 0)])];
        let plan = |cooling: usize| {
            let is_cooling = |upstream| upstream == cooling;
            let plan = Plan::new(&models, &providers(), Endpoint::Chat, "fast", 0, is_cooling).expect("a plan");
            plan.targets.iter().map(|target| target.upstream).collect::<Vec<_>>()
        };
        assert_eq!((plan(0), plan(1), plan(2)), (vec![1, 0], vec![0, 1], vec![0, 1]));
    }

    #[test]
    fn without_models_every_name_goes_to_the_first_upstream() {
        assert_eq!(order(&[], Endpoint::Chat, "anything", 7), Ok(vec![0]));
        assert_eq!(order(&[], Endpoint::Messages, "anything", 7), Ok(vec![0]), "by a translation");
    }
}
