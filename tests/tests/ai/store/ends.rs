//! The end of a gateway, and of its contact with the store.

use super::*;

/// The claims of all gateways on the tokens of the day of [`KEY`], as the store has them: allowed, and used.
pub(super) fn claims(store: &Server) -> Vec<(u64, u64)> {
    let mut client = store.connect();
    let text = |reply: Vec<u8>| String::from_utf8(reply).expect("text");
    let keys = text(client.call(&["KEYS", "weir:ai:*:day_tokens:*"]));
    let key = keys.lines().find(|line| line.starts_with("weir:")).expect("a claim").to_owned();
    let fields = text(client.call(&["HVALS", &key]));
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let field = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.len() == 3).then(|| (number(words[0]), number(words[1])))
    };
    fields.lines().filter_map(field).collect()
}

#[test]
fn a_gateway_that_ends_leaves_in_the_store_what_it_has_used() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 2, 20_000);
    stand.load_for(Duration::from_millis(200));
    let gateway = stand.gateways.remove(0);
    gateway.wait_at_rest();
    let (claimed, used) = claims(&stand.store).into_iter().max().expect("a claim");
    assert!(claimed > used, "it holds something: {claimed} and {used}");
    gateway.finish();
    let charged = charged(stand.states[0].path());
    assert!(claims(&stand.store).contains(&(charged, charged)), "{charged}: {:?}", claims(&stand.store));
    // All that it did not use is in reach of the other one at once.
    stand.use_up();
    stand.finish_used_up(20_000);
}
