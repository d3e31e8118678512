use super::scene::{Scene, bulk};

#[test]
fn off_silences_upstream_and_local_replies_until_on() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("CLIENT REPLY OFF\nGET a\nPING\nNOPE\nMULTI\nSET k v\nEXEC\nCLIENT REPLY ON"), "+OK\r\n");
    assert!(scene.says("GET b").starts_with("$9\r\nGET b|0|"));
}

#[test]
fn skip_silences_exactly_the_next_command() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("CLIENT REPLY SKIP\nGET a\nGET b"), bulk("GET b|0|2"));
    assert_eq!(scene.says("CLIENT REPLY SKIP\nPING\nPING"), "+PONG\r\n");
    assert_eq!(scene.says("CLIENT REPLY SKIP\nGET\nPING"), "+PONG\r\n", "an error is a reply too");
    assert_eq!(scene.says("CLIENT REPLY SKIP\nCLIENT REPLY SKIP\nPING one\nPING two"), bulk("two"));
}

#[test]
fn commands_before_off_are_still_answered() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("GET a\nPING\nCLIENT REPLY OFF\nGET b"), bulk("GET a|0|1") + "+PONG\r\n");
    assert_eq!(scene.says("CLIENT REPLY SKIP\nGET c\nCLIENT REPLY ON"), "+OK\r\n");
}

/// The reply to RESET came after SKIP, one too many: what followed was read as the reply to something else.
#[test]
fn skip_silences_a_reset_and_off_does_not() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("CLIENT REPLY SKIP\nRESET\nPING"), "+PONG\r\n");
    assert_eq!(scene.says("CLIENT REPLY OFF\nRESET\nPING"), "+RESET\r\n+PONG\r\n");
    assert_eq!(scene.says("GET a\nCLIENT REPLY SKIP\nRESET\nGET b"), bulk("GET a|0|1") + &bulk("GET b|0|2"));
}

#[test]
fn skip_silences_a_reply_in_pieces() {
    let mut scene = Scene::new();
    scene.blurts("CLIENT REPLY SKIP\nGET a\nPING");
    scene.0.flush(0);
    scene.0.execute(0);
    while scene.0.deliver(0, 1) {}
    assert_eq!(scene.arrives(), "+PONG\r\n");
}

#[test]
fn a_subscriber_hears_messages_and_confirmations_but_no_replies() {
    let mut scene = Scene::resp3();
    assert_eq!(scene.says("CLIENT REPLY OFF\nSUBSCRIBE a\nGET k\nPING"), ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    scene.publishes("a", "x");
    assert_eq!(scene.reads(), ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
    assert_eq!(scene.says("CLIENT REPLY ON"), "+OK\r\n");
}
