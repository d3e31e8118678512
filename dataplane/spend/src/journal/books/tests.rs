use proptest::prelude::*;

use super::{super::record, *};
use crate::budget::AccountKind;

const DAY: Day = Day::new(20_484);

fn account(number: u8) -> AccountId {
    AccountId::new(AccountKind::Key, &number.to_string())
}

fn charge(number: u8, tokens: u64) -> Charge {
    Charge::new(DAY, Amount { tokens, money: tokens * 2 }, [account(number)])
}

fn segment(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Record::Segment { version: VERSION, generation: 1 }.encode(&mut bytes);
    records.iter().for_each(|record| record.encode(&mut bytes));
    bytes
}

fn read(bytes: &[u8]) -> Books {
    let mut books = Books::default();
    books.read_segment(bytes, |_| ());
    books
}

fn tokens(books: &Books, number: u8) -> u64 {
    books.used(account(number)).in_day.tokens
}

#[test]
fn an_open_reservation_is_charged_in_full_and_once() {
    let mut books = read(&segment(&[
        Record::Reserve { id: 1, charge: charge(1, 100), line: b"crash 1\n" },
        Record::Reserve { id: 2, charge: charge(1, 50), line: b"crash 2\n" },
        Record::Settle { id: 1, charge: charge(1, 30), line: b"end 1\n" },
    ]));
    assert_eq!((tokens(&books, 1), books.open().len()), (30, 1));
    assert_eq!(books.charge_open(), [b"crash 2\n"[..].into()]);
    assert_eq!(books.charge_open(), []);
    assert_eq!(tokens(&books, 1), 80);
    let (mut again, generation) = Books::from_snapshot(&books.to_snapshot(9)).unwrap();
    assert_eq!((generation, again.charge_open().len(), tokens(&again, 1)), (9, 0, 80));
}

#[test]
fn a_second_settlement_is_none_and_one_without_a_reservation_is_charged() {
    let twice = Record::Settle { id: 1, charge: charge(1, 30), line: b"" };
    let books = read(&segment(&[
        Record::Reserve { id: 1, charge: charge(1, 100), line: b"" },
        twice,
        twice,
        Record::Reserve { id: 1, charge: charge(1, 100), line: b"" },
        Record::Settle { id: 7, charge: charge(2, 5), line: b"" },
        Record::Charge { id: 8, charge: charge(2, 6), line: b"" },
    ]));
    assert_eq!((tokens(&books, 1), tokens(&books, 2), books.open().len()), (30, 11, 0));
    assert_eq!((books.damage().duplicates, books.damage().orphans), (1, 1));
}

#[test]
fn reading_goes_on_behind_damage() {
    let mut bytes = segment(&[Record::Charge { id: 1, charge: charge(1, 1), line: b"" }]);
    let hole = bytes.len();
    Record::Charge { id: 2, charge: charge(1, 10), line: b"" }.encode(&mut bytes);
    Record::Charge { id: 3, charge: charge(1, 100), line: b"" }.encode(&mut bytes);
    let end = bytes.len();
    bytes[hole + 20] ^= 1;
    bytes.extend_from_slice(&record::MARK);
    let books = read(&bytes);
    assert_eq!(tokens(&books, 1), 101);
    assert!(books.damage().is_unexpected());
    assert_eq!(books.damage().torn_bytes, (bytes.len() - end) as u64);
}

#[test]
fn a_snapshot_is_taken_whole_or_not_at_all() {
    let mut books = read(&segment(&[
        Record::Reserve { id: 1, charge: charge(1, 100), line: b"open\n" },
        Record::Charge { id: 2, charge: charge(2, 10), line: b"" },
    ]));
    let bytes = books.to_snapshot(3);
    for cut in 0..bytes.len() {
        assert!(Books::from_snapshot(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        assert!(Books::from_snapshot(&changed).is_err(), "changed at {at}");
    }
    let (mut same, _) = Books::from_snapshot(&bytes).unwrap();
    assert_eq!((same.sum(), same.charge_open()), (books.sum(), books.charge_open()));
}

#[test]
fn an_operator_can_bring_windows_of_the_future_back_with_what_they_hold() {
    let future = Day::new(DAY.number() + 400);
    let ahead = Charge::new(future, Amount { tokens: 7, money: 7 }, [account(1)]);
    let mut books = read(&segment(&[Record::Charge { id: 1, charge: ahead, line: b"" }]));
    books.trust_clock(DAY);
    let used = books.used(account(1));
    assert_eq!((used.day, used.in_day.tokens, used.month, used.in_month.tokens), (DAY, 7, DAY.month(), 7));
    assert_eq!(books.latest_day(), DAY);
}

/// Reservations and settlements as one worker writes them, and what is settled and open after each record.
fn history(steps: &[(u8, u8, u16)]) -> (Vec<u8>, Vec<(usize, [u64; 3])>) {
    let mut bytes = segment(&[]);
    let (mut open, mut settled, mut states, mut next) = (Vec::new(), [0; 3], Vec::new(), 1);
    for &(what, who, tokens) in steps {
        let (who, tokens) = (who % 3, u64::from(tokens));
        if what % 2 == 0 || open.is_empty() {
            Record::Reserve { id: next, charge: charge(who, tokens), line: b"open\n" }.encode(&mut bytes);
            open.push((next, who, tokens));
            next += 1;
        } else {
            let (id, who, reserved) = open.remove(usize::from(what) % open.len());
            let used = tokens.min(reserved);
            Record::Settle { id, charge: charge(who, used), line: b"end\n" }.encode(&mut bytes);
            settled[usize::from(who)] += used;
        }
        let mut charged = settled;
        open.iter().for_each(|(_, who, tokens)| charged[usize::from(*who)] += tokens);
        states.push((bytes.len(), charged));
    }
    (bytes, states)
}

proptest! {
    /// Wherever the process is cut off: settled stays settled, and open requests are charged in full.
    #[test]
    fn a_cut_anywhere_recovers_the_state_before_it(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), 0u16..1_000), 1..40), cut in 0.0..1.0,
    ) {
        let (bytes, states) = history(&steps);
        let cut = (bytes.len() as f64 * cut) as usize;
        let expected = states.iter().rev().find(|(end, _)| *end <= cut).map_or([0; 3], |(_, charged)| *charged);
        let mut books = read(&bytes[..cut]);
        books.charge_open();
        prop_assert_eq!([0, 1, 2].map(|who| tokens(&books, who)), expected);
        prop_assert!(!books.damage().is_unexpected());
    }

    /// A snapshot at any point, and the rest after it, are the whole.
    #[test]
    fn a_snapshot_and_what_follows_equal_everything(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), 0u16..1_000), 2..40), at in any::<proptest::sample::Index>(),
    ) {
        let (bytes, states) = history(&steps);
        let (end, _) = states[at.index(states.len())];
        let (mut first, _) = Books::from_snapshot(&read(&bytes[..end]).to_snapshot(2)).unwrap();
        first.read_segment(&segment(&[])[..], |_| ());
        first.read_segment(&bytes[end..], |_| ());
        let mut whole = read(&bytes);
        prop_assert_eq!(first.open(), whole.open());
        prop_assert_eq!(first.charge_open(), whole.charge_open());
        for who in 0..3 {
            prop_assert_eq!(first.used(account(who)), whole.used(account(who)));
        }
    }
}
