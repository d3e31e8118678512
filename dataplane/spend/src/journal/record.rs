//! Records on disk: a mark, the length and checksum of a body, and the body. Little-endian.
//!
//! ```text
//! mark 4 | body length 4 | CRC-32 of length and body 4 | kind 1, fields
//! ```
//!
//! The mark lets a reader go on behind damage. A checksum finds torn and rotten records; it is no protection against a person
//! who may write to the file.

use crate::{
    amount::Amount,
    budget::{AccountId, Day, LEVELS_MAX, Month, Totals},
    usage::open_record::is_short,
};

/// Begins each record. No text has it, so no client can write a record into a usage line: in UTF-8 the byte `d7` begins a
/// character of two bytes, and `W` continues none. No run of equal bytes has it either.
pub const MARK: [u8; 4] = [0xd7, b'W', 0x9e, 0x02];

/// Bytes before the body.
pub const HEAD_BYTES: usize = 12;

/// Bytes of a body. A usage line has at most [`crate::usage::LINE_BYTES_MAX`].
pub const BODY_BYTES_MAX: usize = crate::usage::LINE_BYTES_MAX + 128;

/// Version of the format, in the first record of each file.
pub const VERSION: u32 = 1;

/// So much, on this day, for these accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The day of the reservation, which the settlement belongs to too.
    pub day: Day,
    /// Reserved, or used.
    pub amount: Amount,
    accounts: [Option<AccountId>; LEVELS_MAX],
}

impl Charge {
    /// A charge; accounts beyond [`LEVELS_MAX`] are left out.
    pub fn new(day: Day, amount: Amount, accounts: impl IntoIterator<Item = AccountId>) -> Self {
        let mut charge = Self { day, amount, accounts: [None; LEVELS_MAX] };
        charge.accounts.iter_mut().zip(accounts).for_each(|(place, account)| *place = Some(account));
        charge
    }

