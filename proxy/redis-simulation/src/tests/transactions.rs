use weir_base::exchange::Refusal;
use weir_redis_session::{
    io::{Full, Pinning},
    settings::{RedisListenerSettings, UnknownCommands},
};

use super::scene::{Scene, bulk};

const ABORT: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

#[test]
fn commands_are_queued_here_and_sent_as_one_unit() {
    let mut scene = Scene::new();
    assert_eq!(scene.blurts("MULTI\nSET k v\nGET k"), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(scene.0.world.lane_count(), 0, "nothing has been sent");
    let read = scene.says("EXEC\nGET x");
    assert_eq!(read, format!("*2\r\n{}{}{}", bulk("SET k v|0|4"), bulk("GET k|0|4"), bulk("GET x|0|5")));
    assert_eq!(scene.0.world.pins()[0], 0, "without WATCH and SELECT the shared lane will do");
}

#[test]
fn an_empty_transaction_is_an_empty_array() {
    assert_eq!(Scene::new().says("MULTI\nEXEC"), "+OK\r\n*0\r\n");
}

#[test]
fn nested_multi_and_watch_inside_are_errors_that_spoil_nothing() {
    let mut scene = Scene::new();
    let read = scene.says("MULTI\nMULTI\nWATCH k\nGET a\nEXEC");
    assert_eq!(
        read,
        format!(
            "+OK\r\n-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n*1\r\n{}",
            bulk("GET a|0|3")
        )
    );
}

#[test]
fn exec_and_discard_alone_are_errors() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("EXEC"), "-ERR EXEC without MULTI\r\n");
    assert_eq!(scene.says("DISCARD"), "-ERR DISCARD without MULTI\r\n");
    assert_eq!(scene.says("MULTI\nGET a\nDISCARD\nEXEC"), "+OK\r\n+QUEUED\r\n+OK\r\n-ERR EXEC without MULTI\r\n");
}

#[test]
fn a_command_that_cannot_be_queued_spoils_the_transaction() {
    let settings = RedisListenerSettings { unknown_commands: UnknownCommands::Refuse, ..Default::default() };
    for bad in [
        "GET",
        "NOPE x",
        "CLIENT NOPE",
        "SUBSCRIBE a",
        "AUTH x",
        "HELLO 3",
        "CLIENT REPLY OFF",
        "CLIENT TRACKING ON",
        "CLIENT CAPA redirect",
        "CLIENT KILL ID 1",
        "CONFIG SET a b",
    ] {
        let mut scene = Scene::with(settings.clone());
        let read = scene.says(&format!("MULTI\nGET a\n{bad}\nGET b\nEXEC\nPING"));
        assert!(read.starts_with("+OK\r\n+QUEUED\r\n-"), "{bad}: {read}");
        assert!(read.ends_with(&format!("+QUEUED\r\n{ABORT}+PONG\r\n")), "{bad}: {read}");
        assert_eq!(scene.0.world.lane_count(), 0, "{bad}: nothing was sent");
    }
}

#[test]
fn exec_with_wrong_arity_ends_the_transaction_as_the_server_does() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.says("MULTI\nGET a\nEXEC now\nEXEC"),
        "+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n\
         -ERR EXEC without MULTI\r\n"
    );
}

#[test]
fn the_server_may_refuse_to_queue() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.says("MULTI\nGET oom-key\nGET b\nEXEC\nPING"),
        format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{ABORT}+PONG\r\n")
    );
}

#[test]
fn a_blocking_command_inside_does_not_block() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("MULTI\nBLPOP k 0\nEXEC"), "+OK\r\n+QUEUED\r\n*1\r\n*-1\r\n");
    assert_eq!(scene.0.world.pins()[0], 0);
}

#[test]
fn an_unknown_command_inside_never_touches_a_shared_lane() {
    let mut scene = Scene::new();
    let read = scene.says("MULTI\nMOD.STATE x\nEXEC\nGET a");
    assert!(read.starts_with("+OK\r\n+QUEUED\r\n*1\r\n$"), "{read}");
    assert_eq!(scene.given_back(), (0, 1), "an own lane, closed afterwards");
}

