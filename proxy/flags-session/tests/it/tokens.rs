//! Tokens, their rights, and the fewest that see everything.

use std::time::Duration;

use weir_base::Time;
use weir_flags_codec::tokens::{ValidatedToken, ValidatedTokens};
use weir_flags_session::limits::{TOKENS_BATCH_BYTES_MAX, TOKENS_INVALID_MAX};
use weir_flags_session::{Api, Projects, Standing, Token, TokenError, TokenTable, TokenType, minimal};

fn token(text: &str) -> Token {
    Token::parse(text).expect(text)
}

#[test]
fn a_token_has_projects_an_environment_and_a_secret() {
    for (text, environment, projects) in [
        ("demo-app:production.614a75cf68bef", "production", Projects::new(&["demo-app"])),
        (" *:default.5fa5ac2580c7 ", "default", Projects::All),
        ("[]:dev.s.with:more.parts", "dev", Projects::Some(Box::default())),
        ("a.b:dev.s", "dev", Projects::new(&["a.b"])),
        ("*:*.admin-secret", "*", Projects::All),
    ] {
        let token = token(text);
        assert_eq!((token.environment(), token.projects()), (Some(environment), &projects), "{text}");
        assert!(token.matches(text) && token.matches(text.trim()) && !token.matches(&format!("{}x", text.trim())));
        assert_eq!(token.kind(), None);
    }
}

#[test]
fn other_texts_are_no_token() {
    for text in ["a", "a:b", "a.b", "a:b:c.d", "secret.env:project", ":dev.s", "a:.s", "a:dev."] {
        assert_eq!(Token::parse(text), Err(TokenError::Form), "{text}");
    }
    for text in ["a:de v.s", "a:dev.s\u{7f}s", "a:dev.s\ns"] {
        assert_eq!(Token::parse(text), Err(TokenError::Character), "{text:?}");
    }
    for text in [String::new(), " ".to_owned(), format!("a:b.{}", "c".repeat(600))] {
        assert_eq!(Token::parse(&text), Err(TokenError::Length), "{text}");
    }
}

#[test]
fn older_forms_are_taken_from_an_operator() {
    let legacy = Token::parse_trusted("some-secret@development").expect("a token");
    assert!(legacy.matches("some-secret") && !legacy.matches("some-secret@development"));
    assert_eq!((legacy.environment(), legacy.projects()), (Some("development"), &Projects::All));
    assert_eq!(legacy.kind(), Some(TokenType::Frontend));
    assert_eq!(Token::parse_trusted("*:dev.s").expect("a token").kind(), Some(TokenType::Frontend));
    for text in ["secret", "@dev", "secret@", "a@b@c"] {
        assert_eq!(Token::parse_trusted(text), Err(TokenError::Form), "{text}");
    }
    let offline = Token::parse_offline("secret-123", None).expect("a token");
    assert!(offline.matches("secret-123") && offline.projects() == &Projects::All && offline.environment().is_none());
    assert!(offline.may_use(Api::Client) && offline.may_use(Api::Frontend), "both without a type");
    assert_eq!(Token::parse_offline("[]:dev.s", None).expect("a token").projects(), &Projects::All);
    assert_eq!(Token::parse_offline("two words", None), Err(TokenError::Character));
}

#[test]
fn f3_each_type_has_its_own_paths() {
    let of = |kind| token("*:dev.s").with_type(kind);
    let rights = |token: &Token| [Api::Client, Api::Frontend].map(|api| token.may_use(api));
    assert_eq!(rights(&of(TokenType::Backend)), [true, false]);
    assert_eq!(rights(&of(TokenType::Frontend)), [false, true]);
    assert_eq!(rights(&of(TokenType::Admin)), [false, false]);
    for (word, kind) in [
        ("client", Some(TokenType::Backend)),
        ("CLIENT", Some(TokenType::Backend)),
        ("Backend", Some(TokenType::Backend)),
        ("frontend", Some(TokenType::Frontend)),
        ("ADMIN", Some(TokenType::Admin)),
        ("invalid", None),
    ] {
        assert_eq!(TokenType::parse(word), kind, "{word}");
    }
}

