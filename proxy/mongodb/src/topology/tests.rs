use std::sync::Arc;

use weir_base::time::Time;
use weir_mongodb_codec::bson::{self, Document};
use weir_mongodb_session::server_hello::Tag;

use super::*;

fn hello(kind: ServerKind) -> ServerHello {
    let set_name = matches!(kind, ServerKind::Primary | ServerKind::Secondary).then(|| b"rs0"[..].into());
    ServerHello { kind, set_name, wire: Some(WireVersions { min: 0, max: 21 }), ..ServerHello::default() }
}

fn at(hello: ServerHello) -> Standing {
    Standing {
        hello: Some(Arc::new(hello)),
        is_reachable: true,
        seen_at: Time::from_nanos(1_000_000_000),
        is_looked_at: true,
        is_doubted: false,
    }
}

fn of(standings: Vec<Standing>) -> Topology {
    Topology::new(standings, None)
}

fn set() -> Topology {
    of(vec![at(hello(ServerKind::Secondary)), at(hello(ServerKind::Primary)), at(hello(ServerKind::Secondary))])
}

#[test]
fn each_mode_takes_the_members_that_drivers_take() {
    use ReadMode::*;
    let any = Preference::default();
    let of_set = |mode| set().candidates(mode, &any);
    assert_eq!([Primary, PrimaryPreferred, Secondary, SecondaryPreferred, Nearest].map(of_set), [2, 2, 5, 5, 7]);
    let headless = || of(vec![at(hello(ServerKind::Secondary)), Standing::default()]);
    let of_headless = |mode| headless().candidates(mode, &any);
    assert_eq!([Primary, PrimaryPreferred, Secondary, SecondaryPreferred, Nearest].map(of_headless), [0, 1, 1, 1, 1]);
    let lone = of(vec![at(hello(ServerKind::Primary))]);
    assert_eq!([Secondary, SecondaryPreferred].map(|mode| lone.candidates(mode, &any)), [0, 1]);
    let routers = of(vec![at(hello(ServerKind::Mongos)), at(hello(ServerKind::Mongos))]);
    assert_eq!([Primary, Secondary].map(|mode| routers.candidates(mode, &any)), [3, 3]);
}

#[test]
fn an_old_primary_gets_nothing() {
    let elected = |term: u8| {
        let mut id = [0; 12];
        id[11] = term;
        at(ServerHello { election: Some((1, id)), ..hello(ServerKind::Primary) })
    };
    assert_eq!(of(vec![elected(1), elected(2)]).roles(), [Role::None, Role::Primary]);
    let gone = Standing { is_reachable: false, ..elected(2) };
    assert_eq!(of(vec![elected(1), gone]).roles(), [Role::Primary, Role::None]);
}

#[test]
fn a_primary_that_has_stepped_down_gets_no_write_before_the_next_look() {
    let mut servers = vec![at(hello(ServerKind::Primary)), at(hello(ServerKind::Secondary))];
    servers[0].is_doubted = true;
    let topology = of(servers);
    assert_eq!(topology.candidates(ReadMode::Primary, &Preference::default()), 0);
    assert_eq!(topology.roles(), [Role::Primary, Role::Secondary], "its connections stay");
}

#[test]
fn servers_of_another_set_and_members_without_data_are_none() {
    let named = Topology::new(vec![at(hello(ServerKind::Primary)), at(hello(ServerKind::Standalone))], Some("rs0"));
    assert_eq!(named.roles(), [Role::Primary, Role::None]);
    let other = Topology::new(vec![at(hello(ServerKind::Primary))], Some("rs1"));
    assert_eq!(other.roles(), [Role::None]);
    assert_eq!(of(vec![at(hello(ServerKind::Arbiter)), at(hello(ServerKind::Ghost))]).roles(), [Role::None; 2]);
    let old = ServerHello { wire: Some(WireVersions { min: 99, max: 100 }), ..hello(ServerKind::Primary) };
    assert_eq!(of(vec![at(old)]).roles(), [Role::None]);
}

#[test]
fn tags_narrow_the_choice_set_by_set() {
    let tagged = |dc: &[u8]| {
        let tags = vec![Tag { name: b"dc"[..].into(), value: dc.into() }];
        at(ServerHello { tags, ..hello(ServerKind::Secondary) })
    };
    let topology = of(vec![tagged(b"east"), tagged(b"west"), at(hello(ServerKind::Primary))]);
    let with = |sets: &[Option<&str>]| {
        let mut out = Vec::new();
        bson::document(&mut out, |body| {
            body.array("tags", sets, |writer, name, set| {
                writer.document(name, |tags| {
                    if let Some(dc) = set {
                        tags.string("dc", *dc);
                    }
                });
            });
        });
        let preference = Preference::read(Some(Document::read(&out).unwrap()));
        [ReadMode::Secondary, ReadMode::SecondaryPreferred].map(|mode| topology.candidates(mode, &preference))
    };
    assert_eq!(with(&[Some("west")]), [2, 2]);
    assert_eq!(with(&[Some("north"), Some("east")]), [1, 1]);
    assert_eq!(with(&[Some("north")]), [0, 4]);
    assert_eq!(with(&[Some("north"), None]), [3, 3], "an empty set fits every member");
    assert_eq!(with(&[]), [3, 3]);
}

#[test]
fn a_member_that_is_too_far_behind_serves_no_read() {
    let wrote = |kind, ms| at(ServerHello { last_write_ms: Some(ms), ..hello(kind) });
    let topology = of(vec![wrote(ServerKind::Primary, 500_000), wrote(ServerKind::Secondary, 380_000)]);
    let within = |seconds| {
        let mut out = Vec::new();
        bson::document(&mut out, |body| body.int32("maxStalenessSeconds", seconds));
        topology.candidates(ReadMode::Secondary, &Preference::read(Some(Document::read(&out).unwrap())))
    };
    assert_eq!((within(90), within(150)), (0, 2));
}

#[test]
fn the_primary_says_who_is_a_member() {
    let hosts = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect();
    let primary =
        ServerHello { hosts: hosts(&["a.test:1", "b.test:2", "a.test:1", "junk"]), ..hello(ServerKind::Primary) };
    let texts = |members: Option<Vec<Address>>| {
        members.map(|members| members.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(texts(of(vec![at(primary)]).members()).as_deref(), Some("a.test:1 b.test:2"));
    let secondary = ServerHello { hosts: hosts(&["c.test:3"]), ..hello(ServerKind::Secondary) };
    let headless = of(vec![at(secondary)]);
    assert_eq!((texts(headless.members()), headless.hearsay().len()), (None, 1));
}

#[test]
fn a_promise_holds_for_every_server_that_is_used() {
    let with = |max, minutes| {
        let hello = hello(ServerKind::Secondary);
        at(ServerHello { wire: Some(WireVersions { min: 0, max }), session_timeout_minutes: minutes, ..hello })
    };
    let promise = of(vec![with(21, Some(30)), with(17, Some(10)), Standing::default()]).promise().unwrap();
    assert_eq!((promise.wire.max, promise.session_timeout_minutes, promise.is_standalone), (17, Some(10), false));
    assert_eq!(of(vec![with(21, Some(30)), with(21, None)]).promise().unwrap().session_timeout_minutes, None);
    assert_eq!(of(vec![Standing::default()]).promise(), None);
    assert!(of(vec![at(hello(ServerKind::Standalone))]).promise().unwrap().is_standalone);
}
