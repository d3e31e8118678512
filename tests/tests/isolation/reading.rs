//! S1 and S2: clients that read slowly, or not at all.

use std::io::Result;

use weir_tests::isolation::http2::Http2Client;
use weir_tests::isolation::{Ask, Attack, Caller, Cell, Protocol, Stand, Transfer, connect, every};
use weir_tests::stream::Address;

use crate::measure::{compared, quiet};

const MB: usize = 1_000_000;

/// A transfer at that address, which takes it.
fn begun(protocol: &dyn Protocol, address: &Address, ask: &Ask) -> Box<dyn Transfer> {
    let begun = connect(address).and_then(|stream| protocol.begin(stream, ask));
    begun.unwrap_or_else(|error| panic!("{}: {ask:?}: {error}", protocol.name()))
}

#[test]
fn s1_others_do_not_wait_for_a_slow_reader() {
    every("S1", |protocol, extent| {
        let large = Ask::Bytes(extent.pick(96, 400) << 20);
        let stand = Stand::start(protocol);
        stand.origin.prepare(&large);
        let without = quiet(&stand, extent);
        let rates = extent.pick(&[0, 5, 20][..], &[0, 1, 5, 20, 100]);
        let rows = rates.iter().map(|rate| {
            let attack = |address: &Address| Attack::reading(vec![begun(protocol, address, &large)], rate * MB);
            (format!("one client reads at {rate} MB/s"), compared(&stand, extent, &without, attack))
        });
        rows.collect()
    });
}

#[test]
fn s2_responses_that_nobody_reads_use_up_nothing_that_others_need() {
    every("S2", |protocol, extent| {
        let large = Ask::Bytes(4 << 20);
        let numbers = extent.pick(&[20][..], &[1, 20, 100]);
        let names =
            |number: &usize| [format!("{number} unread, one client"), format!("{number} unread, as many clients")];
        if let Err(why) = protocol.shares_upstream() {
            return numbers.iter().flat_map(names).map(|name| (name, Cell::None(why))).collect();
        }
        let stand = Stand::start(protocol);
        stand.origin.prepare(&large);
        let without = quiet(&stand, extent);
        let mut rows = Vec::new();
        for number in numbers {
            let unread = |address: &Address, count: usize| {
                let stream = connect(address).expect("a connection");
                protocol.unread(stream, &large, count).unwrap_or_else(|why| panic!("{}: {why}", protocol.name()))
            };
            let one = |address: &Address| Attack::reading(vec![unread(address, *number)], 0);
            let many = |address: &Address| Attack::reading((0..*number).map(|_| unread(address, 1)).collect(), 0);
            let [first, second] = names(number);
            rows.push((first, compared(&stand, extent, &without, one)));
            rows.push((second, compared(&stand, extent, &without, many)));
        }
        rows
    });
}

/// A client of HTTP/2 with uploads that its origin does not read, and its other, small ones.
struct Uploads(Http2Client);

impl Uploads {
    fn open(address: &Address, stalled: usize) -> Result<Self> {
        const LENGTH: usize = 4 << 20;
        let mut client = Http2Client::open_reading(connect(address)?)?;
        for _ in 0..stalled {
            let stream = client.request(&Ask::Unread(LENGTH))?;
            client.upload(stream, vec![b'x'; LENGTH])?;
        }
        Ok(Self(client))
    }
}

impl Caller for Uploads {
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        self.0.exchange(asks)
    }

    fn small(&mut self) -> Result<()> {
        self.exchange(&[(Ask::Sink(1_000), vec![b'x'; 1_000])]).map(|_| ())
    }
}

#[test]
fn s2_uploads_that_nobody_reads_do_not_stop_the_others_of_their_connection() {
    every("S2", |protocol, extent| {
        // With the victim's own, as many streams as a connection may have.
        let numbers = extent.pick(&[20][..], &[1, 20, 99]);
        let name =
            |number: &usize| format!("{number} uploads that the origin does not read, on the victim's connection");
        if protocol.name() != "HTTP/2" {
            let why = "uploads of one connection come one after the other";
            return numbers.iter().map(|number| (name(number), Cell::None(why))).collect();
        }
        let stand = Stand::start(protocol);
        let with = |address: &Address, number: usize| {
            let address = address.clone();
            let connect = move || Ok(Box::new(Uploads::open(&address, number)?) as Box<dyn Caller>);
            crate::measure::waits(connect, extent, Attack::none)
        };
        let without = with(&stand.gateway.address, 0);
        let cell = |number: &usize| Cell::Waits {
            with: with(&stand.gateway.address, *number),
            without: without.clone(),
            direct: extent.is_whole.then(|| with(&stand.origin.address(), *number)),
            attack: "",
        };
        let rows = numbers.iter().map(|number| (name(number), cell(number))).collect();
        let Stand { gateway, origin, .. } = stand;
        // Dropped first, so that bytes which the origin did not read keep nothing open; S4 is about clients that leave meanwhile.
        drop(origin);
        drop(gateway);
        rows
    });
}