#[test]
fn the_upstream_decides_about_the_rights() {
    let response = ValidatedTokens::read(
        br#"{"tokens":[{"token":"[]:dev.s","type":"client","environment":"dev","projects":["b","a"]},{"token":"*:dev.t","type":"none"}]}"#,
    )
    .expect("a response");
    let token = Token::validated(&response.tokens[0]).expect("a token");
    assert_eq!((token.kind(), token.projects()), (Some(TokenType::Backend), &Projects::new(&["a", "b"])));
    assert_eq!(Token::validated(&response.tokens[1]), Err(TokenError::Form));
    let without_type = ValidatedToken { kind: None, ..response.tokens[0].clone() };
    assert_eq!(Token::validated(&without_type), Err(TokenError::Form), "it would be good for both APIs");
    let without_projects = ValidatedToken { projects: Vec::new(), ..response.tokens[0].clone() };
    assert!(Token::validated(&without_projects).expect("a token").projects().is_empty(), "it sees nothing");
}

#[test]
fn a_token_subsumes_those_that_see_no_more() {
    let of = |text: &str, kind| token(text).with_type(kind);
    let (backend, frontend) = (TokenType::Backend, TokenType::Frontend);
    let all = of("*:dev.1", backend);
    assert!(all.subsumes(&of("a:dev.2", backend)) && !of("a:dev.2", backend).subsumes(&all));
    assert!(!all.subsumes(&of("a:prod.2", backend)), "another environment");
    assert!(!all.subsumes(&of("a:dev.2", frontend)) && all.covers(&of("a:dev.2", frontend)));
}

#[test]
fn the_fewest_tokens_see_everything() {
    let texts = ["a:dev.1", "*:dev.2", "a:prod.3", "b:prod.4", "a:prod.5", "*:dev.6"];
    let tokens = texts.map(|text| token(text).with_type(TokenType::Backend));
    let fewest = minimal(&tokens.iter().collect::<Vec<_>>());
    let fewest: Vec<&str> = fewest.iter().filter_map(|token| token.secret().expose_str()).collect();
    assert_eq!(fewest, ["*:dev.2", "a:prod.3", "b:prod.4"]);
    assert!(minimal(&[]).is_empty());
}

#[test]
fn a_token_that_is_shown_shows_no_secret() {
    for (text, shown) in [
        ("*:env.abcdefghijklmnopqrstuvwxyz123456", "*:env.abcdef****123456"),
        ("*:env.short-secret", "*:env.****"),
        ("*:env.v2_selector_0123456789abcdef0123456789", "*:env.v2_selector"),
        ("*:env.ßßßßßßßßßßßßßßßß€€€€", "*:env.ßßß****€€"),
        ("*:env.aßßßßßßßßßßßßßßßß€€€€", "*:env.****"),
    ] {
        let token = token(text);
        assert_eq!(token.to_string(), shown);
        let debugged = format!("{token:?}");
        assert!(debugged.contains(shown) && !debugged.contains(&text[6..]), "{debugged}");
    }
    let offline = Token::parse_offline("abcdefghijklmnopqrstuvwxyz123456", None).expect("a token");
    assert_eq!(offline.to_string(), "****");
}

fn validated(token: &str, project: &str) -> ValidatedToken {
    ValidatedToken {
        token: token.to_owned(),
        kind: Some("backend".to_owned()),
        environment: Some("dev".to_owned()),
        projects: vec![project.to_owned()],
        status: None,
    }
}

/// A table with the responses of its upstream.
struct Upstream {
    table: TokenTable,
    now: Time,
}

impl Upstream {
    fn new() -> Self {
        Self { table: TokenTable::new(7), now: Time::from_nanos(1) }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
    }

    /// Sends the next batch. The upstream knows tokens with these projects.
    fn respond(&mut self, known: &[(&str, &str)]) -> Option<(usize, usize)> {
        let batch = self.table.next_batch(self.now)?;
        let tokens = known.iter().map(|(token, project)| validated(token, project));
        let changes = self.table.on_verdict(&batch, &ValidatedTokens { tokens: tokens.collect() }, self.now);
        Some((changes.added.len(), changes.removed.len()))
    }

