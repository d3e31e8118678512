use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::{
    io::{Full, Pinning},
    session::Next,
    settings::{RedisListenerSettings, UnknownCommands},
};

use super::scene::{Scene, bulk, wire};

use crate::End;

fn scene() -> Scene {
    Scene::with(RedisListenerSettings { stream_bytes: 100, ..Default::default() })
}

#[test]
fn a_large_command_flows_through_exactly_and_in_order() {
    for piece in [1, 7, 99, 100, 101, 1000, usize::MAX] {
        let mut scene = scene();
        let value: String = (0..700).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        let read = scene.drips(&wire(&format!("GET a\nSET k {value}\nGET b")), piece);
        let want = [bulk("GET a|0|1"), bulk(&format!("SET k {value}|0|2")), bulk("GET b|0|3")];
        assert_eq!(read, want.concat(), "in pieces of {piece}");
        let is_whole = piece >= 1000;
        assert_eq!(scene.given_back(), (u64::from(!is_whole), 0), "in pieces of {piece}");
    }
}

#[test]
fn many_small_arguments_flow_too() {
    let mut scene = scene();
    let members = (0..100).map(|at| format!("member{at}")).collect::<Vec<_>>().join(" ");
    let bytes = wire(&format!("SADD k {members}\nPING"));
    assert_eq!(scene.drips(&bytes, 200), bulk(&format!("SADD k {members}|0|1")) + "+PONG\r\n");
}

#[test]
fn large_commands_that_need_buffering_are_refused_and_the_rest_dropped() {
    let long = "x".repeat(500);
    for (line, error) in [
        (format!("SUBSCRIBE {long}"), "-ERR weir: command too large\r\n"),
        (format!("WATCH k {long}"), "-ERR weir: command too large\r\n"),
        (format!("BLPOP k {long} 0"), "-ERR weir: command too large\r\n"),
        (format!("CONFIG SET maxmemory {long}"), "-ERR weir: command too large\r\n"),
        (format!("GET k {long}"), "-ERR wrong number of arguments for 'get' command\r\n"),
        (format!("CLIENT NOPE {long}"), "-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n"),
    ] {
        for piece in [3, 150, 200] {
            let mut scene = scene();
            let read = scene.drips(&wire(&format!("GET a\n{line}\nPING")), piece);
            assert_eq!(read, format!("{}{error}+PONG\r\n", bulk("GET a|0|1")), "{line}");
            assert_eq!(scene.0.world.pins()[0], 0, "nothing was sent of {line}");
        }
    }
}

/// The verdict on a command depends on all its arguments: while some have not arrived it is judged by the worst case.
#[test]
fn a_large_argument_hides_no_secret_parameter_from_the_gate() {
    let mut scene = scene();
    let line = format!("CONFIG GET save {} requirepass", "x".repeat(500));
    assert_eq!(scene.drips(&wire(&line), 200), "-ERR weir: command too large\r\n");
    assert_eq!(scene.says("CONFIG GET save requirepass").matches("-ERR weir: administrative").count(), 1);
    let line = format!("XREAD COUNT {} BLOCK 0 STREAMS s 0", "1".repeat(500));
    assert_eq!(scene.drips(&wire(&line), 200), "-ERR weir: command too large\r\n", "it would block uncounted");
    assert_eq!(scene.0.world.pins()[0], 0);
}

#[test]
fn a_large_unknown_command_is_forwarded_like_a_small_one() {
    let value = "x".repeat(500);
    let mut large = scene();
    let read = large.drips(&wire(&format!("MOD.X k {value}\nGET a")), 200);
    assert_eq!(read, bulk(&format!("MOD.X k {value}|0|1")) + &bulk("GET a|0|2"));
    assert_eq!(large.given_back(), (0, 1), "nobody else gets that lane");
    let settings =
        RedisListenerSettings { stream_bytes: 100, unknown_commands: UnknownCommands::Refuse, ..Default::default() };
    let read = Scene::with(settings).drips(&wire(&format!("MOD.X k {value}\nPING")), 200);
    assert!(read.starts_with("-ERR unknown command 'MOD.X'") && read.ends_with("+PONG\r\n"), "{read}");
}

#[test]
fn bad_framing_in_the_middle_closes_and_the_lane_goes_with_it() {
    let mut scene = scene();
    let mut bytes = wire(&format!("SET k {}", "x".repeat(500)));
    let end = bytes.len() - 2;
    bytes[end] = b'!';
    let read = scene.sends(&bytes[..300]) + &scene.sends(&bytes[300..]);
    assert_eq!(read, "-ERR Protocol error: expected CRLF after bulk\r\n");
    assert_eq!(scene.0.end(), Some(&End::Violation("bulk_end")));
    assert_eq!(scene.given_back(), (0, 1));
}