    /// The accounts.
    pub fn accounts(&self) -> impl Iterator<Item = AccountId> {
        self.accounts.iter().flatten().copied()
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// First of a segment.
    Segment {
        /// Version of the format.
        version: u32,
        /// Generation of the file.
        generation: u64,
    },
    /// A request may cost so much from now on. `line`: its usage record if the process ends before its settlement, as
    /// [`UsageRecord::write_open`](crate::usage::UsageRecord::write_open) writes it or as a line.
    Reserve {
        /// Unique in the process.
        id: u64,
        /// The most that it costs.
        charge: Charge,
        /// May be empty.
        line: &'a [u8],
    },
    /// The request has ended.
    Settle {
        /// That of its reservation.
        id: u64,
        /// Its cost.
        charge: Charge,
        /// Its usage record.
        line: &'a [u8],
    },
    /// A request has ended whose reservation could not be written: its key has no budget.
    Charge {
        /// Unique in the process.
        id: u64,
        /// Its cost.
        charge: Charge,
        /// Its usage record.
        line: &'a [u8],
    },
    /// First of a snapshot.
    Snapshot {
        /// Version of the format.
        version: u32,
        /// It holds all segments of generations before this one.
        generation: u64,
        /// The latest day that the ledger has seen.
        latest_day: Day,
    },
    /// The totals of an account.
    Account {
        /// Which.
        id: AccountId,
        /// How much.
        totals: Totals,
    },
    /// In a snapshot: it holds nothing that a process wrote behind its hand-over, in the files of this generation. Programs
    /// that know no hand-over refuse such a snapshot.
    Departing {
        /// Generation of the files.
        generation: u64,
        /// The process has the journal again: the files are a part of its books.
        is_reclaimed: bool,
    },
    /// In a segment of a process that has handed over: it grants nothing more to keys with a budget.
    LeaseEnd,
    /// Among the reservations that are open when a process hands over: the rates of an account at that moment.
    Rates {
        /// Which.
        id: AccountId,
        /// The debt of its requests per minute: see [`Bucket::debt`](crate::rate::Bucket::debt).
        requests: u64,
        /// The debt of its tokens per minute.
        tokens: u64,
    },
    /// Last of a snapshot, which is whole if it is there.
    End {
        /// Records before this one.
        records: u64,
    },
}

/// The contents of a file at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A record of so many bytes.
    Record(Record<'a>, usize),
    /// The beginning of one: the file ends within it.
    Torn,
    /// Something else.
    Damaged,
}

impl Record<'_> {
    /// Appends the record.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(&MARK);
        into.extend_from_slice(&[0; 8]);
        match *self {
            Self::Segment { version, generation } => {
                into.push(1);
                into.extend_from_slice(&version.to_le_bytes());
                into.extend_from_slice(&generation.to_le_bytes());
            }
            // Programs that know no short form must not take it for a line.
            Self::Reserve { id, charge, line } => {
                encode_charge(into, if is_short(line) { 11 } else { 2 }, id, &charge, line);
            }
            Self::Settle { id, charge, line } => encode_charge(into, 3, id, &charge, line),
            Self::Charge { id, charge, line } => encode_charge(into, 4, id, &charge, line),
            Self::Snapshot { version, generation, latest_day } => {
                into.push(5);
                into.extend_from_slice(&version.to_le_bytes());
                into.extend_from_slice(&generation.to_le_bytes());
                into.extend_from_slice(&latest_day.number().to_le_bytes());
            }
            Self::Account { id, totals } => {
                into.push(6);
                into.extend_from_slice(id.bytes());
                into.extend_from_slice(&totals.day.number().to_le_bytes());
                encode_amount(into, totals.in_day);
                into.extend_from_slice(&totals.month.number().to_le_bytes());
                encode_amount(into, totals.in_month);
            }
            Self::Departing { generation, is_reclaimed } => {
                into.push(8);
                into.extend_from_slice(&generation.to_le_bytes());
                into.push(is_reclaimed.into());
            }
            Self::LeaseEnd => into.push(9),
            Self::Rates { id, requests, tokens } => {
                into.push(10);
                into.extend_from_slice(id.bytes());
                into.extend_from_slice(&requests.to_le_bytes());
                into.extend_from_slice(&tokens.to_le_bytes());
            }
            Self::End { records } => {
                into.push(7);
                into.extend_from_slice(&records.to_le_bytes());
            }
        }
        let length = into.len() - start - HEAD_BYTES;
        debug_assert!(length <= BODY_BYTES_MAX);
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        into[start + 4..start + 8].copy_from_slice(&length);
        let checksum = checksum(length, &into[start + HEAD_BYTES..]);
        into[start + 8..start + HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn encode_charge(into: &mut Vec<u8>, kind: u8, id: u64, charge: &Charge, line: &[u8]) {
    into.push(kind);
    into.extend_from_slice(&id.to_le_bytes());
    into.extend_from_slice(&charge.day.number().to_le_bytes());
    encode_amount(into, charge.amount);
    into.push(charge.accounts().count() as u8);
    charge.accounts().for_each(|account| into.extend_from_slice(account.bytes()));
    into.extend_from_slice(line);
}

fn encode_amount(into: &mut Vec<u8>, amount: Amount) {
    into.extend_from_slice(&amount.tokens.to_le_bytes());
    into.extend_from_slice(&amount.money.to_le_bytes());
}

fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(body);
    hasher.finalize()
}

/// Reads the beginning of `bytes`.
pub fn decode(bytes: &[u8]) -> Found<'_> {
    let seen = bytes.len().min(MARK.len());
    if bytes[..seen] != MARK[..seen] {
        return Found::Damaged;
    }
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Found::Torn };
    let mut head = Fields(&head[MARK.len()..]);
    let (Some(length), Some(expected)) = (head.take(), head.u32()) else { return Found::Torn };
    let body_bytes = u32::from_le_bytes(length) as usize;
    if body_bytes > BODY_BYTES_MAX {
        return Found::Damaged;
    }
    let Some(body) = rest.get(..body_bytes) else { return Found::Torn };
    if checksum(length, body) != expected {
        return Found::Damaged;
    }
    Fields(body).record().map_or(Found::Damaged, |record| Found::Record(record, HEAD_BYTES + body_bytes))
}

/// Where the next record may begin, from behind `bytes[0]` on.
pub fn next_mark(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes.get(1..)?, &MARK).map(|at| at + 1)
}