    /// Sends a batch each second to a server that refuses each one with a token that ends with `choke`, and knows all others.
    fn choke(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.pass(1);
            let Some(batch) = self.table.next_batch(self.now) else { continue };
            if batch.tokens.iter().any(|text| text.ends_with("choke")) {
                let _ = self.table.on_failure();
                continue;
            }
            let tokens = batch.tokens.iter().map(|text| validated(text, "*")).collect();
            self.table.on_verdict(&batch, &ValidatedTokens { tokens }, self.now);
        }
    }

    fn standing(&self, text: &str) -> &'static str {
        match self.table.find(text, self.now) {
            Standing::Valid(_) => "valid",
            Standing::Invalid => "invalid",
            Standing::Unknown => "unknown",
        }
    }
}

#[test]
fn a_token_is_unknown_until_the_upstream_has_responded() {
    let mut upstream = Upstream::new();
    for text in ["*:dev.a", "*:dev.b", " *:dev.a "] {
        assert_eq!(upstream.standing(text), "unknown");
        assert!(upstream.table.want(text, upstream.now));
    }
    assert_eq!(upstream.table.next_batch(upstream.now).map(|batch| batch.tokens.len()), Some(2));
    assert_eq!(upstream.table.next_batch(upstream.now), None, "one at a time");
    let _ = upstream.table.on_failure();
    assert_eq!(upstream.table.next_batch(upstream.now), None, "at most one per second");
    assert_eq!(upstream.standing("*:dev.a"), "unknown", "no response says nothing");
    upstream.pass(1);
    assert_eq!(upstream.respond(&[("*:dev.a", "*")]), Some((1, 0)), "half of the batch");
    upstream.pass(1);
    assert_eq!(upstream.respond(&[("*:dev.a", "*")]), Some((0, 0)), "the rest");
    assert_eq!(
        ["*:dev.a", " *:dev.a", "*:dev.b", "*:dev.c"].map(|text| upstream.standing(text)),
        ["valid", "valid", "invalid", "unknown"]
    );
    upstream.pass(1);
    assert_eq!(upstream.respond(&[]), None, "nothing is due");
}

