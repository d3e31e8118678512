//! Recovery of the spend journal.

use weir_spend::Amount;
use weir_spend::budget::{AccountId, Day};
use weir_spend::journal::books::Books;
use weir_spend::journal::record::{Charge, Record, VERSION};

/// The day of all charges of a history.
const DAY: Day = Day::new(20_484);

/// Accounts of a history.
const ACCOUNTS: u8 = 3;

/// A journal: after a 0 a segment and a snapshot as they are; after another byte a history of requests and changes of its bytes.
///
/// # Panics
/// An invariant does not hold: see `README.md`.
pub fn spend_journal(data: &[u8]) {
    match data.split_first() {
        Some((0, bytes)) => raw(bytes),
        Some((steps, rest)) => {
            let (history, damage) = rest.split_at(rest.len().min(usize::from(*steps) * 2));
            damaged(history, damage);
        }
        None => {}
    }
}

/// Any bytes are a segment, and a snapshot if they are whole.
fn raw(bytes: &[u8]) {
    let (mut books, mut lines) = (Books::default(), 0);
    books.read_segment(bytes, |line| lines += line.len());
    let damage = books.damage();
    assert!(damage.damaged_bytes + damage.torn_bytes <= bytes.len() as u64);
    let open = books.open().len();
    let crashed = books.charge_open();
    assert_eq!(crashed.len(), open);
    lines += crashed.iter().map(|line| line.len()).sum::<usize>();
    assert!(lines <= bytes.len(), "each usage record has bytes of its own");
    assert!(books.charge_open().is_empty(), "a reservation is charged once");
    keeps_in_snapshot(&books);

    let mut followed = Books::default();
    let read = followed.follow(bytes, |_| ());
    assert!(read <= bytes.len());
    if let Ok((books, generation)) = Books::from_snapshot(bytes) {
        let (again, same) = Books::from_snapshot(&books.to_snapshot(generation)).expect("it was just written");
        assert_eq!((again.open(), same), (books.open(), generation));
    }
}

/// A snapshot has every account whose month is not over.
fn keeps_in_snapshot(books: &Books) {
    let (again, generation) = Books::from_snapshot(&books.to_snapshot(7)).expect("it was just written");
    assert_eq!((generation, again.latest_day()), (7, books.latest_day()));
    for (id, totals) in books.totals() {
        assert!(again.used(id) == totals || totals.month < books.latest_day().month());
    }
}

/// A request of the history, and its possible charges after any damage.
struct Request {
    account: u8,
    reserved: u64,
    used: Option<u64>,
    /// Where its records are.
    records: Vec<std::ops::Range<usize>>,
}

impl Request {
    /// Never less: no refund.
    fn least(&self, intact: &[bool]) -> u64 {
        let is_intact = |range: &std::ops::Range<usize>| intact[range.clone()].iter().all(|intact| *intact);
        let is_known = self.records.iter().any(is_intact);
        if is_known { self.used.unwrap_or(self.reserved) } else { 0 }
    }
}

fn account(number: u8) -> AccountId {
    AccountId::from_bytes([number + 1; 16])
}

/// Writes a history, damages its bytes, and recovers.
fn damaged(steps: &[u8], damage: &[u8]) {
    let (mut bytes, requests) = write(steps);
    let mut intact = vec![true; bytes.len()];
    let mut tail = Vec::new();
    for change in damage.chunks(4) {
        let &[kind, high, low, value] = change else { break };
        let at = (usize::from(high) << 8 | usize::from(low)) % bytes.len().max(1);
        match kind % 4 {
            // A bit is wrong.
            0 if !bytes.is_empty() => {
                bytes[at] ^= value | 1;
                intact[at] = false;
            }
            // A page was never written.
            1 => {
                let end = (at + usize::from(value)).min(bytes.len());
                bytes[at..end].fill(0);
                intact[at..end].fill(false);
            }
            // The file is cut off.
            2 => {
                bytes.truncate(at);
                intact[at..].fill(false);
            }
            // A part is there a second time.
            _ => tail.extend_from_slice(&bytes[at..(at + usize::from(value) * 8).min(bytes.len())]),
        }
    }
    bytes.extend_from_slice(&tail);
    let mut books = Books::default();
    books.read_segment(&bytes, |_| ());
    books.charge_open();
    keeps_in_snapshot(&books);
    for number in 0..ACCOUNTS {
        let of_account = || requests.iter().filter(|request| request.account == number);
        let least: u64 = of_account().map(|request| request.least(&intact)).sum();
        let most: u64 = of_account().map(|request| request.reserved).sum();
        let found = books.used(account(number)).in_day.tokens;
        assert!((least..=most).contains(&found), "{least} <= {found} <= {most}");
    }
}

/// The segment of a history: two bytes a step, its kind and its tokens.
fn write(steps: &[u8]) -> (Vec<u8>, Vec<Request>) {
    let mut bytes = Vec::new();
    Record::Segment { version: VERSION, generation: 1 }.encode(&mut bytes);
    let mut requests: Vec<Request> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for step in steps.chunks(2) {
        let &[what, tokens] = step else { break };
        let begin = bytes.len();
        let charge = |number, tokens| Charge::new(DAY, Amount { tokens, money: tokens }, [account(number)]);
        let index = if what & 1 == 0 || open.is_empty() {
            let (account, reserved) = (what / 2 % ACCOUNTS, u64::from(tokens));
            let id = requests.len() as u64;
            Record::Reserve { id, charge: charge(account, reserved), line: b"reserved\n" }.encode(&mut bytes);
            open.push(requests.len());
            requests.push(Request { account, reserved, used: None, records: Vec::new() });
            requests.len() - 1
        } else {
            let index = open.swap_remove(usize::from(what / 2) % open.len());
            let request = &mut requests[index];
            let used = u64::from(tokens).min(request.reserved);
            request.used = Some(used);
            let charge = charge(request.account, used);
            Record::Settle { id: index as u64, charge, line: b"settled\n" }.encode(&mut bytes);
            index
        };
        requests[index].records.push(begin..bytes.len());
    }
    (bytes, requests)
}
