use proptest::prelude::*;

use super::*;
use crate::amount::TOKENS_MAX;

fn row(models: &str, tier: Option<&str>, input: u64) -> PriceRow {
    let price = Price { input, output: input * 4, ..Price::default() };
    PriceRow { models: Glob::new(models).unwrap(), tier: tier.map(Into::into), price }
}

fn table(rows: Vec<PriceRow>) -> PriceTable {
    PriceTable::new(7, rows, None).unwrap()
}

#[test]
fn the_most_specific_row_applies_wherever_it_stands() {
    let table = table(vec![
        row("*", None, 1),
        row("gpt-*", None, 2),
        row("gpt-4o-*", None, 3),
        row("gpt-4o-mini", None, 4),
        row("gpt-4o-mini", Some("flex"), 5),
        row("gpt-*", Some("flex"), 6),
    ]);
    let input = |model: &str, tier| table.price(model, tier).unwrap().input;
    assert_eq!(input("claude", None), 1);
    assert_eq!(input("gpt-5", None), 2);
    assert_eq!(input("gpt-4o-audio", None), 3);
    assert_eq!(input("gpt-4o-mini", None), 4);
    assert_eq!((input("gpt-4o-mini", Some("flex")), input("gpt-4o-mini", Some("priority"))), (5, 4));
    assert_eq!(input("gpt-5", Some("flex")), 6);
    assert_eq!(table.version(), 7);
}

#[test]
fn classes_have_their_own_prices_or_that_of_their_whole() {
    // 2.50 in, 1.25 cached, 10.00 out, per million.
    let price = Price { input: 2_500_000, cached_input: Some(1_250_000), output: 10_000_000, ..Price::default() };
    let tokens = Tokens { input: 1_000, cached_input: 600, output: 100, reasoning: 40, ..Tokens::default() };
    // 400 x 2.5 + 600 x 1.25 + 100 x 10 millionths.
    assert_eq!(price.cost(&tokens), 1_000 + 750 + 1_000);
    let audio = Price { audio_input: Some(40_000_000), audio_output: Some(80_000_000), ..price };
    let spoken = Tokens { input: 10, audio_input: 10, output: 10, audio_output: 10, ..Tokens::default() };
    assert_eq!(audio.cost(&spoken), 400 + 800);
}

#[test]
fn a_cost_is_rounded_up_once() {
    let price = Price { input: 1, output: 1, ..Price::default() };
    assert_eq!(price.cost(&Tokens::default()), 0);
    assert_eq!(price.cost(&Tokens { input: 1, output: 1, ..Tokens::default() }), 1, "two parts of a millionth");
    assert_eq!(price.cost(&Tokens { input: 1_000_000, output: 1, ..Tokens::default() }), 2);
}

#[test]
fn a_model_without_a_row_is_marked_and_costs_what_the_table_says_of_such() {
    let tokens = Tokens { input: 1_000_000, ..Tokens::default() };
    assert_eq!(table(vec![row("a", None, 5)]).cost("b", None, &tokens), Cost { money: 0, is_priced: false });
    let unknown = Some(Price { input: 9, ..Price::default() });
    let with_price = PriceTable::new(1, Vec::new(), unknown).unwrap();
    assert_eq!(with_price.cost("b", None, &tokens), Cost { money: 9, is_priced: false });
}

#[test]
fn a_row_that_no_request_could_reach_is_a_mistake() {
    let twice = PriceTable::new(1, vec![row("a*", None, 1), row("a*", None, 2)], None);
    assert_eq!(twice.unwrap_err(), PriceError::Twice("a*".into()));
    let many = (0..=ROWS_MAX).map(|index| row(&index.to_string(), None, 1)).collect();
    assert!(matches!(PriceTable::new(1, many, None), Err(PriceError::TooManyRows(_))));
}

proptest! {
    #[test]
    fn the_largest_tokens_and_prices_do_not_overflow(
        input in 0..=2 * TOKENS_MAX, cached in any::<u64>(), output in any::<u64>(), price in any::<u64>(),
    ) {
        let price = Price { input: price, cached_input: Some(u64::MAX), output: price, ..Price::default() };
        let tokens = Tokens { input, cached_input: cached, output, ..Tokens::default() };
        let _saturates = price.cost(&tokens);
    }

    /// Against fractions, class by class.
    #[test]
    fn a_cost_is_the_exact_sum_rounded_up(
        input in 0u64..100_000, cached in 0u64..100_000, output in 0u64..100_000, reasoning in 0u64..100_000,
        prices in proptest::array::uniform4(0u64..100_000_000),
    ) {
        let tokens = Tokens { input, cached_input: cached, output, reasoning, ..Tokens::default() }.plausible(0).0;
        let [per_input, per_cached, per_output, per_reasoning] = prices;
        let price = Price {
            input: per_input, cached_input: Some(per_cached), output: per_output, reasoning: Some(per_reasoning),
            ..Price::default()
        };
        let exact = (tokens.input - tokens.cached_input) * per_input + tokens.cached_input * per_cached
            + (tokens.output - tokens.reasoning) * per_output + tokens.reasoning * per_reasoning;
        let cost = price.cost(&tokens);
        prop_assert!(cost * 1_000_000 >= exact && cost * 1_000_000 < exact + 1_000_000);
    }

    /// More tokens never cost less.
    #[test]
    fn cost_grows_with_tokens(input in 0u64..1 << 40, more in 0u64..1 << 40, price in 0u64..1 << 40) {
        let price = Price { input: price, ..Price::default() };
        let cost = |input| price.cost(&Tokens { input, ..Tokens::default() });
        prop_assert!(cost(input) <= cost(input + more));
    }
}