/// `ACL WHOAMI` was refused inside MULTI, CLIENT too, and a SELECT of no database spoiled the transaction.
#[test]
fn local_commands_are_answered_at_their_place_in_exec() {
    let mut scene = Scene::new();
    scene.says("CLIENT SETNAME before");
    let read = scene.says(
        "MULTI\nGET a\nCLIENT GETNAME\nCLIENT SETNAME inside\nSELECT x\nCLIENT GETNAME\nSELECT 99\nREADONLY\nMONITOR\nGET b\n\
         EXEC\nCLIENT GETNAME",
    );
    let replies = [
        "+OK\r\n",
        &"+QUEUED\r\n".repeat(9),
        "*9\r\n",
        &bulk("GET a|0|11"),
        &bulk("before"),
        "+OK\r\n-ERR value is not an integer or out of range\r\n",
        &bulk("inside"),
        "-ERR DB index is out of range\r\n-ERR This instance has cluster support disabled\r\n",
        "-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n",
        &bulk("GET b|0|11"),
        &bulk("inside"),
    ];
    assert_eq!(read, replies.concat());
    assert_eq!(scene.0.world.pins()[0], 0, "the shared lane will do");
}

#[test]
fn replies_find_their_places_however_the_reply_of_exec_is_cut() {
    for size in 1..40 {
        let mut scene = Scene::new();
        scene.blurts("MULTI\nCLIENT GETNAME\nGET a\nCLIENT GETNAME\nEXEC\nPING");
        scene.0.flush(0);
        while scene.0.execute(0) {}
        while scene.0.deliver(0, size) {}
        let read = scene.arrives();
        assert_eq!(read, format!("*3\r\n$-1\r\n{}$-1\r\n+PONG\r\n", bulk("GET a|0|5")), "{size}");
    }
}