/// A body that is read from its beginning.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn amount(&mut self) -> Option<Amount> {
        Some(Amount { tokens: self.u64()?, money: self.u64()? })
    }

    fn charge(&mut self) -> Option<Charge> {
        let (day, amount, [count]) = (Day::new(self.u32()?), self.amount()?, self.take()?);
        let mut accounts = [None; LEVELS_MAX];
        for place in accounts.get_mut(..usize::from(count))? {
            *place = Some(AccountId::from_bytes(self.take()?));
        }
        Some(Charge { day, amount, accounts })
    }

    fn record(mut self) -> Option<Record<'a>> {
        let [kind] = self.take()?;
        let record = match kind {
            1 => Record::Segment { version: self.u32()?, generation: self.u64()? },
            2 | 11 => {
                let (id, charge, line) = (self.u64()?, self.charge()?, std::mem::take(&mut self.0));
                (is_short(line) == (kind == 11)).then_some(Record::Reserve { id, charge, line })?
            }
            3 => Record::Settle { id: self.u64()?, charge: self.charge()?, line: std::mem::take(&mut self.0) },
            4 => Record::Charge { id: self.u64()?, charge: self.charge()?, line: std::mem::take(&mut self.0) },
            5 => Record::Snapshot { version: self.u32()?, generation: self.u64()?, latest_day: Day::new(self.u32()?) },
            6 => Record::Account {
                id: AccountId::from_bytes(self.take()?),
                totals: Totals {
                    day: Day::new(self.u32()?),
                    in_day: self.amount()?,
                    month: Month::new(self.u32()?),
                    in_month: self.amount()?,
                },
            },
            7 => Record::End { records: self.u64()? },
            8 => {
                let (generation, [flag]) = (self.u64()?, self.take()?);
                Record::Departing { generation, is_reclaimed: (flag < 2).then_some(flag == 1)? }
            }
            9 => Record::LeaseEnd,
            10 => Record::Rates { id: AccountId::from_bytes(self.take()?), requests: self.u64()?, tokens: self.u64()? },
            _ => return None,
        };
        self.0.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Record<'static>> {
        let id = |byte| AccountId::from_bytes([byte; 16]);
        let charge = Charge::new(Day::new(20_484), Amount { tokens: 5, money: u64::MAX }, [id(1), id(2)]);
        let totals = Totals { day: Day::new(9), in_month: Amount { tokens: 1, money: 2 }, ..Totals::default() };
        vec![
            Record::Segment { version: VERSION, generation: 3 },
            Record::Reserve { id: 1, charge, line: b"{}\n" },
            Record::Reserve { id: 1, charge, line: b"\x01short" },
            Record::Settle { id: u64::MAX, charge: Charge::default(), line: b"" },
            Record::Charge { id: 2, charge, line: &MARK },
            Record::Snapshot { version: VERSION, generation: 4, latest_day: Day::new(7) },
            Record::Account { id: id(9), totals },
            Record::Departing { generation: 5, is_reclaimed: true },
            Record::LeaseEnd,
            Record::Rates { id: id(3), requests: 7, tokens: u64::MAX },
            Record::End { records: 12 },
        ]
    }

    #[test]
    fn each_record_is_read_as_it_was_written_and_none_when_cut_or_changed() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(decode(&bytes), Found::Record(record, bytes.len()));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Found::Torn, "{record:?} cut at {cut}");
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x10;
                assert!(!matches!(decode(&changed), Found::Record(..)), "{record:?} changed at {at}");
            }
        }
    }

    #[test]
    fn runs_of_zeros_are_no_records() {
        assert_eq!(decode(&[0; 64]), Found::Damaged);
        assert_eq!(next_mark(&[0; 64]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, kind in 0u8..13) {
            let _no_panic = decode(&bytes);
            // The same as a body with a right checksum.
            let mut framed = MARK.to_vec();
            let body: Vec<u8> = [kind].into_iter().chain(bytes).collect();
            let length = (body.len() as u32).to_le_bytes();
            framed.extend_from_slice(&length);
            framed.extend_from_slice(&checksum(length, &body).to_le_bytes());
            framed.extend_from_slice(&body);
            if let Found::Record(record, length) = decode(&framed) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(&again[..], &framed[..length]);
            }
        }
    }
}