#[test]
fn a_batch_is_no_longer_than_a_body_that_the_upstream_takes() {
    let mut upstream = Upstream::new();
    // Each quotation mark has an escape.
    let texts: Vec<String> = (0..500).map(|at| format!("*:dev.{at}{}", "\"".repeat(400))).collect();
    texts.iter().for_each(|text| assert!(upstream.table.want(text, upstream.now)));
    let mut batches = 0;
    while let Some(batch) = upstream.table.next_batch(upstream.now) {
        let bytes = batch.to_json().len();
        assert!(bytes <= TOKENS_BATCH_BYTES_MAX + br#"{"tokens":[]}"#.len(), "{bytes}");
        upstream.table.on_verdict(&batch, &ValidatedTokens::default(), upstream.now);
        upstream.pass(1);
        batches += 1;
    }
    assert_eq!((batches, upstream.table.has_pending()), (7, false));
    assert!(texts.iter().all(|text| upstream.standing(text) == "invalid"));
    let long = format!("*:dev.{}", "a".repeat(TOKENS_BATCH_BYTES_MAX));
    assert!(["*:dev.a", &long, "*:dev.b"].iter().all(|text| upstream.table.want(text, upstream.now)));
    for wanted in [1, 1, 1] {
        let batch = upstream.table.next_batch(upstream.now).expect("a batch");
        assert_eq!(batch.tokens.len(), wanted, "a token that is longer than the bound goes alone");
        upstream.table.on_verdict(&batch, &ValidatedTokens::default(), upstream.now);
        upstream.pass(1);
    }
}

#[test]
fn each_failure_halves_the_batch_until_a_verdict_comes() {
    let mut upstream = Upstream::new();
    for at in 0..500 {
        assert!(upstream.table.want(&format!("*:dev.{at}"), upstream.now));
    }
    for wanted in [500, 250, 125, 62, 31, 15, 7, 3, 1, 1] {
        let batch = upstream.table.next_batch(upstream.now).expect("a batch");
        assert_eq!(batch.tokens.len(), wanted);
        let _ = upstream.table.on_failure();
        let _ = upstream.table.on_failure();
        upstream.pass(1);
    }
    let batch = upstream.table.next_batch(upstream.now).expect("a batch");
    assert_eq!(batch.tokens, ["*:dev.2"], "each has its turn");
    upstream.table.on_verdict(&batch, &ValidatedTokens::default(), upstream.now);
    upstream.pass(1);
    assert_eq!(upstream.table.next_batch(upstream.now).map(|batch| batch.tokens.len()), Some(499));
}

#[test]
fn a_revocation_ends_no_batch_that_is_on_its_way() {
    let mut upstream = Upstream::new();
    assert!(upstream.table.want("*:dev.a", upstream.now) && upstream.respond(&[("*:dev.a", "*")]) == Some((1, 0)));
    upstream.pass(1);
    assert!(upstream.table.want("*:dev.b", upstream.now) && upstream.table.want("*:dev.c", upstream.now));
    assert!(upstream.table.next_batch(upstream.now).is_some());
    upstream.pass(1);
    assert_eq!(upstream.table.revoke("*:dev.a", upstream.now).removed.len(), 1);
    assert_eq!(upstream.table.next_batch(upstream.now), None);
    let _ = upstream.table.on_failure();
    assert_eq!(upstream.table.next_batch(upstream.now).map(|batch| batch.tokens.len()), Some(1));
}

#[test]
fn a_new_token_that_the_server_chokes_on_does_not_block_the_others() {
    let mut upstream = Upstream::new();
    let good: Vec<String> = (0..400).map(|at| format!("*:dev.{at}")).collect();
    let texts = [&["*:dev.choke".to_owned()], &good[..]].concat();
    texts.iter().for_each(|text| assert!(upstream.table.want(text, upstream.now)));
    upstream.choke(40);
    let left: Vec<&String> = good.iter().filter(|text| upstream.standing(text) != "valid").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!((upstream.standing("*:dev.choke"), upstream.table.has_pending()), ("unknown", false), "it was given up");
    assert!(upstream.table.want("*:dev.later", upstream.now));
    upstream.choke(3);
    assert_eq!(upstream.standing("*:dev.later"), "valid");
}

#[test]
fn a_known_token_that_the_server_chokes_on_does_not_block_the_others() {
    let mut upstream = Upstream::new();
    let good: Vec<String> = (0..100).map(|at| format!("*:dev.{at}")).collect();
    for text in ["*:dev.choke", "*:dev.more-choke"].into_iter().chain(good.iter().map(String::as_str)) {
        upstream.table.restore(token(text));
    }
    for second in 0..300 {
        upstream.table.want(&format!("*:dev.new-{second}"), upstream.now);
        upstream.choke(1);
    }
    upstream.choke(60);
    let left = (0..300).filter(|second| upstream.standing(&format!("*:dev.new-{second}")) != "valid").count();
    assert_eq!(left, 0, "new ones pass");
    assert_eq!(upstream.standing("*:dev.choke"), "valid", "no failure says anything about it");
    assert_eq!(upstream.table.due_in(upstream.now), Some(Duration::ZERO), "it is tried again");
    upstream.pass(60);
    let batch = upstream.table.next_batch(upstream.now).expect("a batch");
    assert!(batch.tokens[0].ends_with("choke"), "a minute later it is first again: {batch:?}");
    ["*:dev.choke", "*:dev.more-choke"].iter().for_each(|text| drop(upstream.table.revoke(text, upstream.now)));
    assert!(upstream.table.due_in(upstream.now) > Some(Duration::ZERO), "the known ones were validated");
    assert!(good.iter().all(|text| upstream.standing(text) == "valid"));
}

#[test]
fn a_bad_token_may_become_good_and_a_good_one_bad() {
    let mut upstream = Upstream::new();
    assert!(upstream.table.want("*:dev.a", upstream.now));
    assert_eq!(upstream.respond(&[]), Some((0, 0)));
    upstream.pass(299);
    assert_eq!(upstream.standing("*:dev.a"), "invalid");
    upstream.pass(1);
    assert_eq!(upstream.standing("*:dev.a"), "unknown");
    assert!(upstream.table.want("*:dev.a", upstream.now));
    assert_eq!(upstream.respond(&[("*:dev.a", "p")]), Some((1, 0)));
    upstream.pass(3_599);
    assert_eq!(upstream.respond(&[]), None);
    assert_eq!(upstream.table.due_in(upstream.now), Some(Duration::from_secs(1)));
    upstream.pass(1);
    assert_eq!(upstream.respond(&[("*:dev.a", "p")]), Some((0, 0)), "as it was");
    upstream.pass(3_600);
    assert_eq!(upstream.respond(&[("*:dev.a", "q")]), Some((1, 1)), "other projects");
    upstream.pass(3_600);
    assert_eq!(upstream.respond(&[]), Some((0, 1)));
    assert_eq!((upstream.standing("*:dev.a"), upstream.table.valid().count()), ("invalid", 0));
}

#[test]
fn a_trusted_token_needs_no_upstream() {
    let mut upstream = Upstream::new();
    upstream.table.trust(Token::parse_trusted("secret@dev").expect("a token"));
    assert_eq!((upstream.standing("secret"), upstream.standing("secret@dev")), ("valid", "unknown"));
    upstream.pass(1_000_000);
    assert_eq!((upstream.standing("secret"), upstream.respond(&[])), ("valid", None));
    assert_eq!(upstream.table.due_in(upstream.now), None);
    upstream.table.restore(Token::parse("*:dev.saved").expect("a token"));
    assert_eq!(
        (upstream.standing("*:dev.saved"), upstream.table.due_in(upstream.now)),
        ("valid", Some(Duration::ZERO))
    );
    assert_eq!(upstream.table.judged().count(), 1, "that of the backup alone");
    assert_eq!(upstream.respond(&[]), Some((0, 1)), "the first batch has it");
}

#[test]
fn f8_a_flood_of_random_tokens_is_bounded() {
    let mut upstream = Upstream::new();
    upstream.table.trust(token("*:dev.good"));
    let mut refused = 0;
    for at in 0..40_000 {
        refused += u32::from(!upstream.table.want(&format!("*:dev.{at}"), upstream.now));
        if at % 1_000 == 999 {
            upstream.pass(1);
            upstream.respond(&[]);
        }
    }
    assert!(refused > 0 && upstream.table.invalid_count() <= TOKENS_INVALID_MAX);
    assert_eq!((upstream.standing("*:dev.good"), upstream.standing("*:dev.39000")), ("valid", "invalid"));
    assert_eq!(upstream.standing("*:dev.0"), "unknown", "pushed out");
    assert_eq!(upstream.table.for_readers().invalid_count(), upstream.table.invalid_count());
    upstream.pass(300);
    assert!(upstream.table.want("*:dev.x", upstream.now));
    upstream.respond(&[]);
    assert_eq!(upstream.table.invalid_count(), 1, "the others are too old");
}

#[test]
fn f8_a_flood_of_random_tokens_keeps_no_good_one_from_its_validation() {
    let mut upstream = Upstream::new();
    assert!(upstream.table.want("*:dev.good", upstream.now));
    assert_eq!(upstream.respond(&[("*:dev.good", "*")]), Some((1, 0)));
    upstream.pass(3_600);
    for at in 0..1_000 {
        upstream.table.want(&format!("*:dev.{at}"), upstream.now);
    }
    let batch = upstream.table.next_batch(upstream.now).expect("a batch");
    assert_eq!((batch.tokens.len(), &*batch.tokens[0]), (500, "*:dev.good"));
    upstream.table.on_verdict(&batch, &ValidatedTokens::default(), upstream.now);
    assert_eq!((upstream.standing("*:dev.good"), upstream.table.has_pending()), ("invalid", true), "one has no room");
}

#[test]
fn a_table_takes_the_verdicts_of_another_and_no_trust() {
    let mut before = Upstream::new();
    before.table.trust(Token::parse_trusted("*:dev.trusted").expect("a token"));
    ["*:dev.good", "*:dev.bad", "*:dev.later"].iter().for_each(|text| assert!(before.table.want(text, before.now)));
    before.respond(&[("*:dev.good", "*")]);
    let mut table = TokenTable::new(8);
    table.trust(Token::parse_trusted("*:dev.later").expect("a token"));
    let now = Upstream { table: table.with_judged(&before.table), now: before.now };
    assert_eq!(
        ["*:dev.good", "*:dev.bad", "*:dev.later", "*:dev.trusted"].map(|text| now.standing(text)),
        ["valid", "invalid", "valid", "unknown"]
    );
    let shown = format!("{:?}", now.table);
    assert!(!shown.contains("good\"") && !shown.contains("dev."), "{shown}");
}
