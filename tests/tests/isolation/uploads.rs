//! S3: clients that upload slowly, or stop, in front of an origin that does one thing after the other.

use std::time::Duration;

use weir_tests::isolation::{Ask, Attack, Cell, Stand, Victim, Waits, connect, every};
use weir_tests::stream::Address;

use crate::measure::quiet;

/// Announced length; far more than is sent.
const ANNOUNCED: usize = 200_000;

#[test]
fn s3_an_upload_that_trickles_takes_no_origin_away_from_others() {
    every("S3", |protocol, extent| {
        let rates = extent.pick(&[0, 64][..], &[0, 64, 1_024]);
        let name = |rate: usize| match rate {
            0 => "an upload stops".to_owned(),
            rate => format!("an upload at {rate} B/s"),
        };
        if let Err(why) = protocol.lone_origin() {
            return rates.iter().map(|rate| (name(*rate), Cell::None(why))).collect();
        }
        let cell = |rate: usize| {
            let origin = protocol.lone_origin().unwrap_or_else(|why| panic!("it has one: {why}"));
            let stand = Stand::with(protocol, origin, |config| config);
            let without = quiet(&stand, extent);
            // A connection for each request: such an origin keeps none.
            let watch = |address: &Address| -> Waits {
                let stream = connect(address).expect("a connection");
                let upload = protocol.begin(stream, &Ask::Sink(ANNOUNCED)).expect("taken");
                let attack = Attack::writing(vec![upload], rate);
                // The upload is first.
                std::thread::sleep(Duration::from_millis(100));
                let victim = Victim::fresh(weir_tests::isolation::to(protocol, address));
                std::thread::sleep(extent.watched);
                let waits = victim.stop();
                drop(attack);
                waits
            };
            let with = watch(&stand.gateway.address);
            let direct = extent.is_whole.then(|| watch(&stand.origin.address()));
            Cell::Waits { with, without, direct, attack: "" }
        };
        rates.iter().map(|rate| (name(*rate), cell(*rate))).collect()
    });
}
