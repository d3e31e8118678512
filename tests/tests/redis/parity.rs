//! Every reply through Weir is the reply of the server, byte for byte. The scripts are in
//! `tests/parity`; what may differ is marked there, each time with its reason.

use weir_tests::gateway::{Config, Gateway};
use weir_tests::parity::{Pair, Play, Script};
use weir_tests::server::{Kind, Options, Server};

const PASSWORD: &str = "secret-word";

/// Plays one script through a gateway in both manners.
fn through_weir(kind: Kind, name: &str) {
    let script = Script::load(name);
    let (control, tested) = (Server::start(kind), Server::start(kind));
    let gateway = Gateway::before(&tested);
    let pair = Pair { control: &control, tested: &tested, address: gateway.address.clone() };
    pair.play(&script, Play::Stepwise);
    pair.play(&script, Play::Pipelined);
}

/// Plays one script on two bare servers: what differs there is a mistake of the script.
fn control_run(kind: Kind, name: &str) {
    let script = Script::load(name);
    let (control, tested) = (Server::start(kind), Server::start(kind));
    let pair = Pair { control: &control, tested: &tested, address: tested.address.clone() };
    pair.play(&script, Play::Stepwise);
    pair.play(&script, Play::Pipelined);
}

macro_rules! scripts {
    ($($name:ident),+) => {
        mod redis {
            $(#[test] fn $name() { super::through_weir(super::Kind::Redis, stringify!($name)); })+
        }
        mod valkey {
            $(#[test] fn $name() { super::through_weir(super::Kind::Valkey, stringify!($name)); })+
        }
        mod control {
            $(#[test] fn $name() {
                for kind in super::Kind::ALL {
                    super::control_run(kind, stringify!($name));
                }
            })+
        }
    };
}

scripts!(strings, collections, session, pubsub, tracking);

fn asking_for_a_password(kind: Kind) -> Server {
    let options = Options { password: Some(PASSWORD.to_owned()), ..Options::default() };
    Server::start_with(kind, options)
}

#[test]
fn authentication_is_that_of_a_server_with_the_same_password() {
    let script = Script::load("auth");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for kind in Kind::ALL {
        let control = asking_for_a_password(kind);
        // The server behind asks for nothing: the listener does.
        let tested = Server::start(kind);
        let config = Config::to(&tested.address).listener_password(folder.path(), PASSWORD);
        let gateway = Gateway::start(config);
        let pair = Pair { control: &control, tested: &tested, address: gateway.address.clone() };
        pair.play(&script, Play::Stepwise);
        pair.play(&script, Play::Pipelined);
    }
}

#[test]
fn authentication_control() {
    let script = Script::load("auth");
    for kind in Kind::ALL {
        let (control, tested) = (asking_for_a_password(kind), asking_for_a_password(kind));
        let pair = Pair { control: &control, tested: &tested, address: tested.address.clone() };
        pair.play(&script, Play::Stepwise);
        pair.play(&script, Play::Pipelined);
    }
}