#[test]
fn local_commands_are_not_executed_where_exec_is_not() {
    let mut scene = Scene::new();
    let aborted = scene.says("MULTI\nCLIENT SETNAME inside\nGET oom-key\nEXEC\nCLIENT GETNAME");
    assert_eq!(aborted, format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{ABORT}$-1\r\n"));
    let discarded = scene.says("MULTI\nCLIENT SETNAME inside\nDISCARD\nCLIENT GETNAME");
    assert_eq!(discarded, "+OK\r\n+QUEUED\r\n+OK\r\n$-1\r\n");
}

/// Else ten thousand times CLIENT LIST would be built in memory at once.
#[test]
fn replies_past_the_output_limit_are_refused_one_by_one() {
    let mut scene = Scene::with(RedisListenerSettings { pipeline_bytes: 100, ..Default::default() });
    let read = scene.says("MULTI\nCLIENT HELP\nCLIENT GETNAME\nGET a\nEXEC\nCLIENT GETNAME");
    let end = format!("-ERR weir: transaction too large\r\n{}$-1\r\n", bulk("GET a|0|5"));
    assert!(read.contains("*3\r\n*") && read.ends_with(&end), "{read}");
}

#[test]
fn an_exec_without_reply_executes_its_local_commands() {
    let mut scene = Scene::new();
    let read = scene.says("CLIENT REPLY OFF\nMULTI\nCLIENT SETNAME inside\nEXEC\nCLIENT REPLY ON\nCLIENT GETNAME");
    assert_eq!(read, "+OK\r\n".to_owned() + &bulk("inside"));
    let read = scene.says("MULTI\nCLIENT SETNAME other\nCLIENT REPLY ON\nDISCARD\nMULTI\nCLIENT GETNAME\nEXEC");
    let no = "-ERR Command not allowed inside a transaction\r\n";
    assert_eq!(read, format!("+OK\r\n+QUEUED\r\n{no}+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n{}", bulk("inside")));
}

/// The replies given here are empty then, and the SELECTs behind them were looked for one place too early.
#[test]
fn the_database_after_an_exec_without_reply_is_that_of_its_last_select() {
    for inside in
        ["CLIENT SETNAME x\nSELECT 3", "SELECT 3\nCLIENT ID\nSELECT 99", "SELECT 1\nREADONLY\nSELECT 3\nCLIENT ID"]
    {
        let mut scene = Scene::new();
        let read = scene.says(&format!("CLIENT REPLY OFF\nMULTI\n{inside}\nEXEC\nCLIENT REPLY ON\nGET a"));
        assert!(read.starts_with("+OK\r\n") && read.contains("GET a|3|"), "{inside}: {read}");
    }
}

#[test]
fn too_long_a_transaction_is_refused_and_spoiled() {
    let settings =
        RedisListenerSettings { transaction_commands_max: 2, transaction_bytes_max: 200, ..Default::default() };
    let mut scene = Scene::with(settings.clone());
    let read = scene.says("MULTI\nGET a\nGET b\nGET c\nEXEC");
    assert!(read.ends_with(&format!("-ERR weir: transaction too large\r\n{ABORT}")), "{read}");
    let mut scene = Scene::with(settings);
    let read = scene.says(&format!("MULTI\nSET k {}\nEXEC", "x".repeat(300)));
    assert_eq!(read, format!("+OK\r\n-ERR weir: transaction too large\r\n{ABORT}"));
}

/// The size of a command inside MULTI is bounded by the transaction's, not by what the gateway holds otherwise.
#[test]
fn a_command_inside_may_be_larger_than_the_input_limit() {
    let settings = RedisListenerSettings { pipeline_bytes: 1000, stream_bytes: 500, ..Default::default() };
    let mut scene = Scene::with(settings);
    let value = "x".repeat(100_000);
    let read = scene.says(&format!("MULTI\nSET k {value}\nEXEC"));
    assert_eq!(read, format!("+OK\r\n+QUEUED\r\n*1\r\n{}", bulk(&format!("SET k {value}|0|3"))));
}

#[test]
fn an_exec_that_the_lane_refuses_ends_the_transaction() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.refusal = Some(Refusal::BreakerOpen));
    let read = scene.says("MULTI\nGET a\nEXEC\nEXEC");
    let refused = "-EXECABORT Transaction discarded because of: ERR weir: upstream unavailable, breaker open\r\n";
    assert_eq!(read, format!("+OK\r\n+QUEUED\r\n{refused}-ERR EXEC without MULTI\r\n"));
}

#[test]
fn an_exec_waits_for_room_and_is_refused_in_the_end() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
    assert_eq!(scene.says("MULTI\nGET a\nEXEC"), "+OK\r\n+QUEUED\r\n");
    scene.0.refuse_held();
    let refused = "-EXECABORT Transaction discarded because of: ERR weir: too many requests in flight\r\n";
    assert_eq!(scene.reads(), refused);
    scene.0.world.set(|policy| policy.full = None);
    assert_eq!(scene.says("EXEC"), "-ERR EXEC without MULTI\r\n");
}

#[test]
fn an_exec_whose_own_lane_does_not_come_is_an_error() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.pinning = Pinning::TooManyBlocked);
    assert_eq!(
        scene.blurts("MULTI\nSELECT 1\nEXEC\nEXEC"),
        "+OK\r\n+QUEUED\r\n-ERR weir: too many blocked clients\r\n-ERR EXEC without MULTI\r\n"
    );
}

#[test]
fn inside_a_subscription_of_resp3_a_transaction_keeps_its_order() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE a");
    let read = scene.says("MULTI\nGET x\nGET\nDISCARD\nGET y\nMULTI\nGET z\nEXEC\nPING");
    let want = [
        "+OK\r\n+QUEUED\r\n-ERR wrong number of arguments for 'get' command\r\n+OK\r\n",
        &bulk("GET y|0|2"),
        "+OK\r\n+QUEUED\r\n*1\r\n",
        &bulk("GET z|0|5"),
        "+PONG\r\n",
    ];
    assert_eq!(read, want.concat());
}