/// On an own lane other replies may be due: they must not go down with half a command.
#[test]
fn a_large_command_starts_when_all_before_it_is_answered() {
    let mut scene = scene();
    scene.says("WATCH k");
    let mut bytes = wire(&format!("GET a\nSET k {}", "x".repeat(500)));
    let end = bytes.len() - 2;
    bytes[end] = b'!';
    scene.0.send(&bytes);
    scene.0.arrive(300);
    assert_eq!(scene.0.world.with_lane(0, |lane, _| lane.in_flight()), 1, "only GET is on its way");
    let read = scene.reads();
    assert_eq!(read, bulk("GET a|0|2") + "-ERR Protocol error: expected CRLF after bulk\r\n");
}

#[test]
fn a_refused_lane_drops_the_rest_and_the_session_goes_on() {
    let mut scene = scene();
    scene.0.send(&wire(&format!("SET k {}\nGET a", "x".repeat(500))));
    scene.0.arrive(200);
    scene.0.resolve_pin(Err(Refusal::Unreachable));
    assert_eq!(scene.reads(), "-ERR weir: upstream unreachable\r\n".to_owned() + &bulk("GET a|0|1"));
}

#[test]
fn a_full_core_makes_it_wait_then_refuses_it_and_keeps_no_lane() {
    let mut scene = scene();
    scene.0.world.set(|policy| policy.full = Some(Full::Buffered));
    scene.0.send(&wire(&format!("SET k {}\nPING", "x".repeat(500))));
    scene.0.arrive(200);
    scene.0.refuse_held();
    assert_eq!(scene.reads(), "-ERR weir: buffered bytes limit reached\r\n+PONG\r\n");
    assert_eq!(scene.0.world.shed(), ["buffered_bytes"]);
    scene.0.world.set(|policy| policy.full = None);
    scene.0.send(&wire(&format!("SET k {}\nPING", "x".repeat(500))));
    scene.0.arrive(200);
    scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
    scene.0.resolve_pin(Ok(()));
    scene.arrives();
    scene.0.refuse_held();
    assert_eq!(scene.arrives(), "-ERR weir: too many requests in flight\r\n+PONG\r\n");
    assert!(!scene.is_pinned(), "the lane that came is given back");
}

#[test]
fn a_slow_server_stops_the_reading() {
    let mut scene = scene();
    scene.0.send(&wire(&format!("SET k {}", "x".repeat(5000))));
    scene.0.arrive(2000);
    scene.0.resolve_pin(Ok(()));
    scene.0.wake();
    assert_eq!(scene.0.next(), Next::Wait, "enough is on its way to the server");
    scene.0.flush(0);
    assert_eq!(scene.0.next(), Next::Read);
    assert!(scene.reads().contains("SET k xxx"));
}

#[test]
fn a_lane_lost_in_the_middle_answers_once_and_closes() {
    let mut scene = scene();
    scene.0.send(&wire(&format!("SET k {}", "x".repeat(5000))));
    scene.0.arrive(2000);
    scene.0.resolve_pin(Ok(()));
    scene.0.wake();
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost\r\n");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_pipeline_of_one_lets_a_large_command_through() {
    let settings = RedisListenerSettings { stream_bytes: 100, pipeline_max: 1, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.0.send(&wire(&format!("SET k {}\nGET a", "x".repeat(500))));
    while scene.0.arrive(50) {
        scene.0.resolve_pin(Ok(()));
    }
    assert!(scene.reads().ends_with(&bulk("GET a|0|2")));
}

/// A server that replies before it has all may read the rest as the next command.
#[test]
fn an_early_reply_costs_the_lane() {
    let mut scene = scene();
    scene.0.send(&wire(&format!("SET k {}", "x".repeat(500))));
    scene.0.arrive(300);
    scene.0.resolve_pin(Ok(()));
    scene.0.wake();
    scene.0.flush(0);
    scene.0.world.with_lane(0, |lane, _| lane.speak(|_, out| out.extend_from_slice(b"-OOM no memory\r\n")));
    scene.0.deliver(0, usize::MAX);
    while scene.0.arrive(usize::MAX) {}
    assert_eq!(scene.arrives(), "-OOM no memory\r\n");
    assert_eq!(scene.given_back(), (0, 1));
}

#[test]
fn a_large_command_that_gets_no_lane_is_answered_once() {
    for piece in [1, 60, 150, usize::MAX] {
        let mut scene = scene();
        scene.0.world.set(|policy| policy.pinning = Pinning::Refused(Refusal::QueueFull));
        let read = scene.drips(&wire(&format!("GET a\nSET k {}", "v".repeat(500))), piece.min(400));
        assert_eq!(read, format!("{}-ERR weir: upstream queue full\r\n", bulk("GET a|0|1")), "in pieces of {piece}");
        scene.0.world.set(|policy| policy.pinning = Pinning::Ready);
        assert_eq!(scene.says("GET b"), bulk("GET b|0|2"));
    }
}
