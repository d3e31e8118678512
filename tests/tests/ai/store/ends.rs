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
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 2, 60_000);
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
    stand.finish_used_up(60_000);
}

#[test]
fn of_two_gateways_with_one_identity_one_gives_way() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 1, 20_000);
    let state = tempfile::tempdir().expect("a folder");
    let name = "store-identity";
    std::fs::copy(stand.states[0].path().join(name), state.path().join(name)).expect("a copy");
    let table = store_table(&stand.store, "");
    stand.gateways.push(gateway_with_key(&stand.origin, state.path(), "day_tokens = 20000\n", &table));
    stand.states.push(state);
    let words = "another process has the identity of this gateway in the store";
    let refuses = |gateway: &Gateway| times(gateway, words) == 1;
    until("one of them to give way", Duration::from_secs(15), || stand.gateways.iter().any(refuses).then_some(()));
    let loser = stand.gateways.iter().position(refuses).expect("it gives way");
    // One refuses, and the other one is not disturbed.
    let winner = &stand.gateways[1 - loser];
    for _ in 0..5 {
        let refused = send(&stand.gateways[loser].address, "u").expect("a response");
        assert!(status(&refused) == "503" && refused.contains("retry-after: 1"), "{refused}");
        std::thread::sleep(Duration::from_millis(300));
    }
    until_true("the other one to serve", || status(&send(&winner.address, "u").expect("a response")) == "200");
    assert_eq!(times(winner, words), 0);
    stand.gateways.into_iter().for_each(Gateway::finish);
}

#[test]
fn the_first_server_that_takes_writes_is_used_and_a_change_is_named() {
    let (mut first, second, origin) = (Server::start(Kind::Valkey), Server::start(Kind::Valkey), AiOrigin::start());
    let state = tempfile::tempdir().expect("a folder");
    let table = format!("[ai.store]\nendpoints = [\"{}\", \"{}\"]\n", first.address.text(), second.address.text());
    let gateway = gateway_with_key(&origin, state.path(), "day_tokens = 20000\n", &table);
    let claimed = |server: &Server| claims(server).iter().map(|claim| claim.0).sum::<u64>() > 0;
    let words = "another server is the store of budgets now";
    until_true("a claim", || claimed(&first));
    assert_eq!(times(&gateway, words), 0);
    first.kill();
    until_true("a claim at the second one", || times(&gateway, words) == 1);
    first.restart();
    // The session with the second one goes on until it ends.
    assert_eq!(times(&gateway, words), 1);
    second.connect().expect(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"], b":1\r\n");
    until_true("the first one again", || times(&gateway, words) == 2);
    gateway.finish();
}

/// The rights that the guide states, as words of `ACL SETUSER`.
fn stated_rights() -> Vec<String> {
    let guide =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/ai.md")).expect("the guide");
    let line = guide.lines().find(|line| line.trim_start().starts_with("ACL SETUSER weir")).expect("the rights");
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_user_with_the_rights_of_the_guide_is_enough_and_each_is_needed() {
    for kind in Kind::ALL {
        let (mut stand, folder) = (Stand::new(kind, Options::default(), 0, 0), tempfile::tempdir().expect("a folder"));
        let file = secret_file(folder.path(), "password", "password");
        stand.store.connect().expect(&stated_rights(), b"+OK\r\n");
        let login = format!("user = \"weir\"\npassword = {{ file = \"{file}\" }}\n");
        (0..2).for_each(|_| stand.add(5_000, &login));
        stand.use_up();
        for gateway in &stand.gateways {
            let failed = gateway.metrics().sum_where("weir_ai_store_failures_total", &[]);
            assert!(failed == 0.0, "{kind:?}: {}", gateway.log());
        }
        // The server says so if a right is not one of the commands that it ran.
        for right in stated_rights().iter().filter_map(|word| word.strip_prefix('+')) {
            let calls = stand.store.calls(right);
            assert!(calls > 0, "{kind:?}: {right} is not used");
        }
        stand.finish_used_up(5_000);
    }
}

#[test]
fn a_gateway_without_the_store_stops_before_others_may_have_its_claim() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 0, 0);
    stand.add(60_000, "claim_ttl = \"30s\"\n");
    let expired =
        |gateway: &Gateway| gateway.metrics().sum_where("weir_ai_store_claims_total", &[("outcome", "expired")]);
    assert_eq!(status(&send(&stand.gateways[0].address, "u").expect("a response")), "200");
    stand.store.kill();
    let gateway = &stand.gateways[0];
    until_true("the loss of contact", || gateway.metric("weir_ai_store_in_contact") == 0.0);
    assert_eq!(status(&send(&gateway.address, "u").expect("a response")), "200", "its claim is not used up");
    assert_eq!(expired(gateway), 0.0);
    // Three quarters of 30 s, from a response that is up to 10 s old.
    until("the stop", Duration::from_secs(26), || (expired(gateway) > 0.0).then_some(()));
    let response = send(&gateway.address, "u").expect("a response");
    assert!(status(&response) == "503" && response.contains("retry-after: 1"), "{response}");
    let tokens = key_use(gateway);
    assert_eq!(tokens["used"], tokens["claimed"], "{tokens}");
    stand.store.restart();
    until_true("its claim again", || status(&send(&stand.gateways[0].address, "u").expect("a response")) == "200");
    stand.gateways.into_iter().for_each(Gateway::finish);
}

#[test]
fn a_budget_that_is_lowered_while_gateways_serve_holds_for_both_together() {
    let stand = Stand::new(Kind::Valkey, Options::default(), 2, 60_000);
    stand.load_for(Duration::from_millis(200));
    for gateway in &stand.gateways {
        gateway.rewrite(|text| text.replace("day_tokens = 60000", "day_tokens = 12000"));
        let reloaded = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    }
    // Without further requests: the configuration is news enough.
    until_true("claims within the new budget", || {
        let claims = claims(&stand.store);
        let (claimed, used) = claims.iter().fold((0, 0), |sum, claim| (sum.0 + claim.0, sum.1 + claim.1));
        claimed <= u64::max(12_000, used)
    });
    let before = stand.charged();
    stand.use_up();
    match before < 12_000 - RESERVED_MAX {
        true => stand.finish_used_up(12_000),
        false => assert!(stand.charged() <= u64::max(12_000, before), "{before}"),
    }
}
